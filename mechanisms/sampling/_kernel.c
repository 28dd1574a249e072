/* The inner loops of noise on a grid, for machines whose installation had a C compiler. mechanisms/sampling/kernel.py has the same in NumPy,
   and a test that both give the same bits. No state, no Python objects inside the loops, which run without the interpreter's lock. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define THRESHOLD_MASK ((1 << 27) - 1)
#define OFFSET_BITS 24
#define OFFSET_MASK ((1 << OFFSET_BITS) - 1)
#define COLUMNS 4096
#define REST 2048
#define CHUNK 32

/* The loops are compiled for what a processor may have and chosen when the module is loaded. Floating point is IEEE 754's in all of them,
   with no product and sum in one (-ffp-contract=off), so they give the same bits. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#define WIDE_REGISTERS
#else
#define WIDE
#endif

typedef union { double number; uint64_t bits; } Double;
typedef union { float number; uint32_t bits; } Single;

/* What a value is released with: (value * factor, within +-largest and rounded to whole steps, + noise) * scale. */
typedef struct { double factor, largest, scale; } Release;

static inline uint64_t bin_of(uint64_t word, const uint64_t *column) {
    const uint64_t own = word >> 52, entry = column[own];
    return (int64_t)((word >> 25) & THRESHOLD_MASK) < (int64_t)(entry >> 16) ? own : entry & 0xffff;
}

static inline double noisy(double value, double noise, Release by) {
    double steps = value * by.factor;
    steps = steps < -by.largest ? -by.largest : steps;
    steps = steps > by.largest ? by.largest : steps;
    return (rint(steps * 0x1p32) * 0x1p-32 + noise) * by.scale;
}

/* Both return other than 0 where a value is infinite or not a number. */
static inline uint64_t some_released(const double *value, const Double *noise, double *out, Py_ssize_t count, Release by) {
    uint64_t broken = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const Double given = {.number = value[i]};
        broken |= ((given.bits & 0x7fffffffffffffff) + 0x0010000000000000) >> 63;
        out[i] = noisy(value[i], noise[i].number, by);
    }
    return broken;
}

static inline uint64_t some_released_single(const float *value, const Double *noise, float *out, Py_ssize_t count, Release by) {
    uint32_t broken = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const Single given = {.number = value[i]};
        broken |= ((given.bits & 0x7fffffff) + 0x00800000) >> 31;
        out[i] = (float)noisy(value[i], noise[i].number, by);
    }
    return broken;
}

/* The numbers of at most CHUNK words from the word ``first`` on; the places of the rest among all words go to ``rest``. */
static inline Py_ssize_t some_normals(
    const uint64_t *word, const uint64_t *column, Double *number, int64_t *rest, Py_ssize_t first, Py_ssize_t count
) {
    uint64_t any = 0;
    Py_ssize_t found = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const uint64_t w = word[i], bin = bin_of(w, column);
        const uint64_t cell = (int64_t)bin < REST ? (bin << OFFSET_BITS) | (w & OFFSET_MASK) : 0;
        Double x = {.bits = 0x4330000000000000 | cell}; /* 2^52 + cell */
        x.number = (x.number - 0x1p52 + 0.5) * 0x1p-32;
        x.bits ^= (w << 39) & 0x8000000000000000; /* a cell mirrored, with its centre, is its negative */
        number[i] = x;
        any |= bin & REST;
    }
    for (Py_ssize_t i = 0; any && i < count; i++)
        if (bin_of(word[i], column) == REST) rest[found++] = first + i;
    return found;
}

WIDE static Py_ssize_t all_normals(
    const uint64_t *restrict word, const uint64_t *restrict column, Double *restrict number, int64_t *restrict rest,
    Py_ssize_t first, Py_ssize_t count
) {
    Py_ssize_t found = 0;
    for (; first < count; first += CHUNK) {
        const Py_ssize_t some = count - first < CHUNK ? count - first : CHUNK;
        found += some_normals(word + first, column, number + first, rest + found, first, some);
    }
    return found;
}

/* The normal noise of each word, added to a value at once; returns the number of places of the rest, -1 where a value isn't finite. */
WIDE static Py_ssize_t all_noised(
    const uint64_t *restrict word, const uint64_t *restrict column, const void *value, void *out, int64_t *restrict rest,
    Py_ssize_t first, Py_ssize_t count, Release by, int single
) {
    Double number[CHUNK];
    Py_ssize_t found = 0;
    uint64_t broken = 0;
    for (; first < count; first += CHUNK) {
        const Py_ssize_t some = count - first < CHUNK ? count - first : CHUNK;
        found += some_normals(word + first, column, number, rest + found, first, some);
        if (single) broken |= some_released_single((const float *)value + first, number, (float *)out + first, some, by);
        else broken |= some_released((const double *)value + first, number, (double *)out + first, some, by);
    }
    return broken ? -1 : found;
}

