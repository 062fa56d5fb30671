/* SPDX-License-Identifier: Apache-2.0 */
/* When a group follows another one, its members agree on what hung on the old one: each says how its own
 * stand, and all decide the same. */
#pragma once

#include "node/node.h"
#include "os/stop.h"

/* All that hangs on `from` goes on with another group, of a node with the same heap: all of it or, if this
 * fails, nothing. No other thread may use it meanwhile. What is in flight on the old group ends with
 * HEARTH_VIEW_CHANGED. Collective on `to`: its members that come out of no group (from NULL) call it too.
 * HEARTH_BEHIND: something of this member's lacks what others have. `stop` ends it early (HEARTH_CANCELLED);
 * NULL: nobody does. */
int MUST_CHECK node_move_attachments(hearth_group *from, hearth_group *to, const struct stop *stop,
                                     struct error *error);
