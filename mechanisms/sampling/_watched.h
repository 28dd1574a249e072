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

/* A chunk of at most ADDED_SINGLE numbers from number ``first`` of all on. */
WIDE static void some_watched(const float *before, const float *after, Py_ssize_t first, Py_ssize_t count, const Watched *by, double *sums) {
    float fresh[ADDED_SINGLE], other[ADDED_SINGLE];
    const Py_ssize_t from = first < by->shift ? by->shift : first, end = first + count;
    int8_t *kept = by->kept + first;
    for (Py_ssize_t i = 0; i < count; i++) fresh[i] = after[i] - before[i];
    add_products(fresh, fresh, count, sums);
    if (by->continues) {
        for (Py_ssize_t i = 0; i < count; i++) other[i] = kept[i];
        add_products(fresh, other, count, sums + 4);
    }
    for (Py_ssize_t i = 0; i < count; i++) kept[i] = whole_steps(fresh[i], by->steps);
    if (from < end) {
        const int8_t *apart = by->kept + (from - by->shift);
        for (Py_ssize_t i = 0; i < end - from; i++) other[i] = apart[i];
        add_products(other, fresh + (from - first), end - from, sums + 8);
    }
}

/* Adds the noise of the first numbers of a chunk to their totals. */
WIDE static void some_added(const float *before, const float *after, Py_ssize_t first, Py_ssize_t count, const Watched *by, double *sums) {
    float fresh[ADDED_SINGLE];
    for (Py_ssize_t i = 0; i < count; i++) fresh[i] = after[i] - before[i];
    add_numbers(fresh, count, by->total + first, sums + 12);
}

#ifdef WIDE_REGISTERS
#include <immintrin.h>
#define SIXTEEN __attribute__((target("avx512f")))
#define TOGETHER (2 * LANES)

/* Sums of products in registers: own ones, and of neighbours. Lanes are those of ``add_products``: even and odd ones in turn. */
typedef struct { __m512 own[2], mixed[2]; } Lanes;

SIXTEEN static inline void add_lanes(Lanes *to, int half, __m512 x, __m512 y) {
    to->own[half] = _mm512_add_ps(to->own[half], _mm512_mul_ps(x, y));
    to->mixed[half] = _mm512_add_ps(to->mixed[half], _mm512_mul_ps(x, _mm512_permute_ps(y, 0xb1)));
}

SIXTEEN static inline void sum_lanes(const Lanes *from, double *sums) {
    float own[TOGETHER], mixed[TOGETHER];
    for (int half = 0; half < 2; half++) {
        _mm512_storeu_ps(own + 16 * half, from->own[half]);
        _mm512_storeu_ps(mixed + 16 * half, from->mixed[half]);
    }
    for (int i = 0; i < TOGETHER; i += 2) { sums[0] += own[i]; sums[1] += own[i + 1]; sums[2] += mixed[i]; sums[3] += mixed[i + 1]; }
}

SIXTEEN static inline __m512 sixteen_steps(const int8_t *kept) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)kept)));
}

/* A chunk from number ``first`` of all on, of a multiple of TOGETHER numbers that are all on one side of the shift, which is at least
   TOGETHER: to the bit what ``some_watched`` gives. */
SIXTEEN static void sixteen_watched(
    const float *before, const float *after, Py_ssize_t first, Py_ssize_t count, const Watched *by, double *sums
) {
    const __m512 steps = _mm512_set1_ps(by->steps), least = _mm512_set1_ps(-127.0f), most = _mm512_set1_ps(127.0f);
    int8_t *kept = by->kept + first;
    Lanes own = {0}, step = {0}, apart = {0};
    for (Py_ssize_t i = 0; i < count; i += TOGETHER)
        for (int half = 0; half < 2; half++) {
            const Py_ssize_t at = i + 16 * half;
            const __m512 x = _mm512_sub_ps(_mm512_loadu_ps(after + at), _mm512_loadu_ps(before + at));
            add_lanes(&own, half, x, x);
            if (by->continues) add_lanes(&step, half, x, sixteen_steps(kept + at));
            const __m512 whole = _mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(x, steps), least), most); /* of NaN the least */
            _mm_storeu_si128((__m128i *)(kept + at), _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(whole)));
            if (first >= by->shift) add_lanes(&apart, half, sixteen_steps(kept + at - by->shift), x);
        }
    sum_lanes(&own, sums);
    if (by->continues) sum_lanes(&step, sums + 4);
    if (first >= by->shift) sum_lanes(&apart, sums + 8);
}

static int takes_sixteen(Py_ssize_t first, Py_ssize_t count, const Watched *by) {
    return count % TOGETHER == 0 && by->shift >= TOGETHER && (first >= by->shift || first + count <= by->shift);
}
#endif


/* ``widest``: at most so many numbers of double precision in a register. */
static void all_watched(int widest, const float *before, const float *after, Py_ssize_t count, const Watched *by, double *sums) {
#ifdef WIDE_REGISTERS
    const int wide = widest >= 8 && __builtin_cpu_supports("avx512f");
#else
    (void)widest;
#endif
    for (Py_ssize_t start = 0; start < count; start += ADDED_SINGLE) {
        const Py_ssize_t some = count - start < ADDED_SINGLE ? count - start : ADDED_SINGLE, first = by->first + start;
        const Py_ssize_t added = by->added - first < some ? by->added - first : some;
#ifdef WIDE_REGISTERS
        if (wide && takes_sixteen(first, some, by)) sixteen_watched(before + start, after + start, first, some, by, sums);
        else
#endif
        some_watched(before + start, after + start, first, some, by, sums);
        if (added > 0) some_added(before + start, after + start, first, added, by, sums);
    }
}
