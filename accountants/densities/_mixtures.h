/* Loops over a mixture pair's quadrature nodes, on plain arrays: what _nodes.c shows to Python and a compiled contour runs through. Each
   returns a sum over what it found, which isn't finite where any of it isn't. See _nodes.c for what is assumed of the arithmetic. */
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

static inline Copies copies_of(const double *number, Py_ssize_t count) {
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

static inline double log_real(const Copies *copies, double x, double *exponent) {
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
static inline void turn(const Copies *copies, double y, double *turned) {
    for (Py_ssize_t j = 0; j < copies->count; j++) {
        const double angle = copies->distance[j] * y, half = sin(0.5 * angle);
        turned[3 * j] = 2.0 * half * half;
        turned[3 * j + 1] = sin(angle);
        turned[3 * j + 2] = fabs(angle);
    }
}

/* What depends on x alone: the top, what the base falls by, the argument's size, and of each copy w (e^d - 1) and w e^d, all over e^top. */
#define STILL(copies) (3 + 2 * (copies)->count)

static inline void stand(const Copies *copies, double x, double *still, double *exponent) {
    if (!copies->count) return;
    const double top = exponents(copies, x, exponent);
    double argument = 0.0;
    for (Py_ssize_t j = 0; j < copies->count; j++) {
        const double grown = copies->weight[j] * expm1(exponent[j] - top), size = grown + copies->weight[j];
        still[3 + 2 * j] = grown;
        still[4 + 2 * j] = size;
        argument += size * (fabs(exponent[j]) + (top + copies->above[j]));
    }
    still[0] = top;
    still[1] = top > 0.0 ? copies->left * expm1(-top) : 0.0;
    still[2] = argument;
}

static inline LogMixture log_mixture(const Copies *copies, double x, double y, const double *still, const double *turned) {
    const double origin = copies->origin;
    LogMixture found = {0.0, 0.0, 0.0};
    if (copies->count) {
        const double top = still[0];
        double real = still[1], imaginary = 0.0, touched = fabs(real);
        for (Py_ssize_t j = 0; j < copies->count; j++) {
            const double grown = still[3 + 2 * j], size = still[4 + 2 * j];
            real += grown - size * turned[3 * j];
            imaginary += size * turned[3 * j + 1];
            touched += fabs(grown) + size * turned[3 * j + 2];
        }
        /* (R2) */
        const double modulus = fmax(sqrt((1.0 + real) * (1.0 + real) + imaginary * imaginary), TINY);
        found.size = top + log_modulus(real, imaginary, modulus);
        found.angle = atan2(imaginary, 1.0 + real);
        found.error = ELEMENTARY * (touched * (1.0 + touched) / modulus + fabs(found.size) + top) + 6.0 * UNIT * still[2] / modulus;
    }
    if (origin != 0.0) {
        found.size += origin * x - 0.5 * origin * origin;
        found.angle += origin * y;
        found.error += 4.0 * UNIT * (fabs(origin * x) + origin * origin);
    }
    return found;
}

/* At least e^d - 1 for d >= 0, up to e^300. */
static inline double grown_by(double d) { return d < 1.0 ? d * (1.0 + d) : expm1(d < 300.0 ? d : 300.0); }

/* Unlike fmax it keeps what isn't a number. */
static inline double at_least_0(double number) { return number <= 0.0 ? 0.0 : number; }

/* P's law on the real axis, and the greatest |log_mass|. ``room``: as many numbers as copies. */
typedef struct { double *x, *loss, *log_mass, *mass; Py_ssize_t number; } Law;

static inline double law_on_grid(const Copies *upper, const Copies *lower, double low, double step, double log_factor, Law law,
                                 double *room, double *depth) {
    double whole = 0.0;
    *depth = 0.0;
    for (Py_ssize_t i = 0; i < law.number; i++) {
        const double x = low + step * (double)i, above = log_real(upper, x, room), below = log_real(lower, x, room);
        law.x[i] = x;
        law.loss[i] = above - below;
        law.log_mass[i] = above - 0.5 * x * x + log_factor;
        law.mass[i] = exp(law.log_mass[i]);
        *depth = fmax(*depth, fabs(law.log_mass[i]));
        whole += fabs(law.log_mass[i]) + fabs(law.loss[i]);
    }
    return whole;
}

/* Bound on the error of log A between two points, as nodes.log_mixture_error has it. (R2) */
static inline double ratio_error(const Copies *copies, double low, double high, double *room) {
    if (!copies->count && copies->origin == 0.0) return 0.0;
    const double end[2] = {low, high}, parts = (double)copies->count, origin = fabs(copies->origin);
    double least = 1.0, size = 0.0, top = 0.0, argument = 0.0;
    for (int i = 0; i < 2; i++) {
        const double value = log_real(copies, end[i], room), its_top = exponents(copies, end[i], room);
        least = fmin(least, exp(fmin(value - its_top, 0.0)));
        size = fmax(size, fabs(value));
        top = fmax(top, its_top);
        for (Py_ssize_t j = 0; j < copies->count; j++) argument = fmax(argument, fabs(room[j]) + copies->above[j]);
    }
    size += top + origin * (fmax(fabs(low), fabs(high)) + origin);
    return ELEMENTARY * ((1.0 + parts) * (2.0 + parts) / least + 2.0 * size) + 6.0 * UNIT * parts * (argument + size) / least;
}

/* The x where f A^{tilt + 1} B^{-tilt} is least, and its logarithm there, f without its constant. For choices. */
static inline double deepest_at(const Copies *upper, const Copies *lower, double low, double step, Py_ssize_t number, double tilt,
                                double *room, double *place) {
    double deepest = INFINITY;
    *place = 0.0;
    for (Py_ssize_t i = 0; i < number; i++) {
        const double x = low + step * (double)i;
        const double height = (tilt + 1.0) * log_real(upper, x, room) - tilt * log_real(lower, x, room) - 0.5 * x * x;
        if (!(height >= deepest)) { deepest = height; *place = x; }
    }
    return deepest;
}

/* log M and its first two derivatives, or infinities. For choices: nothing is proved of them. */
static inline void cumulants_of(const double *loss, const double *log_mass, const double *mass, Py_ssize_t number, double tilt,
                                double *found) {
    double total = 0.0, first = 0.0, second = 0.0;
    int is_finite = 1;
    for (Py_ssize_t i = 0; i < number; i++) {
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
    const double mean = first / (1.0 + total), variance = fmax(second / (1.0 + total) - mean * mean, 0.0);
    is_finite &= isfinite(mean) && isfinite(variance);
    found[0] = is_finite ? log1p(total) : INFINITY;
    found[1] = is_finite ? mean : INFINITY;
    found[2] = is_finite ? variance : INFINITY;
}

/* Means of dL/dx and of its square under the tilted distribution, of at least two nodes. For choices. */
static inline double slopes_of(const double *x, const double *loss, const double *log_mass, Py_ssize_t number, double tilt, double *found) {
    double peak = -INFINITY, total = 0.0, first = 0.0, second = 0.0;
    const double step = x[1] - x[0];
    for (Py_ssize_t i = 0; i + 1 < number; i++) peak = fmax(peak, log_mass[i] + tilt * loss[i]);
    for (Py_ssize_t i = 0; i + 1 < number; i++) {
        const double mass = exp(log_mass[i] + tilt * loss[i] - peak), slope = (loss[i + 1] - loss[i]) / step;
        total += mass;
        first += mass * slope;
        second += mass * slope * slope;
    }
    found[0] = first / total;
    found[1] = second / total;
    return first + second;
}

/* At both ends of the grid: log of P's density, the loss, and what the first times e^{tilt loss} counts for. (Q3) */
typedef struct { double density[2], loss[2], factor[2]; } Ends;

/* Upper bound on log M at a tilt; whether the ends are small enough for it. (R1) */
static inline int moment_bound(const double *loss, const double *log_mass, Py_ssize_t number, double tilt, const Ends *ends, double share,
                               double *bound) {
    double peak = -INFINITY, total = 0.0, end[2];
    for (Py_ssize_t i = 0; i < number; i++) peak = fmax(peak, log_mass[i] + tilt * loss[i]);
    for (Py_ssize_t i = 0; i < number; i++) total += exp(log_mass[i] + tilt * loss[i] - peak);
    for (int i = 0; i < 2; i++) end[i] = ends->density[i] + tilt * ends->loss[i] - peak;
    if (!(end[0] <= LARGEST && end[1] <= LARGEST)) return 0;
    const double both = exp(end[0]) * ends->factor[0] + exp(end[1]) * ends->factor[1];
    *bound = peak + log(total) + log1p(share + both / total) + ELEMENTARY * (1.0 + fabs(peak));
    return 1;
}

/* Whether what depends on x alone is kept for all nodes, or there would be too much of it: then it is computed for each shift again. */
#define MOST_KEPT 4000000
static inline int is_kept(const Copies *upper, const Copies *lower, Py_ssize_t number) {
    return number * (STILL(upper) + STILL(lower)) <= MOST_KEPT;
}

/* Numbers of room that ``decay_bounds`` and ``nodes_on_line`` take. */
static inline Py_ssize_t room_for_nodes(const Copies *upper, const Copies *lower, Py_ssize_t number) {
    const Py_ssize_t most = upper->count + lower->count, kept = is_kept(upper, lower, number) ? number : 1;
    return 2 * number + kept * (STILL(upper) + STILL(lower)) + 4 * most + 1;
}

/* The trapezoid sums of (D2) at each height, the least over its shifts: one or more for each height in turn. */
static inline double decay_bounds(const Copies *upper, const Copies *lower, double low, double step, Py_ssize_t number, double tilt,
                                  double log_factor, const double *height, Py_ssize_t count, const double *shift, Py_ssize_t shifts,
                                  double log_rest, double *out, double *room) {
    const int keeps = is_kept(upper, lower, number);
    const Py_ssize_t kept = keeps ? number : 1;
    double *exponent = room, *depth = exponent + number, *above_still = depth + number, *below_still = above_still + kept * STILL(upper);
    double *turned = below_still + kept * STILL(lower), *turned_lower = turned + 3 * upper->count;
    double *spare = turned_lower + 3 * lower->count, whole = 0.0;
    for (Py_ssize_t i = 0; keeps && i < number; i++) {
        stand(upper, low + step * (double)i, above_still + i * STILL(upper), spare);
        stand(lower, low + step * (double)i, below_still + i * STILL(lower), spare);
    }
    for (Py_ssize_t k = 0; k < count * shifts; k++) {
        const double u = height[k % count], y = shift[k];
        double peak = -INFINITY, total = 0.0, rounding = 0.0;
        turn(upper, y, turned);
        turn(lower, y, turned_lower);
        for (Py_ssize_t i = 0; i < number; i++) {
            const double x = low + step * (double)i;
            double *its_above = above_still + (keeps ? i : 0) * STILL(upper), *its_below = below_still + (keeps ? i : 0) * STILL(lower);
            if (!keeps) {
                stand(upper, x, its_above, spare);
                stand(lower, x, its_below, spare);
            }
            const LogMixture above = log_mixture(upper, x, y, its_above, turned), below = log_mixture(lower, x, y, its_below, turned_lower);
            exponent[i] = 0.5 * (y * y - x * x) + (tilt + 1.0) * above.size - tilt * below.size - u * (above.angle - below.angle)
                          + log_factor;
            depth[i] = (tilt + 1.0) * above.error + tilt * below.error + u * (above.error + below.error) + ELEMENTARY * (1.0 + x * x);
            peak = fmax(peak, exponent[i]);
        }
        for (Py_ssize_t i = 0; i < number; i++) {
            const double term = exp(exponent[i] - peak);
            total += term;
            rounding += term * grown_by(depth[i]);
        }
        const double sum = peak + log(total + rounding + UNIT * (double)number * total), most_of = fmax(sum, log_rest);
        const double bound = most_of + log1p(exp(-fabs(sum - log_rest))) + ELEMENTARY * (1.0 + fabs(peak));
        out[k % count] = k < count || bound < out[k % count] ? bound : out[k % count];
        whole += bound;
    }
    return whole;
}

/* Nodes on Im x = y: arrays for so many, of which the first ``kept`` are filled, and the total size of the others. (Q2), (Q3) */
typedef struct {
    Complex *log_weight, *loss;
    double *weight_error, *loss_error, dropped;
    Py_ssize_t kept;
} LineNodes;

/* Each node that is left out is at most ``least``. */
static inline double nodes_on_line(const Copies *upper, const Copies *lower, double low, double step, Py_ssize_t number, double y,
                                   double tilt, double log_factor, double least, LineNodes *nodes, double *room) {
    double *turned = room, *turned_lower = turned + 3 * upper->count, *spare = turned_lower + 3 * lower->count;
    double *above_still = spare + upper->count + lower->count + 1, *below_still = above_still + STILL(upper), whole = 0.0;
    turn(upper, y, turned);
    turn(lower, y, turned_lower);
    nodes->dropped = 0.0;
    nodes->kept = 0;
    for (Py_ssize_t i = 0; i < number; i++) {
        const double x = low + step * (double)i;
        stand(upper, x, above_still, spare);
        stand(lower, x, below_still, spare);
        const LogMixture above = log_mixture(upper, x, y, above_still, turned), below = log_mixture(lower, x, y, below_still, turned_lower);
        const Complex its_loss = {above.size - below.size, at_least_0(above.angle - below.angle)};
        const Complex its_weight = {0.5 * (y * y - x * x) + above.size + log_factor, above.angle - y * x};
        const double size = exp(its_weight.re) + exp(its_weight.re + tilt * its_loss.re);
        if (!(size > least)) { nodes->dropped += size; continue; }
        whole += fabs(its_weight.re) + its_weight.im + fabs(its_loss.re) + its_loss.im + above.error + below.error;
        nodes->log_weight[nodes->kept] = its_weight;
        nodes->loss[nodes->kept] = its_loss;
        nodes->weight_error[nodes->kept] = ELEMENTARY * (1.0 + x * x + y * (1.0 + fabs(x))) + above.error;
        nodes->loss_error[nodes->kept++] = above.error + below.error;
    }
    return whole + nodes->dropped;
}
