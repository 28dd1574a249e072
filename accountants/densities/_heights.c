/* Loops over the heights of a contour, for machines whose installation had a C compiler. densities/heights.py has the same in NumPy; see
   _nodes.c for what is assumed of the arithmetic, and proofs/contour.md for what is claimed of its rounding. */
#include "_lines.h"

/* sum_on_line(log_weight, loss, weight_error, loss_error, quadrature, tilt, step, minus_one, error): M - 1 at each height. */
static PyObject *sum_on_line(PyObject *module, PyObject *args) {
    Py_buffer held[6];
    double quadrature, tilt, step, whole = 0.0;
    int has_room = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*dddw*w*", &held[0], &held[1], &held[2], &held[3], &quadrature, &tilt, &step, &held[4], &held[5]))
        return NULL;
    const int fits = held[0].len == 2 * held[2].len && held[1].len == held[0].len && held[3].len == held[2].len
                     && NUMBERS(held[5]) > 0 && held[4].len == 2 * held[5].len;
    if (fits) {
        const OnLine on = {held[0].buf, held[1].buf, held[2].buf, held[3].buf, quadrature, NUMBERS(held[2])};
        Py_BEGIN_ALLOW_THREADS
        whole = sums_on_line(on, tilt, step, held[4].buf, held[5].buf, NUMBERS(held[5]), &has_room);
        Py_END_ALLOW_THREADS
    }
    return ended(held, 6, fits, has_room, whole, Py_NewRef(Py_None));
}

/* add_power(minus_one, its_error, count, re, im, error): adds count log(1 + minus_one) to re + i im, and its error. */
static PyObject *add_power(PyObject *module, PyObject *args) {
    Py_buffer held[5];
    double count, whole = 0.0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*dw*w*w*", &held[0], &held[1], &count, &held[2], &held[3], &held[4])) return NULL;
    const int fits = held[0].len == 2 * held[4].len && held[1].len == held[4].len && held[2].len == held[4].len
                     && held[3].len == held[4].len;
    Py_BEGIN_ALLOW_THREADS
    if (fits) whole = add_line(held[0].buf, held[1].buf, count, held[2].buf, held[3].buf, held[4].buf, NUMBERS(held[4]));
    Py_END_ALLOW_THREADS
    return ended(held, 5, fits, 1, whole, Py_NewRef(Py_None));
}

/* integrand(tilt, step, gaussian, re, im, error) -> log of its size at the tilt, and bounds on roundings; see fill_integrand. */
static PyObject *integrand(PyObject *module, PyObject *args) {
    Py_buffer held[3];
    double tilt, step, gaussian, whole = 0.0;
    Size found = {0.0, 0.0, 0.0};
    (void)module;
    if (!PyArg_ParseTuple(args, "dddw*w*w*", &tilt, &step, &gaussian, &held[0], &held[1], &held[2])) return NULL;
    const int fits = NUMBERS(held[2]) > 0 && held[0].len == held[2].len && held[1].len == held[2].len;
    Py_BEGIN_ALLOW_THREADS
    if (fits) whole = fill_integrand(tilt, step, gaussian, held[0].buf, held[1].buf, held[2].buf, NUMBERS(held[2]), &found);
    Py_END_ALLOW_THREADS
    return ended(held, 3, fits, 1, whole, Py_BuildValue("ddd", found.log_size, found.rounding, found.phase_rounding));
}

/* sums(re, im, step, epsilon) -> the real part of the sum of v e^{-i epsilon u}, and the imaginary part of that of u v e^{-i epsilon u}. */
static PyObject *sums(PyObject *module, PyObject *args) {
    Py_buffer held[2];
    double step, epsilon;
    Complex found = {0.0, 0.0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*dd", &held[0], &held[1], &step, &epsilon)) return NULL;
    const int fits = held[0].len == held[1].len;
    Py_BEGIN_ALLOW_THREADS
    if (fits) found = sums_at(held[0].buf, held[1].buf, step, NUMBERS(held[0]), epsilon);
    Py_END_ALLOW_THREADS
    return ended(held, 2, fits, 1, found.re + found.im, Py_BuildValue("dd", found.re, found.im));
}

static PyMethodDef methods[] = {
    {"sum_on_line", sum_on_line, METH_VARARGS, NULL},
    {"add_power", add_power, METH_VARARGS, NULL},
    {"integrand", integrand, METH_VARARGS, NULL},
    {"sums", sums, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_heights", NULL, 0, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__heights(void) { return PyModuleDef_Init(&definition); }
