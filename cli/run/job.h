/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the ranks of a job, stays with them until they have ended, and ends all when one fails. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cli/run/hosts.h"
#include "security/secret.h"

struct job_rank {
    const struct host *host;
    char **vars;     /* "NAME=value", NULL at the end */
    bool has_secret; /* gets the job's, by a descriptor */
};

struct job_plan {
    const struct job_rank *ranks;
    int count;
    char **args;           /* the program and its arguments, NULL at the end */
    struct secret *secret; /* taken: it is wiped as soon as all ranks have it; NULL: none */
    const char *ssh;       /* words by spaces; NULL: ssh that never asks */
    const char *dir;       /* of output files; NULL: to our own streams */
    uint64_t grace_ns;     /* after a failure, before the others are asked to end */
    bool prefix, verbose;
};

/* Runs the job to its end. The exit code: 0, or that of the rank that failed first (128 + signal), 126 or
 * 127 if the program could not be started. */
int job_run(const struct job_plan *plan);
