/* A vector and weighted earlier ones added up in double precision, in one pass over memory. */
#define WEIGHTED_BLOCK 512 /* numbers at a time, which stay in the nearest cache */
#define MOST_EARLIER 64

/* v = given * factor, within +-largest and, unless the unit is 0, rounded to multiples of it, a power of two; the sum of own v and the
   earlier vectors by their coefficients, within +-bound; v itself or that sum is kept, and the sum by weight comes out. */
typedef struct { double factor, largest, unit, own, bound, weight; int keeps_sum; } Rule;

/* Earlier vectors, float32 where single, else float64, and the one that is kept, float64: NULL, or one of the earlier ones, which are read
   before. */
typedef struct {
    Rule by;
    const double *coefficient;
    const void *earlier[MOST_EARLIER];
    int terms, single;
    double *kept;
} Recursion;

static inline double within(double number, double largest) {
    number = number < -largest ? -largest : number; /* NaN stays */
    return number > largest ? largest : number;
}

static inline void first_of(const void *given, int single, Py_ssize_t first, Py_ssize_t count, double *number) {
    if (single) for (Py_ssize_t i = 0; i < count; i++) number[i] = ((const float *)given)[first + i];
    else for (Py_ssize_t i = 0; i < count; i++) number[i] = ((const double *)given)[first + i];
}

static inline void last_of(const double *number, int single, Py_ssize_t first, Py_ssize_t count, double weight, void *out) {
    if (single) for (Py_ssize_t i = 0; i < count; i++) ((float *)out)[first + i] = (float)(number[i] * weight);
    else for (Py_ssize_t i = 0; i < count; i++) ((double *)out)[first + i] = number[i] * weight;
}

static inline void add_term(const void *earlier, int single, Py_ssize_t first, Py_ssize_t count, double coefficient, double *sum) {
    if (single) for (Py_ssize_t i = 0; i < count; i++) sum[i] += (double)((const float *)earlier)[first + i] * coefficient;
    else for (Py_ssize_t i = 0; i < count; i++) sum[i] += ((const double *)earlier)[first + i] * coefficient;
}

/* For ``count`` numbers, of which the earlier and the kept vectors have those from ``at`` on. ``kept`` and ``out`` are as they are in
   ``of``, or NULL. */
WIDE static void all_weighted(
    const void *given, int given_single, Py_ssize_t at, Py_ssize_t count, const Recursion *of, double *kept, void *out, int out_single
) {
    const Rule by = of->by;
    const double inverse = by.unit ? 1.0 / by.unit : 0.0;
    double number[WEIGHTED_BLOCK], sum[WEIGHTED_BLOCK];
    for (Py_ssize_t first = 0; first < count; first += WEIGHTED_BLOCK) {
        const Py_ssize_t some = count - first < WEIGHTED_BLOCK ? count - first : WEIGHTED_BLOCK;
        first_of(given, given_single, first, some, number);
        for (Py_ssize_t i = 0; i < some; i++) number[i] = within(number[i] * by.factor, by.largest);
        if (by.unit) for (Py_ssize_t i = 0; i < some; i++) number[i] = rint(number[i] * inverse) * by.unit;
        for (Py_ssize_t i = 0; i < some; i++) sum[i] = number[i] * by.own;
        for (int term = 0; term < of->terms; term++) add_term(of->earlier[term], of->single, at + first, some, of->coefficient[term], sum);
        for (Py_ssize_t i = 0; i < some; i++) sum[i] = within(sum[i], by.bound);
        if (kept) memcpy(kept + at + first, by.keeps_sum ? sum : number, sizeof(double) * (size_t)some);
        if (out) last_of(sum, out_single, first, some, by.weight, out);
    }
}

/* What Python gives of a recursion: () or (factor, largest, unit, own, coefficients, earlier, single, bound, weight, keeps_sum, kept), of
   which earlier is a tuple of as many vectors as there are coefficients, float32 where single, else float64, and kept may have no length. */
typedef struct { Recursion of; Py_buffer coefficients, kept, earlier[MOST_EARLIER]; int is_there, parsed, fits, taken; } GivenRecursion;

/* In place: a buffer may point into itself. */
static void recursion_with(PyObject *given, Py_ssize_t count, GivenRecursion *found) {
    PyObject *earlier;
    Recursion *const of = &found->of;
    found->is_there = PyTuple_GET_SIZE(given) > 0;
    found->parsed = !found->is_there || PyArg_ParseTuple(
        given, "ddddy*O!pddpw*", &of->by.factor, &of->by.largest, &of->by.unit, &of->by.own, &found->coefficients, &PyTuple_Type, &earlier,
        &of->single, &of->by.bound, &of->by.weight, &of->by.keeps_sum, &found->kept
    );
    found->fits = !found->is_there;
    if (!found->is_there || !found->parsed) return;
    const Py_ssize_t terms = PyTuple_GET_SIZE(earlier), size = of->single ? 4 : 8;
    of->coefficient = found->coefficients.buf;
    of->kept = found->kept.len ? found->kept.buf : NULL;
    if (terms > MOST_EARLIER || found->coefficients.len != 8 * terms || (of->kept && found->kept.len != 8 * count)) return;
    while (found->taken < terms) {
        Py_buffer *const one = &found->earlier[found->taken];
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(earlier, found->taken), one, PyBUF_SIMPLE)) return;
        of->earlier[found->taken++] = one->buf;
        if (one->len != size * count) return;
    }
    of->terms = (int)terms;
    found->fits = 1; /* all its vectors have as many numbers as they should */
}

static const Recursion *recursion_of(const GivenRecursion *found) { return found->is_there ? &found->of : NULL; }

static void end_recursion(GivenRecursion *found) {
    for (int i = 0; i < found->taken; i++) PyBuffer_Release(&found->earlier[i]);
    if (found->is_there && found->parsed) { PyBuffer_Release(&found->coefficients); PyBuffer_Release(&found->kept); }
}
