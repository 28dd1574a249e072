/* The sums of one share, for registers of NUMBERS float32 numbers. Included once for each width, by _widths.h.

   A number is, for each part of the units, one chain of fused products and sums from the first unit to the last, and these are added in
   the parts' order: its bits depend neither on the width nor on the tile that it is in. */
#define JOINED(name, suffix) name##suffix
#define WITH(name, suffix) JOINED(name, suffix)
#define NAME(name) WITH(name, SUFFIX)
#define WIDTH (2 * NUMBERS)

/* Adds sum_k left[k][row] right[k][column] to ``total``, or puts it there first. */
static inline __attribute__((always_inline, target(TARGET))) void NAME(tile)(
        const int many, const float *left, const float *right, Py_ssize_t depth, float *total, Py_ssize_t stride, int is_first) {
    VECTOR sum[MOST][2], along[2];
#pragma GCC unroll 12
    for (int t = 0; t < many; t++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) sum[t][v] = ZERO();
    for (Py_ssize_t k = 0; k < depth; k++, left += MOST, right += WIDTH) {
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) along[v] = LOAD(right + v * NUMBERS);
#pragma GCC unroll 12
        for (int t = 0; t < many; t++)
#pragma GCC unroll 2
            for (int v = 0; v < 2; v++) sum[t][v] = FUSED(EACH(left[t]), along[v], sum[t][v]);
    }
#pragma GCC unroll 12
    for (int t = 0; t < many; t++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) {
            float *place = total + t * stride + v * NUMBERS;
            STORE(place, is_first ? sum[t][v] : ADDED(LOAD(place), sum[t][v]));
        }
}

#define CASE(n) case n: NAME(tile)(n, left, right, depth, total, stride, is_first); return
__attribute__((target(TARGET))) static void NAME(rows)(
        int many, const float *left, const float *right, Py_ssize_t depth, float *total, Py_ssize_t stride, int is_first) {
    switch (many) {
    CASE(1); CASE(2); CASE(3); CASE(4); CASE(5); CASE(6);
#if MOST > 6
    CASE(7); CASE(8); CASE(9); CASE(10); CASE(11); CASE(12);
#endif
    }
}
#undef CASE

/* Some units' slopes times their factors, as tiles take them: (tiles, units * parts, MOST). */
__attribute__((target(TARGET))) static void NAME(weighted)(
        const Task *task, Py_ssize_t unit, Py_ssize_t units, Py_ssize_t output, Py_ssize_t outputs, float *left) {
    for (Py_ssize_t u = 0; u < units; u++) {
        const float *g = task->slopes + ((unit + u) * task->outputs + output) * task->parts, factor = task->factors[unit + u];
        for (Py_ssize_t first = 0; first < outputs; first += MOST, g += MOST * task->parts) {
            const Py_ssize_t many = outputs - first < MOST ? outputs - first : MOST;
            float *tile = left + (first * units + u * MOST) * task->parts;
            if (task->parts == 1)
                for (Py_ssize_t i = 0; i < many; i++) tile[i] = factor * g[i];
            else
                for (Py_ssize_t i = 0; i < many; i++) {
                    tile[i] = factor * g[2 * i];
                    tile[MOST + i] = factor * g[2 * i + 1];
                }
        }
    }
}

/* Some units' inputs in one panel of columns, (units * parts, WIDTH), zeros beyond the last column. Of complex ones conj(a), and i conj(a):
   their products with Re g and Im g are g conj(a). */
__attribute__((target(TARGET))) static void NAME(panel)(
        const Task *task, Py_ssize_t unit, Py_ssize_t units, Py_ssize_t column, float *right) {
    const Py_ssize_t many = task->columns - column < WIDTH ? task->columns - column : WIDTH;
    for (Py_ssize_t u = 0; u < units; u++, right += task->parts * WIDTH) {
        const float *a = task->inputs + (unit + u) * task->columns + column;
        if (many < WIDTH) memset(right, 0, sizeof(float) * (size_t)(task->parts * WIDTH));
        if (task->parts == 1)
            memcpy(right, a, sizeof(float) * (size_t)many);
        else
            for (Py_ssize_t i = 0; i < many; i += 2) {
                right[i] = right[WIDTH + i + 1] = a[i];
                right[WIDTH + i] = a[i + 1];
                right[i + 1] = -a[i + 1];
            }
    }
}

/* Adds the products of one panel with all of these outputs. */
__attribute__((target(TARGET))) static void NAME(added)(
        const Task *task, Py_ssize_t column, Py_ssize_t output, Py_ssize_t outputs, const float *left, const float *right, Py_ssize_t depth,
        int is_first) {
    const Py_ssize_t columns = task->columns, rest = columns - column;
    float beyond[MOST * WIDTH];
    for (Py_ssize_t first = 0; first < outputs; first += MOST) {
        const int many = (int)(outputs - first < MOST ? outputs - first : MOST);
        float *total = task->sums + (output + first) * columns + column;
        if (rest >= WIDTH) {
            NAME(rows)(many, left + first * depth, right, depth, total, columns, is_first);
            continue;
        }
        NAME(rows)(many, left + first * depth, right, depth, beyond, WIDTH, 1);
        for (int t = 0; t < many; t++)
            for (Py_ssize_t i = 0; i < rest; i++)
                total[t * columns + i] = is_first ? beyond[t * WIDTH + i] : total[t * columns + i] + beyond[t * WIDTH + i];
    }
}

/* Panels from ``first`` to before ``last``. ``left``: at_once * parts * GROUP numbers; ``right``: at_once * parts * WIDTH. */
__attribute__((target(TARGET))) static void NAME(panels)(
        const Task *task, Py_ssize_t first, Py_ssize_t last, float *left, float *right) {
    for (Py_ssize_t output = 0; output < task->outputs; output += GROUP) {
        const Py_ssize_t outputs = task->outputs - output < GROUP ? task->outputs - output : GROUP;
        for (Py_ssize_t unit = 0; unit < task->units; unit += task->at_once) {
            const Py_ssize_t units = task->units - unit < task->at_once ? task->units - unit : task->at_once;
            NAME(weighted)(task, unit, units, output, outputs, left);
            for (Py_ssize_t i = first; i < last; i++) {
                NAME(panel)(task, unit, units, i * WIDTH, right);
                NAME(added)(task, i * WIDTH, output, outputs, left, right, units * task->parts, unit == 0);
            }
        }
    }
}

#undef JOINED
#undef WITH
#undef NAME
#undef WIDTH
