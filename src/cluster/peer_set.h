/* SPDX-License-Identifier: Apache-2.0 */
/* Message connections between nodes of one cluster: one to each. Over TCP with the handshake of every Hearth
 * connection. The owner drives it from one thread; nothing blocks.
 *
 *  - All addresses of a node (sightings, seeds, gossip) are dialled in parallel, with a small head start for
 *    the better one (proven before, shorter round trip, then in the order told), with backoff (0.25 s
 *    doubling to 15 s, to 4 s if proven before; jitter), at most 32 dials at once, fairly between addresses:
 *    a thousand forged sightings do not starve a true one. Of two nodes that know of each other the larger
 *    identity waits for 0.2 s, so that mostly one dials. The claimed id of an address is only a claim: the
 *    handshake decides. An address that proves another id belongs to that node, and the claim is dropped; the
 *    address of this node itself is not dialled again.
 *  - If two nodes have two connections, the one dialled by the smaller identity stays; that node closes the
 *    other one when the first is ready (docs/cluster_messages.md, "hello"). Silence is not detected here: the
 *    heartbeats of the consensus do that, and the owner drops the connection.
 *  - The first message in each direction is HELLO: version, purpose (messages, probe), description. Only then
 *    PEER_LINKED is reported. Malformed messages end the connection.
 *  - Admission limits: 128 half-open connections, 5 s for handshake and hello, 64 costly handshakes a second.
 *  - Each connection has a send queue of at most 1 MiB: what does not fit is dropped and counted. */
#pragma once

#include "core/heap.h"
#include "core/log.h"
#include "membership/outbox.h"
#include "membership/view.h"
#include "os/sock.h"
#include "security/credentials.h"

#define PEER_SET_MAX       128 /* connected or proven nodes */
#define PEER_SET_WAITS_MAX 512

struct peer_set;

struct peer_set_setup {
    struct heap *heap;
    struct log log;
    struct sock_addr listen; /* with the first port to try */
    uint16_t port_tries;
    const struct credentials *credentials; /* lent */
    struct peer_info self;                 /* an address with port 0 gets the bound port */
    uint64_t connect_timeout_ns;
    uint64_t seed; /* for jitter */
    uint64_t now_ns;
};
int MUST_CHECK peer_set_open(const struct peer_set_setup *setup, struct peer_set **out, struct error *error);
void peer_set_close(struct peer_set *peer_set);                         /* flushes what can be sent at once */
struct sock_addr peer_set_addr(const struct peer_set *peer_set);        /* as bound */
const struct peer_info *peer_set_self(const struct peer_set *peer_set); /* with the port filled in */
void peer_set_describe(struct peer_set *peer_set, const struct peer_info *self); /* sent to all again */

/* An address to dial. `claim` NULL: an unknown node (a seed). Repeating a known one costs nothing. `trusted`:
 * from a member (gossip), not from mDNS: these come first. */
void peer_set_known_addr(struct peer_set *peer_set, const struct sock_addr *addr,
                         const struct identity *claim, bool trusted, uint64_t now_ns);
/* Of all message connections since the opening: bytes, and messages dropped because a queue was full. */
struct peer_set_traffic {
    uint64_t sent, received, dropped;
};
struct peer_set_traffic peer_set_traffic(const struct peer_set *peer_set);
/* The peer has left: it is not dialled again, whatever tips follow. */
void peer_set_left(struct peer_set *peer_set, const struct identity *peer);
bool peer_set_has_left(const struct peer_set *peer_set, const struct identity *peer);
/* The network has changed: closes connections from addresses that this machine lost, and dials lost or
 * unreached nodes at once, without backoff. */
void peer_set_hurry(struct peer_set *peer_set, uint64_t now_ns);

void peer_set_pump(struct peer_set *peer_set, uint64_t now_ns);
size_t peer_set_waits(const struct peer_set *peer_set, struct sock_wait *items, size_t max,
                      uint64_t *deadline_ns);

bool peer_set_send(struct peer_set *peer_set, const struct identity *to, uint8_t kind, const void *payload,
                   size_t len); /* false: not connected, or the queue is full */
/* Closes the connection and dials again. */
void peer_set_drop(struct peer_set *peer_set, const struct identity *peer, const char *why);

enum peer_news_kind {
    PEER_LINKED,  /* `info` */
    PEER_AGAIN,   /* `info`: it has a new description, or another connection replaced the first */
    PEER_LOST,    /* `info.id`; `text` why */
    PEER_MESSAGE, /* from `info.id`: message, payload, len */
    PEER_PROBE    /* a probe connection to or from `info.id`: the caller owns `stream`, both hellos are
                     exchanged; NULL: dialling failed, `text` why */
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
/* False: none. Call it until then after each peer_set_pump: it reads the messages. */
bool peer_news(struct peer_set *peer_set, struct peer_news *news);

/* For status: the connection to a node, or why there is none. */
struct peer_set_state {
    struct identity id; /* 0: a seed without an answer */
    bool linked, dialled_by_us;
    struct sock_addr addr;  /* of the connection, or the last one tried */
    uint64_t round_trip_ns; /* of connect; 0: unknown, the peer dialled */
    uint32_t attempts;      /* since it was last connected */
    char why[160];          /* not linked: the last failure */
};
int peer_set_list(const struct peer_set *peer_set, struct peer_set_state *list, int max);

/* Dials an extra connection to a linked node, for a probe, at this address (NULL: that of the connection, or
 * the best one known). PEER_PROBE reports the result. HEARTH_PEER_LOST: not linked, or no address;
 * HEARTH_LIMIT: there are PEER_SET_PROBES_MAX already. */
#define PEER_SET_PROBES_MAX 8
int MUST_CHECK peer_set_dial_probe(struct peer_set *peer_set, const struct identity *to,
                                   const struct sock_addr *addr, uint64_t now_ns);
