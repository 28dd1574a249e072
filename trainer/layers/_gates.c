/* The cardioid and Mish on float32 numbers, in one pass over memory each way, for machines whose installation had a C compiler.
   trainer/layers/gates.py has the cardioid as torch operations too, to the bit; activations.py has Mish, with torch's own exponential.
   No state, no Python objects inside the loops, which run without the interpreter's lock. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include "_blocks.h"
#include "_shares.h"

#define SATURATED 20.0f /* tanh(softplus(x)) is 1 from here on, and (n + 2)^2 still fits */
#define LOWEST -87.0f   /* below, e^x is taken as 0: it would be no normal number */

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

/* e^x for x <= SATURATED, within two units of the last place: 2^k e^r with k the whole number next to x / ln 2, and Cephes' polynomial. */
static inline float power_of(float given) {
    const float x = given < LOWEST ? LOWEST : given;
    const float rounded = x * 1.44269504f + 12582912.0f, k = rounded - 12582912.0f; /* 1.5 * 2^23: its last bits are k */
    const float r = x - k * 0.693359375f + k * 2.12194440e-4f;
    const float tail = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r + 1.6666665459e-1f) * r
        + 5.0000001201e-1f;
    union { float number; uint32_t bits; } scale = {rounded};
    scale.bits = given < LOWEST ? 0u : (scale.bits << 23) + 0x3F800000u;
    return (tail * r * r + r + 1.0f) * scale.number;
}

/* x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2). */
static inline void mish_of(const float *x, float *out) {
    for (int i = 0; i < BLOCK; i++) {
        const float power = power_of(x[i] > SATURATED ? SATURATED : x[i]), n = (power + 2.0f) * power;
        out[i] = x[i] * (n / (n + 2.0f));
    }
}

/* Its slope, n / (n + 2) + 4 x (n - e^x) / (n + 2)^2: a large x beyond saturation would be multiplied by a slope that is only nearly 0. */
static inline void slope_of(const float *given, float *out) {
    for (int i = 0; i < BLOCK; i++) {
        const float x = given[i] > SATURATED ? SATURATED : given[i], power = power_of(x), n = (power + 2.0f) * power;
        const float inverse = 1.0f / (n + 2.0f);
        out[i] = n * inverse + 4.0f * x * ((n - power) * inverse * inverse);
    }
}

WIDE static void all_mishes(const float *restrict x, float *restrict out, Py_ssize_t count) {
    for (Py_ssize_t first = 0; first < count; first += BLOCK) {
        float given[BLOCK], result[BLOCK];
        take_row(given, x + first, count - first);
        mish_of(given, result);
        give_row(result, out + first, count - first);
    }
}

WIDE static void all_mish_pullbacks(const float *restrict x, const float *restrict along, float *restrict out, Py_ssize_t count) {
    for (Py_ssize_t first = 0; first < count; first += BLOCK) {
        float given[BLOCK], slope[BLOCK];
        take_row(given, x + first, count - first);
        slope_of(given, slope);
        take_row(given, along + first, count - first);
        for (int i = 0; i < BLOCK; i++) slope[i] *= given[i];
        give_row(slope, out + first, count - first);
    }
}

/* Complex numbers of a row of ``width`` real and then ``width`` imaginary parts; side by side where the width is 1. */
static inline void take_parts(Block *block, const float *z, Py_ssize_t first, Py_ssize_t width, Py_ssize_t count) {
    if (width == 1) { take(block, z + 2 * first, count - first); return; }
    take_row(block->re, z + first, count - first);
    take_row(block->im, z + width + first, count - first);
}

static inline void give_parts(const Block *block, float *out, Py_ssize_t first, Py_ssize_t width, Py_ssize_t count) {
    if (width == 1) { give(block, out + 2 * first, count - first); return; }
    give_row(block->re, out + first, count - first);
    give_row(block->im, out + width + first, count - first);
}

