/* SPDX-License-Identifier: Apache-2.0 */
/* Members that are real processes: forked by the test before it opens any node, watched, never left behind.
 * What they have to tell stands in memory that the test sees, so a killed one tells too. */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "conform/fixture.h"

#define TEAM_MAX 64
#define TEAM_SECRET                                                                                          \
    "5ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4" /* where one is needed */

/* What a member tells. Only its own process writes it; the rest after the process has ended, or as agreed. */
struct note {
    _Atomic(uint64_t) rounds; /* operations that went well */
    _Atomic(bool) ready;
    int status, later; /* of the first call that failed, and of the one after it */
    enum hearth_reason reason;
    char text[TEXT_MAX], later_text[TEXT_MAX];
    uint64_t failed_ns;         /* when it failed, by the clock of now_ns */
    _Atomic(uint64_t) close_ns; /* how long the close took; 0: it has not closed yet */
    uint16_t port;
    double value;
};

struct board {
    _Atomic(bool) stop, go, over;
    struct note notes[TEAM_MAX];
};

struct team {
    int size;
    pid_t pids[TEAM_MAX];  /* 0: has ended */
    bool killed[TEAM_MAX]; /* by us: its exit says nothing */
    struct board *board;
    char rendezvous[64];
    const char *transport;
};

/* The life of a member; returns when it is through. What it finds wrong it says with check(). */
typedef void team_fn(struct team *team, int rank, void *arg);

/* Starts `size` members. The environment of each: HEARTH_RANK, HEARTH_WORLD_SIZE, HEARTH_RENDEZVOUS (a
 * private unix socket), HEARTH_TRANSPORT ("plain": tcp that is), a fresh key, any port, deadlines, and no
 * other HEARTH_ variable; `fn` may change it. */
void team_start(struct team *team, int size, const char *transport, team_fn *fn, void *arg);
void team_kill(struct team *team, int rank, int signal);
/* Waits until all have ended. Whoever has not after so long is killed, and that is a failed check, as is
 * every member that ended otherwise than well. */
void team_join(struct team *team, unsigned seconds);
/* After the join, when the notes have been read. */
void team_free(struct team *team);
/* Waits until all members are ready. If one does not come so far, all are killed: a failed check. */
bool team_ready(struct team *team, unsigned seconds);

/* Inside a member: hearth_node_open by the environment; NULL is a failed check. */
hearth_node *member_open(void);
/* Whether a text says "rank R", and not of another. */
bool names_rank(const char *text, int rank);
/* Copies a failure into the note. */
void note_failed(struct note *note, int status);

uint64_t now_ns(void);
void set_number_env(const char *name, long value);
bool soaking(void); /* HEARTH_TEST_SOAK */
/* The port that this process listens on; 0 if it does not. */
uint16_t listening_port(void);
/* The most memory this process ever had resident, KiB. */
long peak_kb(void);
