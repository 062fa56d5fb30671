/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the consensus as bytes: docs/cluster_messages.md. */
#include "membership/consensus_state.h"

void beat_put(struct writer *w, const struct beat *b)
{
    put_u64(w, b->stamp_ns);
    put_u64(w, b->echo_ns);
    put_u64(w, b->hold_ns);
    put_u64(w, b->instance);
    put_u64(w, b->epoch);
    put_u64(w, b->request);
    put_u64(w, b->request_after);
    put_u16(w, b->size);
    put_u8(w, b->flags);
    put_u8(w, 0);
    put_u32(w, b->every_ms);
    put_bytes(w, b->digest.bytes, DIGEST_LEN);
}

bool beat_get(struct reader *r, struct beat *b)
{
    b->stamp_ns = get_u64(r);
    b->echo_ns = get_u64(r);
    b->hold_ns = get_u64(r);
    b->instance = get_u64(r);
    b->epoch = get_u64(r);
    b->request = get_u64(r);
    b->request_after = get_u64(r);
    b->size = get_u16(r);
    b->flags = get_u8(r);
    (void)get_u8(r);
    b->every_ms = get_u32(r);
    get_bytes(r, b->digest.bytes, DIGEST_LEN);
    return !r->bad && b->instance != 0 && b->epoch != 0 && b->size >= 1 && b->size <= VIEW_MEMBERS_MAX &&
           b->request != b->instance;
}

void call_put(struct writer *w, const struct vote_request *c)
{
    put_u64(w, c->instance);
    put_u64(w, c->epoch);
    put_u64(w, c->term);
    put_u32(w, c->tries);
    put_u32(w, 0);
}

bool call_get(struct reader *r, struct vote_request *c)
{
    c->instance = get_u64(r);
    c->epoch = get_u64(r);
    c->term = get_u64(r);
    c->tries = get_u32(r);
    (void)get_u32(r);
    return !r->bad && c->instance != 0 && c->epoch != 0 && term_sane(c->term);
}

void answer_put(struct writer *w, const struct answer *a, const struct view *accepted)
{
    put_u64(w, a->instance);
    put_u64(w, a->epoch);
    put_u64(w, a->term);
    put_u64(w, a->promised);
    put_u64(w, a->accepted_term);
    put_u8(w, a->yes);
    put_u8(w, 0);
    put_u16(w, 0);
    put_u32(w, 0);
    put_bytes(w, a->digest.bytes, DIGEST_LEN);
    if (a->accepted_term != 0)
        view_put(w, accepted);
}

bool answer_get(struct reader *r, struct answer *a, struct view *accepted)
{
    a->instance = get_u64(r);
    a->epoch = get_u64(r);
    a->term = get_u64(r);
    a->promised = get_u64(r);
    a->accepted_term = get_u64(r);
    a->yes = get_u8(r) == 1;
    (void)get_u8(r);
    (void)get_u16(r);
    (void)get_u32(r);
    get_bytes(r, a->digest.bytes, DIGEST_LEN);
    if (r->bad || a->instance == 0 || a->epoch == 0 || a->term > TERM_MAX || a->promised > TERM_MAX)
        return false;
    if (a->accepted_term == 0)
        return true;
    return a->accepted_term <= TERM_MAX && view_get(r, accepted) && accepted->instance == a->instance &&
           accepted->epoch == a->epoch + 1;
}
