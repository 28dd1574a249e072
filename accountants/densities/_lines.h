/* Loops over the heights of a contour, on plain arrays: what _heights.c shows to Python and a compiled contour runs through. Each returns a
   sum over what it found, which isn't finite where any of it isn't. See _nodes.c for what is assumed of the arithmetic. */
#include "_loops.h"

#define BLOCK 32

/* The loops are compiled for what a processor may have and chosen when the module is loaded; they give the same bits. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

static inline Complex times(Complex a, Complex b) { return (Complex){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

static inline Complex expm1_complex(double re, double im) {
    const double grown = expm1(re), half = sin(0.5 * im);
    return (Complex){grown - 2.0 * (grown + 1.0) * half * half, (grown + 1.0) * sin(im)};
}

static inline Complex exp_complex(double re, double im) {
    const double size = exp(re);
    return (Complex){size * cos(im), size * sin(im)};
}

/* z^k - 1 for k = 0 ... number - 1, number a power of two, from z - 1; returns z^number - 1. */
WIDE static Complex all_powers(Complex rise, Py_ssize_t number, double *restrict re, double *restrict im) {
    re[0] = im[0] = 0.0;
    for (Py_ssize_t done = 1; done < number; done *= 2) {
        const Complex whole = {1.0 + rise.re, rise.im};
        for (Py_ssize_t k = 0; k < done; k++) {
            re[done + k] = (re[k] * whole.re - im[k] * whole.im) + rise.re;
            im[done + k] = (re[k] * whole.im + im[k] * whole.re) + rise.im;
        }
        rise = times(rise, (Complex){2.0 + rise.re, rise.im});
    }
    return rise;
}

/* Adds a_j (z_j^{g + b} - 1) for one node j, one g and all b: e^{i(g + b)L} - 1 = e^{igL} (e^{ibL} - 1) + (e^{igL} - 1), where every part
   is as small as u L, so nothing is lost near M = 1. */
WIDE static void add_products(Complex a, Complex rise, const double *restrict re, const double *restrict im, Py_ssize_t count,
                              double *restrict sum_re, double *restrict sum_im) {
    const double x = a.re + rise.re, y = a.im + rise.im;
    for (Py_ssize_t b = 0; b < count; b++) {
        sum_re[b] += (x * re[b] - y * im[b]) + rise.re;
        sum_im[b] += (x * im[b] + y * re[b]) + rise.im;
    }
}

/* Adds without loss: the result is as if the numbers had been added in twice the digits. */
typedef struct { double sum, rest; } Exact;

static inline void add(Exact *total, double number) {
    const double sum = total->sum + number, part = sum - total->sum;
    total->rest += (total->sum - (sum - part)) + (number - part);
    total->sum = sum;
}

/* M - 1 at each height, and bounds on its errors. (R3) Returns NaN where there is no memory, with ``has_room`` 0. */
typedef struct { const Complex *log_weight, *loss; const double *weight_error, *loss_error; double quadrature; Py_ssize_t number; } OnLine;

static inline double sums_on_line(OnLine on, double tilt, double step, Complex *sum, double *error, Py_ssize_t number, int *has_room) {
    Py_ssize_t baby = 2, large = 1;
    while (baby * baby < number) baby *= 2;
    const Py_ssize_t giant = (number + baby - 1) / baby, padded = giant * baby;
    while (large < giant) large *= 2;
    double *room = calloc((size_t)(2 * (baby + large + padded)), sizeof(double));
    *has_room = room != NULL;
    if (!room) return NAN;
    double *small_re = room, *small_im = small_re + baby, *large_re = small_im + baby, *large_im = large_re + large;
    double *sum_re = large_im + large, *sum_im = sum_re + padded, whole = 0.0;
    Exact still_re = {0.0, 0.0}, still_im = {0.0, 0.0};
    double still = 0.0, slope = 0.0, ceiling = 0.0, drift = 0.0;
    const double summed = 6.0 * UNIT * (double)on.number, levels = 24.0 + 6.0 * (log2((double)padded) + 2.0);
    for (Py_ssize_t j = 0; j < on.number; j++) {
        const Complex l = on.loss[j], w = on.log_weight[j], moved = {tilt * l.re, tilt * l.im};
        const Complex weight = exp_complex(w.re, w.im), tilted = exp_complex(w.re + moved.re, w.im + moved.im);
        const Complex grown = hypot(moved.re, moved.im) < 1.0 ? times(weight, expm1_complex(moved.re, moved.im))
                                                                : (Complex){tilted.re - weight.re, tilted.im - weight.im};
        add(&still_re, grown.re);
        add(&still_im, grown.im);
        const Complex stride = all_powers(expm1_complex(-(step * l.im), step * l.re), baby, small_re, small_im);
        all_powers(stride, large, large_re, large_im);
        for (Py_ssize_t g = 0; g < giant; g++)
            add_products(tilted, times(tilted, (Complex){large_re[g], large_im[g]}), small_re, small_im, baby, sum_re + g * baby,
                         sum_im + g * baby);
        const double size = exp(w.re + moved.re), mass = exp(w.re), length = hypot(l.re, l.im);
        /* A term's relative error comes from its weight and its exponent; its phase's from the loss, the first power and the levels. */
        const double relative = on.weight_error[j] + tilt * (on.loss_error[j] + 2.0 * UNIT * length) + 64.0 * UNIT;
        const double phase = on.loss_error[j] + UNIT * levels * length;
        still += (mass + size) * tilt * (relative * length + phase);
        slope += size * ((relative + summed) * length + phase);
        ceiling += 2.0 * size * (relative + 2.0 * summed);
        drift += size * phase;
    }
    const Complex at_tilt = {still_re.sum + still_re.rest, still_im.sum + still_im.rest};
    for (Py_ssize_t k = 0; k < number; k++) {
        const double height = step * (double)k, rising = slope * height, level = ceiling + drift * height;
        sum[k] = (Complex){at_tilt.re + sum_re[k], at_tilt.im + sum_im[k]};
        error[k] = 1.01 * (still + (rising > level ? level : rising)) + on.quadrature;
        whole += fabs(sum[k].re) + fabs(sum[k].im) + error[k];
    }
    free(room);
    return whole;
}

