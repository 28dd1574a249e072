/* ``normals`` and ``noised`` with registers of four numbers (AVX2) or eight (AVX-512), which a compiler doesn't make of the loops. Powers of two
   are drawn together, which rounds nothing: steps are counted in whole numbers here. The count is a multiple of the registers' numbers. */
#define EIGHT __attribute__((target("avx512f,avx512dq")))
#define FOUR __attribute__((target("avx2")))

typedef struct {
    Py_ssize_t numbers;
    Py_ssize_t (*normals)(const uint64_t *word, const uint64_t *column, Double *number, int64_t *rest, Py_ssize_t count);
    Py_ssize_t (*noised)(
        const uint64_t *word, const uint64_t *column, const void *value, void *out, int64_t *rest, Py_ssize_t count, Release by, int single
    );
} Registers;

static inline Py_ssize_t places(unsigned rest, int64_t *into, Py_ssize_t first) {
    Py_ssize_t found = 0;
    for (; rest; rest &= rest - 1) into[found++] = first + __builtin_ctz(rest);
    return found;
}

/* The numbers of eight words, in steps; of the rest only the sign, at 1/2. */
EIGHT static inline __m512d eight_steps(const uint64_t *word, const uint64_t *column, __mmask8 *rest) {
    const __m512i w = _mm512_loadu_si512(word), own = _mm512_srli_epi64(w, 52);
    /* One by one: an instruction that gathers them takes longer on many of these processors. */
    const __m512i entry = _mm512_set_epi64(
        (int64_t)column[word[7] >> 52], (int64_t)column[word[6] >> 52], (int64_t)column[word[5] >> 52], (int64_t)column[word[4] >> 52],
        (int64_t)column[word[3] >> 52], (int64_t)column[word[2] >> 52], (int64_t)column[word[1] >> 52], (int64_t)column[word[0] >> 52]
    );
    const __m512i threshold = _mm512_and_si512(_mm512_srli_epi64(w, 25), _mm512_set1_epi64(THRESHOLD_MASK));
    const __mmask8 other = _mm512_cmpge_epi64_mask(threshold, _mm512_srli_epi64(entry, 16));
    const __m512i bin = _mm512_mask_and_epi64(own, other, entry, _mm512_set1_epi64(0xffff));
    *rest = _mm512_cmpeq_epi64_mask(bin, _mm512_set1_epi64(REST));
    const __m512i offset = _mm512_and_si512(w, _mm512_set1_epi64(OFFSET_MASK));
    const __m512i cell = _mm512_maskz_or_epi64(_knot_mask8(*rest), _mm512_slli_epi64(bin, OFFSET_BITS), offset);
    const __m512i sign = _mm512_and_si512(_mm512_slli_epi64(w, 39), _mm512_set1_epi64((int64_t)0x8000000000000000));
    const __m512d centre = _mm512_add_pd(_mm512_cvtepi64_pd(cell), _mm512_set1_pd(0.5));
    return _mm512_xor_pd(centre, _mm512_castsi512_pd(sign));
}

EIGHT static Py_ssize_t eight_normals(const uint64_t *word, const uint64_t *column, Double *number, int64_t *rest, Py_ssize_t count) {
    Py_ssize_t found = 0;
    for (Py_ssize_t i = 0; i < count; i += 8) {
        __mmask8 left;
        _mm512_storeu_pd(number + i, _mm512_mul_pd(eight_steps(word + i, column, &left), _mm512_set1_pd(0x1p-32)));
        if (left) found += places(left, rest + found, i);
    }
    return found;
}

