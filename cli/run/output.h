/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks print, line by line with their rank in front, or into a file for each. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define OUTPUT_LINE_MAX 65536 /* longer lines are cut into pieces of this length */

enum { OUTPUT_STDOUT, OUTPUT_STDERR, OUTPUT_STREAMS };

struct output_line {
    size_t len; /* begun, its newline has not come */
    char text[OUTPUT_LINE_MAX];
};

struct output {
    int ranks;
    bool prefix;
    int *files;                /* [ranks][OUTPUT_STREAMS]; NULL: to our own streams */
    struct output_line *lines; /* the same; NULL with files */
    char *batch;
    size_t batch_len;
    bool colour[OUTPUT_STREAMS];
    bool broken; /* nobody reads our output any more: the rest is thrown away */
    /* Called while our output cannot be written, so that the loop's other duties are not forgotten. */
    void (*idle)(void *arg);
    void *arg;
};

/* dir: NULL, or where DIR/RANK.out and DIR/RANK.err are made. false with a message. */
bool output_open(struct output *output, int ranks, bool prefix, const char *dir);
void output_close(struct output *output);

void output_write(struct output *output, int rank, int stream, const char *bytes, size_t len);
/* The rank is gone: a line without its end gets one. */
void output_end(struct output *output, int rank);
