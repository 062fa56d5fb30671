/* SPDX-License-Identifier: Apache-2.0 */
/* Which reported views are believed. One member may lie, so the word of one peer does not prove a view. A
 * peer reports two things, both with the digest of the whole view:
 *
 *   it has accepted it   ACCEPT, which goes to all members, or PROPOSE, since a proposer accepts
 *   it is in it          BEAT and VIEW; an honest peer is in a view only after it was decided
 *
 * A view is believed
 *  - in our own instance: if a quorum of our view is in it or has accepted it in one term (the next epoch),
 *    or two others are in it (any later epoch): one of the two is honest;
 *  - in the instance that we request to join: if two others are in it, or one if no other known peer should
 *    be.
 *
 * A node that is behind and finds no such evidence, because the peers that could give it are gone, does not
 * guess. If the nodes that are behind are a quorum of their view, they elect a leader, which finds what was
 * decided as every new leader does. If not, they leave the instance after a while and join again. So does a
 * node that finds others in another view of its own epoch: then a member lied in an election. */
#include <string.h>

#include "membership/consensus_state.h"

struct digest view_digest(struct consensus *a, const struct view *view)
{
    struct writer w = message_begin(a);
    view_put(&w, view);
    return digest_of(a->message, (size_t)(w.at - a->message));
}

/* ---- reports of peers ---- */

void peer_says(struct voter *p, uint64_t instance, uint64_t epoch, const struct digest *digest)
{
    if (p->view.instance == instance && p->view.epoch > epoch)
        return; /* a late message */
    p->view = (struct ballot){instance, epoch, 0, *digest};
}

static bool lives(const struct voter *p)
{
    return p->health.linked && p->health.state != HEALTH_DEAD;
}

static bool is_in(const struct voter *p, const struct view *view, const struct digest *digest)
{
    return lives(p) && p->view.instance == view->instance && p->view.epoch == view->epoch &&
           digest_equal(&p->view.digest, digest) && view_find(view, &p->info.id) >= 0;
}

static bool accepted_in(const struct voter *p, const struct view *view, uint64_t term,
                        const struct digest *digest)
{
    return p->accept.instance == view->instance && p->accept.epoch == view->epoch && p->accept.term == term &&
           digest_equal(&p->accept.digest, digest);
}

/* How many nodes report this view. Processes with one key count once. */
static int backers(const struct consensus *a, const struct view *view, const struct digest *digest)
{
    int count = 0;
    for (int i = 0; i < a->peer_count; i++) {
        bool again = !is_in(a->peers[i], view, digest);
        for (int k = 0; k < i && !again; k++)
            again = node_id_equal(&a->peers[i]->info.id.node, &a->peers[k]->info.id.node) &&
                    is_in(a->peers[k], view, digest);
        count += !again;
    }
    return count;
}

/* ---- our own instance ---- */

/* The heir of a member that left knows what was decided with its vote. */
static const struct voter *speaks_for(const struct consensus *a, int index)
{
    const struct voter *p = a->member[index];
    return p && p->left && p->heir >= 0 && p->heir < a->view.size ? a->member[p->heir] : p;
}

/* A quorum of our view is in it, or has accepted it in this term. */
static bool quorum_in_term(const struct consensus *a, const struct view *view, const struct digest *digest,
                           uint64_t term)
{
    bool next = view->epoch == a->view.epoch + 1, agrees[VIEW_MEMBERS_MAX];
    for (int i = 0; i < a->view.size; i++) {
        const struct voter *p = a->member[i], *speaker = speaks_for(a, i);
        agrees[i] =
            (speaker && is_in(speaker, view, digest)) || (next && p && accepted_in(p, view, term, digest));
    }
    agrees[a->me] = next && term != 0 && a->accepted_term == term && !a->accepted_inherited &&
                    digest_equal(&a->accepted_digest, digest);
    return view_quorum(&a->view, agrees);
}

static bool believed_here(const struct consensus *a, const struct view *view, const struct digest *digest)
{
    if (backers(a, view, digest) >= 2 || quorum_in_term(a, view, digest, a->accepted_term))
        return true;
    for (int i = 0; i < a->view.size; i++) {
        const struct voter *p = a->member[i];
        if (p && p->accept.term != 0 && quorum_in_term(a, view, digest, p->accept.term))
            return true;
    }
    return false;
}

