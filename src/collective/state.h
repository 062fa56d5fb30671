/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine knows: peers, groups, operations, their lanes and flows. Only for the files of this room;
 * its face is engine.h. */
#pragma once

#include "collective/engine.h"
#include "collective/program.h"
#include "collective/slot.h"
#include "kernel/kernel.h"
#include "wire/record.h"

#define OP_BUCKETS 256u
#define TAGS_MAX   65536u /* per group */
/* Calls per group of which we still know what they were: as many as the default eager budget lets a member be
 * ahead of another. Of older ones a member says that they have passed. */
#define ENDED_KEPT   1024u
#define RETIRED_MAX  4096u             /* operations per group that ended before we posted them */
#define NOTES_MAX    65536u            /* grants per peer for operations that we have not posted yet */
#define DISPUTES_MAX 64u               /* at the arbiter, at a time */
#define CLOSED_KEPT  1024u             /* groups of which we still know that they were closed */
#define ORPHANS_MAX  64u               /* aborts kept for groups that we have not made yet */
#define ARBITER      0                 /* the rank that settles disputes of its group */
#define QUIET_NS     (100 * NS_PER_MS) /* after which an operation asks those that have sent nothing */
#define NAG_NS       (30 * NS_PER_S)   /* how often a late peer is named in the log */

/*   posted --> running --> ready --> committed
 *      |          |
 *      +----------+------> aborted
 * ready: this member has all it needs and owes nobody anything. ready -> committed is a local step as long
 * as there is no agreement on crashes; the states are kept apart so that it can become one. */
enum op_state { OP_POSTED, OP_RUNNING, OP_READY, OP_COMMITTED, OP_ABORTED };

enum lane_stage { LANE_RECV, LANE_WORK, LANE_SEND };

struct lane {
    uint64_t number;       /* which lane of the plan; lane n stands at place n % window */
    uint32_t move;         /* at which move */
    enum lane_stage stage; /* and where in it */
    bool queued;           /* in the operation's ready queue */
    bool idle;             /* no lane of the plan is left for this place */
    bool held;             /* its input is not there yet: op_offer */
    uint32_t unsent_in;    /* frames under way out of the source */
    uint32_t unsent_acc;   /* and out of the accumulator */
    struct slot *frame;    /* taken, not yet worked on */
    struct slot *acc;
    struct slot *borrowed;       /* a lent frame that is all of the sum so far: read, never written */
    struct range borrowed_range; /* of the source: what it covers */
    size_t acc_offset;           /* element of the source at which the accumulator's range begins */
    size_t lent_from, lent_to;   /* elements of the source: what of the accumulator is under way */
    double weight;               /* sum of the weights in the accumulator */
};

struct inflow {
    struct flow_cursor floor; /* everything before it has been taken */
    uint64_t mask;            /* bit i: frame floor.index + i has been taken */
    uint64_t come;            /* bit i: frame floor.index + i has come or is coming in */
    uint64_t told;            /* index up to which the peer has our grant; 0: none was sent */
    bool heard;               /* a frame has come */
    struct list early;        /* slots whose lane is not ready for them */
};

struct outflow {
    struct flow_cursor next;
    uint64_t limit;  /* index up to which the peer granted */
    bool granted;    /* a grant has come: no eager sending any more */
    uint32_t unsent; /* frames in the link's queue */
};

struct op {
    struct list item;   /* engine: active; program: idle */
    struct list bucket; /* engine: by id */
    struct group *group;
    struct program *program;
    struct completion *completion;
    enum op_state state;

    uint64_t tag, sequence;
    struct call_record record;
    uint64_t posted_ns, deadline_ns;
    uint64_t nagged_ns;
    uint64_t first_ns; /* when the first peer's own piece came; 0: none has */
    uint64_t ask_ns;   /* when it asks those that have sent nothing; NEVER_NS: it has */
    bool disputed, judged;

    const uint8_t *source;
    size_t offered; /* bytes of the source that are there; SIZE_MAX: all */
    uint8_t *target;
    bool in_place;
    void *shadow; /* heap: the input as it was */
    size_t shadow_len;
    bool restore;
    enum hearth_dtype dtype, acc_dtype;
    int kernel_op; /* KERNEL_SUM ... */
    bool average;
    bool far;    /* so large that results do not stay in the caches */
    bool vector; /* lengths known only to pairs: it ends when all of them have been compared */
    double weight;

