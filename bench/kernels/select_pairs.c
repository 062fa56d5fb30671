/* SPDX-License-Identifier: Apache-2.0 */
/* Selection and sorting of pairs. No guard against numbers in a bad order: ours are random. */
#include "bench/kernels/select_pairs.h"

#include <math.h>
#include <stdbool.h>

#define SHORT_RUN 16

static inline bool before(struct pair a, struct pair b)
{
    return a.magnitude > b.magnitude || (a.magnitude == b.magnitude && a.index < b.index);
}

static inline void swap(struct pair *a, struct pair *b)
{
    struct pair kept = *a;
    *a = *b;
    *b = kept;
}

void pairs_of(struct pair *pairs, const float *x, const float *e, size_t count, size_t begin)
{
    for (size_t i = begin; i < count; i++)
        *pairs++ = (struct pair){fabsf(x[i] + e[i]), (uint32_t)i};
    for (size_t i = 0; i < begin; i++)
        *pairs++ = (struct pair){fabsf(x[i] + e[i]), (uint32_t)i};
}

static struct pair median(struct pair a, struct pair b, struct pair c)
{
    if (before(b, a)) {
        struct pair kept = a;
        a = b;
        b = kept;
    }
    return before(c, a) ? a : before(b, c) ? b : c;
}

/* Gives a place: nothing in front of it comes after anything from it on. Neither side is empty. */
static struct pair *partition(struct pair *first, struct pair *end)
{
    struct pair pivot = median(first[1], first[(end - first) / 2], end[-1]);
    for (;; first++) {
        while (before(*first, pivot))
            first++;
        end--;
        while (before(pivot, *end))
            end--;
        if (first >= end)
            return first;
        swap(first, end);
    }
}

static void insertion(struct pair *first, struct pair *end)
{
    for (struct pair *at = first; at < end; at++) {
        struct pair taken = *at, *hole = at;
        for (; hole > first && before(taken, hole[-1]); hole--)
            *hole = hole[-1];
        *hole = taken;
    }
}

void pairs_nth(struct pair *pairs, size_t count, size_t keep)
{
    struct pair *first = pairs, *end = pairs + count, *nth = pairs + keep - 1;
    while (end - first > SHORT_RUN) {
        struct pair *cut = partition(first, end);
        if (cut <= nth)
            first = cut;
        else
            end = cut;
    }
    insertion(first, end);
}

void pairs_sort(struct pair *pairs, size_t count)
{
    while (count > SHORT_RUN) { /* the shorter side by a call, the longer by the loop: the stack stays flat */
        size_t front = (size_t)(partition(pairs, pairs + count) - pairs), back = count - front;
        pairs_sort(front < back ? pairs : pairs + front, front < back ? front : back);
        pairs = front < back ? pairs + front : pairs;
        count = front < back ? back : front;
    }
    insertion(pairs, pairs + count);
}
