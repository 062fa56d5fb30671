/* SPDX-License-Identifier: Apache-2.0 */
/* An engine runs the operations of one node's groups over its links. It has no thread and no clock of its
 * own: the holder of the node's baton calls it, on real or on virtual time. */
#pragma once

#include "collective/plan.h"
#include "core/completion.h"
#include "core/log.h"
#include "message/messages.h"
#include "metrics/metrics.h"
#include "os/clock.h"
#include "transport/link.h"

struct engine;
struct group;

/* A call of several operations. The first, its opening, takes a number in the group of the call. The others,
 * its parts, run in inner groups, which are kept from call to call. A part's number names its call, so a
 * member that began fewer parts of a failed call is not behind in the next. */
enum inner_kind { INNER_ALL, INNER_HOST, INNER_LEADERS, INNER_KINDS };
#define PART_TRACKS 4 /* parts of one track begin in the same order on all members */
struct compound {
    struct list item;                        /* in its group, from the opening to compound_close */
    uint64_t tag, sequence;                  /* of the opening */
    uint32_t next[INNER_KINDS][PART_TRACKS]; /* parts begun */
};

/* A collective as the user called it, arguments checked. */
struct call {
    enum plan_kind kind;
    const void *source;
    void *target;
    size_t count;
    const size_t *in_counts, *out_counts; /* v-variants, see struct plan_call */
    bool vector;                          /* v-variant whose counts are not known to all */
    struct compound *opens;               /* it is the opening of a compressed all_reduce */
    struct compound *part_of;             /* it is a part: `track` and the compound number it */
    uint32_t track;
    enum hearth_dtype dtype;
    enum hearth_op op;
    int root;
    bool in_place;
    bool held;                      /* its input comes later: completion_offer */
    const struct hearth_opts *opts; /* never NULL */
};

struct engine_setup {
    struct heap *heap;
    struct metrics *metrics;
    struct log log;
    const struct clock *clock;
    int rank, size; /* in the cluster */
    uint32_t ops_max;
    uint32_t eager_bytes;
    size_t chunk_bytes; /* of a piece of a message */
    uint64_t rate;      /* bits a second that all links together send at most; 0: no limit */
    uint64_t instance;
    uint64_t peer_timeout_ns; /* a peer that says nothing for so long is lost; 0: no pings */
    uint64_t opening_ns; /* until then a peer that has not said its first word is still on its way to open */
    int loss; /* what operations end with when a member is gone: 0 or HEARTH_PEER_LOST; HEARTH_VIEW_CHANGED
                 where the next group can be had, on all members alike */
};

int MUST_CHECK engine_open(const struct engine_setup *setup, struct engine **out);
/* Ends all operations with HEARTH_CLOSED and says goodbye to the peers, behind all that they were sent. No
 * operation may begin any more. Call progress until engine_parted: then every peer has it, or gets it without
 * us. */
void engine_part(struct engine *engine);
/* Before that: ends everything that a caller may be waiting for, with HEARTH_CLOSED. Replies of remote calls
 * still leave. */
void engine_end_waits(struct engine *engine);
bool engine_parted(const struct engine *engine);
/* The same, but what has not left is lost. Frees all groups. */
void engine_close(struct engine *engine);

/* Joins a peer: takes the conns, the first of them for control. */
int MUST_CHECK engine_join(struct engine *engine, int rank, struct conn *const *conns, int count);

/* Tells the peer that it may not stay; its link goes down at the next progress, as if it were lost. False: it
 * is not joined, or is gone already. */
bool engine_expel(struct engine *engine, int rank, const char *why);

/* The groups' members have changed: all operations end with HEARTH_VIEW_CHANGED, and later ones are refused
 * with it. The first reason counts. */
void engine_view_changed(struct engine *engine, const char *why);
/* The same, but operations in flight go on. Bit r of `lost`: others know that rank r is gone; what it sent
 * before may still be on the way, so it is lost when nothing comes for half a second. */
void engine_members_lost(struct engine *engine, uint64_t lost, const char *why);

/* Moves everything that can move. True if anything did. Ended operations are in engine_finished then. */
bool engine_progress(struct engine *engine);
/* When progress must be called even if no bell rings. */
uint64_t engine_deadline(const struct engine *engine);
bool engine_busy(const struct engine *engine); /* operations are in flight */
/* Sleeping at the links' descriptors: what to wait for (at most max items; gives their number), what was
 * found, and that we sleep or are awake. After engine_doze(true) call progress once more: a peer may have
 * missed it. */
