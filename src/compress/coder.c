/* SPDX-License-Identifier: Apache-2.0 */
/* The part-wise coder: goes through a part block by block, in a scratch on the stack. */
#include "compress/coder.h"

#include <assert.h>
#include <math.h>
#include <stdalign.h>
#include <string.h>

#include "compress/block.h"
#include "compress/load.h"
#include "core/bytes.h"

#define ENERGY_EVERY         16 /* blocks */
#define CACHE_LINE           64
#define FAR_MIN              (UINT32_C(8) << 20) /* bytes of a payload that nobody will find in a cache */
#define FAR_BLOCK_MIN        1024u
#define FAR_BLOCK_MAX        (CODER_BLOCK * 2 + 256u)
#define DIVISOR_INVERTED_MAX 0x1p100f

const struct block_codec *block_codec_of(const struct codec *codec)
{
    static const struct block_codec *const codecs[CODEC_KIND_COUNT] = {
        [CODEC_NONE] = &block_none, [CODEC_FP16] = &block_fp16,     [CODEC_BF16] = &block_bf16,
        [CODEC_INT8] = &block_int8, [CODEC_ONEBIT] = &block_onebit, [CODEC_TOPK] = &block_topk,
    };
    assert(codecs[codec->kind]);
    return codecs[codec->kind];
}

struct block_context block_context_of(const struct codec *codec, const struct kernels *kernels)
{
    struct block_context context = {.codec = codec, .kernels = kernels};
    if (codec->kind == CODEC_TOPK)
        context.whole = elias_of(codec_keeps(codec, codec->chunk), codec->chunk);
    return context;
}

void block_ahead(const struct block_context *context, size_t at, size_t count)
{
    const int shift = __builtin_ctzl(coder_block(context->codec)); /* a power of two */
    for (int i = 0; i < AHEAD_MAX; i++) {
        const struct ahead *ahead = &context->ahead[i];
        size_t end = ahead->len * (at + count) >> shift;
        for (size_t line = ahead->len * at >> shift; line < end; line += CACHE_LINE)
            __builtin_prefetch((const char *)ahead->from + line, 0, 2);
    }
}

size_t coder_block(const struct codec *codec)
{
    return codec->kind == CODEC_TOPK ? codec->chunk : CODER_BLOCK;
}

size_t coder_len(const struct codec *codec, size_t count)
{
    const struct block_codec *blocks = block_codec_of(codec);
    size_t block = coder_block(codec), rest = count % block;
    return PART_HEADER_LEN + count / block * blocks->len(codec, block) +
           (rest > 0 ? blocks->len(codec, rest) : 0);
}

/* One run over a part. What it does not need is NULL. */
struct pass {
    struct block_context context;
    const struct feed *feed;
    const struct payloads *payloads;
    const struct coder_out *out;
    size_t first, count;
    uint8_t *target;
    struct error *error;
};

/* `scratch` has room for a block. */
typedef int pass_work(const struct pass *pass, float *scratch);

/* Never inlined: the stack of the long one is large, and only long chunks are to pay for it. */
static __attribute__((noinline)) int pass_short(const struct pass *pass, pass_work *work)
{
    _Alignas(64) float scratch[CODER_BLOCK];
    return work(pass, scratch);
}

static __attribute__((noinline)) int pass_long(const struct pass *pass, pass_work *work)
{
    _Alignas(64) float scratch[CODER_BLOCK_MAX];
    return work(pass, scratch);
}