#ifdef WIDE_REGISTERS
#include <immintrin.h>
#include "_registers.h"

/* Whether scaling by 2^32 and back is exact, so that both count the same: no factor or scale at the ends of double precision. */
static int has_room(Release by) { return fabs(by.factor) < 0x1p900 && fabs(by.scale) > 0x1p-900; }

#include "_cipher.h"

#define STREAMED 512 /* words at a time, which stay in the nearest cache */

/* ``noised`` of the words of a key stream from this block on, none of which is written to memory for long. A place of the rest is followed
   by its sign in the lowest bit, and ``left`` has the value there, which ``out`` may be. */
static Py_ssize_t all_streamed(
    Encrypt encrypt, int widest, const uint8_t *key, uint64_t block, const uint64_t *column, const void *value, void *out, int64_t *rest,
    double *left, Py_ssize_t count, Release by, int single
) {
    const Schedule schedule = schedule_of(key);
    const Py_ssize_t size = single ? 4 : 8;
    const Registers *const several = has_room(by) ? registers(widest) : NULL;
    uint64_t word[STREAMED];
    double given[STREAMED];
    Py_ssize_t found = 0;
    int broken = 0;
    for (Py_ssize_t first = 0; first < count; first += STREAMED) {
        const Py_ssize_t some = count - first < STREAMED ? count - first : STREAMED;
        const Py_ssize_t whole = several ? some / several->numbers * several->numbers : 0;
        for (Py_ssize_t i = 0; i < some; i += 2 * BLOCKS) encrypt(&schedule, block + (uint64_t)(first + i) / 2, (uint8_t *)(word + i));
        const void *from = (const uint8_t *)value + first * size;
        if (value == out) from = memcpy(given, from, (size_t)(some * size));
        void *const into = (uint8_t *)out + first * size;
        Py_ssize_t fresh = whole ? several->noised(word, column, from, into, rest + found, whole, by, single) : 0, more;
        broken |= fresh < 0;
        fresh = fresh < 0 ? 0 : fresh;
        more = some > whole ? all_noised(word, column, from, into, rest + found + fresh, whole, some, by, single) : 0;
        broken |= more < 0;
        for (const Py_ssize_t end = found + fresh + (more < 0 ? 0 : more); found < end; found++) {
            const Py_ssize_t place = (Py_ssize_t)rest[found];
            left[found] = single ? (double)((const float *)from)[place] : ((const double *)from)[place];
            rest[found] = ((int64_t)(first + place) << 1) | (int64_t)((word[place] >> OFFSET_BITS) & 1);
        }
    }
    return broken ? -1 : found;
}
#endif

/* normals(widest, words, columns, numbers, rest) -> how many places were written to rest. widest: at most so many numbers in a register.
   words: uint64; columns: 4096 uint64, threshold above 16 bits of alias; numbers: float64, as many as words; rest: int64, as many. */
static PyObject *normals(PyObject *module, PyObject *args) {
    Py_buffer words, columns, numbers, rest;
    int widest;
    (void)module;
    if (!PyArg_ParseTuple(args, "iy*y*w*w*", &widest, &words, &columns, &numbers, &rest)) return NULL;
    const Py_ssize_t count = words.len / 8;
    Py_ssize_t found = 0, first = 0;
    const int fits = columns.len == COLUMNS * 8 && numbers.len >= count * 8 && rest.len >= count * 8;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
#ifdef WIDE_REGISTERS
        const Registers *const several = registers(widest);
        if (several) first = count / several->numbers * several->numbers;
        if (several) found = several->normals(words.buf, columns.buf, numbers.buf, rest.buf, first);
#endif
        found += all_normals(words.buf, columns.buf, numbers.buf, (int64_t *)rest.buf + found, first, count);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&words); PyBuffer_Release(&columns); PyBuffer_Release(&numbers); PyBuffer_Release(&rest);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than each other's"); return NULL; }
    return PyLong_FromSsize_t(found);
}

