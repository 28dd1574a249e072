/* The composed loss in one direction of neighbours, and contours through its moment function, for machines whose installation had a C
   compiler: the two classes of inversion.py, with the same choices and the same bounds, for Gaussian mixtures, whole Laplace and whole
   Gaussian releases. proofs/contour.md has what is claimed; tests hold both against each other. */
#include "_direction.h"

#define MOST_HEIGHTS 524288.0
#define SMALLEST_SHARE 1e-20
#define LEAST_RISE 1.1

static const double ALIAS_TILTS[TILTS] = {0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0};

typedef struct {
    PyObject_HEAD
    Py_ssize_t number;
    double *re, *im;
    double tilt, centre, tolerance, period, step, log_cut, log_scale, log_left_out, alias_tilt, alias_size;
    double rounding, phase_rounding, asked, total, weighted;
} Contour;

/* -- a contour ------------------------------------------------------------------------------------------------------------------------ */

static double period_at(Point saddle, double tilt, const double *tilts, const double *beyond, double below) {
    double least = INFINITY;
    for (int k = 0; k < TILTS; k++) least = MIN(least, beyond[k] / (tilts[k] - tilt));
    return MAX(below / tilt, least) + 1e-3 * fabs(saddle.epsilon);
}

/* The saddle, or a smaller tilt with a hardly larger integrand whose aliases may be closer together; and their distance. (A) */
static int shortest(Direction *of, Point *saddle, const double *tilts, const double *beyond, double below, double *period) {
    static const double shares[] = {0.93, 0.85, 0.75, 0.6};
    const Point given = *saddle;
    double height, found[3];
    *period = period_at(given, given.tilt, tilts, beyond, below);
    if (decay_height(of, given, below, &height) < 0) return -1;
    if (*period * height < 600.0) return 0;
    for (int k = 0; k < 4; k++) {
        const double tilt = shares[k] * given.tilt;
        if (all_cumulants(of, tilt, found) < 0) return -1;
        const double larger = found[0] - given.log_moment + (given.tilt - tilt) * given.epsilon - log(shares[k]);
        const double its = period_at(given, tilt, tilts, beyond, below);
        if (larger < 1.5 && its < 0.8 * *period) {
            *saddle = (Point){tilt, given.epsilon, given.curvature, found[0]};
            *period = its;
        }
    }
    return 0;
}

/* (D): a height above which less than e^wanted is left, and the log of a bound on |M| from there on. */
static int cut_off(Direction *of, const Contour *contour, Point saddle, double wanted, double *height, double *decay) {
    if (decay_height(of, saddle, log(8.0 / contour->tolerance), height) < 0) return -1;
    *height *= LEAST_RISE;
    while (*height * contour->period < 8.0 * MOST_HEIGHTS) {
        if (check_many(of) < 0 || all_decays(of, saddle.tilt, height, 1, 2, decay) < 0) return -1;
        const double missing = *decay - saddle.tilt * saddle.epsilon - log(PI * *height) - wanted;
        if (missing <= 0.0) return 0;
        /* As if log |M| fell with the square of the height. */
        const double fallen = MAX(saddle.log_moment - *decay, 1e-300), factor = MAX(1.02 * sqrt(1.0 + missing / fallen), LEAST_RISE);
        *height *= MIN(factor, 3.0);
    }
    return unavailable("the moment function doesn't decay provably: too few releases, or too sparse, or with atoms");
}

static int fill(Direction *of, Contour *contour, double tolerance) {
    const Py_ssize_t number = contour->number;
    double *room = malloc((size_t)(4 * number) * sizeof(double)), *error = room + 3 * number;
    int failed = room == NULL ? no_room() : 0;
    Size size = {0.0, 0.0, 0.0};
    contour->re = calloc((size_t)(3 * number), sizeof(double));
    if (!failed && !contour->re) failed = no_room();
    double *its_error = failed ? NULL : contour->re + 2 * number;
    contour->im = failed ? NULL : contour->re + number;
    for (Py_ssize_t i = 0; !failed && i < of->number; i++) {
        Transform *one = of->transform + i;
        failed = line(one, contour->tilt, contour->step, number, tolerance / one->count, (Complex *)room, error);
        if (!failed && !isfinite(add_line((Complex *)room, error, one->count, contour->re, contour->im, its_error, number)))
            failed = outside_floats();
        if (!failed && of->number > 1) failed = check(of);
    }
    if (!failed) {
        const double whole = fill_integrand(contour->tilt, contour->step, of->gaussian, contour->re, contour->im, its_error, number, &size);
        if (!isfinite(whole)) failed = outside_floats();
    }
    free(room);
    contour->rounding = size.rounding;
    contour->phase_rounding = size.phase_rounding;
    contour->log_scale = log(contour->step / PI) + size.log_size;
    return failed;
}

