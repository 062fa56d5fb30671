/* SPDX-License-Identifier: Apache-2.0 */
/* What a command has found: as JSON for programs, in columns for people. */
#include "cli/shared/listing.h"

#include <inttypes.h>

#include "cli/shared/args.h"

static struct text number_text(const json_t *row, const struct column *column)
{
    double value = json_real_of(row, column->key);
    struct text text = {""};
    switch (column->form) {
    case FORM_NUMBER:
        snprintf(text.s, sizeof text.s, "%" PRId64, json_count_of(row, column->key));
        break;
    case FORM_COUNT:
        return text_count((uint64_t)value);
    case FORM_BYTES:
        return text_bytes(value);
    case FORM_US:
        return text_time(value * 1e-6);
    case FORM_SPEED:
        return text_speed(value);
    case FORM_MBIT:
        return text_rate(value * 1e6 / 8);
    case FORM_RATIO:
        return text_ratio(value);
    case FORM_SHARE:
        return text_share(value);
    case FORM_EXACT:
        return text_exact(json_flag_of(row, column->key));
    case FORM_TEXT:
        break;
    }
    return text;
}

static void write_cell(struct listing_cell *cell)
{
    const struct column *column = cell->column;
    const json_t *value = json_object_get(cell->row, column->key);
    bool there = column->zero ? json_is_number(value) : json_number_value(value) > 0;
    if (column->write)
        column->write(cell);
    else if (column->form == FORM_TEXT)
        snprintf(cell->text, sizeof cell->text, "%s", json_text_of(cell->row, column->key));
    else
        snprintf(cell->text, sizeof cell->text, "%s",
                 column->none && !there ? column->none : number_text(cell->row, column).s);
}

/* ---- rows as they come ---- */

bool listing_open(struct listing *listing, bool json, int argc, char **argv)
{
    listing->doc = json ? doc_open(argc, argv) : NULL;
    return listing->doc || !json;
}

static void print_line(const struct listing *l, const json_t *row)
{
    struct listing_cell cells[LISTING_COLUMNS_MAX];
    const char *texts[LISTING_COLUMNS_MAX];
    int widths[LISTING_COLUMNS_MAX];
    for (size_t i = 0; i < l->count; i++) {
        cells[i].row = row;
        cells[i].column = &l->columns[i];
        widths[i] = l->columns[i].width;
        texts[i] = row ? cells[i].text : l->columns[i].head;
        if (row)
            write_cell(&cells[i]);
    }
    columns_print(stdout, widths, texts, l->count);
}

void listing_head(const struct listing *listing)
{
    if (!listing->doc)
        print_line(listing, NULL);
}

void listing_row(const struct listing *listing, json_t *row)
{
    if (listing->doc) {
        json_array_append_new(json_object_get(listing->doc, "results"), row);
        return;
    }
    print_line(listing, row);
    json_decref(row);
}

int listing_close(struct listing *listing, int code)
{
    json_t *doc = listing->doc;
    listing->doc = NULL;
    return doc && !doc_close(doc) ? EXIT_FAILED_CHECK : code;
}

json_t *json_text(const char *text)
{
    json_t *value = json_string(text);
    return value ? value : json_string("?");
}

int listing_one(int argc, char **argv, json_t *row)
{
    struct listing listing = {.columns = NULL};
    if (!row) {
        fprintf(stderr, "hearth: no memory for the JSON output\n");
        return EXIT_FAILED_CHECK;
    }
    if (!listing_open(&listing, true, argc, argv))
        return EXIT_FAILED_CHECK;
    listing_row(&listing, row);
    return listing_close(&listing, EXIT_GOOD);
}

int print_done(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return EXIT_GOOD;
    perror("hearth: cannot write the output");
    return EXIT_FAILED_CHECK;
}

int print_answer(const json_t *object)
{
    json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    return print_done();
}

/* ---- whole tables ---- */

void listing_print(const struct listing_table *what, const json_t *rows, FILE *file, const char *indent)
{
    char align[LISTING_COLUMNS_MAX + 1] = "";
    struct listing_cell cells[LISTING_COLUMNS_MAX];
    const char *texts[LISTING_COLUMNS_MAX];
    struct table table;
    size_t i;
    json_t *row;
    for (i = 0; i < what->count; i++) {
        align[i] = what->columns[i].form == FORM_TEXT ? 'l' : 'r';
        texts[i] = what->columns[i].head;
    }
    table_open(&table, align);
    table_row(&table, PAINT_DIM, texts, what->count);
    json_array_foreach(rows, i, row)
    {
        if (what->most && i >= what->most)
            break;
        for (size_t k = 0; k < what->count; k++) {
            cells[k].row = row;
            cells[k].column = &what->columns[k];
            cells[k].arg = what->arg;
            write_cell(&cells[k]);
            texts[k] = cells[k].text;
        }
        table_row(&table, what->paint ? what->paint(row) : PAINT_NONE, texts, what->count);
    }
    table_print(&table, file, indent);
    table_close(&table);
}
