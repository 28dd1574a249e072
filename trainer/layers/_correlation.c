/* Each unit's gradient of a convolution's weight, straight from images and slopes: nothing of what a kernel sees is copied. For x86-64
   with AVX2; elsewhere trainer/layers/rules/patches.py has it as matrix products. No state, no Python objects inside the loops, which
   run without the interpreter's lock. A unit's numbers depend on nothing but its own image and slopes. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if defined(__GNUC__) && defined(__x86_64__) && defined(__linux__)
#include <immintrin.h>
#include <stdlib.h>
#include "_shares.h"

/* Floats of slopes that tiles go over again and again, in the nearest cache. Of planes, which are turned first, in longer stretches. */
#define NEAR 4096
#define NEAR_TURNED 16384

/* How tiles go over a chunk: rows and columns of positions, steps in the image between them; the numbers of a position (outputs); and
   what a position's kernel sees: stretches of memory of ``run`` numbers, from ``starts`` on. */
typedef struct {
    Py_ssize_t rows, columns, down, across, outputs, run, stretches;
    const Py_ssize_t *starts;
} Walk;

#define LOOPS "_tiles.h"
#include "_widths.h"

typedef struct {
    const float *images, *slopes;
    float *weights, *sums;
    double *squares;
    /* Floats of one image; positions down and across; outputs of all parts; numbers that a kernel sees; rows of a chunk. */
    Py_ssize_t image, rows, columns, outputs, seen, step, places, channels, parts;
    Walk walk;
    int is_planes, is_wide;
} Task;

typedef struct { const Task *task; Py_ssize_t first, last; int failed; } Share;

/* (outputs, positions), whose planes lie ``plane`` numbers apart -> (positions, outputs). */
__attribute__((target("avx2"))) static void turned(
        const float *in, Py_ssize_t plane, float *out, Py_ssize_t positions, Py_ssize_t outputs) {
    for (Py_ssize_t d = 0; d < outputs; d += 8) {
        Py_ssize_t p = 0;
        for (; p + 8 <= positions; p += 8) {
            __m256 a[8], b[8];
            for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_ps(in + (d + i) * plane + p);
            for (int i = 0; i < 8; i += 2) {
                b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
                b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
            }
            for (int i = 0; i < 8; i += 4) {
                a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
                a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xEE);
                a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
                a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xEE);
            }
            for (int i = 0; i < 4; i++) {
                _mm256_storeu_ps(out + (p + i) * outputs + d, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
                _mm256_storeu_ps(out + (p + i + 4) * outputs + d, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
            }
        }
        for (; p < positions; p++)
            for (int i = 0; i < 8; i++) out[p * outputs + d + i] = in[(d + i) * plane + p];
    }
}

/* g conj(a) of the four products of parts: (places, parts, channels, parts, outputs) -> (parts, places, channels, outputs). */
__attribute__((target("avx2"))) static void folded(const float *products, float *out, const Task *task) {
    const Py_ssize_t half = task->outputs / 2, channels = task->channels, apart = task->places * channels * half;
    for (Py_ssize_t place = 0; place < task->places; place++)
        for (Py_ssize_t c = 0; c < channels; c++) {
            const float *of_real = products + (2 * place * channels + c) * 2 * half, *of_imaginary = of_real + channels * 2 * half;
            float *real = out + (place * channels + c) * half, *imaginary = real + apart;
            for (Py_ssize_t d = 0; d < half; d++) {
                real[d] = of_real[d] + of_imaginary[half + d];
                imaginary[d] = of_real[half + d] - of_imaginary[d];
            }
        }
}

