/* SPDX-License-Identifier: Apache-2.0 */
/* A job: where its ranks run, and the launcher that starts them, stays until they have ended, and ends all
 * when one fails. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/run/child.h"

#define HOSTS_MAX     256
#define HOST_NAME_LEN 256  /* with its final 0 */
#define RANKS_MAX     1024 /* as many as a rendezvous takes */

struct host {
    char name[HOST_NAME_LEN]; /* as given, without brackets; for ssh: may be user@name */
    int count;                /* of ranks */
    bool local;
    int machine; /* counted from 0 in the order of the list; entries of one machine have the same */
};

struct hosts {
    struct host list[HOSTS_MAX];
    int count;
    int machines; /* that are different */
    int ranks;    /* the sum of the counts */
};

/* "a,b:2,user@c,[fe80::1]:4". false: `why` names the piece that is wrong. */
bool hosts_parse(const char *text, struct hosts *hosts, char *why, size_t size);

/* Ranks for `count` processes (0: as many as listed). More than listed: every host gets one more in turn,
 * from the first. Fewer is refused as a mistake. */
bool hosts_fill(struct hosts *hosts, int count, char *why, size_t size);

/* The host of a rank: ranks go through the list in order. */
const struct host *hosts_find(const struct hosts *hosts, int rank);

/* The name without a user. */
const char *host_address(const struct host *host);

/* ---- the launcher ---- */

struct job_plan {
    const struct hosts *hosts;
    /* Adds the variables of a rank, "NAME=value". */
    void (*set_vars)(void *arg, int rank, const struct host *host, struct vars *vars);
    void *arg;
    char **args;           /* the program and its arguments, NULL at the end */
    struct secret *secret; /* taken: it is wiped as soon as all ranks have it; NULL: none */
    bool elsewhere;        /* the secret is for ranks of other machines only */
    const char *ssh;       /* words by spaces; NULL: ssh that never asks */
    const char *dir;       /* of output files; NULL: to our own streams */
    double grace_s;        /* after a failure, before the others are asked to end */
    bool no_prefix, verbose;
};

/* Runs the job to its end. The exit code: 0, or that of the rank that failed first (128 + signal), 126 or
 * 127 if the program could not be started. */
int job_run(const struct job_plan *plan);
