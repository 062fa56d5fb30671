/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between simulated members: drawing, oracle, balance. */
#include "courier.h"

#include "collective/state.h"
#include "core/hash.h"
#include "message/transfer.h"
#include "support/suite.h"

#define PATIENT_MS 100000
#define CODED_TAG  3u

static uint64_t below(struct courier *c, uint64_t n)
{
    return prng_below(&c->prng, n);
}

/* ---- drawing ---- */

void courier_init(struct courier *c, struct sim *sim, uint64_t seed, bool calm)
{
    memset(c, 0, sizeof *c);
    prng_init(&c->prng, seed ^ 0x6d61696c);
    c->sim = sim;
    c->calm = calm;
    c->tags = 1 + (int)below(c, 5);
    c->len_max = 4 * sim->tuning.chunk_bytes + 1;
    c->len_max = c->len_max < 100000 ? c->len_max : 100000;
}

void courier_free(struct courier *c)
{
    for (int i = 0; i < c->send_count; i++)
        free(c->sends[i].bytes);
    for (int i = 0; i < c->recv_count; i++)
        free(c->recvs[i].buffer);
}

/* Each magnitude as likely as the others. */
static size_t draw_len(struct courier *c)
{
    size_t base = (size_t)1 << below(c, 18);
    size_t len = below(c, 8) == 0 ? 0 : base + below(c, base);
    return len < c->len_max ? len : c->len_max;
}

/* Whole numbers where a codec takes them: nothing is rounded. */
static void fill(struct courier *c, struct courier_send *s)
{
    s->bytes = malloc(s->len + 1);
    for (size_t i = 0; s->coded && i < s->len / 4; i++) {
        float value = (float)below(c, 200);
        memcpy(s->bytes + 4 * i, &value, 4);
    }
    uint64_t x = below(c, UINT64_MAX);
    for (size_t i = 0; !s->coded && i < s->len; i++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        s->bytes[i] = (uint8_t)(x >> 56);
    }
}

/* Some of the parts are empty. */
static size_t draw_parts(struct courier *c, struct hearth_iovec *parts, uint8_t *bytes, size_t len)
{
    size_t count = 1 + below(c, COURIER_PARTS), done = 0;
    for (size_t i = 0; i < count; i++) {
        size_t n = i + 1 == count ? len - done : below(c, len - done + 1);
        parts[i] = (struct hearth_iovec){.data = n > 0 ? bytes + done : NULL, .len = n};
        done += n;
    }
    return count;
}

static int draw_living(struct courier *c)
{
    int living[SIM_MAX], count = 0;
    for (int i = 0; i < c->sim->size; i++)
        if (c->sim->nodes[i] && !c->gone[i])
            living[count++] = i;
    return count > 0 ? living[below(c, (uint64_t)count)] : -1;
}

static bool draw_patience(struct courier *c, struct hearth_opts *opts)
{
    bool patient = c->calm || below(c, 6) > 0;
    opts->timeout_ms = patient ? PATIENT_MS : (int64_t)below(c, 30);
    return patient;
}

static void act_send(struct courier *c, int rank, int to)
{
    if (c->send_count == COURIER_SENDS)
        return;
    struct courier_send *s = &c->sends[c->send_count++];
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    *s = (struct courier_send){.from = rank, .status = HEARTH_PENDING};
    s->to = to;
    s->tag = below(c, (uint64_t)c->tags);
    s->coded = s->tag == CODED_TAG;
    s->sync = below(c, 3) == 0;
    s->len = s->coded ? draw_len(c) & ~(size_t)3 : draw_len(c);
    s->patient = draw_patience(c, &opts);
    opts.flags = s->sync ? HEARTH_FLAG_SYNC_SEND : 0;
    opts.codec = s->coded ? "fp16" : NULL;
    opts.priority = (enum hearth_priority)below(c, 3);
    fill(c, s);
    hearth_group *world = sim_world(c->sim, rank);
    if (s->coded || below(c, 3) > 0) {
        s->status = hearth_send_nb(world, s->to, s->tag, s->bytes, s->len, &opts, &s->request);
    } else {
        size_t count = draw_parts(c, s->parts, s->bytes, s->len);
        s->status = hearth_sendv_nb(world, s->to, s->tag, s->parts, count, &opts, &s->request);
        memset(s->parts, 0x5a, sizeof s->parts); /* they are the caller's again */
    }
    if (s->status == HEARTH_OK) {
        s->status = HEARTH_PENDING;
        return;
    }
    s->fate = hearth_error_fate();
    if (s->fate != HEARTH_FATE_NOT_DELIVERED)
        fail_msg("a send that did not begin: %s, fate %s", hearth_error_text(), hearth_fate_name(s->fate));
}

