/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of the trust file, and how the file is read and changed. */
#include "security/trust_list.h"

#include <stdio.h>
#include <string.h>

#include "os/private_file.h"
#include "os/thread.h"
#include "security/base32.h"

#define TEXT_MAX (1u << 20) /* of a trust file: all entries with the longest names, and as much in comments */

#define FIRST_LINE "# Who may join: \"allow ID name\" or \"revoke ID name\", one a line (see hearth trust).\n"

struct trust_list {
    struct heap *heap;
    char *path; /* NULL: none */
    struct private_stamp stamp;
    bool was_there;    /* the file was read once */
    struct mutex lock; /* of the entries: others may copy them while the owner reads the file again */
    struct trust_entry *entries;
    int count;
};

/* ---- lines ---- */

#define ID_DIGITS (2u * NODE_ID_LEN)

struct trust_line {
    const char *at, *end; /* without the new line */
};

/* The next line of the text, which is moved on behind it; false: there is none. */
static bool next_line(const char **text, const char *end, struct trust_line *line)
{
    const char *stop;

    if (*text == end)
        return false;
    stop = memchr(*text, '\n', (size_t)(end - *text));
    line->at = *text;
    line->end = stop ? stop : end;
    *text = stop ? stop + 1 : end;
    return true;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static struct trust_line next_word(struct trust_line *line)
{
    struct trust_line word;

    while (line->at < line->end && is_space(*line->at))
        line->at++;
    word.at = line->at;
    while (line->at < line->end && !is_space(*line->at))
        line->at++;
    word.end = line->at;
    return word;
}

static bool word_is(struct trust_line word, const char *text)
{
    size_t len = strlen(text);
    return (size_t)(word.end - word.at) == len && memcmp(word.at, text, len) == 0;
}

/* Names go to terminals and logs: only what prints is taken. Cut if it is too long. */
static void name_set(char name[static TRUST_NAME_MAX], struct trust_line text)
{
    size_t len = 0;

    while (text.at < text.end && is_space(*text.at))
        text.at++;
    while (text.at < text.end && is_space(text.end[-1]))
        text.end--;
    for (; text.at < text.end && len < TRUST_NAME_MAX - 1; text.at++)
        name[len++] = *text.at >= ' ' && *text.at <= '~' ? *text.at : '?';
    memset(name + len, 0, TRUST_NAME_MAX - len);
}

/* NULL: it is an entry, or nothing (*empty). */
static const char *parse_line(struct trust_line line, struct trust_entry *entry, bool *empty)
{
    struct trust_line word = next_word(&line), id;

    *empty = word.at == word.end || *word.at == '#';
    if (*empty)
        return NULL;
    entry->revoked = word_is(word, "revoke");
    if (!entry->revoked && !word_is(word, "allow"))
        return "it begins neither with allow nor with revoke nor with #";
    id = next_word(&line);
    if ((size_t)(id.end - id.at) != ID_DIGITS || !hex_decode(id.at, entry->id.bytes, NODE_ID_LEN))
        return "its second word is no node id of 64 hexadecimal digits";
    name_set(entry->name, line);
    return NULL;
}

const char *trust_lines_parse(const char *text, size_t len, struct trust_entry *entries, int room, int *count,
                              int *line)
{
    const char *end = text + len;
    struct trust_entry entry;
    struct trust_line found;
    bool empty;

    *count = 0;
    for (*line = 1; next_line(&text, end, &found); (*line)++) {
        const char *what = parse_line(found, &entry, &empty);
        if (what)
            return what;
        if (empty)
            continue;
        if (*count == TRUST_ENTRIES_MAX)
            return "there are too many entries before it";
        if (*count < room)
            entries[*count] = entry;
        (*count)++;
    }
    return NULL;
}

static size_t write_entry(const struct node_id *id, const struct trust_entry *entry, char *target)
{
    const char *stop = memchr(entry->name, 0, TRUST_NAME_MAX);
    struct trust_line given = {entry->name, stop ? stop : entry->name + TRUST_NAME_MAX};
    char digits[NODE_ID_TEXT], name[TRUST_NAME_MAX];

    node_id_text(id, digits);
    name_set(name, given);
    return (size_t)snprintf(target, TRUST_LINE_MAX, "%s %s%s%s\n", entry->revoked ? "revoke" : "allow",
                            digits, name[0] ? " " : "", name);
}

size_t trust_lines_edit(const char *text, size_t len, const struct node_id *id,
                        const struct trust_entry *entry, char *target)
{
    const char *end = text + len;
    char *at = target;
    struct trust_entry old;
    struct trust_line line;
    bool empty;

    while (next_line(&text, end, &line)) {
        bool same = !parse_line(line, &old, &empty) && !empty && node_id_equal(&old.id, id);
        if (!same) {
            size_t line_len = (size_t)(line.end - line.at);
            memcpy(at, line.at, line_len);
            at += line_len;
            *at++ = '\n'; /* an editor may have left it out at the end */
        } else if (entry) {
            at += write_entry(id, entry, at);
            entry = NULL;
        }
    }
    if (entry)
        at += write_entry(id, entry, at);
    return (size_t)(at - target);
}

/* ---- reading ---- */

static int no_memory(struct error *error)
{
    return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "trust list: there is no memory for it");
}

