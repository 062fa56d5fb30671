/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of a member that lies. */
#include "hostile.h"

#include <string.h>

#include "membership/consensus_state.h"

static uint64_t below(struct sim_cluster *t, uint64_t limit)
{
    return prng_below(&t->prng, limit);
}

static const struct view *view_of(const struct sim_cluster *t, int node)
{
    return consensus_view(t->nodes[node].consensus);
}

/* A node that is joined to the hostile one, or -1. */
static int draw_victim(struct sim_cluster *t)
{
    int found[SIM_CLUSTER_MAX], count = 0;
    for (int i = 0; i < t->size; i++)
        if (i != t->hostile && t->nodes[i].state == SIM_NODE_LIVES && t->roads[i][t->hostile].linked &&
            t->roads[t->hostile][i].linked)
            found[count++] = i;
    return count > 0 ? found[below(t, (uint64_t)count)] : -1;
}

static int draw_living(struct sim_cluster *t)
{
    int found[SIM_CLUSTER_MAX], count = 0;
    for (int i = 0; i < t->size; i++)
        if (t->nodes[i].state != SIM_NODE_EMPTY)
            found[count++] = i;
    return found[below(t, (uint64_t)count)];
}

/* A number near to this one, or far from it. */
static uint64_t near(struct sim_cluster *t, uint64_t number)
{
    static const uint64_t extremes[] = {
        1, TERM_STEP, UINT64_C(1) << 32, UINT64_C(1) << 62, TERM_MAX - 1, TERM_MAX};
    switch (below(t, 8)) {
    case 0:
        return number + TERM_STEP;
    case 1:
        return number + TERM_STEP + 1;
    case 2:
        return number > 1 ? number - 1 : 1;
    case 3:
        return extremes[below(t, sizeof extremes / sizeof extremes[0])];
    case 4:
        return prng_u64(&t->prng) >> 1 | 1;
    default:
        return number + below(t, 4);
    }
}

static uint64_t draw_instance(struct sim_cluster *t, int to)
{
    switch (below(t, 8)) {
    case 0:
        return prng_u64(&t->prng) | 1;
    case 1:
        return 77; /* one of its own, again and again */
    case 2:
        return view_of(t, draw_living(t))->instance;
    default:
        return view_of(t, to)->instance;
    }
}

static struct peer_info invented(struct sim_cluster *t)
{
    struct peer_info f = t->nodes[t->hostile].info;
    f.id.instance = prng_u64(&t->prng) | 1;
    f.id.node.bytes[2] = (uint8_t)below(t, 256);
    f.features = below(t, 2) ? PEER_GUEST : 0;
    return f;
}

/* Somebody's view, changed; or one that is proposed, which it says to be decided. */
static void forge_members(struct sim_cluster *t, int to, enum hostility how, struct view *c)
{
    const struct consensus *other = t->nodes[draw_living(t)].consensus;
    if (how == HOSTILE_AT_WILL && other->accepted_term != 0 && below(t, 2)) {
        *c = other->accepted;
        return;
    }
    *c = *view_of(t, below(t, 2) ? to : draw_living(t));
    c->instance = below(t, 2) ? c->instance : draw_instance(t, to);
    c->epoch = below(t, 2) ? view_of(t, to)->epoch + 1 : near(t, view_of(t, to)->epoch);
    c->term = near(t, c->term);
    c->epoch = c->epoch <= TERM_MAX ? c->epoch : TERM_MAX;
    c->term = c->term <= TERM_MAX ? c->term : TERM_MAX;
    if (below(t, 3) == 0 && c->size > 1)
        c->members[below(t, (uint64_t)c->size)] = c->members[c->size - 1], c->size--;
    if (below(t, 3) == 0 && c->size < VIEW_MEMBERS_MAX)
        c->members[c->size++] = invented(t);
    if (below(t, 2) && view_find(c, &t->nodes[t->hostile].info.id) < 0 && c->size < VIEW_MEMBERS_MAX)
        c->members[c->size++] = t->nodes[t->hostile].info;
    if (below(t, 2) && view_find(c, &t->nodes[to].info.id) < 0 && c->size < VIEW_MEMBERS_MAX)
        c->members[c->size++] = t->nodes[to].info;
    int self = view_find(c, &t->nodes[t->hostile].info.id);
    c->leader = self >= 0 && below(t, 2) ? self : (int)below(t, (uint64_t)c->size);
}

/* ---- what it does not lie about if its votes are true ---- */

/* An election that somebody is in, or may be in when the message arrives. */
static bool at_hand(const struct sim_cluster *t, uint64_t instance, uint64_t epoch)
{
    for (int i = 0; i < t->size; i++) {
        if (t->nodes[i].state == SIM_NODE_EMPTY || view_of(t, i)->instance != instance)
            continue;
        if (epoch >= view_of(t, i)->epoch && epoch < view_of(t, i)->epoch + 1000)
            return true;
    }
    return false;
}

/* The node has no other word about this view than ours, or may lose it. */
static bool alone_is_believed(const struct sim_cluster *t, int to, const struct view *view)
{
    const struct view *own = view_of(t, to);
    bool alone[VIEW_MEMBERS_MAX] = {false};
    int self = view_find(own, &t->nodes[t->hostile].info.id);
    if (view->instance == own->instance) {
        if (self >= 0)
            alone[self] = true;
        return view_quorum(own, alone);
    }
    for (int i = 0; i < t->size && !t->faults; i++)
        if (i != to && i != t->hostile && t->roads[to][i].linked &&
            view_find(view, &t->nodes[i].info.id) >= 0)
            return false;
    return true;
}

