/* Sums of products of a release's noise with itself and with the last one's, by which it is watched. */
#define LANES 16
#define ADDED_SINGLE 4096

/* Adds to sums those of x y over even places, over odd ones, of x at even places by y at odd ones, and the reverse. */
static inline void add_products(const float *x, const float *y, Py_ssize_t count, double *sums) {
    float ee[LANES] = {0}, oo[LANES] = {0}, eo[LANES] = {0}, oe[LANES] = {0};
    Py_ssize_t first = 0;
    for (; first + 2 * LANES <= count; first += 2 * LANES) {
        for (int i = 0; i < LANES; i++) {
            const float a = x[first + 2 * i], b = x[first + 2 * i + 1], c = y[first + 2 * i], d = y[first + 2 * i + 1];
            ee[i] += a * c; oo[i] += b * d; eo[i] += a * d; oe[i] += b * c;
        }
    }
    for (int i = 0; i < LANES; i++) { sums[0] += ee[i]; sums[1] += oo[i]; sums[2] += eo[i]; sums[3] += oe[i]; }
    for (; first < count; first += 2) {
        const double a = x[first], c = y[first], b = first + 1 < count ? x[first + 1] : 0.0, d = first + 1 < count ? y[first + 1] : 0.0;
        sums[0] += a * c; sums[1] += b * d; sums[2] += a * d; sums[3] += b * c;
    }
}

/* Adds numbers to as many totals, and to sums those at even places and those at odd ones. */
static inline void add_numbers(const float *x, Py_ssize_t count, double *total, double *sums) {
    double lane[LANES] = {0};
    Py_ssize_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int j = 0; j < LANES; j++) { total[i + j] += x[i + j]; lane[j] += x[i + j]; }
    for (; i < count; i++) { total[i] += x[i]; lane[i % 2] += x[i]; }
    for (int j = 0; j < LANES; j++) sums[j % 2] += lane[j];
}

/* What a part of a release is watched with; the part begins at number ``first`` of all. */
typedef struct {
    int8_t *kept; /* of all numbers: the last noise in whole steps towards 0, overwritten by the new one */
    double *total; /* of the first numbers: sums over releases */
    Py_ssize_t first, shift, added;
    float steps; /* in the noise's unit */
    int continues; /* whether there is a last noise */
} Watched;

static inline int8_t whole_steps(float number, float steps) {
    const float found = number * steps;
    return (int8_t)(int)(found > -127.0f ? found < 127.0f ? found : 127.0f : -127.0f); /* of NaN -127 */
}

WIDE static void all_watched(const float *before, const float *after, Py_ssize_t count, Watched by, double *sums) {
    float fresh[ADDED_SINGLE], other[ADDED_SINGLE];
    for (Py_ssize_t start = 0; start < count; start += ADDED_SINGLE) {
        const Py_ssize_t some = count - start < ADDED_SINGLE ? count - start : ADDED_SINGLE, first = by.first + start;
        const Py_ssize_t from = first < by.shift ? by.shift : first, end = first + some;
        int8_t *kept = by.kept + first;
        for (Py_ssize_t i = 0; i < some; i++) fresh[i] = after[start + i] - before[start + i];
        add_products(fresh, fresh, some, sums);
        if (by.continues) {
            for (Py_ssize_t i = 0; i < some; i++) other[i] = kept[i];
            add_products(fresh, other, some, sums + 4);
        }
        for (Py_ssize_t i = 0; i < some; i++) kept[i] = whole_steps(fresh[i], by.steps);
        if (from < end) {
            const int8_t *apart = by.kept + (from - by.shift);
            for (Py_ssize_t i = 0; i < end - from; i++) other[i] = apart[i];
            add_products(other, fresh + (from - first), end - from, sums + 8);
        }
        if (first < by.added) add_numbers(fresh, by.added - first < some ? by.added - first : some, by.total + first, sums + 12);
    }
}
