/* SPDX-License-Identifier: Apache-2.0 */
/* A node: an engine, the baton, and the thread that keeps things going when no caller does.
 *
 * The baton is the node's lock. Whoever holds it drives links and operations: a blocking caller takes it and
 * drives until its operation has ended, so that nothing is handed from thread to thread; when no caller is
 * there, the progress thread does the same. Completion callbacks run without it. How they sleep:
 * poll_set.h. */
#pragma once

#include "bootstrap/mesh.h"
#include "collective/engine.h"
#include "compress/codec.h"
#include "core/list.h"
#include "os/bell.h"
#include "os/event.h"
#include "os/thread.h"
#include "security/credentials.h"
#include "transport/mem.h"
#include "transport/shm.h"

struct hearth_group {
    struct list item; /* in the node */
    hearth_node *node;
    struct group *group;
    uint64_t syncs;                   /* hearth_sync_open: how many there have been, under the baton */
    hearth_group *outer;              /* of an inner group: whose it is */
    uint64_t followed;                /* likewise: the outer group's version that it was last made like */
    hearth_group *inner[INNER_KINDS]; /* those that compound calls used last */
};

struct hearth_request {
    struct list item; /* in the node: in use or free */
    hearth_node *node;
    struct completion completion;
    void (*cancel)(void *arg); /* NULL: an operation of the engine, or it ends; else who runs it */
    void *cancel_arg;
    bool telling;              /* its callback is being called */
    bool settled;              /* ended, and its callback has returned */
    bool abandoned;            /* free from when it is collected */
    char text[ERROR_TEXT_MAX]; /* hearth_request_error, once it is settled */
    struct event event;        /* read_fd -1: never asked for */
    hearth_done_fn *done;
    void *done_arg;
};

/* A group is followed by another one, of another node on the same heap. */
struct group_move {
    hearth_group *from, *to;
    enum move_phase {
        MOVE_PREPARE, /* ends what is in flight, takes what it needs there; or fails: nothing has moved */
        MOVE_CANCEL,  /* gives that back; also to those that were not asked */
        MOVE_COMMIT   /* goes; cannot fail */
    } phase;
};

struct attachment;

/* What a member says of an attachment when its group is followed by another; all zero: it has none there. */
struct attachment_record {
    uint64_t word[5];
};

/* An attachment on which the members of the next group agree before it moves: the n-th of each member
 * that has one of these. */
struct reconciler {
    const hearth_group *(*group)(struct attachment *attachment); /* that it hangs on */
    uint64_t (*promised)(struct attachment *attachment);         /* the last round that it has promised */
    /* Promises a later round: no decision of an earlier one counts for it any more. */
    void (*record)(struct attachment *attachment, uint64_t round, struct attachment_record *record);
    /* From all members' records; true: it lacks what others have. It may be asked again, in another group,
     * without a confirmation. */
    bool (*decide)(struct attachment *attachment, const struct attachment_record *records, int size);
    void (*confirm)(struct attachment *attachment); /* all members have decided */
};

/* What hangs on a node and is freed with it, when all operations have ended. */
struct attachment {
    struct list item;
    void (*drop)(struct attachment *attachment);
    /* Goes on with another group, if `from` is its own; NULL: stays with its node. */
    int (*move)(struct attachment *attachment, const struct group_move *move, struct error *error);
    const struct reconciler *reconciler; /* NULL: there is nothing to agree on */
};

/* Who runs operations made of other operations (gradient/codec_pool.h). */
struct node_worker {
    void (*stop)(struct node_worker *worker); /* the node closes: ends all that it has in flight */
    void (*leave)(struct node_worker *worker, hearth_group *group); /* the group closes: likewise */
    bool (*step)(struct node_worker *worker); /* on virtual time: what can be done now; true: some was */
};

/* How a member of the node's cluster is joined, for people: hearth_group_member, status. */
struct node_link {
    struct hearth_member to; /* rank: in the world */
    char transport[16];
    char why[96]; /* this transport */
};

/* What all members assume of their links before anything is measured, and know of each other: path_costs.h.
 */
struct path_costs {
    struct link_cost inside, across;
    double byte_s; /* that the slowest member needs to send a byte, by its `rate`; 0: no member has one */
    bool crowded;  /* some host has more members than processors */
    size_t window_bytes; /* as it is configured */
    int *host;           /* [size]: as in struct group_view */
    int *room;           /* [size]: where maps are made */
    uint64_t *named; /* [size]: a number for the name of each one's site, 0: it names none; NULL: none does */
};

struct quic;
struct cluster_groups;
struct cluster_group;

