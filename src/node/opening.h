/* SPDX-License-Identifier: Apache-2.0 */
/* The state of hearth_node_open until the node takes it over. */
#pragma once

#include "node/node.h"
#include "node/transport_choice.h"

enum quic_choice {
    QUIC_NEVER,
    QUIC_IF_FASTER, /* between hosts with a long round trip */
    QUIC_ALWAYS
};

/* Whether the node belongs to a home cluster. */
enum discover_choice {
    DISCOVER_NOT,
    DISCOVER_IF_SECRET, /* the config names no members: if there is a secret */
    DISCOVER
};

struct group_spec;

struct opening {
    struct heap *heap;  /* the node's, once it is open: NULL here */
    bool heap_lent;     /* of another node: not closed */
    hearth_node *outer; /* that node; NULL: none */
    enum discover_choice discover;
    const struct group_spec *spec;     /* source of the roster; NULL: none */
    struct transport_choices *choices; /* of earlier groups, or NULL */
    struct log log;
    struct hearth_config own;           /* strings are copies on the heap */
    const struct hearth_config *config; /* &own */
    const char **peers;                 /* [size] or NULL */
    int rank, size;                     /* as in the config; rank -1: unknown yet */
    enum mesh_choice choice;
    enum quic_choice quic_choice;
    uint64_t deadline_ns;
    const struct stop *stop;        /* ends the connecting, or NULL */
    bool *unjoined;                 /* by rank, as in struct mesh_setup; or NULL */
    const struct stop *interrupted; /* ends the first collectives, or NULL */
    struct peer_info self;
    struct node_key *key; /* until the credentials take them */
    struct secret *secret;
    bool drawn; /* the secret is random, for this job only */
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

/* Copies and checks the config of the cluster: peers, rendezvous, rank, sizes, addresses. On failure only
 * fini may follow. `lent`: a heap to use instead of a new one. */
int MUST_CHECK opening_init(struct opening *o, const struct hearth_config *config, struct heap *lent,
                            struct error *error);
/* Closes and frees the rest. */
void opening_fini(struct opening *o);
/* Steps of hearth_node_open with other callers (open.c). First: describes this node, without key and
 * addresses. */
int MUST_CHECK opening_describe(struct opening *o, struct error *error);
int MUST_CHECK opening_listen(struct opening *o, struct error *error); /* the listener and its address */
/* The settings that must be equal for all members, as text. */
#define SETTINGS_TEXT_MAX 192
void opening_settings(const struct opening *o, char text[static SETTINGS_TEXT_MAX]);
int MUST_CHECK opening_alone(struct opening *o, struct error *error); /* a roster of one member */
/* From the roster to a node that is connected to all members. */
int MUST_CHECK opening_join(struct opening *o, hearth_node **out, struct error *error);
/* What a transport's name, as the config has it, means for the mesh; false: there is none of that name. */
bool opening_transport(const char *name, enum mesh_choice *choice);
/* The port of a "host:port", or the default. */
uint16_t opening_peer_port(const char *peer, uint16_t default_port);
