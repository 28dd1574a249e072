/* Loops over quadrature nodes, for machines whose installation had a C compiler. densities/loops.py has the same in NumPy, and tests hold
   both against each other and against many digits. What is claimed of their rounding stands in proofs/contour.md:
   IEEE 754's arithmetic, no product and sum in one (-ffp-contract=off), elementary functions of the C library within 4 units in the last
   place. No state, no Python objects inside the loops, which run without the interpreter's lock. */
#include "_loops.h"

#define ELEMENTARY (16.0 * UNIT)
#define LARGEST 600.0 /* of an exponent */

typedef struct { double size, angle, error; } LogMixture;

/* A mixture ratio A = e^{z_0} (1 + sum_j w_j (e^{d_j} - 1)), as loops.Ratio packs it: five numbers for each copy but the base. */
typedef struct {
    Py_ssize_t count;
    double origin, left;
    const double *weight, *log_weight, *distance, *half, *above;
} Copies;

static Copies unpacked(const Py_buffer *packed) {
    const double *number = packed->buf;
    const Py_ssize_t count = (NUMBERS(*packed) - 2) / 5;
    return (Copies){count, number[0], number[1], number + 2, number + 2 + count, number + 2 + 2 * count, number + 2 + 3 * count,
                    number + 2 + 4 * count};
}

static inline double exponents(const Copies *copies, double x, double *exponent) {
    double top = 0.0;
    for (Py_ssize_t j = 0; j < copies->count; j++) {
        exponent[j] = copies->distance[j] * x - copies->half[j];
        top = fmax(top, exponent[j] + copies->log_weight[j]);
    }
    return top;
}

static inline double log_modulus(double real, double imaginary, double modulus) {
    const double square = real * (2.0 + real) + imaginary * imaginary;
    return square < -0.5 ? log(modulus) : 0.5 * log1p(square);
}

static double log_real(const Copies *copies, double x, double *exponent) {
    double value = 0.0;
    if (copies->count) {
        const double top = exponents(copies, x, exponent);
        double total = top > 0.0 ? copies->left * expm1(-top) : 0.0;
        for (Py_ssize_t j = 0; j < copies->count; j++) total += copies->weight[j] * expm1(exponent[j] - top);
        value = top + log1p(total);
    }
    return copies->origin == 0.0 ? value : value + (copies->origin * x - 0.5 * copies->origin * copies->origin);
}

/* What depends on the copy and y alone: 1 - cos, sin and the size of each angle. */
static void turn(const Copies *copies, double y, double *turned) {
    for (Py_ssize_t j = 0; j < copies->count; j++) {
        const double angle = copies->distance[j] * y, half = sin(0.5 * angle);
        turned[3 * j] = 2.0 * half * half;
        turned[3 * j + 1] = sin(angle);
        turned[3 * j + 2] = fabs(angle);
    }
}

static inline LogMixture log_mixture(const Copies *copies, double x, double y, const double *turned, double *exponent) {
    const double origin = copies->origin;
    LogMixture found = {0.0, 0.0, 0.0};
    if (copies->count) {
        const double top = exponents(copies, x, exponent);
        double real = top > 0.0 ? copies->left * expm1(-top) : 0.0, imaginary = 0.0, touched = fabs(real), argument = 0.0;
        for (Py_ssize_t j = 0; j < copies->count; j++) {
            const double grown = copies->weight[j] * expm1(exponent[j] - top), size = grown + copies->weight[j];
            real += grown - size * turned[3 * j];
            imaginary += size * turned[3 * j + 1];
            touched += fabs(grown) + size * turned[3 * j + 2];
            argument += size * (fabs(exponent[j]) + (top + copies->above[j]));
        }
        /* (R2) */
        const double modulus = fmax(sqrt((1.0 + real) * (1.0 + real) + imaginary * imaginary), TINY);
        found.size = top + log_modulus(real, imaginary, modulus);
        found.angle = atan2(imaginary, 1.0 + real);
        found.error = ELEMENTARY * (touched * (1.0 + touched) / modulus + fabs(found.size) + top) + 6.0 * UNIT * argument / modulus;
    }
    if (origin != 0.0) {
        found.size += origin * x - 0.5 * origin * origin;
        found.angle += origin * y;
        found.error += 4.0 * UNIT * (fabs(origin * x) + origin * origin);
    }
    return found;
}

static int is_packed(const Py_buffer *numbers) { return NUMBERS(*numbers) >= 2 && (NUMBERS(*numbers) - 2) % 5 == 0; }