/* noised(widest, words, columns, value, out, rest, factor, largest, scale, single) -> how many places were written to rest; -1 where a value
   isn't finite. ``normals`` and ``released`` in one pass: value and out are float32 where single, else float64, as many as words. */
static PyObject *noised(PyObject *module, PyObject *args) {
    Py_buffer words, columns, value, out, rest;
    Release by;
    int single, widest;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "iy*y*y*w*w*dddp", &widest, &words, &columns, &value, &out, &rest, &by.factor, &by.largest, &by.scale, &single
        )) return NULL;
    const Py_ssize_t count = words.len / 8, size = count * (single ? 4 : 8);
    Py_ssize_t found = 0, more = 0, first = 0;
    const int fits = columns.len == COLUMNS * 8 && value.len == size && out.len == size && rest.len >= count * 8;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
#ifdef WIDE_REGISTERS
        const Registers *const several = has_room(by) ? registers(widest) : NULL;
        if (several) first = count / several->numbers * several->numbers;
        if (several) found = several->noised(words.buf, columns.buf, value.buf, out.buf, rest.buf, first, by, single);
#endif
        int64_t *left = (int64_t *)rest.buf + (found < 0 ? 0 : found);
        more = all_noised(words.buf, columns.buf, value.buf, out.buf, left, first, count, by, single);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&words); PyBuffer_Release(&columns); PyBuffer_Release(&value); PyBuffer_Release(&out); PyBuffer_Release(&rest);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than each other's"); return NULL; }
    return PyLong_FromSsize_t(found < 0 || more < 0 ? -1 : found + more);
}

#ifdef WIDE_REGISTERS
/* ciphers() -> in how many ways the processor can do what the next two do, each of which takes half the instructions of the one before. */
static PyObject *ciphers(PyObject *module, PyObject *args) {
    (void)module; (void)args;
    return PyLong_FromLong(ways_here());
}

/* key_stream(way, key, position, target): overwrites the target with bytes of AES-256's key stream from this place on. Ways count from 1. */
static PyObject *key_stream(PyObject *module, PyObject *args) {
    Py_buffer key, target;
    unsigned long long position;
    int way;
    (void)module;
    if (!PyArg_ParseTuple(args, "iy*Kw*", &way, &key, &position, &target)) return NULL;
    const int fits = key.len == 32 && way > 0 && way <= ways_here();
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        all_bytes(ways[way - 1], key.buf, position, target.buf, target.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&key); PyBuffer_Release(&target);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "a key of another size, or a way that the processor hasn't got"); return NULL; }
    Py_RETURN_NONE;
}

/* streamed(way, widest, key, block, columns, value, out, rest, left, factor, largest, scale, single) -> how many places were written to rest,
   and as many values to left; -1 where a value isn't finite. ``noised`` of a key stream's words from this block on; value and out may be
   the same. */
static PyObject *streamed(PyObject *module, PyObject *args) {
    Py_buffer key, columns, value, out, rest, left;
    unsigned long long block;
    Release by;
    int single, way, widest;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "iiy*Ky*y*w*w*w*dddp", &way, &widest, &key, &block, &columns, &value, &out, &rest, &left,
            &by.factor, &by.largest, &by.scale, &single
        )) return NULL;
    const Py_ssize_t count = value.len / (single ? 4 : 8);
    Py_ssize_t found = 0;
    const int fits = key.len == 32 && way > 0 && way <= ways_here() && columns.len == COLUMNS * 8 && value.len == count * (single ? 4 : 8)
        && out.len == value.len && rest.len >= count * 8 && left.len >= count * 8;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        found = all_streamed(
            ways[way - 1], widest, key.buf, block, columns.buf, value.buf, out.buf, rest.buf, left.buf, count, by, single
        );
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&key); PyBuffer_Release(&columns); PyBuffer_Release(&value); PyBuffer_Release(&out); PyBuffer_Release(&rest);
    PyBuffer_Release(&left);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than each other's"); return NULL; }
    return PyLong_FromSsize_t(found);
}
#endif

/* How many of the REST + 1 ascending ends are at most the place. Without branches, which nothing could predict. */
static inline Py_ssize_t at_most(const int64_t *end, int64_t place) {
    Py_ssize_t found = 0;
    for (Py_ssize_t step = REST / 2; step; step /= 2) found += step & -(Py_ssize_t)(end[found + step - 1] <= place);
    found += end[found] <= place;
    return found + (found == REST && end[REST] <= place);
}

/* Tables of the density above the rectangles; shift: of a word, to a place below the last end. */
typedef struct { const int64_t *end, *rectangle; int shift; } Envelope;

