/* The moment function of one release in one direction of neighbours: what MixedGaussian (densities/transforms.py) and WholeLaplace
   (densities/moments/laplace.py) do, in the same order of the same operations. Tags such as (Q1) refer to proofs/contour.md.
   Functions that may fail return -1 with a Python error set, and need the interpreter's lock. */
#include "../../densities/_mixtures.h"
#include "../../densities/_lines.h"
#include <stddef.h>
#include <structmember.h>

#define PI 3.14159265358979323846
#define MOST_NODES 50000.0
#define LARGEST_EXPONENT 300.0
#define REACH 9.0
#define VALLEY 12.0
#define LONGEST 60.0
#define DEEP 35.0
#define MANY 50000 /* nodes times heights from which others may have the interpreter meanwhile: about a tenth of a millisecond */
/* Unlike fmin and fmax they keep what isn't a number, if it comes first. */
#define MIN(a, b) ((b) < (a) ? (b) : (a))
#define MAX(a, b) ((b) > (a) ? (b) : (a))

static PyObject *Unavailable, *Saddle;

static int unavailable(const char *reason) { return PyErr_SetString(Unavailable, reason), -1; }
static int outside_floats(void) { return PyErr_SetString(PyExc_FloatingPointError, "outside the range of floats"), -1; }
static int no_room(void) { return PyErr_NoMemory(), -1; }

typedef struct { double low, high, density[2], loss[2]; } Range;
typedef struct { double low, step; Py_ssize_t number; } Spaced;

typedef struct {
    int is_laplace, is_lower_null, is_cut;
    double count, scale, largest_loss;
    double *packed;            /* both mixtures' numbers, and room for as many numbers as copies behind them */
    Copies upper, lower;
    double *spare;
    double first[2], last[2];  /* outermost shifts of P and Q */
    double span, lower_span, ceiling, need;
    double rough_reach, rough_step, rough_width, rough_growth, rough_error, rough_depth, depth;
    Law rough;                 /* one block of memory */
    Range range;
    double log_left_out, end;
    double known_moment[2], known_slopes[4]; /* at a tilt, which comes first */
} Transform;

static void forget(Transform *of) {
    of->known_moment[0] = of->known_slopes[0] = NAN;
}

/* -- whole Laplace: M - 1 and its error, in closed form ------------------------------------------------------------------------------ */

static Complex laplace_minus_one(double e, double re, double im) {
    const Complex a = times((Complex){re + 1.0, im}, expm1_complex(re * e, im * e));
    const Complex b = times((Complex){re, im}, expm1_complex(-(re + 1.0) * e, -im * e));
    const double x = 2.0 * re + 1.0, y = 2.0 * im, norm = x * x + y * y;
    const Complex sum = {a.re + b.re, a.im + b.im};
    return (Complex){(sum.re * x + sum.im * y) / norm, (sum.im * x - sum.re * y) / norm};
}

/* (R4) */
static double laplace_error(double e, double re, double im) {
    return 5.0 * ELEMENTARY * e * (hypot(re, im) * hypot(re + 1.0, im) / hypot(2.0 * re + 1.0, 2.0 * im)) * exp(re * e);
}

static int is_too_large(double exponent) {
    return exponent <= LARGEST_EXPONENT ? 0 : unavailable("a single release's moment function exceeds what a float can hold");
}

/* -- the rough grid on the real axis -------------------------------------------------------------------------------------------------- */

/* Half-width of a strip in which cos(span y / 2)^-tilt isn't far above e^{growth / 8}. */
static double narrow(double growth, double tilt, double span) { return span > 0.0 ? sqrt(growth / (tilt + 1.0)) / span : INFINITY; }

static int spaced(const Transform *of, double low, double high, double step, Spaced *at) {
    const double length = high - low;
    if (!isfinite(length) || !(step > 0.0)) return outside_floats();
    if (length > MOST_NODES * step) return unavailable("it would take more than 50000 quadrature nodes: the noise is too small");
    if (of->is_cut) {
        const double number = ceil(length / step - 0.5);
        *at = (Spaced){low, length / (number + 0.5), (Py_ssize_t)number + 1};
    } else {
        *at = (Spaced){low, step, (Py_ssize_t)ceil(length / step) + 1};
    }
    return at->number > 1 ? 0 : outside_floats();
}