/* Mostly one; at times more than the budget holds. */
static void burst(struct courier *c, int rank)
{
    int to = (int)below(c, (uint64_t)c->sim->size);
    for (uint64_t left = below(c, 6) > 0 ? 1 : 1 + below(c, 12); left > 0; left--)
        act_send(c, rank, to);
}

/* What a receive asks for. */
struct wish {
    int rank, from;
    uint64_t tag;
    bool whole; /* as a message of unknown length */
    size_t size;
};

static void post(struct courier *c, const struct wish *wish)
{
    if (c->recv_count == COURIER_RECVS)
        return;
    struct courier_recv *r = &c->recvs[c->recv_count++];
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    *r = (struct courier_recv){
        .at = wish->rank, .status = HEARTH_PENDING, .received.size = sizeof r->received};
    r->patient = draw_patience(c, &opts);
    hearth_group *world = sim_world(c->sim, wish->rank);
    int status;
    if (wish->whole) {
        status = hearth_message_recv_nb(world, wish->from, wish->tag, &opts, &r->message, &r->request);
    } else {
        bool any = wish->tag == HEARTH_ANY_TAG || wish->tag == CODED_TAG;
        r->size = wish->size;
        r->buffer = malloc(r->size + 1);
        r->buffer[r->size] = 0xa5;
        if (any || below(c, 3) > 0) {
            status = hearth_recv_nb(world, wish->from, wish->tag, r->buffer, r->size, &opts, &r->received,
                                    &r->request);
        } else {
            size_t count = draw_parts(c, r->parts, r->buffer, r->size);
            status = hearth_recvv_nb(world, wish->from, wish->tag, r->parts, count, &opts, &r->received,
                                     &r->request);
            memset(r->parts, 0x5a, sizeof r->parts);
        }
    }
    if (status != HEARTH_OK)
        r->status = status;
}

static void act_recv(struct courier *c, int rank)
{
    struct wish wish = {.rank = rank, .from = HEARTH_ANY_RANK, .tag = HEARTH_ANY_TAG};
    if (below(c, 4) > 0)
        wish.from = (int)below(c, (uint64_t)c->sim->size);
    if (below(c, 4) > 0)
        wish.tag = below(c, (uint64_t)c->tags);
    wish.whole = below(c, 3) == 0;
    wish.size = c->calm || below(c, 8) > 0 ? c->len_max : draw_len(c);
    post(c, &wish);
}

/* What it finds has been sent; it can be received at once. */
static bool look(struct courier *c, int rank)
{
    struct hearth_received found = {.size = sizeof found};
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.timeout_ms = 0;
    int status = hearth_probe(sim_world(c->sim, rank), HEARTH_ANY_RANK, HEARTH_ANY_TAG, &opts, &found);
    courier_collect(c);
    if (status != HEARTH_OK)
        return false;
    bool sent = false;
    for (int i = 0; i < c->send_count; i++) {
        const struct courier_send *s = &c->sends[i];
        sent = sent || (s->from == found.rank && s->to == rank && s->tag == found.tag && s->len == found.len);
    }
    if (!sent)
        fail_msg("rank %d found a message of %zu bytes from rank %d that was not sent", rank, found.len,
                 found.rank);
    post(c, &(struct wish){
                .rank = rank, .from = found.rank, .tag = found.tag, .whole = below(c, 2), .size = found.len});
    return true;
}

static void act_cancel(struct courier *c)
{
    if (c->send_count == 0 || c->recv_count == 0)
        return;
    struct courier_send *s = &c->sends[below(c, (uint64_t)c->send_count)];
    struct courier_recv *r = &c->recvs[below(c, (uint64_t)c->recv_count)];
    if (below(c, 2) && s->request && s->status == HEARTH_PENDING) {
        s->left_to_chance = true;
        assert_ok(hearth_request_cancel(s->request));
        assert_true(sim_status(s->request) != HEARTH_PENDING);
    } else if (r->request && r->status == HEARTH_PENDING) {
        r->cancelled = true;
        assert_ok(hearth_request_cancel(r->request));
        assert_true(sim_status(r->request) != HEARTH_PENDING);
    }
}

void courier_act(struct courier *c)
{
    int rank = draw_living(c);
    uint64_t kind = below(c, c->calm ? 10 : 12);
    if (rank < 0)
        return;
    if (kind < 5)
        burst(c, rank);
    else if (kind < 9)
        act_recv(c, rank);
    else if (kind == 9)
        look(c, rank);
    else
        act_cancel(c);
    courier_collect(c);
}

/* ---- ends ---- */

static void send_ended(struct courier_send *s)
{
    s->status = sim_status(s->request);
    if (s->status == HEARTH_PENDING)
        return;
    s->fate = hearth_request_error_fate(s->request);
    if ((s->status == HEARTH_OK) != (s->fate == HEARTH_FATE_NONE))
        fail_msg("a send ended with %s, fate %s", hearth_status_name(s->status), hearth_fate_name(s->fate));
    hearth_request_close(s->request);
    s->request = NULL;
}

