/* SPDX-License-Identifier: Apache-2.0 */
/* The transport of a link between hosts: tcp, which connects all members already, or quic. */
#pragma once

#include "node/opening.h"
#include "node/transport_choice.h"

/* Connects quic and compares it with tcp as configured; o->conns gets the chosen connections. Blocks. Fills
 * in choices[size]. */
int MUST_CHECK transport_pick(struct opening *o, struct transport_choice *choices, struct error *error);
