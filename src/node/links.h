/* SPDX-License-Identifier: Apache-2.0 */
/* From the sockets of the mesh to the connections of the engine, and texts about them. */
#pragma once

#include "node/opening.h"

/* Fills o->conns, o->regions where members share this host, and o->links: hearth_node_links_text. */
int MUST_CHECK links_take(struct opening *o, struct error *error);

struct transport_choice;
/* Fills o->roll, for hearth_group_member and status; none without memory. `choices` NULL: no connections. */
void links_roll(struct opening *o, const struct transport_choice *choices);