/* The cell that the first of four words, count apart, proposes with the second, and the verdict on it by the third: 1 or 0, or -1 where it
   can't be told or the cell is of the tail. */
static inline int proposal(const uint64_t *word, Py_ssize_t count, Envelope by, int64_t *cell) {
    const int64_t offset = (int64_t)(word[count] >> 32);
    const Py_ssize_t bin = at_most(by.end, (int64_t)(word[0] >> by.shift));
    *cell = bin == REST ? ((int64_t)8 << 32) + offset : ((int64_t)bin << OFFSET_BITS) | (offset & OFFSET_MASK);
    if (bin >= REST) return bin == REST ? -1 : 0;
    const double height = (double)(by.end[bin] - (bin ? by.end[bin - 1] : 0)), centre = ((double)*cell + 0.5) * 0x1p-32;
    const double density = 0x1p32 / sqrt(2.0 * 3.141592653589793) * exp(-0.5 * centre * centre);
    const double apart = (double)word[2 * count] * 0x1p-64 - (density - (double)by.rectangle[bin]) / height;
    return fabs(apart) <= density * 0x1p-44 / height + 0x1p-50 ? -1 : apart < 0.0;
}

/* rest(words, ends, rectangles, shift, cells, verdicts) -> how many are undecided.
   words: (4, count) uint64; ends: 2049, rectangles: 2048 int64; cells: int64 and verdicts: int8, as many as the words of a row. */
static PyObject *rest(PyObject *module, PyObject *args) {
    Py_buffer words, ends, rectangles, cells, verdicts;
    int shift;
    Py_ssize_t undecided = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*iw*w*", &words, &ends, &rectangles, &shift, &cells, &verdicts)) return NULL;
    const Py_ssize_t count = verdicts.len;
    const int fits = words.len == 4 * 8 * count && cells.len == 8 * count && ends.len == (REST + 1) * 8 && rectangles.len == REST * 8;
    if (fits) {
        const Envelope by = {ends.buf, rectangles.buf, shift};
        int64_t *cell = cells.buf;
        int8_t *verdict = verdicts.buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count; i++) {
            verdict[i] = (int8_t)proposal((const uint64_t *)words.buf + i, count, by, cell + i);
            undecided += verdict[i] < 0;
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&words); PyBuffer_Release(&ends); PyBuffer_Release(&rectangles); PyBuffer_Release(&cells); PyBuffer_Release(&verdicts);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than each other's"); return NULL; }
    return PyLong_FromSsize_t(undecided);
}

#ifdef WIDE_REGISTERS
/* So many cells of a key stream from this place on, which moves behind what was taken: in rounds of 2 count + 16 proposals for the count
   that is missing. Other than 0 where a proposal is undecided; then nothing was taken. ``word`` has room for a first round. */
static int drawn_rest(Encrypt encrypt, const uint8_t *key, uint64_t *place, Envelope by, int64_t *cell, Py_ssize_t missing, uint64_t *word) {
    uint64_t at = *place;
    while (missing) {
        const Py_ssize_t proposals = 2 * missing + 16;
        all_bytes(encrypt, key, at, (uint8_t *)word, 32 * proposals);
        at += (uint64_t)(32 * proposals);
        for (Py_ssize_t i = 0; i < proposals; i++) {
            int64_t found;
            const int verdict = proposal(word + i, proposals, by, &found);
            if (verdict < 0) return -1;
            /* Without a branch on what nothing could predict, after which the next proposals' work would begin anew. */
            int64_t *const into = missing ? cell : &found;
            const int is_taken = verdict & (missing > 0);
            *into = found;
            cell += is_taken;
            missing -= is_taken;
        }
    }
    *place = at;
    return 0;
}

/* cells(way, key, place, places, together, ends, rectangles, shift, cells) -> (how many cells were drawn, the place behind what was taken of
   the key stream): a cell for each of the places, which rise, those of as many as ``together`` numbers at once. Fewer where some of a
   group can't be decided here: none of that group. */
