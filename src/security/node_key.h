/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of a node: an Ed25519 key, in a file of its own or only for this process. docs/security.md. */
#pragma once

#include "core/error.h"
#include "core/identity.h"

#define PUBLIC_KEY_LEN 32
#define SIGNATURE_LEN  64
#define NODE_ID_TEXT   65 /* 64 hexadecimal digits and the final 0 */
#define NODE_ID_SHORT  15 /* "k7f3-9qwe-2xyz" and the final 0 */

void node_id_of(const uint8_t public_key[static PUBLIC_KEY_LEN], struct node_id *id);
bool node_id_equal(const struct node_id *a, const struct node_id *b);
void node_id_text(const struct node_id *id, char text[static NODE_ID_TEXT]);
void node_id_short(const struct node_id *id, char text[static NODE_ID_SHORT]); /* for users: 60 bits of it */
/* From the 64 digits of node_id_text. HEARTH_INVALID for anything else, a short form too. */
int MUST_CHECK node_id_parse(const char *text, struct node_id *id);

/* A key file is one line, `hearth-node-key 1 SEED CHECK`. SEED is 64 hexadecimal digits, CHECK 8: the
 * beginning of SHA3-256 over `hearth node key 1` and the seed. */
#define KEY_SEED_LEN 32u
#define KEY_LINE_LEN 92u /* with the new line at its end */
void key_line_write(const uint8_t seed[static KEY_SEED_LEN], char line[static KEY_LINE_LEN]);
/* NULL: it is a key file, and `seed` is set; the new line may be missing. Else what is wrong, as a text that
 * goes on after a path. */
const char *key_line_parse(const char *text, size_t len, uint8_t seed[static KEY_SEED_LEN]);

struct node_key; /* in the vault */

/* Reads the key file; makes it where there is none: parents with mode 0700, the file with 0600, whole or not
 * at all, and of several processes that make it at once one wins and all read its key. A symbolic link,
 * directory, foreign owner, mode that lets others read, truncated or foreign content: HEARTH_INVALID with the
 * fix in the text; nothing is ever overwritten. A full disk, a missing permission: HEARTH_SYSTEM, and nothing
 * is left behind. */
int MUST_CHECK node_key_load(const char *path, struct node_key **out, struct error *error);
/* As node_key_load, but HEARTH_INVALID where there is no file. */
int MUST_CHECK node_key_read(const char *path, struct node_key **out, struct error *error);
int MUST_CHECK node_key_fresh(struct node_key **out, struct error *error); /* a new one, in memory only */
int MUST_CHECK node_key_copy(const struct node_key *key, struct node_key **out, struct error *error);
void node_key_close(struct node_key *key); /* wiped; NULL is allowed */

const uint8_t *node_key_public(const struct node_key *key); /* [PUBLIC_KEY_LEN] */
const struct node_id *node_key_id(const struct node_key *key);
void node_key_sign(const struct node_key *key, const void *message, size_t len,
                   uint8_t signature[static SIGNATURE_LEN]);
