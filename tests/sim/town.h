/* SPDX-License-Identifier: Apache-2.0 */
/* Assemblies on virtual time, joined by connections that lose, double, delay, break and go dark, with nodes
 * that crash, freeze, sleep, leave and come back. One seed makes all of it. What must always hold is checked
 * after every step. */
#ifndef TESTS_SIM_TOWN_H
#define TESTS_SIM_TOWN_H

#include <stdio.h>

#include "core/prng.h"
#include "membership/assembly.h"

#define TOWN_MAX 50

enum house_state { HOUSE_EMPTY, HOUSE_LIVES, HOUSE_FROZEN };

struct town;
struct town_event;
struct town_fact;

/* A node: one process after the other lives in it. */
struct house {
    enum house_state state;
    struct assembly *assembly;
    struct outbox outbox;
    struct fellow fellow;
    uint64_t ahead_ns;        /* its clock is so far ahead of the town's: it slept */
    uint64_t tick_ns;         /* when it is ticked next */
    uint64_t instance, epoch; /* of its census, when we looked last */
    bool busy;
    struct town_event *parked; /* what waits for it to thaw */
    size_t parked_count, parked_room;
};

/* What else lives in each house, beside its assembly: a machine that uses the same outbox. */
struct town_tenant {
    void (*start)(struct town *town, int house); /* a new process */
    void (*end)(struct town *town, int house);   /* it has crashed, or left */
    void (*look)(struct town *town, int house);  /* something may have happened, or be due */
    int (*letter)(struct town *town, int house, const struct identity *from,
                  const struct outbox_letter *letter, const char **what);
    uint64_t (*deadline)(const struct town *town, int house);
};

struct road {
    bool linked;         /* `from` has been told that it is joined to `to` */
    bool dark;           /* nothing gets through, and nobody is told */
    uint32_t generation; /* letters of older ones are lost */
    uint64_t free_ns;    /* letters keep their order */
};

struct town {
    struct heap heap;
    struct prng prng;
    uint64_t seed, now_ns, order;
    int size;
    struct house houses[TOWN_MAX];
    struct road roads[TOWN_MAX][TOWN_MAX];
    const struct town_tenant *tenant;   /* NULL: none; set before town_start */
    const struct health_preset *preset; /* NULL: each process has another one */
    int hostile;                        /* the house of a member that lies, -1: none */
    bool faults;                        /* not only lies */
    bool lied;                          /* about its votes: two views of one epoch may be */

    /* weather */
    uint64_t latency_ns, jitter_ns;
    uint32_t lose, twice, mix; /* of 1,000 letters */
    uint32_t guests;           /* of 1,000 processes */

    struct town_event *events; /* a heap by time */
    size_t event_count, event_room;
    struct town_fact *facts; /* what was ever decided */
    size_t fact_count, fact_room;
    FILE *trace; /* NULL: none */
    uint64_t letters, steps;
    char failure[512]; /* what does not hold; "" while all does */
};

struct town_setup {
    int size;
    uint64_t seed;
    const char *preset; /* NULL: the default */
    uint32_t guests;    /* of 1,000 processes */
    FILE *trace;        /* NULL: none */
};
void town_open(struct town *town, const struct town_setup *setup);
void town_close(struct town *town);
void town_trace(struct town *town, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Runs until the time. False: something does not hold (town->failure). */
bool town_run(struct town *town, uint64_t until_ns);

void town_start(struct town *town, int house); /* a new process in it; not joined to anybody */
void town_crash(struct town *town, int house, bool power_cut); /* power cut: nobody is told */
void town_leave(struct town *town, int house);
void town_freeze(struct town *town, int house);
void town_thaw(struct town *town, int house);
void town_sleep(struct town *town, int house, uint64_t ns); /* its clock jumps ahead */
uint64_t town_clock(const struct town *town, int house);    /* as it has it */
void town_busy(struct town *town, int house, bool busy);
void town_describe(struct town *town, int house); /* another address */
/* A letter that nobody's assembly wrote. */
void town_send(struct town *town, int from, int to, uint8_t kind, const void *payload, size_t len);
void town_link(struct town *town, int a, int b);
void town_link_at(struct town *town, int a, int b, uint64_t delay_ns);
void town_unlink(struct town *town, int a, int b);
void town_link_all(struct town *town, uint64_t span_ns); /* all that live, each within the span */

/* Everyone who lives is in one census of exactly the living, and a member; or only guests live, and wait.
 * Else `why` says what is not so. */
bool town_agrees(const struct town *town, char *why, size_t size);
void town_describe_all(struct town *town); /* into the trace */
/* Nobody who lives is of a quorum. */
bool town_stuck(const struct town *town);
int town_living(const struct town *town);
bool town_votes(const struct town *town, int house); /* the process in it is no guest */
int town_leader(const struct town *town);            /* house of the leader that all agree on, -1: none */

#endif
