/* SPDX-License-Identifier: Apache-2.0 */
/* Every pair is connected by tcp when this begins. Where quic may replace it, both ends must agree at every
 * step, though each has its own measures: the lower rank says whether to try quic, both say whether it came
 * up, and the lower rank chooses by the measures of both, now or for an earlier group. These are short
 * messages on the tcp connection, before its first frame. */
#include "node/transport_pick.h"

#include <stdio.h>
#include <string.h>

#include "membership/jobs.h"
#include "node/transport_race.h"
#include "transport/quic.h"

#define FAR_NS        (2 * NS_PER_MS) /* round trip; below it a loss costs tcp little */
#define STREAMS       2               /* of a link: control and data; each more costs processor time */
#define JOIN_NS       (2 * NS_PER_S)  /* for quic to come up, if tcp can replace it */
#define SPAN_MIN_NS   (200 * NS_PER_MS)
#define SPAN_MAX_NS   NS_PER_S
#define SPAN_TRIPS    30   /* round trips: enough to leave slow start and to meet some loss */
#define MARGIN        1.05 /* quic must be so much faster */
#define BITS_PER_BYTE 8

/* The lower rank's plan for a pair. */
enum transport_plan {
    PLAN_NEAR, /* tcp, untried */
    PLAN_RACE, /* both are tried */
    PLAN_TCP,  /* measured before */
    PLAN_QUIC,
    PLANS
};

/* A peer that may use quic. */
struct suitor {
    int rank;
    bool decides, joined;
    bool known; /* it was measured before: no race */
};

struct choosing {
    struct opening *o;
    struct transport_choice *choices;
    struct suitor *suitors;  /* [count] */
    struct quic_peer *peers; /* [count], likewise */
    int count;
    uint64_t round_trip_ns; /* the longest */
};

/* ---- agreement ---- */

static int talk(const struct choosing *c, int rank, const struct race_talk *words, struct error *error)
{
    int status = transport_race_talk(c->o->conns[rank].conns[0], words, c->o->deadline_ns, c->o->stop);
    if (status == HEARTH_OK)
        return HEARTH_OK;
    return error_set(error, status, rank, "open: rank %d was lost before its transport was chosen", rank);
}

/* The lower rank's word counts. */
static int agree_plan(const struct choosing *c, int rank, enum transport_plan *plan, struct error *error)
{
    bool decides = c->o->roster.rank < rank;
    uint8_t word = (uint8_t)*plan;
    struct race_talk words = {&word, decides, &word, !decides};
    int status = talk(c, rank, &words, error);
    if (status == HEARTH_OK && word >= PLANS)
        return error_set(error, HEARTH_PROTOCOL, rank, "open: rank %d sent an unknown transport plan: %u",
                         rank, word);
    *plan = (enum transport_plan)word;
    return status;
}

/* *word: both agree. */
static int agree_both(const struct choosing *c, int rank, bool *word, struct error *error)
{
    uint8_t mine = *word, other = 0;
    struct race_talk words = {&mine, 1, &other, 1};
    int status = talk(c, rank, &words, error);
    *word = mine && other;
    return status;
}

static bool can_quic(const struct opening *o, int rank)
{
    const struct peer_info *m = &o->roster.members[rank];
    return o->mesh[rank].kind == MESH_TCP && (m->features & o->self.features & PEER_QUIC) != 0;
}

static void suitor_add(struct choosing *c, int rank, bool known)
{
    uint64_t round_trip_ns = c->o->mesh[rank].round_trip_ns;
    c->suitors[c->count++] =
        (struct suitor){.rank = rank, .decides = c->o->roster.rank < rank, .known = known};
    c->round_trip_ns = round_trip_ns > c->round_trip_ns ? round_trip_ns : c->round_trip_ns;
}

