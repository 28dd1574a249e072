/* The weighted sum of a linear layer's gradients g conj(a), one a unit, in parts of so many units as float32 may add at once: nothing but a
   few units' numbers is copied, and no product is held beside the sum. For x86-64 with AVX2; elsewhere trainer/layers/rules/linear.py adds
   matrix products. No state, no Python objects inside the loops, which run without the interpreter's lock. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if defined(__GNUC__) && defined(__x86_64__) && defined(__linux__)
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>
#include "_shares.h"

/* Outputs whose slopes are kept near at once: a multiple of the rows of both tiles. */
#define GROUP 480

/* slopes: (units, outputs, parts); inputs: (units, columns), where complex numbers are two columns each; sums: (outputs, columns). */
typedef struct {
    const float *slopes, *factors, *inputs;
    float *sums;
    Py_ssize_t units, outputs, columns, parts, at_once;
    int is_wide;
} Task;

#define LOOPS "_panels.h"
#include "_widths.h"

typedef struct { const Task *task; Py_ssize_t first, last; int failed; } Share;

static void *of_share(void *given) {
    Share *share = given;
    const Task *task = share->task;
    const Py_ssize_t depth = task->at_once * task->parts;
    float *left = malloc(sizeof(float) * (size_t)(depth * (task->outputs < GROUP ? task->outputs + 12 : GROUP)));
    float *right = aligned_alloc(64, sizeof(float) * (size_t)(depth * 32));
    share->failed = left == NULL || right == NULL;
    if (!share->failed) (task->is_wide ? panels_of_sixteen : panels_of_eight)(task, share->first, share->last, left, right);
    free(left);
    free(right);
    return NULL;
}

/* The bias's sums, in float64. */
static void of_slopes(const Task *task, double *sums) {
    const Py_ssize_t numbers = task->outputs * task->parts;
    memset(sums, 0, sizeof(double) * (size_t)numbers);
    for (Py_ssize_t u = 0; u < task->units; u++)
        for (Py_ssize_t i = 0; i < numbers; i++) sums[i] += (double)(task->factors[u] * task->slopes[u * numbers + i]);
}

/* Whether there was memory for it. */
static int of_all(const Task *task, int threads) {
    Share shares[MOST_THREADS];
    const Py_ssize_t width = task->is_wide ? 32 : 16, panels = (task->columns + width - 1) / width;
    int failed = 0;
    threads = some_threads(threads);
    for (int i = 0; i < threads; i++) shares[i] = (Share){task, panels * i / threads, panels * (i + 1) / threads, 0};
    in_threads(of_share, (char *)shares, sizeof(Share), threads);
    for (int i = 0; i < threads; i++) failed |= shares[i].failed;
    return !failed;
}

/* weighted_sum(slopes, factors, inputs, sums, of_slopes, (units, outputs, inputs, parts), at_once, (at_most, threads))
   slopes: (units, outputs, parts); factors: (units,); inputs: (units, inputs, parts). Written: sums, (outputs, inputs, parts), and
   of_slopes, (outputs, parts), float64; all else is float32. Products of ``at_once`` units are one chain. */
static PyObject *weighted_sum(PyObject *module, PyObject *args) {
    Py_buffer slopes, factors, inputs, sums, of_bias;
    Task task = {0};
    Py_ssize_t seen;
    int at_most, threads, done = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*w*w*(nnnn)n(ii)", &slopes, &factors, &inputs, &sums, &of_bias, &task.units, &task.outputs, &seen,
                          &task.parts, &task.at_once, &at_most, &threads))
        return NULL;
    task.columns = seen * task.parts;
    task.is_wide = at_most >= 16 && widest() >= 16;
    const int fits = widest() && (task.parts == 1 || task.parts == 2) && task.units > 0 && task.outputs > 0 && seen > 0 && task.at_once > 0
        && slopes.len == 4 * task.units * task.outputs * task.parts && factors.len == 4 * task.units
        && inputs.len == 4 * task.units * task.columns && sums.len == 4 * task.outputs * task.columns
        && of_bias.len == 8 * task.outputs * task.parts;
    if (fits) {
        task.slopes = slopes.buf; task.factors = factors.buf; task.inputs = inputs.buf; task.sums = sums.buf;
        task.at_once = task.at_once < task.units ? task.at_once : task.units;
        Py_BEGIN_ALLOW_THREADS
        done = of_all(&task, threads);
        of_slopes(&task, of_bias.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&slopes); PyBuffer_Release(&factors); PyBuffer_Release(&inputs);
    PyBuffer_Release(&sums); PyBuffer_Release(&of_bias);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than a linear layer's"); return NULL; }
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"width", width, METH_NOARGS, NULL},
    {"weighted_sum", weighted_sum, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
#else
static PyMethodDef methods[] = {{NULL, NULL, 0, NULL}};
#endif
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_outer", NULL, 0, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__outer(void) { return PyModuleDef_Init(&definition); }
