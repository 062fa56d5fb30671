/* SPDX-License-Identifier: Apache-2.0 */
/* The largest of each chunk: a block is a chunk. Its bytes are those of a list of chosen elements (sparse.h),
 * made and read a piece at a time. */
#include <assert.h>
#include <string.h>

#include "compress/block.h"
#include "compress/choose.h"
#include "compress/elias.h"
#include "compress/sparse.h"
#include "compress/values.h"

/* What the bytes of a chunk are made of. */
struct topk_layout {
    struct elias elias;
    struct values values;
    size_t values_at;
};

static inline void layout_init(struct topk_layout *layout, const struct block_context *context, size_t count)
{
    const struct codec *codec = context->codec;
    if (count == codec->chunk)
        layout->elias = context->whole;
    else
        layout->elias = elias_of(codec_keeps(codec, count), count);
    layout->values = (struct values){codec->values, context->kernels, layout->elias.keep};
    layout->values_at = layout->elias.low_len + layout->elias.high_len;
}

static size_t topk_len(const struct codec *codec, size_t count)
{
    return sparse_len(codec, codec_keeps(codec, count), count);
}

static void topk_encode(const struct block_context *context, float *acc, size_t count, uint8_t *bytes)
{
    struct topk_layout layout;
    struct chosen chosen;
    float value[VALUES_PIECE];
    assert(count >= 1 && count <= CODER_BLOCK_MAX);
    layout_init(&layout, context, count);
    choose_block(context, acc, count, layout.elias.keep, &chosen);
    memset(bytes + layout.elias.low_len, 0, layout.elias.high_len);
    for (size_t from = 0, number; from < layout.elias.keep; from += number) {
        number = piece_of(from, layout.elias.keep);
        const uint32_t *index = chosen_next(&chosen, number);
        for (size_t i = 0; i < number; i++)
            value[i] = acc[index[i]];
        elias_encode(&layout.elias, index, from, number, bytes);
        values_encode(&layout.values, value, from, number, bytes + layout.values_at);
        for (size_t i = 0; i < number; i++)
            acc[index[i]] = value[i];
    }
}

static bool topk_decode(const struct block_context *context, const uint8_t *bytes, size_t count, float *x,
                        enum block_mode mode)
{
    struct topk_layout layout;
    layout_init(&layout, context, count);
    struct elias_reader reader = {.elias = layout.elias, .bytes = bytes};
    uint32_t index[VALUES_PIECE];
    float value[VALUES_PIECE];
    if (mode == BLOCK_SET)
        memset(x, 0, count * sizeof *x);
    for (size_t from = 0, number; from < layout.elias.keep; from += number) {
        number = piece_of(from, layout.elias.keep);
        if (!elias_read(&reader, index, number) ||
            !values_decode(&layout.values, bytes + layout.values_at, from, number, value))
            return false;
        for (size_t i = 0; i < number; i++)
            x[index[i]] += value[i];
    }
    return elias_ends(&reader);
}

const struct block_codec block_topk = {topk_len, topk_encode, topk_decode};
