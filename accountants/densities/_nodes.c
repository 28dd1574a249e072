/* Loops over quadrature nodes, for machines whose installation had a C compiler. densities/loops.py has the same in NumPy, and tests hold
   both against each other and against many digits. What is claimed of their rounding stands in proofs/contour.md:
   IEEE 754's arithmetic, no product and sum in one (-ffp-contract=off), elementary functions of the C library within 4 units in the last
   place. No state, no Python objects inside the loops, which run without the interpreter's lock. */
#include "_mixtures.h"

static Copies unpacked(const Py_buffer *packed) { return copies_of(packed->buf, (NUMBERS(*packed) - 2) / 5); }

static int is_packed(const Py_buffer *numbers) { return NUMBERS(*numbers) >= 2 && (NUMBERS(*numbers) - 2) % 5 == 0; }

static double *room_of(int fits, Py_ssize_t numbers) { return fits ? malloc((size_t)(numbers + 1) * sizeof(double)) : NULL; }

/* line_grid(upper, lower, low, step, log_factor, x, loss, log_mass, mass) -> the greatest |log_mass|. */
static PyObject *line_grid(PyObject *module, PyObject *args) {
    Py_buffer held[6];
    double low, step, log_factor, depth = 0.0, whole = 0.0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*dddw*w*w*w*", &held[0], &held[1], &low, &step, &log_factor, &held[2], &held[3], &held[4], &held[5]))
        return NULL;
    const int fits = is_packed(&held[0]) && is_packed(&held[1]) && held[3].len == held[2].len && held[4].len == held[2].len
                     && held[5].len == held[2].len;
    const Copies upper = unpacked(&held[0]), lower = unpacked(&held[1]);
    double *room = room_of(fits, upper.count + lower.count);
    if (room) {
        const Law law = {held[2].buf, held[3].buf, held[4].buf, held[5].buf, NUMBERS(held[2])};
        Py_BEGIN_ALLOW_THREADS
        whole = law_on_grid(&upper, &lower, low, step, log_factor, law, room, &depth);
        Py_END_ALLOW_THREADS
    }
    const int has_room = room != NULL;
    free(room);
    return ended(held, 6, fits, has_room, whole, PyFloat_FromDouble(depth));
}

/* log_ratio(packed, x, out): log A at each x. */
static PyObject *log_ratio(PyObject *module, PyObject *args) {
    Py_buffer held[3];
    double whole = 0.0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*w*", &held[0], &held[1], &held[2])) return NULL;
    const int fits = is_packed(&held[0]) && held[2].len == held[1].len;
    const Copies copies = unpacked(&held[0]);
    double *room = room_of(fits, copies.count);
    if (room) {
        const double *x = held[1].buf;
        double *value = held[2].buf;
        for (Py_ssize_t i = 0; i < NUMBERS(held[1]); i++) {
            value[i] = log_real(&copies, x[i], room);
            whole += fabs(value[i]);
        }
    }
    const int has_room = room != NULL;
    free(room);
    return ended(held, 3, fits, has_room, whole, Py_NewRef(Py_None));
}

/* log_ratio_at(packed, x) -> log A at one x. */
static PyObject *log_ratio_at(PyObject *module, PyObject *args) {
    Py_buffer held[1];
    double x, value = 0.0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*d", &held[0], &x)) return NULL;
    const int fits = is_packed(&held[0]);
    const Copies copies = unpacked(&held[0]);
    double *room = room_of(fits, copies.count);
    if (room) value = log_real(&copies, x, room);
    const int has_room = room != NULL;
    free(room);
    return ended(held, 1, fits, has_room, value, PyFloat_FromDouble(value));
}

