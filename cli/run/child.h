/* SPDX-License-Identifier: Apache-2.0 */
/* One program that a command with a life of its own starts and looks after: behind a host agent
 * (cli/run/host_agent.h), which is spawned anew, so that this may be done in a process with many threads. */
#pragma once

#include "cli/run/agent_link.h"

#define CHILD_PROCESS_POLLS AGENT_POLLS

struct child_process {
    struct agent_link agent;
    bool asked;       /* to end */
    uint64_t next_ns; /* then it is killed, and then its agent is given up */
    int kills;
    bool ended; /* `code` is known */
    int code;   /* as of a shell: 128 + signal, 126 or 127 if it could not be started */
    int signal; /* that killed it; 0: none */
    char why[512];
    char token[128]; /* for the program; wiped when it was handed over */
};

struct child_process_plan {
    char **vars, **args; /* NULL at the end */
    const char *token;   /* handed over by a descriptor; NULL: none */
    int rank;
};

/* false: `why` says what is wrong, and nothing runs. */
bool child_process_start(struct child_process *w, const struct child_process_plan *plan,
                         struct output *output);
void child_process_polls(const struct child_process *w, struct pollfd polls[CHILD_PROCESS_POLLS]);
/* Carries output and messages, kills who does not end in time. To be called when a poll said so, and at least
 * when child_process_patience has passed. */
void child_process_tend(struct child_process *w);
int child_process_patience_ms(const struct child_process *w); /* -1: any time */
/* SIGTERM, SIGKILL after five seconds. Again: has no effect. */
void child_process_stop(struct child_process *w);
/* The program has ended, and so has all that it started. */
bool child_process_over(const struct child_process *w);