static int lay(Direction *of, Contour *contour, Point saddle, double log_delta) {
    const double need = log(8.0 / contour->tolerance), wanted = MIN(log_delta, 0.0), spread = sqrt(2.0 * need / saddle.curvature);
    double tilts[TILTS], sizes[TILTS], beyond[TILTS], height, decay, *ends;
    int best = 0, has_moved = 0;
    contour->centre = saddle.epsilon;
    for (int k = 0; k < TILTS; k++) tilts[k] = saddle.tilt + ALIAS_TILTS[k] * spread;
    for (Py_ssize_t i = 0; i < of->number; i++)
        if (settle(of->transform + i, saddle.tilt, tilts[TILTS - 1]) < 0) return -1;
    if (chernoff_at(of, tilts, TILTS, sizes) < 0) return -1;
    ends = malloc((size_t)(of->number + 1) * sizeof(double));
    if (!ends) return no_room();
    for (Py_ssize_t i = 0; i < of->number; i++) ends[i] = of->transform[i].end;
    for (int k = 0; k < TILTS; k++) beyond[k] = sizes[k] - tilts[k] * saddle.epsilon - wanted + need;
    int failed = shortest(of, &saddle, tilts, beyond, need - wanted, &contour->period);
    if (!failed) {
        for (int k = 1; k < TILTS; k++)
            if (beyond[k] - tilts[k] * contour->period < beyond[best] - tilts[best] * contour->period) best = k;
        contour->tilt = saddle.tilt;
        contour->alias_tilt = tilts[best];
        contour->alias_size = sizes[best];
        contour->step = 2.0 * PI / contour->period;
        failed = cut_off(of, contour, saddle, wanted - need, &height, &decay);
    }
    if (!failed) {
        const double number = ceil(height / contour->step) + 2.0;
        if (!(number >= 2.0)) {
            failed = outside_floats();
        } else if (number > MOST_HEIGHTS) {
            char reason[120];
            PyOS_snprintf(reason, sizeof reason, "the moment function decays too slowly: it would take %.1e points", number);
            failed = unavailable(reason);
        } else {
            contour->number = (Py_ssize_t)number;
            failed = check(of);
        }
    }
    if (!failed) {
        /* If the tilted distribution has most of its mass below epsilon, delta is far smaller than the integrand; so must errors be. */
        const double larger = saddle.log_moment - saddle.tilt * saddle.epsilon - log(saddle.tilt) - wanted;
        const double share = 0.03 * contour->tolerance * exp(-MAX(larger - 3.0, 0.0));
        failed = fill(of, contour, MAX(share, SMALLEST_SHARE));
        contour->log_cut = decay - log(PI * contour->step * ((double)contour->number - 1.0));
    }
    contour->log_left_out = left_out(of);
    for (Py_ssize_t i = 0; i < of->number; i++) has_moved |= !(ends[i] == of->transform[i].end);
    free(ends);
    if (!failed && has_moved) failed = unavailable("the part of P that is left out has changed in between");
    if (!failed && !isfinite(contour->log_cut + contour->log_scale + contour->period + contour->alias_size)) failed = outside_floats();
    return failed;
}

static int ask(Contour *of, double epsilon) {
    if (epsilon == of->asked) return 0;
    const Complex found = sums_at(of->re, of->im, of->step, of->number, epsilon);
    if (!isfinite(found.re + found.im)) return outside_floats();
    of->asked = epsilon;
    of->total = found.re;
    of->weighted = of->tilt * found.re - found.im;
    return 0;
}

