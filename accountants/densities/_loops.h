/* What the compiled loops share. */
#ifndef ZETADP_LOOPS
#define ZETADP_LOOPS
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdlib.h>

#define UNIT 0x1p-53
#define TINY 1e-150
#define NUMBERS(buffer) ((Py_ssize_t)((buffer).len / (Py_ssize_t)sizeof(double)))

typedef struct { double re, im; } Complex;

/* Lets go of the buffers. There is no result where they didn't fit, there was no room, or a sum left the range of floats. */
static inline PyObject *ended(Py_buffer *held, int count, int fits, int has_room, double sum, PyObject *found) {
    PyObject *trouble = !fits ? PyExc_ValueError : !has_room ? PyExc_MemoryError : !isfinite(sum) ? PyExc_FloatingPointError : NULL;
    for (int i = 0; i < count; i++) PyBuffer_Release(&held[i]);
    if (!trouble) return found;
    Py_XDECREF(found);
    PyErr_SetString(trouble, fits ? "outside the range of floats or of memory" : "arrays of other sizes than each other's");
    return NULL;
}

#endif
