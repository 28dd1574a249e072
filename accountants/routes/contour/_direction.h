/* The composed loss in one direction of neighbours: inversion.py's Direction, with the same choices and the same bounds. */
#include "_transforms.h"

#define TILTS 7
#define STAIRS 13
#define ENOUGH 0.3
#define CLIFF 10.0
#define MOST_ITERATIONS 100

static const double STAIR[STAIRS] = {0.0, 0.26, 0.52, 0.78, 1.04, 1.3, 1.56, 1.82, 2.08, 2.34, 2.6, 3.1, 4.2};

typedef struct { double tilt, epsilon, curvature, log_moment; } Point;

typedef struct {
    PyObject_HEAD
    Py_ssize_t number;
    Transform *transform;
    double gaussian, start, scale, largest_loss;
    PyObject *check; /* called between long steps: raises if the time limit is reached */
} Direction;

static double log_add(double a, double b) {
    if (a == -INFINITY || b == -INFINITY) return MAX(a, b);
    return a > b ? a + log1p(exp(b - a)) : b + log1p(exp(a - b));
}

/* -- what Python gives it ----------------------------------------------------------------------------------------------------------- */

/* One mixture's numbers, as loops.Ratio packs them; returns where the next one's begin. */
static double *pack(PyObject *weights, PyObject *shifts, double *number, Copies *copies, double *first, double *last) {
    const Py_ssize_t size = PyTuple_GET_SIZE(shifts), count = size - 1;
    Py_ssize_t base = 0, place = 0;
    Exact others = {0.0, 0.0};
    *first = PyFloat_AsDouble(PyTuple_GET_ITEM(shifts, 0));
    *last = PyFloat_AsDouble(PyTuple_GET_ITEM(shifts, count));
    for (Py_ssize_t j = 1; j < size; j++)
        if (fabs(PyFloat_AsDouble(PyTuple_GET_ITEM(shifts, j))) < fabs(PyFloat_AsDouble(PyTuple_GET_ITEM(shifts, base)))) base = j;
    const double origin = PyFloat_AsDouble(PyTuple_GET_ITEM(shifts, base));
    for (Py_ssize_t j = 0; j < size; j++) {
        if (j == base) continue;
        const double weight = PyFloat_AsDouble(PyTuple_GET_ITEM(weights, j)), shift = PyFloat_AsDouble(PyTuple_GET_ITEM(shifts, j));
        add(&others, weight);
        number[2 + place] = weight;
        number[2 + count + place] = log(weight);
        number[2 + 2 * count + place] = shift - origin;
        number[2 + 3 * count + place] = 0.5 * (shift * shift - origin * origin);
        number[2 + 4 * count + place++] = shift * shift + origin * origin + 2.0 * fabs(shift - origin);
    }
    number[0] = origin;
    number[1] = 1.0 - (others.sum + others.rest);
    *copies = copies_of(number, count);
    return number + 2 + 5 * count;
}

static int take_mixture(Transform *of, PyObject *given) {
    PyObject *up, *up_at, *low, *low_at;
    double improbable;
    if (!PyArg_ParseTuple(given, "O!O!O!O!dddd", &PyTuple_Type, &up, &PyTuple_Type, &up_at, &PyTuple_Type, &low, &PyTuple_Type, &low_at,
                          &of->count, &improbable, &of->scale, &of->largest_loss)) return -1;
    const Py_ssize_t sizes[2] = {PyTuple_GET_SIZE(up_at), PyTuple_GET_SIZE(low_at)}, copies = sizes[0] + sizes[1];
    if (!sizes[0] || !sizes[1] || PyTuple_GET_SIZE(up) != sizes[0] || PyTuple_GET_SIZE(low) != sizes[1])
        return PyErr_SetString(PyExc_ValueError, "as many weights as shifts"), -1;
    of->packed = malloc((size_t)(6 * copies + 4) * sizeof(double));
    if (!of->packed) return no_room();
    double *next = pack(up, up_at, of->packed, &of->upper, &of->first[0], &of->last[0]);
    of->spare = pack(low, low_at, next, &of->lower, &of->first[1], &of->last[1]);
    if (PyErr_Occurred()) return -1;
    of->lower_span = of->last[1] - of->first[1];
    of->span = MAX(of->last[0] - of->first[0], of->lower_span);
    of->is_lower_null = sizes[1] == 1 && of->first[1] == 0.0;
    of->ceiling = of->last[0] + sqrt(2.0 * improbable);
    of->need = log(2e3 * of->count);
    of->rough_reach = -1.0;
    of->log_left_out = -INFINITY;
    of->end = INFINITY;
    forget(of);
    return of->span > 0.0 && isfinite(of->span + of->ceiling + of->need) ? 0 : outside_floats();
}

