/* SPDX-License-Identifier: Apache-2.0 */
/* Text into a buffer that may be too small. */
#include "core/paper.h"

#include <stdarg.h>
#include <stdio.h>

struct paper paper_of(char *text, size_t size)
{
    if (size > 0)
        text[0] = '\0';
    return (struct paper){.text = text, .size = size};
}

void paper_print(struct paper *paper, const char *format, ...)
{
    va_list args;
    size_t room = paper->len < paper->size ? paper->size - paper->len : 0;

    va_start(args, format);
    int len = vsnprintf(room > 0 ? paper->text + paper->len : NULL, room, format, args);
    va_end(args);
    paper->len += len > 0 ? (size_t)len : 0;
}

void paper_quote(struct paper *paper, const char *text)
{
    paper_print(paper, "\"");
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            paper_print(paper, "\\%c", *text);
        else
            paper_print(paper, "%c", *text >= ' ' && *text <= '~' ? *text : '?');
    }
    paper_print(paper, "\"");
}