static void density_and_loss(const Transform *of, double x, double *density, double *loss) {
    const double upper = log_real(&of->upper, x, of->spare);
    *density = upper - 0.5 * x * x - 0.5 * log(2.0 * PI);
    *loss = upper - log_real(&of->lower, x, of->spare);
}

/* The range may end here for tilts up to ``reach``. (Q3) */
static double enough_for(const Transform *of, double reach) { return (reach + 1.0) * of->last[0] - reach * of->first[1] + REACH; }

/* (Q3), (T1) */
static void set_range(Transform *of, double reach, double tilt) {
    double high = enough_for(of, reach);
    of->range.low = MIN((reach + 1.0) * of->first[0] - reach * of->last[1], 0.0) - REACH;
    of->is_cut = 0;
    of->log_left_out = -INFINITY;
    of->end = INFINITY;
    if (high > of->ceiling + VALLEY) {
        double place;
        const double height = deepest_at(&of->upper, &of->lower, of->ceiling, VALLEY / 24.0, 25, tilt, of->spare, &place);
        if (height < -of->need - DEEP) {
            of->is_cut = 1;
            high = place;
        } else if (high > of->ceiling + LONGEST) {
            of->is_cut = 1;
            high = of->ceiling + LONGEST;
        }
        if (of->is_cut) {
            of->log_left_out = -0.5 * (high - of->last[0]) * (high - of->last[0]) - log(2.0);
            of->end = high;
        }
    }
    of->range.high = high;
    density_and_loss(of, of->range.low, &of->range.density[0], &of->range.loss[0]);
    density_and_loss(of, high, &of->range.density[1], &of->range.loss[1]);
}

static int make_rough_for(Transform *of, double tilt, double reach) {
    static const double shares[] = {0.15, 0.3, 0.5, 0.75, 1.0};
    const double widest = MIN(MIN(3.0, 3.0 / of->span), narrow(160.0, reach, of->lower_span)), lean = 0.5 * of->lower_span;
    double best = -INFINITY, width = 0.0, growth = 0.0;
    for (int k = 0; k < 5; k++) {
        const double its = widest * shares[k], grows = 0.5 * its * its - reach * log(cos(lean * its));
        if (its / (of->need + grows) > best) { best = its / (of->need + grows); width = its; growth = grows; }
    }
    Spaced at;
    forget(of);
    of->rough_reach = -1.0; /* until the grid is complete */
    set_range(of, reach, tilt);
    if (spaced(of, of->range.low, of->range.high, 2.0 * PI * width / (of->need + growth), &at) < 0) return -1;
    double *room = realloc(of->rough.x, (size_t)(4 * at.number) * sizeof(double));
    if (!room) return no_room();
    of->rough = (Law){room, room + at.number, room + 2 * at.number, room + 3 * at.number, at.number};
    const double factor = log(at.step / sqrt(2.0 * PI));
    if (!isfinite(law_on_grid(&of->upper, &of->lower, at.low, at.step, factor, of->rough, of->spare, &of->depth))) return outside_floats();
    of->rough_step = at.step;
    of->rough_width = width;
    of->rough_growth = growth;
    of->rough_error = 2.02 * exp(growth) / expm1(2.0 * PI * width / at.step);
    const double low = of->rough.x[0], high = of->rough.x[at.number - 1];
    of->rough_depth = (ratio_error(&of->upper, low, high, of->spare) + ratio_error(&of->lower, low, high, of->spare)) / UNIT;
    if (!isfinite(of->rough_error + of->rough_depth)) return outside_floats();
    of->rough_reach = reach;
    return 0;
}

/* Further ahead, so that it is rarely rebuilt while a search moves upwards. */
static int make_rough(Transform *of, double tilt) {
    return of->is_laplace || !(tilt > of->rough_reach) ? 0 : make_rough_for(of, tilt, 3.0 * tilt + 1.0);
}

/* Whether the integrand isn't small where the range was cut. */
static int is_cut_shallow(const Transform *of, double tilt) {
    return of->is_cut && of->range.density[1] + tilt * of->range.loss[1] > -of->need - DEEP;
}

/* A search looks so far ahead that its range may be cut where tilts up to ``reach`` have no need of a cut, nor of so long a range. */
static int settle(Transform *of, double tilt, double reach) {
    const int is_too_long = of->is_cut && enough_for(of, reach) < of->range.high;
    return !of->is_laplace && (reach > of->rough_reach || is_cut_shallow(of, tilt) || is_too_long) ? make_rough_for(of, tilt, reach) : 0;
}

