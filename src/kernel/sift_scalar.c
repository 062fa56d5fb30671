/* SPDX-License-Identifier: Apache-2.0 */
/* The definition of the kernels that find the largest: plain loops. The other sets give the same bits. */
#include "kernel/sift.h"

#include "kernel/element.h"

static uint32_t magnitude(const float *x, size_t index)
{
    return load_u32(x, index) & MAGNITUDE_BITS;
}

static void fold(const float *x, size_t count, size_t width, float *top)
{
    for (size_t j = 0; j < width; j++) {
        uint32_t most = 0;
        for (size_t i = j; i < count; i += width)
            most = magnitude(x, i) > most ? magnitude(x, i) : most;
        store_u32(top, j, most);
    }
}

static size_t reach(const float *x, size_t count, uint32_t least)
{
    size_t reached = 0;
    for (size_t i = 0; i < count; i++)
        reached += magnitude(x, i) >= least;
    return reached;
}

static struct sift_level climb(const float *x, size_t count, size_t keep, struct sift_level from, int first,
                               int last)
{
    for (int bit = first - 1; bit >= last && from.count != keep; bit--) {
        uint32_t bits = from.bits | UINT32_C(1) << bit;
        size_t reached = reach(x, count, bits);
        if (reached >= keep)
            from = (struct sift_level){bits, reached};
    }
    return from;
}

static void mask(const float *x, size_t count, uint32_t least, uint64_t *bits)
{
    for (size_t i = 0; i < count; i += 64) {
        uint64_t word = 0;
        for (size_t j = 0; j < 64 && i + j < count; j++)
            word |= (uint64_t)(magnitude(x, i + j) >= least) << j;
        bits[i / 64] = word;
    }
}

const struct sift_kernels sift_scalar = {
    .fold = fold,
    .climb = climb,
    .mask = mask,
};
