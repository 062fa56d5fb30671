/* SPDX-License-Identifier: Apache-2.0 */
/* The job of `hearth up -- PROGRAM`: its group among the machines that are up, where its programs meet, and
 * who has ended or is gone. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <hearth.h>

#include "cli/run/child.h"
#include "os/thread.h"

#define UP_MEMBERS_MAX 64
#define UP_ADDRESS_MAX 96

struct up_job {
    /* What the caller says. */
    hearth_node *node;
    const char *name, *bind; /* bind: NULL = not said */
    int min;
    atomic_bool quit;        /* up_job_form ends soon */
    void (*ring)(void *arg); /* from any thread: up_job_look may have news */
    void *arg;

    /* What forming waits for, and how often that changed: for people; under the lock. */
    struct mutex lock;
    char waits[256];
    unsigned waits_changed;

    /* What up_job_form found out. */
    hearth_group *group;
    int rank, size, local_rank, local_size, host_rank;
    char master[UP_ADDRESS_MAX], meeting[UP_ADDRESS_MAX]; /* MASTER_ADDR, HEARTH_RENDEZVOUS */
    uint16_t port;                                        /* MASTER_PORT */

    char names[UP_MEMBERS_MAX][64]; /* of the machines, by rank */

    /* How the programs of the members ended, each told by its own. */
    hearth_request *ends[UP_MEMBERS_MAX];
    int32_t codes[UP_MEMBERS_MAX];
    bool told; /* ours */
};

/* Waits until the job is formed, and agrees with the others where to meet. Blocks, looking at `quit`. A
 * status; HEARTH_CANCELLED: `quit`. After an error there is no group. */
int up_job_form(struct up_job *job);
/* Whether such a failure says that somebody was lost on the way: then the others form again. */
bool up_job_once_more(int status);
/* Meanwhile, from another thread: true if what it waits for has changed since *seen. */
bool up_job_waits(struct up_job *job, unsigned *seen, char *text, size_t size);
/* Whether what a member says of where to meet may go into the variables of our program: a numeric address, or
 * none, and a port that has a next one; 0: not said. */
bool up_place_good(const char *address, int32_t port);
/* What the program gets to know of its place. */
void up_job_vars(const struct up_job *job, struct vars *vars);

enum up_job_state {
    UP_JOB_RUNS,   /* somebody's program runs, and all members are there */
    UP_JOB_FAILED, /* the same, but programs have failed: up_job_failures */
    UP_JOB_OVER,   /* all programs have ended */
    UP_JOB_LOST    /* a member is gone: its rank, or -1, in `who` */
};
enum up_job_state up_job_look(struct up_job *job, int *who);
/* The programs that are known to have failed: "anna (rank 0, exit code 1) and ben (rank 2, exit code 1)". A
 * program whose neighbour fails often ends sooner than that one, so only all together tell what happened. How
 * many they are. */
int up_job_failures(const struct up_job *job, char *text, size_t size);
/* Our program has ended with this code: said to all. */
void up_job_tell(struct up_job *job, int code);
void up_job_close(struct up_job *job);
