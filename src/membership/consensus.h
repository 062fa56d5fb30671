/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement on who is in and who leads. A machine: no I/O, no clock, no memory but its heap; simulator and
 * node drive the same code.
 *
 * The rules (docs/membership.md explains them):
 *  - A node founds an instance of its own when it begins: epoch 1, it alone, it leads. Instances that meet
 *    merge: the members of the worse one ask to join the better one (its leader tells them to), one view
 *    for all of them; until they are in it, their old one stays in force. Better: it has a quorum; then: a
 *    job runs in it (busy); then: one has begun; then: more members; then: the smaller instance number. Two
 *    busy ones do not merge, and both say so, until one is not busy any more.
 *  - Guests are in the view and take part in jobs, but have no vote: they never decide, call or lead, and
 *    no quorum needs them. Alone they are stranded, and join the first instance that they meet.
 *  - The next view of an instance is decided as in single-decree Paxos: acceptors are the voters of the
 *    present one, ballots are terms, a quorum is a majority or exactly half with the present leader. So
 *    there is one view for each epoch, whatever is lost, doubled, late or cut off.
 *  - One leader per term: a voter votes once in each. Who leads and has decided epoch e in term t may propose
 *    e + 1 in t at once, once. A voter calls for votes when the leader is dead, has left, says that it does
 *    not hear a quorum, or is in a view that nothing proves, and no voter more senior lives; if that one does
 *    not come forward, the next one does. Votes are refused while one's own leader serves (but after several
 *    tries of a candidate that has a better connection to the rest, given).
 *  - Acceptors tell all members what they accept, and members say in which view they are. Nobody believes a
 *    view because one other says so: consensus_evidence.c. Terms and epochs are followed in bounded steps.
 *  - The leader adds who asks to join (beats of nodes outside say which instance they want) and takes out who
 *    is dead, has left or is in another instance, many at once where they come together.
 *  - Who leaves hands its vote, with all it has promised and accepted, to one other member: the leader, or
 *    the next in line. So one of two can leave without stranding the other.
 *  - A restarted process is a new identity, and no voter of any view before it joined. Who returns to an
 *    instance is no voter there before a view later than the last one it knew takes it in.
 *  - Who cannot reach a quorum of its view is stranded: it decides nothing and says so. It goes on when it
 *    hears from a quorum again, joins again when it learns that it was taken out, and joins another
 *    instance that has a quorum when it meets one. If its instance never was busy it begins anew by itself
 *    after a while (twice dead_ns), alone; those who do so together merge.
 *  - Everything that came from an older term, epoch or another instance is answered with where we are, and
 *    changes nothing. */
#pragma once

#include "core/log.h"
#include "membership/event_log.h"
#include "membership/health.h"
#include "membership/outbox.h"
#include "membership/view.h"

struct consensus;

struct consensus_setup {
    struct heap *heap;
    struct log log;
    struct outbox *outbox;    /* lent: messages go there */
    struct event_log *events; /* lent: what happens to the view and its members */
    struct peer_info self;
    const struct health_preset *health;
    uint64_t seed; /* for jitter, and for drawing instances: never the same for two processes */
    uint64_t now_ns;
};
int MUST_CHECK consensus_open(const struct consensus_setup *setup, struct consensus **out);
void consensus_close(struct consensus *consensus); /* NULL is allowed; says nothing to anybody */

/* ---- what happens ---- */

enum parting {
    PARTING_BROKE, /* the connection ended, or cannot be made */
    PARTING_LEFT   /* it said that it goes */
};
/* A connection to this node stands, its identity proven, its description as it said. Again: the description
 * has changed (addresses, flags): the leader puts it into the next view. */
void consensus_linked(struct consensus *consensus, const struct peer_info *peer, uint64_t now_ns);
void consensus_unlinked(struct consensus *consensus, const struct identity *peer, enum parting how,
                        uint64_t now_ns);
/* Anything else that came from it shows that it lives (traffic of operations). */
void consensus_heard(struct consensus *consensus, const struct identity *peer, uint64_t now_ns);
/* It is in a group with us, where its pieces come so late; or in none any more. */
void consensus_works(struct consensus *consensus, const struct identity *peer, bool works, uint64_t late_ns);
/* A message of one of its kinds. Malformed ones change nothing: HEARTH_PROTOCOL with what is wrong. */
int MUST_CHECK consensus_input(struct consensus *consensus, const struct received *message, uint64_t now_ns,
                               const char **what);
void consensus_describe(struct consensus *consensus, const struct peer_info *self,
                        uint64_t now_ns); /* we changed */
/* Leader: a job runs in our instance, and is not given up for another one. Forgotten when we lead no more or
 * the instance changes. */
void consensus_set_busy(struct consensus *consensus, bool busy);
/* A job runs in our instance, as we know, perhaps since a moment ago only: then it is better than one
 * without, but gives way to one that is busy. That there was one is never forgotten. */
void consensus_set_begun(struct consensus *consensus, bool begun);
void consensus_leave(struct consensus *consensus, uint64_t now_ns); /* says goodbye; only close may follow */
void consensus_tick(struct consensus *consensus, uint64_t now_ns);
uint64_t consensus_deadline(const struct consensus *consensus); /* when it must be ticked */

/* ---- what is so ---- */

enum consensus_state {
    CONSENSUS_JOINING,  /* wants to be in another instance, and waits to be in its view */
    CONSENSUS_MEMBER,   /* in a view, and a quorum of it is heard */
    CONSENSUS_STRANDED, /* in a view, too few of it are heard */
    CONSENSUS_GONE      /* it has left */
};
const char *consensus_state_name(enum consensus_state state);
enum consensus_state consensus_state(const struct consensus *consensus);
const struct view *consensus_view(const struct consensus *consensus); /* the last one adopted; never NULL */
bool consensus_leads(const struct consensus *consensus); /* we are its leader, and a quorum is heard */
const struct health *consensus_health(const struct consensus *consensus,
                                      const struct identity *peer); /* or NULL */
/* A node that we are joined to, or a member that we were, as it described itself last; NULL: neither. */
const struct peer_info *consensus_peer(const struct consensus *consensus, const struct identity *peer);
/* The nodes that we are joined to, one after the other (*place begins with 0); NULL: no more. */
const struct peer_info *consensus_next_linked(const struct consensus *consensus, int *place);
/* Why too few are heard, and what to do: for people. */
void consensus_why_stranded(const struct consensus *consensus, char *text, size_t size);
/* One sentence why a node that is linked is not (yet) in our view; "" if it is. */
void consensus_why_not(const struct consensus *consensus, const struct identity *peer, char *text,
                       size_t size);

#define CONSENSUS_TEXT_MAX 256 /* as in struct hearth_event */

/* Counters for metrics. */
struct consensus_counts {
    uint64_t elections_started, elections_won, elections_timed_out, views;
    uint64_t leading_ns, following_ns;      /* up to the last tick */
    int linked;                             /* nodes that we are joined to */
    int healthy, degraded, unhealthy, dead; /* members but ourselves */
};
void consensus_count(const struct consensus *consensus, struct consensus_counts *counts);
