/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement on the members of a cluster and their leader. A state machine: no I/O, no clock, no memory but
 * its heap; the simulator and the node drive the same code.
 *
 * The rules (docs/membership.md explains them):
 *  - A node founds its own instance when it starts: epoch 1, one member, which leads. Instances that meet
 *    merge: the leader of the worse one tells its members to join the better one. Their old view stays in
 *    force until the other instance admits them. An instance is better if, in this order: it has a quorum; a
 *    job runs in it (busy); a job has begun; it has more members; its number is smaller. Two busy instances
 *    merge only after one is no longer busy, and both report the conflict.
 *  - Guests are in the view and take part in jobs, but have no vote: they never decide, call or lead, and
 *    do not count for a quorum. A guest alone is stranded and joins the first instance that it meets.
 *  - The next view of an instance is decided by single-decree Paxos: the voters of the current view are the
 *    acceptors, terms are the ballots, a quorum is a majority or exactly half with the current leader. So
 *    each epoch has one view, whatever message is lost, duplicated or late.
 *  - One leader per term: a voter votes once in each. A leader that has decided epoch e in term t may propose
 *    e + 1 in t at once, once. A voter calls for votes when the leader is dead, has left, reports that it
 *    hears no quorum, or is in an unproven view, and no more senior voter lives; if that one does not call,
 *    the next does. Voters refuse while their own leader serves, except after several tries of a candidate
 *    that reaches more members.
 *  - Acceptors tell all members what they accept, and members report their view. One report is not enough to
 *    believe a view: consensus_evidence.c. Terms and epochs are followed in bounded steps.
 *  - The leader admits nodes that ask to join (heartbeats of other nodes name the instance they request) and
 *    removes members that are dead, have left or are in another instance. One view covers many changes.
 *  - A member that leaves hands its vote, with all it has promised and accepted, to one other member: the
 *    leader, or the next in line. So one of two members can leave without stranding the other.
 *  - A restarted process has a new identity, and is no voter of any view before it joined. A node that
 *    returns to an instance votes there only after a view later than the last one it knew admits it.
 *  - A member that hears no quorum of its view is stranded: it decides nothing and reports that. It goes on
 *    when it hears a quorum again, joins again when it learns that it was removed, and joins another instance
 *    with a quorum when it meets one. If its instance never was busy, it founds a new one after a while
 *    (twice dead_ns); several that do so merge.
 *  - A message of an older term, an older epoch or another instance changes nothing; the answer says where
 *    this node stands. */
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
    struct event_log *events; /* lent: changes of the view and its members */
    struct peer_info self;
    const struct health_preset *health;
    uint64_t seed; /* for jitter and instance numbers: never the same for two processes */
    uint64_t now_ns;
};
int MUST_CHECK consensus_open(const struct consensus_setup *setup, struct consensus **out);
void consensus_close(struct consensus *consensus); /* NULL is allowed; sends nothing */

/* ---- input ---- */

enum parting {
    PARTING_BROKE, /* the connection ended, or cannot be made */
    PARTING_LEFT   /* it announced that it leaves */
};
/* The node is connected and its identity is proven. A second call: its description has changed (addresses,
 * flags), and the leader puts it into the next view. */
void consensus_linked(struct consensus *consensus, const struct peer_info *peer, uint64_t now_ns);
void consensus_unlinked(struct consensus *consensus, const struct identity *peer, enum parting how,
                        uint64_t now_ns);
/* Other traffic of the peer (operations) shows that it lives. */
void consensus_heard(struct consensus *consensus, const struct identity *peer, uint64_t now_ns);
/* The peer is in a group with this node, where its pieces are this late; or no longer in one. */
void consensus_works(struct consensus *consensus, const struct identity *peer, bool works, uint64_t late_ns);
/* A consensus message. HEARTH_PROTOCOL: malformed, nothing has changed, `what` says why. */
int MUST_CHECK consensus_input(struct consensus *consensus, const struct received *message, uint64_t now_ns,
                               const char **what);
/* The description of this node has changed. */
void consensus_describe(struct consensus *consensus, const struct peer_info *self, uint64_t now_ns);
/* Leader: a job runs in this instance, which therefore joins no other. Reset when this node stops leading or
 * the instance changes. */
void consensus_set_busy(struct consensus *consensus, bool busy);
/* A job runs in this instance, perhaps only just started: better than an instance without, worse than a busy
 * one. The instance remembers for good that it had a job. */
void consensus_set_begun(struct consensus *consensus, bool begun);
void consensus_leave(struct consensus *consensus,
                     uint64_t now_ns); /* tells the peers; only close may follow */
void consensus_tick(struct consensus *consensus, uint64_t now_ns);
uint64_t consensus_deadline(const struct consensus *consensus); /* of the next tick */

/* ---- state ---- */

enum consensus_state {
    CONSENSUS_JOINING,  /* waits for another instance to admit it */
    CONSENSUS_MEMBER,   /* in a view, and hears a quorum of it */
    CONSENSUS_STRANDED, /* in a view, and hears too few of it */
    CONSENSUS_GONE      /* has left */
};
const char *consensus_state_name(enum consensus_state state);
enum consensus_state consensus_state(const struct consensus *consensus);
const struct view *consensus_view(const struct consensus *consensus); /* the last one adopted; never NULL */
bool consensus_leads(const struct consensus *consensus); /* this node leads, and hears a quorum */
const struct health *consensus_health(const struct consensus *consensus,
                                      const struct identity *peer); /* or NULL */
/* The last description of a connected node or a member; NULL: neither. */
const struct peer_info *consensus_peer(const struct consensus *consensus, const struct identity *peer);
/* Iterates over the connected nodes (*place begins with 0); NULL: no more. */
const struct peer_info *consensus_next_linked(const struct consensus *consensus, int *place);
/* For users: which members are missing, and what to do. */
void consensus_why_stranded(const struct consensus *consensus, char *text, size_t size);
/* One sentence why a connected node is not (yet) in the view; "" if it is. */
void consensus_why_not(const struct consensus *consensus, const struct identity *peer, char *text,
                       size_t size);

#define CONSENSUS_TEXT_MAX 256 /* as in struct hearth_event */

/* Counters for metrics. */
struct consensus_counts {
    uint64_t elections_started, elections_won, elections_timed_out, views;
    uint64_t leading_ns, following_ns;      /* up to the last tick */
    int linked;                             /* connected nodes */
    int healthy, degraded, unhealthy, dead; /* members except this node */
};
void consensus_count(const struct consensus *consensus, struct consensus_counts *counts);
