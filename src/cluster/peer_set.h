/* SPDX-License-Identifier: Apache-2.0 */
/* Connections between nodes of one cluster, for messages: one to each, found, dialled, proven, kept. Over TCP
 * with the handshake of every Hearth connection. The owner drives it from one thread; nothing blocks.
 *
 *  - Addresses (sightings, seeds, what members tell) are dialled, all addresses of a node side by side with
 *    a small head start for the better one (proven before, its round trip, then as they were told), with
 *    backoff (0.25 s doubling to 15 s, to 4 s where it was proven before; jitter), at most 32 dials at once,
 *    fairly between addresses: a thousand forged sightings do not keep a true one from its turn. Of two
 *    that know of each other the larger identity waits for 0.2 s, so that mostly one dials. A address's
 *    claimed id is only a claim: what the handshake proves counts; an address that proves another id than it
 *    was sighted with is that other node (and the claim is forgotten); an address that proves to be ourselves
 *    is not dialled again.
 *  - Between two nodes one connection stays: the one dialled by the smaller identity, if there are two, which
 *    closes the other when the first is ready (docs/messages.md, "hello"). A connection that is silent is not
 *    our business: the consensus's beats are, and the owner drops it then.
 *  - The first message each way is HELLO: version, what the connection is for (messages, probe), the peer.
 *    Only then PEER_LINKED is told. Messages that break the format end the connection.
 *  - A guard as at the listener: 128 strangers, 5 s for handshake and hello, 64 costly handshakes a second.
 *  - Each connection has an outgoing queue of at most 1 MiB: what does not fit is dropped and counted. */
#pragma once

#include "core/heap.h"
#include "core/log.h"
#include "membership/outbox.h"
#include "membership/view.h"
#include "os/sock.h"
#include "security/credentials.h"

#define PEER_SET_MAX       128 /* nodes we are joined to or know of by proof */
#define PEER_SET_WAITS_MAX 512

struct peer_set;

struct peer_set_setup {
    struct heap *heap;
    struct log log;
    struct sock_addr listen; /* with the port that is tried first */
    uint16_t port_tries;
    const struct credentials *credentials; /* lent */
    struct peer_info self; /* addresses have port 0 where the one we are bound to is to be filled in */
    uint64_t connect_timeout_ns;
    uint64_t seed; /* for jitter */
    uint64_t now_ns;
};
int MUST_CHECK peer_set_open(const struct peer_set_setup *setup, struct peer_set **out, struct error *error);
void peer_set_close(struct peer_set *peer_set);                  /* flushes what can be at once (goodbyes) */
struct sock_addr peer_set_addr(const struct peer_set *peer_set); /* as bound */
const struct peer_info *peer_set_self(const struct peer_set *peer_set);          /* with the port filled in */
void peer_set_describe(struct peer_set *peer_set, const struct peer_info *self); /* said to all again */

/* Somewhere to dial. `claim` NULL: nobody knows who is there (a seed). Known ones are told again and again:
 * that costs nothing. `trusted`: by a member (gossip), not by mDNS: these come first. */
void peer_set_known_addr(struct peer_set *peer_set, const struct sock_addr *addr,
                         const struct identity *claim, bool trusted, uint64_t now_ns);
/* Of all connections for messages since it was opened: bytes, and messages for which there was no room. */
struct peer_set_traffic {
    uint64_t sent, received, dropped;
};
struct peer_set_traffic peer_set_traffic(const struct peer_set *peer_set);
/* It said goodbye: it is not dialled any more, whoever tells of it. */
void peer_set_left(struct peer_set *peer_set, const struct identity *peer);
bool peer_set_has_left(const struct peer_set *peer_set, const struct identity *peer);
/* The network has changed: gives up connections by addresses that are not ours any more, and tries at once
 * whom we lost or never reached, whatever the backoff. */
void peer_set_hurry(struct peer_set *peer_set, uint64_t now_ns);

void peer_set_pump(struct peer_set *peer_set, uint64_t now_ns);
size_t peer_set_waits(const struct peer_set *peer_set, struct sock_wait *items, size_t max,
                      uint64_t *deadline_ns);

bool peer_set_send(struct peer_set *peer_set, const struct identity *to, uint8_t kind, const void *payload,
                   size_t len); /* false: not joined, or no room */
void peer_set_drop(struct peer_set *peer_set, const struct identity *peer,
                   const char *why); /* closes; dialled anew */

enum peer_news_kind {
    PEER_LINKED,  /* `peer` */
    PEER_AGAIN,   /* `peer`: it described itself anew, or the connection was replaced by another one */
    PEER_LOST,    /* `peer.id`; `text` why */
    PEER_MESSAGE, /* from `peer.id`: kind, payload, len */
    PEER_PROBE /* a connection for a probe to or from `peer.id`: `secure stream` is the caller's, ready, with
                       both hellos said; NULL: one that we dialled did not come about, `text` why */
};
struct secure_stream;
struct peer_news {
    enum peer_news_kind kind;
    struct peer_info info;
    char text[160];
    uint8_t message;
    const uint8_t *payload; /* valid until the next peer_news */
    size_t len;
    struct secure_stream *stream; /* PEER_PROBE */
    bool dialled;                 /* PEER_PROBE: by us */
};
/* False: none. To be called until then after each peer_set_pump: messages are read by it. */
bool peer_news(struct peer_set *peer_set, struct peer_news *news);

/* For status: how we are joined to a node, or why not. */
struct peer_set_state {
    struct identity id; /* 0: a seed that nobody has answered at */
    bool linked, dialled_by_us;
    struct sock_addr addr;  /* of the connection, or the last one tried */
    uint64_t round_trip_ns; /* of connect; 0: not known, the peer dialled */
    uint32_t attempts;      /* since it was last joined */
    char why[160];          /* not linked: the last failure */
};
int peer_set_list(const struct peer_set *peer_set, struct peer_set_state *list, int max);

/* For probes: a connection of its own to a node that is linked: dials this address (NULL: the one we are
 * joined by, or the best one known). PEER_PROBE tells what came of it. HEARTH_PEER_LOST: not linked, or no
 * address; HEARTH_LIMIT: PEER_SET_PROBES_MAX are under way. */
#define PEER_SET_PROBES_MAX 8
int MUST_CHECK peer_set_dial_probe(struct peer_set *peer_set, const struct identity *to,
                                   const struct sock_addr *addr, uint64_t now_ns);