/* At least e^d - 1 for d >= 0, up to e^300. */
static inline double grown(double d) { return d < 1.0 ? d * (1.0 + d) : expm1(d < 300.0 ? d : 300.0); }

/* Unlike fmax it keeps what isn't a number. */
static inline double at_least_0(double number) { return number <= 0.0 ? 0.0 : number; }

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
    double *room = fits ? malloc((size_t)(1 + upper.count + lower.count) * sizeof(double)) : NULL;
    if (room) {
        double *x = held[2].buf, *loss = held[3].buf, *log_mass = held[4].buf, *mass = held[5].buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < NUMBERS(held[2]); i++) {
            x[i] = low + step * (double)i;
            const double above = log_real(&upper, x[i], room), below = log_real(&lower, x[i], room);
            loss[i] = above - below;
            log_mass[i] = above - 0.5 * x[i] * x[i] + log_factor;
            mass[i] = exp(log_mass[i]);
            depth = fmax(depth, fabs(log_mass[i]));
            whole += fabs(log_mass[i]) + fabs(loss[i]);
        }
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
    double *room = fits ? malloc((size_t)(1 + copies.count) * sizeof(double)) : NULL;
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
    double *room = fits ? malloc((size_t)(1 + copies.count) * sizeof(double)) : NULL;
    if (room) value = log_real(&copies, x, room);
    const int has_room = room != NULL;
    free(room);
    return ended(held, 1, fits, has_room, value, PyFloat_FromDouble(value));
}

/* log_ratio_error(packed, low, high) -> bound on the error of log A between two points, as nodes.log_mixture_error has it. (R2) */
static PyObject *log_ratio_error(PyObject *module, PyObject *args) {
    Py_buffer held[1];
    double end[2], error = 0.0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*dd", &held[0], &end[0], &end[1])) return NULL;
    const int fits = is_packed(&held[0]);
    const Copies copies = unpacked(&held[0]);
    double *room = fits ? malloc((size_t)(1 + copies.count) * sizeof(double)) : NULL;
    if (room && (copies.count || copies.origin != 0.0)) {
        const double parts = (double)copies.count, origin = fabs(copies.origin);
        double least = 1.0, size = 0.0, top = 0.0, argument = 0.0;
        for (int i = 0; i < 2; i++) {
            const double value = log_real(&copies, end[i], room), its_top = exponents(&copies, end[i], room);
            least = fmin(least, exp(fmin(value - its_top, 0.0)));
            size = fmax(size, fabs(value));
            top = fmax(top, its_top);
            for (Py_ssize_t j = 0; j < copies.count; j++) argument = fmax(argument, fabs(room[j]) + copies.above[j]);
        }
        size += top + origin * (fmax(fabs(end[0]), fabs(end[1])) + origin);
        error = ELEMENTARY * ((1.0 + parts) * (2.0 + parts) / least + 2.0 * size) + 6.0 * UNIT * parts * (argument + size) / least;
    }
    const int has_room = room != NULL;
    free(room);
    return ended(held, 1, fits, has_room, error, PyFloat_FromDouble(error));
}

/* valley(upper, lower, low, step, number, tilt) -> the x where f A^{tilt + 1} B^{-tilt} is least, and its logarithm there. For choices. */
static PyObject *valley(PyObject *module, PyObject *args) {
    Py_buffer held[2];
    double low, step, tilt, deepest = INFINITY, place = 0.0;
    Py_ssize_t number;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*ddnd", &held[0], &held[1], &low, &step, &number, &tilt)) return NULL;
    const int fits = is_packed(&held[0]) && is_packed(&held[1]) && number > 0;
    const Copies upper = unpacked(&held[0]), lower = unpacked(&held[1]);
    double *room = fits ? malloc((size_t)(1 + upper.count + lower.count) * sizeof(double)) : NULL;
    for (Py_ssize_t i = 0; room && i < number; i++) {
        const double x = low + step * (double)i;
        const double height = (tilt + 1.0) * log_real(&upper, x, room) - tilt * log_real(&lower, x, room) - 0.5 * x * x;
        if (!(height >= deepest)) { deepest = height; place = x; }
    }
    const int has_room = room != NULL;
    free(room);
    return ended(held, 2, fits, has_room, deepest, Py_BuildValue("dd", place, deepest));
}