struct hearth_node {
    struct heap *heap;
    int process;                 /* that opened it */
    struct hearth_config config; /* codec and tuning are our own copies, the other strings are gone */
    struct hearth_tuning tuning;
    char codec[CODEC_TEXT_MAX];
    struct clock clock;
    struct metrics metrics;
    uint64_t opened_ns;  /* by its clock */
    struct mem_net *net; /* NULL: joined by descriptors */
    struct bell *bell;   /* the net's for this rank, or our own */
    struct bell own_bell;
    struct poll_set *rest;                 /* NULL: nothing to sleep on but the bell */
    struct listener *listener;             /* NULL: nobody can come */
    struct shm_regions *regions;           /* NULL: no neighbours to share memory with */
    struct quic *quic;                     /* NULL: no link needs it */
    struct list buffers;                   /* hearth_mem_alloc: struct buffer */
    char *links;                           /* hearth_node_links_text */
    struct credentials *credentials;       /* NULL: plain, or nobody is joined from outside */
    struct identity *members;              /* [size], where there are credentials */
    uint64_t trust_ns;                     /* when the list of who may come is looked at again */
    bool trust_told;                       /* that it cannot be read */
    struct node_link *roll;                /* [size]; NULL: nobody is joined from outside */
    struct cluster_groups *cluster_groups; /* its part in a home cluster; NULL: it has none */
    struct cluster_group *cluster_group;   /* the formation that this node was opened for; NULL: none */
    struct path_costs costs;
    struct mutex baton;
    struct engine *engine;
    struct hearth_group world;
    struct list groups, requests, free_requests;
    struct list attached;                 /* struct attachment, under the baton */
    _Atomic(struct node_worker *) worker; /* NULL: nothing needed one yet */
    struct thread progress_thread;
    bool progress_runs;
    bool closing;    /* under the baton */
    bool collecting; /* likewise: somebody is telling who wants to know what has ended */
    uint64_t spin_ns;
    int loss;                         /* of a member: as in struct engine_setup, never 0 */
    bool heap_lent;                   /* it is closed by somebody else */
    bool crowded;                     /* more members on this host than processors */
    _Atomic(uint64_t) progress_until; /* when the progress thread looks again by itself */
    _Atomic(int) waiting;             /* callers in node_wait */
    _Atomic(uint32_t) calls;          /* operations started, modulo 2^32 */
};

/* One node of a net in memory, which it puts at close; or one that is joined by connections. On virtual time
 * (now_ns) there is no progress thread: the simulation drives it. The world view's group id and costs are
 * given, the rest comes from the config. */
struct node_conns {
    struct conn *conns[LINK_PIPES_MAX];
    int count;
};
struct node_setup {
    const struct hearth_config *config;
    struct heap *heap;      /* taken; NULL: a new one */
    struct heap *lent_heap; /* instead: not closed with the node */
    int rank;
    const struct group_view *world;
    uint64_t instance;
    struct mem_net *net;
    const uint64_t *now_ns;
    /* Without a net: all of this is the node's then, if it opens. */
    struct node_conns *conns; /* [size] */
    struct event event;       /* wakes the node */
    struct listener *listener;
    struct shm_regions *regions;
    struct quic *quic;
    struct credentials *credentials;
    struct identity *members;
    bool crowded;        /* more members on this host than processors */
    int loss;            /* as in struct engine_setup */
    uint64_t opening_ns; /* likewise */
};
int MUST_CHECK node_open(const struct node_setup *setup, hearth_node **out, struct error *error);

struct log node_log(const hearth_node *node);
uint64_t node_now(const hearth_node *node); /* by its clock */
bool node_forked(const hearth_node *node);
/* What the caller does next: leaves what it started to others, goes on to node_wait at once, or has come
 * (node_come) and stays. */
enum caller_next { CALLER_GOES, CALLER_WAITS, CALLER_STAYS };
/* Starts a call; on success *out is a request that belongs to the node until node_release. */
int MUST_CHECK node_start(hearth_group *group, const struct call *call, enum caller_next caller,
                          hearth_request **out, struct error *error);
/* Drives until the request is settled (its status) or the time (clock_real) has come (HEARTH_PENDING). */
int node_wait(hearth_request *request, uint64_t deadline_ns);
/* The same, but also until the completion callback of another request of the node has set
 * `also` (NULL: no other). */
int node_wait_also(hearth_request *request, uint64_t deadline_ns, const _Atomic(bool) *also);
/* For a caller that waits several times in a row, with no more than some microseconds of its own work in
 * between: from node_come to node_go it is the one that drives, and the progress thread sleeps. `heard` is
 * what node_wait_here gave last. */