    struct lane *lanes; /* [window] */
    uint32_t *ready;    /* ring of places, [window] */
    uint32_t ready_head, ready_count;
    uint64_t lanes_left;
    uint64_t unsent;
    struct inflow *in;   /* [program->in_count] */
    struct outflow *out; /* [program->out_count] */
    bool running;        /* inside op_run */
    bool spoiled; /* a member took back what we read: it has ended the operation, and we wait to hear why */
};

/* The frame that is coming in through one of a peer's pipes. */
struct incoming_frame {
    struct op *op;     /* NULL: of an operation not posted yet */
    struct slot *slot; /* NULL: straight into the user's target */
    uint64_t lane;
    uint32_t eager_len; /* of the budget that it gives back when it goes straight into the target; else 0 */
    bool eager;
};

/* A grant for an operation that we have not posted yet. */
struct note {
    struct list item;
    struct frame frame;
};

struct peer {
    struct link link;
    struct engine *engine;
    bool joined;
    bool left;         /* has said goodbye: nothing more comes, and all that came before it counts */
    bool lost;         /* is gone without having done its part, or because another was lost */
    uint64_t heard;    /* link_heard when we last looked */
    uint64_t heard_ns; /* when it had last changed */
    uint64_t doubt_ns; /* since when others know it to be gone (engine_members_lost); 0: they do not */
    uint64_t stuck_ns; /* when we last looked and bytes waited for room; 0: none did */
    uint64_t written;  /* bytes that had left the link then */
    struct incoming_frame incoming[LINK_PIPES_MAX];
    struct list early;    /* slots: data of operations not posted yet */
    uint64_t early_bytes; /* of the eager budget that they hold */
    struct list notes;
    uint32_t note_count;
};

struct ended {
    uint64_t tag, sequence;
    struct call_record record;
    bool valid, judged; /* judged: a verdict has ended it */
};

struct retired {
    struct list item;
    uint64_t group, tag, sequence;
    struct error why;
};

struct tag_entry {
    uint64_t tag, next;
    bool used;
};

struct dispute {
    struct list item;
    struct group *group;
    uint64_t tag, sequence;
    struct call_record *answers; /* [size] */
    bool *answered;
    int missing;
};

struct group {
    struct list item;
    struct engine *engine;
    struct group_view view;
    int rank;
    int *members;             /* [view.size] ranks in the cluster */
    int *rank_of;             /* [cluster size]: rank in the group, or RANK_NONE */
    int *host, *site, *order; /* [view.size] each: the view's, where it has them */
    struct program_cache programs;
    struct tag_entry *tags; /* open addressing */
    uint32_t tag_capacity, tag_count;
    struct ended ended[ENDED_KEPT];
    uint32_t ended_next;
    struct list retired;
    uint32_t retired_count;
    struct error broken;  /* status != 0: a member is lost, no operation can succeed any more */
    struct error pending; /* for the next call: a mismatch in an operation that had returned */
    uint64_t splits;
    uint64_t begun;       /* operations, under all tags */
    uint64_t left_at;     /* the least number of them that a member which has left took part in; UINT64_MAX */
    int left_rank;        /* who that was */
    uint64_t version;     /* of what can be set in the view */
    struct group *outer;  /* of an inner group: whose parts it runs; it has neither tags nor `begun` */
    enum inner_kind kind; /* likewise */
    struct list compounds; /* of an outer group: struct compound */
    struct message_group messages;
};

struct engine {
    struct heap *heap;
    struct metrics *metrics;
    struct log log;
    const struct clock *clock;
    const struct kernels *kernels;
    int rank, size;
    uint32_t ops_max, ops_count, eager_bytes;
    uint64_t instance;
    uint64_t peer_timeout_ns, ping_ns, looked_ns; /* when pings go out next; when we last had a look */
    bool doubts;                                  /* of a peer at least */
    uint64_t opening_ns;                          /* as in struct engine_setup */
    bool stuck;                                   /* a link was, when we last looked */
    int first_lost, first_left;                   /* ranks in the cluster, or RANK_NONE */
    enum hearth_reason first_lost_reason;
    int loss;             /* as in engine_setup, never 0 */
    struct error changed; /* the view; HEARTH_OK: never; its rank is one in the cluster */
    bool over;            /* for all operations (engine_view_changed) */
    struct throttle throttle;
    struct slot_pool slots;
    struct messages *messages;
    struct peer *peers; /* [size]; our own place is unused */
    struct list groups, active, finished, disputes;
    struct list orphans; /* struct retired of groups that we have not made yet */
    uint32_t orphan_count;
    uint32_t dispute_count;
    struct list free_notes;
    uint64_t closed[CLOSED_KEPT]; /* ids of groups */
    uint32_t closed_next;
    struct list buckets[OP_BUCKETS];
};