/* (log, slope of the log) of the trapezoid sum at an epsilon; (-inf, 0) if it isn't positive. */
static int estimate_at(Contour *of, double epsilon, double *value, double *slope) {
    if (ask(of, epsilon) < 0) return -1;
    *value = of->total > 0.0 ? of->log_scale - of->tilt * epsilon + log(of->total) : -INFINITY;
    *slope = of->total > 0.0 ? -of->weighted / of->total : 0.0;
    return 0;
}

/* (A): bound on what the trapezoid rule adds, over e^scale. */
static double aliases_at(const Contour *of, double epsilon, double scale) {
    const double below = -of->tilt * of->period, fall = (of->alias_tilt - of->tilt) * of->period;
    const double above = of->alias_size - of->alias_tilt * epsilon - fall - log(-expm1(-fall));
    const double first = below - log(-expm1(below)) - scale, second = above - scale;
    return (exp(MIN(first, 700.0)) + exp(MIN(second, 700.0))) * (1.0 + 1e-9);
}

/* Proved bounds on log delta(epsilon). */
static int bracket_at(Contour *of, double epsilon, double *low, double *high) {
    if (ask(of, epsilon) < 0) return -1;
    const double scale = of->log_scale - of->tilt * epsilon, beyond = of->log_cut - of->tilt * epsilon - scale;
    if (beyond > 700.0) { /* nothing is known so far away */
        *high = 0.0;
        *low = -INFINITY;
        return isfinite(scale) ? 0 : outside_floats();
    }
    const double error = 1.01 * (of->rounding + fabs(epsilon) * of->phase_rounding + exp(beyond));
    const double slack = 8.0 * UNIT * (fabs(of->log_scale) + fabs(of->tilt * epsilon) + 8.0), most = MAX(of->total, 0.0) + error;
    const double least = of->total - error - aliases_at(of, epsilon, scale);
    if (!isfinite(scale + error) || isnan(least) || !(most > 0.0)) return outside_floats();
    *high = log_add(scale + log(most) + slack, of->log_left_out); /* (T1) */
    *high = MIN(*high, 0.0);
    *low = least > 0.0 ? scale + log(least) - slack : -INFINITY;
    return isnan(*high) || isnan(*low) ? outside_floats() : 0;
}

/* The epsilon at which the trapezoid sum is e^log_delta, from a first guess; guarded Newton steps on its logarithm. */
static int solved(Contour *of, double log_delta, double *epsilon) {
    double low = -INFINITY, high = INFINITY, value, slope;
    for (int k = 0; k < 60; k++) {
        if (estimate_at(of, *epsilon, &value, &slope) < 0) return -1;
        if (value > log_delta) low = *epsilon;
        else high = *epsilon;
        const double far = 0.25 * of->period;
        const double step = slope < 0.0 && isfinite(value) ? (log_delta - value) / slope : value > log_delta ? far : -far;
        double moved = *epsilon + MIN(MAX(step, -far), far);
        const int is_done = fabs(moved - *epsilon) <= 1e-13 * fabs(moved);
        if (!is_done && !(low < moved && moved < high)) moved = 0.5 * (low + high);
        *epsilon = moved;
        if (is_done) return 0;
    }
    return isfinite(*epsilon) ? 0 : outside_floats();
}

/* -- Python's view -------------------------------------------------------------------------------------------------------------------- */

static PyTypeObject *DirectionType, *ContourType;

static PyObject *solve(Contour *of, PyObject *args) {
    double log_delta, epsilon;
    if (!PyArg_ParseTuple(args, "dd", &log_delta, &epsilon) || solved(of, log_delta, &epsilon) < 0) return NULL;
    return PyFloat_FromDouble(epsilon);
}

static PyObject *estimate(Contour *of, PyObject *args) {
    double epsilon, value, slope;
    if (!PyArg_ParseTuple(args, "d", &epsilon) || estimate_at(of, epsilon, &value, &slope) < 0) return NULL;
    return Py_BuildValue("dd", value, slope);
}

static PyObject *bracket(Contour *of, PyObject *args) {
    double epsilon, low, high;
    if (!PyArg_ParseTuple(args, "d", &epsilon) || bracket_at(of, epsilon, &low, &high) < 0) return NULL;
    return Py_BuildValue("dd", low, high);
}

