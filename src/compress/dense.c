/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs that send every element, block by block. Where there are scales, sub-blocks of 256 have one each.
 *
 *   none    f32 as they are.
 *   bf16    has the range of f32 and needs no scale.
 *   fp16    has not: each sub-block has a power of two that brings its largest number to [2^14, 2^15), where
 *           rounding cannot overflow and where all down to a 2^28th of it keep their 11 bits.
 *   int8    the scale is the largest magnitude / 127 rounded up to a bf16, elements are integers -127..127.
 *           An integer of 7 bits times a scale of 8 is exact in f32, so what is left is rounded once. Scales
 *           have a floor, the least normal number: below half of it all goes to the residual. Rounded to
 *           nearest even, or at random (stochastic): then a hash of the key and of the element's index is
 *           added before rounding, so that threads and widths of registers change nothing.
 *   onebit  the signs, and the mean magnitude as a bf16. It lives by error feedback. */
#include "compress/block.h"
#include "compress/scale.h"

#define MEAN_MOST 0x7f7fu /* the largest finite bf16 */

/* ---- none ---- */

static size_t raw_len(const struct codec *codec, size_t count)
{
    (void)codec;
    return count * sizeof(float);
}

static void raw_encode(const struct block_context *context, float *acc, size_t count, uint8_t *bytes)
{
    (void)context;
    store_f32s(bytes, acc, count);
    memset(acc, 0, count * sizeof *acc);
}

static bool raw_decode(const struct block_context *context, const uint8_t *bytes, size_t count, float *x,
                       enum block_mode mode)
{
    (void)context;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = load_u32(bytes + i * sizeof bits);
        float value;
        memcpy(&value, &bits, sizeof value);
        x[i] = mode == BLOCK_ADD ? x[i] + value : value;
    }
    return true;
}

const struct block_codec block_none = {raw_len, raw_encode, raw_decode};

/* ---- bf16 and fp16 ---- */

static size_t bf16_len(const struct codec *codec, size_t count)
{
    (void)codec;
    return count * 2;
}

static void bf16_block_encode(const struct block_context *context, float *acc, size_t count, uint8_t *bytes)
{
    for (size_t at = 0; at < count; at += QUANT_BLOCK) {
        size_t span = scale_span(count, at);
        block_ahead(context, at, span);
        context->kernels->quant->bf16_encode(acc + at, span, bytes + at * 2, context->keep);
    }
}

static bool bf16_block_decode(const struct block_context *context, const uint8_t *bytes, size_t count,
                              float *x, enum block_mode mode)
{
    context->kernels->quant->bf16_decode(bytes, count, x, mode == BLOCK_ADD);
    return true;
}

static size_t fp16_len(const struct codec *codec, size_t count)
{
    (void)codec;
    return scale_count(count) + count * 2;
}

/* `largest`: bits of a finite f32. */
static int exponent_of(uint32_t largest)
{
    int exponent = (int)(largest >> 23) - 127 - 14;
    return exponent > QUANT_EXPONENT_LEAST ? exponent : QUANT_EXPONENT_LEAST;
}

static void fp16_block_encode(const struct block_context *context, float *acc, size_t count, uint8_t *bytes)
{
    const struct quant_kernels *quant = context->kernels->quant;
    uint8_t *codes = bytes + scale_count(count);
    for (size_t at = 0; at < count; at += QUANT_BLOCK) {
        size_t span = scale_span(count, at);
        block_ahead(context, at, span);
        int exponent = exponent_of(quant->largest(acc + at, span));
        bytes[at / QUANT_BLOCK] = (uint8_t)exponent;
        quant->fp16_encode(acc + at, span, exponent, codes + at * 2, context->keep);
    }
}

static bool fp16_block_decode(const struct block_context *context, const uint8_t *bytes, size_t count,
                              float *x, enum block_mode mode)
{
    const uint8_t *codes = bytes + scale_count(count);
    for (size_t at = 0; at < count; at += QUANT_BLOCK) {
        int exponent = (int8_t)bytes[at / QUANT_BLOCK];
        if (exponent < QUANT_EXPONENT_LEAST || exponent > QUANT_EXPONENT_MOST)
            return false;
        context->kernels->quant->fp16_decode(codes + at * 2, scale_span(count, at), exponent, x + at,
                                             mode == BLOCK_ADD);
    }
    return true;
}