void node_come(hearth_node *node);
int node_wait_here(hearth_request *request, uint64_t deadline_ns, const _Atomic(bool) *also, uint32_t *heard);
void node_go(hearth_node *node, uint32_t heard);
int node_test(hearth_request *request);
void node_cancel(hearth_request *request);
void node_release(hearth_request *request);
/* Its callback has been called: waits until that has returned, gives its error, and releases it. */
int node_finish(hearth_request *request, struct error *error);
/* Ends it if it has not ended, and tells the others why; its callback is not called any more. It is the
 * node's again. May be called from completion callbacks, too. */
void node_abandon(hearth_request *request, const struct error *why);
/* A request for something that the caller runs: `cancel`, called by any thread with the baton, must bring it
 * to node_settle soon. */
struct node_task {
    void (*cancel)(void *arg);
    void *arg;
    hearth_done_fn *done;
    void *done_arg;
};
int MUST_CHECK node_request(hearth_node *node, const struct node_task *task, hearth_request **out);
void node_settling(hearth_request *request); /* `cancel` is not called any more */
void node_settle(hearth_request *request, const struct error *error);
void node_drop_request(hearth_request *request); /* it was never given to anybody */
/* Others must not wait for us under the tag: as group_refuse. */
void node_refuse(hearth_group *group, uint64_t tag, const struct error *why);
void node_refuse_parts(hearth_group *inner, const struct compound *compound, const struct error *why);
void node_close_compound(hearth_group *group, struct compound *compound);
void node_attach(hearth_node *node, struct attachment *attachment);
void node_detach(hearth_node *node, struct attachment *attachment);
void attachments_drop(hearth_node *node); /* the node closes */
/* The members are others now, for the reason given: all operations of the node end with HEARTH_VIEW_CHANGED,
 * and later ones are refused with it. Any thread, but no completion callback. */
void node_view_changed(hearth_node *node, const char *why);
/* The same, and its connections end: the others need not wait for what it will not do any more. */
void node_part(hearth_node *node, const char *why);
/* The members are others, but operations in flight go on as long as they need nothing of a rank whose bit
 * is set: who closes its group after the last operation does not end it for those that are still at it. The
 * caller may hold locks: completion callbacks run on another thread, a moment later. */
void node_members_lost(hearth_node *node, uint64_t lost, const char *why);
/* Moves what can be moved, collects what has ended. True if anything moved. Where no other thread drives: in
 * simulations, and when the node closes. */
bool node_progress(hearth_node *node);
/* A caller has nothing to do: until there may be something, or the time has come. `heard` as in bell_wait. */
void node_sleep(hearth_node *node, uint32_t heard, uint64_t until);
void node_keep(void *node); /* the progress thread's life */

/* Makes a group of the node, under no baton. */
int MUST_CHECK node_group(hearth_node *node, const struct group_view *view, const int *members,
                          hearth_group **out);
/* The inner group of that kind; NULL: there is none yet, or the outer group has changed since. */
hearth_group *node_inner(hearth_group *outer, enum inner_kind kind);
/* Then: the inner group with the view's id, kept from earlier or made. It lives as long as the outer one. */
int MUST_CHECK node_make_inner(hearth_group *outer, enum inner_kind kind, const struct group_view *view,
                               const int *members, hearth_group **out);

/* All of a node's clusters in one process: opens `count` nodes on one net. */
struct local_setup {
    const struct hearth_config *config;
    int count;
    struct mem_setup mem;           /* size is filled in */
    const int *host;                /* as in struct group_view */
    uint64_t id;                    /* of the world group */
    struct heap *const *lent_heaps; /* [count] as in struct node_setup; NULL: each has its own */
    int loss;                       /* as in struct engine_setup */
};
int MUST_CHECK local_open(const struct local_setup *setup, hearth_node *nodes[], struct error *error);

void buffers_free(hearth_node *node); /* buffer.c: what hearth_mem_alloc gave and nobody freed */

/* A config of any version (NULL: the defaults) becomes one of ours, with a tuning of ours. */
int MUST_CHECK config_read(struct hearth_config *own, struct hearth_tuning *tuning,
                           const struct hearth_config *given, struct error *error);
/* That of a config; where it has none, the defaults. */
const struct hearth_tuning *tuning_of(const struct hearth_config *config);
/* HEARTH_OK or HEARTH_INVALID with a text that names the field. */
int MUST_CHECK config_check(const struct hearth_config *config, struct error *error);
