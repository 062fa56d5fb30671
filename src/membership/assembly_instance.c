/* SPDX-License-Identifier: Apache-2.0 */
/* From census to census and from instance to instance: adopting, beginning anew, merging. */
#include <string.h>

#include "membership/assembly_state.h"

#define JOIN_NS (2 * NS_PER_S) /* at least so long we wait to be taken in */

void census_copy(struct census *to, const struct census *from)
{
    memcpy(to, from, offsetof(struct census, members) + (size_t)from->size * sizeof(from->members[0]));
}

/* ---- where we have been ---- */

uint64_t instance_left_at(const struct assembly *a, uint64_t instance)
{
    if (a->self.flags & FELLOW_GUEST)
        return 0; /* it has promised nothing */
    for (int i = 0; i < a->past_count; i++)
        if (a->past[i].instance == instance)
            return a->past[i].epoch;
    return 0;
}

/* What we promised there is forgotten, so that we must not be a voter there again before a later census takes
 * us in. The oldest of many is forgotten. */
static void past_add(struct assembly *a, uint64_t instance, uint64_t epoch)
{
    int at = 0;
    while (at < a->past_count && a->past[at].instance != instance)
        at++;
    if (at == a->past_count && at == PAST_MAX)
        at = 0;
    if (at < a->past_count) { /* to the end: the youngest */
        memmove(&a->past[at], &a->past[at + 1], (size_t)(a->past_count - at - 1) * sizeof(a->past[0]));
        a->past_count--;
    }
    a->past[a->past_count++] = (struct past){instance, epoch};
}

/* ---- adopting ---- */

static void keep_proxies(struct assembly *a)
{
    int kept = 0;
    for (int i = 0; i < a->proxy_count; i++)
        if (a->census.instance == a->previous.instance && census_find(&a->census, &a->proxies[i]) >= 0)
            a->proxies[kept++] = a->proxies[i];
    a->proxy_count = kept;
}

/* Those who came just now need not have learnt it yet. */
static void excuse_newcomers(struct assembly *a)
{
    bool other = a->census.instance != a->previous.instance;
    for (int i = 0; i < a->census.size; i++)
        if (a->member[i] != NULL && (other || census_find(&a->previous, &a->census.members[i].id) < 0))
            a->member[i]->stray_ok_ns = a->now_ns + 2 * answer_ns(a);
}

static void install(struct assembly *a, const struct census *next)
{
    bool other = next->instance != a->census.instance;
    census_copy(&a->previous, &a->census);
    census_copy(&a->census, next);
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
    if (other || a->wish == next->instance)
        a->wish = 0;
    a->accepted_term = 0;
    a->leader_lost_ns = 0;
    a->change_ns = NEVER_NS;
    a->adopted_ns = a->now_ns;
    a->counts.censuses++;
    vote_reset(a);
    event_census(a, &a->previous); /* while those who are out are still known */
    members_link(a);
    keep_proxies(a);
    excuse_newcomers(a);
    a->announce = true; /* others wait for our word that it was decided */
    a->stir = true;
}

void instance_found(struct assembly *a)
{
    struct census *next = &a->scratch;
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

bool instance_wants(const struct assembly *a, const struct census *census)
{
    const struct census *own = &a->census;
    if (census->instance == own->instance)
        return census->epoch > own->epoch && census->epoch <= own->epoch + EPOCH_STEP &&
               term_near(a, census->term);
    return census->instance == a->wish && census->epoch > instance_left_at(a, census->instance) &&
           census->epoch <= JOIN_MAX && census->term <= JOIN_MAX && census_find(census, &a->self.id) >= 0;
}

void instance_adopt(struct assembly *a, const struct census *census)
{
    if (!instance_wants(a, census))
        return;
    if (census_find(census, &a->self.id) >= 0) {
        install(a, census);
        return;
    }
    instance_found(a); /* we were taken out */
}

/* ---- which of two is better ---- */

/* Too few are heard, and not only for a moment: who wakes up does not leave its instance for that. */
static uint64_t given_up_ns(const struct assembly *a)
{
    return a->has_quorum ? NEVER_NS : a->stranded_ns + answer_ns(a) / 4;
}

bool instance_better(const struct assembly *a, const struct peer *leader)
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
    if (b->size != a->census.size)
        return b->size > a->census.size;
    return b->instance < a->census.instance;
}

