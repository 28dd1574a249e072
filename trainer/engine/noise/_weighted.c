/* A vector and weighted earlier ones added up in double precision, in one pass over memory, for machines whose installation had a C compiler.
   trainer/engine/noise/weighted.py has the same as torch operations, to the bit. No state, no Python objects inside the loops, which run
   without the interpreter's lock. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <string.h>

/* Compiled for what a processor may have, with no product and sum in one (-ffp-contract=off): all give the same bits. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

#include "../../../mechanisms/sampling/_weighted.h"

/* weighted(given, given_single, recursion, out, out_single): given and out are float32 where single, else float64; out may be one of the
   earlier vectors. */
static PyObject *weighted(PyObject *module, PyObject *args) {
    Py_buffer given, out;
    PyObject *recursion;
    GivenRecursion by = {0};
    int given_single, out_single;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*pO!w*p", &given, &given_single, &PyTuple_Type, &recursion, &out, &out_single)) return NULL;
    const Py_ssize_t count = given.len / (given_single ? 4 : 8);
    recursion_with(recursion, count, &by);
    const int fits = by.is_there && by.fits && out.len == count * (out_single ? 4 : 8);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        all_weighted(given.buf, given_single, 0, count, &by.of, by.of.kept, out.buf, out_single);
        Py_END_ALLOW_THREADS
    }
    end_recursion(&by);
    PyBuffer_Release(&given); PyBuffer_Release(&out);
    if (PyErr_Occurred()) return NULL;
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than each other's"); return NULL; }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"weighted", weighted, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_weighted", NULL, 0, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__weighted(void) { return PyModuleDef_Init(&definition); }
