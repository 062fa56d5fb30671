/* SPDX-License-Identifier: Apache-2.0 */
/* A node: an engine, the baton, and the progress thread, which drives the engine when no caller does.
 *
 * The baton is the node's lock. Its holder drives links and operations: a blocking caller takes it and drives
 * until its operation has ended, so that nothing is handed from thread to thread; without a caller the
 * progress thread does the same. Completion callbacks run without it. How threads sleep:
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
    struct hearth_memory memory;      /* of its buffers */
    uint64_t syncs;                   /* number of hearth_sync_open calls, under the baton */
    hearth_group *outer;              /* of an inner group: its owner */
    uint64_t followed;                /* likewise: the version of the outer group that it matches */
    hearth_group *inner[INNER_KINDS]; /* last used by compound calls */
};

/* Completes an operation that has ended, before its callback: decodes, frees. Without the baton. It may make
 * the error worse. Called exactly once. */
typedef void node_finish_fn(void *arg, struct error *error);

struct hearth_request {
    struct list item; /* in the node: in use or free */
    hearth_node *node;
    struct completion completion;
    void (*cancel)(
        void *arg); /* NULL: an operation of the engine, or ending; else of the code that runs it */
    void *cancel_arg;
    bool telling;              /* its callback runs */
    bool settled;              /* ended, and its callback has returned */
    bool abandoned;            /* freed when it is collected */
    bool alone;                /* as in struct node_begin */
    char text[ERROR_TEXT_MAX]; /* hearth_request_error, once it is settled */
    struct event event;        /* read_fd -1: not requested */
    hearth_done_fn *done;
    void *done_arg;
    node_finish_fn *finish; /* NULL: nothing is left to do when it has ended */
    void *finish_arg;
};

/* Another group follows a group, of another node on the same heap. */
struct group_move {
    hearth_group *from, *to;
    enum move_phase {
        MOVE_PREPARE, /* ends operations in flight, allocates there; or fails: nothing has moved */
        MOVE_CANCEL,  /* undoes that; also called without MOVE_PREPARE */
        MOVE_COMMIT   /* moves; cannot fail */
    } phase;
};

struct attachment;

/* A member's record of an attachment when another group follows; all zero: it has none. */
struct attachment_record {
    uint64_t word[5];
};

/* An attachment on which the members of the next group agree before it moves: the n-th such attachment of
 * each member. */
struct reconciler {
    const hearth_group *(*group)(struct attachment *attachment); /* its group */
    uint64_t (*promised)(struct attachment *attachment);         /* the last promised round */
    /* Promises a later round: decisions of earlier ones no longer count. */
    void (*record)(struct attachment *attachment, uint64_t round, struct attachment_record *record);
    /* Decides by the records of all members; true: it lacks state that others have. It may be called again,
     * in another group, without a confirmation. */
    bool (*decide)(struct attachment *attachment, const struct attachment_record *records, int size);
    void (*confirm)(struct attachment *attachment); /* all members have decided */
};

/* An object of a node, freed with it when all operations have ended. */
struct attachment {
    struct list item;
    void (*drop)(struct attachment *attachment);
    /* Moves to another group, if `from` is its own; NULL: stays with its node. */
    int (*move)(struct attachment *attachment, const struct group_move *move, struct error *error);
    const struct reconciler *reconciler; /* NULL: nothing to agree on */
};

/* Runs operations made of other operations (gradient/codec_pool.h). */
struct node_worker {
    void (*stop)(struct node_worker *worker); /* the node closes: ends all its operations */
    void (*leave)(struct node_worker *worker, hearth_group *group); /* the group closes: likewise */
    bool (*step)(struct node_worker *worker); /* on virtual time: works once; true: progress */
};