/* contour(saddle, log_delta, tolerance) */
static PyObject *contour(Direction *of, PyObject *args) {
    Point at;
    double log_delta, tolerance;
    if (!PyArg_ParseTuple(args, "(dddd)dd", &at.tilt, &at.epsilon, &at.curvature, &at.log_moment, &log_delta, &tolerance)) return NULL;
    if (!is_finite_point(at) || !isfinite(log_delta) || !(tolerance > 0.0)) return outside_floats(), NULL;
    Contour *found = (Contour *)ContourType->tp_alloc(ContourType, 0);
    if (!found) return NULL;
    found->asked = NAN;
    found->tolerance = tolerance;
    if (lay(of, found, at, log_delta) < 0) Py_CLEAR(found);
    return (PyObject *)found;
}

static void free_direction(Direction *of) {
    PyTypeObject *type = Py_TYPE(of);
    let_go(of);
    type->tp_free(of);
    Py_DECREF(type);
}

static void free_contour(Contour *of) {
    PyTypeObject *type = Py_TYPE(of);
    free(of->re);
    type->tp_free(of);
    Py_DECREF(type);
}

static PyObject *log_left_out(Direction *of, void *closure) { return (void)closure, PyFloat_FromDouble(left_out(of)); }

static PyMethodDef direction_methods[] = {
    {"saddle_at", (PyCFunction)saddle_at, METH_VARARGS, NULL},
    {"saddle_for", (PyCFunction)saddle_for, METH_VARARGS, NULL},
    {"chernoff", (PyCFunction)chernoff, METH_VARARGS, NULL},
    {"log_integral", (PyCFunction)log_integral, METH_VARARGS, NULL},
    {"contour", (PyCFunction)contour, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef direction_members[] = {
    {"start", T_DOUBLE, offsetof(Direction, start), 0, NULL},
    {"largest_loss", T_DOUBLE, offsetof(Direction, largest_loss), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef direction_attributes[] = {{"log_left_out", (getter)log_left_out, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot direction_slots[] = {
    {Py_tp_new, PyType_GenericNew}, {Py_tp_init, begin}, {Py_tp_dealloc, free_direction}, {Py_tp_methods, direction_methods},
    {Py_tp_members, direction_members}, {Py_tp_getset, direction_attributes}, {0, NULL},
};
static PyType_Spec direction_spec = {"zetadp.accountants.routes.contour._contour.Direction", sizeof(Direction), 0, Py_TPFLAGS_DEFAULT,
                                     direction_slots};

static PyMethodDef contour_methods[] = {
    {"estimate", (PyCFunction)estimate, METH_VARARGS, NULL},
    {"bracket", (PyCFunction)bracket, METH_VARARGS, NULL},
    {"solve", (PyCFunction)solve, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef contour_members[] = {
    {"tilt", T_DOUBLE, offsetof(Contour, tilt), READONLY, NULL},
    {"centre", T_DOUBLE, offsetof(Contour, centre), READONLY, NULL},
    {"period", T_DOUBLE, offsetof(Contour, period), READONLY, NULL},
    {"tolerance", T_DOUBLE, offsetof(Contour, tolerance), READONLY, NULL},
    {"number", T_PYSSIZET, offsetof(Contour, number), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot contour_slots[] = {
    {Py_tp_dealloc, free_contour}, {Py_tp_methods, contour_methods}, {Py_tp_members, contour_members}, {0, NULL},
};
static PyType_Spec contour_spec = {"zetadp.accountants.routes.contour._contour.Contour", sizeof(Contour), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, contour_slots};

static PyObject *found_in(const char *module, const char *name) {
    PyObject *from = PyImport_ImportModule(module), *found = from ? PyObject_GetAttrString(from, name) : NULL;
    Py_XDECREF(from);
    return found;
}

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_contour", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__contour(void) {
    PyObject *module = PyModule_Create(&definition);
    Unavailable = found_in("zetadp.accountants.densities.nodes", "TransformUnavailable");
    Saddle = found_in("zetadp.accountants.routes.contour.saddle", "Saddle");
    DirectionType = (PyTypeObject *)PyType_FromSpec(&direction_spec);
    ContourType = (PyTypeObject *)PyType_FromSpec(&contour_spec);
    const int has_all = module && Unavailable && Saddle && DirectionType && ContourType;
    if (!has_all || PyModule_AddObjectRef(module, "Direction", (PyObject *)DirectionType) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
