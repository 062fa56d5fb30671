/* SPDX-License-Identifier: Apache-2.0 */
/* The definition of the kernels that find the largest: plain loops. The other sets give the same bits. */
#include "kernel/sift.h"

#include "kernel/element.h"

static uint32_t magnitude(const float *x, size_t index)
{
    return load_u32(x, index) & MAGNITUDE_BITS;
}

static uint32_t fold(const float *x, size_t count, size_t width, size_t columns, float *top)
{
    uint32_t largest = 0;
    for (size_t j = 0; j < columns; j++) {
        uint32_t most = 0;
        for (size_t i = j; i < count; i += width)
            most = magnitude(x, i) > most ? magnitude(x, i) : most;
        store_u32(top, j, most);
        largest = most > largest ? most : largest;
    }
    return largest;
}

static size_t reach(const float *x, size_t count, uint32_t least)
{
    size_t reached = 0;
    for (size_t i = 0; i < count; i++)
        reached += magnitude(x, i) >= least;
    return reached;
}

void sift_climb(const struct sift_kernels *sift, const float *x, size_t count, struct sift_search *search)
{
    struct sift_search s = *search;
    bool inside = s.guess > s.bits && s.guess < s.top;
    uint32_t middle = inside ? s.guess : s.bits + (s.top - s.bits) / 2;
    while (s.top - s.bits > s.step && s.count != s.keep) {
        size_t reached = sift->reach(x, count, middle);
        bool enough = reached >= s.keep; /* a coin: better computed with than branched on */
        s.bits = enough ? middle : s.bits;
        s.count = enough ? reached : s.count;
        s.top = enough ? s.top : middle;
        s.above = enough ? s.above : reached;
        middle = s.bits + (s.top - s.bits) / 2;
    }
    *search = s;
}

static size_t pick(const float *x, size_t count, uint32_t least, uint32_t base, uint32_t *index)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        if (magnitude(x, i) >= least)
            index[found++] = base + (uint32_t)i;
    return found;
}

const struct sift_kernels sift_scalar = {
    .fold = fold,
    .reach = reach,
    .pick = pick,
};
