/* SPDX-License-Identifier: Apache-2.0 */
/* Which are the largest: by the bits of |x| as an integer, then by the lowest index. Linear time whatever the
 * numbers are, never a sort. Only for the files of this room. */
#ifndef COMPRESS_CHOOSE_H
#define COMPRESS_CHOOSE_H

#include "compress/coder.h"

#define CHOICE_WORDS(count) (((count) + 63) / 64)

/* Everything above `bits` is chosen, and of those equal to it the first `ties`. */
struct cut {
    uint32_t bits;
    size_t ties;
};

/* Sets exactly `keep` bits of choice[CHOICE_WORDS(count)]; 1 <= keep <= count <= CODER_BLOCK_MAX. For arrays
 * in the nearest cache. */
void choose_block(const struct kernels *kernels, const float *x, size_t count, size_t keep, uint64_t *choice);

/* Where the `keep` largest of an array of any length end; 1 <= keep <= count. A few passes. */
struct cut choose_cut(const float *x, size_t count, size_t keep);

/* Whether a number is chosen; to be asked of all of an array in their order. */
static inline bool cut_takes(struct cut *cut, uint32_t magnitude)
{
    bool ties = magnitude == cut->bits && cut->ties > 0;
    cut->ties -= ties;
    return magnitude > cut->bits || ties;
}

#endif
