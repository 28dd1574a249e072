/* The passes over memory of whitening.py, on planes of float32 numbers, for machines whose installation had a C compiler: sums over positions,
   and affine maps of pairs. No state, no Python objects inside the loops, which run without the interpreter's lock.

   A record's 2C channels are C real and then C imaginary ones, of as many positions each; in memory either channels or positions come first.
   Every number goes through the same operations, in blocks that are filled up with zeros, so that a record's bits depend neither on its place
   nor on the registers. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "_blocks.h"
#include "_shares.h"

#define MOST_SUMS 6
#define FLUSHED 32 /* how many numbers are added in single precision before their sum is added in double precision */

/* What all records share, and the arrays: ``values`` and ``others`` are planes, ``means`` has the 2C of each record. */
typedef struct {
    const float *values, *others, *means, *matrix, *other_matrix, *shift;
    float *out;
    double *sums;
    Py_ssize_t channels, positions, first, end;
    int channels_last;
} Planes;

/* Numbers that are worked on together: some of one channel's positions; or one position's channels, from ``channel`` on; or all channels of as
   many positions as fill a block. ``width`` numbers a step, those after the first ``run`` lying a position further on each. */
typedef struct { Py_ssize_t steps, step, width, run, imaginary, start; } Tile;

static Tile tile_of(const Planes *all, Py_ssize_t channel) {
    const Py_ssize_t channels = all->channels, positions = all->positions, left = channels - channel;
    if (!all->channels_last)
        return (Tile){(positions + BLOCK - 1) / BLOCK, BLOCK, BLOCK, BLOCK, channels * positions, channel * positions};
    if (2 * channels > BLOCK)
        return (Tile){positions, 2 * channels, left < BLOCK ? left : BLOCK, left < BLOCK ? left : BLOCK, channels, channel};
    const Py_ssize_t together = BLOCK / channels;
    return (Tile){(positions + together - 1) / together, 2 * channels * together, channels * together, channels, channels, 0};
}

/* Channels from one tile to the next. */
static Py_ssize_t stride_of(const Planes *all) { return all->channels_last ? BLOCK : 1; }

/* Numbers of a step; those of the last one may be fewer. */
static inline Py_ssize_t width_of(const Planes *all, const Tile *tile, Py_ssize_t step) {
    if (all->channels_last && tile->width == tile->run) return tile->width;
    const Py_ssize_t left = all->channels_last ? (all->positions * all->channels - step * tile->width) : all->positions - step * BLOCK;
    return left < tile->width ? left : tile->width;
}

static inline void take(Block *block, const float *x, const Tile *tile, Py_ssize_t count) {
    if (tile->run == tile->width) {
        take_row(block->re, x, count);
        take_row(block->im, x + tile->imaginary, count);
        return;
    }
    for (Py_ssize_t i = count; i < BLOCK; i++) block->re[i] = block->im[i] = 0.0f;
    for (Py_ssize_t first = 0; first < count; first += tile->run, x += 2 * tile->run)
        for (Py_ssize_t i = 0; i < tile->run; i++) { block->re[first + i] = x[i]; block->im[first + i] = x[tile->run + i]; }
}

static inline void give(const Block *block, float *out, const Tile *tile, Py_ssize_t count) {
    if (tile->run == tile->width) {
        give_row(block->re, out, count);
        give_row(block->im, out + tile->imaginary, count);
        return;
    }
    for (Py_ssize_t first = 0; first < count; first += tile->run, out += 2 * tile->run)
        for (Py_ssize_t i = 0; i < tile->run; i++) { out[i] = block->re[first + i]; out[tile->run + i] = block->im[first + i]; }
}

/* A parameter of each channel, from an array of all of them. */
static inline void take_parameter(const Planes *all, float *row, const float *of_channels, Py_ssize_t channel, const Tile *tile) {
    for (Py_ssize_t i = 0; i < BLOCK; i++)
        row[i] = !all->channels_last ? of_channels[channel] : i < tile->width ? of_channels[channel + i % tile->run] : 0.0f;
}

/* Less its means; what fills a block up stays 0. */
static inline void centre(Block *block, const Block *means, Py_ssize_t count) {
    for (int i = 0; i < BLOCK; i++) { block->re[i] -= means->re[i]; block->im[i] -= means->im[i]; }
    for (Py_ssize_t i = count; i < BLOCK; i++) block->re[i] = block->im[i] = 0.0f;
}

/* The sums over positions of each channel, (records, sums, channels): without means Re z and Im z; else with centred c the three products of
   its parts, or, with others g, Re g Re c, Re g Im c, Im g Re c, Im g Im c, Re g and Im g. */
