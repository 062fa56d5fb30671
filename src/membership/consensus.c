/* SPDX-License-Identifier: Apache-2.0 */
/* The consensus: its peers, messages in and out, time. */
#include "membership/consensus.h"

#include <stdio.h>
#include <string.h>

#include "membership/consensus_state.h"

#define EVERY_MIN_NS (100 * NS_PER_MS) /* shortest heartbeat interval that a peer can ask for */

/* ---- members ---- */

bool self_leads(const struct consensus *a)
{
    return a->view.leader == a->me && view_votes(&a->view, a->me);
}

uint64_t answer_ns(const struct consensus *a)
{
    return a->answer_ns;
}

/* A preset may be too short for the latency of this network. */
static void learn_answer_time(struct consensus *a)
{
    uint64_t slowest = 0;
    for (int i = 0; i < a->view.size; i++)
        if (a->member[i] && a->member[i]->health.latency_ns > slowest)
            slowest = a->member[i]->health.latency_ns;
    uint64_t most = 4 * a->preset->reconnect_ns, want = 4 * slowest;
    want = want < most ? want : most;
    a->answer_ns = want > a->preset->reconnect_ns ? want : a->preset->reconnect_ns;
}

struct voter *peer_find(const struct consensus *a, const struct identity *id)
{
    for (int i = 0; i < a->peer_count; i++)
        if (identity_equal(&a->peers[i]->info.id, id))
            return a->peers[i];
    return NULL;
}

bool proxy_held(const struct consensus *a, const struct identity *id)
{
    for (int i = 0; i < a->proxy_count; i++)
        if (identity_equal(&a->proxies[i], id))
            return true;
    return false;
}

static bool strayed(const struct consensus *a, const struct voter *p)
{
    return p->told && p->beat.instance != a->view.instance && a->now_ns >= p->stray_ok_ns;
}

bool member_gone(const struct consensus *a, int index)
{
    const struct voter *p = a->member[index];
    if (index == a->me || !p)
        return index != a->me;
    return p->left || p->health.state == HEALTH_DEAD || strayed(a, p);
}

/* It counts for a quorum: heard since this node last woke up, or its vote is ours. A member that was never
 * connected counts until it is dead. */
bool member_present(const struct consensus *a, int index)
{
    const struct voter *p = a->member[index];
    if (index == a->me || proxy_held(a, &a->view.members[index].id))
        return true;
    return !member_gone(a, index) && p->health.heard_ns >= p->health.paused_ns;
}

/* ---- peers ---- */

static struct voter *peer_add(struct consensus *a, const struct peer_info *info)
{
    struct voter *p = NULL;
    if (a->peer_count < PEERS_MAX)
        p = heap_alloc(a->heap, 1, sizeof *p);
    if (!p) {
        log_write(&a->log, HEARTH_LOG_WARN, "HEARTH-PEERS-FULL",
                  "%s is not watched: no memory, or more than %d peers", info->name, PEERS_MAX);
        return NULL;
    }
    p->info = *info;
    p->heir = -1;
    p->index = view_find(&a->view, &info->id);
    if (p->index >= 0)
        a->member[p->index] = p;
    health_init(&p->health, a->preset, a->now_ns);
    a->peers[a->peer_count++] = p;
    return p;
}

static void peer_remove(struct consensus *a, int at)
{
    heap_free(a->peers[at]);
    a->peers[at] = a->peers[--a->peer_count];
}

void members_link(struct consensus *a)
{
    for (int i = a->peer_count - 1; i >= 0; i--) {
        struct voter *p = a->peers[i];
        p->index = view_find(&a->view, &p->info.id);
        p->heir = -1; /* an index of the previous view */
        if (p->index < 0 && !p->health.linked)
            peer_remove(a, i);
    }
    memset(a->member, 0, sizeof a->member);
    a->me = view_find(&a->view, &a->self.id);
    for (int i = 0; i < a->peer_count; i++)
        if (a->peers[i]->index >= 0)
            a->member[a->peers[i]->index] = a->peers[i];
    for (int i = 0; i < a->view.size; i++)
        if (i != a->me && !a->member[i])
            peer_add(a, &a->view.members[i]);
}

/* ---- sending ---- */

struct writer message_begin(struct consensus *a)
{
    return writer_of(a->message, sizeof a->message);
}

