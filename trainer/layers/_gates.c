/* The cardioid on pairs of float32 numbers, in one pass over memory each way, for machines whose installation had a C compiler.
   trainer/layers/gates.py has the same as torch operations, to the bit. No state, no Python objects inside the loops, which run
   without the interpreter's lock. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>

/* Compiled for what a processor may have. A number's result doesn't depend on its place: every one goes through the same operations, in
   blocks that are filled up, with real and imaginary parts apart. Side by side, GCC 12 takes a product and a difference together even
   where it is told not to (-ffp-contract=off), but not in the last numbers of a loop. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

#define BLOCK 64

typedef struct { float re[BLOCK], im[BLOCK]; } Block;

/* Numbers of z, as many as there are, and zeros. */
static inline void take(Block *block, const float *z, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < BLOCK && count < BLOCK; i++) block->re[i] = block->im[i] = 0.0f;
    const Py_ssize_t some = count < BLOCK ? count : BLOCK;
    for (Py_ssize_t i = 0; i < some; i++) { block->re[i] = z[2 * i]; block->im[i] = z[2 * i + 1]; }
}

static inline void give(const Block *block, float *out, Py_ssize_t count) {
    const Py_ssize_t some = count < BLOCK ? count : BLOCK;
    for (Py_ssize_t i = 0; i < some; i++) { out[2 * i] = block->re[i]; out[2 * i + 1] = block->im[i]; }
}

/* z / |z|, and 0 at z = 0: first by the larger part, so that no square overflows or vanishes. |z| is at least the smallest normal number. */
static inline void turn_into_units(Block *z) {
    for (int i = 0; i < BLOCK; i++) {
        const float x = fabsf(z->re[i]), y = fabsf(z->im[i]), larger = x > y ? x : y, part = larger < FLT_MIN ? FLT_MIN : larger;
        const float u = z->re[i] / part, w = z->im[i] / part, length = sqrtf(u * u + w * w);
        const float inverse = 1.0f / (length < 1.0f ? 1.0f : length);
        z->re[i] = u * inverse;
        z->im[i] = w * inverse;
    }
}

WIDE static void all_cardioids(const float *restrict z, float *restrict out, Py_ssize_t count) {
    for (Py_ssize_t first = 0; first < count; first += BLOCK) {
        Block given, unit;
        take(&given, z + 2 * first, count - first);
        unit = given;
        turn_into_units(&unit);
        for (int i = 0; i < BLOCK; i++) {
            const float gain = 0.5f + 0.5f * unit.re[i];
            given.re[i] *= gain;
            given.im[i] *= gain;
        }
        give(&given, out + 2 * first, count - first);
    }
}

WIDE static void all_pullbacks(const float *restrict z, const float *restrict slope, float *restrict out, Py_ssize_t count) {
    for (Py_ssize_t first = 0; first < count; first += BLOCK) {
        Block unit, along;
        take(&unit, z + 2 * first, count - first);
        take(&along, slope + 2 * first, count - first);
        turn_into_units(&unit);
        for (int i = 0; i < BLOCK; i++) {
            const float u = unit.re[i], w = unit.im[i], a = along.re[i], b = along.im[i];
            const float gain = 0.5f + 0.5f * u, across = 0.5f * (a * u + b * w) * w;
            along.re[i] = gain * a + across * w;
            along.im[i] = gain * b - across * u;
        }
        give(&along, out + 2 * first, count - first);
    }
}

/* cardioid(z, out): both as many complex64 numbers. */
static PyObject *cardioid(PyObject *module, PyObject *args) {
    Py_buffer z, out;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*w*", &z, &out)) return NULL;
    const int fits = z.len == out.len;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        all_cardioids(z.buf, out.buf, z.len / 8);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&z); PyBuffer_Release(&out);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than each other's"); return NULL; }
    Py_RETURN_NONE;
}

/* cardioid_pullback(z, slope, out): all as many complex64 numbers. */
static PyObject *cardioid_pullback(PyObject *module, PyObject *args) {
    Py_buffer z, slope, out;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*w*", &z, &slope, &out)) return NULL;
    const int fits = z.len == out.len && z.len == slope.len;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        all_pullbacks(z.buf, slope.buf, out.buf, z.len / 8);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&z); PyBuffer_Release(&slope); PyBuffer_Release(&out);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than each other's"); return NULL; }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"cardioid", cardioid, METH_VARARGS, NULL},
    {"cardioid_pullback", cardioid_pullback, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_gates", NULL, 0, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__gates(void) { return PyModuleDef_Init(&definition); }
