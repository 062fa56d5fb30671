/* SPDX-License-Identifier: Apache-2.0 */
/* Connections between nodes of one cluster, for letters: one to each, found, dialled, proven, kept. Over TCP
 * with the handshake of every Hearth connection. The owner drives it from one thread; nothing blocks.
 *
 *  - Candidates (sightings, seeds, what members tell) are dialled, all addresses of a node side by side with
 *    a small head start for the better one (proven before, its round trip, then as they were told), with
 *    backoff (0.25 s doubling to 15 s, to 4 s where it was proven before; jitter), at most 32 dials at once,
 *    fairly between candidates: a thousand forged sightings do not keep a true one from its turn. Of two
 *    that know of each other the larger identity waits for 0.2 s, so that mostly one dials. A candidate's
 *    claimed id is only a claim: what the handshake proves counts; an address that proves another id than it
 *    was sighted with is that other node (and the claim is forgotten); an address that proves to be ourselves
 *    is not dialled again.
 *  - Between two nodes one connection stays: the one dialled by the smaller identity, if there are two, which
 *    closes the other when the first is ready (docs/letters.md, "hello"). A connection that is silent is not
 *    our business: the assembly's beats are, and the owner drops it then.
 *  - The first letter each way is HELLO: version, what the connection is for (letters, probe), the fellow.
 *    Only then FELLOWS_LINKED is told. Letters that break the format end the connection.
 *  - A guard as at the door: 128 strangers, 5 s for handshake and hello, 64 costly handshakes a second.
 *  - Each connection has an outgoing queue of at most 1 MiB: what does not fit is dropped and counted. */
#ifndef HOME_FELLOWS_H
#define HOME_FELLOWS_H

#include "core/heap.h"
#include "core/log.h"
#include "membership/census.h"
#include "membership/outbox.h"
#include "os/sock.h"
#include "security/credentials.h"

#define FELLOWS_MAX       128 /* nodes we are joined to or know of by proof */
#define FELLOWS_WAITS_MAX 512

struct fellows;

struct fellows_setup {
    struct heap *heap;
    struct log log;
    struct sock_addr listen; /* with the port that is tried first */
    uint16_t port_tries;
    const struct credentials *credentials; /* lent */
    struct fellow self; /* addresses have port 0 where the one we are bound to is to be filled in */
    uint64_t connect_timeout_ns;
    uint64_t seed; /* for jitter */
    uint64_t now_ns;
};
int MUST_CHECK fellows_open(const struct fellows_setup *setup, struct fellows **out, struct error *error);
void fellows_close(struct fellows *fellows);                      /* flushes what can be at once (goodbyes) */
struct sock_addr fellows_addr(const struct fellows *fellows);     /* as bound */
const struct fellow *fellows_self(const struct fellows *fellows); /* with the port filled in */
void fellows_describe(struct fellows *fellows, const struct fellow *self); /* said to all again */

/* Somewhere to dial. `claim` NULL: nobody knows who is there (a seed). Known ones are told again and again:
 * that costs nothing. `trusted`: by a member (gossip), not by mDNS: these come first. */
void fellows_candidate(struct fellows *fellows, const struct sock_addr *addr, const struct identity *claim,
                       bool trusted, uint64_t now_ns);
/* Of all connections for letters since it was opened: bytes, and letters for which there was no room. */
struct fellows_traffic {
    uint64_t sent, received, dropped;
};
struct fellows_traffic fellows_traffic(const struct fellows *fellows);
/* It said goodbye: it is not dialled any more, whoever tells of it. */
void fellows_left(struct fellows *fellows, const struct identity *peer);
bool fellows_has_left(const struct fellows *fellows, const struct identity *peer);
/* The network has changed: gives up connections by addresses that are not ours any more, and tries at once
 * whom we lost or never reached, whatever the backoff. */
void fellows_hurry(struct fellows *fellows, uint64_t now_ns);

void fellows_pump(struct fellows *fellows, uint64_t now_ns);
size_t fellows_waits(const struct fellows *fellows, struct sock_wait *items, size_t max,
                     uint64_t *deadline_ns);

bool fellows_send(struct fellows *fellows, const struct identity *to, uint8_t kind, const void *payload,
                  size_t len); /* false: not joined, or no room */
void fellows_drop(struct fellows *fellows, const struct identity *peer,
                  const char *why); /* closes; dialled anew */

enum fellows_news_kind {
    FELLOWS_LINKED, /* `fellow` */
    FELLOWS_AGAIN,  /* `fellow`: it described itself anew, or the connection was replaced by another one */
    FELLOWS_LOST,   /* `fellow.id`; `text` why */
    FELLOWS_LETTER, /* from `fellow.id`: kind, payload, len */
    FELLOWS_PROBE   /* a connection for a probe to or from `fellow.id`: `tunnel` is the caller's, ready, with
                       both hellos said; NULL: one that we dialled did not come about, `text` why */
};
struct tunnel;
struct fellows_news {
    enum fellows_news_kind kind;
    struct fellow fellow;
    char text[160];
    uint8_t letter;
    const uint8_t *payload; /* valid until the next fellows_news */
    size_t len;
    struct tunnel *tunnel; /* FELLOWS_PROBE */
    bool dialled;          /* FELLOWS_PROBE: by us */
};
/* False: none. To be called until then after each fellows_pump: letters are read by it. */
bool fellows_news(struct fellows *fellows, struct fellows_news *news);

/* For status: how we are joined to a node, or why not. */
struct fellows_state {
    struct identity id; /* 0: a seed that nobody has answered at */
    bool linked, dialled_by_us;
    struct sock_addr addr;  /* of the connection, or the last one tried */
    uint64_t round_trip_ns; /* of connect; 0: not known, the peer dialled */
    uint32_t attempts;      /* since it was last joined */
    char why[160];          /* not linked: the last failure */
};
int fellows_list(const struct fellows *fellows, struct fellows_state *list, int max);

/* For probes: a connection of its own to a node that is linked: dials this address (NULL: the one we are
 * joined by, or the best one known). FELLOWS_PROBE tells what came of it. HEARTH_PEER_LOST: not linked, or no
 * address; HEARTH_LIMIT: FELLOWS_PROBES_MAX are under way. */
#define FELLOWS_PROBES_MAX 8
int MUST_CHECK fellows_dial_probe(struct fellows *fellows, const struct identity *to,
                                  const struct sock_addr *addr, uint64_t now_ns);

#endif
