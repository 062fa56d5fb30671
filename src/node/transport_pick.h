/* SPDX-License-Identifier: Apache-2.0 */
/* By which way a link between hosts goes: tcp, by which all members are joined already, or quic. */
#pragma once

#include "node/opening.h"
#include "node/transport_choice.h"

/* Brings quic up where it is wanted, compares the two where that is wanted, and leaves in o->conns what was
 * chosen. Blocks. ways[size] is filled in. */
int MUST_CHECK transport_pick(struct opening *o, struct transport_choice *choices, struct error *error);