/* It speaks for another instance that takes newcomers. */
static bool speaks_for_another(const struct assembly *a, const struct peer *p)
{
    return p->health.linked && p->health.state != HEALTH_DEAD && !p->left && p->told &&
           (p->beat.flags & BEAT_LEADS) && p->beat.instance != a->census.instance && p->beat.wish == 0;
}

/* Of two who say so, an old leader and a new one, the one whose census is later. */
static const struct peer *speaker_of(const struct assembly *a, uint64_t instance)
{
    const struct peer *speaker = NULL;
    for (int i = 0; i < a->peer_count; i++) {
        const struct peer *p = a->peers[i];
        if (p->beat.instance == instance && speaks_for_another(a, p) &&
            (speaker == NULL || p->beat.epoch > speaker->beat.epoch))
            speaker = p;
    }
    return speaker;
}

/* Our key is in there already, on another machine: it would not take us in. */
static bool key_is_there(const struct assembly *a, uint64_t instance)
{
    for (int i = 0; i < a->peer_count; i++)
        if (a->peers[i]->told && a->peers[i]->beat.instance == instance &&
            copied_key(&a->self, &a->peers[i]->fellow))
            return true;
    return false;
}

static void tell_conflict(struct assembly *a, struct peer *p)
{
    bool both = a->busy && self_leads(a) && a->has_quorum && (p->beat.flags & BEAT_BUSY) &&
                (p->beat.flags & BEAT_QUORUM);
    if (both && !p->conflict_told) {
        struct assembly_event *e = event_add(a, ASSEMBLY_CONFLICT, &p->fellow);
        event_text(e,
                   "jobs run in two instances of this cluster, ours (%d members) and that of %s (%d): "
                   "they stay apart until one has ended",
                   a->census.size, p->fellow.name, p->beat.size);
        log_write(&a->log, HEARTH_LOG_WARN, "HEARTH-CONFLICT", "%s", e->text);
    }
    p->conflict_told = both;
}

/* ---- joining another one ---- */

static void wish_end(struct assembly *a)
{
    a->wish = 0;
    a->dissolve_ns = NEVER_NS;
    a->announce = true;
}

static uint64_t join_ns(const struct assembly *a)
{
    uint64_t ns = 4 * answer_ns(a);
    return ns > JOIN_NS ? ns : JOIN_NS;
}

static void wish_begin(struct assembly *a, uint64_t instance)
{
    a->wish = instance;
    a->wish_end_ns = a->now_ns + join_ns(a);
    a->announce = true;
}

static void send_dissolve(struct assembly *a)
{
    struct writer w = letter_begin(a);
    put_u64(&w, a->census.instance);
    put_u64(&w, a->wish);
    send_to_others(a, LETTER_DISSOLVE, &w);
    a->dissolve_ns = a->now_ns + answer_ns(a) / 2;
}

void take_dissolve(struct assembly *a, struct peer *from, uint64_t instance, uint64_t target)
{
    if (instance != a->census.instance || from->index != a->census.leader || target == instance ||
        key_is_there(a, target) || speaker_of(a, target) == NULL)
        return;
    if (a->wish != target)
        wish_begin(a, target);
    a->wish_end_ns = a->now_ns + join_ns(a);
    a->stir = true;
}

static void think_of_wish(struct assembly *a)
{
    const struct peer *speaker = speaker_of(a, a->wish);
    bool ours_to_judge = self_leads(a) || !a->has_quorum;
    if (speaker == NULL || (ours_to_judge && !instance_better(a, speaker))) {
        wish_end(a);
        a->wish_pause_ns = a->now_ns + answer_ns(a) / 20; /* what has just changed may change again */
    } else if (a->now_ns >= a->wish_end_ns) {
        wish_end(a);
        a->wish_pause_ns = a->now_ns + answer_ns(a) + prng_below(&a->prng, 2 * answer_ns(a));
    } else if (self_leads(a) && a->now_ns >= a->dissolve_ns) {
        send_dissolve(a);
    }
}

