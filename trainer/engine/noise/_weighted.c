/* A vector and weighted earlier ones added up in double precision, in one pass over memory, for machines whose installation had a C compiler.
   trainer/engine/noise/weighted.py has the same as torch operations, to the bit. No state, no Python objects inside the loops, which run
   without the interpreter's lock. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>

/* Compiled for what a processor may have, with no product and sum in one (-ffp-contract=off): all give the same bits. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

#define BLOCK 512 /* numbers at a time, which stay in the nearest cache */
#define MOST 64   /* earlier vectors */

/* v = given * factor, within +-largest and, unless the unit is 0, rounded to multiples of it, a power of two; the sum of own v and the
   earlier vectors by their coefficients, within +-bound; v itself or that sum is kept, and the sum by weight comes out. */
typedef struct { double factor, largest, unit, own, bound, weight; int keeps_sum; } Rule;

static inline double within(double number, double largest) {
    number = number < -largest ? -largest : number; /* NaN stays */
    return number > largest ? largest : number;
}

static inline void first_of(const void *given, int single, Py_ssize_t first, Py_ssize_t count, double *number) {
    if (single) for (Py_ssize_t i = 0; i < count; i++) number[i] = ((const float *)given)[first + i];
    else for (Py_ssize_t i = 0; i < count; i++) number[i] = ((const double *)given)[first + i];
}

static inline void last_of(const double *number, int single, Py_ssize_t first, Py_ssize_t count, double weight, void *out) {
    if (single) for (Py_ssize_t i = 0; i < count; i++) ((float *)out)[first + i] = (float)(number[i] * weight);
    else for (Py_ssize_t i = 0; i < count; i++) ((double *)out)[first + i] = number[i] * weight;
}

/* kept may be NULL, or one of the earlier vectors: these are read before. */
WIDE static void all_weighted(
    const void *given, int given_single, Py_ssize_t count, Rule by, const double *coefficient, double *const *earlier, int terms, double *kept,
    void *out, int out_single
) {
    const double inverse = by.unit ? 1.0 / by.unit : 0.0;
    double number[BLOCK], sum[BLOCK];
    for (Py_ssize_t first = 0; first < count; first += BLOCK) {
        const Py_ssize_t some = count - first < BLOCK ? count - first : BLOCK;
        first_of(given, given_single, first, some, number);
        for (Py_ssize_t i = 0; i < some; i++) number[i] = within(number[i] * by.factor, by.largest);
        if (by.unit) for (Py_ssize_t i = 0; i < some; i++) number[i] = rint(number[i] * inverse) * by.unit;
        for (Py_ssize_t i = 0; i < some; i++) sum[i] = number[i] * by.own;
        for (int term = 0; term < terms; term++) {
            const double *const one = earlier[term] + first;
            for (Py_ssize_t i = 0; i < some; i++) sum[i] += one[i] * coefficient[term];
        }
        for (Py_ssize_t i = 0; i < some; i++) sum[i] = within(sum[i], by.bound);
        if (kept) memcpy(kept + first, by.keeps_sum ? sum : number, sizeof(double) * (size_t)some);
        last_of(sum, out_single, first, some, by.weight, out);
    }
}

/* Buffers of a tuple of as many float64 numbers each; how many were taken, which is fewer where one isn't so. */
static int taken(PyObject *tuple, Py_ssize_t count, Py_buffer *buffers, double **vectors) {
    const int terms = (int)PyTuple_GET_SIZE(tuple);
    for (int i = 0; i < terms; i++) {
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(tuple, i), &buffers[i], PyBUF_SIMPLE)) return i;
        vectors[i] = buffers[i].buf;
        if (buffers[i].len != 8 * count) { PyBuffer_Release(&buffers[i]); return i; }
    }
    return terms;
}

/* weighted(given, given_single, factor, largest, unit, own, coefficients, earlier, bound, weight, keeps_sum, kept, out, out_single): see Rule.
   given and out: float32 where single, else float64; coefficients: float64, as many as the tuple earlier has vectors of float64; kept: such a
   vector, which may be one of the earlier ones, or of no length. */
static PyObject *weighted(PyObject *module, PyObject *args) {
    Py_buffer given, coefficients, kept, out, buffers[MOST];
    PyObject *earlier;
    double *vectors[MOST];
    Rule by;
    int given_single, out_single, terms = 0;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "y*pddddy*O!ddpw*w*p", &given, &given_single, &by.factor, &by.largest, &by.unit, &by.own, &coefficients, &PyTuple_Type,
            &earlier, &by.bound, &by.weight, &by.keeps_sum, &kept, &out, &out_single
        )) return NULL;
    const Py_ssize_t count = given.len / (given_single ? 4 : 8), wanted = PyTuple_GET_SIZE(earlier);
    int fits = out.len == count * (out_single ? 4 : 8) && (kept.len == 8 * count || kept.len == 0) && wanted <= MOST
        && coefficients.len == 8 * wanted;
    if (fits) {
        terms = taken(earlier, count, buffers, vectors);
        fits = terms == wanted;
    }
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        all_weighted(
            given.buf, given_single, count, by, coefficients.buf, vectors, terms, kept.len ? kept.buf : NULL, out.buf, out_single
        );
        Py_END_ALLOW_THREADS
    }
    for (int i = 0; i < terms; i++) PyBuffer_Release(&buffers[i]);
    PyBuffer_Release(&given); PyBuffer_Release(&coefficients); PyBuffer_Release(&kept); PyBuffer_Release(&out);
    if (PyErr_Occurred()) return NULL;
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than each other's"); return NULL; }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"weighted", weighted, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_weighted", NULL, 0, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__weighted(void) { return PyModuleDef_Init(&definition); }
