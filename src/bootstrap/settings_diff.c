/* SPDX-License-Identifier: Apache-2.0 */
/* What differs, as short as a line. */
#include "bootstrap/settings_diff.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Appends at *len; what does not fit is cut and marked. */
static void add(char *text, size_t size, size_t *len, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void add(char *text, size_t size, size_t *len, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int added = vsnprintf(text + *len, size - *len, format, args);
    va_end(args);
    if (added < 0)
        return;
    *len += (size_t)added;
    if (*len < size)
        return;
    *len = size - 1;
    if (size > 3)
        memcpy(text + size - 4, "...", 4);
}

void settings_diff_text(const char *theirs, const char *ours, char *text, size_t size)
{
    size_t len = 0;

    text[0] = '\0';
    while (*theirs || *ours) {
        int their_len = (int)strcspn(theirs, " "), our_len = (int)strcspn(ours, " ");
        if (their_len != our_len || memcmp(theirs, ours, (size_t)our_len) != 0)
            add(text, size, &len, "%s%.*s instead of %.*s", len > 0 ? ", " : "",
                their_len > 0 ? their_len : 7, their_len > 0 ? theirs : "nothing", our_len > 0 ? our_len : 7,
                our_len > 0 ? ours : "nothing");
        theirs += their_len + (theirs[their_len] == ' ');
        ours += our_len + (ours[our_len] == ' ');
    }
    if (len == 0)
        add(text, size, &len, "they look the same but are not (another version?)");
}

void missing_text(const int *places, int count, char *text, size_t size)
{
    size_t len = 0;

    text[0] = '\0';
    for (int first = 0; first < count; first++) {
        int last = first;
        if (places[first] >= 0)
            continue;
        while (last + 1 < count && places[last + 1] < 0)
            last++;
        add(text, size, &len, "%s%d", len > 0 ? ", " : "", first);
        if (last > first)
            add(text, size, &len, "%s%d", last > first + 1 ? "-" : ", ", last);
        first = last;
    }
}
