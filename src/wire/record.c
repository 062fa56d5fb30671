/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes the payloads of control frames: layouts as in docs/wire.md. */
#include "wire/record.h"

#include <assert.h>
#include <string.h>

#include "wire/peer_codec.h"

/* ---- hello -------------------------------------------------------------------------------------------- */

size_t hello_encode(const struct hello_record *r, void *target, size_t size)
{
    struct writer w = writer_of(target, size);

    put_u16(&w, r->version_min);
    put_u16(&w, r->version_max);
    put_u32(&w, r->features);
    put_u32(&w, r->rank);
    put_u32(&w, r->size);
    put_u64(&w, r->instance);
    return writer_len(&w);
}

/* A longer hello comes from a later version: what it added is left unread. */
int hello_decode(struct hello_record *r, const void *source, size_t len)
{
    struct reader in = reader_of(source, len);
    struct hello_record hello;

    hello.version_min = get_u16(&in);
    hello.version_max = get_u16(&in);
    hello.features = get_u32(&in);
    hello.rank = get_u32(&in);
    hello.size = get_u32(&in);
    hello.instance = get_u64(&in);
    if (in.bad || hello.version_min == 0 || hello.version_min > hello.version_max)
        return HEARTH_PROTOCOL;
    if (hello.size > INT32_MAX || hello.rank >= hello.size)
        return HEARTH_PROTOCOL;
    *r = hello;
    return HEARTH_OK;
}

/* ---- call --------------------------------------------------------------------------------------------- */

static bool call_known(const struct call_record *r)
{
    return r->state == CALL_POSTED || r->state == CALL_ENDED;
}

size_t call_encode(const struct call_record *r, void *target, size_t size)
{
    static const uint8_t zeros[3];
    struct call_record call = {.state = r->state};
    struct writer w = writer_of(target, size);

    if (call_known(r))
        call = *r;
    put_u8(&w, call.state);
    put_u8(&w, call.kind);
    put_u8(&w, call.dtype);
    put_u8(&w, call.op);
    put_u8(&w, call.algo);
    put_bytes(&w, zeros, sizeof zeros);
    put_u32(&w, call.flags);
    put_u32(&w, (uint32_t)call.root);
    put_u64(&w, call.count);
    put_u64(&w, call.plan);
    put_u64(&w, call.fingerprint);
    return writer_len(&w);
}

static bool call_empty(const struct call_record *r)
{
    return (r->kind | r->dtype | r->op | r->algo) == 0 && r->flags == 0 && r->root == 0 && r->count == 0 &&
           r->plan == 0 && r->fingerprint == 0;
}

static bool call_good(const struct call_record *r)
{
    if (!call_known(r))
        return r->state <= CALL_PASSED && call_empty(r);
    return r->kind < CALL_KIND_COUNT && r->dtype < DTYPE_COUNT && r->op < OP_COUNT && r->algo < ALGO_COUNT &&
           r->root >= RANK_NONE;
}

int call_decode(struct call_record *r, const void *source, size_t len)
{
    struct reader in = reader_of(source, len);
    uint8_t zeros[3];
    struct call_record call;

    call.state = get_u8(&in);
    call.kind = get_u8(&in);
    call.dtype = get_u8(&in);
    call.op = get_u8(&in);
    call.algo = get_u8(&in);
    get_bytes(&in, zeros, sizeof zeros);
    call.flags = get_u32(&in);
    call.root = (int32_t)get_u32(&in);
    call.count = get_u64(&in);
    call.plan = get_u64(&in);
    call.fingerprint = get_u64(&in);
    if (in.bad || reader_left(&in) > 0 || (zeros[0] | zeros[1] | zeros[2]) != 0 || !call_good(&call))
        return HEARTH_PROTOCOL;
    if (!call_known(&call))
        call.root = RANK_NONE;
    *r = call;
    return HEARTH_OK;
}

/* ---- error -------------------------------------------------------------------------------------------- */

size_t error_encode(const struct error *e, void *target, size_t size)
{
    struct writer w = writer_of(target, size);

    assert(status_is_error(e->status) && e->rank >= RANK_NONE && e->origin >= RANK_NONE);
    put_u32(&w, (uint32_t)e->status);
    put_u32(&w, (uint32_t)e->reason);
    put_u32(&w, (uint32_t)e->rank);
    put_u32(&w, (uint32_t)e->origin);
    characters_put(&w, e->text, strnlen(e->text, ERROR_TEXT_MAX - 1));
    return writer_len(&w);
}

int error_decode(struct error *e, const void *source, size_t len)
{
    struct reader in = reader_of(source, len);
    struct error error = {.status = HEARTH_OK};

    error.status = (int32_t)get_u32(&in);
    uint32_t reason = get_u32(&in);
    error.rank = (int32_t)get_u32(&in);
    error.origin = (int32_t)get_u32(&in);
    if (in.bad || !status_is_error(error.status) || reason >= REASON_COUNT || error.rank < RANK_NONE ||
        error.origin < RANK_NONE || !characters_get(&in, error.text, reader_left(&in), sizeof error.text))
        return HEARTH_PROTOCOL;
    error.reason = (enum hearth_reason)reason;
    *e = error;
    return HEARTH_OK;
}