void send_message(struct consensus *a, const struct identity *to, uint8_t kind, const struct writer *w)
{
    const struct voter *p = peer_find(a, to);
    if (p && p->health.linked && !w->bad)
        outbox_put(a->outbox, to, kind, a->message, (size_t)(w->at - a->message));
}

void send_beat(struct consensus *a, struct voter *p)
{
    struct beat b = {.stamp_ns = a->now_ns,
                     .instance = a->view.instance,
                     .epoch = a->view.epoch,
                     .request = a->request,
                     .request_after = a->request != 0 ? instance_left_at(a, a->request) : 0,
                     .size = (uint16_t)a->view.size,
                     .digest = a->digest,
                     .every_ms = (uint32_t)(a->preset->beat_ns / NS_PER_MS)};
    if (p->told) {
        b.echo_ns = p->beat.stamp_ns;
        b.hold_ns = a->now_ns - p->beat_at_ns;
    }
    if (self_leads(a))
        b.flags = (uint8_t)(BEAT_LEADS | (a->has_quorum ? BEAT_QUORUM : 0) | (a->busy ? BEAT_BUSY : 0) |
                            (a->begun ? BEAT_BEGUN : 0));
    if (a->worked)
        b.flags |= BEAT_WORKED;
    struct writer w = message_begin(a);
    beat_put(&w, &b);
    send_message(a, &p->info.id, MESSAGE_BEAT, &w);
    send_accept(a, p); /* it may have missed it, or was not connected yet */
}

/* Heartbeats cross, so the same view is not repeated at once. */
void send_view(struct consensus *a, struct voter *p)
{
    bool again = p->view_epoch == a->view.epoch && a->now_ns < p->view_at_ns + answer_ns(a) / 5;
    if (again || !p->health.linked)
        return;
    p->view_epoch = a->view.epoch;
    p->view_at_ns = a->now_ns;
    struct writer w = message_begin(a);
    view_put(&w, &a->view);
    send_message(a, &p->info.id, MESSAGE_VIEW, &w);
}

/* ---- thinking ---- */

static void plan(struct consensus *a)
{
    uint64_t vote = vote_deadline(a), instance = instance_deadline(a), evidence = evidence_deadline(a);
    a->think_ns = vote < instance ? vote : instance;
    a->think_ns = evidence < a->think_ns ? evidence : a->think_ns;
}

static void think(struct consensus *a)
{
    learn_answer_time(a);
    for (int rounds = 0; rounds < 4 && (a->stir || rounds == 0); rounds++) {
        a->stir = false;
        evidence_think(a);
        instance_think(a);
        vote_think(a);
        if (a->request != 0)
            a->state = CONSENSUS_JOINING;
        else
            a->state = a->has_quorum ? CONSENSUS_MEMBER : CONSENSUS_STRANDED;
    }
    plan(a);
    if (!a->announce)
        return;
    a->announce = false;
    for (int i = 0; i < a->peer_count; i++)
        send_beat(a, a->peers[i]);
}

/* If this process itself did not run for long, the silence of peers does not count. */
static void advance(struct consensus *a, uint64_t now_ns)
{
    if (now_ns <= a->now_ns)
        return;
    uint64_t gap = now_ns - a->now_ns;
    a->now_ns = now_ns;
    if (now_ns >= a->think_ns)
        a->stir = true;
    if (self_leads(a))
        a->counts.leading_ns += gap;
    else
        a->counts.following_ns += gap;
    if (gap <= a->preset->dead_ns / 2)
        return;
    for (int i = 0; i < a->peer_count; i++)
        health_paused(&a->peers[i]->health, now_ns);
    a->stir = true;
}

static void health_changed(struct consensus *a, const struct voter *p, enum health_state before)
{
    if (p->health.state == before)
        return;
    a->stir = true;
    /* Members that leave and guests are no failures. */
    if (p->index >= 0 && !p->left && view_votes(&a->view, p->index)) {
        struct hearth_event *e = event_add(a, HEARTH_EVENT_HEALTH, &p->info);
        snprintf(e->health, sizeof e->health, "%s", health_state_name(p->health.state));
    }
}

/* A peer with a faster preset gets heartbeats at its own interval. */
static void beat_in_time(struct consensus *a, struct voter *p)
{
    uint64_t every = p->beat.every_ms * NS_PER_MS;
    send_beat(a, p);
    if (!p->told || every >= a->preset->beat_ns)
        return;
    every = every > EVERY_MIN_NS ? every : EVERY_MIN_NS;
    uint64_t next = a->now_ns + every - every / 10;
    p->health.next_ns = next < p->health.next_ns ? next : p->health.next_ns;
}