/* All peers that must use quic. */
static int suit_all(struct choosing *c, struct error *error)
{
    for (int i = 0; i < c->o->roster.size; i++) {
        if (c->o->mesh[i].kind != MESH_TCP)
            continue;
        if (!can_quic(c->o, i))
            return error_set(error, HEARTH_UNSUPPORTED, i,
                             "open: transport is quic, but %s was built without it: choose tcp or auto",
                             (c->o->self.features & PEER_QUIC) != 0 ? c->o->roster.members[i].name
                                                                    : "this library");
        suitor_add(c, i, false);
    }
    return HEARTH_OK;
}

/* A round trip measured while all connect at once may include the queue of a shared line; members of a
 * cluster have earlier measures. */
static bool is_far(const struct opening *o, int rank)
{
    const struct group_spec *f = o->spec;
    uint32_t known_us = 0;
    if (f && f->size == o->roster.size)
        known_us = f->site[rank] == f->site[o->roster.rank] ? f->inside_us : f->across_us;
    return o->mesh[rank].round_trip_ns >= FAR_NS && (known_us == 0 || known_us * NS_PER_US >= FAR_NS);
}

static struct transport_path path_to(const struct opening *o, int rank)
{
    return (struct transport_path){.node = o->roster.members[rank].id.node,
                                   .addr = o->mesh[rank].addr,
                                   .round_trip_ns = o->mesh[rank].round_trip_ns};
}

/* This end's plan, and the reason if it was measured before. */
static enum transport_plan plan_of(const struct opening *o, int rank, struct transport_choice *before)
{
    struct transport_path path = path_to(o, rank);
    if (!is_far(o, rank) || o->config->rate != 0)
        return PLAN_NEAR;
    if (!o->choices || !transport_choice_find(o->choices, &path, clock_real(), before))
        return PLAN_RACE;
    return before->quic ? PLAN_QUIC : PLAN_TCP;
}

static void plan_explain(struct transport_choice *choice, enum transport_plan plan,
                         const struct transport_choice *before)
{
    if (plan == PLAN_NEAR)
        snprintf(choice->reason, TRANSPORT_REASON_MAX, "near: quic was not tried");
    else if (plan != PLAN_RACE)
        snprintf(choice->reason, TRANSPORT_REASON_MAX, "%s",
                 before->reason[0] != '\0' ? before->reason : "measured before, by the other end");
}

/* The peers on other hosts with a long round trip. */
static int suit_far(struct choosing *c, struct error *error)
{
    struct opening *o = c->o;
    for (int i = 0; i < o->roster.size; i++) {
        if (!can_quic(o, i) || o->roster.members[i].host_id == o->self.host_id)
            continue;
        struct transport_choice before = {0};
        enum transport_plan plan = plan_of(o, i, &before);
        int status = agree_plan(c, i, &plan, error);
        if (status != HEARTH_OK)
            return status;
        plan_explain(&c->choices[i], plan, &before);
        if (plan == PLAN_RACE || plan == PLAN_QUIC)
            suitor_add(c, i, plan == PLAN_QUIC);
    }
    return HEARTH_OK;
}

/* ---- connecting quic ---- */

/* The destination of datagrams: the address that works for tcp, and the port where the peer listens. */
static struct sock_addr datagrams_to(const struct opening *o, int rank)
{
    const struct peer_info *m = &o->roster.members[rank];
    struct sock_addr addr = o->mesh[rank].addr;
    uint16_t port = m->addr_count > 0 ? m->addrs[0].port : sock_addr_port(&addr);
    for (int i = 0; i < m->addr_count; i++) {
        struct sock_addr own = sock_addr_of(&m->addrs[i]);
        if (sock_addr_same_host(&addr, &own))
            port = m->addrs[i].port;
    }
    sock_addr_set_port(&addr, port);
    return addr;
}

