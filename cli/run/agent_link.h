/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher's end of a host agent (host_agent.h), a process of our own program: on this machine, or on
 * another one at the end of ssh. The pipe down is also the life line: the agent ends when it does. */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "cli/run/launch_message.h"
#include "cli/run/output.h"

#define AGENT_POLLS 3

struct agent_link {
    pid_t pid; /* of the agent or of ssh; 0: none, or it was reaped */
    struct launch_stream down, up;
    int err;        /* what ssh says; -1: none */
    bool greeted;   /* the agent has shown itself, and got the secret and the word to start */
    unsigned early; /* 1 << enum launch_signal: those that are to follow then */
    struct output *output;
    int rank;      /* in front of its lines */
    char why[256]; /* what is wrong with it */
};

struct agent_plan {
    char *const *ssh; /* the words of a command that starts the agent elsewhere; NULL: here */
    const char *dir;  /* to run in; NULL: where we are */
    char **vars, **args;
};

/* What came, but lines of the program, which go to the output. HELLO comes once, and wants agent_welcome.
 * false: it breaks the protocol. */
typedef bool agent_take(void *arg, const struct launch_message *m);

void agent_init(struct agent_link *a, struct output *output, int rank);
/* false: `why` says what is wrong. Nothing runs then if `pid` is 0. */
bool agent_start(struct agent_link *a, const struct agent_plan *plan);
/* The token (NULL: none), the word to start, and the early signals: for an agent that has shown itself,
 * and to nobody else. false: too much waits already. */
bool agent_welcome(struct agent_link *a, const char *token, bool has_input);
void agent_signal(struct agent_link *a, enum launch_signal place);

void agent_polls(const struct agent_link *a, struct pollfd polls[AGENT_POLLS]);
/* Reads once. 1: something came; 0: nothing; -1: `why` tells what it did wrong, and it is to be given up. */
int agent_hear(struct agent_link *a, agent_take *take, void *arg);
/* 1: the process has ended, all that it left was taken, and the link is closed; -1: the same, and as for
 * agent_hear; 0: it runs. */
int agent_reap(struct agent_link *a, agent_take *take, void *arg, int *status);
void agent_close(struct agent_link *a);

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