static void hear(struct consensus *a, struct voter *p)
{
    enum health_state before = p->health.state;
    if (p->health.heard_ns < p->health.paused_ns)
        a->stir = true; /* the first time since this node woke up */
    health_heard(&p->health, a->now_ns);
    health_changed(a, p, before);
}

void consensus_tick(struct consensus *a, uint64_t now_ns)
{
    if (a->state == CONSENSUS_GONE)
        return;
    advance(a, now_ns);
    for (int i = 0; i < a->peer_count; i++) {
        struct voter *p = a->peers[i];
        if (a->now_ns < health_deadline(&p->health))
            continue;
        enum health_state before = p->health.state;
        if (health_tick(&p->health, a->now_ns))
            beat_in_time(a, p);
        health_changed(a, p, before);
    }
    if (a->stir)
        think(a);
}

uint64_t consensus_deadline(const struct consensus *a)
{
    if (a->state == CONSENSUS_GONE)
        return NEVER_NS;
    uint64_t deadline = a->think_ns;
    for (int i = 0; i < a->peer_count; i++) {
        uint64_t other = health_deadline(&a->peers[i]->health);
        deadline = other < deadline ? other : deadline;
    }
    /* Without a connection nothing is due for long; advance() must not take that wait for a pause. */
    uint64_t soon = a->now_ns + a->preset->beat_ns;
    if (deadline != NEVER_NS && deadline > soon)
        deadline = soon;
    return a->stir ? a->now_ns : deadline;
}

/* ---- messages ---- */

static int refuse(const char **what, const char *text)
{
    *what = text;
    return HEARTH_PROTOCOL;
}

static void note_standing(struct consensus *a, struct voter *p, const struct beat *b)
{
    bool same = p->told && p->beat.instance == b->instance && p->beat.epoch == b->epoch &&
                p->beat.request == b->request && p->beat.request_after == b->request_after &&
                p->beat.size == b->size && p->beat.flags == b->flags &&
                digest_equal(&p->beat.digest, &b->digest);
    p->beat = *b;
    peer_says(p, b->instance, b->epoch, &b->digest);
    p->beat_at_ns = a->now_ns;
    p->told = true;
    if (b->instance == a->view.instance)
        p->stray_ok_ns = 0; /* it has arrived: from now on another instance means that it left */
    if (!same)
        a->stir = true;
}

/* A peer that is behind gets our view; a peer that is ahead learns that we are behind. */
static void help_along(struct consensus *a, struct voter *p)
{
    const struct beat *b = &p->beat;
    bool wants = b->request == a->view.instance && p->index >= 0 && b->request_after < a->view.epoch;
    if (b->instance == a->view.instance) {
        if ((b->flags & BEAT_WORKED) && p->index >= 0)
            a->worked = true;
        if (b->epoch < a->view.epoch && (self_leads(a) || a->now_ns > a->adopted_ns + answer_ns(a) / 2))
            send_view(a, p);
        else if (b->epoch > a->view.epoch)
            send_beat(a, p);
    } else if (wants && self_leads(a)) {
        send_view(a, p);
    }
}

static int input_beat(struct consensus *a, struct voter *p, struct reader *r, const char **what)
{
    struct beat b;
    if (!beat_get(r, &b))
        return refuse(what, "heartbeat: invalid field");
    note_standing(a, p, &b);
    bool answer = b.echo_ns > p->answered_ns && b.echo_ns <= a->now_ns && a->now_ns - b.echo_ns >= b.hold_ns;
    if (answer) {
        enum health_state before = p->health.state;
        p->answered_ns = b.echo_ns;
        health_answer(&p->health, a->now_ns - b.echo_ns - b.hold_ns, a->now_ns);
        health_changed(a, p, before);
    }
    help_along(a, p);
    return HEARTH_OK;
}

static int input_call(struct consensus *a, struct voter *p, struct reader *r, const char **what)
{
    struct vote_request call;
    if (!call_get(r, &call))
        return refuse(what, "call for votes: invalid field");
    take_call(a, p, &call);
    return HEARTH_OK;
}

