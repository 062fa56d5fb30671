/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a trust file, one at a time. */
#include "security/trust_lines.h"

#include <stdio.h>
#include <string.h>

#include "security/base32.h"

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
