/* SPDX-License-Identifier: Apache-2.0 */
/* Elias-Fano, by the word. */
#include "compress/elias.h"

#include <assert.h>

#include "core/bytes.h"

#define LOW_BITS_MAX 31u

static size_t low_len(size_t keep, uint32_t low_bits)
{
    return (size_t)(((uint64_t)keep * low_bits + 7) / 8);
}

static size_t high_len(size_t keep, size_t slack, uint32_t low_bits)
{
    return (size_t)(((uint64_t)keep + ((uint64_t)slack >> low_bits) + 7) / 8);
}

struct elias elias_of(size_t keep, size_t count)
{
    struct elias best = {.keep = keep};
    if (keep == 0)
        return best;
    assert(keep <= count);
    best.slack = count - keep;
    best.high_len = high_len(keep, best.slack, 0);
    for (uint32_t bits = 1; bits <= LOW_BITS_MAX; bits++) {
        size_t low = low_len(keep, bits), high = high_len(keep, best.slack, bits);
        size_t best_len = best.low_len + best.high_len;
        if (low + keep / 8 >= best_len) /* asked for every chunk: soon nothing shorter can come */
            break;
        if (low + high >= best_len)
            continue;
        best.low_bits = bits;
        best.low_len = low;
        best.high_len = high;
    }
    return best;
}

static void encode_low(const struct elias *elias, const uint32_t *index, size_t from, size_t number,
                       uint8_t *bytes)
{
    uint32_t bits = elias->low_bits, mask = (UINT32_C(1) << bits) - 1;
    uint8_t *to = bytes + from * bits / 8;
    uint64_t word = 0;
    uint32_t filled = 0;
    for (size_t i = 0; i < number; i++) {
        word |= (uint64_t)((index[i] - (uint32_t)(from + i)) & mask) << filled;
        filled += bits;
        if (filled < 32)
            continue;
        store_u32(to, (uint32_t)word);
        to += 4;
        word >>= 32;
        filled -= 32;
    }
    for (; filled > 0; filled = filled > 8 ? filled - 8 : 0, word >>= 8)
        *to++ = (uint8_t)word;
}

void elias_encode(const struct elias *elias, const uint32_t *index, size_t from, size_t number,
                  uint8_t *bytes)
{
    uint8_t *row = bytes + elias->low_len;
    assert(from % 8 == 0 && from + number <= elias->keep);
    encode_low(elias, index, from, number, bytes);
    for (size_t i = 0; i < number; i++) {
        size_t place = from + i;
        size_t bit = ((index[i] - place) >> elias->low_bits) + place;
        row[bit / 8] |= (uint8_t)(1u << bit % 8);
    }
}

/* Up to 8 bytes as a number. */
static uint64_t load_some(const uint8_t *bytes, size_t len)
{
    if (len >= 8)
        return load_u64(bytes);
    uint64_t word = 0;
    for (size_t i = 0; i < len; i++)
        word |= (uint64_t)bytes[i] << 8 * i;
    return word;
}

/* The next word of the row that is not 0; false: there is none. */
static bool next_word(struct elias_reader *r)
{
    do {
        size_t left = r->elias.high_len - r->at;
        if (left == 0)
            return false;
        r->word = load_some(r->bytes + r->elias.low_len + r->at, left);
        r->base = r->at * 8;
        r->at += left < 8 ? left : 8;
    } while (r->word == 0);
    return true;
}

/* Entries whose ones stand in the word at hand, at most `number`. `wide`: eight bytes can be read wherever
 * their low bits begin. */
static inline __attribute__((always_inline)) size_t read_word(struct elias_reader *r, uint32_t *index,
                                                              size_t number, bool wide, bool *falls)
{
    const uint32_t bits = r->elias.low_bits;
    const uint64_t mask = (UINT64_C(1) << bits) - 1, len = r->elias.low_len + r->elias.high_len;
    uint64_t word = r->word, last = r->last, place = r->place, low_at = place * bits;
    size_t i = 0;
    do {
        const uint8_t *from = r->bytes + low_at / 8;
        uint64_t low = (wide ? load_u64(from) : load_some(from, len - low_at / 8)) >> low_at % 8 & mask;
        uint64_t value = (r->base + (uint64_t)__builtin_ctzll(word) - place) << bits | low;
        word &= word - 1;
        *falls |= value < last;
        last = value;
        index[i++] = (uint32_t)(value + place++);
        low_at += bits;
    } while (word != 0 && i < number);
    r->word = word;
    r->last = last;
    r->place = place;
    return i;
}

bool elias_read(struct elias_reader *reader, uint32_t *index, size_t number)
{
    struct elias_reader r = *reader; /* where no store to index can change it */
    const size_t len = r.elias.low_len + r.elias.high_len;
    const bool wide = (uint64_t)(r.place + number) * r.elias.low_bits / 8 + 8 <= len;
    bool falls = false;
    assert(r.place + number <= r.elias.keep);
    for (size_t i = 0; i < number;) {
        if (r.word == 0 && !next_word(&r))
            return false;
        i += wide ? read_word(&r, index + i, number - i, true, &falls)
                  : read_word(&r, index + i, number - i, false, &falls);
    }
    *reader = r;
    return !falls && r.last <= r.elias.slack;
}

bool elias_ends(const struct elias_reader *r)
{
    const struct elias *elias = &r->elias;
    uint64_t rest = r->word;
    for (size_t i = r->at; i < elias->high_len; i++)
        rest |= r->bytes[elias->low_len + i];
    uint32_t used = (uint32_t)((uint64_t)elias->keep * elias->low_bits % 8);
    if (used > 0)
        rest |= (uint64_t)r->bytes[elias->low_len - 1] >> used;
    return rest == 0;
}