static PyObject *cells(PyObject *module, PyObject *args) {
    Py_buffer key, places, ends, rectangles, cells;
    Envelope by;
    unsigned long long place;
    Py_ssize_t together, done = 0;
    int way;
    (void)module;
    if (!PyArg_ParseTuple(args, "iy*Ky*ny*y*iw*", &way, &key, &place, &places, &together, &ends, &rectangles, &by.shift, &cells)) return NULL;
    const Py_ssize_t count = places.len / 8;
    const int fits = key.len == 32 && way > 0 && way <= ways_here() && together > 0 && cells.len == places.len
        && ends.len == (REST + 1) * 8 && rectangles.len == REST * 8;
    uint64_t *const word = fits ? malloc((size_t)(32 * (2 * count + 16))) : NULL;
    if (word) {
        const int64_t *at = places.buf;
        uint64_t from = place;
        by.end = ends.buf; by.rectangle = rectangles.buf;
        Py_BEGIN_ALLOW_THREADS
        while (done < count) {
            Py_ssize_t end = done + 1;
            while (end < count && at[end] / together == at[done] / together) end++;
            if (drawn_rest(ways[way - 1], key.buf, &from, by, (int64_t *)cells.buf + done, end - done, word)) break;
            done = end;
        }
        Py_END_ALLOW_THREADS
        place = from;
        free(word);
    }
    PyBuffer_Release(&key); PyBuffer_Release(&places); PyBuffer_Release(&ends); PyBuffer_Release(&rectangles); PyBuffer_Release(&cells);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than each other's"); return NULL; }
    if (!word) return PyErr_NoMemory();
    return Py_BuildValue("nK", done, place);
}
#endif

WIDE static int all_released(const void *value, const Double *noise, void *out, Py_ssize_t count, Release by, int single) {
    return !(single ? some_released_single(value, noise, out, count, by) : some_released(value, noise, out, count, by));
}

/* released(value, noise, out, factor, largest, scale, single) -> whether the value is finite everywhere.
   value and out are float32 where single, else float64; noise is float64. */
static PyObject *released(PyObject *module, PyObject *args) {
    Py_buffer value, noise, out;
    Release by;
    int single, finite = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*w*dddp", &value, &noise, &out, &by.factor, &by.largest, &by.scale, &single)) return NULL;
    const Py_ssize_t count = noise.len / 8;
    const int fits = value.len == count * (single ? 4 : 8) && out.len == value.len;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        finite = all_released(value.buf, noise.buf, out.buf, count, by, single);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&value); PyBuffer_Release(&noise); PyBuffer_Release(&out);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than each other's"); return NULL; }
    return PyBool_FromLong(finite);
}

#include "_watched.h"

/* watched_part(widest, before, after, kept, first, shift, steps, continues, total, sums, single): looks at a part of a release from number
   ``first`` on, which is even. before and after: float32 where single, else float64; kept: int8, of all numbers; total: float64, of the first
   ones. To the 14 sums are added those of the noise after - before with itself, with the last noise in steps, and of that so many places before
   with it; and those of the first ones. */
static PyObject *watched_part(PyObject *module, PyObject *args) {
    Py_buffer before, after, kept, total, sums;
    Watched by;
    int widest, single;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "iy*y*w*nnfpw*w*p", &widest, &before, &after, &kept, &by.first, &by.shift, &by.steps, &by.continues, &total, &sums, &single
        )) return NULL;
    const Py_ssize_t count = before.len / (single ? 4 : 8);
    by.kept = kept.buf; by.total = total.buf; by.added = total.len / 8;
    const int fits = after.len == before.len && sums.len == 14 * 8 && by.first >= 0 && by.first % 2 == 0 && by.shift >= 0
        && by.first + count <= kept.len && by.added <= kept.len;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        all_watched(widest, before.buf, after.buf, count, &by, sums.buf, single);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&before); PyBuffer_Release(&after); PyBuffer_Release(&kept); PyBuffer_Release(&total); PyBuffer_Release(&sums);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than each other's"); return NULL; }
    Py_RETURN_NONE;
}

#ifdef WIDE_REGISTERS
#include "_weighted.h"
#include "_over.h"
#endif

static PyMethodDef methods[] = {
    {"normals", normals, METH_VARARGS, NULL},
    {"noised", noised, METH_VARARGS, NULL},
#ifdef WIDE_REGISTERS
    {"ciphers", ciphers, METH_NOARGS, NULL},
    {"key_stream", key_stream, METH_VARARGS, NULL},
    {"streamed", streamed, METH_VARARGS, NULL},
    {"cells", cells, METH_VARARGS, NULL},
    {"released_over", released_over, METH_VARARGS, NULL},
#endif
    {"rest", rest, METH_VARARGS, NULL},
    {"released", released, METH_VARARGS, NULL},
    {"watched_part", watched_part, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernel", NULL, 0, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&definition); }
