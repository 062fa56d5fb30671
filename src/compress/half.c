/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 and fp16. bf16 has the range of f32 and needs no scale. f16 has not: each sub-block has a power of two
 * that brings its largest number to [2^14, 2^15), where rounding cannot overflow and where all down to a
 * 2^28th of it keep their 11 bits. */
#include "compress/block.h"
#include "compress/scale.h"

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

const struct block_codec block_bf16 = {
    .len = bf16_len, .encode = bf16_block_encode, .decode = bf16_block_decode};
const struct block_codec block_fp16 = {
    .len = fp16_len, .encode = fp16_block_encode, .decode = fp16_block_decode};
