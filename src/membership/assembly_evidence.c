/* SPDX-License-Identifier: Apache-2.0 */
/* Which views of others are believed. One member may lie; so nobody takes a view because one other says that
 * it was decided. What a peer says is of two kinds, both with the digest of the whole view:
 *
 *   it has accepted it   ACCEPT, which goes to all members, or PROPOSE, since who proposes accepts
 *   it is in it          BEAT and CENSUS; an honest one is in a view only after it was decided
 *
 * A view is believed
 *  - in our own instance: if a quorum of our view is in it or has accepted it in one term (the next epoch),
 *    or two others are in it (any later epoch): one of the two is honest;
 *  - in the instance that we wish to join: if two others are in it, or one where we know nobody else who
 *    should be.
 *
 * A node that is behind and finds no such evidence, because those who could give it are gone, does not guess.
 * If those who are behind are a quorum of their view, they elect one of them, who finds what was decided as
 * every new leader does. If not, they leave the instance after a while, which harms nobody, and join again.
 * So does a node that finds others in another view of its own epoch: then somebody lied in an election. */
#include <string.h>

#include "membership/assembly_state.h"

struct digest view_digest(struct assembly *a, const struct census *census)
{
    struct writer w = letter_begin(a);
    census_put(&w, census);
    return digest_of(a->letter, (size_t)(w.at - a->letter));
}

/* ---- what peers say ---- */

void peer_says(struct peer *p, uint64_t instance, uint64_t epoch, const struct digest *digest)
{
    if (p->view.instance == instance && p->view.epoch > epoch)
        return; /* a letter that was late */
    p->view = (struct ballot){instance, epoch, 0, *digest};
}

static bool lives(const struct peer *p)
{
    return p->health.linked && p->health.state != HEALTH_DEAD;
}

static bool is_in(const struct peer *p, const struct census *census, const struct digest *digest)
{
    return lives(p) && p->view.instance == census->instance && p->view.epoch == census->epoch &&
           digest_equal(&p->view.digest, digest) && census_find(census, &p->fellow.id) >= 0;
}

static bool accepted_in(const struct peer *p, const struct census *census, uint64_t term,
                        const struct digest *digest)
{
    return p->accept.instance == census->instance && p->accept.epoch == census->epoch &&
           p->accept.term == term && digest_equal(&p->accept.digest, digest);
}

/* How many nodes are in this view, as they say. Processes with one key are one. */
static int backers(const struct assembly *a, const struct census *census, const struct digest *digest)
{
    int count = 0;
    for (int i = 0; i < a->peer_count; i++) {
        bool again = !is_in(a->peers[i], census, digest);
        for (int k = 0; k < i && !again; k++)
            again = node_id_equal(&a->peers[i]->fellow.id.node, &a->peers[k]->fellow.id.node) &&
                    is_in(a->peers[k], census, digest);
        count += !again;
    }
    return count;
}

/* ---- our own instance ---- */

/* A member that has left gave its vote to another one, which knows what was decided with it. */
static const struct peer *speaks_for(const struct assembly *a, int index)
{
    const struct peer *p = a->member[index];
    return p != NULL && p->left && p->heir >= 0 && p->heir < a->census.size ? a->member[p->heir] : p;
}

/* A quorum of our view is in it, or has accepted it in this term. */
static bool quorum_in_term(const struct assembly *a, const struct census *census, const struct digest *digest,
                           uint64_t term)
{
    bool next = census->epoch == a->census.epoch + 1, agrees[CENSUS_MEMBERS_MAX];
    for (int i = 0; i < a->census.size; i++) {
        const struct peer *p = a->member[i], *speaker = speaks_for(a, i);
        agrees[i] = (speaker != NULL && is_in(speaker, census, digest)) ||
                    (next && p != NULL && accepted_in(p, census, term, digest));
    }
    agrees[a->me] = next && term != 0 && a->accepted_term == term && !a->accepted_inherited &&
                    digest_equal(&a->accepted_digest, digest);
    return census_quorum(&a->census, agrees);
}