/* log_ratio_error(packed, low, high) -> bound on the error of log A between two points. */
static PyObject *log_ratio_error(PyObject *module, PyObject *args) {
    Py_buffer held[1];
    double low, high, error = 0.0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*dd", &held[0], &low, &high)) return NULL;
    const int fits = is_packed(&held[0]);
    const Copies copies = unpacked(&held[0]);
    double *room = room_of(fits, copies.count);
    if (room) error = ratio_error(&copies, low, high, room);
    const int has_room = room != NULL;
    free(room);
    return ended(held, 1, fits, has_room, error, PyFloat_FromDouble(error));
}

/* valley(upper, lower, low, step, number, tilt) -> the x where f A^{tilt + 1} B^{-tilt} is least, and its logarithm there. */
static PyObject *valley(PyObject *module, PyObject *args) {
    Py_buffer held[2];
    double low, step, tilt, deepest = INFINITY, place = 0.0;
    Py_ssize_t number;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*ddnd", &held[0], &held[1], &low, &step, &number, &tilt)) return NULL;
    const int fits = is_packed(&held[0]) && is_packed(&held[1]) && number > 0;
    const Copies upper = unpacked(&held[0]), lower = unpacked(&held[1]);
    double *room = room_of(fits, upper.count + lower.count);
    if (room) deepest = deepest_at(&upper, &lower, low, step, number, tilt, room, &place);
    const int has_room = room != NULL;
    free(room);
    return ended(held, 2, fits, has_room, deepest, Py_BuildValue("dd", place, deepest));
}

/* cumulants(loss, log_mass, mass, tilt) -> log M and its first two derivatives, or infinities. */
static PyObject *cumulants(PyObject *module, PyObject *args) {
    Py_buffer held[3];
    double tilt, found[3] = {0.0, 0.0, 0.0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*d", &held[0], &held[1], &held[2], &tilt)) return NULL;
    const int fits = held[1].len == held[0].len && held[2].len == held[0].len;
    Py_BEGIN_ALLOW_THREADS
    if (fits) cumulants_of(held[0].buf, held[1].buf, held[2].buf, NUMBERS(held[0]), tilt, found);
    Py_END_ALLOW_THREADS
    return ended(held, 3, fits, 1, 0.0, Py_BuildValue("ddd", found[0], found[1], found[2]));
}

/* slopes(x, loss, log_mass, tilt) -> means of dL/dx and of its square under the tilted distribution. */
static PyObject *slopes(PyObject *module, PyObject *args) {
    Py_buffer held[3];
    double tilt, whole = 0.0, found[2] = {0.0, 0.0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*d", &held[0], &held[1], &held[2], &tilt)) return NULL;
    const int fits = NUMBERS(held[1]) > 1 && held[0].len == held[1].len && held[2].len == held[1].len;
    if (fits) whole = slopes_of(held[0].buf, held[1].buf, held[2].buf, NUMBERS(held[1]), tilt, found);
    return ended(held, 3, fits, 1, whole, Py_BuildValue("dd", found[0], found[1]));
}

/* log_moment_upper(loss, log_mass, tilts, four numbers and two factors of the ends, share, out) -> whether the ends are small enough. */
static PyObject *log_moment_upper(PyObject *module, PyObject *args) {
    Py_buffer held[4];
    Ends ends;
    double share, whole = 0.0;
    int is_small = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*dddddddw*", &held[0], &held[1], &held[2], &ends.density[0], &ends.density[1], &ends.loss[0],
                          &ends.loss[1], &ends.factor[0], &ends.factor[1], &share, &held[3])) return NULL;
    const Py_ssize_t number = NUMBERS(held[0]);
    const int fits = number > 0 && held[1].len == held[0].len && held[3].len == held[2].len;
    if (fits) {
        const double *tilt = held[2].buf;
        double *out = held[3].buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t k = 0; k < NUMBERS(held[2]) && is_small; k++) {
            is_small = moment_bound(held[0].buf, held[1].buf, number, tilt[k], &ends, share, out + k);
            if (is_small) whole += out[k];
        }
        Py_END_ALLOW_THREADS
    }
    return ended(held, 4, fits, 1, whole, PyBool_FromLong(is_small));
}

