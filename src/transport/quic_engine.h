/* SPDX-License-Identifier: Apache-2.0 */
/* One QUIC connection without a socket: packets in, packets out, streams, timers. The only face that ngtcp2
 * has in the project. Streams are numbered from 0; the dialler opens them. */
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include "core/heap.h"
#include "os/sock.h"

#define QUIC_ID_MAX       20 /* bytes of a connection id, whoever made it */
#define QUIC_ID_LEN       16 /* of those that we give out: the tag, then random bytes */
#define QUIC_TAG_LEN      8
#define QUIC_TOKEN_KEY    32
#define QUIC_STRANGER_MAX 4096 /* bytes of stream 0 that a peer may send before quic_engine_welcome */

struct quic_id {
    size_t len;
    uint8_t bytes[QUIC_ID_MAX];
};

/* ---- datagrams, before anybody knows whose they are ---- */

/* Whose packet the datagram begins with. False: it is no QUIC of version 1. `first`: it might begin a
 * connection; all others carry an id that we gave out. */
bool quic_datagram_read(const uint8_t *bytes, size_t len, struct quic_id *to, bool *first);

/* What a connection begins with. */
struct quic_hello {
    uint32_t version;
    struct quic_id to, from;
    bool proven;             /* its sender receives at the address where it says it is */
    struct quic_id first_to; /* proven: what it called us at first */
    const uint8_t *token;    /* proven: in the datagram */
    size_t token_len;
};
/* False: not acceptable as the first packet of a connection. */
bool quic_hello_read(const uint8_t *bytes, size_t len, const uint8_t key[static QUIC_TOKEN_KEY],
                     const struct sock_addr *from, uint64_t now_ns, struct quic_hello *hello);
/* Writes the packet that asks the sender to prove its address: bytes, 0: not possible. Nothing is kept. */
size_t quic_retry_write(const struct quic_hello *hello, const uint8_t key[static QUIC_TOKEN_KEY],
                        const struct sock_addr *from, uint64_t now_ns, uint8_t *target, size_t size);

/* ---- a connection ---- */

struct gnutls_session_int;
struct quic_engine;

/* Called from inside quic_engine_read. */
struct quic_engine_events {
    void (*on_bytes)(void *arg, int stream, const uint8_t *bytes, size_t len); /* in order; all are taken */
    void (*on_end)(void *arg, int stream);                                     /* no more will come */
    void (*on_acked)(void *arg, int stream, size_t len); /* the oldest len bytes are the peer's */
};

struct quic_engine_setup {
    struct heap *heap;
    const struct quic_engine_events *events;
    void *arg;
    uint8_t tag[QUIC_TAG_LEN]; /* begins every id that the peer calls us by */
    struct sock_addr remote;
    size_t datagram_size; /* of those we send, at most */
    bool paced;
    uint64_t idle_ns;     /* without a word from the peer: gone; 0: never */
    uint64_t pulse_ns;    /* after so long without a word to the peer, one is said */
    uint64_t deadline_ns; /* of the handshake */
    uint64_t now_ns;
};
/* `hello` NULL: we dial. The session is taken, also on failure. */
int MUST_CHECK quic_engine_open(const struct quic_engine_setup *setup, const struct quic_hello *hello,
                                struct gnutls_session_int *session, struct quic_engine **out);
void quic_engine_close(struct quic_engine *engine); /* says nothing to the peer; NULL is allowed */

struct gnutls_session_int *quic_engine_session(const struct quic_engine *engine);
bool quic_engine_ready(const struct quic_engine *engine); /* the handshake is complete */
/* Whether the beginning of a datagram shows that it came from this connection: for what others quote. */
bool quic_engine_wrote(const struct quic_engine *engine, const uint8_t *bytes, size_t len);
/* Whether the peer calls us so in its first packets. */
bool quic_engine_called(const struct quic_engine *engine, const struct quic_id *id);

/* One datagram. HEARTH_OK; HEARTH_PEER_LOST: the peer has closed; HEARTH_PROTOCOL: it broke the rules, or the
 * handshake failed: quic_engine_bye has words for it. */
int MUST_CHECK quic_engine_read(struct quic_engine *engine, const uint8_t *bytes, size_t len,
                                uint64_t now_ns);
/* Bytes of a stream that are to be sent. */
struct quic_unsent {
    int stream; /* -1: none */
    int count;
    struct iovec pieces[2];
    size_t taken; /* out: these must stay where they are until they are acknowledged */
};
/* Writes the next datagram, at most `size` bytes, with what there is to say and as much of the stream as fits
 * and the peer lets us: bytes, 0: nothing now, or HEARTH_PROTOCOL. HEARTH_LIMIT: the peer lets no more into
 * this stream. */
ssize_t quic_engine_write(struct quic_engine *engine, struct quic_unsent *unsent, uint8_t *target,
                          size_t size, uint64_t now_ns);
/* Bytes that may leave at once, where it is paced. */
size_t quic_engine_burst(const struct quic_engine *engine);
void quic_engine_written(struct quic_engine *engine, uint64_t now_ns); /* after the last of a burst */
/* A last word: bytes. `code`: ours; what went wrong inside QUIC goes before. */
size_t quic_engine_bye(struct quic_engine *engine, uint64_t code, uint8_t *target, size_t size,
                       uint64_t now_ns);

uint64_t quic_engine_due(const struct quic_engine *engine); /* when quic_engine_expire is due; NEVER_NS */
int MUST_CHECK quic_engine_expire(struct quic_engine *engine, uint64_t now_ns); /* as quic_engine_read */

/* ---- streams ---- */

/* The dialler opens the next stream: its number, or -1: the peer does not want it yet. */
int quic_engine_stream(struct quic_engine *engine);
/* The peer has shown who it is: it may open `streams` streams in all and send `window` bytes in each. The
 * windows of streams that are open, or open later, grow to that. */
void quic_engine_welcome(struct quic_engine *engine, int streams, size_t window);
/* So many bytes more may come through a stream. */
void quic_engine_allow(struct quic_engine *engine, int stream, size_t len);

/* Why it ended, for people; static or in the engine. `code`: the peer's own, 0 if it gave none. */
const char *quic_engine_why(const struct quic_engine *engine, uint64_t *code);
int quic_engine_alert(const struct quic_engine *engine); /* of TLS, that ended it; -1: none */

/* Whether one of the frames of a packet, decrypted, asks that ids be given up by which we call the peer,
 * which members never do: a connection keeps its path. ngtcp2 (0.12) ends the process when it is asked twice.
 * Frames behind one that is malformed or unknown do not count: nobody reads them. (quic_frames.c) */
bool quic_frames_retire(const uint8_t *frames, size_t len);

struct quic_engine_state {
    uint64_t round_trip_ns, window_bytes;
};
void quic_engine_look(const struct quic_engine *engine, struct quic_engine_state *state);