EIGHT static Py_ssize_t eight_noised(
    const uint64_t *word, const uint64_t *column, const void *value, void *out, int64_t *rest, Py_ssize_t count, Release by, int single
) {
    const __m512d factor = _mm512_set1_pd(by.factor * 0x1p32), scale = _mm512_set1_pd(by.scale * 0x1p-32);
    const __m512d largest = _mm512_set1_pd(by.largest * 0x1p32), least = _mm512_set1_pd(-by.largest * 0x1p32);
    Py_ssize_t found = 0;
    __mmask8 broken = 0;
    for (Py_ssize_t i = 0; i < count; i += 8) {
        __mmask8 left;
        const __m512d given =
            single ? _mm512_cvtps_pd(_mm256_loadu_ps((const float *)value + i)) : _mm512_loadu_pd((const double *)value + i);
        const __m512d held = _mm512_min_pd(_mm512_max_pd(_mm512_mul_pd(given, factor), least), largest);
        const __m512d whole = _mm512_roundscale_pd(held, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __m512d sum = _mm512_mul_pd(_mm512_add_pd(whole, eight_steps(word + i, column, &left)), scale);
        broken |= _mm512_fpclass_pd_mask(given, 0x99); /* infinite, or not a number */
        if (single) _mm256_storeu_ps((float *)out + i, _mm512_cvtpd_ps(sum));
        else _mm512_storeu_pd((double *)out + i, sum);
        if (left) found += places(left, rest + found, i);
    }
    return broken ? -1 : found;
}

/* The numbers of four words, as ``eight_steps`` gives them. */
FOUR static inline __m256d four_steps(const uint64_t *word, const uint64_t *column, unsigned *rest) {
    const __m256i w = _mm256_loadu_si256((const __m256i *)word), own = _mm256_srli_epi64(w, 52);
    const __m256i entry = _mm256_set_epi64x(
        (int64_t)column[word[3] >> 52], (int64_t)column[word[2] >> 52], (int64_t)column[word[1] >> 52], (int64_t)column[word[0] >> 52]
    );
    const __m256i threshold = _mm256_and_si256(_mm256_srli_epi64(w, 25), _mm256_set1_epi64x(THRESHOLD_MASK));
    const __m256i is_own = _mm256_cmpgt_epi64(_mm256_srli_epi64(entry, 16), threshold);
    const __m256i bin = _mm256_blendv_epi8(_mm256_and_si256(entry, _mm256_set1_epi64x(0xffff)), own, is_own);
    const __m256i is_rest = _mm256_cmpeq_epi64(bin, _mm256_set1_epi64x(REST));
    *rest = (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(is_rest));
    const __m256i offset = _mm256_and_si256(w, _mm256_set1_epi64x(OFFSET_MASK));
    const __m256i cell = _mm256_andnot_si256(is_rest, _mm256_or_si256(_mm256_slli_epi64(bin, OFFSET_BITS), offset));
    const __m256i sign = _mm256_and_si256(_mm256_slli_epi64(w, 39), _mm256_set1_epi64x((int64_t)0x8000000000000000));
    /* 2^52 + cell, less 2^52 - 1/2, a number of double precision too: this processor has no instruction that makes whole numbers of 64 bits
       double precision. */
    const __m256d moved = _mm256_castsi256_pd(_mm256_or_si256(cell, _mm256_set1_epi64x(0x4330000000000000)));
    const __m256d centre = _mm256_sub_pd(moved, _mm256_set1_pd(0x1p52 - 0.5));
    return _mm256_xor_pd(centre, _mm256_castsi256_pd(sign));
}

FOUR static Py_ssize_t four_normals(const uint64_t *word, const uint64_t *column, Double *number, int64_t *rest, Py_ssize_t count) {
    Py_ssize_t found = 0;
    for (Py_ssize_t i = 0; i < count; i += 4) {
        unsigned left;
        _mm256_storeu_pd(&number[i].number, _mm256_mul_pd(four_steps(word + i, column, &left), _mm256_set1_pd(0x1p-32)));
        if (left) found += places(left, rest + found, i);
    }
    return found;
}

/* ``noised`` of single or of double precision, whichever is constant where this is put in. What isn't finite isn't 0 less itself. */
FOUR static inline Py_ssize_t four_noised_of(
    const uint64_t *word, const uint64_t *column, const void *value, void *out, int64_t *rest, Py_ssize_t count, Release by, const int single
) {
    const __m256d factor = _mm256_set1_pd(by.factor * 0x1p32), scale = _mm256_set1_pd(by.scale * 0x1p-32);
    const __m256d largest = _mm256_set1_pd(by.largest * 0x1p32), least = _mm256_set1_pd(-by.largest * 0x1p32);
    Py_ssize_t found = 0;
    __m256d broken = _mm256_setzero_pd();
    for (Py_ssize_t i = 0; i < count; i += 4) {
        unsigned left;
        const __m256d given = single ? _mm256_cvtps_pd(_mm_loadu_ps((const float *)value + i)) : _mm256_loadu_pd((const double *)value + i);
        const __m256d held = _mm256_min_pd(_mm256_max_pd(_mm256_mul_pd(given, factor), least), largest);
        const __m256d whole = _mm256_round_pd(held, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __m256d sum = _mm256_mul_pd(_mm256_add_pd(whole, four_steps(word + i, column, &left)), scale);
        broken = _mm256_or_pd(broken, _mm256_sub_pd(given, given));
        if (single) _mm_storeu_ps((float *)out + i, _mm256_cvtpd_ps(sum));
        else _mm256_storeu_pd((double *)out + i, sum);
        if (left) found += places(left, rest + found, i);
    }
    const __m256i bits = _mm256_castpd_si256(broken);
    return _mm256_testz_si256(bits, bits) ? found : -1;
}

FOUR static Py_ssize_t four_noised(
    const uint64_t *word, const uint64_t *column, const void *value, void *out, int64_t *rest, Py_ssize_t count, Release by, int single
) {
    return single ? four_noised_of(word, column, value, out, rest, count, by, 1)
                  : four_noised_of(word, column, value, out, rest, count, by, 0);
}

static const Registers of_eight = {8, eight_normals, eight_noised}, of_four = {4, four_normals, four_noised};

/* The widest registers of the processor of at most so many numbers; NULL: none. */
static const Registers *registers(int at_most) {
    if (at_most >= 8 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return &of_eight;
    return at_most >= 4 && __builtin_cpu_supports("avx2") ? &of_four : NULL;
}
