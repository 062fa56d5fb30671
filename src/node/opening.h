/* SPDX-License-Identifier: Apache-2.0 */
/* What hearth_node_open has in its hands until the node has it. */
#pragma once

#include "node/node.h"
#include "node/transport_choice.h"

enum quic_choice {
    QUIC_NEVER,
    QUIC_IF_FASTER, /* between hosts that are far from each other */
    QUIC_ALWAYS
};

/* Whether the node belongs to a home cluster. */
enum discover_choice {
    DISCOVER_NOT,
    DISCOVER_IF_SECRET, /* nothing says who the members are: if there is a secret, it does */
    DISCOVER
};

struct group_spec;

struct opening {
    struct heap *heap; /* the node's, once it is open: NULL here */
    bool heap_lent;    /* another node's: it stays */
    enum discover_choice discover;
    const struct group_spec *spec;     /* which the roster comes from; NULL: none */
    struct transport_choices *choices; /* of groups before this one; NULL: there are none */
    struct log log;
    struct hearth_config own;           /* strings are copies on the heap */
    const struct hearth_config *config; /* &own */
    const char **peers;                 /* [size] or NULL */
    int rank, size;                     /* as the config has them; rank -1: not known yet */
    enum mesh_choice choice;
    enum quic_choice quic_choice;
    uint64_t deadline_ns;
    const struct stop *stop;        /* asks to give up joining; NULL: nobody does */
    bool *unjoined;                 /* by rank, as in struct mesh_setup; or NULL */
    const struct stop *interrupted; /* likewise the first collectives, which come after it */
    struct peer_info self;
    struct node_key *key; /* until the credentials have them */
    struct secret *secret;
    bool drawn; /* the secret: for this job alone */
    struct trust_list *trust;
    struct credentials *credentials; /* NULL: plain, or not yet */
    struct listener *listener;
    struct roster roster;
    struct mesh_peer *mesh; /* [size] */
    struct node_conns *conns;
    struct identity *identities; /* [size], or NULL */
    char *links;                 /* hearth_node_links_text */
    struct node_link *roll;      /* [size], or NULL */
    int *host;
    bool crowded; /* more members on this host than processors */
    struct event event;
    struct shm_regions *regions;
    struct quic *quic; /* NULL: none is needed */
};

/* Copies and checks what concerns the cluster: peers, rendezvous, rank, sizes, addresses. On failure only
 * fini. `lent`: a heap to use instead of a new one. */
int MUST_CHECK opening_init(struct opening *o, const struct hearth_config *config, struct heap *lent,
                            struct error *error);
/* Closes and frees what is left. */
void opening_fini(struct opening *o);
/* Steps of hearth_node_open that others take too (open.c). First: who we are, but for key and addresses. */
int MUST_CHECK opening_describe(struct opening *o, struct error *error);
int MUST_CHECK opening_listen(struct opening *o, struct error *error); /* our listener, and where it is */
/* What all members must have in common, as text; also `o->self.addrs` must be known to all by now. */
#define SETTINGS_TEXT_MAX 192
void opening_settings(const struct opening *o, char text[static SETTINGS_TEXT_MAX]);
int MUST_CHECK opening_alone(struct opening *o, struct error *error); /* a roster of us alone */
/* From the roster to a node that is joined to all of it. */
int MUST_CHECK opening_join(struct opening *o, hearth_node **out, struct error *error);
/* The port of a "host:port", or the default. */
uint16_t opening_peer_port(const char *peer, uint16_t default_port);
