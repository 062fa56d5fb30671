/* SPDX-License-Identifier: Apache-2.0 */
/* Which are the largest: by the bits of |x| as an integer, then by the lowest index. Linear time whatever the
 * numbers are, never a sort. Only for the files of this room. */
#pragma once

#include "compress/block.h"
#include "kernel/sift.h"

/* Everything above `bits` is chosen, and of those equal to it the first `ties`. */
struct cut {
    uint32_t bits;
    size_t ties;
};

/* Where the `keep` largest of an array of any length end; 1 <= keep <= count. A few passes. */
struct cut choose_cut(const float *x, size_t count, size_t keep);

/* Whether a number is chosen; to be asked of all of an array in their order. */
static inline bool cut_takes(struct cut *cut, uint32_t magnitude)
{
    bool ties = magnitude == cut->bits && cut->ties > 0;
    cut->ties -= ties;
    return magnitude > cut->bits || ties;
}

#define CHOSEN_MAX  1024u /* that are found at once; of more, only the cut is */
#define CHOSEN_STEP 4096u /* elements that are looked through at a time */

/* The chosen ones of a block, handed out in order. */
struct chosen {
    const struct sift_kernels *sift;
    const float *x;
    size_t block;        /* elements */
    size_t at;           /* elements that were looked through */
    struct cut cut;      /* of what is not looked through yet */
    size_t used, listed; /* of `index` */
    uint32_t index[CHOSEN_MAX + CHOSEN_STEP + SIFT_SLACK];
};

/* The `keep` largest of x, which must not change but where they were handed out; 1 <= keep <= count <=
 * CODER_BLOCK_MAX. For arrays in the nearest cache; asks for what is ahead meanwhile. */
void choose_block(const struct block_context *context, const float *x, size_t count, size_t keep,
                  struct chosen *chosen);
/* The indices of the next `number` <= CHOSEN_MAX, which must be left. Valid until the next call. */
const uint32_t *chosen_next(struct chosen *chosen, size_t number);
