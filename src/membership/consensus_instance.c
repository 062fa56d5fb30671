/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of view and of instance: adopting a view, founding, merging. */
#include <string.h>

#include "membership/consensus_state.h"

#define JOIN_NS (2 * NS_PER_S) /* least time to wait for admission */

void view_copy(struct view *to, const struct view *from)
{
    memcpy(to, from, offsetof(struct view, members) + (size_t)from->size * sizeof from->members[0]);
}

/* ---- earlier instances ---- */

uint64_t instance_left_at(const struct consensus *a, uint64_t instance)
{
    if (a->self.features & PEER_GUEST)
        return 0; /* a guest has promised nothing */
    for (int i = 0; i < a->past_count; i++)
        if (a->past[i].instance == instance)
            return a->past[i].epoch;
    return 0;
}

/* Promises are dropped with their instance, so this node may vote there again only after a later view admits
 * it. When the table is full the oldest entry goes. */
static void past_add(struct consensus *a, uint64_t instance, uint64_t epoch)
{
    int at = 0;
    while (at < a->past_count && a->past[at].instance != instance)
        at++;
    if (at == a->past_count && at == PAST_MAX)
        at = 0;
    if (at < a->past_count) { /* the newest stands last */
        memmove(&a->past[at], &a->past[at + 1], (size_t)(a->past_count - at - 1) * sizeof a->past[0]);
        a->past_count--;
    }
    a->past[a->past_count++] = (struct past){instance, epoch};
}

/* ---- adopting ---- */

static void keep_proxies(struct consensus *a)
{
    int kept = 0;
    for (int i = 0; i < a->proxy_count; i++)
        if (a->view.instance == a->previous.instance && view_find(&a->view, &a->proxies[i]) >= 0)
            a->proxies[kept++] = a->proxies[i];
    a->proxy_count = kept;
}

/* New members need time to learn that they were admitted. */
static void excuse_newcomers(struct consensus *a)
{
    bool other = a->view.instance != a->previous.instance;
    for (int i = 0; i < a->view.size; i++)
        if (a->member[i] && (other || view_find(&a->previous, &a->view.members[i].id) < 0))
            a->member[i]->stray_ok_ns = a->now_ns + 2 * answer_ns(a);
}

static void install(struct consensus *a, const struct view *next)
{
    bool other = next->instance != a->view.instance;
    view_copy(&a->previous, &a->view);
    view_copy(&a->view, next);
    a->digest = view_digest(a, next);
    a->offered.size = 0;
    if (other && a->previous.size > 0)
        past_add(a, a->previous.instance, a->previous.epoch);
    if (other || next->term > a->promised) {
        a->promised = next->term;
        a->voted_for = next->members[next->leader].id;
    }
    if (other) {
        a->apart_ns = 0;
        a->worked = false;
        a->seen_term = next->term;
    }
    a->begun = a->begun && !other;
    a->busy = a->busy && !other && identity_equal(&next->members[next->leader].id, &a->self.id);
    if (other || a->request == next->instance)
        a->request = 0;
    a->accepted_term = 0;
    a->leader_lost_ns = 0;
    a->change_ns = NEVER_NS;
    a->adopted_ns = a->now_ns;
    a->counts.views++;
    vote_reset(a);
    event_view(a, &a->previous); /* before members_link drops the removed peers */
    members_link(a);
    keep_proxies(a);
    excuse_newcomers(a);
    a->announce = true; /* others wait for our report */
    a->stir = true;
}

void instance_found(struct consensus *a)
{
    struct view *next = &a->scratch;
    next->instance = 0;
    while (next->instance == 0)
        next->instance = prng_u64(&a->prng);
    next->epoch = 1;
    next->term = 1;
    next->leader = 0;
    next->size = 1;
    next->members[0] = a->self;
    install(a, next);
}

bool instance_wants(const struct consensus *a, const struct view *view)
{
    const struct view *own = &a->view;
    if (view->instance == own->instance)
        return view->epoch > own->epoch && view->epoch <= own->epoch + EPOCH_STEP && term_near(a, view->term);
    return view->instance == a->request && view->epoch > instance_left_at(a, view->instance) &&
           view->epoch <= JOIN_MAX && view->term <= JOIN_MAX && view_find(view, &a->self.id) >= 0;
}

void instance_adopt(struct consensus *a, const struct view *view)
{
    if (!instance_wants(a, view))
        return;
    if (view_find(view, &a->self.id) >= 0) {
        install(a, view);
        return;
    }
    instance_found(a); /* we were removed */
}

/* ---- comparison of instances ---- */