const struct block_codec block_bf16 = {bf16_len, bf16_block_encode, bf16_block_decode};
const struct block_codec block_fp16 = {fp16_len, fp16_block_encode, fp16_block_decode};

/* ---- int8 ---- */

static size_t int8_len(const struct codec *codec, size_t count)
{
    (void)codec;
    return scale_count(count) * 2 + count;
}

/* Of the sub-block whose first element is `first` of the tensor. */
static struct dither dither_of(uint64_t key, uint64_t first)
{
    uint64_t hash = key ^ first * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
    hash ^= hash >> 31;
    return (struct dither){.seed = {(uint32_t)hash, (uint32_t)(hash >> 32)}};
}

static void int8_block_encode(const struct block_context *context, float *acc, size_t count, uint8_t *bytes)
{
    const struct quant_kernels *quant = context->kernels->quant;
    uint8_t *codes = bytes + scale_count(count) * 2;
    for (size_t at = 0; at < count; at += QUANT_BLOCK) {
        size_t span = scale_span(count, at);
        block_ahead(context, at, span);
        uint16_t scale = scale_of(quant->largest(acc + at, span));
        struct dither dither = {0};
        if (context->codec->stochastic)
            dither = dither_of(context->key, context->first + at);
        store_u16(bytes + at / QUANT_BLOCK * 2, scale);
        quant->int8_encode(acc + at, span, scale_value(scale), context->codec->stochastic ? &dither : NULL,
                           codes + at, context->keep);
    }
}

static bool int8_block_decode(const struct block_context *context, const uint8_t *bytes, size_t count,
                              float *x, enum block_mode mode)
{
    const uint8_t *codes = bytes + scale_count(count) * 2;
    for (size_t at = 0; at < count; at += QUANT_BLOCK) {
        uint16_t scale = load_u16(bytes + at / QUANT_BLOCK * 2);
        if (scale > QUANT_SCALE_MOST) /* negative, infinite and NaN too */
            return false;
        context->kernels->quant->int8_decode(codes + at, scale_span(count, at), scale_value(scale), x + at,
                                             mode == BLOCK_ADD);
    }
    return true;
}

const struct block_codec block_int8 = {int8_len, int8_block_encode, int8_block_decode};

/* ---- onebit ---- */

static size_t onebit_len(const struct codec *codec, size_t count)
{
    (void)codec;
    return scale_count(count) * 2 + (count + 7) / 8;
}

static void onebit_block_encode(const struct block_context *context, float *acc, size_t count, uint8_t *bytes)
{
    uint8_t *codes = bytes + scale_count(count) * 2;
    for (size_t at = 0; at < count; at += QUANT_BLOCK) {
        size_t span = scale_span(count, at);
        block_ahead(context, at, span);
        uint16_t mean = context->kernels->quant->onebit_encode(acc + at, span, codes + at / 8, context->keep);
        store_u16(bytes + at / QUANT_BLOCK * 2, mean);
    }
}

static bool onebit_block_decode(const struct block_context *context, const uint8_t *bytes, size_t count,
                                float *x, enum block_mode mode)
{
    const uint8_t *codes = bytes + scale_count(count) * 2;
    if (count % 8 != 0 && codes[count / 8] >> count % 8 != 0)
        return false;
    for (size_t at = 0; at < count; at += QUANT_BLOCK) {
        uint16_t mean = load_u16(bytes + at / QUANT_BLOCK * 2);
        if (mean > MEAN_MOST) /* negative, infinite or NaN */
            return false;
        context->kernels->quant->onebit_decode(codes + at / 8, scale_span(count, at), scale_value(mean),
                                               x + at, mode == BLOCK_ADD);
    }
    return true;
}

const struct block_codec block_onebit = {onebit_len, onebit_block_encode, onebit_block_decode};
