/* SPDX-License-Identifier: Apache-2.0 */
/* Frames to one peer over its connections: headers, queues, sequence, eager credit. Written once, for all
 * transports. A link never stops reading: a payload nobody wants is read and dropped.
 *
 *   upper room --link_send_data/control--> queue --link_pump--> conn        (events: sent, room)
 *   conn --link_pump--> header --on_data: where to?--> payload --on_payload--> upper room
 *
 * A throttle holds data back; control frames leave at once, and the data behind them pays. Where control
 * has a connection of its own, data leaves in small pieces, else frame by frame. A reference costs as much as
 * what it stands for.
 *
 * The holder of the baton calls everything here; events come only from link_pump, and none may close the
 * link. */
#pragma once

#include "core/error.h"
#include "core/heap.h"
#include "metrics/metrics.h"
#include "os/sock.h"
#include "transport/throttle.h"
#include "transport/transport.h"
#include "wire/frame.h"

#define LINK_DATA_QUEUE    16   /* data frames of a class waiting to leave */
#define LINK_CONTROL_QUEUE 8192 /* control frames waiting to leave; a peer that lets them pile up is lost */
#define LINK_EAGER_COST    256  /* what a frame costs of the eager budget beside its payload */
#define LINK_PIPES_MAX     9    /* connections of a link: control, and up to eight for data */
#define LINK_INLINE_MAX    256  /* payload bytes copied behind their header, to be sent in one piece */
#define LINK_REFERENCES    64   /* payloads that the peer may be reading in our memory */

struct link;
struct link_item;

/* Frames with a payload wait in classes. Those of LINK_FIRST leave in order through the first pipe and do not
 * wait for the others, which share the data pipes, the higher classes with more turns. */
enum link_class { LINK_FIRST, LINK_HIGH, LINK_NORMAL, LINK_MESSAGE, LINK_BULK, LINK_CLASSES };

/* A payload that stands in memory which is not ours; given back by loan_end. */
struct loan {
    const void *data; /* NULL: none */
    struct conn *conn;
    uint64_t token;
};
void loan_end(struct loan *loan); /* harmless when there is none */
bool loan_holds_up(const struct loan *loan);
bool loan_good(const struct loan *loan); /* after reading: it was what the sender meant; no loan is good */

/* What on_data may answer instead of an address: lend it to me. */
#define LINK_LEND ((void *)1)

struct link_item {
    struct frame frame;
    const void *payload;
    void *owner, *cookie; /* owner NULL: nobody wants to hear when it has left */
    void *copy;           /* heap copy of the payload, freed by the link */
    uint64_t queued_ns;   /* data, where there is a throttle */
};

/* A frame with a payload, for link_send_data. */
struct link_data {
    struct frame frame; /* kind, flags, the operation's fields, length; the link fills in the rest */
    const void *payload;
    void *copy; /* NULL, or heap memory that holds the payload and is freed when it has left */
    void *owner, *cookie;
    enum link_class class;
};

struct link_events {
    /* A data header has come through a pipe. Returns where its payload goes (frame->length bytes), or NULL to
     * have it dropped, or, if `lends`, LINK_LEND. *cookie comes back with on_payload; a dropped payload is
     * not heard of again. */
    void *(*on_data)(void *arg, struct link *link, int pipe, const struct frame *frame, bool lends,
                     void **cookie);
    /* It has come. `loan` is empty unless LINK_LEND was answered; then it is the receiver's to end. */
    void (*on_payload)(void *arg, struct link *link, const struct frame *frame, void *cookie,
                       struct loan *loan);
    /* Any other frame, whole. `payload` has frame->length bytes, lent for the call. */
    void (*on_control)(void *arg, struct link *link, const struct frame *frame, const uint8_t *payload);
    /* The bytes of a data frame have left (the peer has read them, where it reads our memory); its memory is
     * the caller's again. */
    void (*on_sent)(void *arg, struct link *link, const struct link_item *item);
    /* Data frames have left, or the peer returned eager credit: more may be sent. */
    void (*on_room)(void *arg, struct link *link);
    /* Loans hold up the peer's stream: those of which loan_holds_up is true must end now, by a copy. */
    void (*on_held_up)(void *arg, struct link *link);
    /* The link is dead: once, and nothing comes after it. */
    void (*on_down)(void *arg, struct link *link, const struct error *why);
};

/* One connection of the link. Control frames go through the first, so that bulk never delays them; data
 * through the others, if any, whichever is free; short data through the first if none is. Grants and credit
 * may take an idle data pipe, so a receiver that spins need not look at the first pipe every time. Frames of
 * different pipes come in any order. */
struct pipe {
    struct conn *conn; /* NULL when down */
    bool heard_hello, heard_bye, said_bye;

    struct link_item out; /* the frame on its way */
    bool out_busy;
    size_t out_done, out_len;                               /* of header and what follows it */
    uint8_t out_header[FRAME_HEADER_LEN + LINK_INLINE_MAX]; /* and what is sent in one piece with it */
    size_t out_front;                                       /* bytes in there */
    size_t out_free;   /* of out_len, what the throttle has let through; all where there is none */
    int out_reference; /* its payload is a reference with this number; -1: it is in the stream */
    uint64_t out_sequence;

    struct frame in;        /* the frame that is coming */
    size_t in_done, in_len; /* of header and what follows it */
    uint8_t in_header[FRAME_HEADER_LEN];
    uint8_t in_control[FRAME_CONTROL_MAX];
    void *in_target; /* NULL: dropped; LINK_LEND */
    void *in_cookie;
    uint64_t in_sequence;
};

