/* SPDX-License-Identifier: Apache-2.0 */
/* What comes in on a link, brought to the operation it belongs to. */
#ifndef COLLECTIVE_DISPATCH_H
#define COLLECTIVE_DISPATCH_H

#include "transport/link.h"

struct engine;

extern const struct link_events dispatch_events; /* their arg is a struct peer */

/* engine.c: a peer has ended; its groups are broken, operations that need it fail. */
void engine_peer_lost(struct engine *engine, int world_rank, int blamed, const char *reason);

#endif