WIDE static void sums_of_records(const Planes *all) {
    const Py_ssize_t channels = all->channels, size = 2 * channels * all->positions, kinds = all->means == NULL ? 2 : all->others == NULL ? 3 : 6;
    for (Py_ssize_t record = all->first; record < all->end; record++) {
        for (Py_ssize_t channel = 0; channel < channels; channel += stride_of(all)) {
            const Tile tile = tile_of(all, channel);
            const float *const values = all->values + record * size + tile.start;
            const float *const others = all->others == NULL ? NULL : all->others + record * size + tile.start;
            float sums[MOST_SUMS][BLOCK] = {{0}};
            double totals[MOST_SUMS][BLOCK] = {{0}};
            Block means, z, g;
            if (all->means != NULL) {
                take_parameter(all, means.re, all->means + record * 2 * channels, channel, &tile);
                take_parameter(all, means.im, all->means + record * 2 * channels + channels, channel, &tile);
            }
            for (Py_ssize_t step = 0; step < tile.steps; step++) {
                const Py_ssize_t count = width_of(all, &tile, step);
                take(&z, values + step * tile.step, &tile, count);
                if (all->means == NULL) {
                    for (int i = 0; i < BLOCK; i++) { sums[0][i] += z.re[i]; sums[1][i] += z.im[i]; }
                } else {
                    centre(&z, &means, count);
                    if (others == NULL) {
                        for (int i = 0; i < BLOCK; i++) {
                            sums[0][i] += z.re[i] * z.re[i];
                            sums[1][i] += z.re[i] * z.im[i];
                            sums[2][i] += z.im[i] * z.im[i];
                        }
                    } else {
                        take(&g, others + step * tile.step, &tile, count);
                        for (int i = 0; i < BLOCK; i++) {
                            sums[0][i] += g.re[i] * z.re[i];
                            sums[1][i] += g.re[i] * z.im[i];
                            sums[2][i] += g.im[i] * z.re[i];
                            sums[3][i] += g.im[i] * z.im[i];
                            sums[4][i] += g.re[i];
                            sums[5][i] += g.im[i];
                        }
                    }
                }
                if (step % FLUSHED == FLUSHED - 1 || step == tile.steps - 1)
                    for (Py_ssize_t kind = 0; kind < kinds; kind++)
                        for (int i = 0; i < BLOCK; i++) { totals[kind][i] += (double)sums[kind][i]; sums[kind][i] = 0.0f; }
            }
            for (Py_ssize_t kind = 0; kind < kinds; kind++) {
                double *const out = all->sums + (record * kinds + kind) * channels + channel;
                double total = 0.0;
                for (int i = 0; i < BLOCK; i++) total += totals[kind][i];
                if (!all->channels_last) { out[0] = total; continue; }
                for (Py_ssize_t i = tile.run; i < tile.width; i++) totals[kind][i % tile.run] += totals[kind][i];
                for (Py_ssize_t i = 0; i < tile.run; i++) out[i] = totals[kind][i];
            }
        }
    }
}

/* The 2 x 2 matrix of each channel, row by row. */
typedef struct { float rows[4][BLOCK]; } Matrix;

static inline void take_matrix(const Planes *all, Matrix *matrix, const float *of_records, Py_ssize_t record, Py_ssize_t channel, const Tile *tile) {
    for (int part = 0; part < 4; part++)
        take_parameter(all, matrix->rows[part], of_records + (4 * record + part) * all->channels, channel, tile);
}

static inline void add_mapped(Block *sum, const Matrix *matrix, const Block *z) {
    for (int i = 0; i < BLOCK; i++) {
        const float re = z->re[i], im = z->im[i];
        sum->re[i] += matrix->rows[0][i] * re + matrix->rows[1][i] * im;
        sum->im[i] += matrix->rows[2][i] * re + matrix->rows[3][i] * im;
    }
}

/* Matrix times centred values, and the other matrix times the others where there are any, and the shift. */
WIDE static void maps_of_records(const Planes *all) {
    const Py_ssize_t channels = all->channels, size = 2 * channels * all->positions;
    for (Py_ssize_t record = all->first; record < all->end; record++) {
        for (Py_ssize_t channel = 0; channel < channels; channel += stride_of(all)) {
            const Tile tile = tile_of(all, channel);
            const Py_ssize_t start = record * size + tile.start, pairs = record * 2 * channels;
            Block means, shift;
            Matrix matrix, other;
            take_parameter(all, means.re, all->means + pairs, channel, &tile);
            take_parameter(all, means.im, all->means + pairs + channels, channel, &tile);
            take_parameter(all, shift.re, all->shift + pairs, channel, &tile);
            take_parameter(all, shift.im, all->shift + pairs + channels, channel, &tile);
            take_matrix(all, &matrix, all->matrix, record, channel, &tile);
            if (all->others != NULL) take_matrix(all, &other, all->other_matrix, record, channel, &tile);
            for (Py_ssize_t step = 0; step < tile.steps; step++) {
                const Py_ssize_t count = width_of(all, &tile, step), at = start + step * tile.step;
                Block z, sum = shift;
                take(&z, all->values + at, &tile, count);
                centre(&z, &means, count);
                add_mapped(&sum, &matrix, &z);
                if (all->others != NULL) {
                    take(&z, all->others + at, &tile, count);
                    add_mapped(&sum, &other, &z);
                }
                give(&sum, all->out + at, &tile, count);
            }
        }
    }
}

