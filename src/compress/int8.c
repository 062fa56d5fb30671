/* SPDX-License-Identifier: Apache-2.0 */
/* int8: each sub-block of 256 has a scale, the largest magnitude / 127 rounded up to a bf16, and each element
 * an integer of -127..127. An integer of 7 bits times a scale of 8 is exact in f32, so what is left is
 * rounded once. Scales have a floor, the least normal number: below half of it all goes to the residual.
 *
 * Rounded to nearest even, or at random (stochastic): then a hash of the key and of the element's index is
 * added before rounding, so that threads and widths of registers change nothing. */
#include "compress/block.h"
#include "compress/scale.h"

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

const struct block_codec block_int8 = {
    .len = int8_len, .encode = int8_block_encode, .decode = int8_block_decode};
