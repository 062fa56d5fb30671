/* SPDX-License-Identifier: Apache-2.0 */
/* One way to measure an all-reduce, whoever's it is: each program here hands a `struct peer` to it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A library under test. Functions return false when they failed and have said why on standard error. */
struct peer {
    const char *name, *algo;
    const char *alloc; /* whose memory the buffer is: "private" or "shared" */
    int rank, ranks;
    void *self;
    /* Makes ready for f32 sums in place. `buffer` is page-aligned memory for `count` elements; a library that
     * has its own puts that there instead. */
    bool (*prepare)(void *self, float **buffer, size_t count);
    bool (*all_reduce)(void *self); /* of the whole buffer; the only thing that is timed */
    void (*finish)(void *self);
    /* Each value becomes the largest of all ranks'. Barrier, agreement, collection; never timed. */
    bool (*greatest)(void *self, double *values, size_t count);
};

struct setting {
    const char *name, *value; /* "--name VALUE" of the command line replaces the default */
};

/* Takes the settings off the command line. Returns the rest, the sizes in bytes, or NULL after a message. */
char **settings_take(char **argv, struct setting *settings, size_t count);

/* Measures each size for about `seconds`; rank 0 prints a line of JSON for it. Returns an exit status. */
int measure(const struct peer *peer, const char *seconds, char **sizes);
