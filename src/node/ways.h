/* SPDX-License-Identifier: Apache-2.0 */
/* By which way a link between hosts goes: tcp, by which all members are joined already, or quic. */
#ifndef NODE_WAYS_H
#define NODE_WAYS_H

#include "node/opening.h"

#define WAY_REASON_MAX TRANSPORT_REASON_MAX

/* What was chosen for a peer, and why, for people. */
struct way {
    bool quic;
    char reason[WAY_REASON_MAX]; /* "": nothing to choose */
};

/* Brings quic up where it is wanted, compares the two where that is wanted, and leaves in o->conns what was
 * chosen. Blocks. ways[size] is filled in. */
int MUST_CHECK ways_choose(struct opening *o, struct way *ways, struct error *error);

#endif
