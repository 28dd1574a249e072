/* The loops of the header LOOPS for both widths of registers, under names that end in SUFFIX: of NUMBERS float32 numbers, with MOST rows of a
   tile whose sums stay in registers, two registers each, and the operations on VECTOR. */
#define SUFFIX _of_eight
#define TARGET "avx2,fma"
#define NUMBERS 8
#define MOST 6
#define VECTOR __m256
#define ZERO _mm256_setzero_ps
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define EACH(x) _mm256_broadcast_ss(&(x))
#define FUSED _mm256_fmadd_ps
#define ADDED _mm256_add_ps
#include LOOPS
#undef SUFFIX
#undef TARGET
#undef NUMBERS
#undef MOST
#undef VECTOR
#undef ZERO
#undef LOAD
#undef STORE
#undef EACH
#undef FUSED
#undef ADDED

#define SUFFIX _of_sixteen
#define TARGET "avx512f"
#define NUMBERS 16
#define MOST 12
#define VECTOR __m512
#define ZERO _mm512_setzero_ps
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define EACH(x) _mm512_set1_ps(x)
#define FUSED _mm512_fmadd_ps
#define ADDED _mm512_add_ps
#include LOOPS
#undef SUFFIX
#undef TARGET
#undef NUMBERS
#undef MOST
#undef VECTOR
#undef ZERO
#undef LOAD
#undef STORE
#undef EACH
#undef FUSED
#undef ADDED
#undef LOOPS

static int widest(void) {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    return __builtin_cpu_supports("avx512f") ? 16 : 8;
}

/* width(): numbers of the widest registers that there are loops for, 0 where there are none. */
static PyObject *width(PyObject *module, PyObject *none) {
    (void)module; (void)none;
    return PyLong_FromLong(widest());
}