static int take(Transform *of, PyObject *given) {
    if (!PyTuple_Check(given)) return PyErr_SetString(PyExc_TypeError, "a tuple for each transform"), -1;
    of->end = INFINITY;
    of->log_left_out = -INFINITY;
    if (PyTuple_GET_SIZE(given) != 2) return take_mixture(of, given);
    of->is_laplace = 1;
    if (!PyArg_ParseTuple(given, "dd", &of->largest_loss, &of->count)) return -1;
    of->scale = of->largest_loss;
    return 0;
}

static void let_go(Direction *of) {
    for (Py_ssize_t i = 0; of->transform && i < of->number; i++) {
        free(of->transform[i].packed);
        free(of->transform[i].rough.x);
    }
    free(of->transform);
    of->transform = NULL;
    Py_CLEAR(of->check);
}

/* Direction(transforms, gaussian, check) */
static int begin(Direction *of, PyObject *args, PyObject *names) {
    PyObject *given, *asked;
    if (names || of->transform) return PyErr_SetString(PyExc_TypeError, "made once, from positions"), -1;
    if (!PyArg_ParseTuple(args, "O!dO", &PyTuple_Type, &given, &of->gaussian, &asked)) return -1;
    of->number = PyTuple_GET_SIZE(given);
    of->transform = calloc((size_t)of->number + 1, sizeof(Transform));
    if (!of->transform) return no_room();
    of->check = Py_NewRef(asked);
    of->scale = sqrt(2.0 * of->gaussian);
    double largest = 0.0;
    for (Py_ssize_t i = 0; i < of->number; i++) {
        Transform *one = of->transform + i;
        if (take(one, PyTuple_GET_ITEM(given, i)) < 0) return -1;
        of->scale = MAX(of->scale, one->scale);
        largest += one->count * one->largest_loss;
    }
    /* Rounded up, so no loss is beyond it. */
    of->largest_loss = of->gaussian == 0.0 ? largest * (1.0 + (4.0 + 2.0 * (double)of->number) * UNIT) : INFINITY;
    return isfinite(of->gaussian + of->scale) && of->scale > 0.0 ? 0 : outside_floats();
}

/* -- the composed loss ---------------------------------------------------------------------------------------------------------------- */

static double left_out(const Direction *of) {
    double total = -INFINITY;
    for (Py_ssize_t i = 0; i < of->number; i++) total = log_add(total, log(of->transform[i].count) + of->transform[i].log_left_out);
    return total;
}

static int all_cumulants(Direction *of, double tilt, double *found) {
    double one[3];
    found[0] = tilt * (tilt + 1.0) * of->gaussian;
    found[1] = (2.0 * tilt + 1.0) * of->gaussian;
    found[2] = 2.0 * of->gaussian;
    for (Py_ssize_t i = 0; i < of->number; i++) {
        if (cumulants(of->transform + i, tilt, one) < 0) return -1;
        for (int k = 0; k < 3; k++) found[k] += of->transform[i].count * one[k];
    }
    return 0;
}

static int all_moments(Direction *of, const double *tilt, int number, double *out) {
    double one[TILTS], whole = 0.0;
    for (int k = 0; k < number; k++) out[k] = tilt[k] * (tilt[k] + 1.0) * (of->gaussian * (1.0 + 8.0 * UNIT));
    for (Py_ssize_t i = 0; i < of->number; i++) {
        if (log_moment_upper(of->transform + i, tilt, number, one) < 0) return -1;
        for (int k = 0; k < number; k++) out[k] += of->transform[i].count * one[k];
    }
    for (int k = 0; k < number; k++) whole += out[k];
    return isfinite(whole) ? 0 : outside_floats();
}

static int all_decays(Direction *of, double tilt, const double *height, int number, int shifts, double *out) {
    double one[STAIRS], room[3 * STAIRS], whole = 0.0;
    for (int k = 0; k < number; k++)
        out[k] = (tilt * (tilt + 1.0) * (1.0 + 8.0 * UNIT) - height[k] * height[k] * (1.0 - 8.0 * UNIT)) * of->gaussian;
    for (Py_ssize_t i = 0; i < of->number; i++) {
        if (log_decay(of->transform + i, tilt, height, number, shifts, one, room) < 0) return -1;
        for (int k = 0; k < number; k++) out[k] += of->transform[i].count * one[k];
    }
    for (int k = 0; k < number; k++) whole += out[k];
    return isfinite(whole) ? 0 : outside_floats();
}