/* (1 + i) (Mish(Re z) + i Mish(Im z)) of ``count`` numbers of one row. */
WIDE static void row_of_conj_mishes(const float *restrict z, float *restrict out, Py_ssize_t width, Py_ssize_t count) {
    for (Py_ssize_t first = 0; first < count; first += BLOCK) {
        Block given, curved;
        take_parts(&given, z, first, width, count);
        mish_of(given.re, curved.re);
        mish_of(given.im, curved.im);
        for (int i = 0; i < BLOCK; i++) { given.re[i] = curved.re[i] - curved.im[i]; given.im[i] = curved.re[i] + curved.im[i]; }
        give_parts(&given, out, first, width, count);
    }
}

/* Of a cotangent (a, b) the real part gets (a + b) Mish'(Re z), the imaginary one (b - a) Mish'(Im z). */
WIDE static void row_of_conj_mish_pullbacks(
    const float *restrict z, const float *restrict along, float *restrict out, Py_ssize_t width, Py_ssize_t count
) {
    for (Py_ssize_t first = 0; first < count; first += BLOCK) {
        Block given, slope;
        take_parts(&given, z, first, width, count);
        slope_of(given.re, slope.re);
        slope_of(given.im, slope.im);
        take_parts(&given, along, first, width, count);
        for (int i = 0; i < BLOCK; i++) {
            slope.re[i] *= given.re[i] + given.im[i];
            slope.im[i] *= given.im[i] - given.re[i];
        }
        give_parts(&slope, out, first, width, count);
    }
}

/* The numbers from ``first`` to ``end`` of arrays; of whole rows of 2 ``width`` numbers, unless the width is 0 or 1. */
typedef struct { const float *x, *along; float *out; Py_ssize_t width, first, end; } Curve;

static void *curve_in_share(void *given) {
    const Curve *const all = given;
    const Py_ssize_t width = all->width, count = all->end - all->first, row = width > 1 ? 2 * width : count;
    for (Py_ssize_t first = all->first; first < all->end; first += row) {
        const float *const x = all->x + first;
        const Py_ssize_t numbers = width > 1 ? width : count / 2;
        if (width == 0 && all->along == NULL) all_mishes(x, all->out + first, count);
        else if (width == 0) all_mish_pullbacks(x, all->along + first, all->out + first, count);
        else if (all->along == NULL) row_of_conj_mishes(x, all->out + first, width, numbers);
        else row_of_conj_mish_pullbacks(x, all->along + first, all->out + first, width, numbers);
    }
    return NULL;
}

/* Shares are of whole blocks, or of whole rows. */
static void curve_in_threads(const float *x, const float *along, float *out, Py_ssize_t width, Py_ssize_t count, int threads) {
    Curve shares[MOST_THREADS];
    const Py_ssize_t whole = width > 1 ? 2 * width : 2 * BLOCK, parts = (count + whole - 1) / whole;
    for (int i = 0; i < threads; i++) {
        const Py_ssize_t first = parts * i / threads * whole, end = parts * (i + 1) / threads * whole;
        shares[i] = (Curve){x, along, out, width, first < count ? first : count, end < count ? end : count};
    }
    in_threads(curve_in_share, (char *)shares, sizeof(Curve), threads);
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

/* mish(x, along, out, width, threads): Mish of as many float32 numbers if the width is 0; else of complex numbers, turned by 1 + i, in rows of
   ``width`` real and then ``width`` imaginary parts. With ``along``, its cotangent's pullback instead; None is none. */
static PyObject *mish(PyObject *module, PyObject *args) {
    Py_buffer x, along, out;
    Py_ssize_t width;
    int threads;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*z*w*ni", &x, &along, &out, &width, &threads)) return NULL;
    const Py_ssize_t count = x.len / 4;
    const int fits = x.len == out.len && (along.buf == NULL || along.len == x.len) && width >= 0 && count % (width ? 2 * width : 1) == 0;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        curve_in_threads(x.buf, along.buf, out.buf, width, count, some_threads(threads));
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&x); PyBuffer_Release(&along); PyBuffer_Release(&out);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than each other's, or of no whole rows"); return NULL; }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"mish", mish, METH_VARARGS, NULL},
    {"cardioid", cardioid, METH_VARARGS, NULL},
    {"cardioid_pullback", cardioid_pullback, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_gates", NULL, 0, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__gates(void) { return PyModuleDef_Init(&definition); }
