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

#include "compress/load.h"
#include "kernel/quant.h"

#define GROUPS_MAX   4096u /* 16 KiB on the stack */
#define FOLD_STEP    32u   /* groups */
#define PICK_STEP    256u  /* elements */
#define GROUP_MAX    16u   /* elements */
#define LEVEL_MARGIN (UINT32_C(1) << 19)
#define NEAR_STEP    (UINT32_C(1) << 18) /* the first level is found to 1/32 */
#define NEAR_RANGE   (UINT32_C(3) << 23) /* and, as a rule, not below 1/8 of the largest */

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

/* Sets the search to a level that at least `keep` reach, and not many more if the numbers are anything like
 * random; and to a top that none reaches. */
static void start_near(const struct block_context *context, const float *x, size_t count,
                       struct sift_search *search)
{
    const struct sift_kernels *sift = context->kernels->sift;
    float top[GROUPS_MAX];
    size_t groups = group_count(count, search->keep);
    if (groups == 0)
        return;
    uint32_t largest = 0;
    for (size_t j = 0, columns; j < groups; j += columns) {
        columns = groups - j < FOLD_STEP ? groups - j : FOLD_STEP;
        block_ahead(context, j * count / groups / 2, columns * count / groups / 2);
        uint32_t most = sift->fold(x + j, count - j, groups, columns, top + j);
        largest = most > largest ? most : largest;
    }
    struct sift_search first = {.keep = search->keep, .count = groups, .top = largest + 1, .step = NEAR_STEP};
    first.guess = largest > NEAR_RANGE ? largest - NEAR_RANGE : 0;
    sift_climb(sift, top, groups, &first);
    search->bits = first.bits;
    search->guess = first.bits + 2 * NEAR_STEP; /* the elements of all groups are some more than these */
}

/* Lists what reaches the level; false: that is more than CHOSEN_MAX. Asks for what is ahead; `halfway`: for
 * its second half, as the first was asked for before. */
static bool list_near(const struct block_context *context, struct chosen *c, uint32_t least, bool halfway)
{
    c->listed = 0;
    for (c->at = 0; c->at < c->block && c->listed <= CHOSEN_MAX; c->at += PICK_STEP) {
        size_t number = c->block - c->at < PICK_STEP ? c->block - c->at : PICK_STEP;
        if (halfway)
            block_ahead(context, (c->block + c->at) / 2, number / 2);
        else
            block_ahead(context, c->at, number);
        c->listed += c->sift->pick(c->x + c->at, number, least, (uint32_t)c->at, c->index + c->listed);
    }
    return c->listed <= CHOSEN_MAX;
}

/* Of the entries from `from` on, only what the cut takes stays. */
static void strike(struct chosen *c, size_t from)
{
    size_t stay = from;
    for (size_t i = from; i < c->listed; i++) {
        c->index[stay] = c->index[i];
        stay += cut_takes(&c->cut, magnitude(c->x[c->index[i]]));
    }
    c->listed = stay;
}

/* Lists what is above the level of the blocks before, if that is neither too little nor far too much. */
static bool start_known(const struct block_context *context, struct chosen *chosen,
                        struct sift_search *search)
{
    if (!context->level || *context->level <= LEVEL_MARGIN || *context->level > FINITE_MAX)
        return false;
    search->bits = *context->level - LEVEL_MARGIN;
    search->guess = *context->level + LEVEL_MARGIN;
    if (list_near(context, chosen, search->bits, false) && chosen->listed >= search->keep)
        return true;
    search->bits = 0;
    return false;
}

/* A mean of the levels, the last ones more than those before. */
static void remember(uint32_t *level, uint32_t bits)
{
    if (level)
        *level = *level == 0 ? bits : *level - *level / 4 + bits / 4;
}

/* When exactly `keep` reach the level, the search may have ended early: then all of them are taken. */
static struct cut cut_of(const struct sift_search *search)
{
    return (struct cut){search->bits,
                        search->count == search->keep ? search->keep : search->keep - search->above};
}

void choose_block(const struct block_context *context, const float *x, size_t count, size_t keep,
                  struct chosen *chosen)
{
    const struct sift_kernels *sift = context->kernels->sift;
    struct sift_search search = {.keep = keep, .top = FINITE_MAX + 1, .step = 1};
    float near[CHOSEN_MAX];
    assert(keep >= 1 && keep <= count && count <= CODER_BLOCK_MAX);
    chosen->sift = sift;
    chosen->x = x;
    chosen->block = count;
    chosen->used = 0;
    bool known = start_known(context, chosen, &search);
    if (!known)
        start_near(context, x, count, &search);
    if (known || list_near(context, chosen, search.bits, true)) {
        for (size_t i = 0; i < chosen->listed; i++)
            near[i] = x[chosen->index[i]];
        search.count = chosen->listed;
        search.top = context->kernels->quant->largest(near, chosen->listed) + 1;
        sift_climb(sift, near, chosen->listed, &search);
        chosen->cut = cut_of(&search);
        if (chosen->listed > keep)
            strike(chosen, 0);
        remember(context->level, search.bits);
    } else {
        search.bits = 0;
        search.count = count;
        sift_climb(sift, x, count, &search);
        chosen->cut = cut_of(&search);
        chosen->at = chosen->listed = 0;
    }
}

const uint32_t *chosen_next(struct chosen *c, size_t number)
{
    assert(number <= CHOSEN_MAX);
    if (c->listed - c->used < number) {
        memmove(c->index, c->index + c->used, (c->listed - c->used) * sizeof *c->index);
        c->listed -= c->used;
        c->used = 0;
    }
    while (c->listed < number) {
        size_t before = c->listed, count = c->block - c->at < CHOSEN_STEP ? c->block - c->at : CHOSEN_STEP;
        assert(count > 0);
        c->listed += c->sift->pick(c->x + c->at, count, c->cut.bits, (uint32_t)c->at, c->index + before);
        c->at += count;
        strike(c, before);
    }
    c->used += number;
    return c->index + c->used - number;
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