/* Of those that are better than ours the best, which the speakers' own comparison would find, too. */
static bool better_speaker(const struct peer *p, const struct peer *best)
{
    const uint8_t flags[] = {BEAT_BUSY, BEAT_BEGUN};
    for (size_t i = 0; i < sizeof(flags); i++)
        if ((p->beat.flags & flags[i]) != (best->beat.flags & flags[i]))
            return (p->beat.flags & flags[i]) != 0;
    if (p->beat.size != best->beat.size)
        return p->beat.size > best->beat.size;
    return p->beat.instance < best->beat.instance;
}

static void look_for_better(struct assembly *a)
{
    const struct peer *best = NULL;
    for (int i = 0; i < a->peer_count; i++) {
        struct peer *p = a->peers[i];
        if (!speaks_for_another(a, p) || speaker_of(a, p->beat.instance) != p)
            continue;
        tell_conflict(a, p);
        if (instance_better(a, p) && !key_is_there(a, p->beat.instance) &&
            (best == NULL || better_speaker(p, best)))
            best = p;
    }
    if (best == NULL || a->now_ns < a->wish_pause_ns)
        return;
    wish_begin(a, best->beat.instance);
    if (self_leads(a) && a->has_quorum && a->census.size > 1)
        send_dissolve(a);
}

/* ---- thinking ---- */

static void think_of_quorum(struct assembly *a)
{
    bool present[CENSUS_MEMBERS_MAX];
    for (int i = 0; i < a->census.size; i++)
        present[i] = member_present(a, i);
    bool quorum = census_quorum(&a->census, present);
    if (quorum == a->has_quorum)
        return;
    a->has_quorum = quorum;
    a->stranded_ns = a->now_ns;
    a->anew_jitter_ns = prng_below(&a->prng, answer_ns(a));
    a->announce = a->announce || self_leads(a);
}

/* People are told when it lasts: who wakes up hears the others a moment later. */
static uint64_t tell_quorum_ns(const struct assembly *a)
{
    if (a->has_quorum == a->quorum_told)
        return NEVER_NS;
    return a->has_quorum ? a->now_ns : a->stranded_ns + answer_ns(a) / 2;
}

/* Too few were heard for too long, and nothing was ever done here that others could still be doing. A guest
 * decides nothing, so it need not wait, and alone it has nothing to gain. */
static uint64_t anew_ns(const struct assembly *a)
{
    bool waits = census_votes(&a->census, a->me) ? a->worked : a->census.size == 1;
    if (a->has_quorum || waits || a->wish != 0)
        return NEVER_NS;
    return a->stranded_ns + 2 * a->preset->dead_ns + a->anew_jitter_ns;
}

void instance_think(struct assembly *a)
{
    think_of_quorum(a);
    if (a->now_ns >= tell_quorum_ns(a)) {
        a->quorum_told = a->has_quorum;
        event_quorum(a);
    }
    if (self_leads(a) && a->busy)
        a->worked = true;
    if (a->wish != 0)
        think_of_wish(a);
    if (a->wish == 0 && (self_leads(a) || !a->has_quorum))
        look_for_better(a);
    if (a->now_ns >= anew_ns(a))
        instance_found(a);
}

/* When the next one who is still in another instance is not excused any more. */
static uint64_t excuse_ends_ns(const struct assembly *a)
{
    uint64_t end = NEVER_NS;
    for (int i = 0; i < a->census.size; i++) {
        const struct peer *p = a->member[i];
        if (p != NULL && p->told && p->beat.instance != a->census.instance && p->stray_ok_ns > a->now_ns &&
            p->stray_ok_ns < end)
            end = p->stray_ok_ns;
    }
    return end;
}

uint64_t instance_deadline(const struct assembly *a)
{
    uint64_t deadline = anew_ns(a), excuse = excuse_ends_ns(a), tell = tell_quorum_ns(a);
    deadline = excuse < deadline ? excuse : deadline;
    deadline = tell < deadline ? tell : deadline;
    if (given_up_ns(a) > a->now_ns && given_up_ns(a) < deadline)
        deadline = given_up_ns(a);
    if (a->wish != 0) {
        deadline = a->wish_end_ns < deadline ? a->wish_end_ns : deadline;
        if (self_leads(a) && a->dissolve_ns < deadline)
            deadline = a->dissolve_ns;
    } else if (a->wish_pause_ns > a->now_ns && a->wish_pause_ns < deadline) {
        deadline = a->wish_pause_ns;
    }
    return deadline;
}