/* cumulants(loss, log_mass, mass, tilt) -> log M and its first two derivatives, or infinities. For choices: nothing is proved of them. */
static PyObject *cumulants(PyObject *module, PyObject *args) {
    Py_buffer held[3];
    double tilt, total = 0.0, first = 0.0, second = 0.0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*d", &held[0], &held[1], &held[2], &tilt)) return NULL;
    const int fits = held[1].len == held[0].len && held[2].len == held[0].len;
    const double *loss = held[0].buf, *log_mass = held[1].buf, *mass = held[2].buf;
    int is_finite = 1;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; fits && i < NUMBERS(held[0]); i++) {
        const double exponent = tilt * loss[i];
        double grown, tilted;
        if (exponent < 1.0) {
            grown = mass[i] * expm1(exponent);
            tilted = grown + mass[i];
        } else {
            is_finite &= log_mass[i] + exponent <= LARGEST;
            tilted = exp(log_mass[i] + exponent);
            grown = tilted - mass[i];
        }
        total += grown;
        first += tilted * loss[i];
        second += tilted * loss[i] * loss[i];
    }
    Py_END_ALLOW_THREADS
    const double mean = first / (1.0 + total), variance = fmax(second / (1.0 + total) - mean * mean, 0.0);
    is_finite &= isfinite(mean) && isfinite(variance);
    return ended(held, 3, fits, 1, 0.0, is_finite ? Py_BuildValue("ddd", log1p(total), mean, variance)
                                                  : Py_BuildValue("ddd", INFINITY, INFINITY, INFINITY));
}

/* slopes(x, loss, log_mass, tilt) -> means of dL/dx and of its square under the tilted distribution. For choices. */
static PyObject *slopes(PyObject *module, PyObject *args) {
    Py_buffer held[3];
    double tilt, peak = -INFINITY, total = 0.0, first = 0.0, second = 0.0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*d", &held[0], &held[1], &held[2], &tilt)) return NULL;
    const Py_ssize_t number = NUMBERS(held[1]);
    const int fits = number > 1 && held[0].len == held[1].len && held[2].len == held[1].len;
    if (fits) {
        const double *x = held[0].buf, *loss = held[1].buf, *log_mass = held[2].buf, step = x[1] - x[0];
        for (Py_ssize_t i = 0; i + 1 < number; i++) peak = fmax(peak, log_mass[i] + tilt * loss[i]);
        for (Py_ssize_t i = 0; i + 1 < number; i++) {
            const double mass = exp(log_mass[i] + tilt * loss[i] - peak), slope = (loss[i + 1] - loss[i]) / step;
            total += mass;
            first += mass * slope;
            second += mass * slope * slope;
        }
    }
    return ended(held, 3, fits, 1, fits ? first + second : 0.0, Py_BuildValue("dd", first / total, second / total));
}

/* log_moment_upper(loss, log_mass, tilts, four numbers and two factors of the ends, share, out) -> whether the ends are small enough. (R1) */
static PyObject *log_moment_upper(PyObject *module, PyObject *args) {
    Py_buffer held[4];
    double density[2], end_loss[2], factor[2], share, whole = 0.0;
    int is_small = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*dddddddw*", &held[0], &held[1], &held[2], &density[0], &density[1], &end_loss[0], &end_loss[1],
                          &factor[0], &factor[1], &share, &held[3])) return NULL;
    const Py_ssize_t number = NUMBERS(held[0]);
    const int fits = number > 0 && held[1].len == held[0].len && held[3].len == held[2].len;
    if (fits) {
        const double *loss = held[0].buf, *log_mass = held[1].buf, *tilt = held[2].buf;
        double *out = held[3].buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t k = 0; k < NUMBERS(held[2]) && is_small; k++) {
            double peak = -INFINITY, total = 0.0, end[2];
            for (Py_ssize_t i = 0; i < number; i++) peak = fmax(peak, log_mass[i] + tilt[k] * loss[i]);
            for (Py_ssize_t i = 0; i < number; i++) total += exp(log_mass[i] + tilt[k] * loss[i] - peak);
            for (int i = 0; i < 2; i++) end[i] = density[i] + tilt[k] * end_loss[i] - peak;
            is_small = end[0] <= LARGEST && end[1] <= LARGEST;
            if (!is_small) break;
            const double ends = exp(end[0]) * factor[0] + exp(end[1]) * factor[1];
            out[k] = peak + log(total) + log1p(share + ends / total) + ELEMENTARY * (1.0 + fabs(peak));
            whole += out[k];
        }
        Py_END_ALLOW_THREADS
    }
    return ended(held, 4, fits, 1, whole, PyBool_FromLong(is_small));
}

