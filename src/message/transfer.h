/* SPDX-License-Identifier: Apache-2.0 */
/* What messages know: transfers, arrivals, peers. Only for the files of this room. */
#pragma once

#include "message/messages.h"

#define MESSAGE_BUCKETS 256u

enum transfer_kind { TRANSFER_SEND, TRANSFER_RECV, TRANSFER_PROBE };

enum transfer_state {
    SEND_WAITING,   /* not begun: for room in the link, for budget, behind others of its tag */
    SEND_BEGUN,     /* the frame that begins it is queued or on its way */
    SEND_ANNOUNCED, /* that has left: until it is accepted */
    SEND_MOVING,    /* accepted: its pieces leave */
    SEND_LEFT,      /* all has left: until it is taken (HEARTH_FLAG_SYNC_SEND) */
    RECV_POSTED,
    RECV_MATCHED /* its message is coming */
};

struct transfer {
    struct list item;   /* send: in its tag queue, then among the peer's that move; receive: posted; free */
    struct list number; /* by peer and number: sends that have begun, receives that are matched */
    struct list timer;  /* by deadline */
    struct messages *messages;
    const struct message_group *group;
    struct completion *completion; /* NULL: for the sink of its channel */
    enum transfer_kind kind;
    enum transfer_state state;
    enum message_channel channel;
    int peer; /* rank in the cluster; receives: HEARTH_ANY_RANK until matched */
    bool any_rank;
    uint64_t tag;    /* receives: HEARTH_ANY_TAG until matched */
    uint64_t serial; /* of the message, for its direction of the link */
    uint64_t posted_ns, deadline_ns;

    const struct hearth_iovec *parts; /* NULL: one part */
    size_t count;
    uint8_t *data;
    size_t len;             /* send: of the message; receive: of the buffer, then of the message */
    size_t moved;           /* send: in the link's queue or beyond; receive: come */
    size_t part, part_done; /* send: where `moved` stands in the parts */
    uint32_t unsent;        /* frames of it in the link */
    bool sync, coded, eager;
    bool accepted;    /* a receive: pieces may come */
    size_t plain_len; /* of a coded message, decoded */
    enum hearth_dtype dtype;
    enum link_class class;

    uint64_t order; /* receives: in which they were posted */
    struct hearth_received *received;
    size_t *got;
    struct hearth_message **message, **coded_out; /* where `block` goes */
    struct hearth_message *block;                 /* memory of the message, where the caller has none */
};

/* A message that has begun to come, and no receive is posted for it. */
struct message_arrival {
    struct list bucket; /* by group, channel, peer, tag */
    struct list order;  /* all */
    uint64_t group, tag, serial;
    uint32_t channel;
    int peer;
    size_t len, plain_len;
    bool eager, sync, coded;
    enum hearth_dtype dtype;
    bool whole;                   /* eager: all of it has come */
    struct hearth_message *block; /* eager: its bytes */
    struct transfer *self;        /* a send of our own to ourselves, that waits for its receive */
    struct transfer *taker;       /* eager, not whole: the receive that gets it */
};

/* The payload that is coming in through one of a peer's pipes. */
struct message_incoming {
    struct transfer *recv;           /* into its memory, */
    struct message_arrival *arrival; /* or to wait for a receive */
    uint8_t *bounce;                 /* heap: it crosses parts of the receive's memory */
    size_t offset;
};

/* Sends of one tag to one peer: they begin in order. Exists while some wait or are announced. */
struct tag_queue {
    struct list bucket; /* by peer, group, channel, tag */
    struct list item;   /* in the peer, while some wait */
    uint64_t group, tag;
    uint32_t channel;
    int peer;
    struct list waiting;
    uint32_t announced;
    bool pinned; /* its first send is about to begin */
};

struct message_peer {
    bool heard_hello, able;
    bool gone;                /* lost, or left: its link may still be up */
    uint64_t begun;           /* number of the last message that we began */
    uint64_t heard;           /* and of the last that the peer did */
    uint64_t spent, returned; /* cost of eager messages that we sent, total; what the peer is done with */
    uint64_t released, told;  /* the same for its messages; what it knows */
    uint64_t held;            /* cost of its eager messages that are not released */
    uint32_t announced, announced_to_us;
    struct list queues; /* struct tag_queue with waiting sends */
    struct list moving; /* sends whose pieces leave */
    struct message_incoming incoming[LINK_PIPES_MAX];
};

