/* SPDX-License-Identifier: Apache-2.0 */
/* The node's part in trust: where its key, the secret and the list come from, and that a key which is revoked
 * while the node runs loses its link. */
#pragma once

#include "node/opening.h"

#define SECURE_PATH_MAX 4096 /* of a path, with the final 0 */

/* At a unix socket, where all members are processes of one user on one machine. */
bool secure_meets_privately(const struct opening *o);
/* Finds key and secret, as the config says. Nothing to do where all is plain, or for a node that is alone.
 * Members that meet at a unix socket need no secret: each draws one, and that of who serves is handed to
 * all. HEARTH_INVALID with the two commands that help, where a secret is needed and there is none. */
int MUST_CHECK secure_find(struct opening *o, struct error *error);
/* Credentials for the meeting: none for a unix socket, which needs no handshake. */
int MUST_CHECK secure_before_meeting(struct opening *o, struct error *error);
/* And for all that follows, with the secret that was handed out there. */
int MUST_CHECK secure_after_meeting(struct opening *o, struct error *error);
/* Where the key lies; false: nowhere, it is drawn anew for every process. */
bool secure_key_path(const struct opening *o, char path[static SECURE_PATH_MAX]);
void secure_fini(struct opening *o); /* what the node has not taken */

/* Whom the node's credentials keep an eye on. Under the baton, now and then. */
void secure_watch(hearth_node *node, uint64_t now_ns);
