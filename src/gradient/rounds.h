/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of one array over all members by a part-wise codec, in rounds that run side by side: while one is
 * on the wire the next is encoded and the one before is decoded. */
#pragma once

#include "gradient/work.h"

struct array {
    struct codec codec;       /* part-wise */
    enum reduction_algo algo; /* REDUCTION_ALLGATHER or REDUCTION_OWNER */
    struct feed feed;         /* key 0: the reduction's, once it is known */
    size_t count;
    struct coder_out out; /* divisor 0: the reduction's, once it is known */
    uint8_t *undo;        /* where what `out` held goes first; NULL: it need not be kept */
    bool is_tensor;       /* its energy is the reduction's */
};

struct rounds;

struct rounds *rounds_open(struct reduction *r, const struct array *array); /* NULL: see r->error */
/* Only so many of the array's first elements are there yet; all, unless this is called. */
void rounds_offer(struct rounds *rounds, size_t available);
enum step rounds_step(struct rounds *rounds, struct reduction *r);
/* Failed: `out` gets back what it held, if `undo` was given. NULL is allowed. */
void rounds_close(struct rounds *rounds, struct reduction *r, bool failed);
size_t rounds_memory(const struct codec *codec, enum reduction_algo algo, size_t count, int size);
/* Of a small dense thing: by which way it is summed. */
enum reduction_algo rounds_algo(const struct reduction *r, const struct codec *codec, size_t count);
