/* SPDX-License-Identifier: Apache-2.0 */
/* Ascending indices in a number of bytes that follows from how many they are and of how many (Elias-Fano). In
 * pieces, so that a block of any length needs little memory. Only for the files of this room.
 *
 * Index number p minus p never falls. Of these numbers the `low_bits` last bits stand one after the other;
 * the rest of number p, plus p, is the place of a 1 in a row of bits that are 0 elsewhere. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elias {
    size_t keep;  /* entries */
    size_t slack; /* elements that are not chosen: no index minus its place is above */
    uint32_t low_bits;
    size_t low_len, high_len; /* bytes: first the low bits, then the row */
};

/* 1 <= keep <= count <= SPARSE_COUNT_MAX, or keep 0. */
struct elias elias_of(size_t keep, size_t count);

/* Entries [from, from + number); `from` is a multiple of 8. The row must be 0 before the first of them. */
void elias_encode(const struct elias *elias, const uint32_t *index, size_t from, size_t number,
                  uint8_t *bytes);

/* Begins with these two; the rest is 0. */
struct elias_reader {
    struct elias elias;
    const uint8_t *bytes;
    size_t place; /* of the next entry */
    size_t at;    /* bytes of the row that were taken */
    size_t base;  /* bit of the row that `word` begins with */
    uint64_t word;
    uint64_t last; /* index minus place of the entry before */
};

/* The next entries. False: they do not ascend, or reach beyond the array; nothing in `index` may be used. */
bool elias_read(struct elias_reader *reader, uint32_t *index, size_t number);
/* After the last entry: whether all else is 0. */
bool elias_ends(const struct elias_reader *reader);