/* log_decay(upper, lower, low, step, number, tilt, log_factor, heights, shifts, log_rest, out). */
static PyObject *log_decay(PyObject *module, PyObject *args) {
    Py_buffer held[5];
    double low, step, tilt, log_factor, log_rest, whole = 0.0;
    Py_ssize_t number;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*ddnddy*y*dw*", &held[0], &held[1], &low, &step, &number, &tilt, &log_factor, &held[2], &held[3],
                          &log_rest, &held[4])) return NULL;
    const Py_ssize_t count = NUMBERS(held[2]), shifts = count ? NUMBERS(held[3]) / count : 0;
    const int fits = is_packed(&held[0]) && is_packed(&held[1]) && number > 0 && shifts > 0 && NUMBERS(held[3]) == count * shifts
                     && held[4].len == held[2].len;
    const Copies upper = unpacked(&held[0]), lower = unpacked(&held[1]);
    double *room = room_of(fits, room_for_nodes(&upper, &lower, number));
    if (room) {
        Py_BEGIN_ALLOW_THREADS
        whole = decay_bounds(&upper, &lower, low, step, number, tilt, log_factor, held[2].buf, count, held[3].buf, shifts, log_rest,
                             held[4].buf, room);
        Py_END_ALLOW_THREADS
    }
    const int has_room = room != NULL;
    free(room);
    return ended(held, 5, fits, has_room, whole, Py_NewRef(Py_None));
}

/* line_nodes(upper, lower, low, step, y, tilt, log_factor, least, log_weight, loss, weight_error, loss_error)
   -> how many nodes are kept, from the first place on, and the total size of the others, each of which is at most ``least``. */
static PyObject *line_nodes(PyObject *module, PyObject *args) {
    Py_buffer held[6];
    double low, step, y, tilt, log_factor, least, whole = 0.0;
    LineNodes nodes = {NULL, NULL, NULL, NULL, 0.0, 0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*ddddddw*w*w*w*", &held[0], &held[1], &low, &step, &y, &tilt, &log_factor, &least, &held[2], &held[3],
                          &held[4], &held[5])) return NULL;
    const int fits = is_packed(&held[0]) && is_packed(&held[1]) && held[2].len == 2 * held[4].len && held[3].len == held[2].len
                     && held[5].len == held[4].len;
    const Copies upper = unpacked(&held[0]), lower = unpacked(&held[1]);
    double *room = room_of(fits, room_for_nodes(&upper, &lower, 1));
    if (room) {
        nodes = (LineNodes){held[2].buf, held[3].buf, held[4].buf, held[5].buf, 0.0, 0};
        Py_BEGIN_ALLOW_THREADS
        whole = nodes_on_line(&upper, &lower, low, step, NUMBERS(held[4]), y, tilt, log_factor, least, &nodes, room);
        Py_END_ALLOW_THREADS
    }
    const int has_room = room != NULL;
    free(room);
    return ended(held, 6, fits, has_room, whole, Py_BuildValue("nd", nodes.kept, nodes.dropped));
}

static PyMethodDef methods[] = {
    {"line_grid", line_grid, METH_VARARGS, NULL},
    {"log_ratio", log_ratio, METH_VARARGS, NULL},
    {"log_ratio_at", log_ratio_at, METH_VARARGS, NULL},
    {"log_ratio_error", log_ratio_error, METH_VARARGS, NULL},
    {"valley", valley, METH_VARARGS, NULL},
    {"cumulants", cumulants, METH_VARARGS, NULL},
    {"slopes", slopes, METH_VARARGS, NULL},
    {"log_moment_upper", log_moment_upper, METH_VARARGS, NULL},
    {"log_decay", log_decay, METH_VARARGS, NULL},
    {"line_nodes", line_nodes, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_nodes", NULL, 0, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__nodes(void) { return PyModuleDef_Init(&definition); }