static int endpoint_open(struct opening *o, struct error *error)
{
    struct quic_setup setup = {
        .heap = o->heap,
        .log = o->log,
        .credentials = o->credentials,
        .local = half_open_addr(o->listener->half_open),
        .datagram_size = tuning_of(o->config)->datagram_bytes,
        .rate_bytes_per_s = (double)o->config->link_mbps * 1e6 / BITS_PER_BYTE,
        .idle_ns = (uint64_t)o->config->peer_timeout_ms * NS_PER_MS,
    };
    return quic_open(&setup, &o->quic, error);
}

static int bring_up(struct choosing *c, struct error *error)
{
    struct opening *o = c->o;
    uint64_t until_ns = clock_real() + JOIN_NS + 8 * c->round_trip_ns;
    if (o->quic_choice == QUIC_ALWAYS || until_ns > o->deadline_ns)
        until_ns = o->deadline_ns;
    for (int i = 0; i < c->count; i++) {
        int rank = c->suitors[i].rank;
        const struct peer_info *m = &o->roster.members[rank];
        c->peers[i] = (struct quic_peer){
            .addr = datagrams_to(o, rank),
            .identity = m->id,
            .dials = !c->suitors[i].decides,
            .streams = STREAMS,
            .round_trip_ns = o->mesh[rank].round_trip_ns,
        };
    }
    int status = endpoint_open(o, error);
    if (status == HEARTH_OK)
        status = quic_join(o->quic, c->peers, c->count, until_ns, o->stop, error);
    for (int i = 0; i < c->count; i++) {
        c->suitors[i].joined = c->peers[i].count > 0;
        if (!c->suitors[i].joined)
            snprintf(c->choices[c->suitors[i].rank].reason, TRANSPORT_REASON_MAX,
                     "quic did not come up: %.70s",
                     c->peers[i].why.text[0] != '\0' ? c->peers[i].why.text : error->text);
    }
    return status;
}

/* ---- the choice ---- */

static void conns_close(struct conn *const *conns, int count)
{
    for (int i = 0; i < count; i++)
        conns[i]->transport->close(conns[i]);
}

static void take_quic(struct choosing *c, int index)
{
    struct node_conns *conns = &c->o->conns[c->suitors[index].rank];
    conns_close(conns->conns, conns->count);
    memcpy(conns->conns, c->peers[index].conns, sizeof conns->conns);
    conns->count = c->peers[index].count;
    c->peers[index].count = 0;
    c->choices[c->suitors[index].rank].quic = true;
}

static void drop_quic(struct choosing *c)
{
    for (int i = 0; i < c->count; i++) {
        conns_close(c->peers[i].conns, c->peers[i].count);
        c->peers[i].count = 0;
    }
}

static int always(struct choosing *c, struct error *error)
{
    int status = bring_up(c, error);
    for (int i = 0; i < c->count && status != HEARTH_OK; i++)
        if (!c->suitors[i].joined && c->peers[i].why.text[0] != '\0')
            return error_because(error, c->peers[i].why.reason, status, c->suitors[i].rank,
                                 "open: rank %d: %s (tcp reaches it: is UDP let through?)",
                                 c->suitors[i].rank, c->peers[i].why.text);
    for (int i = 0; i < c->count && status == HEARTH_OK; i++)
        take_quic(c, i);
    return status;
}

/* Records the result for users and for the next group. */
static void measured(struct choosing *c, const struct transport_race_pair *pair)
{
    struct transport_path path = path_to(c->o, pair->rank);
    struct transport_choice choice = {.quic = pair->chosen == 1};
    double mbps[TRANSPORT_RACE_LANES];
    for (int i = 0; i < TRANSPORT_RACE_LANES; i++)
        mbps[i] = pair->lanes[i].bytes_per_s * BITS_PER_BYTE / 1e6;
    snprintf(choice.reason, sizeof choice.reason, "measured in both directions: quic %.1f, tcp %.1f Mbit/s",
             mbps[1], mbps[0]);
    snprintf(c->choices[pair->rank].reason, TRANSPORT_REASON_MAX, "%s", choice.reason);
    if (c->o->choices)
        transport_choice_keep(c->o->choices, &path, clock_real(), &choice);
}

