/* AES-256 in counter mode, thirty-two blocks at a time, for processors that encrypt four with one instruction (VAES). Elsewhere OpenSSL does
   the same: mechanisms/sampling/key_stream.py, with a test that both give the same bytes. Constant time: no branch and no address depends on
   the key. */
#define CIPHER __attribute__((target("aes,avx512f,avx512bw,avx512dq,vaes")))
#define ROUNDS 14
#define BLOCKS 32 /* at a time: eight registers, so that each is ready when its turn comes again */

typedef struct { __m128i key[ROUNDS + 1]; } Schedule;

static int has_cipher_instructions(void) {
    return __builtin_cpu_supports("aes") && __builtin_cpu_supports("vaes") && __builtin_cpu_supports("avx512f")
        && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
}

/* FIPS 197, section 5.2: a round key is the one before the last, each word added to the ones that follow, and a substituted word. */
CIPHER static inline __m128i following(__m128i key, __m128i substituted) {
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

CIPHER static Schedule schedule_of(const uint8_t *key) {
    Schedule s;
    s.key[0] = _mm_loadu_si128((const __m128i *)key);
    s.key[1] = _mm_loadu_si128((const __m128i *)(key + 16));
    EVEN(2, 1); ODD(3); EVEN(4, 2); ODD(5); EVEN(6, 4); ODD(7); EVEN(8, 8); ODD(9); EVEN(10, 16); ODD(11); EVEN(12, 32); ODD(13);
    EVEN(14, 64);
    return s;
}

/* BLOCKS blocks of the key stream from this number on; a block's counter is its number, from the last byte on. */
CIPHER static inline void encrypted(const Schedule *schedule, uint64_t block, uint8_t *out) {
    const __m512i backwards = _mm512_broadcast_i32x4(_mm_set_epi8(8, 9, 10, 11, 12, 13, 14, 15, -1, -1, -1, -1, -1, -1, -1, -1));
    __m512i counter = _mm512_set_epi64(
        (int64_t)(block + 3), 0, (int64_t)(block + 2), 0, (int64_t)(block + 1), 0, (int64_t)block, 0
    );
    const __m512i four = _mm512_set_epi64(4, 0, 4, 0, 4, 0, 4, 0);
    __m512i state[BLOCKS / 4], key = _mm512_broadcast_i32x4(schedule->key[0]);
    for (int i = 0; i < BLOCKS / 4; i++) {
        state[i] = _mm512_xor_si512(_mm512_shuffle_epi8(counter, backwards), key);
        counter = _mm512_add_epi64(counter, four);
    }
    for (int round = 1; round < ROUNDS; round++) {
        key = _mm512_broadcast_i32x4(schedule->key[round]);
        for (int i = 0; i < BLOCKS / 4; i++) state[i] = _mm512_aesenc_epi128(state[i], key);
    }
    key = _mm512_broadcast_i32x4(schedule->key[ROUNDS]);
    for (int i = 0; i < BLOCKS / 4; i++) _mm512_storeu_si512(out + 64 * i, _mm512_aesenclast_epi128(state[i], key));
}

/* Bytes of the key stream from this place on, as many as asked for. */
CIPHER static void all_bytes(const uint8_t *key, uint64_t position, uint8_t *target, Py_ssize_t count) {
    const Schedule schedule = schedule_of(key);
    uint8_t some[16 * BLOCKS];
    while (count) {
        const Py_ssize_t skipped = (Py_ssize_t)(position % 16), room = 16 * BLOCKS - skipped, taken = count < room ? count : room;
        if (skipped || taken < 16 * BLOCKS) {
            encrypted(&schedule, position / 16, some);
            memcpy(target, some + skipped, (size_t)taken);
        } else encrypted(&schedule, position / 16, target);
        position += (uint64_t)taken;
        target += taken;
        count -= taken;
    }
}
