/* SPDX-License-Identifier: Apache-2.0 */
/* A program behind a host agent (host_agent.c), which is a process of our own program: on this machine, or on
 * another one at the end of ssh. The pipe to the agent is also the life line: the agent ends when it does. */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "cli/run/launch_message.h"
#include "cli/run/output.h"
#include "security/secret.h"

#define CHILD_PROCESS_POLLS 3

enum child_end {
    CHILD_RUNS,
    CHILD_EXITED,      /* or was killed by `signal` */
    CHILD_NOT_STARTED, /* its host agent says why */
    CHILD_BROKEN,      /* its host agent breaks the protocol */
    CHILD_LOST         /* its host agent or ssh ended before it */
};

/* All zero: over, before the first start. */
struct child_process {
    pid_t pid; /* of the agent or of ssh; 0: none, or it was reaped */
    struct launch_stream down, up;
    int err; /* what ssh says; -1: none */
    struct output *output;
    int rank; /* in front of its lines */
    const struct secret *secret;
    bool here;                    /* on this machine */
    bool greeted;                 /* the agent has shown itself, and got the secret and the word to start */
    bool input_open, input_asked; /* it wants more; a piece is under way */
    unsigned early;               /* 1 << enum launch_signal: to follow when it is greeted */
    bool asked;                   /* to end */
    int kills;
    uint64_t next_ns; /* of the next kill, if asked */
    int program;      /* process id on its machine; 0: not known */
    enum child_end end;
    int code;   /* as of a shell: 128 + signal, 126 or 127 if it could not be started */
    int signal; /* that killed it; 0: none */
    char why[LAUNCH_REASON_MAX];
};

struct child_process_plan {
    char *const *ssh;    /* the words of a command that starts the agent elsewhere; NULL: here */
    const char *dir;     /* to run in; NULL: where we are */
    char **vars, **args; /* NULL at the end; vars may be NULL */
    const struct secret
        *secret;    /* handed over by a descriptor; lent until the agent is greeted; NULL: none */
    bool has_input; /* by child_process_input, else nothing */
    int rank;
};

/* false: `why` says what is wrong, and nothing runs. */
bool child_process_start(struct child_process *w, const struct child_process_plan *plan,
                         struct output *output);
void child_process_polls(const struct child_process *w, struct pollfd polls[CHILD_PROCESS_POLLS]);
/* Carries output and messages, kills a program that does not end in time, reaps. To be called when a poll
 * said so, and at least when child_process_patience_ms has passed. Its parts, for a loop with many: */
void child_process_tend(struct child_process *w);
void child_process_hear(struct child_process *w);
void child_process_hasten(struct child_process *w);
void child_process_reap(struct child_process *w);
int child_process_patience_ms(const struct child_process *w); /* -1: any time */

void child_process_signal(struct child_process *w, enum launch_signal place);
/* Standard input while input_open and not input_asked; len 0: its end. */
void child_process_input(struct child_process *w, const char *bytes, size_t len);
/* SIGTERM, SIGKILL after five seconds, then the agent is killed. Again: has no effect. */
void child_process_stop(struct child_process *w);
/* The program has ended, and so has all that it started. */
bool child_process_over(const struct child_process *w);

/* The agent itself, at the other end of both pipes. An exit code. */
int host_agent_serve(int in, int up);

/* ---- variables of its environment ---- */

struct vars {
    char **list; /* [max + 1], NULL at the end */
    size_t count, max;
    bool full; /* or no memory: something is missing */
};

bool vars_open(struct vars *vars, size_t max); /* false: no memory */
void vars_add(struct vars *vars, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What a program gets to know of its place in a job: as Hearth reads it, and as torchrun would set it. */
struct rank_place {
    int rank, size, local_rank, local_size, host;
    const char *meeting, *job, *master; /* master and port: where programs of torch.distributed meet */
    unsigned port;
};
void vars_add_place(struct vars *vars, const struct rank_place *place);
/* Frees a list and what it holds; NULL is allowed. */
void vars_free(char **list);
