/* A release over its own vector, group by group: noise of a key stream, its rest, a look at it, and only then the numbers themselves. A group
   of float32 stays in the processor's second cache from its first number to its last look. */

/* Two key streams: of words, and of the rest. */
typedef struct { const uint8_t *key; uint64_t place; } Stream;

/* The rest of ``together`` numbers is drawn together. Pieces are whole groups, an even number of numbers, but for the last one, which has more
   than ``few``. */
typedef struct { Py_ssize_t together, few; } Groups;

static Py_ssize_t piece(Groups by) { return by.together + by.together % 2 * by.together; }

/* Memory for one piece; its numbers are of ``size`` bytes: float32 or float64. ``row``: of what a recursion makes of a piece, float64. */
typedef struct { void *after; Py_ssize_t size; int64_t *place, *cell; double *left, *row; uint64_t *word; Py_ssize_t proposals; } Room;

static int has_all(const Room *room, int has_row) {
    return room->after && room->place && room->cell && room->left && (room->row || !has_row);
}

static Room room_for(Py_ssize_t numbers, Py_ssize_t size, int has_row) {
    const size_t count = (size_t)numbers;
    double *const row = has_row ? malloc(8 * count) : NULL;
    return (Room){malloc((size_t)size * count), size, malloc(8 * count), malloc(8 * count), malloc(8 * count), row, NULL, 0};
}

static void free_room(Room *room) {
    free(room->after); free(room->place); free(room->cell); free(room->left); free(room->row); free(room->word);
}

/* Words for a first round of so many proposals; 0 where there is no memory. */
static int has_words(Room *room, Py_ssize_t proposals) {
    if (proposals <= room->proposals) return 1;
    uint64_t *const more = realloc(room->word, (size_t)(32 * proposals));
    if (!more) return 0;
    room->word = more; room->proposals = proposals;
    return 1;
}

/* Draws the rest of a piece, group by group, and puts it into ``after``. Other than 0 where a number can't be decided here, or there is no
   memory: then nothing was taken. */
static int add_rest(Encrypt encrypt, Stream *rest, Envelope tables, Room *room, Py_ssize_t found, Py_ssize_t together, Release by) {
    uint64_t from = rest->place;
    for (Py_ssize_t done = 0, end; done < found; done = end) {
        const int64_t group = (room->place[done] >> 1) / together;
        for (end = done + 1; end < found && (room->place[end] >> 1) / together == group;) end++;
        if (!has_words(room, 2 * (end - done) + 16)) return -1;
        if (drawn_rest(encrypt, rest->key, &from, tables, room->cell + done, end - done, room->word)) return -1;
    }
    for (Py_ssize_t i = 0; i < found; i++) {
        const double noise = ((double)room->cell[i] + 0.5) * 0x1p-32;
        const double found = noisy(room->left[i], room->place[i] & 1 ? -noise : noise, by);
        const int64_t at = room->place[i] >> 1;
        if (room->size == 4) ((float *)room->after)[at] = (float)found;
        else ((double *)room->after)[at] = found;
    }
    rest->place = from;
    return 0;
}

WIDE static void in_single(const double *restrict given, float *restrict out, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) out[i] = (float)given[i];
}

/* How many numbers of the vector, float32 where single, from its first on, were released over themselves, and looked at where ``sums`` isn't
   NULL: all of them, or whole pieces, where the next has a number that can't be decided here. -1 where a value isn't finite: such a piece isn't
   written, but its words are taken. With a recursion, what it makes of them is released, and kept. */
static Py_ssize_t all_over(
    Encrypt encrypt, int widest, Stream *words, Stream *rest, const uint64_t *column, Envelope tables, Groups groups, uint8_t *value,
    int single, Py_ssize_t count, Release by, Watched *watched, double *sums, Room *room, const Recursion *of
) {
    const Py_ssize_t size = single ? 4 : 8;
    Py_ssize_t done = 0;
    while (done < count) {
        const Py_ssize_t whole = piece(groups), some = count - done <= whole + groups.few ? count - done : whole;
        uint8_t *const own = value + done * size;
        const void *const before = of ? (const void *)room->row : own;
        if (of) all_weighted(own, single, done, some, of, NULL, room->row, 0);
        const Py_ssize_t found = all_streamed(
            encrypt, widest, words->key, words->place / 16, column, before, room->after, room->place, room->left, some, by, room->size == 4
        );
        if (found >= 0 && add_rest(encrypt, rest, tables, room, found, groups.together, by)) break;
        words->place += (uint64_t)(8 * some);
        if (found < 0) return -1;
        if (sums) {
            watched->first = done;
            all_watched(widest, before, room->after, some, watched, sums, room->size == 4);
        }
        if (of) all_weighted(own, single, done, some, of, of->kept, NULL, 0); /* again, and only now: a piece may be left to others */
        if (of && single) in_single(room->after, (float *)own, some);
        else memcpy(own, room->after, (size_t)(size * some));
        done += some;
    }
    return done;
}

