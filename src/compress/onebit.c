/* SPDX-License-Identifier: Apache-2.0 */
/* onebit: the signs, and for each sub-block of 256 the mean magnitude as a bf16. It lives by error
 * feedback. */
#include "compress/block.h"
#include "compress/scale.h"

#define MEAN_MOST 0x7f7fu /* the largest finite bf16 */

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

const struct block_codec block_onebit = {
    .len = onebit_len, .encode = onebit_block_encode, .decode = onebit_block_decode};
