/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a channel, joined in memory, and nodes to be at them. */
#pragma once

#include "security/channel.h"

#define ENDS_CAUGHT_MAX 65536

/* One end, and what the last channel_input said. */
struct end {
    struct channel *channel;
    int status;
    struct error error;
};

/* Bytes on their way, and who may hold them. */
struct caught {
    size_t len;
    uint8_t bytes[ENDS_CAUGHT_MAX];
};

extern struct heap ends_heap;
extern int ends_signatures; /* made by any node so far */

/* Credentials of a new node. Unless it brings its own key, a fresh one. */
struct node_options {
    uint8_t secret; /* the byte that the cluster's consists of */
    uint64_t instance;
    enum suite_order suites;
    struct trust_list *trust;
    struct node_key *key;
};
struct credentials *ends_node(const struct node_options *options);

void end_open(struct end *end, const struct credentials *credentials, enum channel_role role);
void end_close(struct end *end);
/* Gives bytes to an end, never more than it wants, at most `piece` at once (0: any): how many it took before
 * it was done with the peer. */
size_t end_feed(struct end *end, const void *bytes, size_t len, size_t piece);
/* Takes what the end has to say. */
size_t end_take(struct end *end, void *target, size_t len_max);
/* Carries bytes both ways until there are none; `piece` as above. */
void ends_carry(struct end *a, struct end *b, size_t piece);
/* What `from` has to say; `copy` keeps it too, or is NULL. */
size_t ends_carry_one_way(struct end *from, struct end *to, size_t piece, struct caught *copy);
/* Opens both and carries until they are ready. */
void ends_join(struct end *dialler, struct end *listener, const struct credentials *a,
               const struct credentials *b);
void ends_exchange(struct end *from, struct end *to, size_t len); /* one message, as it was sent */
/* This end was done with its peer, for this reason. */
void end_refused(const struct end *end, int status, const char *text);