/* log M and its first two derivatives: for choices, without a bound. */
static int cumulants(Transform *of, double tilt, double *found) {
    if (of->is_laplace) {
        found[0] = found[1] = found[2] = INFINITY;
        const double h = 1e-3 * tilt;
        if ((tilt + h) * of->largest_loss > LARGEST_EXPONENT) return 0;
        const double low = log1p(laplace_minus_one(of->largest_loss, tilt - h, 0.0).re);
        const double middle = log1p(laplace_minus_one(of->largest_loss, tilt, 0.0).re);
        const double high = log1p(laplace_minus_one(of->largest_loss, tilt + h, 0.0).re);
        found[0] = middle;
        found[1] = (high - low) / (2.0 * h);
        found[2] = MAX((high - 2.0 * middle + low) / (h * h), 0.0);
        return 0;
    }
    if (make_rough(of, tilt) < 0) return -1;
    if (is_cut_shallow(of, tilt)) {
        if (make_rough_for(of, tilt, of->rough_reach) < 0) return -1;
        if (is_cut_shallow(of, tilt)) {
            found[0] = found[1] = found[2] = INFINITY;
            return 0;
        }
    }
    cumulants_of(of->rough.loss, of->rough.log_mass, of->rough.mass, of->rough.number, tilt, found);
    return 0;
}

/* -- proved bounds on the real axis and beyond ---------------------------------------------------------------------------------------- */

/* (Q3) */
static void end_factors(const Transform *of, double step, double amplified, double width, double growth, double *factor) {
    factor[0] = step * exp(amplified) / -expm1(-REACH * step);
    factor[1] = of->is_cut ? 4.0 * width * exp(growth) : factor[0];
}

static int beyond_ends(const Range *reach, double tilt, double unit, const double *factor, double *bound) {
    const double low = reach->density[0] + tilt * reach->loss[0] - unit, high = reach->density[1] + tilt * reach->loss[1] - unit;
    if (!(low <= LARGEST && high <= LARGEST)) return unavailable("the moment function is dominated by outcomes that never happen");
    *bound = exp(low) * factor[0] + exp(high) * factor[1];
    return 0;
}

/* Upper bounds on log M at tilts > 0: (Q1) for the grid's own strip, (Q3) for its ends, (R1) for rounding. */
static int log_moment_upper(Transform *of, const double *tilt, int number, double *out) {
    double highest = tilt[0], whole = 0.0;
    for (int k = 1; k < number; k++) highest = MAX(highest, tilt[k]);
    if (of->is_laplace) {
        const double e = of->largest_loss;
        if (is_too_large(highest * e) < 0) return -1;
        for (int k = 0; k < number; k++) {
            out[k] = log1p(laplace_minus_one(e, tilt[k], 0.0).re + laplace_error(e, tilt[k], 0.0)) + ELEMENTARY;
            whole += out[k];
        }
        return isfinite(whole) ? 0 : outside_floats();
    }
    if (make_rough(of, highest) < 0) return -1;
    const double rounding = 4.0 * UNIT * ((double)of->rough.number + 64.0 + 2.0 * of->depth + (1.0 + 2.0 * highest) * of->rough_depth);
    Ends ends = {{of->range.density[0], of->range.density[1]}, {of->range.loss[0], of->range.loss[1]}, {0.0, 0.0}};
    end_factors(of, of->rough_step, 0.0, of->rough_width, of->rough_growth, ends.factor);
    for (int k = 0; k < number; k++) {
        if (!moment_bound(of->rough.loss, of->rough.log_mass, of->rough.number, tilt[k], &ends, of->rough_error + rounding, out + k))
            return unavailable("the moment function is dominated by outcomes that never happen");
        whole += out[k];
    }
    return isfinite(whole) ? 0 : outside_floats();
}

static int log_moment(Transform *of, double tilt, double *moment) {
    if (make_rough(of, tilt) < 0) return -1;
    if (of->known_moment[0] != tilt) {
        if (log_moment_upper(of, &tilt, 1, &of->known_moment[1]) < 0) return -1;
        of->known_moment[0] = tilt;
    }
    *moment = of->known_moment[1];
    return 0;
}