static void take_message(struct courier_recv *r)
{
    r->received = (struct hearth_received){.rank = r->message->rank, .tag = r->message->tag};
    r->received.len = r->message->len;
    r->buffer = malloc(r->message->len + 1);
    if (r->message->len > 0)
        memcpy(r->buffer, r->message->data, r->message->len);
    hearth_message_free(r->message);
    r->message = NULL;
}

static void recv_ended(struct courier_recv *r)
{
    r->status = sim_status(r->request);
    if (r->status == HEARTH_PENDING)
        return;
    hearth_request_close(r->request);
    r->request = NULL;
    if (r->status != HEARTH_OK) {
        assert_null(r->message);
        return;
    }
    if (r->message) {
        take_message(r);
    } else {
        assert_true(r->received.len <= r->size);
        assert_int_equal(r->buffer[r->size], 0xa5);
    }
}

void courier_collect(struct courier *c)
{
    for (int i = 0; i < c->send_count; i++)
        if (c->sends[i].request)
            send_ended(&c->sends[i]);
    for (int i = 0; i < c->recv_count; i++)
        if (c->recvs[i].request)
            recv_ended(&c->recvs[i]);
}

void courier_lose(struct courier *c, int rank)
{
    c->gone[rank] = true;
    for (int i = 0; i < c->send_count; i++)
        if (c->sends[i].from == rank && c->sends[i].request) {
            c->sends[i].left_to_chance = true;
            c->sends[i].request = NULL;
        }
    for (int i = 0; i < c->recv_count; i++)
        if (c->recvs[i].at == rank)
            c->recvs[i].request = NULL;
}

static bool sends_ended(const struct courier *c)
{
    for (int i = 0; i < c->send_count; i++)
        if (c->sends[i].request)
            return false;
    return true;
}

/* A receive that still waits when all sends have ended and arrived has nothing to wait for. */
static void end_receives(struct courier *c)
{
    for (int i = 0; i < c->recv_count; i++)
        if (c->recvs[i].request) {
            c->recvs[i].cancelled = true;
            assert_ok(hearth_request_cancel(c->recvs[i].request));
        }
    courier_collect(c);
}

void courier_drain(struct courier *c)
{
    uint64_t end = c->sim->now_ns + 300 * NS_PER_S;
    bool more = true;
    while (more && c->sim->now_ns < end) {
        bool found = false;
        for (int r = 0; r < c->sim->size; r++)
            found = (c->sim->nodes[r] && !c->gone[r] && look(c, r)) || found;
        more = found || !sends_ended(c);
        if (!found)
            more = sim_step(c->sim, sends_ended(c) ? c->sim->now_ns + 10 * NS_PER_S : end) || more;
        courier_collect(c);
        if (!found && sends_ended(c))
            more = more && c->sim->now_ns < end - 200 * NS_PER_S;
    }
    if (!sends_ended(c))
        fail_msg("a send does not end");
    end_receives(c);
    sim_run_until(c->sim, c->sim->now_ns + 10 * NS_PER_S); /* words about their ends arrive */
    for (int r = 0; r < c->sim->size; r++)
        while (c->sim->nodes[r] && !c->gone[r] && look(c, r))
            continue;
    sim_run_until(c->sim, c->sim->now_ns + 10 * NS_PER_S);
    end_receives(c);
}

/* ---- the oracle ---- */

static bool same(const struct courier_send *s, const struct courier_recv *r)
{
    return s->len == r->received.len && memcmp(s->bytes, r->buffer, s->len) == 0;
}

static bool may_be_missing(const struct courier *c, const struct courier_send *s)
{
    if (s->status == HEARTH_OK && !s->left_to_chance && (s->sync || c->calm) && !c->gone[s->to])
        return false;
    return s->fate != HEARTH_FATE_DELIVERED;
}

/* Short messages look alike, so that what was received is a row of what was sent in some way: all ways are
 * followed at once. reach[k]: with what was looked at, the first k receives can be explained. */
