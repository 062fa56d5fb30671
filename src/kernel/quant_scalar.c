/* SPDX-License-Identifier: Apache-2.0 */
/* The definition of the kernels of quant.h: plain loops. */
#include "kernel/quant_element.h"

static uint32_t load_sum(float *acc, const float *x, const float *e, size_t count, float gain)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        acc[i] = e ? gain * load_f32(x, i) + load_f32(e, i) : gain * load_f32(x, i);
        uint32_t bits = f32_bits(acc[i]) & MAGNITUDE_BITS;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

static uint32_t largest_magnitude(const float *x, size_t count)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = f32_bits(x[i]) & MAGNITUDE_BITS;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

static void code_store(uint8_t *codes, size_t index, uint16_t code)
{
    codes[2 * index] = (uint8_t)code;
    codes[2 * index + 1] = (uint8_t)(code >> 8);
}

static uint16_t code_load(const uint8_t *codes, size_t index)
{
    return (uint16_t)(codes[2 * index] | codes[2 * index + 1] << 8);
}

static void bf16_encode(float *acc, size_t count, uint8_t *codes, bool keep)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = f32_bits(acc[i]), magnitude = bits & MAGNITUDE_BITS;
        magnitude = magnitude < BF16_MOST ? magnitude : BF16_MOST;
        uint16_t code = (uint16_t)((bits >> 31 << 15) | shift_nearest_even(magnitude, 16));
        code_store(codes, i, code);
        acc[i] = keep ? acc[i] : acc[i] - bf16_to_f32(code);
    }
}

static void bf16_decode(const uint8_t *codes, size_t count, float *x, bool add)
{
    for (size_t i = 0; i < count; i++) {
        float value = bf16_to_f32(code_load(codes, i));
        x[i] = add ? x[i] + value : value;
    }
}

static void fp16_encode(float *acc, size_t count, int exponent, uint8_t *codes, bool keep)
{
    float down = power_of_two(-exponent), up = power_of_two(exponent), limit = fp16_limit(exponent);
    for (size_t i = 0; i < count; i++) {
        float value = acc[i] * down;
        value = value < limit ? value : limit;
        value = value > -limit ? value : -limit;
        uint16_t code = f16_from_f32(value);
        code_store(codes, i, code);
        acc[i] = keep ? acc[i] : acc[i] - f16_to_f32(code) * up;
    }
}

static void fp16_decode(const uint8_t *codes, size_t count, int exponent, float *x, bool add)
{
    float up = power_of_two(exponent);
    for (size_t i = 0; i < count; i++) {
        float value = f16_to_f32(code_load(codes, i)) * up;
        x[i] = add ? x[i] + value : value;
    }
}

/* A number from -1/2 to 1/2, in steps of 2^-16, with mean 0: a hash of seeds and index. */
static float dither_at(const struct dither *dither, size_t i)
{
    uint32_t hash = (dither->index + (uint32_t)i) * UINT32_C(0x9e3779b9) + dither->seed[0];
    hash = (hash ^ hash >> 16) * UINT32_C(0x7feb352d) + dither->seed[1];
    hash = (hash ^ hash >> 15) * UINT32_C(0x846ca68b);
    return ((float)(int32_t)(hash >> 16) - 32767.5f) * 0x1p-16f;
}

static void int8_encode(float *acc, size_t count, float scale, const struct dither *dither, uint8_t *codes,
                        bool keep)
{
    float inverse = 1 / scale;
    for (size_t i = 0; i < count; i++) {
        float value = acc[i] * inverse;
        if (dither) {
            value += dither_at(dither, i);
            value = value < 127 ? value : 127;
            value = value > -127 ? value : -127;
        }
        float rounded = value + ROUNDER_F32;
        codes[i] = (uint8_t)(f32_bits(rounded) - ROUNDER_F32_BITS);
        acc[i] = keep ? acc[i] : acc[i] - (rounded - ROUNDER_F32) * scale;
    }
}

static void int8_decode(const uint8_t *codes, size_t count, float scale, float *x, bool add)
{
    for (size_t i = 0; i < count; i++) {
        float value = (float)(int8_t)codes[i] * scale;
        x[i] = add ? x[i] + value : value;
    }
}

static float signed_scale(uint32_t negative, float scale)
{
    return f32_from_bits(f32_bits(scale) | negative << 31);
}

static uint16_t onebit_encode(float *acc, size_t count, uint8_t *codes, bool keep)
{
    float lanes[ONEBIT_LANES] = {0};
    for (size_t i = 0; i < count; i++)
        lanes[i % ONEBIT_LANES] += f32_from_bits(f32_bits(acc[i]) & MAGNITUDE_BITS) * (1.0f / QUANT_BLOCK);
    uint16_t scale = onebit_scale(lanes, count);
    memset(codes, 0, (count + 7) / 8);
    for (size_t i = 0; i < count; i++) {
        uint32_t negative = f32_bits(acc[i]) >> 31;
        codes[i / 8] = (uint8_t)(codes[i / 8] | negative << i % 8);
        acc[i] = keep ? acc[i] : acc[i] - signed_scale(negative, bf16_to_f32(scale));
    }
    return scale;
}

static void onebit_decode(const uint8_t *codes, size_t count, float scale, float *x, bool add)
{
    for (size_t i = 0; i < count; i++) {
        float value = signed_scale(codes[i / 8] >> i % 8 & 1, scale);
        x[i] = add ? x[i] + value : value;
    }
}

const struct quant_kernels quant_scalar = {
    .load = load_sum,
    .largest = largest_magnitude,
    .bf16_encode = bf16_encode,
    .bf16_decode = bf16_decode,
    .fp16_encode = fp16_encode,
    .fp16_decode = fp16_decode,
    .int8_encode = int8_encode,
    .int8_decode = int8_decode,
    .onebit_encode = onebit_encode,
    .onebit_decode = onebit_decode,
};
