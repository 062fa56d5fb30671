/* SPDX-License-Identifier: Apache-2.0 */
/* What hearth_open has in its hands until the node has it. */
#ifndef NODE_OPENING_H
#define NODE_OPENING_H

#include "node/node.h"

enum quic_wish {
    QUIC_NEVER,
    QUIC_IF_FASTER, /* between hosts that are far from each other */
    QUIC_ALWAYS
};

struct opening {
    struct heap *heap; /* the node's, once it is open: NULL here */
    struct log log;
    struct hearth_config own;           /* strings are copies on the heap */
    const struct hearth_config *config; /* &own */
    const char **peers;                 /* [size] or NULL */
    int rank, size;                     /* as the config has them; rank -1: not known yet */
    enum mesh_wish wish;
    enum quic_wish quic_wish;
    uint64_t deadline_ns;
    struct member self;
    struct node_key *key; /* until the credentials have them */
    struct secret *secret;
    bool drawn; /* the secret: for this job alone */
    struct trust_list *trust;
    struct credentials *credentials; /* NULL: plain, or not yet */
    struct door *door;
    struct roster roster;
    struct mesh_peer *mesh; /* [size] */
    struct node_conns *conns;
    struct identity *identities; /* [size], or NULL */
    char *links;                 /* hearth_links_text */
    int *host;
    bool crowded; /* more members on this host than processors */
    struct event event;
    struct shm_regions *regions;
    struct quic *quic; /* NULL: none is needed */
};

/* Copies and checks what concerns the cluster: peers, rendezvous, rank, sizes, addresses. On failure only
 * fini. */
int MUST_CHECK opening_init(struct opening *o, const struct hearth_config *config, struct error *error);
/* Closes and frees what is left. */
void opening_fini(struct opening *o);
/* The port of a "host:port", or the default. */
uint16_t opening_peer_port(const char *peer, uint16_t default_port);

#endif
