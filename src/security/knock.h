/* SPDX-License-Identifier: Apache-2.0 */
/* The knock: a server name in the dialler's hello that shows at the listener, for the price of one hash, that
 * the dialler has the secret, and means this listener. docs/wire.md, Handshake. */
#pragma once

#include "os/sock.h"
#include "security/node_key.h"
#include "security/secret.h"

#define KNOCK_NONCE_LEN  16
#define KNOCK_RANDOM_LEN 11  /* of it */
#define KNOCK_LEN        105 /* "NAMESPACE.NONCE.MAC.hearth", three times 32 digits */
#define KNOCK_MINUTES_MAX                                                                                    \
    10u /* by which clocks may differ, and so long a knock that was heard is as good as new */

/* Which listener a knock is for: what the dialler knows of it from a member. */
enum knock_kind {
    KNOCK_OPEN,    /* any: a user gave the address, and there may be a NAT on the way */
    KNOCK_NODE,    /* the node with this id, wherever it is */
    KNOCK_ADDRESS, /* the one at this very address, which anyone may have announced */
    KNOCK_KINDS
};
struct knock_target {
    enum knock_kind kind;
    struct node_id node;   /* KNOCK_NODE */
    struct sock_addr addr; /* KNOCK_ADDRESS: TCP */
};

enum knock_verdict {
    KNOCK_GOOD,
    KNOCK_WEAK, /* right, but open, or by a clock that is far from ours: maybe heard elsewhere or long ago */
    KNOCK_NONE, /* no knock at all */
    KNOCK_FOREIGN, /* of another namespace */
    KNOCK_WRONG,   /* says our namespace, and does not know the secret, or means another listener */
};

/* Minutes since 1970 by this machine's calendar, which may be wrong. */
uint32_t knock_minute(void);
/* text: KNOCK_LEN characters and the final 0. HEARTH_OK or HEARTH_SYSTEM. */
int MUST_CHECK knock_make(const struct secret *secret, const struct knock_target *target, uint32_t minute,
                          const uint8_t random[static KNOCK_RANDOM_LEN], char text[static KNOCK_LEN + 1]);
/* The listener has a node id and an address (its end of the connection; other than TCP: not known); its kind
 * does not matter. */
enum knock_verdict knock_check(const struct secret *secret, const struct knock_target *listener,
                               uint32_t minute, const char *text, size_t len);

/* Knocks that were right, the last of them: a nonce is drawn for one hello, so a second hello with
 * it is a replay. 16 KiB; not for several threads at once. */
#define KNOCKS_MAX 1024u
struct knocks {
    size_t count; /* of all there were */
    uint8_t nonces[KNOCKS_MAX][KNOCK_NONCE_LEN];
};
/* Remembers a knock that knock_check found right. False: it was heard before. */
bool knocks_add(struct knocks *knocks, const char text[static KNOCK_LEN]);