/* Editors take a file away before they put the new one there, and nothing else is lifted by an accident. */
static int vanished(const struct trust_list *list, struct error *error)
{
    return error_set(error, HEARTH_INVALID, RANK_NONE,
                     "%s is missing, and it was there: put it back, or an empty file to lift it", list->path);
}

/* A file that was never there is an empty text. `text` has room for TEXT_MAX. */
static int read_text(const struct trust_list *list, char *text, size_t *len, struct error *error)
{
    bool missing;
    int status;

    *len = TEXT_MAX;
    status = private_file_read(list->path, PRIVATE_LIST, text, len, &missing, error);
    if (!missing)
        return status;
    *len = 0;
    return list->was_there ? vanished(list, error) : HEARTH_OK;
}

static int bad_line(const struct trust_list *list, int line, const char *what, struct error *error)
{
    return error_set(error, HEARTH_INVALID, RANK_NONE, "%s, line %d: %s: correct it", list->path, line, what);
}

static int take_text(struct trust_list *list, const char *text, size_t len, struct error *error)
{
    struct trust_entry *entries;
    int count, line;
    const char *what = trust_lines_parse(text, len, NULL, 0, &count, &line);

    if (what)
        return bad_line(list, line, what, error);
    entries = heap_alloc(list->heap, (size_t)count, sizeof *entries);
    if (!entries)
        return no_memory(error);
    (void)trust_lines_parse(text, len, entries, count, &count, &line);
    mutex_lock(&list->lock);
    heap_free(list->entries);
    list->entries = entries;
    list->count = count;
    mutex_unlock(&list->lock);
    return HEARTH_OK;
}

/* The stamp was taken before: a change after it is seen by the next look. */
static int read_file(struct trust_list *list, const struct private_stamp *stamp, struct error *error)
{
    char *text = heap_alloc_raw(list->heap, TEXT_MAX, 1);
    size_t len;
    int status;

    if (!text)
        return no_memory(error);
    status = read_text(list, text, &len, error);
    if (!status)
        status = take_text(list, text, len, error);
    heap_free(text);
    if (!status || status == HEARTH_INVALID) /* a bad file is read again when it has changed, not before */
        list->stamp = *stamp;
    list->was_there = list->was_there || (!status && stamp->exists);
    return status;
}

int trust_list_refresh(struct trust_list *list, struct error *error)
{
    struct private_stamp stamp;
    int status;

    if (!list->path)
        return HEARTH_PENDING;
    status = private_file_stamp(list->path, &stamp, error);
    if (status)
        return status;
    return private_stamp_equal(&stamp, &list->stamp) ? HEARTH_PENDING : read_file(list, &stamp, error);
}

/* ---- opening ---- */

/* Its stamp is that of a missing file. */
static int make(struct heap *heap, const char *path, struct trust_list **out, struct error *error)
{
    struct trust_list *list = heap_alloc(heap, 1, sizeof *list);

    if (!list)
        return no_memory(error);
    if (mutex_init(&list->lock)) {
        heap_free(list);
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "trust list: the system has no lock for it");
    }
    list->heap = heap;
    list->path = path ? heap_strdup(heap, path) : NULL;
    if (path && !list->path) {
        trust_list_close(list);
        return no_memory(error);
    }
    *out = list;
    return HEARTH_OK;
}

static int take_entries(struct trust_list *list, struct trust_list *from, struct error *error)
{
    int status = HEARTH_OK;

    mutex_lock(&from->lock);
    if (from->count > 0) {
        list->entries = heap_alloc(list->heap, (size_t)from->count, sizeof *list->entries);
        status = list->entries ? HEARTH_OK : no_memory(error);
    }
    if (list->entries) {
        memcpy(list->entries, from->entries, (size_t)from->count * sizeof *list->entries);
        list->count = from->count;
        list->was_there = true;
    }
    mutex_unlock(&from->lock);
    return status;
}