/* ---- another instance ---- */

/* It should know this view: it reports the instance, or is listed and not just joining. */
static bool should_know(const struct voter *p, const struct view *view)
{
    if (!lives(p) || p->view.instance == view->instance)
        return lives(p);
    return view_find(view, &p->info.id) >= 0 && !(p->told && p->beat.request == view->instance);
}

/* How many must be in it: two nodes, or the only one that should know. */
static int needed_there(const struct consensus *a, const struct view *view)
{
    const struct node_id *first = NULL;
    for (int i = 0; i < a->peer_count; i++) {
        const struct voter *p = a->peers[i];
        if (!should_know(p, view))
            continue;
        if (first && !node_id_equal(first, &p->info.id.node))
            return 2;
        first = &p->info.id.node;
    }
    return 1;
}

static bool believed(const struct consensus *a, const struct view *view, const struct digest *digest)
{
    if (view->instance == a->view.instance)
        return believed_here(a, view, digest);
    return backers(a, view, digest) >= needed_there(a, view);
}

/* ---- consequences ---- */

void take_view(struct consensus *a, struct voter *from)
{
    const struct view *view = &a->scratch;
    struct digest digest = view_digest(a, view);
    peer_says(from, view->instance, view->epoch, &digest);
    a->stir = true;
    if (!instance_wants(a, view))
        return;
    bool keep = a->offered.size > 0 && instance_wants(a, &a->offered) &&
                backers(a, &a->offered, &a->offered_digest) > backers(a, view, &digest);
    if (keep)
        return; /* it has more backers */
    view_copy(&a->offered, view);
    a->offered_digest = digest;
}

static bool in_another_view(const struct consensus *a, const struct voter *p)
{
    const struct beat *b = &p->beat;
    return lives(p) && !p->left && p->told && b->instance == a->view.instance &&
           (b->epoch != a->view.epoch || !digest_equal(&b->digest, &a->digest));
}

bool peer_disagrees(const struct consensus *a, const struct voter *p)
{
    return in_another_view(a, p) && p->beat.epoch >= a->view.epoch;
}

/* It leads another view with a quorum, while we lead or hear no quorum: both views cannot go on. */
static bool is_rival(const struct consensus *a, const struct voter *p)
{
    bool leads = (p->beat.flags & BEAT_LEADS) && (p->beat.flags & BEAT_QUORUM);
    return leads && (a->has_quorum ? self_leads(a) && peer_disagrees(a, p) : in_another_view(a, p));
}

/* Others are in another view of our instance, and too few are in ours. */
static bool is_apart(const struct consensus *a)
{
    bool some = false, with[VIEW_MEMBERS_MAX];
    for (int i = 0; i < a->peer_count; i++) {
        some = some || peer_disagrees(a, a->peers[i]);
        if (is_rival(a, a->peers[i]))
            return true;
    }
    for (int i = 0; i < a->view.size; i++)
        with[i] = member_present(a, i) && (!a->member[i] || !peer_disagrees(a, a->member[i]));
    return some && !view_quorum(&a->view, with);
}

uint64_t evidence_deadline(const struct consensus *a)
{
    return a->apart_ns != 0 && a->request == 0 ? a->apart_ns + a->preset->dead_ns : NEVER_NS;
}

void evidence_think(struct consensus *a)
{
    if (a->accepted_term != 0 && believed(a, &a->accepted, &a->accepted_digest))
        vote_decided(a);
    else if (a->offered.size > 0 && instance_wants(a, &a->offered) &&
             believed(a, &a->offered, &a->offered_digest))
        instance_adopt(a, &a->offered);
    if (!is_apart(a))
        a->apart_ns = 0;
    else if (a->apart_ns == 0)
        a->apart_ns = a->now_ns;
    if (a->now_ns >= evidence_deadline(a)) {
        log_write(
            &a->log, HEARTH_LOG_WARN, "HEARTH-APART",
            "other members are in a view of this instance that cannot be proven: leaving it to join again");
        instance_found(a);
    }
}