static int input_answer(struct consensus *a, struct voter *p, uint8_t kind, struct reader *r,
                        const char **what)
{
    struct answer answer;
    if (!answer_get(r, &answer, &a->scratch))
        return refuse(what, "vote, acceptance or leave: invalid field");
    if (kind == MESSAGE_VOTE)
        take_vote(a, p, &answer);
    else if (kind == MESSAGE_ACCEPT)
        take_accept(a, p, &answer);
    else
        take_leave(a, p, &answer);
    return HEARTH_OK;
}

static int input_propose(struct consensus *a, struct voter *p, struct reader *r, const char **what)
{
    uint64_t term = get_u64(r);
    if (!view_get(r, &a->scratch) || !term_sane(term) || a->scratch.term > term || a->scratch.epoch < 2)
        return refuse(what, "proposal: invalid field");
    take_propose(a, p, term);
    return HEARTH_OK;
}

static int input_view(struct consensus *a, struct voter *p, struct reader *r, const char **what)
{
    if (!view_get(r, &a->scratch))
        return refuse(what, "view: invalid field");
    take_view(a, p);
    return HEARTH_OK;
}

static int input_dissolve(struct consensus *a, struct voter *p, struct reader *r, const char **what)
{
    uint64_t instance = get_u64(r), target = get_u64(r);
    if (r->bad || instance == 0 || target == 0)
        return refuse(what, "dissolve: invalid field");
    take_dissolve(a, p, instance, target);
    return HEARTH_OK;
}

static int input(struct consensus *a, struct voter *p, uint8_t kind, struct reader *r, const char **what)
{
    switch (kind) {
    case MESSAGE_BEAT:
        return input_beat(a, p, r, what);
    case MESSAGE_VIEW:
        return input_view(a, p, r, what);
    case MESSAGE_CALL:
        return input_call(a, p, r, what);
    case MESSAGE_VOTE:
    case MESSAGE_ACCEPT:
    case MESSAGE_LEAVE:
        return input_answer(a, p, kind, r, what);
    case MESSAGE_PROPOSE:
        return input_propose(a, p, r, what);
    case MESSAGE_DISSOLVE:
        return input_dissolve(a, p, r, what);
    default:
        return refuse(what, "not a message of the consensus");
    }
}

int consensus_input(struct consensus *a, const struct received *message, uint64_t now_ns, const char **what)
{
    *what = "";
    if (a->state == CONSENSUS_GONE)
        return HEARTH_OK;
    advance(a, now_ns);
    struct voter *p = peer_find(a, message->from);
    if (!p || !p->health.linked)
        return HEARTH_OK; /* the last messages of a closed connection, or no memory for the peer */
    hear(a, p);
    struct reader r = reader_of(message->payload, message->len);
    int status = input(a, p, message->kind, &r, what);
    if (a->stir)
        think(a);
    else if (message->kind != MESSAGE_BEAT)
        plan(a);
    return status;
}

/* ---- events of the node ---- */

void consensus_linked(struct consensus *a, const struct peer_info *info, uint64_t now_ns)
{
    if (a->state == CONSENSUS_GONE || identity_equal(&info->id, &a->self.id))
        return;
    advance(a, now_ns);
    struct voter *p = peer_find(a, &info->id);
    if (!p)
        p = peer_add(a, info);
    if (!p)
        return;
    enum health_state before = p->health.state;
    p->info = *info;
    if (!proxy_held(a, &info->id))
        p->left = false;
    health_linked(&p->health, a->now_ns);
    health_changed(a, p, before);
    copied_key_check(a, p);
    send_beat(a, p);
    a->stir = true;
    think(a);
}

void consensus_unlinked(struct consensus *a, const struct identity *peer, enum parting how, uint64_t now_ns)
{
    if (a->state == CONSENSUS_GONE)
        return;
    advance(a, now_ns);
    for (int i = 0; i < a->peer_count; i++) {
        struct voter *p = a->peers[i];
        if (!identity_equal(&p->info.id, peer))
            continue;
        enum health_state before = p->health.state;
        p->left = p->left || how == PARTING_LEFT;
        health_unlinked(&p->health, a->now_ns);
        health_changed(a, p, before);
        if (p->index < 0)
            peer_remove(a, i);
        break;
    }
    a->stir = true;
    think(a);
}

void consensus_heard(struct consensus *a, const struct identity *peer, uint64_t now_ns)
{
    if (a->state == CONSENSUS_GONE)
        return;
    advance(a, now_ns);
    struct voter *p = peer_find(a, peer);
    if (p)
        hear(a, p);
    if (a->stir)
        think(a);
}