static int compare(struct choosing *c, struct transport_race_pair *pairs, struct error *error)
{
    uint64_t span_ns = SPAN_TRIPS * c->round_trip_ns;
    struct transport_race_setup setup = {
        .heap = c->o->heap,
        .pairs = pairs,
        .span_ns = span_ns < SPAN_MIN_NS   ? SPAN_MIN_NS
                   : span_ns > SPAN_MAX_NS ? SPAN_MAX_NS
                                           : span_ns,
        .margin = MARGIN,
        .deadline_ns = c->o->deadline_ns,
        .stop = c->o->stop,
    };
    for (int i = 0; i < c->count; i++) {
        const struct suitor *s = &c->suitors[i];
        if (!s->joined || s->known)
            continue;
        struct transport_race_pair *pair = &pairs[setup.count++];
        *pair = (struct transport_race_pair){.rank = s->rank, .decides = s->decides};
        const struct node_conns *tcp = &c->o->conns[s->rank];
        memcpy(pair->lanes[0].conns, tcp->conns, sizeof tcp->conns);
        pair->lanes[0].count = tcp->count;
        memcpy(pair->lanes[1].conns, c->peers[i].conns, sizeof tcp->conns);
        pair->lanes[1].count = c->peers[i].count;
    }
    int status = setup.count > 0 ? transport_race_run(&setup, error) : HEARTH_OK;
    for (int i = 0, at = 0; i < c->count && status == HEARTH_OK; i++) {
        const struct suitor *s = &c->suitors[i];
        if (!s->joined)
            continue;
        if (!s->known)
            measured(c, &pairs[at]);
        if (s->known || pairs[at++].chosen == 1)
            take_quic(c, i);
    }
    return status;
}

static int if_faster(struct choosing *c, struct error *error)
{
    struct error why;
    struct transport_race_pair *pairs = heap_alloc(c->o->heap, (size_t)c->count, sizeof *pairs);
    if (!pairs)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory");
    (void)bring_up(c, &why); /* on failure tcp stays */
    int status = HEARTH_OK;
    for (int i = 0; i < c->count && status == HEARTH_OK; i++) {
        bool joined = c->suitors[i].joined;
        status = agree_both(c, c->suitors[i].rank, &joined, error);
        c->suitors[i].joined = joined;
        if (!joined && c->o->choices)
            transport_choice_forget(c->o->choices, &c->o->roster.members[c->suitors[i].rank].id.node);
    }
    if (status == HEARTH_OK)
        status = compare(c, pairs, error);
    heap_free(pairs);
    return status;
}

/* ---- all of it ---- */

static bool is_used(const struct choosing *c)
{
    for (int i = 0; i < c->count; i++)
        if (c->choices[c->suitors[i].rank].quic)
            return true;
    return false;
}

int transport_pick(struct opening *o, struct transport_choice *choices, struct error *error)
{
    struct choosing c = {.o = o, .choices = choices};
    size_t size = (size_t)o->roster.size;
    if (o->quic_choice == QUIC_NEVER)
        return HEARTH_OK;
    c.suitors = heap_alloc(o->heap, size, sizeof *c.suitors);
    c.peers = heap_alloc(o->heap, size, sizeof *c.peers);
    int status = HEARTH_OK;
    if (!c.suitors || !c.peers)
        status = error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory");
    bool sure = o->quic_choice == QUIC_ALWAYS;
    if (status == HEARTH_OK)
        status = sure ? suit_all(&c, error) : suit_far(&c, error);
    if (status == HEARTH_OK && c.count > 0)
        status = sure ? always(&c, error) : if_faster(&c, error);
    if (c.peers)
        drop_quic(&c);
    if (status == HEARTH_OK && !is_used(&c)) {
        quic_close(o->quic);
        o->quic = NULL;
    }
    heap_free(c.suitors);
    heap_free(c.peers);
    return status;
}
