/* SPDX-License-Identifier: Apache-2.0 */
/* When a group follows another one, its members agree on the attachments of the old one: each sends its
 * records, and all decide the same. */
#pragma once

#include "node/node.h"
#include "os/stop.h"

/* Moves all attachments of `from` to another group, of a node with the same heap: all or, on failure, none.
 * No other thread may use them meanwhile. Operations on the old group end with HEARTH_VIEW_CHANGED.
 * Collective on `to`: members without an old group (from NULL) call it too. HEARTH_BEHIND: an attachment of
 * this member lacks state that others have. `stop` (or NULL) ends it early (HEARTH_CANCELLED). */
int MUST_CHECK node_move_attachments(hearth_group *from, hearth_group *to, const struct stop *stop,
                                     struct error *error);