/* op.c: posted -> running -> ready -> committed, or aborted */
/* Ends the operation here: with `why` (aborted) or without (committed). The memory may be reused at once. */
void op_end(struct op *op, const struct error *why);
/* Ends it here and tells all members, who end it with `theirs`. */
void op_abort(struct op *op, const struct error *ours, const struct error *theirs);
void op_out_of_memory(struct op *op); /* aborts it for want of memory here */
/* Tells all other members: FRAME_ABORT or FRAME_VERDICT. */
void group_tell(struct group *group, uint8_t kind, uint64_t tag, uint64_t sequence,
                const struct error *error);
/* "all_reduce #12 (tag 3) on rank 1 of 4" */
struct op_name {
    char s[160];
};
struct op_name op_name(const struct op *op);
bool op_awaits_input(const struct op *op); /* of its own, before anything of another member */
/* A rank whose frames it waits for, or RANK_NONE. */
int op_waits_for(const struct op *op);
/* One that has not begun it as far as is known here, best the same one; RANK_NONE: all have. Our own: its
 * input is not there. */
int op_lacks(const struct op *op);
bool op_expects(const struct op *op, int rank); /* frames of that rank have yet to come (loss.c) */
void op_free_idle(struct list *item);

/* step.c: lanes, which carry out moves; the only file that computes on user memory */
void lanes_start(struct op *op);
/* A range of its accumulator is on its way: it must not change until it has left. */
void lane_lend(struct lane *lane, struct range range);
void lane_wake(struct op *op, struct lane *lane); /* something it may have waited for has happened */
/* Copies what the operation has borrowed of a member and what holds up that member's link. May end it. */
void op_return_loans(struct op *op, int rank, const struct link *link);
/* Whether all that the member has lent for the operation is still what it meant. */
bool op_loans_good(const struct op *op, int rank);
/* Runs what is ready. May end the operation. */
void op_run(struct op *op);
void lanes_release(struct op *op); /* wakes held lanes whose input is there */

/* flow.c: frames of one peer: what may be sent, where what comes in goes, grants */
void flows_start(struct op *op);
/* Sends what the flow's next frames are ready for. */
void outflow_pump(struct op *op, uint32_t flow);
void outflow_grant(struct op *op, uint32_t flow, uint64_t limit);
/* Whether every receiver has said that it expects what we send (asked only where it could not know). */
bool outflows_compared(const struct op *op);
/* The frame for the lane's move, if it has come whole; it is the caller's then. */
struct slot *inflow_find(struct op *op, const struct lane *lane);
/* The lane has taken (or need not take) the frame of its move: its place is free for the peer. */
void inflow_took(struct op *op, const struct lane *lane);
void inflow_tell(struct op *op, uint32_t flow); /* sends a grant now */
/* Sends a grant to all that have none and of whom we wait for something: members that wait for each other in
 * different calls find out by its fingerprint. */
void flows_ask(struct op *op);
/* Gives back the slot's eager credit. The budget is for operations that are not posted: what waits for a lane
 * of a posted one must not hold it, or two members whose lanes wait for room would wait for each other. */
void slot_credit(struct link *link, struct slot *slot);

/* engine.c */
struct link *engine_link(struct group *group, int rank); /* of a member; NULL: ourselves or down */
bool engine_group_closed(const struct engine *engine, uint64_t id);
struct op *engine_op(struct engine *engine, uint64_t group, uint64_t tag, uint64_t sequence);
void engine_index(struct engine *engine, struct op *op);
/* A control frame of an operation, and to one member (the payload may be NULL). */
struct frame group_frame(const struct group *group, uint8_t kind, uint64_t tag, uint64_t sequence);
void group_send(struct group *group, int rank, const struct frame *frame, const void *payload);
/* The error in a control frame. False: it breaks the protocol. */
bool engine_heard(const struct engine *engine, const struct frame *frame, const uint8_t *payload,
                  struct error *why);

