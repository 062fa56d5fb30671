/* SPDX-License-Identifier: Apache-2.0 */
/* A list that is accepted ascends below its count and encodes to the same indices; no bytes may do harm. */
#include <stdlib.h>
#include <string.h>

#include "compress/block.h"
#include "compress/sparse.h"
#include "core/bytes.h"

#define HEAD_LEN 7 /* kind of values, entries, elements */
#define KEEP_MAX 2000

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* Bytes of indices, before the values. */
static size_t indices_len(size_t keep, size_t count)
{
    struct codec f32 = {.kind = CODEC_TOPK, .values = VALUES_F32};
    return sparse_len(&f32, keep, count) - 4 * keep;
}

static void check(const struct codec *codec, struct sparse *list, size_t count, const uint8_t *bytes)
{
    size_t len = sparse_len(codec, list->count, count);
    for (size_t i = 0; i < list->count; i++)
        if (list->index[i] >= count || (i > 0 && list->index[i] <= list->index[i - 1]) ||
            !(list->value[i] - list->value[i] == 0))
            abort();
    uint8_t *again = malloc(len + 1);
    if (!again)
        return;
    sparse_encode(codec, kernels_best(), list, count, again);
    if (memcmp(again, bytes, indices_len(list->count, count)) != 0)
        abort();
    if (codec->values != VALUES_INT8 && memcmp(again, bytes, len) != 0)
        abort();
    free(again);
}

/* The same bytes as those of a chunk. */
static void decode_chunk(const struct codec *values, size_t keep, size_t count, const uint8_t *bytes)
{
    static float x[CODER_BLOCK];
    struct codec codec = *values;
    codec.ratio = (double)keep / (double)count;
    codec.chunk = CODER_BLOCK;
    struct block_context context = block_context_of(&codec, kernels_best());
    if (codec_keeps(&codec, count) == keep)
        (void)block_topk.decode(&context, bytes, count, x, BLOCK_SET);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static uint32_t index[KEEP_MAX];
    static float value[KEEP_MAX];
    struct sparse list = {.index = index, .value = value};
    struct error error;

    if (len < HEAD_LEN || bytes[0] >= CODEC_VALUES_COUNT)
        return 0;
    struct codec codec = {.kind = CODEC_TOPK, .values = (enum codec_values)bytes[0]};
    size_t keep = load_u16(bytes + 1), count = load_u32(bytes + 3);
    bytes += HEAD_LEN;
    if (keep > KEEP_MAX || keep > count || sparse_len(&codec, keep, count) != len - HEAD_LEN)
        return 0;
    list.count = keep;
    if (sparse_decode(&codec, kernels_best(), bytes, count, &list, &error) == 0)
        check(&codec, &list, count, bytes);
    if (keep > 0 && count <= CODER_BLOCK)
        decode_chunk(&codec, keep, count, bytes);
    return 0;
}
