/* SPDX-License-Identifier: Apache-2.0 */
/* The program of `hearth up`, which runs together with those of other machines. */
#pragma once

#include "cli/cluster/cluster_open.h"
#include "cli/run/child.h"

#define UP_MEMBERS_MAX 64
#define UP_ADDRESS_MAX 96

enum up_phase {
    UP_FORMING,  /* a thread waits for the others */
    UP_RUNNING,  /* the program runs */
    UP_ENDED,    /* it has ended, those of others may not have */
    UP_STOPPING, /* it was asked to end; `again` says what then */
    UP_OVER
};

/* Started when its job is formed, ended when a machine is lost, started again. */
struct up_program {
    /* What the caller says; node and ring of `former` too. */
    struct node_call former; /* waits until the job is formed */
    const char *job, *bind;  /* bind: NULL = not said */
    int min;
    char **args;
    bool once;
    const struct secret_handover *handover;
    void (*say)(void *arg, const char *text);
    void (*idle)(void *arg); /* while our output cannot be written */
    void *arg;

    enum up_phase phase;
    int code;           /* when it is over */
    bool again;         /* after stopping: form once more */
    int quit;           /* the signal that asked to end; 0: none */
    uint64_t failed_ns; /* when the first program's failure was seen; 0: none */
    uint64_t grace_ns;  /* then ours is ended; 0: not yet said */
    struct output output;
    bool has_output;
    struct child_process child;

    /* What forming waits for, for people, until it was said; under the lock. */
    struct mutex lock;
    char waits[256];
    bool waits_new;

    /* What forming found out. */
    int formed; /* a status */
    char why[256];
    hearth_group *group;
    int rank, size, local_rank, local_size, host_rank;
    char master[UP_ADDRESS_MAX], meeting[UP_ADDRESS_MAX]; /* MASTER_ADDR, HEARTH_RENDEZVOUS */
    uint16_t port;                                        /* MASTER_PORT */
    char names[UP_MEMBERS_MAX][64];                       /* of the machines, by rank */

    /* How the programs of the members ended, each told by its own. */
    hearth_request *ends[UP_MEMBERS_MAX];
    int32_t codes[UP_MEMBERS_MAX];
    bool told; /* ours */
};

bool up_program_open(struct up_program *p); /* false: no memory */
void up_program_polls(const struct up_program *p, struct pollfd polls[CHILD_PROCESS_POLLS]);
int up_program_patience_ms(const struct up_program *p); /* -1: any time */
void up_program_tend(struct up_program *p);
void up_program_quit(struct up_program *p, int number); /* of the signal */
bool up_program_close(struct up_program *p);            /* as node_call_end */

/* Whether such a failure says that a machine was lost on the way: then the others form again. */
bool up_once_more(int status);
/* Whether what a member says of where to meet may go into the variables of our program: a numeric address, or
 * none, and a port that has a next one; 0: not said. */
bool up_place_good(const char *address, int32_t port);
