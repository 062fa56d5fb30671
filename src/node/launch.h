/* SPDX-License-Identifier: Apache-2.0 */
/* What the launcher that started this process says about it: rank, world size, and where to meet. */
#pragma once

#include "core/error.h"

#define LAUNCH_TEXT_MAX 320

struct launch {
    int rank;                         /* -1: not said */
    int world_size;                   /* 0: not said */
    int local_size;                   /* ranks on this host; 0: not known */
    char rendezvous[LAUNCH_TEXT_MAX]; /* "": not said, and not all ranks are on this host */
    const char *source;               /* "torchrun", "Open MPI", "MPICH/PMI", "Slurm", "": none */
};

/* Pure: `get` gives a variable's value or NULL. The process id of the parent stands for the job where the
 * launcher does not name it: all ranks of a host are children of one. HEARTH_INVALID names variable and
 * value. */
int MUST_CHECK launch_read(const char *(*get)(void *arg, const char *name), void *arg, int parent_process,
                           uint32_t user, struct launch *out, struct error *error);