/* Runs the remote calls that come to a node and to its inner nodes (remote/rpc_serve.c). */
struct node_server {
    /* A call, or the cancel of one, has come to the node. Takes the message. With the baton. */
    void (*take)(struct node_server *server, hearth_node *node, enum message_channel channel,
                 const struct message_group *group, struct hearth_message *message);
    void (*stop)(struct node_server *server, hearth_node *node); /* the node closes: no more of its calls */
    bool (*step)(struct node_server *server); /* on virtual time: runs a call; true: it did */
    /* The progress thread of the node is about to sleep: how long it may, in ns. */
    uint64_t (*look)(struct node_server *server, hearth_node *node);
};

/* The connection to a member, for users: hearth_group_member, status. */
struct node_link {
    struct hearth_member to; /* rank: in the world */
    char transport[16];
    char why[96]; /* reason for the transport */
};

/* What all members assume of their links and know of each other before measuring: path_costs.h. */
struct path_costs {
    struct link_cost inside, across;
    double byte_s;       /* time of the slowest member to send a byte, by its `rate`; 0: no member has one */
    bool crowded;        /* some host has more members than processors */
    size_t window_bytes; /* as configured */
    int *host;           /* [size]: as in struct group_view */
    int *room;           /* [size]: scratch for maps */
    uint64_t *named;     /* [size]: hash of the name of each member's site, 0: no name; NULL: no names */
};

struct quic;
struct cluster_groups;
struct cluster_group;

struct hearth_node {
    struct heap *heap;
    int process;                 /* that opened it */
    struct hearth_config config; /* codec and tuning are own copies, the other strings are gone */
    struct hearth_tuning tuning;
    char codec[CODEC_TEXT_MAX];
    struct clock clock;
    struct metrics metrics;
    uint64_t opened_ns;  /* by its clock */
    struct mem_net *net; /* NULL: connected by descriptors */
    struct bell *bell;   /* the net's for this rank, or its own */
    struct bell own_bell;
    struct poll_set *rest;                 /* NULL: only the bell to sleep on */
    struct listener *listener;             /* NULL: no incoming connections */
    struct shm_regions *regions;           /* NULL: no shared memory */
    struct quic *quic;                     /* NULL: no link needs it */
    struct list buffers;                   /* hearth_mem_alloc: struct buffer */
    char *links;                           /* hearth_node_links_text */
    struct credentials *credentials;       /* NULL: plain, or all members are in this process */
    struct identity *members;              /* [size], with credentials */
    uint64_t trust_ns;                     /* next check of the trust list */
    bool trust_told;                       /* logged: it cannot be read */
    struct node_link *roll;                /* [size]; NULL: all members are in this process */
    struct cluster_groups *cluster_groups; /* its part in a home cluster; NULL: none */
    struct cluster_group *cluster_group;   /* the formation that this node was opened for; NULL: none */
    struct path_costs costs;
    struct mutex baton;
    struct engine *engine;
    struct hearth_group world;
    struct list groups, requests, free_requests;
    struct list attached;                 /* struct attachment, under the baton */
    _Atomic(struct node_worker *) worker; /* NULL: not needed yet */
    _Atomic(struct copier *) copier;      /* likewise */
    hearth_node *outer;                   /* of an inner node, which has its server; else itself */
    _Atomic(struct node_server *) server; /* NULL: no handler was ever registered */
    _Atomic(size_t) call_max;             /* bytes of the longest call that it takes */
    _Atomic(int) answers;                 /* threads that are answering a call of this node */
    uint64_t call_id;                     /* of the last remote call that was made; under the baton */
    _Atomic(bool) serving;                /* node_serve holds the baton */
    int replies;                          /* on their way to callers; likewise */
    struct thread progress_thread;
    bool progress_runs;
    bool closing;    /* under the baton */
    bool collecting; /* likewise: a thread is delivering completions */
    uint64_t spin_ns;
    int loss;                         /* of a member: as in struct engine_setup, never 0 */
    bool heap_lent;                   /* another node closes it */
    bool crowded;                     /* more members on this host than processors */
    _Atomic(uint64_t) progress_until; /* when the progress thread wakes up by itself */
    _Atomic(int) waiting;             /* callers in node_wait */
    _Atomic(uint32_t) calls;          /* operations started, modulo 2^32 */
    _Atomic(uint32_t) visits;         /* callers that came to drive, likewise */
    _Atomic(bool) lull;               /* the progress thread will drive soon, without being rung */
};