/* The sum of squares, in float64; a multiple of eight numbers. */
__attribute__((target("avx2"))) static double squared(const float *numbers, Py_ssize_t count) {
    double sums[8] = {0.0};
    for (Py_ssize_t i = 0; i < count; i += 8)
        for (int k = 0; k < 8; k++) sums[k] += (double)numbers[i + k] * (double)numbers[i + k];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

static void of_unit(const Task *task, Py_ssize_t unit, float *products, float *room) {
    const Py_ssize_t positions = task->rows * task->columns, outputs = task->outputs, numbers = task->seen * outputs;
    const float *image = task->images + unit * task->image, *slopes = task->slopes + unit * positions * outputs;
    float *weights = task->weights + unit * numbers / task->parts, *total = task->parts == 2 ? products : weights;
    Walk walk = task->walk;
    for (Py_ssize_t row = 0; row < task->rows; row += task->step) {
        walk.rows = task->rows - row < task->step ? task->rows - row : task->step;
        const float *some = slopes + row * task->columns * outputs;
        if (task->is_planes) {
            turned(slopes + row * task->columns, positions, room, walk.rows * task->columns, outputs);
            some = room;
        }
        (task->is_wide ? chunk_of_sixteen : chunk_of_eight)(
            image + row * walk.down, &walk, some, total, task->sums + unit * outputs, row == 0);
    }
    if (task->parts == 2) folded(products, weights, task);
    task->squares[unit] = squared(weights, numbers / task->parts);
}

static void *of_share(void *given) {
    Share *share = given;
    const Task *task = share->task;
    float *products = malloc(sizeof(float) * (size_t)(task->seen * task->outputs));
    float *room = malloc(sizeof(float) * (size_t)(task->step * task->columns * task->outputs));
    share->failed = products == NULL || room == NULL;
    for (Py_ssize_t unit = share->first; unit < share->last && !share->failed; unit++) of_unit(task, unit, products, room);
    free(products);
    free(room);
    return NULL;
}

/* Whether there was memory for it. */
static int of_all(const Task *task, Py_ssize_t units, int threads) {
    Share shares[MOST_THREADS];
    int failed = 0;
    threads = some_threads(threads);
    for (int i = 0; i < threads; i++) shares[i] = (Share){task, units * i / threads, units * (i + 1) / threads, 0};
    in_threads(of_share, (char *)shares, sizeof(Share), threads);
    for (int i = 0; i < threads; i++) failed |= shares[i].failed;
    return !failed;
}

/* gradients(images, slopes, weights, sums, squares, is_planes, sizes, steps, (at_most, threads))
   images: (units, height, width, parts * channels); slopes: (units, positions, parts * outputs), or (units, parts * outputs, positions) if
   is_planes. Written: weights, (units, parts, places, channels, outputs); sums of the slopes, (units, parts * outputs); squares of each
   unit's weights, (units,), float64; all else is float32.
   sizes: units, height, width, channels, rows, columns, outputs, parts; steps: kernel, stride and dilation, each down and across. */
static PyObject *gradients(PyObject *module, PyObject *args) {
    Py_buffer images, slopes, weights, sums, squares;
    Task task = {0};
    Py_ssize_t units, height, wide, kernel[2], stride[2], dilation[2];
    int at_most, threads, done = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*w*w*w*p(nnnnnnnn)(nnnnnn)(ii)", &images, &slopes, &weights, &sums, &squares, &task.is_planes, &units,
                          &height, &wide, &task.channels, &task.rows, &task.columns, &task.outputs, &task.parts, &kernel[0], &kernel[1],
                          &stride[0], &stride[1], &dilation[0], &dilation[1], &at_most, &threads))
        return NULL;
    const Py_ssize_t channels = task.parts * task.channels, row = wide * channels;
    const int is_whole = dilation[1] == 1;
    task.outputs *= task.parts;
    task.image = height * row;
    task.places = kernel[0] * kernel[1];
    task.seen = task.places * channels;
    task.is_wide = task.outputs % 16 == 0 && at_most >= 16 && widest() >= 16;
    task.walk = (Walk){0, task.columns, stride[0] * row, stride[1] * channels, task.outputs,
                       is_whole ? kernel[1] * channels : channels, is_whole ? kernel[0] : task.places, NULL};
    const Py_ssize_t numbers = task.seen * task.outputs / (task.parts == 2 ? 2 : 1);
    const int is_kind = widest() && (task.parts == 1 || task.parts == 2) && task.outputs > 0 && task.outputs % (8 * task.parts) == 0
        && units >= 0 && channels > 0 && task.rows > 0 && task.columns > 0 && kernel[0] > 0 && kernel[1] > 0 && stride[0] > 0
        && stride[1] > 0 && dilation[0] > 0 && dilation[1] > 0;
    const int fits = is_kind && (task.rows - 1) * stride[0] + (kernel[0] - 1) * dilation[0] < height
        && (task.columns - 1) * stride[1] + (kernel[1] - 1) * dilation[1] < wide && images.len == 4 * units * task.image
        && slopes.len == 4 * units * task.rows * task.columns * task.outputs && weights.len == 4 * units * numbers
        && sums.len == 4 * units * task.outputs && squares.len == 8 * units;
    Py_ssize_t *starts = fits ? malloc(sizeof(Py_ssize_t) * (size_t)task.places) : NULL;
    if (starts != NULL) {
        for (Py_ssize_t i = 0; i < task.walk.stretches; i++)
            starts[i] = is_whole ? i * dilation[0] * row : i / kernel[1] * dilation[0] * row + i % kernel[1] * dilation[1] * channels;
        task.walk.starts = starts;
        task.images = images.buf; task.slopes = slopes.buf;
        task.weights = weights.buf; task.sums = sums.buf; task.squares = squares.buf;
        task.step = (task.is_planes ? NEAR_TURNED : NEAR) / (task.columns * task.outputs);
        task.step = task.step < 1 ? 1 : task.step > task.rows ? task.rows : task.step;
        Py_BEGIN_ALLOW_THREADS
        done = of_all(&task, units, threads);
        Py_END_ALLOW_THREADS
        free(starts);
    }
    PyBuffer_Release(&images); PyBuffer_Release(&slopes);
    PyBuffer_Release(&weights); PyBuffer_Release(&sums); PyBuffer_Release(&squares);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than a convolution's"); return NULL; }
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"width", width, METH_NOARGS, NULL},
    {"gradients", gradients, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
#else
static PyMethodDef methods[] = {{NULL, NULL, 0, NULL}};
#endif
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_correlation", NULL, 0, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__correlation(void) { return PyModuleDef_Init(&definition); }
