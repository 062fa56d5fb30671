/* SPDX-License-Identifier: Apache-2.0 */
/* A peer as bytes, the same wherever one is told of: at the rendezvous, in hellos, views and lists of peers.
 * docs/wire.md, "Peer", is the law. */
#pragma once

#include "core/bytes.h"
#include "core/peer_info.h"

#define PEER_LEN_MAX 512u /* bytes of a peer */

/* Characters of texts that are not printable become '?'. */
void peer_put(struct writer *w, const struct peer_info *peer);
/* Checks every field: false and r->bad for anything that may not be. What follows the known fields inside of
 * the peer's own length is from a later version and skipped. */
bool peer_get(struct reader *r, struct peer_info *peer);

/* Its identity alone, as it begins a peer: 40 bytes. */
void identity_put(struct writer *w, const struct identity *id);
bool identity_get(struct reader *r, struct identity *id); /* false and r->bad: without an instance */
/* Its addresses alone, as they end a peer. */
void peer_addrs_put(struct writer *w, const struct peer_info *peer);
bool peer_addrs_get(struct reader *r, struct peer_info *peer);

/* Texts that end on a person's terminal. `len` characters: put makes '?' of those that are not printable
 * ASCII, get refuses them, and a text that does not fit into `size` with its final 0. */
void characters_put(struct writer *w, const char *text, size_t len);
bool characters_get(struct reader *r, char *text, size_t len, size_t size);
/* Texts with their length in front (1 byte), printable; `size` counts the final 0, which does not travel. */
void text_put(struct writer *w, const char *text, size_t size);
bool text_get(struct reader *r, char *text, size_t size);
void long_text_put(struct writer *w, const char *text, size_t size); /* the length has 2 bytes */
bool long_text_get(struct reader *r, char *text, size_t size);
