/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of texts, printed in columns that are as wide as they must be. */
#include "cli/shared/table.h"

#include <stdlib.h>
#include <string.h>

#define GAP 2 /* spaces between columns */

static bool goes_on(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

char *plain_text(const char *text, char *target, size_t size)
{
    size_t at = 0, i = 0;
    for (; text[i] && at + 1 < size; i++) {
        unsigned char c = (unsigned char)text[i], next = (unsigned char)text[i + 1];
        if (c == 0xc2 && next >= 0x80 && next < 0xa0) /* control characters of two bytes */
            continue;
        bool second = c >= 0x80 && c < 0xa0 && i > 0 && (unsigned char)text[i - 1] == 0xc2;
        target[at++] = c < 0x20 || c == 0x7f || second ? '?' : (char)c;
    }
    if (goes_on(text[i])) { /* no half of a character at the end */
        while (at > 0 && goes_on(target[at - 1]))
            at--;
        at -= at > 0;
    }
    target[at] = 0;
    return target;
}

/* Characters, as far as one is one column wide. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += !goes_on(*text);
    return width;
}

void table_open(struct table *table, const char *align)
{
    *table = (struct table){.align = align, .columns = strlen(align)};
}

void table_close(struct table *table)
{
    free(table->cells);
    *table = (struct table){.align = ""};
}

void table_row(struct table *table, enum paint paint, const char *const *texts, size_t count)
{
    if (table->rows == table->cap) {
        size_t cap = table->cap ? 2 * table->cap : 16;
        void *cells = realloc(table->cells, cap * table->columns * sizeof *table->cells);
        if (!cells) {
            table->broken = true;
            return;
        }
        table->cells = cells;
        table->cap = cap;
    }
    struct table_cell *row = table->cells + table->rows++ * table->columns;
    bool ended = false;
    for (size_t i = 0; i < table->columns; i++) {
        ended = ended || i >= count || !texts[i];
        plain_text(ended ? "" : texts[i], row[i].text, sizeof row[i].text);
        row[i].paint = paint;
    }
}

static size_t column_width(const struct table *t, size_t column)
{
    size_t widest = 0;
    bool used = false;
    for (size_t row = 0; row < t->rows; row++) {
        const char *text = t->cells[row * t->columns + column].text;
        size_t width = width_of(text);
        used = used || (row > 0 && width > 0);
        widest = width > widest ? width : widest;
    }
    return used ? widest : 0;
}

static void print_row(const struct table *t, size_t row, const size_t *widths, FILE *file)
{
    size_t owed = 0; /* spaces that are printed only if text follows */
    for (size_t i = 0; i < t->columns; i++) {
        const char *text = t->cells[row * t->columns + i].text;
        size_t width = width_of(text), pad = widths[i] - width;
        if (widths[i] == 0)
            continue;
        if (width == 0) {
            owed += widths[i] + GAP;
            continue;
        }
        bool right = t->align[i] == 'r';
        fprintf(file, "%*s%s", (int)(owed + (right ? pad : 0)), "", text);
        owed = GAP + (right ? 0 : pad);
    }
}

void table_print(const struct table *table, FILE *file, const char *indent)
{
    size_t widths[TABLE_COLUMNS_MAX] = {0};
    for (size_t i = 0; i < table->columns && i < TABLE_COLUMNS_MAX; i++)
        widths[i] = column_width(table, i);
    for (size_t row = 0; row < table->rows; row++) {
        enum paint colour = table->cells[row * table->columns].paint;
        bool painted = colour != PAINT_NONE;
        fprintf(file, "%s%s", indent, painted ? paint(file, colour) : "");
        print_row(table, row, widths, file);
        fprintf(file, "%s\n", painted ? paint(file, PAINT_NONE) : "");
    }
    if (table->broken)
        fprintf(file, "%s(no memory for the rest)\n", indent);
}

void columns_print(FILE *file, const int *widths, const char *const *texts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fprintf(file, "%s%*s", i ? " " : "  ", widths[i], texts[i]);
    fputc('\n', file);
    fflush(file);
}