/* One node of a net in memory, which it releases at close; or one with connections. On virtual time (now_ns)
 * there is no progress thread: the simulation drives it. The group id and costs of the world view are given,
 * the rest comes from the config. */
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
    /* Without a net: the node owns all of this, if it opens. */
    struct node_conns *conns; /* [size] */
    struct event event;       /* wakes the node */
    struct listener *listener;
    struct shm_regions *regions;
    struct quic *quic;
    struct credentials *credentials;
    struct identity *members;
    hearth_node *outer;  /* of an inner node; NULL: it is none */
    bool crowded;        /* more members on this host than processors */
    int loss;            /* as in struct engine_setup */
    uint64_t opening_ns; /* likewise */
};
int MUST_CHECK node_open(const struct node_setup *setup, hearth_node **out, struct error *error);

struct log node_log(const hearth_node *node);
uint64_t node_now(const hearth_node *node); /* by its clock */
bool node_forked(const hearth_node *node);
/* What the caller does next: leaves the operation to other threads, calls node_wait at once, or drives anyway
 * (node_come). */
enum caller_next { CALLER_GOES, CALLER_WAITS, CALLER_STAYS };
/* An operation to be started: `start` is called with the baton. */
struct node_begin {
    const char *name; /* for errors */
    int (*start)(struct group *group, const void *what, struct completion *completion, struct error *error);
    /* There is no memory to start it: tells the members that would wait for us, with the baton; or NULL. */
    void (*refuse)(struct group *group, const void *what, const struct error *why);
    const void *what;
    bool alone; /* a message: it needs no news of other members first, and may have ended when it has begun */
    hearth_done_fn *done;
    void *done_arg;
    node_finish_fn *finish; /* also if it does not start */
    void *finish_arg;
};
/* Starts it; on success *out is a request that belongs to the node until node_release. */
int MUST_CHECK node_begin(hearth_group *group, const struct node_begin *begin, enum caller_next caller,
                          hearth_request **out, struct error *error);
/* The same for a collective. */
int MUST_CHECK node_start(hearth_group *group, const struct call *call, enum caller_next caller,
                          hearth_request **out, struct error *error);
/* Drives until the request is settled (its status) or the time (clock_real) is over (HEARTH_PENDING). */
int node_wait(hearth_request *request, uint64_t deadline_ns);
/* The same, but also until the completion callback of another request of the node has set
 * `also` (NULL: no other). */
int node_wait_also(hearth_request *request, uint64_t deadline_ns, const _Atomic(bool) *also);
/* For a caller that waits several times in a row, with only microseconds of its own work in between: from
 * node_come to node_go it drives, and the progress thread sleeps. `heard` is the last result of
 * node_wait_here. */
void node_come(hearth_node *node);
int node_wait_here(hearth_request *request, uint64_t deadline_ns, const _Atomic(bool) *also, uint32_t *heard);
void node_go(hearth_node *node, uint32_t heard);
int node_test(hearth_request *request);
/* For the thread that began it, right after node_begin: it has ended, and no other thread was involved. */
bool node_settled(const hearth_request *request);
void node_cancel(hearth_request *request);
/* The same with the baton, of an operation that `cancel` of another request ends: does not wait. */
void node_cancel_part(hearth_request *request);
/* More of the input of an operation that was started `held` is there: as completion_offer. */
void node_offer(hearth_request *request, size_t len);
void node_release(hearth_request *request);
/* After its callback was called: waits for the callback's return, gives the error, and releases the
 * request. */
int node_finish(hearth_request *request, struct error *error);
/* Ends it if it has not ended, and tells the other members why; its callback is not called any more. The node
 * owns it again. Completion callbacks may call this. */
