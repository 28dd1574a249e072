/* The products of one chunk of rows, for registers of NUMBERS float32 numbers. Included once for each width, by _widths.h.

   Every sum is one chain over the positions, from the first to the last, each product fused with its addition: its bits depend neither on
   the width nor on the tile that it is in. */
#define JOINED(name, suffix) name##suffix
#define WITH(name, suffix) JOINED(name, suffix)
#define NAME(name) WITH(name, SUFFIX)
#define MOST_ALONE 12
#define SUMMED 4

static inline __attribute__((always_inline, target(TARGET))) void NAME(tile)(
        const int many, const int vectors, const float *image, const Walk *walk, const float *slope, float *total, const int is_first) {
    VECTOR sum[MOST_ALONE][2], along[2];
#pragma GCC unroll 12
    for (int t = 0; t < many; t++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) sum[t][v] = is_first ? ZERO() : LOAD(total + t * walk->outputs + v * NUMBERS);
    for (Py_ssize_t y = 0; y < walk->rows; y++) {
        const float *seen = image + y * walk->down;
        for (Py_ssize_t x = 0; x < walk->columns; x++, seen += walk->across, slope += walk->outputs) {
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) along[v] = LOAD(slope + v * NUMBERS);
#pragma GCC unroll 12
            for (int t = 0; t < many; t++)
#pragma GCC unroll 2
                for (int v = 0; v < vectors; v++) sum[t][v] = FUSED(EACH(seen[t]), along[v], sum[t][v]);
        }
    }
#pragma GCC unroll 12
    for (int t = 0; t < many; t++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) STORE(total + t * walk->outputs + v * NUMBERS, sum[t][v]);
}

#define CASE(n, v) case n: NAME(tile)(n, v, image, walk, slope, total, is_first); return
__attribute__((target(TARGET))) static void NAME(pair)(
        int many, const float *image, const Walk *walk, const float *slope, float *total, int is_first) {
    switch (many) {
    CASE(1, 2); CASE(2, 2); CASE(3, 2); CASE(4, 2); CASE(5, 2); CASE(6, 2);
#if MOST > 6
    CASE(7, 2); CASE(8, 2); CASE(9, 2); CASE(10, 2); CASE(11, 2); CASE(12, 2);
#endif
    }
}

__attribute__((target(TARGET))) static void NAME(alone)(
        int many, const float *image, const Walk *walk, const float *slope, float *total, int is_first) {
    switch (many) {
    CASE(1, 1); CASE(2, 1); CASE(3, 1); CASE(4, 1); CASE(5, 1); CASE(6, 1);
    CASE(7, 1); CASE(8, 1); CASE(9, 1); CASE(10, 1); CASE(11, 1); CASE(12, 1);
    }
}
#undef CASE

/* Adds a chunk's slopes to ``sums``, of SUMMED registers or what is left of them: one sum waits for itself, several in turn don't. */
__attribute__((target(TARGET))) static void NAME(summed)(
        const float *slope, const Walk *walk, Py_ssize_t left, float *sums, int is_first) {
    const int some = (int)(left < SUMMED * NUMBERS ? left / NUMBERS : SUMMED);
    VECTOR sum[SUMMED];
    for (int v = 0; v < some; v++) sum[v] = is_first ? ZERO() : LOAD(sums + v * NUMBERS);
    for (Py_ssize_t i = 0; i < walk->rows * walk->columns; i++, slope += walk->outputs) {
        if (some == SUMMED) {
#pragma GCC unroll 8
            for (int v = 0; v < SUMMED; v++) sum[v] = ADDED(sum[v], LOAD(slope + v * NUMBERS));
        } else
            for (int v = 0; v < some; v++) sum[v] = ADDED(sum[v], LOAD(slope + v * NUMBERS));
    }
    for (int v = 0; v < some; v++) STORE(sums + v * NUMBERS, sum[v]);
}

/* Adds a chunk's products to ``total``, (stretches, run, outputs), and its slopes to ``sums``, (outputs,). */
__attribute__((target(TARGET))) static void NAME(chunk)(
        const float *image, const Walk *walk, const float *slope, float *total, float *sums, int is_first) {
    const Py_ssize_t outputs = walk->outputs, run = walk->run;
    for (Py_ssize_t first = 0; first < outputs; first += SUMMED * NUMBERS)
        NAME(summed)(slope + first, walk, outputs - first, sums + first, is_first);
    for (Py_ssize_t first = 0; first < outputs;) {
        const int is_pair = first + 2 * NUMBERS <= outputs;
        const Py_ssize_t most = is_pair ? MOST : MOST_ALONE, tiles = (run + most - 1) / most;
        for (Py_ssize_t stretch = 0; stretch < walk->stretches; stretch++)
            for (Py_ssize_t i = 0; i < tiles; i++) {
                const Py_ssize_t start = run * i / tiles, end = run * (i + 1) / tiles;
                (is_pair ? NAME(pair) : NAME(alone))((int)(end - start), image + walk->starts[stretch] + start, walk, slope + first,
                                                     total + (stretch * run + start) * outputs + first, is_first);
            }
        first += is_pair ? 2 * NUMBERS : NUMBERS;
    }
}

#undef JOINED
#undef WITH
#undef NAME
#undef MOST_ALONE
#undef SUMMED
