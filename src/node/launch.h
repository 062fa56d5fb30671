/* SPDX-License-Identifier: Apache-2.0 */
/* What the launcher tells this process: rank, world size, and the meeting place. */
#pragma once

#include "core/error.h"

#define LAUNCH_TEXT_MAX 320

struct launch {
    int rank;                         /* -1: unknown */
    int world_size;                   /* 0: unknown */
    int local_size;                   /* ranks on this host; 0: not known */
    char rendezvous[LAUNCH_TEXT_MAX]; /* "": unknown, and not all ranks are on this host */
    const char *source;               /* "torchrun", "Open MPI", "MPICH/PMI", "Slurm", "": none */
};

/* Pure: `get` returns a variable's value or NULL. The parent's process id stands for a job without a name:
 * all ranks of a host are its children. HEARTH_INVALID names variable and value. */
int MUST_CHECK launch_read(const char *(*get)(void *arg, const char *name), void *arg, int parent_process,
                           uint32_t user, struct launch *out, struct error *error);