struct link_queue {
    struct link_item items[LINK_DATA_QUEUE];
    uint32_t head, count;
};

struct link {
    const struct link_events *events;
    void *events_arg;
    struct heap *heap;
    struct metrics *metrics;
    struct throttle *throttle; /* NULL: as fast as it goes */
    struct throttle_place place;
    int rank;             /* the peer's, in the cluster */
    struct error failure; /* status != 0: the link goes down at the next pump */
    bool up;
    bool unheard;  /* the peer does not read any more */
    bool parting;  /* every pipe says goodbye behind what is queued, and no more is queued */
    bool finished; /* all of that has left */
    uint8_t bye[FRAME_CONTROL_MAX];
    uint32_t bye_len;
    struct pipe pipes[LINK_PIPES_MAX];
    int pipe_count;
    int pipe_next;  /* the data pipe that has the next frame, if it is free */
    uint32_t looks; /* at the pipes, since something came through the rarer ones or a descriptor was ready */

    struct link_queue queues[LINK_CLASSES];
    uint32_t turns[LINK_CLASSES]; /* of each class, until all have theirs again */
    struct link_item *control;    /* ring that grows, up to LINK_CONTROL_QUEUE */
    uint32_t control_head, control_count, control_capacity;
    /* Which pipes are looked at every time, where they differ: messages begin in the first, data comes
     * through the others. */
    bool expects_first, expects_data;
    struct link_item lent[LINK_REFERENCES]; /* payloads that the peer may be reading, by reference number */
    uint64_t lent_mask;
    uint64_t written; /* bytes that the connections have taken */

    uint32_t eager_budget;   /* bytes, agreed */
    uint32_t eager_spent;    /* by us, total, modulo 2^32 */
    uint32_t eager_returned; /* to us, as the peer last said */
    uint32_t eager_released; /* by us for the peer's frames, total */
    uint32_t eager_told;     /* of that, what the peer knows */
};

/* Takes the conns (closes them at fini). Only plain memory: cannot fail. */
struct link_setup {
    struct conn *const *conns; /* the first is for control; one: for everything */
    int count;                 /* 1..LINK_PIPES_MAX */
    const struct link_events *events;
    void *events_arg;
    struct heap *heap;
    struct metrics *metrics;
    struct throttle *throttle; /* of the node, lent; NULL or rate 0: as fast as it goes */
    int rank;
    uint32_t eager_budget;
};
void link_init(struct link *link, const struct link_setup *setup);
/* Ends it in peace: queued control leaves, then a goodbye; it goes down when the peer has that or will get it
 * without us. No event comes any more; what the peer sends is read and dropped. */
void link_part(struct link *link, const struct error *bye);
/* Says goodbye, and goes down at the next pump with that as the reason. */
void link_dismiss(struct link *link, const struct error *bye);
/* Closes it now, without events; what has not left is dropped. */
void link_fini(struct link *link);
bool link_up(const struct link *link);

/* Reads all there is, writes what fits. True if anything moved. */
bool link_pump(struct link *link);

/* Queues a data frame: payload is lent until on_sent. Only when link_room. */
bool link_room(const struct link *link, enum link_class class);
void link_send_data(struct link *link, const struct link_data *data);
/* Whether frames of the owner wait and none of them is on its way. */
bool link_queued(const struct link *link, const void *owner);
/* The first frame of every pipe. Once, before anything else. */
void link_send_hello(struct link *link, const void *payload, size_t len);
/* Queues a control frame; the payload is copied. A full queue or no memory takes the link down at the next
 * pump. */
void link_send_control(struct link *link, const struct frame *frame, const void *payload);

/* Forgets `owner`: its queued frames go, the one on its way is finished from a copy. No event follows for
 * it. Without memory for the copy the link fails: bytes of a half-sent frame cannot be taken back. */
void link_forget(struct link *link, const void *owner);
/* The payload that is coming in for this cookie, if any, is dropped instead. */
void link_drop_incoming(struct link *link, const void *cookie);

/* Sleeping. The descriptors of the pipes, at most max of them, with what to wait for; gives their number. */
size_t link_waits(const struct link *link, struct sock_wait *items, size_t max);
void link_attend(struct link *link, const struct sock_wait *items, size_t count); /* after the wait */
void link_doze(struct link *link, bool asleep);
bool link_stuck(const struct link *link);     /* bytes wait for room, not for the throttle */
uint64_t link_due(const struct link *link);   /* when it must be pumped in any case; NEVER_NS */
uint64_t link_heard(const struct link *link); /* changes with every byte that comes */

/* For the files that make up a link. */
bool link_pump_out(struct link *link);                /* writes what fits */
bool link_has_data(const struct link *link);          /* frames with a payload wait */
void link_part_on(struct link *link);                 /* parting: what comes next, after a pump */
bool pipe_holds(const struct pipe *pipe);             /* its connection took bytes that have not left */
bool link_reads(const struct link *link, int number); /* whether a pipe may have something to say */

/* Eager credit. */
uint32_t link_eager_cost(size_t len);
bool link_eager_fits(const struct link *link, size_t len);
void link_eager_release(struct link *link, size_t len);

/* The peer broke the protocol, or memory ran out: down at the next pump. The first call counts. */
void link_fail(struct link *link, int status, const char *what);
void link_lost(struct link *link, enum hearth_reason reason, const char *what); /* the same: it is gone */
