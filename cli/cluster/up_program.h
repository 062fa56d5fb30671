/* SPDX-License-Identifier: Apache-2.0 */
/* The program of `hearth up`: started when its job is formed, ended when a machine is lost, started again. */
#pragma once

#include "cli/cluster/up_job.h"
#include "cli/run/child.h"
#include "cli/shared/secret_handover.h"
#include "os/thread.h"

#define UP_PROGRAM_POLLS CHILD_PROCESS_POLLS

enum up_program_phase {
    UP_FORMING,  /* a thread waits for the others */
    UP_RUNNING,  /* the program runs */
    UP_ENDED,    /* it has ended, those of others may not have */
    UP_STOPPING, /* it was asked to end; `again` says what then */
    UP_OVER
};

struct up_program {
    /* What the caller says. */
    struct up_job job;
    char **args;
    bool once;
    const struct secret_handover *handover;
    void (*say)(void *arg, const char *text);
    void (*idle)(void *arg); /* while our output cannot be written */
    void *arg;

    enum up_program_phase phase;
    bool again; /* after stopping: form once more */
    int quit;   /* the signal that asked to end; 0: none */
    int code;
    uint64_t failed_ns; /* when the first program's failure was seen; 0: none */
    uint64_t grace_ns;  /* then ours is ended; 0: not yet said */
    struct thread former;
    atomic_int formed; /* status of forming; FORMING_YET: not yet */
    char why[256];     /* of its failure */
    bool joined;       /* no thread runs */
    unsigned waits_seen;
    struct output output;
    bool has_output;
    struct child_process child;
};

bool up_program_open(struct up_program *p); /* false: no memory */
void up_program_polls(const struct up_program *p, struct pollfd polls[UP_PROGRAM_POLLS]);
int up_program_patience_ms(const struct up_program *p); /* -1: any time */
void up_program_tend(struct up_program *p);
void up_program_quit(struct up_program *p, int number); /* of the signal */
bool up_program_over(const struct up_program *p);
int up_program_code(const struct up_program *p);
/* false: a thread is stuck in a call, and the node must not be closed. */
bool up_program_close(struct up_program *p);
