/* AES-256 in counter mode, many blocks at a time, by the widest instructions of the processor: four blocks each (VAES with AVX-512), two (VAES
   with AVX2) or one (AES-NI). Elsewhere OpenSSL does the same: mechanisms/sampling/key_stream.py, with a test that all give the same bytes.
   Constant time: no branch and no address depends on the key. */
#define BLOCKS_FOUR __attribute__((target("aes,avx512f,avx512bw,avx512dq,vaes")))
#define BLOCKS_TWO __attribute__((target("aes,avx2,vaes")))
#define BLOCKS_ONE __attribute__((target("aes,ssse3")))
#define ROUNDS 14
#define BLOCKS 32 /* at a time */
#define TURNS 8 /* registers whose turns come one after the other, so that each is ready when its own comes again */

typedef struct { __m128i key[ROUNDS + 1]; } Schedule;

/* BLOCKS blocks of the key stream from this number on; a block's counter is its number, from the last byte on. */
typedef void (*Encrypt)(const Schedule *schedule, uint64_t block, uint8_t *out);

/* FIPS 197, section 5.2: a round key is the one before the last, each word added to the ones that follow, and a substituted word. */
BLOCKS_ONE static inline __m128i following(__m128i key, __m128i substituted) {
    __m128i moved = _mm_slli_si128(key, 4);
    key = _mm_xor_si128(key, moved);
    moved = _mm_slli_si128(moved, 4);
    key = _mm_xor_si128(key, moved);
    moved = _mm_slli_si128(moved, 4);
    return _mm_xor_si128(_mm_xor_si128(key, moved), substituted);
}

#define EVEN(i, constant) \
    s.key[i] = following(s.key[i - 2], _mm_shuffle_epi32(_mm_aeskeygenassist_si128(s.key[i - 1], constant), 0xff))
#define ODD(i) s.key[i] = following(s.key[i - 2], _mm_shuffle_epi32(_mm_aeskeygenassist_si128(s.key[i - 1], 0), 0xaa))

BLOCKS_ONE static Schedule schedule_of(const uint8_t *key) {
    Schedule s;
    s.key[0] = _mm_loadu_si128((const __m128i *)key);
    s.key[1] = _mm_loadu_si128((const __m128i *)(key + 16));
    EVEN(2, 1); ODD(3); EVEN(4, 2); ODD(5); EVEN(6, 4); ODD(7); EVEN(8, 8); ODD(9); EVEN(10, 16); ODD(11); EVEN(12, 32); ODD(13);
    EVEN(14, 64);
    return s;
}

/* Moves a number in the low half of a block to its last bytes, the last digits last. */
BLOCKS_ONE static inline __m128i backwards(void) { return _mm_set_epi8(8, 9, 10, 11, 12, 13, 14, 15, -1, -1, -1, -1, -1, -1, -1, -1); }

BLOCKS_ONE static void one_each(const Schedule *schedule, uint64_t block, uint8_t *out) {
    for (int first = 0; first < BLOCKS; first += TURNS) {
        __m128i state[TURNS];
        for (int i = 0; i < TURNS; i++) {
            const __m128i counter = _mm_set_epi64x((int64_t)(block + (uint64_t)(first + i)), 0);
            state[i] = _mm_xor_si128(_mm_shuffle_epi8(counter, backwards()), schedule->key[0]);
        }
        for (int round = 1; round < ROUNDS; round++)
            for (int i = 0; i < TURNS; i++) state[i] = _mm_aesenc_si128(state[i], schedule->key[round]);
        for (int i = 0; i < TURNS; i++)
            _mm_storeu_si128((__m128i *)out + first + i, _mm_aesenclast_si128(state[i], schedule->key[ROUNDS]));
    }
}

BLOCKS_TWO static void two_each(const Schedule *schedule, uint64_t block, uint8_t *out) {
    const __m256i order = _mm256_broadcastsi128_si256(backwards()), two = _mm256_set_epi64x(2, 0, 2, 0);
    __m256i counter = _mm256_set_epi64x((int64_t)(block + 1), 0, (int64_t)block, 0);
    for (int first = 0; first < BLOCKS; first += 2 * TURNS) {
        __m256i state[TURNS], key = _mm256_broadcastsi128_si256(schedule->key[0]);
        for (int i = 0; i < TURNS; i++) {
            state[i] = _mm256_xor_si256(_mm256_shuffle_epi8(counter, order), key);
            counter = _mm256_add_epi64(counter, two);
        }
        for (int round = 1; round < ROUNDS; round++) {
            key = _mm256_broadcastsi128_si256(schedule->key[round]);
            for (int i = 0; i < TURNS; i++) state[i] = _mm256_aesenc_epi128(state[i], key);
        }
        key = _mm256_broadcastsi128_si256(schedule->key[ROUNDS]);
        for (int i = 0; i < TURNS; i++)
            _mm256_storeu_si256((__m256i *)(out + 16 * first + 32 * i), _mm256_aesenclast_epi128(state[i], key));
    }
}

BLOCKS_FOUR static void four_each(const Schedule *schedule, uint64_t block, uint8_t *out) {
    const __m512i order = _mm512_broadcast_i32x4(backwards()), four = _mm512_set_epi64(4, 0, 4, 0, 4, 0, 4, 0);
    __m512i counter = _mm512_set_epi64((int64_t)(block + 3), 0, (int64_t)(block + 2), 0, (int64_t)(block + 1), 0, (int64_t)block, 0);
    __m512i state[TURNS], key = _mm512_broadcast_i32x4(schedule->key[0]);
    for (int i = 0; i < TURNS; i++) {
        state[i] = _mm512_xor_si512(_mm512_shuffle_epi8(counter, order), key);
        counter = _mm512_add_epi64(counter, four);
    }
    for (int round = 1; round < ROUNDS; round++) {
        key = _mm512_broadcast_i32x4(schedule->key[round]);
        for (int i = 0; i < TURNS; i++) state[i] = _mm512_aesenc_epi128(state[i], key);
    }
    key = _mm512_broadcast_i32x4(schedule->key[ROUNDS]);
    for (int i = 0; i < TURNS; i++) _mm512_storeu_si512(out + 64 * i, _mm512_aesenclast_epi128(state[i], key));
}

static const Encrypt ways[] = {one_each, two_each, four_each};

/* How many of the ways, from the first on, the processor has. */
static int ways_here(void) {
    if (!__builtin_cpu_supports("aes") || !__builtin_cpu_supports("ssse3")) return 0;
    if (!__builtin_cpu_supports("vaes") || !__builtin_cpu_supports("avx2")) return 1;
    return 2 + (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"));
}

/* Bytes of the key stream from this place on, as many as asked for. */
static void all_bytes(Encrypt encrypt, const uint8_t *key, uint64_t position, uint8_t *target, Py_ssize_t count) {
    const Schedule schedule = schedule_of(key);
    uint8_t some[16 * BLOCKS];
    while (count) {
        const Py_ssize_t skipped = (Py_ssize_t)(position % 16), room = 16 * BLOCKS - skipped, taken = count < room ? count : room;
        if (skipped || taken < 16 * BLOCKS) {
            encrypt(&schedule, position / 16, some);
            memcpy(target, some + skipped, (size_t)taken);
        } else encrypt(&schedule, position / 16, target);
        position += (uint64_t)taken;
        target += taken;
        count -= taken;
    }
}