/* No quorum, and not only briefly: a node that has just woken up stays in its instance. */
static uint64_t given_up_ns(const struct consensus *a)
{
    return a->has_quorum ? NEVER_NS : a->stranded_ns + answer_ns(a) / 4;
}

bool instance_better(const struct consensus *a, const struct voter *leader)
{
    const struct beat *b = &leader->beat;
    bool busy = (b->flags & BEAT_BUSY) != 0;
    if (!(b->flags & BEAT_QUORUM))
        return false;
    if (!a->has_quorum)
        return a->now_ns >= given_up_ns(a);
    if (busy || a->busy)
        return busy && !a->busy;
    bool begun = (b->flags & BEAT_BEGUN) != 0;
    if (begun != a->begun)
        return begun;
    if (b->size != a->view.size)
        return b->size > a->view.size;
    return b->instance < a->view.instance;
}

/* It leads another instance, which admits nodes. */
static bool speaks_for_another(const struct consensus *a, const struct voter *p)
{
    return p->health.linked && p->health.state != HEALTH_DEAD && !p->left && p->told &&
           (p->beat.flags & BEAT_LEADS) && p->beat.instance != a->view.instance && p->beat.request == 0;
}

/* The leader of the instance. If an old and a new one both claim it, the one with the later view. */
static const struct voter *speaker_of(const struct consensus *a, uint64_t instance)
{
    const struct voter *speaker = NULL;
    for (int i = 0; i < a->peer_count; i++) {
        const struct voter *p = a->peers[i];
        if (p->beat.instance == instance && speaks_for_another(a, p) &&
            (!speaker || p->beat.epoch > speaker->beat.epoch))
            speaker = p;
    }
    return speaker;
}

/* Another machine has our key there: the instance would not admit us. */
static bool key_is_there(const struct consensus *a, uint64_t instance)
{
    for (int i = 0; i < a->peer_count; i++)
        if (a->peers[i]->told && a->peers[i]->beat.instance == instance &&
            copied_key(&a->self, &a->peers[i]->info))
            return true;
    return false;
}

static void tell_conflict(struct consensus *a, struct voter *p)
{
    bool both = a->busy && self_leads(a) && a->has_quorum && (p->beat.flags & BEAT_BUSY) &&
                (p->beat.flags & BEAT_QUORUM);
    if (both && !p->conflict_told) {
        struct hearth_event *e = event_add(a, HEARTH_EVENT_TROUBLE, &p->info);
        event_text(e,
                   "jobs run in two instances of this cluster, ours (%d members) and that of %s (%d): "
                   "they stay apart until one has ended",
                   a->view.size, p->info.name, p->beat.size);
        log_write(&a->log, HEARTH_LOG_WARN, "HEARTH-CONFLICT", "%s", e->text);
    }
    p->conflict_told = both;
}

/* ---- joining another instance ---- */

static void request_end(struct consensus *a)
{
    a->request = 0;
    a->dissolve_ns = NEVER_NS;
    a->announce = true;
}

static uint64_t join_ns(const struct consensus *a)
{
    uint64_t ns = 4 * answer_ns(a);
    return ns > JOIN_NS ? ns : JOIN_NS;
}

static void request_begin(struct consensus *a, uint64_t instance)
{
    a->request = instance;
    a->request_end_ns = a->now_ns + join_ns(a);
    a->announce = true;
}

static void send_dissolve(struct consensus *a)
{
    struct writer w = message_begin(a);
    put_u64(&w, a->view.instance);
    put_u64(&w, a->request);
    for (int i = 0; i < a->view.size; i++)
        if (a->member[i])
            send_message(a, &a->view.members[i].id, MESSAGE_DISSOLVE, &w);
    a->dissolve_ns = a->now_ns + answer_ns(a) / 2;
}

void take_dissolve(struct consensus *a, struct voter *from, uint64_t instance, uint64_t target)
{
    if (instance != a->view.instance || from->index != a->view.leader || target == instance ||
        key_is_there(a, target) || !speaker_of(a, target))
        return;
    if (a->request != target)
        request_begin(a, target);
    a->request_end_ns = a->now_ns + join_ns(a);
    a->stir = true;
}

static void think_of_request(struct consensus *a)
{
    const struct voter *speaker = speaker_of(a, a->request);
    bool ours_to_judge = self_leads(a) || !a->has_quorum;
    if (!speaker || (ours_to_judge && !instance_better(a, speaker))) {
        request_end(a);
        a->request_pause_ns = a->now_ns + answer_ns(a) / 20; /* may change again soon */
    } else if (a->now_ns >= a->request_end_ns) {
        request_end(a);
        a->request_pause_ns = a->now_ns + answer_ns(a) + prng_below(&a->prng, 2 * answer_ns(a));
    } else if (self_leads(a) && a->now_ns >= a->dissolve_ns) {
        send_dissolve(a);
    }
}

