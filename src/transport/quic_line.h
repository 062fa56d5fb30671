/* SPDX-License-Identifier: Apache-2.0 */
/* Inside QUIC: the endpoint, its lines (one connection each), their streams. */
#pragma once

#include "core/list.h"
#include "os/datagram.h"
#include "security/admission.h"
#include "transport/quic.h"

#define QUIC_LISTS          16     /* batches that are received at once */
#define QUIC_HALF_OPEN      64     /* strangers' connections that are not proven yet */
#define QUIC_HALF_OPEN_FREE 8      /* beyond so many of them, strangers must prove their address first */
#define QUIC_STRANGER_BYTES 32768u /* datagrams that a stranger may send before it is proven */
#define QUIC_GREETING_NS    (5 * NS_PER_S)

/* Bytes of one direction: [done, end), in a block whose size is a power of two. */
struct quic_ring {
    uint8_t *bytes;
    size_t size;
    uint64_t done, end;
};

struct quic_stream {
    struct conn conn;
    struct quic_line *line;
    int number;
    bool open;      /* the peer knows it */
    bool live;      /* handed out and not closed */
    bool ended;     /* the peer will say no more in it */
    bool told;      /* its owner knows that the line is lost */
    bool blocked;   /* the peer takes no more, for this burst */
    bool wanted;    /* the owner had more to send than there was room for */
    uint64_t round; /* of the endpoint: whose outcome the owner knows */

    struct quic_ring out; /* done: acknowledged */
    uint64_t out_sent;
    struct quic_ring in; /* done: read by the owner */
    size_t in_owed;      /* read, and the peer does not know yet that there is room again */
    uint8_t *target;     /* where the owner, who is just reading, wants what comes */
    size_t target_left;
};

/* The first large datagram with bytes of a stream: if they are not acknowledged in time, the way is narrower
 * than its ends, and nobody tells us. */
struct quic_trial {
    bool begun, passed;
    int stream;
    uint64_t end, until_ns;
};

enum quic_stage {
    LINE_SHAKES, /* the handshake */
    LINE_PROVES, /* who is who */
    LINE_UP,     /* the streams are their owners' */
    LINE_LINGERS /* their owners have gone; what is on its way may arrive */
};

struct quic_line {
    struct list item; /* among those that have something to write */
    struct quic *quic;
    int slot;
    uint8_t tag[QUIC_TAG_LEN];
    struct quic_engine *engine;
    struct session_setup session;
    struct error refusal; /* of the session */
    struct sock_addr remote;
    size_t datagram_size; /* once it is up */
    struct quic_trial trial;
    enum quic_stage stage;
    bool dials, paced, dirty;
    bool lost;       /* nothing more will come or go */
    const char *why; /* it is lost */
    uint64_t due_ns, deadline_ns, began_ns;
    size_t heard_bytes; /* in datagrams, before it is up */
    struct identity peer;
    struct quic_peer *wanted; /* while joining: for whom; NULL: not known yet */
    struct quic_stream *streams[LINK_PIPES_MAX];
    int stream_count, stream_next;
    int live;        /* streams that are */
    uint64_t behind; /* lingering: bytes that the peer had not got at the last look */
};

/* So many per second, and some more after a pause. */
struct quic_meter {
    double left, per_s, burst;
    uint64_t at_ns;
};
bool quic_meter_take(struct quic_meter *meter, uint64_t now_ns);

struct quic {
    struct quic_setup setup;
    struct heap *heap;
    struct datagram_port port;
    struct sock_addr bound;
    uint8_t token_key[QUIC_TOKEN_KEY];
    struct quic_line **lines; /* by slot; NULL: free */
    int capacity;
    struct list dirty;
    uint64_t due_ns; /* the soonest of the lines' */

    uint64_t round; /* looks at the socket */
    bool ready;     /* the descriptor was */
    bool emptied;   /* the last look left nothing */
    uint8_t *in;    /* QUIC_LISTS batches */

    uint8_t *out; /* a batch that is being written, or that has no room in the socket yet */
    size_t out_len, out_size;
    struct quic_line *out_line; /* whose it is; NULL: of one that is gone */
    struct sock_addr out_to;
    bool stuck; /* the socket had no room */

    struct quic_peer *wanted; /* while joining; else NULL */
    int wanted_count;
    int half_open; /* strangers' lines */
    struct quic_meter retries, words;
    struct admission admission;
};

/* ---- quic.c: the endpoint ---- */

/* One datagram, to whom it belongs. */
void quic_deliver(struct quic *quic, const uint8_t *bytes, size_t len, const struct sock_addr *from,
                  uint64_t now_ns);
/* Takes what has come and hands it to the lines. */
void quic_hear(struct quic *quic);
/* Writes what the dirty lines have to say. */
void quic_speak(struct quic *quic);
void quic_tick(struct quic *quic, uint64_t now_ns); /* lines whose time has come become dirty */
/* Moves the batch at hand. False: no room, it is kept. */
bool quic_out_flush(struct quic *quic);
/* A line in a free slot; NULL: no memory or no slot. */
struct quic_line *quic_line_new(struct quic *quic, bool dials);

/* ---- quic_stream.c: conns ---- */

/* NULL: no memory. */
struct quic_stream *quic_stream_new(struct quic_line *line, int number);
void quic_stream_free(struct quic_stream *stream);
bool quic_ring_make(struct heap *heap, struct quic_ring *ring, size_t size);
size_t quic_ring_put(struct quic_ring *ring, const void *bytes, size_t len); /* bytes taken */
size_t quic_ring_get(struct quic_ring *ring, void *target, size_t len);      /* bytes given */
/* What the peer sent, from inside the engine. */
void quic_stream_take(struct quic_stream *stream, const uint8_t *bytes, size_t len);

/* ---- quic_path.c: a line ---- */

extern const struct quic_engine_events quic_line_events;
void quic_line_dirty(struct quic_line *line);
void quic_line_read(struct quic_line *line, const uint8_t *bytes, size_t len, uint64_t now_ns);
void quic_line_write(struct quic_line *line, uint64_t now_ns);
void quic_line_lose(struct quic_line *line, const char *why);
/* Says goodbye and frees it. `code`: docs/wire.md. */
void quic_line_end(struct quic_line *line, uint64_t code);
/* The last owner has gone. */
void quic_line_linger(struct quic_line *line);
/* The peer has all that was sent, or will never. Else, if it has more than before, the line's time begins
 * anew. */
bool quic_line_settled(struct quic_line *line, uint64_t now_ns);

/* ---- quic_join.c: strangers ---- */

void quic_join_begin(struct quic *quic, struct quic_peer *peers, int count);
/* Dials, and looks what has become of lines that are not up. */
void quic_join_step(struct quic *quic, uint64_t now_ns, uint64_t deadline_ns);
void quic_join_end(struct quic *quic); /* who is not up by now goes */
/* A datagram that belongs to no line, and may begin one. */
void quic_stranger(struct quic *quic, const uint8_t *bytes, size_t len, const struct sock_addr *from,
                   uint64_t now_ns);