/* Adds count log(1 + minus_one) to re + i im, and its error. (R5) */
static inline double add_line(const Complex *sum, const double *sum_error, double count, double *re, double *im, double *error,
                              Py_ssize_t number) {
    double whole = 0.0;
    for (Py_ssize_t k = 0; k < number; k++) {
        const double real = 1.0 + sum[k].re, square = sum[k].re * (2.0 + sum[k].re) + sum[k].im * sum[k].im;
        const double modulus = fmax(hypot(real, sum[k].im), TINY), share = sum_error[k] / modulus;
        const double log_size = square < -0.5 ? log(modulus) : 0.5 * log1p(square), angle = atan2(sum[k].im, real);
        re[k] += count * log_size;
        im[k] += count * angle;
        error[k] += count * ((share < 1e-3 ? share : log1p(share)) + 18.0 * UNIT * hypot(log_size, angle));
        error[k] += UNIT * (fabs(re[k]) + fabs(im[k]));
        whole += fabs(re[k]) + fabs(im[k]) + error[k];
    }
    return whole;
}

/* log of the integrand's size at the tilt, a bound on the rounding of its sum and, for each unit of epsilon, of the phases. */
typedef struct { double log_size, rounding, phase_rounding; } Size;

/* re + i im become e^{re + i im + s (s + 1) gaussian} / (s (s + 1)) over its size at the tilt, the first one half of it. */
static inline double fill_integrand(double tilt, double step, double gaussian, double *re, double *im, const double *error,
                                    Py_ssize_t number, Size *found) {
    const double still = tilt * (tilt + 1.0), log_still = log(tilt) + log1p(tilt);
    const double logs = 128.0 + 16.0 * (fabs(log(tilt)) + log1p(tilt)), top = re[0] + still * gaussian;
    double rounding = 0.0, total = 0.0, far = 0.0;
    for (Py_ssize_t k = 0; k < number; k++) {
        const double height = step * (double)k, square = height * height;
        /* s (s + 1), and the square of its modulus without cancellation */
        const Complex kernel = {still - square, height * (2.0 * tilt + 1.0)};
        const double norm = (tilt * tilt + square) * ((tilt + 1.0) * (tilt + 1.0) + square);
        const double exponent = (re[k] + kernel.re * gaussian) - top, phase = im[k] + kernel.im * gaussian;
        const double size = (k ? 1.0 : 0.5) * exp(exponent) * still, modulus = size / sqrt(norm);
        const double moved = error[k] + UNIT * (16.0 * (2.0 * (still + square) + height) * gaussian
                                                + 4.0 * (fabs(exponent) + fabs(top) + fabs(phase)) + logs);
        const double cosine = cos(phase), sine = sin(phase);
        re[k] = size * (cosine * kernel.re + sine * kernel.im) / norm;
        im[k] = size * (sine * kernel.re - cosine * kernel.im) / norm;
        total += modulus;
        far += modulus * sqrt(tilt * tilt + square);
        /* |value| (e^moved - 1), even if the value has underflowed and the error is huge. e^d - 1 <= d + d^2 up to 1. */
        rounding += moved < 1.0 ? modulus * moved * (1.0 + moved) : exponent + moved > 700.0 ? INFINITY : exp(exponent + moved);
    }
    rounding += UNIT * ((double)number + 64.0) * total;
    *found = (Size){top - log_still, rounding, 4.0 * UNIT * far};
    return top + rounding + far;
}

/* Sums of v e^{-i epsilon u} and of u v e^{-i epsilon u} over a block, u from the block's start. */
static inline void add_block(const double *re, const double *im, const double *cosine, const double *sine, double step, Py_ssize_t count,
                      Complex *sum, Complex *moment) {
    Complex plain = {0.0, 0.0}, far = {0.0, 0.0};
    for (Py_ssize_t k = 0; k < count; k++) {
        const double x = re[k] * cosine[k] + im[k] * sine[k], y = im[k] * cosine[k] - re[k] * sine[k];
        plain.re += x;
        plain.im += y;
        far.re += (double)k * x;
        far.im += (double)k * y;
    }
    *sum = plain;
    *moment = (Complex){step * far.re, step * far.im};
}

/* The real part of the sum of v e^{-i epsilon u}, and the imaginary part of that of u v e^{-i epsilon u}. */
static inline Complex sums_at(const double *re, const double *im, double step, Py_ssize_t number, double epsilon) {
    double cosine[BLOCK], sine[BLOCK], real = 0.0, imaginary = 0.0;
    for (int k = 0; k < BLOCK; k++) {
        const double angle = epsilon * (step * (double)k);
        cosine[k] = cos(angle);
        sine[k] = sin(angle);
    }
    for (Py_ssize_t first = 0; first < number; first += BLOCK) {
        const double height = step * (double)first, turn = cos(epsilon * height), lean = sin(epsilon * height);
        Complex sum, moment;
        add_block(re + first, im + first, cosine, sine, step, number - first < BLOCK ? number - first : BLOCK, &sum, &moment);
        real += sum.re * turn + sum.im * lean;
        imaginary += height * (sum.im * turn - sum.re * lean) + (moment.im * turn - moment.re * lean);
    }
    return (Complex){real, imaginary};
}
