/* SPDX-License-Identifier: Apache-2.0 */
/* Assemblies on virtual time, joined by connections that lose, double, delay, break and go dark, with nodes
 * that crash, freeze, sleep, leave and come back. One seed makes all of it. What must always hold is checked
 * after every step. */
#pragma once

#include <stdio.h>

#include "core/prng.h"
#include "membership/consensus.h"

#define SIM_CLUSTER_MAX 50

enum sim_node_state { SIM_NODE_EMPTY, SIM_NODE_LIVES, SIM_NODE_FROZEN };

struct sim_cluster;
struct sim_cluster_event;
struct sim_cluster_fact;

/* A node: one process after the other lives in it. */
struct sim_node {
    enum sim_node_state state;
    struct consensus *consensus;
    struct outbox outbox;
    struct peer_info info;
    uint64_t ahead_ns;        /* its clock is so far ahead of the cluster's: it slept */
    uint64_t tick_ns;         /* when it is ticked next */
    uint64_t instance, epoch; /* of its view, when we looked last */
    bool busy;
    struct sim_cluster_event *parked; /* what waits for it to thaw */
    size_t parked_count, parked_room;
};

/* What else lives in each node, beside its consensus: a machine that uses the same outbox. */
struct sim_cluster_tenant {
    void (*start)(struct sim_cluster *sim, int node); /* a new process */
    void (*end)(struct sim_cluster *sim, int node);   /* it has crashed, or left */
    void (*look)(struct sim_cluster *sim, int node);  /* something may have happened, or be due */
    int (*message)(struct sim_cluster *sim, int node, const struct identity *from,
                   const struct outbox_message *message, const char **what);
    uint64_t (*deadline)(const struct sim_cluster *sim, int node);
};

struct road {
    bool linked;         /* `from` has been told that it is joined to `to` */
    bool dark;           /* nothing gets through, and nobody is told */
    uint32_t generation; /* messages of older ones are lost */
    uint64_t free_ns;    /* messages keep their order */
};

struct sim_cluster {
    struct heap heap;
    struct prng prng;
    uint64_t seed, now_ns, order;
    int size;
    struct sim_node nodes[SIM_CLUSTER_MAX];
    struct road roads[SIM_CLUSTER_MAX][SIM_CLUSTER_MAX];
    const struct sim_cluster_tenant *tenant; /* NULL: none; set before sim_cluster_start */
    const struct health_preset *preset;      /* NULL: each process has another one */
    int hostile;                             /* the node of a member that lies, -1: none */
    bool faults;                             /* not only lies */
    bool lied;                               /* about its votes: two views of one epoch may be */

    /* weather */
    uint64_t latency_ns, jitter_ns;
    uint32_t lose, twice, mix; /* of 1,000 messages */
    uint32_t guests;           /* of 1,000 processes */

    struct sim_cluster_event *events; /* a heap by time */
    size_t event_count, event_room;
    struct sim_cluster_fact *facts; /* what was ever decided */
    size_t fact_count, fact_room;
    struct event_log happened; /* to any of them; traced at once */
    uint64_t happened_seen;
    FILE *trace; /* NULL: none */
    uint64_t messages, steps;
    char failure[512]; /* what does not hold; "" while all does */
};

struct sim_cluster_setup {
    int size;
    uint64_t seed;
    const char *preset; /* NULL: the default */
    uint32_t guests;    /* of 1,000 processes */
    FILE *trace;        /* NULL: none */
};
void sim_cluster_open(struct sim_cluster *sim, const struct sim_cluster_setup *setup);
void sim_cluster_close(struct sim_cluster *sim);
void sim_cluster_trace(struct sim_cluster *sim, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Runs until the time. False: something does not hold (cluster->failure). */
bool sim_cluster_run(struct sim_cluster *sim, uint64_t until_ns);

void sim_cluster_start(struct sim_cluster *sim, int node); /* a new process in it; not joined to anybody */
void sim_cluster_crash(struct sim_cluster *sim, int node, bool power_cut); /* power cut: nobody is told */
void sim_cluster_leave(struct sim_cluster *sim, int node);
void sim_cluster_freeze(struct sim_cluster *sim, int node);
void sim_cluster_thaw(struct sim_cluster *sim, int node);
void sim_cluster_sleep(struct sim_cluster *sim, int node, uint64_t ns); /* its clock jumps ahead */
uint64_t sim_cluster_clock(const struct sim_cluster *sim, int node);    /* as it has it */
void sim_cluster_busy(struct sim_cluster *sim, int node, bool busy);
void sim_cluster_describe(struct sim_cluster *sim, int node); /* another address */
/* A message that nobody's consensus wrote. */
void sim_cluster_send(struct sim_cluster *sim, int from, int to, uint8_t kind, const void *payload,
                      size_t len);
void sim_cluster_link(struct sim_cluster *sim, int a, int b);
void sim_cluster_link_at(struct sim_cluster *sim, int a, int b, uint64_t delay_ns);
void sim_cluster_unlink(struct sim_cluster *sim, int a, int b);
void sim_cluster_link_all(struct sim_cluster *sim,
                          uint64_t span_ns); /* all that live, each within the span */

/* Everyone who lives is in one view of exactly the living, and a member; or only guests live, and wait.
 * Else `why` says what is not so. */
bool sim_cluster_agrees(const struct sim_cluster *sim, char *why, size_t size);
void sim_cluster_describe_all(struct sim_cluster *sim); /* into the trace */
/* Nobody who lives is of a quorum. */
bool sim_cluster_stuck(const struct sim_cluster *sim);
int sim_cluster_living(const struct sim_cluster *sim);
bool sim_cluster_votes(const struct sim_cluster *sim, int node); /* the process in it is no guest */
int sim_cluster_leader(const struct sim_cluster *sim); /* node of the leader that all agree on, -1: none */
