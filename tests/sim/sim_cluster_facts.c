/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold in a cluster at every moment, and what must hold at the end. */
#include "sim_cluster_facts.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"

/* Something that may be so in one way only: (kind, instance, number) -> value. */
struct sim_cluster_fact {
    uint64_t key[3];
    struct hash128 value;
    int node; /* who said it first */
};

enum { FACT_NONE, FACT_VIEW, FACT_LEADER, FACT_EPOCH };

void facts_fail(struct sim_cluster *t, const char *format, ...)
{
    if (t->failure[0] != '\0')
        return; /* the first is what matters */
    va_list args;
    va_start(args, format);
    vsnprintf(t->failure, sizeof t->failure, format, args);
    va_end(args);
    sim_cluster_trace(t, "FAILURE: %s", t->failure);
}

static struct sim_cluster_fact *fact_slot(struct sim_cluster_fact *facts, size_t room, const uint64_t key[3])
{
    size_t at = hash_mix(hash_mix(key[0] + 1, key[1]), key[2]) & (room - 1);
    while (facts[at].key[0] != FACT_NONE && memcmp(facts[at].key, key, sizeof facts[at].key) != 0)
        at = (at + 1) & (room - 1);
    return &facts[at];
}

static void facts_grow(struct sim_cluster *t)
{
    size_t room = t->fact_room > 0 ? 2 * t->fact_room : 256;
    struct sim_cluster_fact *facts = calloc(room, sizeof facts[0]);
    for (size_t i = 0; i < t->fact_room; i++)
        if (t->facts[i].key[0] != FACT_NONE)
            *fact_slot(facts, room, t->facts[i].key) = t->facts[i];
    free(t->facts);
    t->facts = facts;
    t->fact_room = room;
}

/* The fact of this key; `fresh` if it is new, and then the caller sets its value. */
static struct sim_cluster_fact *fact(struct sim_cluster *t, uint64_t kind, uint64_t instance, uint64_t number,
                                     bool *fresh)
{
    const uint64_t key[3] = {kind, instance, number};
    if (2 * (t->fact_count + 1) > t->fact_room)
        facts_grow(t);
    struct sim_cluster_fact *f = fact_slot(t->facts, t->fact_room, key);
    *fresh = f->key[0] == FACT_NONE;
    if (*fresh) {
        memcpy(f->key, key, sizeof f->key);
        t->fact_count++;
    }
    return f;
}

static void one_way_only(struct sim_cluster *t, int node, uint64_t kind, const uint64_t at[2],
                         struct hash128 value)
{
    bool fresh;
    struct sim_cluster_fact *f = fact(t, kind, at[0], at[1], &fresh);
    if (fresh) {
        f->value = value;
        f->node = node;
    } else if (f->value.low != value.low || f->value.high != value.high) {
        facts_fail(t, "nodes %d and %d have different %s %" PRIu64 " of instance %" PRIx64, f->node, node,
                   kind == FACT_VIEW ? "views for epoch" : "leaders for term", at[1], at[0]);
    }
}

/* Also when it returns to an instance that it had left; but guests have promised nothing there. */
static void only_rising(struct sim_cluster *t, int node, const struct view *c)
{
    bool fresh;
    if (!sim_cluster_votes(t, node))
        return;
    struct sim_cluster_fact *f = fact(t, FACT_EPOCH, c->instance, t->nodes[node].info.id.instance, &fresh);
    if (!fresh && c->epoch <= f->value.low)
        facts_fail(t, "node %d went from epoch %" PRIu64 " to %" PRIu64 " of instance %" PRIx64, node,
                   f->value.low, c->epoch, c->instance);
    f->value.low = c->epoch;
}

void facts_check(struct sim_cluster *t, int node)
{
    static uint8_t bytes[VIEW_LEN_MAX];
    struct sim_node *h = &t->nodes[node];
    const struct view *c = consensus_view(h->consensus);
    if (node == t->hostile || (c->instance == h->instance && c->epoch == h->epoch))
        return;
    h->instance = c->instance;
    h->epoch = c->epoch;
    struct writer w = writer_of(bytes, sizeof bytes);
    view_put(&w, c);
    only_rising(t, node, c);
    if (!t->lied) {
        one_way_only(t, node, FACT_VIEW, (uint64_t[]){c->instance, c->epoch},
                     hash128(bytes, (size_t)(w.at - bytes)));
        one_way_only(t, node, FACT_LEADER, (uint64_t[]){c->instance, c->term},
                     hash128(&c->members[c->leader].id, sizeof(struct identity)));
    }
    if (view_find(c, &h->info.id) < 0)
        facts_fail(t, "node %d adopted a view without itself", node);
    if (c->size > 1 && !view_votes(c, c->leader))
        facts_fail(t, "node %d adopted a view that a guest leads", node);
}

