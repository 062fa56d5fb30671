/* SPDX-License-Identifier: Apache-2.0 */
/* Remote calls: the payloads of requests and replies (docs/payloads.md, "Remote calls"), and the server that
 * runs handlers. */
#pragma once

#include "node/node.h"

#define RPC_NAME_MAX     63
#define RPC_HEAD_MAX     80u /* of a request */
#define RPC_REPLY_HEAD   16u
#define RPC_TEXT_MAX     200
#define RPC_HANDLERS_MAX 256
#define RPC_FOREVER_MS   UINT32_MAX

/* What stands in front of a request. Its length is a multiple of 16: bodies are aligned. */
struct rpc_head {
    uint32_t left_ms; /* until the caller's deadline; RPC_FOREVER_MS: longer than that */
    char name[RPC_NAME_MAX + 1];
};
size_t rpc_head_encode(const struct rpc_head *head, uint8_t target[static RPC_HEAD_MAX]);
/* `body`: where the request begins. HEARTH_PROTOCOL, or HEARTH_UNSUPPORTED: of a later version. */
int MUST_CHECK rpc_head_decode(struct rpc_head *head, const void *bytes, size_t len, size_t *body);

/* The beginning of a reply; `text` only if the status is not HEARTH_OK. */
struct rpc_outcome {
    int status;
    enum hearth_fate fate;
    char text[RPC_TEXT_MAX + 1];
};
/* Without the text, which follows it. */
void rpc_outcome_encode(const struct rpc_outcome *outcome, uint8_t target[static RPC_REPLY_HEAD]);
/* A reply without bytes: no handler was ever registered there. */
int MUST_CHECK rpc_outcome_decode(struct rpc_outcome *outcome, const void *bytes, size_t len);
/* Copies, cut to RPC_TEXT_MAX; what is not printable ASCII becomes '?'. */
void rpc_text_copy(char target[static RPC_TEXT_MAX + 1], const char *text);
bool rpc_name_good(const char *name); /* 1..RPC_NAME_MAX printable ASCII */

/* ---- the server ---- */

struct rpc_handler {
    struct list item;  /* in the server; removed ones are in none */
    struct list ready; /* in the server: calls wait and may run */
    char name[RPC_NAME_MAX + 1];
    hearth_rpc_fn *run;
    void *arg;
    struct hearth_rpc_limits limits;
    struct list waiting; /* hearth_rpc, oldest first */
    uint32_t waits;      /* their number */
    uint32_t open;       /* calls that were begun and are not answered */
    uint32_t active;     /* threads in it */
    bool removed;
};

/* A call at the side that answers it. Under the server's lock; what does not change needs none. */
struct hearth_rpc {
    struct list item; /* in its handler, or among the server's open calls */
    struct rpc_server *server;
    struct rpc_handler *handler;
    hearth_node *node; /* to which it came; NULL: that has closed */
    uint64_t group, id, deadline_ns;
    int rank;
    bool cancelled;
    bool led; /* the leader runs it */
    struct hearth_message *message;
    const void *request;
    size_t len;
};

/* A thread that runs handlers; on virtual time the first stands for whoever drives. */
struct rpc_thread {
    struct list idle; /* in the server */
    struct rpc_server *server;
    struct thread thread;
    struct bell bell;
    hearth_node *node;           /* whose call it runs; NULL: none */
    struct rpc_handler *handler; /* likewise */
    bool coming;                 /* was woken, and is not there yet */
};

/* While calls come, one of the threads leads: it drives the node, and runs what comes without handing it to
 * another thread. */
enum lead { LEAD_NONE, LEAD_DRIVES, LEAD_RUNS };

/* One for a node and its inner nodes. It outlives the node while calls are not answered. */
struct rpc_server {
    struct node_server server; /* first: the node knows it by this */
    struct heap *heap;         /* its own */
    hearth_node *node;         /* NULL: closed */
    struct clock clock;        /* the node's */
    struct mutex lock;         /* of what follows */
    struct list handlers, ready, open, idle;
    uint32_t handler_count, open_count;
    bool stopping;
    int thread_count;
    uint32_t coming; /* threads among them */
    struct rpc_thread threads[HEARTH_RPC_THREADS];
    struct bell quiet;   /* rings when a handler has returned */
    uint32_t waits;      /* calls that wait */
    uint64_t usual_ns;   /* how long handlers run, averaged */
    hearth_node *recent; /* whose call ran last, and when */
    uint64_t recent_ns;
    struct rpc_thread *leader; /* NULL: none */
    hearth_node *led;          /* the leader's */
    uint32_t runs, looked;     /* calls that the leader ran; the number when the progress thread looked */
    _Atomic(int) lead;         /* enum lead */
    _Atomic(bool) attention;   /* for the leader: calls wait, or it must go */
};

/* rpc_serve.c; all with the lock. */
struct hearth_rpc *rpc_next(struct rpc_server *server); /* the next call that may run, now open; NULL: none */
void rpc_handler_check(struct rpc_handler *handler);    /* ready, or free if it is not needed any more */
/* Ends an open or waiting call; the lock is released. Gives what hearth_rpc_reply gives. */
int rpc_answer(struct hearth_rpc *rpc, const struct rpc_outcome *outcome, const void *reply, size_t len);

/* rpc_pool.c */
void rpc_wake(struct rpc_server *server);                              /* with the lock: calls wait */
bool rpc_run_next(struct rpc_server *server, struct rpc_thread *self); /* with the lock; false: none waits */
uint64_t rpc_look(struct rpc_server *server, hearth_node *node);       /* without: as in struct node_server */
void rpc_join(struct rpc_server *server); /* without: when it is stopping, ends its threads */
/* Without: until no thread runs a call of the node, or, if that is NULL, of the handler. */
void rpc_wait_quiet(struct rpc_server *server, const hearth_node *node, const struct rpc_handler *handler);