static void *sums_in_share(void *share) { sums_of_records(share); return NULL; }
static void *maps_in_share(void *share) { maps_of_records(share); return NULL; }

static void in_shares(void *(*work)(void *), const Planes *all, Py_ssize_t records, int threads) {
    Planes shares[MOST_THREADS];
    for (int i = 0; i < threads; i++) {
        shares[i] = *all;
        shares[i].first = records * i / threads;
        shares[i].end = records * (i + 1) / threads;
    }
    in_threads(work, (char *)shares, sizeof(Planes), threads);
}

static int holds(const Py_buffer *array, Py_ssize_t numbers) { return array->buf != NULL && array->len == numbers * (Py_ssize_t)sizeof(float); }
static int is_free_or_holds(const Py_buffer *array, Py_ssize_t numbers) { return array->buf == NULL || holds(array, numbers); }

/* sums(values, others, means, out, records, channels, positions, channels_last, threads): others and means may be None; out is double. */
static PyObject *sums(PyObject *module, PyObject *args) {
    Py_buffer values, others, means, out;
    Py_ssize_t records, channels, positions;
    int channels_last, threads;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*z*z*w*nnnpi", &values, &others, &means, &out, &records, &channels, &positions, &channels_last, &threads))
        return NULL;
    const Py_ssize_t kinds = means.buf == NULL ? 2 : others.buf == NULL ? 3 : 6, size = 2 * records * channels * positions;
    const int fits = records >= 0 && channels >= 0 && positions >= 0 && holds(&values, size) && is_free_or_holds(&others, size)
        && is_free_or_holds(&means, 2 * records * channels) && (others.buf == NULL || means.buf != NULL) && out.len == kinds * records * channels * (Py_ssize_t)sizeof(double);
    if (fits) {
        const Planes all = {values.buf, others.buf, means.buf, NULL, NULL, NULL, NULL, out.buf, channels, positions, 0, 0, channels_last};
        Py_BEGIN_ALLOW_THREADS
        in_shares(sums_in_share, &all, records, some_threads(threads));
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&values); PyBuffer_Release(&others); PyBuffer_Release(&means); PyBuffer_Release(&out);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays that don't fit their sizes"); return NULL; }
    Py_RETURN_NONE;
}

/* mapped(values, means, matrix, others, other_matrix, shift, out, records, channels, positions, channels_last, threads): both others may be None. */
static PyObject *mapped(PyObject *module, PyObject *args) {
    Py_buffer arrays[7];
    Py_ssize_t records, channels, positions;
    int channels_last, threads;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*z*z*y*w*nnnpi", &arrays[0], &arrays[1], &arrays[2], &arrays[3], &arrays[4], &arrays[5], &arrays[6], &records,
                          &channels, &positions, &channels_last, &threads))
        return NULL;
    const Py_ssize_t of_channels = records * channels, size = 2 * of_channels * positions;
    const int fits = records >= 0 && channels >= 0 && positions >= 0 && holds(&arrays[0], size) && holds(&arrays[1], 2 * of_channels)
        && holds(&arrays[2], 4 * of_channels) && is_free_or_holds(&arrays[3], size) && is_free_or_holds(&arrays[4], 4 * of_channels)
        && (arrays[3].buf == NULL) == (arrays[4].buf == NULL) && holds(&arrays[5], 2 * of_channels) && holds(&arrays[6], size);
    if (fits) {
        const Planes all = {arrays[0].buf, arrays[3].buf, arrays[1].buf, arrays[2].buf, arrays[4].buf, arrays[5].buf, arrays[6].buf,
                            NULL, channels, positions, 0, 0, channels_last};
        Py_BEGIN_ALLOW_THREADS
        in_shares(maps_in_share, &all, records, some_threads(threads));
        Py_END_ALLOW_THREADS
    }
    for (int i = 0; i < 7; i++) PyBuffer_Release(&arrays[i]);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays that don't fit their sizes"); return NULL; }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"sums", sums, METH_VARARGS, NULL},
    {"mapped", mapped, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_whitening", NULL, 0, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__whitening(void) { return PyModuleDef_Init(&definition); }
