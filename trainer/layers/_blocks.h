/* Numbers in blocks of one size, which are filled up with zeros. */
#include <string.h>

/* Compiled for what a processor may have. A number's result doesn't depend on its place: every one goes through the same operations, in
   blocks that are filled up, with real and imaginary parts apart. Side by side, GCC 12 takes a product and a difference together even
   where it is told not to (-ffp-contract=off), but not in the last numbers of a loop. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

#define BLOCK 32

typedef struct { float re[BLOCK], im[BLOCK]; } Block;

/* Numbers of x, as many as there are, and zeros. */
static inline void take_row(float *row, const float *x, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < BLOCK && count < BLOCK; i++) row[i] = 0.0f;
    memcpy(row, x, sizeof(float) * (size_t)(count < BLOCK ? count : BLOCK));
}

static inline void give_row(const float *row, float *out, Py_ssize_t count) {
    memcpy(out, row, sizeof(float) * (size_t)(count < BLOCK ? count : BLOCK));
}
