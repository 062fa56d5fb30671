/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded little-endian reader and writer: the only place that turns bytes into integers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Unchecked: for code that has checked the length of a whole block. Any alignment, any machine's byte order;
 * compilers make one move of each. */
static inline uint16_t load_u16(const uint8_t *b)
{
    return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t load_u32(const uint8_t *b)
{
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t load_u64(const uint8_t *b)
{
    return load_u32(b) | (uint64_t)load_u32(b + 4) << 32;
}

static inline double load_f64(const uint8_t *b)
{
    uint64_t bits = load_u64(b);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline void store_u16(uint8_t *b, uint16_t v)
{
    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
}

static inline void store_u32(uint8_t *b, uint32_t v)
{
    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
    b[2] = (uint8_t)(v >> 16);
    b[3] = (uint8_t)(v >> 24);
}

static inline void store_u64(uint8_t *b, uint64_t v)
{
    store_u32(b, (uint32_t)v);
    store_u32(b + 4, (uint32_t)(v >> 32));
}

static inline void store_f64(uint8_t *b, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    store_u64(b, bits);
}

/* After an overrun `bad` is set, every later get gives 0 and every later put does nothing: check once, at
 * the end. */
struct reader {
    const uint8_t *at, *end;
    bool bad;
};
struct writer {
    uint8_t *at, *end, *start;
    bool bad;
};

struct reader reader_of(const void *bytes, size_t len);
struct writer writer_of(void *bytes, size_t len);

uint8_t get_u8(struct reader *r);
uint16_t get_u16(struct reader *r);
uint32_t get_u32(struct reader *r);
uint64_t get_u64(struct reader *r);
double get_f64(struct reader *r);
void get_bytes(struct reader *r, void *target, size_t len); /* zeroes target on overrun */
size_t reader_left(const struct reader *r);

void put_u8(struct writer *w, uint8_t v);
void put_u16(struct writer *w, uint16_t v);
void put_u32(struct writer *w, uint32_t v);
void put_u64(struct writer *w, uint64_t v);
void put_f64(struct writer *w, double v);
void put_bytes(struct writer *w, const void *source, size_t len);
size_t writer_len(const struct writer *w); /* bytes written; 0 after an overrun */

/* Whether all of them are 0; takes the same time whatever they are. */
static inline bool bytes_zero(const uint8_t *bytes, size_t len)
{
    uint8_t any = 0;
    for (size_t i = 0; i < len; i++)
        any |= bytes[i];
    return any == 0;
}
