/* The two inner loops of noise on a grid, for machines whose installation had a C compiler. mechanisms/kernel.py has the same in NumPy,
   and a test that both give the same bits. No state, no Python objects inside the loops, which run without the interpreter's lock. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>

#define THRESHOLD_MASK ((1 << 27) - 1)
#define OFFSET_MASK ((1 << 24) - 1)
#define REST 2048
#define BLOCK 512

typedef union { double number; uint64_t bits; } Double;

/* normals(words, columns, numbers, rest) -> how many places were written to rest.
   words: uint64; columns: 4096 uint64, threshold above 16 bits of alias; numbers: float64, as many as words; rest: int64, as many. */
static PyObject *normals(PyObject *module, PyObject *args) {
    Py_buffer words, columns, numbers, rest;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*w*w*", &words, &columns, &numbers, &rest)) return NULL;
    const Py_ssize_t count = words.len / 8;
    Py_ssize_t found = 0;
    const int fits = columns.len == 4096 * 8 && numbers.len >= count * 8 && rest.len >= count * 8;
    if (fits) {
        const uint64_t *word = words.buf, *column = columns.buf;
        Double *number = numbers.buf;
        int64_t *place = rest.buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t first = 0; first < count; first += BLOCK) {
            const Py_ssize_t last = count - first < BLOCK ? count : first + BLOCK;
            /* First what looks up and branches, then what the compiler can do for several numbers at once. */
            for (Py_ssize_t i = first; i < last; i++) {
                const uint64_t w = word[i], own = w >> 52, entry = column[own];
                const uint64_t bin = ((w >> 25) & THRESHOLD_MASK) < entry >> 16 ? own : entry & 0xffff;
                uint64_t cell = (bin << 24) | (w & OFFSET_MASK);
                if (bin == REST) {
                    cell = 0;
                    place[found++] = i;
                }
                number[i].bits = 0x4330000000000000 | cell; /* 2^52 + cell */
            }
            for (Py_ssize_t i = first; i < last; i++) {
                Double x = {(number[i].number - 0x1p52 + 0.5) * 0x1p-32};
                x.bits ^= (word[i] << 39) & 0x8000000000000000; /* a cell mirrored, with its centre, is its negative */
                number[i] = x;
            }
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&words); PyBuffer_Release(&columns); PyBuffer_Release(&numbers); PyBuffer_Release(&rest);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than each other's"); return NULL; }
    return PyLong_FromSsize_t(found);
}

static inline double noisy(double value, double noise, double factor, double largest, double scale) {
    double steps = value * factor;
    steps = steps < -largest ? -largest : steps > largest ? largest : steps;
    return (rint(steps * 0x1p32) * 0x1p-32 + noise) * scale;
}

/* released(value, noise, out, factor, largest, scale, single): value and out are float32 where single, else float64; noise is float64. */
static PyObject *released(PyObject *module, PyObject *args) {
    Py_buffer value, noise, out;
    double factor, largest, scale;
    int single;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*w*dddp", &value, &noise, &out, &factor, &largest, &scale, &single)) return NULL;
    const Py_ssize_t count = noise.len / 8;
    const int fits = value.len == count * (single ? 4 : 8) && out.len == value.len;
    if (fits) {
        const double *drawn = noise.buf;
        Py_BEGIN_ALLOW_THREADS
        if (single) {
            const float *from = value.buf;
            float *to = out.buf;
            for (Py_ssize_t i = 0; i < count; i++) to[i] = (float)noisy(from[i], drawn[i], factor, largest, scale);
        } else {
            const double *from = value.buf;
            double *to = out.buf;
            for (Py_ssize_t i = 0; i < count; i++) to[i] = noisy(from[i], drawn[i], factor, largest, scale);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&value); PyBuffer_Release(&noise); PyBuffer_Release(&out);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than each other's"); return NULL; }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"normals", normals, METH_VARARGS, NULL}, {"released", released, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernel", NULL, 0, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&definition); }
