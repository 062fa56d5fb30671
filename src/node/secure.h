/* SPDX-License-Identifier: Apache-2.0 */
/* The node's part in trust: finds its key, the secret and the trust list; a key that is revoked while the
 * node runs loses its link. */
#pragma once

#include "node/opening.h"

#define SECURE_PATH_MAX 4096 /* of a path, with the final 0 */

/* The rendezvous is a unix socket: all members are processes of one user on one machine. */
bool secure_meets_privately(const struct opening *o);
/* Finds key and secret, as the config says. Does nothing without encryption, or for a single node. Members
 * that meet at a unix socket need no secret: each draws one, and all get that of the server. HEARTH_INVALID:
 * the secret is missing; the text has the two commands that help. */
int MUST_CHECK secure_find(struct opening *o, struct error *error);
/* Credentials for the rendezvous: none for a unix socket, which needs no handshake. */
int MUST_CHECK secure_before_meeting(struct opening *o, struct error *error);
/* And for all later connections, with the secret from the rendezvous. */
int MUST_CHECK secure_after_meeting(struct opening *o, struct error *error);
/* The path of the key; false: no file, it is random for every process. */
bool secure_key_path(const struct opening *o, char path[static SECURE_PATH_MAX]);
void secure_fini(struct opening *o); /* frees what the node has not taken */

/* Checks the trust list and closes links of revoked keys. Under the baton, at intervals. */
void secure_watch(hearth_node *node, uint64_t now_ns);
