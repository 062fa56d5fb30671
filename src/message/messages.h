/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between members: matching by rank and tag, the budget of what comes unasked, what became of a
 * message. It has no thread, no clock and no connections of its own: the engine passes it the frames of its
 * links, and the time.
 *
 *   send:     waiting -> begun (the whole message, or an announcement) -> accepted -> sent -> taken
 *   receive:  posted -> matched -> complete
 *
 * A short message travels inside the frame that begins it, within a budget for each direction of a link. A
 * longer one is announced; the receiver accepts it when a receive is posted, and its pieces go straight into
 * the receiver's memory. So a receiver that posts nothing holds up messages of that tag only, and its memory
 * is bounded. docs/wire.md, "Messages". */
#pragma once

#include "core/completion.h"
#include "transport/link.h"

/* Messages of different channels never match: what programs send, remote calls, their replies and cancels. */
enum message_channel { CHANNEL_USER, CHANNEL_CALL, CHANNEL_REPLY, CHANNEL_CANCEL, CHANNEL_COUNT };

#define MESSAGE_INLINE_ALONE 65536u /* bytes inside the first frame where one pipe carries everything, */
#define MESSAGE_INLINE_MAX   16384u /* and where control would wait behind it */
#define MESSAGE_HELD_MAX     4096u  /* announced to a peer, and not accepted */
#define MESSAGE_TAG_MAX      64u    /* of these, with one tag; 1 when half of all places are taken */
#define MESSAGE_PIECE_CHUNKS 4u     /* a piece has at most so many chunks */
#define MESSAGE_COUNT_MAX    16384u /* sends and receives of a node in flight */

/* A group as messages see it; part of the engine's group. */
struct message_group {
    uint64_t id;
    uint32_t epoch;
    int rank, size;
    const int *members; /* [size] ranks in the cluster */
    const int *rank_of; /* [cluster size] */
    struct error over;  /* status != 0: a member is lost, and why; no message begins any more */
};

struct messages;

/* Takes messages of a channel for which no receives are posted. Called with the baton. */
struct message_sink {
    void *arg;
    /* A message of this length begins, or, if it is short, has come. Not HEARTH_OK: it is refused, and the
     * sender hears why unless its send has ended already. */
    int (*wants)(void *arg, const struct message_group *group, size_t len, struct error *why);
    void (*take)(void *arg, const struct message_group *group, struct hearth_message *message);
};

struct messages_setup {
    struct heap *heap;
    int rank, size; /* in the cluster */
    uint32_t eager_bytes;
    size_t chunk_bytes;    /* of a piece */
    struct list *finished; /* of the engine: ended completions */
    void *arg;
    struct link *(*link)(void *arg, int peer);                    /* NULL: down */
    const struct message_group *(*group)(void *arg, uint64_t id); /* NULL: not made yet, or closed */
    bool (*closed)(void *arg, uint64_t id);
};
int MUST_CHECK messages_open(const struct messages_setup *setup, struct messages **out);
void messages_close(struct messages *messages); /* all transfers have ended */
void messages_set_sink(struct messages *messages, enum message_channel channel,
                       const struct message_sink *sink);

/* A message as it was sent, arguments checked. The list of parts must live as long as the send. Without a
 * completion nobody hears what became of it. */
struct message_send {
    enum message_channel channel;
    int to; /* rank in the group */
    uint64_t tag;
    const struct hearth_iovec *parts; /* NULL: one part, data */
    size_t count;
    const void *data;
    size_t len;       /* of all parts */
    bool sync, coded; /* ends when it was taken; the bytes are a codec's */
    size_t plain_len; /* coded: decoded */
    enum hearth_dtype dtype;
    enum hearth_priority priority;
    uint64_t now_ns, deadline_ns;
};
int MUST_CHECK message_send(struct messages *messages, const struct message_group *group,
                            const struct message_send *send, struct completion *completion,
                            struct error *error);

/* A receive as it was posted. Exactly one of buffer, parts, message and probe. */
struct message_recv {
    enum message_channel channel;
    int from; /* rank in the group, or HEARTH_ANY_RANK */
    uint64_t tag;
    void *buffer;
    const struct hearth_iovec *parts;
    size_t count;
    size_t len;
    struct hearth_message **message; /* any length, in new memory */
    bool probe;
    enum hearth_dtype dtype;          /* coded messages: expected */
    struct hearth_received *received; /* NULL is allowed */
    size_t *got;                      /* the length alone; likewise */
    struct hearth_message **coded;    /* where the bytes of a coded message go; never NULL in channel USER */
    uint64_t now_ns, deadline_ns;
    const struct error *gone; /* why nothing more can come; NULL: it can */
};
int MUST_CHECK message_recv(struct messages *messages, const struct message_group *group,
                            const struct message_recv *recv, struct completion *completion,
                            struct error *error);
/* A message in memory of the node: this, then its bytes. Freed by heap_free. */
struct message_block {
    struct hearth_message message;
    size_t plain_len; /* coded: what it decodes to */
    enum hearth_dtype dtype;
};
struct hearth_message *message_alloc(struct heap *heap, size_t len);

/* Ends it here, with HEARTH_CANCELLED; the other side hears that. */
void transfer_cancel(struct transfer *transfer);
/* The rank in the cluster that it waits for, or RANK_NONE. */
int transfer_waits_for(const struct transfer *transfer);

/* Deadlines. True: something ended. */
bool messages_check_time(struct messages *messages, uint64_t now_ns);
uint64_t messages_deadline(const struct messages *messages); /* NEVER_NS: none */
bool messages_busy(const struct messages *messages);         /* sends or receives are in flight */
/* Where frames are waited for: messages begin and are answered in the first pipe of a link, the pieces of an
 * accepted one come through the others. */
bool messages_begin_expected(const struct messages *messages);
bool messages_pieces_expected(const struct messages *messages);

/* Frames and events of the link to a peer; as in struct link_events, for kinds that frame_is_message. */
void *messages_data(struct messages *messages, int peer, int pipe, const struct frame *frame, bool lends,
                    void **cookie);
void messages_payload(struct messages *messages, int peer, const struct frame *frame, void *cookie,
                      struct loan *loan);
void messages_control(struct messages *messages, int peer, const struct frame *frame, const uint8_t *payload);
void messages_sent(struct transfer *transfer, uint8_t kind);
void messages_room(struct messages *messages, int peer);
void messages_hello(struct messages *messages, int peer, bool able); /* it knows messages, or does not */

/* The peer is gone. `left`: it said goodbye, and what it had sent counts. */
struct message_loss {
    int peer; /* rank in the cluster */
    bool left;
    int status; /* of sends and receives that need it */
    enum hearth_reason reason;
    const char *how; /* "is lost: ..." */
};
void messages_departed(struct messages *messages, const struct message_loss *loss);
/* The group has lost a member: what has not begun to move ends, between all its members, and nothing begins
 * any more. The first call counts. */
void messages_group_over(struct messages *messages, struct message_group *group, const struct error *why);
/* Tells the other members of it, who may not have noticed. */
void messages_tell_over(struct messages *messages, const struct message_group *group);
/* The group closes: everything of it ends with `why`. NULL group: of all groups. */
void messages_end(struct messages *messages, const struct message_group *group, const struct error *why);
/* Everything but replies that are on their way ends with `why`. */
void messages_end_waits(struct messages *messages, const struct error *why);
/* The same, and later frames of it are refused. */
void messages_group_closed(struct messages *messages, const struct message_group *group);
void messages_group_opened(struct messages *messages, const struct message_group *group);