/* log_decay(upper, lower, low, step, number, tilt, log_factor, heights, shifts, log_rest, out): the trapezoid sums of (D2), at each height the
   least over its shifts. */
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
    const Py_ssize_t most = upper.count + lower.count;
    double *room = fits ? malloc((size_t)(2 * number + 4 * most + 1) * sizeof(double)) : NULL;
    if (room) {
        double *exponent = room, *depth = room + number, *turned = depth + number, *turned_lower = turned + 3 * upper.count;
        double *spare = turned + 3 * most, *out = held[4].buf;
        const double *height = held[2].buf, *shift = held[3].buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t k = 0; k < count * shifts; k++) {
            const double u = height[k % count], y = shift[k];
            double peak = -INFINITY, total = 0.0, rounding = 0.0;
            turn(&upper, y, turned);
            turn(&lower, y, turned_lower);
            for (Py_ssize_t i = 0; i < number; i++) {
                const double x = low + step * (double)i;
                const LogMixture above = log_mixture(&upper, x, y, turned, spare), below = log_mixture(&lower, x, y, turned_lower, spare);
                exponent[i] = 0.5 * (y * y - x * x) + (tilt + 1.0) * above.size - tilt * below.size - u * (above.angle - below.angle)
                              + log_factor;
                depth[i] = (tilt + 1.0) * above.error + tilt * below.error + u * (above.error + below.error) + ELEMENTARY * (1.0 + x * x);
                peak = fmax(peak, exponent[i]);
            }
            for (Py_ssize_t i = 0; i < number; i++) {
                const double term = exp(exponent[i] - peak);
                total += term;
                rounding += term * grown(depth[i]);
            }
            const double sum = peak + log(total + rounding + UNIT * (double)number * total), most_of = fmax(sum, log_rest);
            const double bound = most_of + log1p(exp(-fabs(sum - log_rest))) + ELEMENTARY * (1.0 + fabs(peak));
            out[k % count] = k < count || bound < out[k % count] ? bound : out[k % count];
            whole += bound;
        }
        Py_END_ALLOW_THREADS
    }
    const int has_room = room != NULL;
    free(room);
    return ended(held, 5, fits, has_room, whole, Py_NewRef(Py_None));
}

/* line_nodes(upper, lower, low, step, y, tilt, log_factor, least, log_weight, loss, weight_error, loss_error)
   -> how many nodes are kept, from the first place on, and the total size of the others, each of which is at most ``least``. (Q2), (Q3) */
static PyObject *line_nodes(PyObject *module, PyObject *args) {
    Py_buffer held[6];
    double low, step, y, tilt, log_factor, least, dropped = 0.0, whole = 0.0;
    Py_ssize_t kept = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*ddddddw*w*w*w*", &held[0], &held[1], &low, &step, &y, &tilt, &log_factor, &least, &held[2], &held[3],
                          &held[4], &held[5])) return NULL;
    const int fits = is_packed(&held[0]) && is_packed(&held[1]) && held[2].len == 2 * held[4].len && held[3].len == held[2].len
                     && held[5].len == held[4].len;
    const Copies upper = unpacked(&held[0]), lower = unpacked(&held[1]);
    const Py_ssize_t most = upper.count + lower.count;
    double *room = fits ? malloc((size_t)(4 * most + 1) * sizeof(double)) : NULL;
    if (room) {
        double *turned = room, *turned_lower = room + 3 * upper.count, *spare = room + 3 * most;
        double *weight_error = held[4].buf, *loss_error = held[5].buf;
        Complex *log_weight = held[2].buf, *loss = held[3].buf;
        Py_BEGIN_ALLOW_THREADS
        turn(&upper, y, turned);
        turn(&lower, y, turned_lower);
        for (Py_ssize_t i = 0; i < NUMBERS(held[4]); i++) {
            const double x = low + step * (double)i;
            const LogMixture above = log_mixture(&upper, x, y, turned, spare), below = log_mixture(&lower, x, y, turned_lower, spare);
            const Complex its_loss = {above.size - below.size, at_least_0(above.angle - below.angle)};
            const Complex its_weight = {0.5 * (y * y - x * x) + above.size + log_factor, above.angle - y * x};
            const double size = exp(its_weight.re) + exp(its_weight.re + tilt * its_loss.re);
            if (!(size > least)) { dropped += size; continue; }
            whole += fabs(its_weight.re) + its_weight.im + fabs(its_loss.re) + its_loss.im + above.error + below.error;
            log_weight[kept] = its_weight;
            loss[kept] = its_loss;
            weight_error[kept] = ELEMENTARY * (1.0 + x * x + y * (1.0 + fabs(x))) + above.error;
            loss_error[kept++] = above.error + below.error;
        }
        Py_END_ALLOW_THREADS
    }
    const int has_room = room != NULL;
    free(room);
    return ended(held, 6, fits, has_room, whole + dropped, Py_BuildValue("nd", kept, dropped));
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
