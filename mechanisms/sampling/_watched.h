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

/* The same with registers of half the width: a quarter of the lanes in each. */
#define EIGHT_LANES __attribute__((target("avx2")))

typedef struct { __m256 own[2], mixed[2]; } HalfLanes;

EIGHT_LANES static inline void add_half_lanes(HalfLanes *to, int quarter, __m256 x, __m256 y) {
    to->own[quarter] = _mm256_add_ps(to->own[quarter], _mm256_mul_ps(x, y));
    to->mixed[quarter] = _mm256_add_ps(to->mixed[quarter], _mm256_mul_ps(x, _mm256_permute_ps(y, 0xb1)));
}

EIGHT_LANES static inline void put_half_lanes(const HalfLanes *from, int half, float *own, float *mixed) {
    for (int quarter = 0; quarter < 2; quarter++) {
        _mm256_storeu_ps(own + 16 * half + 8 * quarter, from->own[quarter]);
        _mm256_storeu_ps(mixed + 16 * half + 8 * quarter, from->mixed[quarter]);
    }
}

EIGHT_LANES static inline __m256 eight_kept(const int8_t *kept) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)kept)));
}

EIGHT_LANES static inline __m256i eight_whole(__m256 x, float steps) {
    const __m256 found = _mm256_max_ps(_mm256_mul_ps(x, _mm256_set1_ps(steps)), _mm256_set1_ps(-127.0f)); /* of NaN the least */
    return _mm256_cvttps_epi32(_mm256_min_ps(found, _mm256_set1_ps(127.0f)));
}

/* One half of each TOGETHER numbers, whose sums are as many as the registers hold. What lies the shift before belongs to earlier chunks. */
EIGHT_LANES static inline void half_watched(
    const float *before, const float *after, Py_ssize_t count, int8_t *kept, const int8_t *apart, const Watched *by, int half,
    float lanes[6][TOGETHER]
) {
    HalfLanes own = {0}, step = {0}, other = {0};
    for (Py_ssize_t i = 16 * half; i < count; i += TOGETHER) {
        __m256i whole[2];
        for (int quarter = 0; quarter < 2; quarter++) {
            const Py_ssize_t at = i + 8 * quarter;
            const __m256 x = _mm256_sub_ps(_mm256_loadu_ps(after + at), _mm256_loadu_ps(before + at));
            add_half_lanes(&own, quarter, x, x);
            if (by->continues) add_half_lanes(&step, quarter, x, eight_kept(kept + at));
            if (apart) add_half_lanes(&other, quarter, eight_kept(apart + at), x);
            whole[quarter] = eight_whole(x, by->steps);
        }
        const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(whole[0], whole[1]), 0xd8);
        _mm_storeu_si128((__m128i *)(kept + i), _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
    }
    put_half_lanes(&own, half, lanes[0], lanes[1]);
    put_half_lanes(&step, half, lanes[2], lanes[3]);
    put_half_lanes(&other, half, lanes[4], lanes[5]);
}

/* A chunk from number ``first`` of all on, of a multiple of TOGETHER numbers that are all on one side of the shift, which is no less than
   their count: to the bit what ``some_watched`` gives. */
EIGHT_LANES static void eight_watched(
    const float *before, const float *after, Py_ssize_t first, Py_ssize_t count, const Watched *by, double *sums
) {
    int8_t *kept = by->kept + first;
    const int8_t *apart = first >= by->shift ? kept - by->shift : NULL;
    float lanes[6][TOGETHER];
    for (int half = 0; half < 2; half++) half_watched(before, after, count, kept, apart, by, half, lanes);
    for (int part = 0; part < 3; part++, sums += 4) {
        const float *own = lanes[2 * part], *mixed = lanes[2 * part + 1];
        if (part == 1 ? !by->continues : part == 2 && !apart) continue;
        for (int i = 0; i < TOGETHER; i += 2) { sums[0] += own[i]; sums[1] += own[i + 1]; sums[2] += mixed[i]; sums[3] += mixed[i + 1]; }
    }
}

static int takes_eight(Py_ssize_t first, Py_ssize_t count, const Watched *by) {
    return count % TOGETHER == 0 && by->shift >= count && (first >= by->shift || first + count <= by->shift);
}
#endif

/* A chunk of at most ADDED_SINGLE numbers, float32. */
static void chunk_watched(int widest, const float *before, const float *after, Py_ssize_t first, Py_ssize_t count, const Watched *by, double *sums) {
    const Py_ssize_t added = by->added - first < count ? by->added - first : count;
#ifdef WIDE_REGISTERS
    if (widest >= 8 && __builtin_cpu_supports("avx512f") && takes_sixteen(first, count, by))
        sixteen_watched(before, after, first, count, by, sums);
    else if (widest >= 4 && __builtin_cpu_supports("avx2") && takes_eight(first, count, by))
        eight_watched(before, after, first, count, by, sums);
    else
#else
    (void)widest;
#endif
    some_watched(before, after, first, count, by, sums);
    if (added > 0) some_added(before, after, first, added, by, sums);
}

/* The noise between two vectors of float64, as float32. */
WIDE static void narrowed(const double *restrict before, const double *restrict after, float *restrict noise, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) noise[i] = (float)(after[i] - before[i]);
}

/* ``widest``: at most so many numbers of double precision in a register. before and after: float32 where single, else float64. */
static void all_watched(int widest, const void *before, const void *after, Py_ssize_t count, const Watched *by, double *sums, int single) {
    static const float zeros[ADDED_SINGLE];
    float noise[ADDED_SINGLE];
    for (Py_ssize_t start = 0; start < count; start += ADDED_SINGLE) {
        const Py_ssize_t some = count - start < ADDED_SINGLE ? count - start : ADDED_SINGLE, first = by->first + start;
        if (single) chunk_watched(widest, (const float *)before + start, (const float *)after + start, first, some, by, sums);
        else {
            narrowed((const double *)before + start, (const double *)after + start, noise, some);
            chunk_watched(widest, zeros, noise, first, some, by, sums);
        }
    }
}