void facts_message(struct sim_cluster *t, int node, uint8_t kind)
{
    bool election =
        kind == MESSAGE_CALL || kind == MESSAGE_VOTE || kind == MESSAGE_PROPOSE || kind == MESSAGE_ACCEPT;
    if (election && !sim_cluster_votes(t, node))
        facts_fail(t, "node %d, a guest, sent a message of kind %d", node, kind);
}

void facts_free(struct sim_cluster *t)
{
    free(t->facts);
    t->facts = NULL;
}

/* ---- at the end ---- */

int sim_cluster_living(const struct sim_cluster *t)
{
    int count = 0;
    for (int i = 0; i < t->size; i++)
        count += t->nodes[i].state != SIM_NODE_EMPTY;
    return count;
}

static bool says(char *why, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool says(char *why, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, size, format, args);
    va_end(args);
    return false;
}

static bool same_peer(const struct peer_info *a, const struct peer_info *b)
{
    uint8_t bytes[2][PEER_LEN_MAX];
    struct writer w[2] = {writer_of(bytes[0], PEER_LEN_MAX), writer_of(bytes[1], PEER_LEN_MAX)};
    peer_put(&w[0], a);
    peer_put(&w[1], b);
    size_t len = (size_t)(w[0].at - bytes[0]);
    return len == (size_t)(w[1].at - bytes[1]) && memcmp(bytes[0], bytes[1], len) == 0;
}

bool sim_cluster_votes(const struct sim_cluster *t, int node)
{
    return (t->nodes[node].info.features & PEER_GUEST) == 0;
}

/* Guests alone wait for a machine that stays. */
static bool guests_wait(const struct sim_cluster *t, char *why, size_t size)
{
    for (int i = 0; i < t->size; i++) {
        const struct sim_node *h = &t->nodes[i];
        if (h->state != SIM_NODE_EMPTY && consensus_state(h->consensus) != CONSENSUS_STRANDED)
            return says(why, size, "node %d is %s among guests", i,
                        consensus_state_name(consensus_state(h->consensus)));
    }
    return true;
}

bool sim_cluster_agrees(const struct sim_cluster *t, char *why, size_t size)
{
    const struct view *first = NULL;
    int living = sim_cluster_living(t), leaders = 0, voters = 0;
    for (int i = 0; i < t->size; i++)
        voters += t->nodes[i].state != SIM_NODE_EMPTY && sim_cluster_votes(t, i);
    if (voters == 0)
        return guests_wait(t, why, size);
    for (int i = 0; i < t->size; i++) {
        const struct sim_node *h = &t->nodes[i];
        if (h->state == SIM_NODE_EMPTY)
            continue;
        const struct view *c = consensus_view(h->consensus);
        first = first ? first : c;
        leaders += consensus_leads(h->consensus);
        if (consensus_state(h->consensus) != CONSENSUS_MEMBER)
            return says(why, size, "node %d is %s", i, consensus_state_name(consensus_state(h->consensus)));
        if (c->instance != first->instance || c->epoch != first->epoch)
            return says(why, size,
                        "node %d is in epoch %" PRIu64 " of %" PRIx64 ", others in %" PRIu64 " of %" PRIx64,
                        i, c->epoch, c->instance, first->epoch, first->instance);
        if (c->size != living)
            return says(why, size, "node %d has %d members, but %d live", i, c->size, living);
        int index = view_find(first, &h->info.id);
        if (index < 0 || !same_peer(&first->members[index], &h->info))
            return says(why, size, "node %d is not in the view as it is", i);
    }
    if (leaders != 1)
        return says(why, size, "%d nodes lead", leaders);
    return true;
}

bool sim_cluster_stuck(const struct sim_cluster *t)
{
    for (int i = 0; i < t->size; i++)
        if (t->nodes[i].state != SIM_NODE_EMPTY &&
            consensus_state(t->nodes[i].consensus) != CONSENSUS_STRANDED)
            return false;
    return true;
}

int sim_cluster_leader(const struct sim_cluster *t)
{
    for (int i = 0; i < t->size; i++)
        if (t->nodes[i].state == SIM_NODE_LIVES && consensus_leads(t->nodes[i].consensus))
            return i;
    return -1;
}

void sim_cluster_describe_all(struct sim_cluster *t)
{
    for (int i = 0; i < t->size; i++) {
        const struct sim_node *h = &t->nodes[i];
        if (h->state == SIM_NODE_EMPTY)
            continue;
        const struct view *c = consensus_view(h->consensus);
        sim_cluster_trace(
            t, "%2d  is %s%s: %d members, %s leads [%" PRIx64 " epoch %" PRIu64 " term %" PRIu64 "]", i,
            consensus_state_name(consensus_state(h->consensus)),
            consensus_leads(h->consensus) ? " and leads" : "", c->size, c->members[c->leader].name,
            c->instance, c->epoch, c->term);
    }
}