/* The entries of `from` (NULL: none), or those of the file if it is there. */
static int open_from(struct heap *heap, const char *path, struct trust_list *from, struct trust_list **out,
                     struct error *error)
{
    struct trust_list *list = NULL;
    int status = make(heap, path, &list, error);

    if (status)
        return status;
    if (from)
        status = take_entries(list, from, error);
    if (!status)
        status = trust_list_refresh(list, error);
    if (status && status != HEARTH_PENDING) {
        trust_list_close(list);
        return status;
    }
    *out = list;
    return HEARTH_OK;
}

int trust_list_open(struct heap *heap, const char *path, struct trust_list **out, struct error *error)
{
    return open_from(heap, path, NULL, out, error);
}

int trust_list_copy(struct trust_list *from, struct heap *heap, struct trust_list **out, struct error *error)
{
    return open_from(heap, from->path, from, out, error);
}

const char *trust_list_path(const struct trust_list *list)
{
    return list->path;
}

void trust_list_close(struct trust_list *list)
{
    if (!list)
        return;
    mutex_fini(&list->lock);
    heap_free(list->entries);
    heap_free(list->path);
    heap_free(list);
}

/* ---- asking ---- */

enum trust_verdict trust_list_judge(const struct trust_list *list, const struct node_id *id)
{
    bool allowed = false, closed = false;

    for (int i = 0; i < list->count; i++) {
        const struct trust_entry *entry = &list->entries[i];
        bool same = node_id_equal(&entry->id, id);
        if (same && entry->revoked)
            return TRUST_REVOKED; /* whatever other lines say */
        allowed |= same;
        closed |= !entry->revoked;
    }
    return allowed || !closed ? TRUST_YES : TRUST_UNLISTED;
}

const char *trust_verdict_text(enum trust_verdict verdict)
{
    switch (verdict) {
    case TRUST_REVOKED:
        return "its key was revoked (hearth trust)";
    case TRUST_UNLISTED:
        return "its key is not on the list of those that are allowed (hearth trust)";
    default:
        return "its key may come in";
    }
}

int trust_list_count(const struct trust_list *list)
{
    return list->count;
}

const struct trust_entry *trust_list_entry(const struct trust_list *list, int index)
{
    return &list->entries[index];
}

/* ---- changing ---- */

/* Under the lock. `text` is room for what the file holds, `target` for what it is to hold. */
static int edit_text(struct trust_list *list, const struct node_id *id, const struct trust_entry *entry,
                     char *text, char *target, struct error *error)
{
    size_t len, target_len;
    int count, line, status = read_text(list, text, &len, error);
    const char *what;
    bool there;

    if (status)
        return status;
    what = trust_lines_parse(text, len, NULL, 0, &count, &line);
    if (what) /* it may hold more than we understand: it stays */
        return bad_line(list, line, what, error);
    if (len == 0 && entry) {
        len = sizeof(FIRST_LINE) - 1;
        memcpy(text, FIRST_LINE, len);
    }
    target_len = trust_lines_edit(text, len, id, entry, target);
    if (target_len > TEXT_MAX || trust_lines_parse(target, target_len, NULL, 0, &count, &line))
        return error_set(error, HEARTH_LIMIT, RANK_NONE,
                         "%s is full (%d entries, %u bytes): forget some with `hearth trust`", list->path,
                         TRUST_ENTRIES_MAX, TEXT_MAX);
    if (target_len == len && memcmp(target, text, len) == 0)
        return HEARTH_OK; /* also where an id is forgotten that is not there */
    return private_file_write(list->path, target, target_len, true, &there, error);
}

int trust_list_set(struct trust_list *list, const struct node_id *id, const struct trust_entry *entry,
                   struct error *error)
{
    char *text, *target;
    int lock = -1, status = HEARTH_NO_MEMORY;

    if (!list->path)
        return error_set(
            error, HEARTH_INVALID, RANK_NONE,
            "trust list: it has no file, as the secret is not stored in one: `hearth init` first");
    text = heap_alloc_raw(list->heap, TEXT_MAX, 1);
    target = heap_alloc_raw(list->heap, TEXT_MAX + TRUST_LINE_MAX, 1);
    if (text && target) {
        status = private_file_lock(list->path, &lock, error);
        if (!status) {
            status = edit_text(list, id, entry, text, target, error);
            private_file_unlock(lock);
        }
    } else {
        no_memory(error);
    }
    heap_free(target);
    heap_free(text);
    if (!status)
        status = trust_list_refresh(list, error);
    return status == HEARTH_PENDING ? HEARTH_OK : status;
}