void consensus_works(struct consensus *a, const struct identity *peer, bool works, uint64_t late_ns)
{
    struct voter *p = peer_find(a, peer);
    if (!p)
        return;
    p->health.works_with_us = works;
    p->health.late_ns = late_ns;
}

void consensus_describe(struct consensus *a, const struct peer_info *self, uint64_t now_ns)
{
    if (a->state == CONSENSUS_GONE)
        return;
    struct identity id = a->self.id;
    uint32_t guest = a->self.features & PEER_GUEST;
    advance(a, now_ns);
    a->self = *self;
    a->self.id = id; /* constant, as is the right to vote */
    a->self.features = (a->self.features & ~PEER_GUEST) | guest;
    a->stir = true;
    think(a);
}

void consensus_set_busy(struct consensus *a, bool busy)
{
    if (a->state == CONSENSUS_GONE || a->busy == busy)
        return;
    a->busy = busy;
    a->announce = true;
    a->stir = true;
    think(a);
}

void consensus_set_begun(struct consensus *a, bool begun)
{
    if (a->state == CONSENSUS_GONE || a->begun == begun)
        return;
    a->begun = begun;
    a->worked = a->worked || begun;
    a->announce = true;
    a->stir = true;
    think(a);
}

/* The vote goes to an heir, so that the rest of the cluster keeps its quorum. */
void consensus_leave(struct consensus *a, uint64_t now_ns)
{
    if (a->state == CONSENSUS_GONE)
        return;
    advance(a, now_ns);
    struct voter *heir = vote_heir(a);
    struct answer last = {.instance = a->view.instance,
                          .epoch = a->view.epoch,
                          .term = heir ? (uint64_t)heir->index + 1 : 0,
                          .promised = a->promised};
    if (heir && heir->told && heir->beat.epoch < a->view.epoch)
        send_view(a, heir);
    for (int i = 0; i < a->peer_count; i++) {
        last.yes = a->peers[i] == heir;
        last.accepted_term = last.yes ? a->accepted_term : 0;
        struct writer w = message_begin(a);
        answer_put(&w, &last, &a->accepted);
        send_message(a, &a->peers[i]->info.id, MESSAGE_LEAVE, &w);
    }
    a->state = CONSENSUS_GONE;
}

/* ---- state ---- */

enum consensus_state consensus_state(const struct consensus *a)
{
    return a->state;
}

const struct view *consensus_view(const struct consensus *a)
{
    return &a->view;
}

bool consensus_leads(const struct consensus *a)
{
    return self_leads(a) && a->state == CONSENSUS_MEMBER;
}

const struct health *consensus_health(const struct consensus *a, const struct identity *peer)
{
    const struct voter *p = peer_find(a, peer);
    return p ? &p->health : NULL;
}

const struct peer_info *consensus_peer(const struct consensus *a, const struct identity *peer)
{
    const struct voter *p = peer_find(a, peer);
    return p ? &p->info : NULL;
}

const struct peer_info *consensus_next_linked(const struct consensus *a, int *place)
{
    while (*place < a->peer_count) {
        const struct voter *p = a->peers[(*place)++];
        if (p->health.linked)
            return &p->info;
    }
    return NULL;
}

/* ---- opening ---- */

int consensus_open(const struct consensus_setup *setup, struct consensus **out)
{
    struct consensus *a = heap_alloc(setup->heap, 1, sizeof *a);
    *out = NULL;
    if (!a)
        return HEARTH_NO_MEMORY;
    a->heap = setup->heap;
    a->log = setup->log;
    a->outbox = setup->outbox;
    a->events = setup->events;
    a->self = setup->self;
    a->preset = setup->health;
    a->answer_ns = a->preset->reconnect_ns;
    a->now_ns = setup->now_ns;
    a->dissolve_ns = NEVER_NS;
    prng_init(&a->prng, setup->seed);
    instance_found(a);
    a->has_quorum = a->quorum_told = self_leads(a);
    a->stranded_ns = a->now_ns;
    a->stir = false;
    a->announce = false;
    a->think_ns = NEVER_NS;
    a->state = a->has_quorum ? CONSENSUS_MEMBER : CONSENSUS_STRANDED;
    *out = a;
    return HEARTH_OK;
}

void consensus_close(struct consensus *a)
{
    if (!a)
        return;
    for (int i = 0; i < a->peer_count; i++)
        heap_free(a->peers[i]);
    heap_free(a);
}