static int decay_height(Direction *of, Point at, double need, double *height) {
    double rate = 2.0 * of->gaussian, one;
    for (Py_ssize_t i = 0; i < of->number; i++) {
        if (decay_rate(of->transform + i, at.tilt, &one) < 0) return -1;
        rate += of->transform[i].count * one;
    }
    const double far = rate > 0.0 ? sqrt(2.0 * need / MAX(rate, 1e-300)) : 0.0;
    *height = MAX(sqrt(2.0 * need / at.curvature), far);
    return 0;
}

/* log c(t), where delta(epsilon) <= c(t) e^{-t epsilon} + what the direction leaves out, for every epsilon. (A2) */
static int chernoff_at(Direction *of, const double *tilt, int number, double *out) {
    if (all_moments(of, tilt, number, out) < 0) return -1;
    for (int k = 0; k < number; k++) {
        const double rest = log1p(tilt[k]);
        out[k] = out[k] - tilt[k] * log1p(1.0 / tilt[k]) - rest + 16.0 * UNIT * (2.0 + rest);
        if (!isfinite(out[k])) return outside_floats();
    }
    return 0;
}

/* Raises if the time limit is reached. Whoever holds what another thread may move meanwhile must not call it. */
static int check(Direction *of) {
    PyObject *found = PyObject_CallNoArgs(of->check);
    if (!found) return -1;
    Py_DECREF(found);
    return 0;
}

/* The same within a search, whose steps are short unless there are many transforms. */
static int check_many(Direction *of) { return of->number > 16 ? check(of) : 0; }

/* -- the search for a saddle: choices, of which nothing is claimed -------------------------------------------------------------------- */

static double log_delta_of(Point at) {
    return at.log_moment - at.tilt * at.epsilon - (log(at.tilt) + log1p(at.tilt)) - 0.5 * log(2.0 * PI * at.curvature);
}

static int point_at(Direction *of, double tilt, Point *at) {
    double found[3];
    if (all_cumulants(of, tilt, found) < 0) return -1;
    *at = (Point){tilt, found[1] - 1.0 / tilt - 1.0 / (1.0 + tilt), found[2] + 1.0 / (tilt * tilt) + 1.0 / ((1.0 + tilt) * (1.0 + tilt)),
                  found[0]};
    return 0;
}

static int first_tilt(Direction *of, double size, double *tilt) {
    const double reach = sqrt(2.0 * MAX(size, 1.0));
    double found[3];
    *tilt = of->start;
    if (of->start > 0.0) return 0;
    for (Py_ssize_t i = 0; i < of->number; i++)
        if (make_rough(of->transform + i, reach / of->scale) < 0) return -1;
    if (all_cumulants(of, 1e-3 / MAX(of->scale, 1.0), found) < 0) return -1;
    const double slope = found[1];
    *tilt = MIN(0.5 * reach / sqrt(MAX(found[2], 1e-300)), 0.5 * reach / of->scale);
    for (;;) {
        if (all_cumulants(of, *tilt, found) < 0) return -1;
        if (!(found[0] - *tilt * slope > 3.0 * reach * reach) || !(*tilt > 1e-300)) return 0;
        *tilt *= 0.6;
    }
}

/* How far the saddle is from what is sought: rises with the tilt at about the rate that the curvature gives. */
static double excess_of(Point at, double target, int is_log_delta) {
    return is_log_delta ? (target - log_delta_of(at)) / (at.tilt * at.tilt) : (at.epsilon - target) / at.tilt;
}