/* Means of dL/dx and of its square under the tilted distribution, and dL/dx at x = 0. */
static int slopes(Transform *of, double tilt) {
    if (make_rough(of, tilt) < 0) return -1;
    if (of->known_slopes[0] == tilt) return 0;
    const Law *rough = &of->rough;
    const double step = rough->x[1] - rough->x[0], place = MAX(-rough->x[0] / step - 1.0, 0.0);
    const Py_ssize_t middle = place < (double)(rough->number - 2) ? (Py_ssize_t)place : rough->number - 2;
    if (!isfinite(slopes_of(rough->x, rough->loss, rough->log_mass, rough->number, tilt, of->known_slopes + 1))) return outside_floats();
    of->known_slopes[3] = (rough->loss[middle + 1] - rough->loss[middle]) / step;
    of->known_slopes[0] = tilt;
    return 0;
}

/* About twice what the bound on |M| loses per squared height, for small heights. */
static int decay_rate(Transform *of, double tilt, double *rate) {
    *rate = 0.0;
    if (of->is_laplace) return 0;
    if (slopes(of, tilt) < 0) return -1;
    const double mean = of->known_slopes[1], centre = of->known_slopes[3], steeper = of->is_lower_null ? MAX(mean, centre) : centre;
    *rate = steeper * steeper;
    return 0;
}

/* The part of the range that this tilt alone needs. (Q3) */
static Range range_at(const Transform *of, double tilt) {
    const double enough = enough_for(of, tilt), *x = of->rough.x;
    Range reach = of->range;
    Py_ssize_t low = 0, high = of->rough.number - 1;
    if (of->is_cut || !(enough < x[high])) return reach;
    while (low < high) {
        const Py_ssize_t middle = (low + high) / 2;
        if (x[middle] < enough) low = middle + 1;
        else high = middle;
    }
    reach.high = x[low];
    reach.density[1] = of->rough.log_mass[low] - log(of->rough_step);
    reach.loss[1] = of->rough.loss[low];
    return reach;
}

/* Upper bounds on log |M(tilt + iu)| that hold for all u >= each height. (D1), (D2) ``room``: three numbers for each height. */
static int log_decay(Transform *of, double tilt, const double *height, int number, int shifts, double *out, double *room) {
    if (of->is_laplace) {
        const double e = of->largest_loss, still = log(0.5) - (tilt + 1.0) * e;
        double whole = 0.0;
        for (int k = 0; k < number; k++) {
            const double near = hypot(tilt + 1.0, height[k]) / hypot(2.0 * tilt + 1.0, 2.0 * height[k]), first = log(near) + tilt * e;
            out[k] = fmax(first, still) + log1p(exp(-fabs(first - still))) + ELEMENTARY * (1.0 + (tilt + 1.0) * e);
            whole += out[k];
        }
        return isfinite(whole) ? 0 : outside_floats();
    }
    if (slopes(of, tilt) < 0) return -1;
    const double mean = of->known_slopes[1], square = of->known_slopes[2], centre = of->known_slopes[3];
    const double quarter = MIN(0.5 * PI / of->span, narrow(160.0, tilt, of->lower_span)), highest = MIN(0.5 * quarter, 2.0);
    double *shift = room, widest = 0.0, moment, ends, factor[2];
    for (int k = 0; k < number; k++) {
        const double u = height[k];
        shift[k] = MIN(MAX(u * mean / (1.0 + u * u * square), 0.0), highest);
        shift[number + k] = shifts > 1 ? MIN(MAX(u * centre, 0.0), highest) : 0.0;
        widest = MAX(widest, MAX(shift[k], shift[number + k]));
    }
    const double width = MIN(quarter - widest, 3.0);
    const double growth = 0.5 * (width * width + widest * widest) - tilt * log(cos(0.5 * of->lower_span * (width + widest)));
    const Range reach = range_at(of, tilt);
    Spaced at;
    if (spaced(of, reach.low, reach.high, 2.0 * PI * width / (of->need + growth), &at) < 0 || log_moment(of, tilt, &moment) < 0) return -1;
    /* Relative to M(tilt), itself bounded: (Q1), and (Q3), whose terms lack the factor of u, which is at most 1. */
    end_factors(of, at.step, growth, width + widest, growth, factor);
    if (beyond_ends(&reach, tilt, moment, factor, &ends) < 0) return -1;
    const double strip = 2.0 * exp(growth) / expm1(2.0 * PI * width / at.step) + ends;
    double *nodes = malloc((size_t)room_for_nodes(&of->upper, &of->lower, at.number) * sizeof(double));
    if (!nodes) return no_room();
    const double whole = decay_bounds(&of->upper, &of->lower, at.low, at.step, at.number, tilt, log(at.step / sqrt(2.0 * PI)), height,
                                      number, shift, shifts, moment + log(strip), out, nodes);
    free(nodes);
    return isfinite(whole) ? 0 : outside_floats();
}

