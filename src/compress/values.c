/* SPDX-License-Identifier: Apache-2.0 */
/* f32 as it is; bf16 to nearest even, no further than the largest finite one; int8 as multiples of scales. */
#include "compress/values.h"

#include <assert.h>

#include "compress/load.h"
#include "core/bytes.h"

#define LEVELS     127
#define SCALE_MAX  UINT16_C(0x7c01) /* the largest bf16 of which LEVELS are finite */
#define FINITE_TOP UINT16_C(0x7f7f) /* the largest finite bf16 */

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static size_t scales_len(enum codec_values kind, size_t count)
{
    return kind == VALUES_INT8 ? (count + VALUES_PIECE - 1) / VALUES_PIECE * 2 : 0;
}

static size_t value_len(enum codec_values kind)
{
    static const size_t len[CODEC_VALUES_COUNT] = {[VALUES_F32] = 4, [VALUES_BF16] = 2, [VALUES_INT8] = 1};
    return len[kind];
}

size_t values_len(enum codec_values kind, size_t count)
{
    return scales_len(kind, count) + count * value_len(kind);
}

static void encode_f32(float *value, size_t number, uint8_t *bytes)
{
    for (size_t i = 0; i < number; i++) {
        store_u32(bytes + 4 * i, bits_of(value[i]));
        value[i] = 0.0f;
    }
}

static void encode_bf16(float *value, size_t number, uint8_t *bytes)
{
    for (size_t i = 0; i < number; i++) {
        uint32_t bits = bits_of(value[i]);
        uint32_t half = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        if ((half & 0x7fff) > FINITE_TOP)
            half = (half & 0x8000) | FINITE_TOP;
        store_u16(bytes + 2 * i, (uint16_t)half);
        value[i] -= from_bits(half << 16);
    }
}

/* Up, so that no quotient is above LEVELS; cut only near the largest f32, lest LEVELS of it overflow. */
static uint16_t scale_of(uint32_t largest)
{
    uint32_t scale = (bits_of(from_bits(largest) / LEVELS) + 0xffff) >> 16;
    return (uint16_t)(scale < SCALE_MAX ? scale : SCALE_MAX);
}

static void encode_int8(const struct kernels *kernels, float *value, size_t number, uint8_t *scale_bytes,
                        uint8_t *bytes)
{
    const float shift = 0x1.8p23f; /* here the last bit of an f32 counts ones */
    uint16_t half = scale_of(largest_bits(kernels, value, number));
    float scale = from_bits((uint32_t)half << 16);
    store_u16(scale_bytes, half);
    for (size_t i = 0; i < number; i++) {
        float quotient = half > 0 ? value[i] / scale : 0.0f;
        float whole = (quotient + shift) - shift;
        int level = (int)(whole > LEVELS ? LEVELS : whole < -LEVELS ? -LEVELS : whole);
        bytes[i] = (uint8_t)level;
        value[i] -= (float)level * scale;
    }
}

void values_encode(const struct values *values, float *value, size_t from, size_t number, uint8_t *bytes)
{
    uint8_t *to = bytes + scales_len(values->kind, values->count) + from * value_len(values->kind);
    assert(from % VALUES_PIECE == 0 && number <= VALUES_PIECE && from + number <= values->count);
    if (values->kind == VALUES_F32)
        encode_f32(value, number, to);
    else if (values->kind == VALUES_BF16)
        encode_bf16(value, number, to);
    else
        encode_int8(values->kernels, value, number, bytes + from / VALUES_PIECE * 2, to);
}

static bool decode_f32(const uint8_t *bytes, size_t number, float *value)
{
    bool bad = false;
    for (size_t i = 0; i < number; i++) {
        uint32_t bits = load_u32(bytes + 4 * i);
        bad |= (bits & UINT32_C(0x7fffffff)) > FINITE_MAX;
        value[i] = from_bits(bits);
    }
    return !bad;
}

static bool decode_bf16(const uint8_t *bytes, size_t number, float *value)
{
    bool bad = false;
    for (size_t i = 0; i < number; i++) {
        uint32_t half = load_u16(bytes + 2 * i);
        bad |= (half & 0x7fff) > FINITE_TOP;
        value[i] = from_bits(half << 16);
    }
    return !bad;
}

static bool decode_int8(const uint8_t *scale_bytes, const uint8_t *bytes, size_t number, float *value)
{
    uint16_t half = load_u16(scale_bytes);
    float scale = from_bits((uint32_t)half << 16);
    bool bad = half > SCALE_MAX;
    for (size_t i = 0; i < number; i++) {
        int level = (int8_t)bytes[i];
        bad |= level < -LEVELS;
        value[i] = (float)level * scale;
    }
    return !bad;
}

bool values_decode(const struct values *values, const uint8_t *bytes, size_t from, size_t number,
                   float *value)
{
    const uint8_t *at = bytes + scales_len(values->kind, values->count) + from * value_len(values->kind);
    if (values->kind == VALUES_F32)
        return decode_f32(at, number, value);
    if (values->kind == VALUES_BF16)
        return decode_bf16(at, number, value);
    return decode_int8(bytes + from / VALUES_PIECE * 2, at, number, value);
}
