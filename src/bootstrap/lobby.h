/* SPDX-License-Identifier: Apache-2.0 */
/* Where strangers wait until they have said who they are: listeners, a bounded table of whoever came, their
 * handshakes. The owner reads the first words after the handshake and says who is through.
 *
 * Anybody can connect, so a stranger costs one place of a fixed table, and a tunnel only after it has said
 * something. When all places are taken, one is made free at the expense of the address that holds most of
 * them, its oldest: whoever floods the port pushes out itself, and a member that comes from elsewhere, or
 * speaks at once, gets in. */
#ifndef BOOTSTRAP_LOBBY_H
#define BOOTSTRAP_LOBBY_H

#include "bootstrap/tunnel.h"
#include "core/log.h"

#define LOBBY_PLACES    128 /* sockets that are not through yet; one goes when another comes */
#define LOBBY_WAITS_MAX (LOBBY_PLACES + 2)

struct lobby;

/* One who stands there, or is through. Who it is, tunnel_peer says where it was proven. */
struct lobby_guest {
    struct tunnel *tunnel;
    bool local; /* a unix socket of our own user */
    struct sock_addr from;
};

enum lobby_verdict {
    LOBBY_MORE,    /* more bytes are wanted */
    LOBBY_THROUGH, /* a guest, for lobby_take */
    LOBBY_AWAY,    /* for a reason that is nobody's concern */
    LOBBY_TAKEN    /* the owner has answered and closed the tunnel */
};
/* After the handshake, whenever bytes have come: all that it said so far. `wants` has how many bytes are read
 * in all, at most words_max, and may be raised: nothing behind them is read. Wanting no more than there is
 * and LOBBY_MORE is an error of the owner. */
typedef enum lobby_verdict lobby_judge_fn(void *arg, const struct lobby_guest *guest, const uint8_t *bytes,
                                          size_t len, size_t *wants, const char **why);

struct lobby_setup {
    struct heap *heap;
    struct log log;
    struct sock_addr listen; /* TCP; len 0: none */
    uint16_t port_tries;     /* a taken port moves to the next, so often */
    uint64_t patience_ns;    /* for the handshake and the first words */
    size_t words_first, words_max;
    lobby_judge_fn *judge;
    void *arg;
};
int MUST_CHECK lobby_open(const struct lobby_setup *setup, struct lobby **out, struct error *error);
void lobby_close(struct lobby *lobby);                  /* NULL is allowed */
int lobby_fd(const struct lobby *lobby);                /* the TCP listener, -1: none */
struct sock_addr lobby_addr(const struct lobby *lobby); /* as it was bound */
/* Beside TCP; ended by lobby_close_local. */
int MUST_CHECK lobby_open_local(struct lobby *lobby, const struct sock_addr *addr, struct error *error);
void lobby_close_local(struct lobby *lobby);

/* Of handshakes from now on; NULL: plain. Lent. */
void lobby_trust(struct lobby *lobby, const struct credentials *credentials);
/* All strangers go, and whoever comes is closed: no handshake is made any more. */
void lobby_settle(struct lobby *lobby, const char *why);

void lobby_pump(struct lobby *lobby, uint64_t now_ns);
size_t lobby_waits(const struct lobby *lobby, struct sock_wait *items, size_t max, uint64_t *deadline_ns);
/* One who is through, the caller's from then on, with what it said; false: none. `words` has words_max bytes.
 * To be called until then after each lobby_pump. */
bool lobby_take(struct lobby *lobby, struct lobby_guest *guest, uint8_t *words, size_t *len);

/* Says in the log, once for each address, why somebody is sent away. */
void lobby_complain(struct lobby *lobby, const struct sock_addr *from, const char *why);
int lobby_strangers(const struct lobby *lobby);    /* how many stand there now */
uint64_t lobby_put_off(const struct lobby *lobby); /* handshakes that were too many: see guard.h */

#endif
