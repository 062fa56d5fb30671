/* SPDX-License-Identifier: Apache-2.0 */
/* One program that a command with a life of its own starts and looks after: behind a keeper (cli/keeper.h),
 * which is spawned anew, so that this may be done in a process with many threads. */
#ifndef CLI_WARD_H
#define CLI_WARD_H

#include <poll.h>
#include <sys/types.h>

#include "cli/output.h"
#include "cli/post.h"

struct ward {
    pid_t keeper; /* 0: none, or it was reaped */
    struct post down, up;
    struct output *output; /* the caller's */
    int rank;              /* in front of its lines */
    bool asked;            /* to end */
    uint64_t next_ns;      /* then it is killed, and then its keeper is given up */
    int kills;
    bool greeted; /* the keeper has shown itself, and got the secret and the word to start */
    bool ended;   /* `code` is known */
    int code;     /* as of a shell: 128 + signal, 126 or 127 if it could not be started */
    int signal;   /* that killed it; 0: none */
    char why[512];
    char token[128]; /* for the program; wiped when it was handed over */
};

struct ward_plan {
    char **vars, **args; /* NULL at the end */
    const char *token;   /* handed over by a descriptor; NULL: none */
    int rank;
};

/* false: `why` says what is wrong, and nothing runs. */
bool ward_start(struct ward *w, const struct ward_plan *plan, struct output *output);
/* What to poll for: two entries. */
void ward_polls(const struct ward *w, struct pollfd polls[2]);
/* Carries output and letters, kills who does not end in time. To be called when a poll said so, and at least
 * when ward_patience has passed. */
void ward_tend(struct ward *w);
int ward_patience_ms(const struct ward *w); /* -1: any time */
/* SIGTERM, SIGKILL after five seconds. Again: has no effect. */
void ward_stop(struct ward *w);
/* The program has ended, and so has all that it started. */
bool ward_over(const struct ward *w);

#endif