/* -- M - 1 on a vertical line ---------------------------------------------------------------------------------------------------------- */

/* M - 1 at tilt + i k step, its quadrature error about ``tolerance`` M(tilt). (Q2), (Q3), (R3) */
static int mixture_line(Transform *of, double tilt, double step, Py_ssize_t number, double tolerance, Complex *sum, double *error) {
    if (make_rough(of, tilt) < 0) return -1;
    const double span = of->lower_span, widest = MIN(MIN(0.5 * PI / of->span, 3.0), narrow(40.0, tilt, span)), need = log(4.0 / tolerance);
    double best = -INFINITY, y = 0.0, growth = 0.0, moment, factor[2], at_0, at_tilt;
    for (int k = 0; k < 12; k++) {
        const double its = widest * (0.1 + 0.08 * k), grows = 2.0 * its * its - tilt * log(cos(span * its));
        if (its / (need + grows) > best) { best = its / (need + grows); y = its; growth = grows; }
    }
    const Range reach = range_at(of, tilt);
    Spaced at;
    if (spaced(of, reach.low, reach.high, 2.0 * PI * y / (need + growth), &at) < 0 || log_moment(of, tilt, &moment) < 0) return -1;
    if (is_too_large(moment) < 0) return -1;
    moment = exp(moment);
    const double strip = 2.0 * (exp(growth) * moment + exp(2.0 * y * y)) / expm1(2.0 * PI * y / at.step);
    end_factors(of, at.step, 0.5 * y * y - tilt * log(cos(0.5 * span * y)), 2.0 * y, growth, factor);
    if (beyond_ends(&reach, 0.0, 0.0, factor, &at_0) < 0 || beyond_ends(&reach, tilt, 0.0, factor, &at_tilt) < 0) return -1;
    const double beyond = at_0 + at_tilt + exp(of->log_left_out);
    const Py_ssize_t most = at.number;
    double *room = malloc((size_t)(room_for_nodes(&of->upper, &of->lower, 1) + 6 * most) * sizeof(double)), whole;
    if (!room) return no_room();
    double *rest = room + 6 * most;
    LineNodes nodes = {(Complex *)room, (Complex *)(room + 2 * most), room + 4 * most, room + 5 * most, 0.0, 0};
    int has_room = 1;
    /* Nothing here belongs to anybody else. */
    const Copies upper = of->upper, lower = of->lower;
    whole = nodes_on_line(&upper, &lower, at.low, at.step, most, y, tilt, log(at.step / sqrt(2.0 * PI)),
                          1e-3 * tolerance * moment / (double)most, &nodes, rest);
    const OnLine on = {nodes.log_weight, nodes.loss, nodes.weight_error, nodes.loss_error, 1.001 * (strip + beyond + nodes.dropped),
                       nodes.kept};
    PyThreadState *state = on.number * number > MANY ? PyEval_SaveThread() : NULL;
    whole += sums_on_line(on, tilt, step, sum, error, number, &has_room);
    if (state) PyEval_RestoreThread(state);
    free(room);
    return !has_room ? no_room() : isfinite(whole) ? 0 : outside_floats();
}

static int line(Transform *of, double tilt, double step, Py_ssize_t number, double tolerance, Complex *sum, double *error) {
    if (!of->is_laplace) return mixture_line(of, tilt, step, number, tolerance, sum, error);
    double whole = 0.0;
    if (is_too_large(tilt * of->largest_loss) < 0) return -1;
    for (Py_ssize_t k = 0; k < number; k++) {
        sum[k] = laplace_minus_one(of->largest_loss, tilt, step * (double)k);
        error[k] = laplace_error(of->largest_loss, tilt, step * (double)k);
        whole += fabs(sum[k].re) + fabs(sum[k].im) + error[k];
    }
    return isfinite(whole) ? 0 : outside_floats();
}