/* Guarded Newton steps on log tilt. */
static int search(Direction *of, double target, int is_log_delta, Point *found) {
    const double size = is_log_delta ? -target : 1.0;
    double low = 1e-15 / of->scale, high = INFINITY, tilt;
    Point below = {0.0, 0.0, 0.0, 0.0}, at;
    int has_below = 0;
    if (first_tilt(of, size, &tilt) < 0) return -1;
    for (int k = 0; k < MOST_ITERATIONS; k++) {
        if (check_many(of) < 0 || point_at(of, tilt, &at) < 0) return -1;
        const double value = isfinite(at.curvature) ? excess_of(at, target, is_log_delta) : INFINITY;
        const double move = isfinite(value) ? -value / at.curvature : -INFINITY, moves = fabs(move) * at.tilt * at.tilt * at.curvature;
        *found = at;
        /* A move of log delta by this much, or of a third of the tilted law's deviation, leaves the contour as good as it was. */
        if (fabs(move) * MIN(at.tilt * at.tilt * at.curvature, moves * 10.0) < ENOUGH) return 0;
        if (value < 0.0) {
            low = MAX(low, tilt);
            below = at;
            has_below = 1;
        } else {
            high = MIN(high, tilt);
        }
        /* A cliff: the tilt before it is as good as any, unless log delta is so large that much is still between the two. */
        const int is_near = has_below && fabs(excess_of(below, target, is_log_delta)) * low * low < CLIFF + 0.05 * size;
        if (has_below && high - low < (is_near ? 0.02 : 1e-6) * low) {
            *found = below;
            return 0;
        }
        const double moved = tilt * exp(MIN(MAX(move, -1.0), 1.1));
        /* High on a cliff Newton's steps are short, so go down to between the last tilt before it and this one. */
        const int is_on_cliff = value > 0.0 && low > 0.0 && moves > CLIFF;
        tilt = low < moved && moved < high && !is_on_cliff ? moved : pow(low, 0.4) * pow(high, 0.6);
        if (!(1e-12 < tilt * of->scale && tilt * of->scale < 1e9)) break;
    }
    return unavailable("the saddle point lies beyond the tilts that are worth a contour");
}

static int is_finite_point(Point at) {
    return isfinite(at.tilt) && isfinite(at.epsilon) && isfinite(at.curvature) && isfinite(at.log_moment);
}

static PyObject *as_saddle(Point at) {
    if (!is_finite_point(at)) return outside_floats(), NULL;
    return PyObject_CallFunction(Saddle, "dddd", at.tilt, at.epsilon, at.curvature, at.log_moment);
}

static PyObject *saddle_at(Direction *of, PyObject *args) {
    double epsilon;
    Point at;
    if (!PyArg_ParseTuple(args, "d", &epsilon) || check(of) < 0 || search(of, epsilon, 0, &at) < 0) return NULL;
    return as_saddle(at);
}

static PyObject *saddle_for(Direction *of, PyObject *args) {
    double log_delta;
    Point at;
    if (!PyArg_ParseTuple(args, "d", &log_delta) || check(of) < 0 || search(of, log_delta, 1, &at) < 0) return NULL;
    /* The tilt says more about epsilon at this delta than about its own: an error of the tilt only counts squared. */
    at.epsilon += (log_delta_of(at) - log_delta) / at.tilt;
    return as_saddle(at);
}

static PyObject *chernoff(Direction *of, PyObject *args) {
    double tilt, found;
    if (!PyArg_ParseTuple(args, "d", &tilt) || chernoff_at(of, &tilt, 1, &found) < 0) return NULL;
    return PyFloat_FromDouble(found);
}

/* (B) */
static PyObject *log_integral(Direction *of, PyObject *args) {
    Point at;
    double height[STAIRS], decay[STAIRS], kernel[STAIRS], total = 0.0;
    if (!PyArg_ParseTuple(args, "(dddd)", &at.tilt, &at.epsilon, &at.curvature, &at.log_moment)) return NULL;
    if (!is_finite_point(at)) return outside_floats(), NULL;
    for (int k = 0; k < STAIRS; k++) {
        height[k] = STAIR[k] / sqrt(at.curvature);
        kernel[k] = hypot(at.tilt, height[k]) * hypot(at.tilt + 1.0, height[k]);
    }
    if (all_moments(of, &at.tilt, 1, decay) < 0 || all_decays(of, at.tilt, height + 1, STAIRS - 1, 1, decay + 1) < 0) return NULL;
    const double top = decay[0];
    for (int k = 0; k < STAIRS; k++) decay[k] = MIN(decay[k], top); /* |M(t + iu)| <= M(t) */
    for (int k = 0; k + 1 < STAIRS; k++) total += exp(decay[k] - top) * (height[k + 1] - height[k]) / kernel[k];
    total += exp(decay[STAIRS - 1] - top) / height[STAIRS - 1];
    const double found = top + log(total / PI) + 64.0 * UNIT * (2.0 + fabs(top));
    return isfinite(found) ? PyFloat_FromDouble(found) : (outside_floats(), NULL);
}