/* ---- messages ---- */

static bool forge_beat(struct sim_cluster *t, int to, enum hostility how, struct writer *w)
{
    const struct consensus *other = t->nodes[draw_living(t)].consensus;
    const struct view *any = &other->view;
    struct beat b = {.stamp_ns = prng_u64(&t->prng) >> below(t, 64),
                     .echo_ns = below(t, 2) ? t->now_ns - below(t, NS_PER_S) : prng_u64(&t->prng),
                     .hold_ns = prng_u64(&t->prng) >> below(t, 64),
                     .instance = draw_instance(t, to),
                     .epoch = near(t, any->epoch),
                     .request = below(t, 2) ? 0 : draw_instance(t, to),
                     .request_after = below(t, 2) ? 0 : near(t, any->epoch),
                     .size = (uint16_t)(1 + below(t, VIEW_MEMBERS_MAX)),
                     .flags = (uint8_t)below(t, 32),
                     .every_ms = (uint32_t)prng_u64(&t->prng)};
    if (b.request == b.instance)
        b.request = 0;
    if (below(t, 2)) { /* where somebody else is, or will be */
        bool next = how == HOSTILE_AT_WILL && other->accepted_term != 0;
        b.instance = any->instance;
        b.epoch = next ? other->accepted.epoch : any->epoch;
        b.digest = next ? other->accepted_digest : other->digest;
        b.request = 0;
    }
    beat_put(w, &b);
    return true;
}

static bool forge_view(struct sim_cluster *t, int to, enum hostility how, struct writer *w)
{
    static struct view c;
    forge_members(t, to, how, &c);
    if (how == HOSTILE_BUT_TRUE_VOTES && alone_is_believed(t, to, &c))
        return false;
    view_put(w, &c);
    return true;
}

static bool forge_call(struct sim_cluster *t, int to, struct writer *w)
{
    const struct view *own = view_of(t, to);
    struct vote_request call = {.instance = draw_instance(t, to),
                                .epoch = below(t, 4) ? own->epoch : near(t, own->epoch),
                                .term = near(t, own->term),
                                .tries = (uint32_t)(below(t, 2) ? prng_u64(&t->prng) : below(t, 3))};
    call_put(w, &call);
    return true;
}

static bool forge_answer(struct sim_cluster *t, int to, uint8_t kind, enum hostility how, struct writer *w)
{
    static struct view c;
    const struct view *own = view_of(t, to);
    struct answer a = {.instance = draw_instance(t, to),
                       .epoch = below(t, 4) ? own->epoch : near(t, own->epoch),
                       .term = below(t, 2) ? own->term : near(t, own->term),
                       .promised = near(t, own->term),
                       .yes = below(t, 2)};
    if (kind == MESSAGE_LEAVE && below(t, 2))
        a.term = below(t, VIEW_MEMBERS_MAX + 2);
    if (how == HOSTILE_BUT_TRUE_VOTES && a.yes && at_hand(t, a.instance, a.epoch))
        return false;
    a.accepted_term = kind == MESSAGE_ACCEPT || below(t, 2) ? 0 : near(t, own->term);
    forge_members(t, to, how, &c);
    c.instance = a.instance;
    c.epoch = a.epoch + 1;
    answer_put(w, &a, &c);
    return true;
}

static bool forge_proposal(struct sim_cluster *t, int to, enum hostility how, struct writer *w)
{
    static struct view c;
    forge_members(t, to, how, &c);
    if (how == HOSTILE_BUT_TRUE_VOTES && at_hand(t, c.instance, c.epoch - 1))
        return false;
    put_u64(w, below(t, 2) ? c.term : near(t, c.term));
    view_put(w, &c);
    return true;
}

static bool forge(struct sim_cluster *t, int to, uint8_t kind, enum hostility how, struct writer *w)
{
    switch (kind) {
    case MESSAGE_BEAT:
        return forge_beat(t, to, how, w);
    case MESSAGE_VIEW:
        return forge_view(t, to, how, w);
    case MESSAGE_CALL:
        return forge_call(t, to, w);
    case MESSAGE_PROPOSE:
        return forge_proposal(t, to, how, w);
    case MESSAGE_DISSOLVE:
        put_u64(w, draw_instance(t, to));
        put_u64(w, draw_instance(t, to));
        return true;
    default:
        return forge_answer(t, to, kind, how, w);
    }
}

void hostile_act(struct sim_cluster *t, enum hostility how)
{
    static uint8_t bytes[VIEW_LEN_MAX + 128];
    struct writer w = writer_of(bytes, sizeof bytes);
    if (t->hostile < 0 || t->nodes[t->hostile].state != SIM_NODE_LIVES)
        return;
    int to = draw_victim(t);
    uint8_t kind = (uint8_t)(MESSAGE_BEAT + below(t, MESSAGE_DISSOLVE - MESSAGE_BEAT + 1));
    if (to >= 0 && forge(t, to, kind, how, &w) && !w.bad)
        sim_cluster_send(t, t->hostile, to, kind, bytes, (size_t)(w.at - bytes));
}
