/* SPDX-License-Identifier: Apache-2.0 */
/* Half-open connections: listening sockets, a bounded table of the connections that came, their handshakes.
 * The owner reads the first words after the handshake and decides which of them are through. Rendezvous, mesh
 * and cluster all listen here.
 *
 * Anybody can connect, so a connection costs one place of a fixed table, and a secure stream only after it
 * has sent something. When all places are taken, the oldest connection of the address that holds most of
 * them is evicted: a flooder evicts its own connections first, and a member that comes from elsewhere, or
 * speaks at once, gets in. */
#pragma once

#include "connect/admission_log.h"
#include "connect/secure_stream.h"
#include "wire/message.h"

#define HALF_OPEN_PLACES    128 /* connections that are not through yet */
#define HALF_OPEN_LISTENERS 8
#define HALF_OPEN_WAITS_MAX (HALF_OPEN_PLACES + HALF_OPEN_LISTENERS)

struct half_open;

/* secure_stream_peer gives its identity where the handshake proved one. */
struct half_open_incoming {
    struct secure_stream *stream;
    bool local; /* a unix socket of our own user */
    struct sock_addr from;
};

enum half_open_verdict {
    HALF_OPEN_MORE,    /* more bytes are wanted */
    HALF_OPEN_THROUGH, /* a connection, for half_open_take */
    HALF_OPEN_AWAY,    /* for a reason that needs no warning */
    HALF_OPEN_TAKEN    /* the owner has answered and closed the secure stream */
};
/* After the handshake, whenever bytes have come: all that it sent so far. `wants` has how many bytes are read
 * in all, at most words_max, and may be raised: nothing behind them is read. Wanting no more than there is
 * and HALF_OPEN_MORE is an error of the owner. */
typedef enum half_open_verdict half_open_judge_fn(void *arg, const struct half_open_incoming *incoming,
                                                  const uint8_t *bytes, size_t len, size_t *wants,
                                                  const char **why);
/* For owners whose first words are one control message: words_first is MESSAGE_HEADER_LEN. HALF_OPEN_THROUGH:
 * all of it is there, and `header` is set. */
enum half_open_verdict half_open_message(const struct message_kinds *kinds, const uint8_t *bytes, size_t len,
                                         size_t *wants, struct message_header *header, const char **why);

struct half_open_setup {
    struct heap *heap;
    struct log log;
    struct sock_addr listen; /* TCP; len 0: none */
    uint16_t port_tries;     /* a taken port moves to the next, so often */
    int burst;               /* handshakes at once beyond the usual limit: admission_init */
    uint64_t patience_ns;    /* for the handshake and the first words */
    size_t words_first, words_max;
    struct iovec mixed_answer; /* lent: for an end that is plain where we are not, or the other way round */
    half_open_judge_fn *judge;
    void *arg;
};
int MUST_CHECK half_open_open(const struct half_open_setup *setup, struct half_open **out,
                              struct error *error);
void half_open_close(struct half_open *h);                  /* NULL is allowed */
int half_open_fd(const struct half_open *h);                /* the TCP listener, -1: none */
struct sock_addr half_open_addr(const struct half_open *h); /* as it was bound */
/* Listens there too; a unix socket is closed by half_open_close_local, or with the rest. */
int MUST_CHECK half_open_listen(struct half_open *h, const struct sock_addr *addr, struct error *error);
void half_open_close_local(struct half_open *h);
/* One more listening descriptor, HALF_OPEN_LISTENERS in all; taken, unless it is lent. */
void half_open_add(struct half_open *h, int fd, bool lent);

/* Of handshakes from now on; NULL: plain. Lent. */
void half_open_trust(struct half_open *h, const struct credentials *credentials);
/* Closes all, and later ones as they come: no handshake is made any more. */
void half_open_settle(struct half_open *h, const char *why);
void half_open_unlisten(struct half_open *h); /* the same, and closes the listeners that are not lent */

void half_open_pump(struct half_open *h, uint64_t now_ns);
/* What to wait for: fills at most max items, gives their number; *deadline_ns is lowered to when
 * half_open_pump must be called in any case. */
size_t half_open_waits(const struct half_open *h, struct sock_wait *items, size_t max, uint64_t *deadline_ns);
/* A connection that is through, the caller's from then on, with its first words; false: none. `words` has
 * words_max bytes. To be called until then after each half_open_pump. */
bool half_open_take(struct half_open *h, struct half_open_incoming *incoming, uint8_t *words, size_t *len);

int half_open_strangers(const struct half_open *h); /* places taken */
struct admission_log *half_open_admissions(struct half_open *h);
