/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as bytes: scales of blocks and of lists (how many a block has, bf16 as bits), and floats. Only for
 * the files of this room. */
#pragma once

#include "core/bytes.h"
#include "kernel/quant.h"

/* A block of `count` elements is cut into sub-blocks of QUANT_BLOCK; only the last may be short. */
static inline size_t scale_count(size_t count)
{
    return (count + QUANT_BLOCK - 1) / QUANT_BLOCK;
}

/* Elements of the sub-block that begins at `at` < count. */
static inline size_t scale_span(size_t count, size_t at)
{
    return count - at < QUANT_BLOCK ? count - at : QUANT_BLOCK;
}

static inline float scale_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* The scale of int8 for numbers up to this magnitude (the bits of a finite f32): 1/127 of it, rounded up. */
static inline uint16_t scale_of(uint32_t largest)
{
    float value;
    memcpy(&value, &largest, sizeof value);
    value /= 127;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0xffff) >> 16;
    bits = bits > QUANT_SCALE_LEAST ? bits : QUANT_SCALE_LEAST;
    return (uint16_t)(bits < QUANT_SCALE_MOST ? bits : QUANT_SCALE_MOST);
}

/* Floats as they are. */
static inline void store_f32s(uint8_t *bytes, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        store_u32(bytes + i * sizeof bits, bits);
    }
}

static inline void load_f32s(float *x, const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = load_u32(bytes + i * sizeof bits);
        memcpy(&x[i], &bits, sizeof bits);
    }
}
