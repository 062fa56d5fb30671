/* SPDX-License-Identifier: Apache-2.0 */
/* The largest of a block, and the cut of a long array.
 *
 * A block is first folded to the maxima of groups: what `keep` groups reach, `keep` elements reach. So a
 * level near the right one is found among few numbers, the elements above it are few, and only these are
 * looked at closely. No number is trusted to be typical: where too many are above the level (equal numbers,
 * say), the whole block is looked at closely. */
#include "compress/choose.h"

#include <assert.h>
#include <string.h>

#include "kernel/sift.h"

#define GROUPS_MAX 4096u /* 16 KiB on the stack */
#define GROUP_MAX  16u   /* elements */
#define NEAR_MAX   1024u /* elements above the first level that are looked at by themselves */
#define NEAR_BIT   18    /* the first level is found to 1/32 */
#define TOP_BIT    31

static uint32_t magnitude(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & MAGNITUDE_BITS;
}

/* How many groups to fold into; 0: not worth it. Several times `keep`, or the level would be too low. */
static size_t group_count(size_t count, size_t keep)
{
    for (size_t size = GROUP_MAX; size > 1; size /= 2) {
        size_t groups = (count + size - 1) / size;
        if (groups >= 4 * keep)
            return groups <= GROUPS_MAX ? groups : 0;
    }
    return 0;
}

/* A level that at least `keep` reach, and not many more if the numbers are anything like random. */
static uint32_t first_level(const struct sift_kernels *sift, const float *x, size_t count, size_t keep)
{
    float top[GROUPS_MAX];
    size_t groups = group_count(count, keep);
    if (groups == 0)
        return 0;
    sift->fold(x, count, groups, top);
    return sift->climb(top, groups, keep, (struct sift_level){0, groups}, TOP_BIT, NEAR_BIT).bits;
}

/* The numbers in a choice, in their order, to `near`; false: they are more than NEAR_MAX. */
static size_t gather(const float *x, size_t words, const uint64_t *choice, float *near)
{
    size_t count = 0;
    for (size_t w = 0; w < words; w++) {
        uint64_t word = choice[w];
        if (count + (size_t)__builtin_popcountll(word) > NEAR_MAX)
            return NEAR_MAX + 1;
        for (; word; word &= word - 1)
            near[count++] = x[w * 64 + (size_t)__builtin_ctzll(word)];
    }
    return count;
}

/* Takes out of the choice what is below the level, and the last `surplus` of those that equal it. */
static void strike(const float *x, size_t words, struct sift_level level, size_t surplus, uint64_t *choice)
{
    for (size_t w = words; w-- > 0;) {
        for (uint64_t word = choice[w]; word;) {
            unsigned int bit = 63 - (unsigned int)__builtin_clzll(word);
            uint32_t bits = magnitude(x[w * 64 + bit]);
            bool struck = bits < level.bits || (bits == level.bits && surplus > 0);
            surplus -= struck && bits == level.bits;
            choice[w] ^= (uint64_t)struck << bit;
            word ^= UINT64_C(1) << bit;
        }
    }
}

void choose_block(const struct kernels *kernels, const float *x, size_t count, size_t keep, uint64_t *choice)
{
    const struct sift_kernels *sift = kernels->sift;
    size_t words = CHOICE_WORDS(count);
    float near[NEAR_MAX];
    assert(keep >= 1 && keep <= count && count <= CODER_BLOCK_MAX);
    uint32_t least = first_level(sift, x, count, keep);
    sift->mask(x, count, least, choice);
    size_t number = gather(x, words, choice, near);
    struct sift_level level = {0, count};
    if (number <= NEAR_MAX) {
        level.count = number;
        level = sift->climb(near, number, keep, level, TOP_BIT, 0);
    } else {
        level = sift->climb(x, count, keep, level, TOP_BIT, 0);
        sift->mask(x, count, level.bits, choice);
    }
    strike(x, words, level, level.count - keep, choice);
}

/* ---- a long array: three counts, each of the next bits of those that agree in the bits before ---------- */

#define DIGITS     3
#define DIGIT_BITS 11 /* of the first; the others have one less */
#define BINS       (1u << DIGIT_BITS)

struct digit {
    int shift, bits;
};

static void count_digits(const float *x, size_t count, uint32_t prefix, struct digit digit, size_t bins[BINS])
{
    uint32_t most = (1u << digit.bits) - 1;
    memset(bins, 0, BINS * sizeof *bins);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = magnitude(x[i]) >> digit.shift;
        bins[bits & most] += bits >> digit.bits == prefix;
    }
}

struct cut choose_cut(const float *x, size_t count, size_t keep)
{
    static const struct digit digits[DIGITS] = {{20, 11}, {10, 10}, {0, 10}};
    size_t bins[BINS];
    uint32_t prefix = 0;
    assert(keep >= 1 && keep <= count);
    for (int d = 0; d < DIGITS; d++) {
        uint32_t bin = (1u << digits[d].bits) - 1;
        count_digits(x, count, prefix, digits[d], bins);
        for (; bins[bin] < keep; bin--)
            keep -= bins[bin];
        prefix = prefix << digits[d].bits | bin;
    }
    return (struct cut){prefix, keep};
}