static bool believed_here(const struct assembly *a, const struct census *census, const struct digest *digest)
{
    if (backers(a, census, digest) >= 2 || quorum_in_term(a, census, digest, a->accepted_term))
        return true;
    for (int i = 0; i < a->census.size; i++) {
        const struct peer *p = a->member[i];
        if (p != NULL && p->accept.term != 0 && quorum_in_term(a, census, digest, p->accept.term))
            return true;
    }
    return false;
}

/* ---- another instance ---- */

/* It should know this view: it is in its instance as it says, or is listed and not about to join, too. */
static bool should_know(const struct peer *p, const struct census *census)
{
    if (!lives(p) || p->view.instance == census->instance)
        return lives(p);
    return census_find(census, &p->fellow.id) >= 0 && !(p->told && p->beat.wish == census->instance);
}

/* How many must be in it: two nodes, or the only one that should know. */
static int needed_there(const struct assembly *a, const struct census *census)
{
    const struct node_id *first = NULL;
    for (int i = 0; i < a->peer_count; i++) {
        const struct peer *p = a->peers[i];
        if (!should_know(p, census))
            continue;
        if (first != NULL && !node_id_equal(first, &p->fellow.id.node))
            return 2;
        first = &p->fellow.id.node;
    }
    return 1;
}

static bool believed(const struct assembly *a, const struct census *census, const struct digest *digest)
{
    if (census->instance == a->census.instance)
        return believed_here(a, census, digest);
    return backers(a, census, digest) >= needed_there(a, census);
}

/* ---- what follows ---- */

void take_census(struct assembly *a, struct peer *from)
{
    const struct census *census = &a->scratch;
    struct digest digest = view_digest(a, census);
    peer_says(from, census->instance, census->epoch, &digest);
    a->stir = true;
    if (!instance_wants(a, census))
        return;
    bool keep = a->offered.size > 0 && instance_wants(a, &a->offered) &&
                backers(a, &a->offered, &a->offered_digest) > backers(a, census, &digest);
    if (keep)
        return; /* more stand behind that one */
    census_copy(&a->offered, census);
    a->offered_digest = digest;
}

static bool in_another_view(const struct assembly *a, const struct peer *p)
{
    const struct beat *b = &p->beat;
    return lives(p) && !p->left && p->told && b->instance == a->census.instance &&
           (b->epoch != a->census.epoch || !digest_equal(&b->digest, &a->digest));
}

bool peer_disagrees(const struct assembly *a, const struct peer *p)
{
    return in_another_view(a, p) && p->beat.epoch >= a->census.epoch;
}

/* Its view and ours cannot both go on: it leads another one that has a quorum, and we lead or have none. */
static bool is_rival(const struct assembly *a, const struct peer *p)
{
    bool leads = (p->beat.flags & BEAT_LEADS) && (p->beat.flags & BEAT_QUORUM);
    return leads && (a->has_quorum ? self_leads(a) && peer_disagrees(a, p) : in_another_view(a, p));
}

/* Others are in another view of our instance, and not enough are in ours. */
static bool is_apart(const struct assembly *a)
{
    bool some = false, with[CENSUS_MEMBERS_MAX];
    for (int i = 0; i < a->peer_count; i++) {
        some = some || peer_disagrees(a, a->peers[i]);
        if (is_rival(a, a->peers[i]))
            return true;
    }
    for (int i = 0; i < a->census.size; i++)
        with[i] = member_present(a, i) && (a->member[i] == NULL || !peer_disagrees(a, a->member[i]));
    return some && !census_quorum(&a->census, with);
}

uint64_t evidence_deadline(const struct assembly *a)
{
    return a->apart_ns != 0 && a->wish == 0 ? a->apart_ns + a->preset->dead_ns : NEVER_NS;
}

void evidence_think(struct assembly *a)
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
        log_write(&a->log, HEARTH_LOG_WARN, "HEARTH-APART",
                  "others are in a view of this instance that nothing proves: joining them anew");
        instance_found(a);
    }
}