static uint64_t check_row(const struct courier *c, int from, int to, uint64_t tag)
{
    const struct courier_recv *got[COURIER_RECVS];
    bool reach[COURIER_RECVS + 1] = {true};
    int count = 0;
    for (int i = 0; i < c->recv_count; i++) {
        const struct courier_recv *r = &c->recvs[i];
        if (r->at == to && r->status == HEARTH_OK && r->received.rank == from && r->received.tag == tag)
            got[count++] = r;
    }
    for (int i = 0; i < c->send_count; i++) {
        const struct courier_send *s = &c->sends[i];
        if (s->from != from || s->to != to || s->tag != tag)
            continue;
        bool missing = may_be_missing(c, s), any = false;
        for (int k = count; k >= 0; k--) {
            bool taken = k > 0 && reach[k - 1] && s->fate != HEARTH_FATE_NOT_DELIVERED && same(s, got[k - 1]);
            reach[k] = (reach[k] && missing) || taken;
            any = any || reach[k];
        }
        if (!any)
            fail_msg("send %d, %zu bytes from rank %d to rank %d with tag %llu (%s%s, %s) and %d receives "
                     "do not fit",
                     i, s->len, from, to, (unsigned long long)tag, hearth_status_name(s->status),
                     s->sync ? ", sync" : "", hearth_fate_name(s->fate), count);
    }
    if (!reach[count])
        fail_msg("what rank %d received from rank %d with tag %llu was not sent so", to, from,
                 (unsigned long long)tag);
    return (uint64_t)count;
}

uint64_t courier_check(const struct courier *c)
{
    uint64_t received = 0, counted = 0;
    for (int from = 0; from < c->sim->size; from++)
        for (int to = 0; to < c->sim->size; to++)
            for (int tag = 0; tag < c->tags; tag++)
                received += check_row(c, from, to, (uint64_t)tag);
    for (int i = 0; i < c->recv_count; i++) {
        counted += c->recvs[i].status == HEARTH_OK;
        if (!c->gone[c->recvs[i].at] && c->recvs[i].status == HEARTH_PENDING)
            fail_msg("a receive of rank %d does not end", c->recvs[i].at);
    }
    for (int i = 0; c->calm && i < c->send_count; i++)
        if (c->sends[i].status != HEARTH_OK)
            fail_msg("send %d, %zu bytes: %s", i, c->sends[i].len, hearth_status_name(c->sends[i].status));
    for (int i = 0; c->calm && i < c->recv_count; i++)
        if (c->recvs[i].status != HEARTH_OK && !c->recvs[i].cancelled)
            fail_msg("receive %d: %s", i, hearth_status_name(c->recvs[i].status));
    assert_int_equal(received, counted); /* from ranks and with tags that there are */
    return received;
}

uint64_t courier_hash(const struct courier *c, uint64_t hash)
{
    for (int i = 0; i < c->send_count; i++)
        hash = hash_mix(hash, (uint64_t)(c->sends[i].status * 8) + (uint64_t)c->sends[i].fate);
    for (int i = 0; i < c->recv_count; i++)
        hash = hash_mix(hash, (uint64_t)(int64_t)c->recvs[i].status);
    return hash_mix(hash, c->sim->now_ns);
}

/* ---- balance ---- */

static void check_lists(const struct messages *m)
{
    assert_int_equal(m->count, 0);
    assert_int_equal(m->posted, 0);
    assert_true(list_empty(&m->timers) && list_empty(&m->any) && list_empty(&m->probes));
    assert_true(list_empty(&m->arrivals));
    for (uint32_t i = 0; i < MESSAGE_BUCKETS; i++)
        assert_true(list_empty(&m->recvs[i]) && list_empty(&m->arrived[i]) && list_empty(&m->numbers[i]) &&
                    list_empty(&m->tags[i]));
}

static void check_peer(const struct messages *m, int peer, const struct messages *other)
{
    const struct message_peer *p = &m->peers[peer], *back = &other->peers[m->rank];
    assert_int_equal(p->held, 0);
    assert_int_equal(p->announced, 0);
    assert_int_equal(p->announced_to_us, 0);
    assert_true(list_empty(&p->queues) && list_empty(&p->moving));
    for (int i = 0; i < LINK_PIPES_MAX; i++)
        assert_true(!p->incoming[i].recv && !p->incoming[i].arrival && !p->incoming[i].bounce);
    if (peer != m->rank && p->spent != back->released)
        fail_msg("rank %d spent %llu of its budget at rank %d, which released %llu", m->rank,
                 (unsigned long long)p->spent, peer, (unsigned long long)back->released);
    assert_true(p->spent - p->returned < m->eager_bytes / 8 + 1);
}

void courier_check_idle(struct courier *c)
{
    struct sim *sim = c->sim;
    for (int a = 0; a < sim->size; a++) {
        if (!sim->nodes[a] || c->gone[a])
            continue;
        struct engine *engine = sim->nodes[a]->engine;
        check_lists(engine->messages);
        for (int b = 0; b < sim->size; b++) {
            bool joined = a == b || (sim->nodes[b] && !c->gone[b] && link_up(&engine->peers[b].link) &&
                                     link_up(&sim->nodes[b]->engine->peers[a].link));
            if (joined)
                check_peer(engine->messages, b, sim->nodes[b]->engine->messages);
            if (joined && a != b)
                assert_false(link_has_data(&engine->peers[b].link));
        }
    }
}
