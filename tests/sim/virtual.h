/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster on virtual time: one thread, seeded, the same bytes and the same log every time. */
#pragma once

#include "core/prng.h"
#include "node/node.h"

#define SIM_MAX 8

/* What may happen to a member. The first three are up to the test. */
enum fault {
    FAULT_NONE,
    FAULT_CANCEL,
    FAULT_REFUSE, /* it may not make the call */
    FAULT_LATE,   /* it calls when the others have given up */
    FAULT_FREEZE, /* shorter than any time-out */
    FAULT_STALL,  /* longer */
    FAULT_CUT,    /* the connection to the next member breaks */
    FAULT_CRASH,  /* its connections break, and it does nothing more */
    FAULT_CLOSE,
    FAULTS
};

struct sim {
    int size;
    uint64_t now_ns;
    hearth_node *nodes[SIM_MAX]; /* NULL: closed */
    struct mem_net *net;         /* lives as long as one node does */
    struct prng prng;            /* in which order nodes get their turn */
    struct hearth_config config;
    struct hearth_tuning tuning; /* the config's, from sim_start on */
    struct mem_setup mem;
    int host[SIM_MAX];
    int loss;          /* as in struct engine_setup */
    uint64_t log_hash; /* of every line, with its time */
    uint64_t log_lines;
    uint64_t turns;
    uint64_t frozen_until[SIM_MAX]; /* a node does nothing before that time */
};

/* A cluster with the defaults; change config, mem and host before sim_start. */
void sim_init(struct sim *sim, int size, uint64_t seed);
/* Everything drawn from the seed: rates, latency, jitter, rings, chunks, windows, budgets. */
void sim_draw(struct sim *sim, int size, uint64_t seed);
/* As drawn, but not so slow that an operation takes seconds. */
void sim_draw_quick(struct sim *sim, int size, uint64_t seed);
void sim_start(struct sim *sim);
/* Init and start. */
void sim_open(struct sim *sim, int size);
/* Closes what is open. Nodes may have been closed with sim_close_node before. */
void sim_stop(struct sim *sim);
void sim_close_node(struct sim *sim, int rank);

/* Breaks all of its connections. */
void sim_cut_off(struct sim *sim, int rank);

/* From FAULT_FREEZE on; the first two last so long. */
void sim_strike(struct sim *sim, enum fault fault, int rank, uint64_t freeze_ns);
bool fault_loses(enum fault fault); /* a member or a connection, for ever */
const char *fault_name(enum fault fault);

hearth_group *sim_world(struct sim *sim, int rank);

/* Lets everything happen that happens now. */
void sim_settle(struct sim *sim);
/* Then lets time pass to the next event, at most to `until_ns`, and it happen. False: there is none. */
bool sim_step(struct sim *sim, uint64_t until_ns);
/* Steps until nothing happens any more before the time, which has come then. */
void sim_run_until(struct sim *sim, uint64_t until_ns);

/* What a request came to; HEARTH_PENDING. Drives nothing. */
int sim_status(const hearth_request *request);

/* Runs each of `usual` seeds (see support/watchdog.h), every `again`th of them twice with the same result
 * (0: none). Gives the sum of the results. The teardown says which seed was the last. */
uint64_t run_seeds(unsigned long usual, unsigned again, uint64_t (*run)(uint64_t seed));
int say_seed(void **state);