/* What a whole release is looked at with: () or (kept, shift, steps, continues, total, sums), as of ``watched_part``. */
typedef struct { Py_buffer kept, total, sums; Watched by; int looks, parsed; } Look;

/* In place: a buffer may point into itself. */
static void look_with(PyObject *given, Look *look) {
    look->looks = PyTuple_GET_SIZE(given) > 0;
    look->parsed = !look->looks || PyArg_ParseTuple(
        given, "w*nfpw*w*", &look->kept, &look->by.shift, &look->by.steps, &look->by.continues, &look->total, &look->sums
    );
    look->by.kept = look->kept.buf; look->by.total = look->total.buf; look->by.added = look->total.len / 8;
}

static int has_room_for(const Look *look, Py_ssize_t count) {
    return look->parsed && (!look->looks || (
        look->kept.len >= count && look->sums.len == 14 * 8 && look->by.shift >= 0 && look->by.added <= look->kept.len
    ));
}

static double *sums_of(const Look *look) { return look->looks ? look->sums.buf : NULL; }

static void end_look(Look *look) {
    if (look->looks && look->parsed) { PyBuffer_Release(&look->kept); PyBuffer_Release(&look->total); PyBuffer_Release(&look->sums); }
}

/* released_over(way, widest, key, place, rest's key, its place, columns, ends, rectangles, shift, together, few, value, factor, largest,
   scale, single, watched, recursion) -> how many numbers of value, float32 where single, else float64, were released over themselves, from
   the first on, and the two places behind what was taken of the key streams; -1 where a value isn't finite. watched: () or (kept, shift,
   steps, continues, total, sums) of ``watched_part``. recursion: (), or what is released is what it makes of the value, in float64. */
static PyObject *released_over(PyObject *module, PyObject *args) {
    Py_buffer key, own, columns, ends, rectangles, value;
    unsigned long long place, own_place;
    Envelope tables;
    Groups groups;
    Release by;
    Look look = {0};
    PyObject *watch, *recursion;
    GivenRecursion of = {0};
    int way, widest, single;
    Py_ssize_t done = 0;
    (void)module;
    if (!PyArg_ParseTuple(
            args, "iiy*Ky*Ky*y*y*innw*dddpO!O!", &way, &widest, &key, &place, &own, &own_place, &columns, &ends, &rectangles, &tables.shift,
            &groups.together, &groups.few, &value, &by.factor, &by.largest, &by.scale, &single,
            &PyTuple_Type, &watch, &PyTuple_Type, &recursion
        )) return NULL;
    look_with(watch, &look);
    const Py_ssize_t size = single ? 4 : 8, count = value.len / size;
    if (look.parsed) recursion_with(recursion, count, &of);
    const int fits = has_room_for(&look, count) && of.fits && key.len == 32 && own.len == 32 && way > 0 && way <= ways_here()
        && columns.len == COLUMNS * 8 && ends.len == (REST + 1) * 8 && rectangles.len == REST * 8 && place % 16 == 0 && groups.together > 0
        && groups.few >= 0;
    Room room = {0};
    int has_room_for_all = 0;
    if (fits) {
        Stream words = {key.buf, place}, rest = {own.buf, own_place};
        tables.end = ends.buf; tables.rectangle = rectangles.buf;
        Py_BEGIN_ALLOW_THREADS
        const Py_ssize_t largest = piece(groups) + groups.few;
        room = room_for(count < largest ? count : largest, of.is_there ? 8 : size, of.is_there);
        has_room_for_all = has_all(&room, of.is_there);
        if (has_room_for_all)
            done = all_over(
                ways[way - 1], widest, &words, &rest, columns.buf, tables, groups, value.buf, single, count, by, &look.by,
                sums_of(&look), &room, recursion_of(&of)
            );
        free_room(&room);
        Py_END_ALLOW_THREADS
        place = words.place; own_place = rest.place;
    }
    PyBuffer_Release(&key); PyBuffer_Release(&own); PyBuffer_Release(&columns); PyBuffer_Release(&ends); PyBuffer_Release(&rectangles);
    PyBuffer_Release(&value);
    end_look(&look);
    end_recursion(&of);
    if (PyErr_Occurred()) return NULL;
    if (!fits) { PyErr_SetString(PyExc_ValueError, "arrays of other sizes than each other's"); return NULL; }
    if (!has_room_for_all && count) return PyErr_NoMemory();
    return Py_BuildValue("nKK", done, place, own_place);
}