static int pass_run(const struct pass *pass, pass_work *work)
{
    size_t block = coder_block(pass->context.codec);
    assert(block <= CODER_BLOCK_MAX);
    assert(pass->context.codec->kind != CODEC_TOPK || pass->first % block == 0 || pass->count == 0);
    return block <= CODER_BLOCK ? pass_short(pass, work) : pass_long(pass, work);
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- encode -------------------------------------------------------------------------------------------- */

/* The block behind the one that begins at element `at` of the part. Nothing if it is not whole. */
static void look_ahead(struct block_context *context, const struct pass *pass, size_t at,
                       const uint8_t *bytes, size_t len)
{
    const struct feed *feed = pass->feed;
    const size_t block = coder_block(context->codec), next = at + block;
    size_t size = dtype_size(feed->dtype), step = residual_size(feed->dtype);
    memset(context->ahead, 0, sizeof context->ahead);
    if (pass->count - at < 2 * block)
        return;
    context->ahead[0] = (struct ahead){(const char *)feed->x + next * size, block * size};
    context->ahead[1] = (struct ahead){bytes + len, len};
    if (feed->e)
        context->ahead[2] = (struct ahead){(const char *)feed->e + next * step, block * step};
}

/* Whether the blocks of a payload go past the caches, as memcpy would let them. Not beside a residual: two
 * such streams at a time gain nothing. */
static bool goes_far(const struct pass *pass, size_t whole)
{
    return !pass->feed->e_new && whole >= FAR_BLOCK_MIN && whole <= FAR_BLOCK_MAX &&
           pass->count / coder_block(pass->context.codec) >= FAR_MIN / whole;
}

/* A payload on its way past the caches: only whole lines go, the rest waits for the next block. */
struct far {
    uint8_t *to;
    size_t held;
    _Alignas(CACHE_LINE) uint8_t bytes[CACHE_LINE + FAR_BLOCK_MAX];
};

/* After a block of this length was written behind what is held. */
static void far_send(struct far *far, const struct kernels *kernels, size_t len)
{
    size_t all = far->held + len, rest = ((uintptr_t)far->to + all) % CACHE_LINE;
    kernels->stream(far->to, far->bytes, all - rest);
    memcpy(far->bytes, far->bytes + (all - rest), rest);
    far->to += all - rest;
    far->held = rest;
}

static int encode_blocks(const struct pass *pass, float *acc)
{
    struct block_context context = pass->context;
    const struct block_codec *blocks = block_codec_of(context.codec);
    const size_t block = coder_block(context.codec), whole = blocks->len(context.codec, block);
    const bool goes = goes_far(pass, whole);
    struct far far = {.to = pass->target + PART_HEADER_LEN};
    size_t offset = PART_HEADER_LEN;
    uint32_t level = 0;
    int status = HEARTH_OK;
    context.level = &level;
    for (size_t at = 0; at < pass->count; at += block, offset += whole) {
        size_t count = min_size(block, pass->count - at);
        uint8_t *bytes = pass->target + offset;
        bool measure = pass->feed->energy && (pass->first + at) / block % ENERGY_EVERY == 0;
        if (load_block(context.kernels, pass->feed, at, count, acc) > FINITE_MAX) {
            status = HEARTH_POISONED;
            memset(acc, 0, count * sizeof *acc);
        }
        if (measure)
            pass->feed->energy->before += squares(HEARTH_F32, acc, 0, count);
        context.first = pass->first + at;
        context.keep = !pass->feed->e_new && !measure;
        look_ahead(&context, pass, at, bytes, goes ? 0 : whole);
        blocks->encode(&context, acc, count, goes ? far.bytes + far.held : bytes);
        if (goes)
            far_send(&far, context.kernels, count == block ? whole : blocks->len(context.codec, count));
        if (measure)
            pass->feed->energy->after += squares(HEARTH_F32, acc, 0, count);
        stream_block(context.kernels, pass->feed, at, count, acc);
    }
    memcpy(far.to, far.bytes, far.held);
    context.kernels->stream_end();
    return status;
}

int coder_encode(const struct codec *codec, const struct kernels *kernels, const struct feed *feed,
                 size_t first, size_t count, uint8_t *payload)
{
    struct pass pass = {.context = block_context_of(codec, kernels),
                        .feed = feed,
                        .first = first,
                        .count = count,
                        .target = payload};
    pass.context.key = feed->key;
    store_u64(payload, 0);
    return pass_run(&pass, encode_blocks);
}

/* ---- sums of payloads ---------------------------------------------------------------------------------- */

/* Whether one of them says that its sum was beyond f32. */
static int headers_check(const struct payloads *payloads, bool *overflows, struct error *error)
{
    *overflows = false;
    for (int i = 0; i < payloads->count; i++) {
        uint64_t flags = load_u64(payloads->bytes[i]);
        if (flags & ~(uint64_t)PART_OVERFLOWS)
            return error_set(error, HEARTH_PROTOCOL, i, "compressed part %d: unknown flags 0x%llx", i,
                             (unsigned long long)flags);
        *overflows = *overflows || flags != 0;
    }
    return HEARTH_OK;
}

/* sum = of the payloads' blocks that begin at element `at` and at byte `offset`. HEARTH_POISONED: it is
 * beyond f32. */
static int sum_block(const struct pass *pass, size_t at, size_t offset, size_t count, float *sum)
{
    const struct block_codec *blocks = block_codec_of(pass->context.codec);
    for (int i = 0; i < pass->payloads->count; i++)
        if (!blocks->decode(&pass->context, pass->payloads->bytes[i] + offset, count, sum,
                            i == 0 ? BLOCK_SET : BLOCK_ADD))
            return error_set(pass->error, HEARTH_PROTOCOL, i,
                             "compressed part %d: malformed block of %zu elements at element %zu", i, count,
                             at);
    return pass->context.kernels->quant->largest(sum, count) > FINITE_MAX ? HEARTH_POISONED : HEARTH_OK;
}

static int merge_blocks(const struct pass *pass, float *sum)
{
    struct block_context context = pass->context;
    const struct block_codec *blocks = block_codec_of(context.codec);
    const size_t block = coder_block(context.codec), whole = blocks->len(context.codec, block);
    size_t offset = PART_HEADER_LEN;
    for (size_t at = 0; at < pass->count; at += block, offset += whole) {
        size_t count = min_size(block, pass->count - at);
        int status = sum_block(pass, at, offset, count, sum);
        if (status != HEARTH_OK)
            return status;
        context.first = at;
        context.keep = !pass->feed->e_new;
        blocks->encode(&context, sum, count, pass->target + offset);
        add_left(context.kernels, pass->feed, at, count, sum);
    }
    return HEARTH_OK;
}

int coder_merge(const struct codec *codec, const struct kernels *kernels, const struct payloads *payloads,
                const struct coder_owner *owner, struct error *error)
{
    struct pass pass = {.context = block_context_of(codec, kernels),
                        .feed = owner->feed,
                        .payloads = payloads,
                        .count = owner->count,
                        .target = owner->target,
                        .error = error};
    bool overflows;
    int status = headers_check(payloads, &overflows, error);
    pass.context.key = owner->feed->key;
    if (status == HEARTH_OK)
        status = overflows ? HEARTH_POISONED : pass_run(&pass, merge_blocks);
    if (status == HEARTH_PROTOCOL)
        return status;
    if (status == HEARTH_POISONED)
        memset(owner->target, 0, coder_len(codec, owner->count));
    store_u64(owner->target, status == HEARTH_POISONED ? PART_OVERFLOWS : 0);
    return HEARTH_OK;
}

/* ---- decode -------------------------------------------------------------------------------------------- */

/* Where a block's sum is made: an f32 tensor itself, which is written but once that way; else the scratch. */
static float *sum_place(const struct coder_out *out, size_t at, float *scratch)
{
    bool fits = out->dtype == HEARTH_F32 && (uintptr_t)out->out % alignof(float) == 0;
    return fits ? (float *)out->out + at : scratch;
}

static void out_store(const struct pass *pass, size_t at, size_t count, const float *sum)
{
    const struct coder_out *out = pass->out;
    if (out->dtype == HEARTH_F64) {
        for (size_t i = 0; i < count; i++)
            ((double *)out->out)[at + i] = (double)sum[i];
        return;
    }
    uint8_t *to = (uint8_t *)out->out + at * dtype_size(out->dtype);
    pass->context.kernels->narrow(out->dtype, to, sum, count);
}

/* A power of two has an exact inverse, and to multiply is faster and gives the same bits. */
static void divide(const struct kernels *kernels, float *x, size_t count, float divisor)
{
    int exponent;
    if (divisor == 1.0f)
        return;
    if (divisor <= DIVISOR_INVERTED_MAX && frexpf(divisor, &exponent) == 0.5f)
        kernels->multiply(HEARTH_F32, x, count, 1.0 / (double)divisor);
    else
        kernels->divide(HEARTH_F32, x, count, (double)divisor);
}

static int decode_blocks(const struct pass *pass, float *scratch)
{
    const struct codec *codec = pass->context.codec;
    const struct block_codec *blocks = block_codec_of(codec);
    const size_t block = coder_block(codec), whole = blocks->len(codec, block);
    size_t offset = PART_HEADER_LEN;
    for (size_t at = 0; at < pass->count; at += block, offset += whole) {
        size_t count = min_size(block, pass->count - at);
        float *sum = sum_place(pass->out, at, scratch);
        int status = sum_block(pass, at, offset, count, sum);
        if (status != HEARTH_OK)
            return status;
        divide(pass->context.kernels, sum, count, pass->out->divisor);
        if (sum == scratch)
            out_store(pass, at, count, sum);
    }
    return HEARTH_OK;
}

int coder_decode(const struct codec *codec, const struct kernels *kernels, const struct payloads *payloads,
                 const struct coder_out *out, size_t count, struct error *error)
{
    struct pass pass = {.context = block_context_of(codec, kernels),
                        .payloads = payloads,
                        .out = out,
                        .count = count,
                        .error = error};
    bool overflows;
    int status = headers_check(payloads, &overflows, error);
    if (status != HEARTH_OK)
        return status;
    return overflows ? HEARTH_POISONED : pass_run(&pass, decode_blocks);
}