struct messages {
    struct heap *heap;
    int rank, size;
    uint32_t eager_bytes;
    size_t chunk_bytes;
    struct list *finished;
    struct messages_setup setup;
    struct message_sink sinks[CHANNEL_COUNT];
    struct message_peer *peers; /* [size] */
    uint32_t count;             /* transfers in flight */
    uint32_t posted;            /* receives among them without a message */
    uint32_t accepted;          /* receives among them that get pieces */
    uint64_t order;
    struct list timers, free;
    struct list any;                                /* posted receives from any rank or with any tag */
    struct list probes;                             /* in order of posting */
    struct list recvs[MESSAGE_BUCKETS];             /* other posted receives */
    struct list arrived[MESSAGE_BUCKETS], arrivals; /* struct message_arrival */
    struct list numbers[MESSAGE_BUCKETS];           /* transfers by peer and number */
    struct list tags[MESSAGE_BUCKETS];              /* struct tag_queue */
};

static inline struct message_peer *peer_of(struct messages *m, int peer)
{
    return &m->peers[peer];
}

/* The link, also to a peer that has left: it may still have frames of ours. NULL: down. */
static inline struct link *link_there(struct messages *m, int peer)
{
    return peer == m->rank ? NULL : m->setup.link(m->setup.arg, peer);
}

static inline struct link *link_of(struct messages *m, int peer)
{
    return m->peers[peer].gone ? NULL : link_there(m, peer);
}

/* What the other side says is about a third member that is lost: it keeps its name. */
static inline bool message_lost(const struct error *why)
{
    return why->status == HEARTH_PEER_LOST || why->status == HEARTH_VIEW_CHANGED;
}

/* messages.c: lookups, ends */
struct list *bucket_of(struct list *buckets, uint64_t a, uint64_t b);
uint64_t message_key(uint64_t group, uint32_t channel, int peer);
struct transfer *transfer_get(struct messages *m);
void transfer_time(struct transfer *t); /* from now on it can expire */
struct transfer *transfer_find(struct messages *m, int peer, uint64_t serial, enum transfer_kind kind);
void transfer_number(struct transfer *t, uint64_t serial); /* can be found by it now */
/* The end, with success (NULL) or an error. Nothing points at it any more, its memory is free. */
void transfer_end(struct transfer *t, const struct error *why);
/* "send of 40 bytes to rank 2 (tag 7)" */
struct transfer_name {
    char s[120];
};
struct transfer_name transfer_name(const struct transfer *t);
int transfer_rank(const struct transfer *t); /* of the other side in the group, or RANK_NONE */
/* A control frame about one message; why NULL: without payload. */
void message_tell(struct messages *m, int peer, uint8_t kind, uint64_t serial, const struct error *why);
uint64_t message_cost(size_t len);
void message_release(struct messages *m, int peer,
                     size_t len); /* an eager message of the peer is done with */

/* send.c */
void send_pump(struct messages *m, int peer);         /* begins what can begin, sends pieces */
void send_let_go(struct transfer *t);                 /* the link forgets it; places are free */
enum hearth_fate send_fate(const struct transfer *t); /* if it ended now */
void send_accepted(struct transfer *t);
void send_taken(struct transfer *t, const struct error *why); /* NULL: it was received */
void send_left(struct transfer *t, uint8_t kind);             /* a frame of it has left */
void sends_to_self(struct transfer *t);                       /* our own member receives it */

/* receive.c */
void recv_let_go(struct transfer *t); /* what comes for it is dropped */
/* A message has begun: the receive that takes it, or NULL. */
struct transfer *recv_for(struct messages *m, const struct message_arrival *a);
/* The receive gets the message. False: it has ended, and the message must be refused, with `why`. */
bool recv_match(struct transfer *t, const struct message_arrival *a, struct error *why);
void recv_accept(struct transfer *t, uint64_t serial); /* the announced message: its pieces may come */
void recv_complete(struct transfer *t);
uint8_t *recv_place(struct transfer *t, size_t offset, size_t len); /* NULL: in several parts */
void recv_scatter(struct transfer *t, size_t offset, const uint8_t *bytes, size_t len);
void recv_bytes(struct transfer *t, size_t len); /* so many more have come */
/* Waits for a receive; probes hear of it. */
void arrival_keep(struct messages *m, struct message_arrival *a);
/* It goes without having been received. */
void arrival_drop(struct messages *m, struct message_arrival *a);
void arrival_free(struct message_arrival *a); /* harmless to lists */
void arrival_refuse(struct messages *m, struct message_arrival *a, const struct error *why);
/* The same for one that is not kept. */
void message_refuse(struct messages *m, const struct message_arrival *a, const struct error *why);
/* A receive takes it, or ends because it does not fit. */
void arrival_take(struct messages *m, struct message_arrival *a, struct transfer *t);
void sink_offer(struct messages *m,
                struct message_arrival *a); /* of a channel with a sink, in a known group */