void node_abandon(hearth_request *request, const struct error *why);
/* A request for work that the caller runs: after `cancel`, called by any thread with the baton, the caller
 * must call node_settle soon. */
struct node_task {
    void (*cancel)(void *arg);
    void *arg;
    hearth_done_fn *done;
    void *done_arg;
};
int MUST_CHECK node_request(hearth_node *node, const struct node_task *task, hearth_request **out);
void node_settling(hearth_request *request); /* `cancel` is not called any more */
void node_settle(hearth_request *request, const struct error *error);
void node_drop_request(hearth_request *request); /* it was never handed out */
/* So that other members do not wait for us under the tag: as group_refuse. */
void node_refuse(hearth_group *group, uint64_t tag, const struct error *why);
void node_refuse_parts(hearth_group *inner, const struct compound *compound, const struct error *why);
void node_close_compound(hearth_group *group, struct compound *compound);
void node_attach(hearth_node *node, struct attachment *attachment);
void node_detach(hearth_node *node, struct attachment *attachment);
void attachments_drop(hearth_node *node); /* the node closes */
/* The members have changed, for this reason: all operations of the node end with HEARTH_VIEW_CHANGED, and
 * later ones are refused with it. Any thread, but no completion callback. */
void node_view_changed(hearth_node *node, const char *why);
/* The same, and closes the connections, so that the others do not wait for this node. */
void node_part(hearth_node *node, const char *why);
/* The members have changed, but operations in flight go on unless they need a rank whose bit is set: a member
 * that closes its group after the last operation does not end that operation for the others. The caller may
 * hold locks: completion callbacks run later on another thread. */
void node_members_lost(hearth_node *node, uint64_t lost, const char *why);
/* Drives once and collects what has ended. True: progress. Only where no other thread drives: in simulations,
 * and when the node closes. */
bool node_progress(hearth_node *node);
/* A caller sleeps until there may be work, or the time is over. `heard` as in bell_wait. */
void node_sleep(hearth_node *node, uint32_t heard, uint64_t until);
/* Does something small with the baton. `drives`: then drives, as a caller that goes; else somebody is going
 * to drive within microseconds. */
void node_do(hearth_node *node, void (*act)(void *arg), void *arg, bool drives);
/* Between node_come and node_go: drives until `also` is set, or the time is over. A thread that sets it wakes
 * us by node_wake_server, unless `serving`: it is us. */
void node_serve(hearth_node *node, uint64_t deadline_ns, const _Atomic(bool) *also, uint32_t *heard);
void node_wake_server(hearth_node *node);
/* serve.c: what comes in the channels of remote calls goes to the server. Before any frame is read. */
void node_set_sinks(hearth_node *node);
void node_keep(void *node); /* runs the progress thread */

/* Makes a group of the node, without the baton. */
int MUST_CHECK node_group(hearth_node *node, const struct group_view *view, const int *members,
                          hearth_group **out);
/* The inner group of that kind; NULL: none yet, or the outer group has changed since. */
hearth_group *node_inner(hearth_group *outer, enum inner_kind kind);
/* Then: the inner group with the view's id, kept from earlier or made. It lives as long as the outer one. */
int MUST_CHECK node_make_inner(hearth_group *outer, enum inner_kind kind, const struct group_view *view,
                               const int *members, hearth_group **out);

/* Opens `count` nodes of one process on one net. */
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

void buffers_free(hearth_node *node); /* buffer.c: those that the user did not free */

/* Converts a config of any version (NULL: the defaults), with its tuning. */
int MUST_CHECK config_read(struct hearth_config *own, struct hearth_tuning *tuning,
                           const struct hearth_config *given, struct error *error);
/* The tuning of a config, or the defaults. */
const struct hearth_tuning *tuning_of(const struct hearth_config *config);
/* HEARTH_OK or HEARTH_INVALID with a text that names the field. */
int MUST_CHECK config_check(const struct hearth_config *config, struct error *error);
