/* SPDX-License-Identifier: Apache-2.0 */
/* none: f32 as they are. */
#include "compress/block.h"
#include "core/bytes.h"

static size_t raw_len(const struct codec *codec, size_t count)
{
    (void)codec;
    return count * sizeof(float);
}

static void raw_encode(const struct block_context *context, float *acc, size_t count, uint8_t *bytes)
{
    (void)context;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &acc[i], sizeof bits);
        store_u32(bytes + i * sizeof bits, bits);
        acc[i] = 0;
    }
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

const struct block_codec block_none = {.len = raw_len, .encode = raw_encode, .decode = raw_decode};
