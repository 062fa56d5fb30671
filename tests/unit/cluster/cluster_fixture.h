/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of home clusters in one process, on loopback, each with its own key and port, driven by one loop. */
#pragma once

#include "cluster/peer_set.h"
#include "core/prng.h"
#include "relay.h"

#define FIXTURE_NODES_MAX 12
#define FIXTURE_SECRET    7

struct fixture_node {
    struct heap *heap;
    struct credentials *credentials;
    struct peer_set *peer_set;     /* NULL: it does not run */
    int linked, again, lost;       /* news */
    int joined[FIXTURE_NODES_MAX]; /* by number: LINKED less LOST */
    int probes, probes_failed;
    struct secure_stream *stream; /* of the last PEER_PROBE */
    bool secure_stream_dialled;
    uint64_t messages, bytes, damaged;
    uint8_t kind; /* of the last message */
    size_t len;
    char text[160];           /* of the last LOST or failed probe */
    char info[PEER_NAME_MAX]; /* the last name that was told */
};

struct cluster_fixture {
    struct heap heap;
    struct relay *relay; /* moved with them; may be NULL */
    const char *listen;  /* for those who start from now on */
    struct prng prng;    /* the order in which they are driven */
    int size;
    struct fixture_node all[FIXTURE_NODES_MAX];
};

/* So many nodes that know nobody. */
void fixture_open(struct cluster_fixture *v, int size, uint64_t seed);
void fixture_close(struct cluster_fixture *v); /* nothing is left on the heap */

struct person_setup {
    uint8_t secret;                /* fills the cluster's */
    uint64_t instance;             /* never 0 */
    const char *key;               /* file; NULL: a new one, in memory */
    const struct node_id *revoked; /* it lets in everybody but this one; may be NULL */
};
struct credentials *fixture_credentials(struct cluster_fixture *v, const struct person_setup *setup);
/* A process of this number begins, with `credentials` or (NULL) a new key. */
void fixture_node_start(struct cluster_fixture *v, int number, struct credentials *credentials);
void fixture_node_stop(struct cluster_fixture *v, int number);
const struct identity *fixture_node_id(const struct cluster_fixture *v, int number);
struct sock_addr fixture_node_addr(const struct cluster_fixture *v, int number);
/* Tells `who` that `other` is said to be at its address. */
void fixture_node_meet(struct cluster_fixture *v, int who, int other);

void fixture_node_move(struct cluster_fixture *v, int number); /* once, without waiting */
/* Moves them, in an order of its own, after waiting a little for something to happen. */
void fixture_step(struct cluster_fixture *v);
typedef bool fixture_fn(struct cluster_fixture *v, void *arg);
/* Until that is so; fails the test after 20 s. */
void fixture_until(struct cluster_fixture *v, fixture_fn *done, void *arg);
/* For so long. */
void fixture_for(struct cluster_fixture *v, uint64_t time_ns);
bool fixture_whole(struct cluster_fixture *v, void *none);  /* all who run are joined to each other */
bool joined(const struct cluster_fixture *v, int a, int b); /* at both ends */

/* A payload that says what it is. */
void message_fill(uint8_t *payload, size_t len, uint64_t mark);