/* dispatch.c: what comes in on a link, brought to the operation it belongs to. */
extern const struct link_events dispatch_events; /* their arg is a struct peer */
/* A grant, or a slot, of the member that waited for the operation joins it, which may fail over it. */
void engine_adopt_notes(struct op *op, int rank);
void engine_adopt(struct op *op, int rank, struct slot *slot);
/* Drops what waits for operations that will not be posted: of a group that is closed; of calls before the
 * group was made; of the parts of a call that is over; of one operation that ended before. */
void engine_drop_group(struct engine *engine, uint64_t id);
void engine_drop_passed(struct group *group);
void engine_drop_parts(struct group *outer, uint64_t tag, uint64_t sequence);
void engine_drop_waiting(struct group *group, uint64_t tag, uint64_t sequence);

/* loss.c: all that is decided about members that go. */
void peer_down(void *arg, struct link *link, const struct error *why); /* the event of a link */
void peer_bye(struct peer *peer, const struct frame *frame, const uint8_t *payload);
/* Another member has lost one: that one is lost for the group, also before our own link to it has ended. */
void group_lost_elsewhere(struct group *group, const struct error *why);
/* The peer has joined: its silence counts from now on. */
void peer_watch(struct peer *peer);
bool engine_watches_peers(const struct engine *engine);
/* Asks peers whether they live; those that have been silent for too long are lost.
 * True: something happened. */
bool engine_check_peers(struct engine *engine, uint64_t now);
/* A member that has left, or is about to, took part in so many operations of the group. */
void group_left_at(struct group *group, int rank, uint64_t begun);
/* Ends an operation that has just begun if it needs what a member that has left has not given. */
void op_check_left(struct op *op);
/* FRAME_WITHDRAW of all messages of a group (NULL: not open here). */
void group_messages_over(struct peer *peer, struct group *group, const struct frame *frame,
                         const uint8_t *payload);
/* Whether a member of the group is lost, and which. */
bool group_lost(const struct group *group, struct error *why);
/* Whether no operation of the group can begin any more, and why. */
bool group_over(const struct group *group, struct error *why);
/* Whether nobody of it is lost: those that are gone have done their part in what came before. */
bool group_only_left(const struct group *group);
/* A member is gone, by whatever name another member says so. */
bool status_is_loss(int status);

/* group.c */
struct part {
    uint64_t call; /* sequence of its opening */
    uint32_t track, index;
};
uint64_t part_sequence(const struct compound *compound, enum inner_kind kind, uint32_t track);
struct part part_of_sequence(uint64_t sequence);
/* Whether the operation was begun or given up here. */
bool group_passed(const struct group *group, uint64_t tag, uint64_t sequence);
int compound_check(const struct compound *compound, enum inner_kind kind, uint32_t track,
                   struct error *error);                          /* whether another part can be numbered */
uint64_t group_sequence(const struct group *group, uint64_t tag); /* of the next operation under the tag */
int group_advance(struct group *group, uint64_t tag, struct error *error);
struct ended *group_ended(struct group *group, uint64_t tag, uint64_t sequence); /* NULL: forgotten */
void group_remember(struct group *group, const struct op *op);
/* An operation that we have not posted is over: fails when we post it. */
void group_retire(struct group *group, uint64_t tag, uint64_t sequence, const struct error *why);
struct retired *group_retired(const struct group *group, uint64_t tag, uint64_t sequence); /* NULL: is not */
void group_unretire(struct group *group, struct retired *retired);
void group_unretire_parts(struct group *inner, uint64_t tag, uint64_t call); /* all that it has of the call */
/* The operation of a frame, of a group that we have not made yet. */
void engine_retire(struct engine *engine, const struct frame *frame, const struct error *why);
void retired_free(struct list *list);

/* skew.c: looks which links are busy. */
void traffic_look(struct engine *engine, uint64_t now);
/* Frame number `index` of the incoming flow begins to come, or had come before the operation was
 * posted. */
void skew_note(struct op *op, uint32_t flow, uint64_t index, bool early);

/* dispute.c */
void dispute_raise(struct group *group, uint64_t tag, uint64_t sequence, const struct error *verdict);
void dispute_frame(struct group *group, int from, const struct frame *frame, const uint8_t *payload);
void disputes_drop(struct group *group);
void disputes_lost(struct group *group, int rank); /* its answers will not come */
