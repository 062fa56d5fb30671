/* SPDX-License-Identifier: Apache-2.0 */
/* What `hearth up` does beside showing members: calls that wait, each in a thread of its own, and a program
 * that runs together with those of other machines. */
#pragma once

#include <stdatomic.h>

#include <hearth.h>

#include "cli/run/child.h"
#include "cli/shared/secret_handover.h"
#include "os/thread.h"

#define UP_MEMBERS_MAX 64
#define UP_ADDRESS_MAX 96

/* ---- a call that waits ---- */

struct up_call {
    /* What the caller says. */
    hearth_node *node;
    void (*work)(void *arg); /* in the thread; ends soon after `quit` and an interrupt of the node */
    void (*ring)(void *arg); /* from the thread: it is done */
    void *arg, *ring_arg;

    atomic_bool quit;
    atomic_int state;
    struct thread thread;
};

/* No effect while it is busy, or after `quit`. false: there is no thread for it. */
bool up_call_start(struct up_call *call);
/* True once after it is done; then it may start again. */
bool up_call_take(struct up_call *call);
/* Asks it to end, and waits for that some seconds. false: it is stuck, and the node must not be closed. */
bool up_call_end(struct up_call *call);

/* ---- the program ---- */

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
    struct up_call former;  /* waits until the job is formed */
    const char *job, *bind; /* bind: NULL = not said */
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
bool up_program_close(struct up_program *p);            /* as up_call_end */

/* Whether such a failure says that a machine was lost on the way: then the others form again. */
bool up_once_more(int status);
/* Whether what a member says of where to meet may go into the variables of our program: a numeric address, or
 * none, and a port that has a next one; 0: not said. */
bool up_place_good(const char *address, int32_t port);
