/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as payloads of two members: no harm, the same answer from every set of kernels, results that are
 * finite; and the same bytes as numbers: what is coded decodes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/coder.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define COUNT_MAX   (2 * CODER_BLOCK + 77)
#define PAYLOAD_MAX (PART_HEADER_LEN + 4 * COUNT_MAX + 64)

static const struct codec codecs[] = {
    {.kind = CODEC_NONE},
    {.kind = CODEC_FP16},
    {.kind = CODEC_BF16},
    {.kind = CODEC_INT8},
    {.kind = CODEC_INT8, .stochastic = true},
    {.kind = CODEC_ONEBIT},
    {.kind = CODEC_TOPK, .ratio = 0.02, .chunk = 64},
    {.kind = CODEC_TOPK, .ratio = 0.01, .chunk = 8192, .values = VALUES_INT8},
    {.kind = CODEC_TOPK, .ratio = 0.3, .chunk = 4096, .values = VALUES_BF16},
};

static float results[2][COUNT_MAX], left[COUNT_MAX];

static int decode(const struct codec *codec, const uint8_t *payload, const char *set, size_t count,
                  float *out)
{
    const uint8_t *const both[] = {payload, payload};
    struct payloads payloads = {2, both};
    struct coder_out to = {out, HEARTH_F32, 2};
    struct error error = {0};
    const struct kernels *kernels = set ? kernels_named(set) : kernels_best();
    int status = coder_decode(codec, kernels, &payloads, &to, count, &error);
    if (status != HEARTH_OK && status != HEARTH_POISONED && (status != HEARTH_PROTOCOL || error.rank != 0))
        abort();
    return status;
}

/* Foreign bytes. */
static void take(const struct codec *codec, const uint8_t *payload, size_t count)
{
    static uint8_t target[PAYLOAD_MAX];
    const uint8_t *const both[] = {payload, payload};
    struct payloads payloads = {2, both};
    struct feed owner = {.dtype = HEARTH_F32, .e_new = left, .gain = 1};
    struct error error = {0};
    int status = decode(codec, payload, NULL, count, results[0]);
    if (status != decode(codec, payload, "scalar", count, results[1]))
        abort();
    int merged =
        coder_merge(codec, kernels_best(), &payloads, &(struct coder_owner){&owner, count, target}, &error);
    if (merged != (status == HEARTH_POISONED ? HEARTH_OK : status))
        abort();
    if (status != HEARTH_OK)
        return;
    if (memcmp(results[0], results[1], count * sizeof(float)) != 0)
        abort();
    for (size_t i = 0; i < count; i++)
        if (!isfinite(results[0][i]))
            abort();
}

/* The bytes as numbers. */
static void give(const struct codec *codec, const uint8_t *bytes, size_t count)
{
    static uint8_t payload[PAYLOAD_MAX];
    static float x[COUNT_MAX];
    struct feed feed = {.dtype = HEARTH_F32, .x = x, .e_new = left, .gain = 1};
    memcpy(x, bytes, count * sizeof *x);
    int status = coder_encode(codec, kernels_best(), &feed, 0, count, payload);
    if (status != HEARTH_OK && status != HEARTH_POISONED)
        abort();
    int decoded = decode(codec, payload, NULL, count, results[0]);
    if (decoded != HEARTH_OK && decoded != HEARTH_POISONED) /* twice a large number is beyond f32 */
        abort();
    for (size_t i = 0; status == HEARTH_OK && decoded == HEARTH_OK && i < count; i++)
        if (left[i] != x[i] - results[0][i])
            abort();
}

/* Codec, count (two bytes), then the payload; what is missing is 0. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static uint8_t padded[PAYLOAD_MAX];
    if (len < 3)
        return 0;
    const struct codec *codec = &codecs[bytes[0] % (sizeof codecs / sizeof *codecs)];
    size_t count = ((size_t)bytes[1] | (size_t)bytes[2] << 8) % (COUNT_MAX + 1);
    size_t have = len - 3 < PAYLOAD_MAX ? len - 3 : PAYLOAD_MAX;
    if (coder_len(codec, count) > PAYLOAD_MAX)
        abort();
    memset(padded, 0, sizeof padded);
    memset(left, 0, sizeof left);
    memcpy(padded, bytes + 3, have);
    take(codec, padded, count);
    give(codec, padded, count);
    return 0;
}