/* The same order as instance_better. */
static bool better_speaker(const struct voter *p, const struct voter *best)
{
    const uint8_t flags[] = {BEAT_BUSY, BEAT_BEGUN};
    for (size_t i = 0; i < sizeof flags; i++)
        if ((p->beat.flags & flags[i]) != (best->beat.flags & flags[i]))
            return (p->beat.flags & flags[i]) != 0;
    if (p->beat.size != best->beat.size)
        return p->beat.size > best->beat.size;
    return p->beat.instance < best->beat.instance;
}

static void look_for_better(struct consensus *a)
{
    const struct voter *best = NULL;
    for (int i = 0; i < a->peer_count; i++) {
        struct voter *p = a->peers[i];
        if (!speaks_for_another(a, p) || speaker_of(a, p->beat.instance) != p)
            continue;
        tell_conflict(a, p);
        if (instance_better(a, p) && !key_is_there(a, p->beat.instance) && (!best || better_speaker(p, best)))
            best = p;
    }
    if (!best || a->now_ns < a->request_pause_ns)
        return;
    request_begin(a, best->beat.instance);
    if (self_leads(a) && a->has_quorum && a->view.size > 1)
        send_dissolve(a);
}

/* ---- thinking ---- */

static void think_of_quorum(struct consensus *a)
{
    bool present[VIEW_MEMBERS_MAX];
    for (int i = 0; i < a->view.size; i++)
        present[i] = member_present(a, i);
    bool quorum = view_quorum(&a->view, present);
    if (quorum == a->has_quorum)
        return;
    a->has_quorum = quorum;
    a->stranded_ns = a->now_ns;
    a->anew_jitter_ns = prng_below(&a->prng, answer_ns(a));
    a->announce = a->announce || self_leads(a);
}

/* Reported only if it lasts: a node that wakes up hears the others soon. */
static uint64_t tell_quorum_ns(const struct consensus *a)
{
    if (a->has_quorum == a->quorum_told)
        return NEVER_NS;
    return a->has_quorum ? a->now_ns : a->stranded_ns + answer_ns(a) / 2;
}

/* No quorum for too long, in an instance without a job that others could still run. A guest decides nothing,
 * so a job does not hold it; alone it gains nothing. */
static uint64_t anew_ns(const struct consensus *a)
{
    bool waits = view_votes(&a->view, a->me) ? a->worked : a->view.size == 1;
    if (a->has_quorum || waits || a->request != 0)
        return NEVER_NS;
    return a->stranded_ns + 2 * a->preset->dead_ns + a->anew_jitter_ns;
}

void instance_think(struct consensus *a)
{
    think_of_quorum(a);
    if (a->now_ns >= tell_quorum_ns(a)) {
        a->quorum_told = a->has_quorum;
        event_quorum(a);
    }
    if (self_leads(a) && a->busy)
        a->worked = true;
    if (a->request != 0)
        think_of_request(a);
    if (a->request == 0 && (self_leads(a) || !a->has_quorum))
        look_for_better(a);
    if (a->now_ns >= anew_ns(a))
        instance_found(a);
}

/* The next end of the grace period of a member that is still in another instance. */
static uint64_t excuse_ends_ns(const struct consensus *a)
{
    uint64_t end = NEVER_NS;
    for (int i = 0; i < a->view.size; i++) {
        const struct voter *p = a->member[i];
        if (p && p->told && p->beat.instance != a->view.instance && p->stray_ok_ns > a->now_ns &&
            p->stray_ok_ns < end)
            end = p->stray_ok_ns;
    }
    return end;
}

uint64_t instance_deadline(const struct consensus *a)
{
    uint64_t deadline = anew_ns(a), excuse = excuse_ends_ns(a), tell = tell_quorum_ns(a);
    deadline = excuse < deadline ? excuse : deadline;
    deadline = tell < deadline ? tell : deadline;
    if (given_up_ns(a) > a->now_ns && given_up_ns(a) < deadline)
        deadline = given_up_ns(a);
    if (a->request != 0) {
        deadline = a->request_end_ns < deadline ? a->request_end_ns : deadline;
        if (self_leads(a) && a->dissolve_ns < deadline)
            deadline = a->dissolve_ns;
    } else if (a->request_pause_ns > a->now_ns && a->request_pause_ns < deadline) {
        deadline = a->request_pause_ns;
    }
    return deadline;
}
