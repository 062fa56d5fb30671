/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs of users, by all_gather: all tell how long their payloads are, each payload goes to all, and each
 * member adds what they decode to in rank order. The buffer is written only when everything has been found
 * good. */
#include <string.h>

#include "compress/load.h"
#include "compress/user_codec.h"
#include "core/hash.h"
#include "gradient/codec_pool.h"

enum { USER_ENCODE, USER_LENGTHS, USER_GATHER, USER_SUM, USER_DONE };

struct user {
    int stage;
    int status; /* of the last one */
    struct sub sub;
    struct user_work own;
    struct energy energy;
    uint64_t *lengths; /* [size], as they travel */
    size_t *counts;    /* [size], checked */
    uint8_t *all, *at; /* payloads one after the other, and the next that is added */
    int added;         /* payloads of which the sum is; it stands in own.values */
};

static int user_open(struct reduction *r)
{
    size_t count = r->call.count, size = (size_t)r->size, bound = user_bound(&r->call.codec, count);
    struct user *u = reduction_take(r, sizeof *u);
    float *values = reduction_take(r, 2 * count * sizeof *values);
    uint8_t *bytes = reduction_take(r, bound + USER_GUARD_LEN);
    uint64_t *lengths = reduction_take(r, size * (sizeof *lengths + sizeof *u->counts));
    if (!u || !values || !bytes || !lengths)
        return r->error.status;
    *u = (struct user){
        .own = {.count = count, .bound = bound, .values = values, .decoded = values + count, .bytes = bytes},
        .lengths = lengths,
        .counts = (size_t *)(void *)(lengths + size),
    };
    r->work = u;
    return HEARTH_OK;
}

static void user_close(struct reduction *r, bool failed)
{
    struct user *u = r->work;
    (void)failed; /* the buffer is written by publish only */
    sub_cancel(r, &u->sub);
}

/* ---- ours, to all ---- */

static int encode_own(struct reduction *r, struct user *u)
{
    struct feed feed = reduction_feed(r);
    struct error why;
    size_t len = 0;
    feed.energy = &u->energy;
    int status = user_encode(&r->call.codec, r->kernels, &feed, &u->own, &len, &why);
    if (status == HEARTH_POISONED) /* it has encoded zeros; the vote tells all */
        atomic_store(&r->poisoned, true);
    else if (status != HEARTH_OK)
        return error_set(&r->error, status, group_rank(r->call.group->group), "%s", why.text);
    r->energy = u->energy;
    u->lengths[r->rank] = len;
    r->sent_bytes += (sizeof *u->lengths + len) * (size_t)(r->size - 1);
    u->stage = USER_LENGTHS;
    return sub_all_gather(r, &u->sub, u->lengths, sizeof *u->lengths, SUB_FIRST);
}

/* What a member says may be anything; our bound is the limit. */
static int gather_start(struct reduction *r, struct user *u)
{
    size_t total = 0;
    for (int i = 0; i < r->size; i++) {
        if (u->lengths[i] > u->own.bound)
            return reduction_blame(r, i, "its payload is longer than the codec's bound");
        u->counts[i] = (size_t)u->lengths[i];
        total += u->counts[i];
    }
    u->all = u->at = reduction_take(r, total);
    if (!u->all)
        return r->error.status;
    struct call call = {.kind = PLAN_ALL_GATHER,
                        .source = u->own.bytes,
                        .target = u->all,
                        .out_counts = u->counts,
                        .dtype = HEARTH_U8};
    u->stage = USER_GATHER;
    return sub_start(r, r->hidden, &u->sub, &call, SUB_SECOND);
}

/* ---- the sum ---- */

/* The payload of one member more. Its key is made as it made it. */
static int add_next(struct reduction *r, struct user *u)
{
    int from = u->added++;
    size_t count = u->own.count;
    struct user_payload payload = {
        .bytes = u->at, .len = u->counts[from], .count = count, .key = hash_mix(r->key, (uint64_t)from)};
    struct error why;
    float *sum = u->own.values, *decoded = from == 0 ? sum : u->own.decoded;
    int status = user_decode(&r->call.codec, r->kernels, &payload, decoded, &why);
    if (status == HEARTH_PROTOCOL)
        return reduction_blame(r, from, why.text);
    if (status != HEARTH_OK)
        return error_set(&r->error, status, group_rank(r->call.group->group), "%s", why.text);
    if (from > 0)
        r->kernels->reduce(HEARTH_F32, KERNEL_SUM, sum, sum, decoded, count);
    u->at += payload.len;
    u->stage = u->added < r->size ? USER_SUM : USER_DONE;
    if (u->stage == USER_DONE && r->kernels->quant->largest(sum, count) > FINITE_MAX)
        return reduction_poison(r);
    return HEARTH_OK;
}

/* ---- in order ---- */

static void next_stage(void *arg, size_t piece)
{
    struct reduction *r = arg;
    struct user *u = r->work;
    (void)piece; /* it is one */
    if (u->stage == USER_ENCODE)
        u->status = encode_own(r, u);
    else
        u->status = u->stage == USER_LENGTHS ? gather_start(r, u) : add_next(r, u);
}

static enum step user_step(struct reduction *r)
{
    struct user *u = r->work;
    if (u->stage == USER_DONE)
        return STEP_DONE;
    bool waits = u->stage == USER_LENGTHS || u->stage == USER_GATHER;
    enum step step = waits ? sub_await(r, &u->sub) : STEP_DONE;
    if (step != STEP_DONE)
        return step;
    if (u->stage == USER_ENCODE || u->stage == USER_LENGTHS)
        reduction_compress(r, next_stage, r, 1);
    else
        reduction_expand(r, next_stage, r, 1);
    return step_of(u->status);
}

static void user_publish(struct reduction *r)
{
    struct user *u = r->work;
    if (r->divisor != 1.0f)
        r->kernels->divide(HEARTH_F32, u->own.values, u->own.count, (double)r->divisor);
    put_block(r->kernels, r->call.dtype, r->call.buffer, 0, u->own.count, u->own.values);
    r->kernels->stream_end();
}

static size_t user_memory(const struct reduction_call *call, int size)
{
    size_t bound = user_bound(&call->codec, call->count);
    return 2 * call->count * sizeof(float) + bound * (1 + (size_t)size) + USER_GUARD_LEN +
           (size_t)size * (sizeof(uint64_t) + sizeof(size_t)) + sizeof(struct user);
}

const struct method method_user = {
    .open = user_open,
    .step = user_step,
    .publish = user_publish,
    .close = user_close,
    .memory = user_memory,
};
