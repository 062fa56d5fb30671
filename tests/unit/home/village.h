/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of home clusters in one process, on loopback, each with its own key and port, driven by one loop. */
#ifndef TESTS_UNIT_HOME_VILLAGE_H
#define TESTS_UNIT_HOME_VILLAGE_H

#include "core/prng.h"
#include "home/fellows.h"
#include "relay.h"

#define VILLAGERS_MAX  12
#define VILLAGE_SECRET 7

struct villager {
    struct heap *heap;
    struct credentials *credentials;
    struct fellows *fellows;   /* NULL: it does not run */
    int linked, again, lost;   /* news */
    int joined[VILLAGERS_MAX]; /* by number: LINKED less LOST */
    int probes, probes_failed;
    struct tunnel *tunnel; /* of the last FELLOWS_PROBE */
    bool tunnel_dialled;
    uint64_t letters, bytes, damaged;
    uint8_t kind; /* of the last letter */
    size_t len;
    char text[160];               /* of the last LOST or failed probe */
    char fellow[FELLOW_NAME_MAX]; /* the last name that was told */
};

struct village {
    struct heap heap;
    struct relay *relay; /* moved with them; may be NULL */
    const char *listen;  /* for those who start from now on */
    struct prng prng;    /* the order in which they are driven */
    int size;
    struct villager all[VILLAGERS_MAX];
};

/* So many nodes that know nobody. */
void village_open(struct village *v, int size, uint64_t seed);
void village_close(struct village *v); /* nothing is left on the heap */

struct person_setup {
    uint8_t secret;                /* fills the cluster's */
    uint64_t instance;             /* never 0 */
    const char *key;               /* file; NULL: a new one, in memory */
    const struct node_id *revoked; /* it lets in everybody but this one; may be NULL */
};
struct credentials *villager_person(struct village *v, const struct person_setup *setup);
/* A process of this number begins, with `credentials` or (NULL) a new key. */
void villager_start(struct village *v, int number, struct credentials *credentials);
void villager_stop(struct village *v, int number);
const struct identity *villager_id(const struct village *v, int number);
struct sock_addr villager_addr(const struct village *v, int number);
/* Tells `who` that `other` is said to be at its address. */
void villager_meet(struct village *v, int who, int other);

void villager_move(struct village *v, int number); /* once, without waiting */
/* Moves them, in an order of its own, after waiting a little for something to happen. */
void village_step(struct village *v);
typedef bool village_fn(struct village *v, void *arg);
/* Until that is so; fails the test after 20 s. */
void village_until(struct village *v, village_fn *done, void *arg);
/* For so long. */
void village_for(struct village *v, uint64_t time_ns);
bool village_whole(struct village *v, void *none);  /* all who run are joined to each other */
bool joined(const struct village *v, int a, int b); /* at both ends */

/* A payload that says what it is. */
void letter_fill(uint8_t *payload, size_t len, uint64_t mark);

#endif
