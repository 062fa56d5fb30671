/* SPDX-License-Identifier: Apache-2.0 */
/* A member of a team is killed, frozen or closes: how that comes about, and how long the others may take. */
#pragma once

#include "process/team.h"

#define PEER_TIMEOUT_MS 2000
#define CLOSED_MS_MAX                                                                                        \
    5000 /* targets: 100 ms, and peer_timeout + 1 s; these only tell a hang from a slow machine */
#define FROZEN_MS_MAX 12000

struct death {
    uint64_t seed;
    int victim;
    int signal;   /* 0: it closes by itself */
    bool resting; /* nobody is in an operation */
    bool shared;  /* buffers of hearth_mem_alloc */
    bool parent;  /* the victim has a forked child that lives on */
};

struct trial {
    struct team team;
    struct death death;
    uint64_t end_ns;
};

struct trial_plan {
    const char *what;
    team_fn *member;                        /* its argument is the death */
    void (*inspect)(const struct trial *s); /* of the notes, after the end; may be NULL */
    const char *const *transports;
    unsigned transport_count;
    int size_max; /* from 2 on */
    unsigned strike_us_max;
    unsigned long count, together; /* several teams at a time where this is waiting for the most part */
};

/* Inside a member, before it opens: only who is frozen is found by silence. */
void death_expect(const struct death *d);
/* Closes the node and notes how long that took. */
void death_close(hearth_node *node, struct note *note);

/* Plays the death `count` times, with seeds, victims, sizes and transports in turn. */
void scenes_play(const struct trial_plan *plan, struct death death);
/* One of them, whose team has been started. */
void trial_strike(struct trial *s, unsigned us_max);
/* The slowest error and the slowest close of all so far go to `worst`, in ms. */
void trial_end(struct trial *s, const struct trial_plan *plan, double worst[2]);
