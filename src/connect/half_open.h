/* SPDX-License-Identifier: Apache-2.0 */
/* Where strangers wait until they have said who they are: listeners, a bounded table of whoever came, their
 * handshakes. The owner reads the first words after the handshake and says who is through.
 *
 * Anybody can connect, so a stranger costs one place of a fixed table, and a secure stream only after it has
 * said something. When all places are taken, one is made free at the expense of the address that holds most
 * of them, its oldest: whoever floods the port pushes out itself, and a member that comes from elsewhere, or
 * speaks at once, gets in. */
#pragma once

#include "connect/secure_stream.h"
#include "core/log.h"

#define HALF_OPEN_PLACES    128 /* sockets that are not through yet; one goes when another comes */
#define HALF_OPEN_WAITS_MAX (HALF_OPEN_PLACES + 2)

struct half_open;

/* One who stands there, or is through. Who it is, secure_stream_peer says where it was proven. */
struct half_open_incoming {
    struct secure_stream *stream;
    bool local; /* a unix socket of our own user */
    struct sock_addr from;
};

enum half_open_verdict {
    HALF_OPEN_MORE,    /* more bytes are wanted */
    HALF_OPEN_THROUGH, /* a connection, for half_open_take */
    HALF_OPEN_AWAY,    /* for a reason that is nobody's concern */
    HALF_OPEN_TAKEN    /* the owner has answered and closed the secure stream */
};
/* After the handshake, whenever bytes have come: all that it said so far. `wants` has how many bytes are read
 * in all, at most words_max, and may be raised: nothing behind them is read. Wanting no more than there is
 * and HALF_OPEN_MORE is an error of the owner. */
typedef enum half_open_verdict half_open_judge_fn(void *arg, const struct half_open_incoming *incoming,
                                                  const uint8_t *bytes, size_t len, size_t *wants,
                                                  const char **why);

struct half_open_setup {
    struct heap *heap;
    struct log log;
    struct sock_addr listen; /* TCP; len 0: none */
    uint16_t port_tries;     /* a taken port moves to the next, so often */
    uint64_t patience_ns;    /* for the handshake and the first words */
    size_t words_first, words_max;
    half_open_judge_fn *judge;
    void *arg;
};
int MUST_CHECK half_open_open(const struct half_open_setup *setup, struct half_open **out,
                              struct error *error);
void half_open_close(struct half_open *half_open);                  /* NULL is allowed */
int half_open_fd(const struct half_open *half_open);                /* the TCP listener, -1: none */
struct sock_addr half_open_addr(const struct half_open *half_open); /* as it was bound */
/* Beside TCP; ended by half_open_close_local. */
int MUST_CHECK half_open_open_local(struct half_open *half_open, const struct sock_addr *addr,
                                    struct error *error);
void half_open_close_local(struct half_open *half_open);

/* Of handshakes from now on; NULL: plain. Lent. */
void half_open_trust(struct half_open *half_open, const struct credentials *credentials);
/* All strangers go, and whoever comes is closed: no handshake is made any more. */
void half_open_settle(struct half_open *half_open, const char *why);

void half_open_pump(struct half_open *half_open, uint64_t now_ns);
/* What to wait for: fills at most max items, gives their number; *deadline_ns is lowered to when
 * half_open_pump must be called in any case. */
size_t half_open_waits(const struct half_open *half_open, struct sock_wait *items, size_t max,
                       uint64_t *deadline_ns);
/* One who is through, the caller's from then on, with what it said; false: none. `words` has words_max bytes.
 * To be called until then after each half_open_pump. */
bool half_open_take(struct half_open *half_open, struct half_open_incoming *incoming, uint8_t *words,
                    size_t *len);

/* Says in the log, once for each address, why somebody is sent away. */
void half_open_complain(struct half_open *half_open, const struct sock_addr *from, const char *why);
int half_open_strangers(const struct half_open *half_open); /* how many stand there now */
uint64_t
half_open_put_off(const struct half_open *half_open); /* handshakes that were too many: see admission_log.h */