size_t engine_waits(const struct engine *engine, struct sock_wait *items, size_t max);
void engine_attend(struct engine *engine, const struct sock_wait *items, size_t count);
void engine_doze(struct engine *engine, bool asleep);
bool engine_stuck(const struct engine *engine); /* bytes wait for room in a connection */
/* Ends a completion that no operation of the engine belongs to: it is in engine_finished then. */
void engine_finish(struct engine *engine, struct completion *completion, const struct error *error);
/* Takes the next completion that has ended and was not collected yet; NULL: none. */
struct completion *engine_finished(struct engine *engine);
/* The peer (rank in the cluster) that this running operation waits for, or RANK_NONE. */
int engine_waits_for(const struct completion *completion);

/* How late the peer's first pieces come, in ns, as a moving average (0.2 of each operation): after another
 * peer's first piece or our own call, whichever was later. Only pieces that depend on their sender alone
 * count. Any thread. */
uint64_t engine_skew(const struct engine *engine, int rank);
/* What the path to the peer carries: how long bytes have waited for room in its connections, and how many
 * left in that time. What leaves without waiting says nothing about the path. Any thread. */
void engine_traffic(const struct engine *engine, int rank, uint64_t *bytes, uint64_t *busy_ns);
/* Changes with every byte that comes from the peer. With the baton. */
uint64_t engine_peer_heard(const struct engine *engine, int rank);

/* Groups. `members` are ranks in the cluster, in group order, and contain our own. The view's pointers are
 * copied. */
int MUST_CHECK group_open(struct engine *engine, const struct group_view *view, const int *members,
                          struct group **out);
/* A group for parts of the outer group's compound calls. It must be closed before the outer one. */
int MUST_CHECK group_open_inner(struct group *outer, enum inner_kind kind, const struct group_view *view,
                                const int *members, struct group **out);
void group_close(struct group *group);
int group_rank(const struct group *group);
int group_size(const struct group *group);
const struct group_view *group_view(const struct group *group);
bool group_busy(const struct group *group); /* operations or compound calls of it are in flight */
/* Another view of the same members: costs, window, hosts, sites, ring order (each rank once). All members set
 * the same; it is copied. No operation may be in flight. */
void group_set_view(struct group *group, const struct group_view *view);
uint64_t group_version(const struct group *group); /* how often that was done */
/* Rank in the cluster of a member. */
int group_member(const struct group *group, int rank);
/* How many groups were split off this one, for the ids of the next. */
uint64_t group_splits(const struct group *group);
void group_set_splits(struct group *group, uint64_t splits);

/* Starts the call. On success the completion is in use until it has ended; it also has a failure at once that
 * the other members were told of. */
int MUST_CHECK group_start(struct group *group, const struct call *call, struct completion *completion,
                           struct error *error);
/* Messages: as message_send and message_recv, for a group that has not lost a member. */
int MUST_CHECK group_message_send(struct group *group, const struct message_send *send,
                                  struct completion *completion, struct error *error);
int MUST_CHECK group_message_recv(struct group *group, const struct message_recv *recv,
                                  struct completion *completion, struct error *error);
void engine_set_sink(struct engine *engine, enum message_channel channel, const struct message_sink *sink);
/* The group of a message that a sink takes. */
struct group *group_of_messages(const struct message_group *group);
struct group *engine_group(struct engine *engine, uint64_t id); /* NULL: closed, or not made yet */
bool group_reaches(const struct group *group, int rank);        /* the member is itself, or its link is up */

/* We cannot take part in the next operation under the tag: tells the others. Uses up its sequence number;
 * returns why->status. */
int group_refuse(struct group *group, uint64_t tag, const struct error *why);
/* The same for the next part of every track in the inner group. */
void group_refuse_parts(struct group *inner, const struct compound *compound, const struct error *why);
/* The call is over here: what still comes of its parts is late. Harmless if it was never opened. */
void compound_close(struct group *group, struct compound *compound);
/* Of a call that was started `held`: so many bytes of its source are there, from its beginning. Lanes start
 * as their input comes. With the baton. */
void completion_offer(struct completion *completion, size_t len);
/* Cancels: ended when it returns. */
void completion_cancel(struct completion *completion);
/* The same; the others hear why. */
void completion_abort(struct completion *completion, const struct error *why);
