/* SPDX-License-Identifier: Apache-2.0 */
/* What a machine that is up does for others: it takes part in their measurements, and in their demo if it
 * allows that. Each kind in a thread of its own, so that none waits for another. */
#pragma once

#include <stdatomic.h>

#include "cli/cluster/cluster_plan.h"
#include "os/thread.h"

enum up_task_state { UP_TASK_IDLE, UP_TASK_BUSY, UP_TASK_DONE };

struct up_task {
    /* What the caller says. */
    hearth_node *node;
    const char *job;
    enum cluster_plan_kind kind;
    const char *data;        /* where images may be */
    void (*ring)(void *arg); /* from the task's thread: it is done */
    void *arg;

    atomic_bool quit;
    atomic_int state; /* enum up_task_state */
    struct thread thread;
    char said[256]; /* when it is done: what it did; "": nothing */
};

/* Takes part in the job that somebody asked for. No effect while it is busy. */
void up_task_start(struct up_task *task);
/* True once after it is done: `said` is set, and it may start again. */
bool up_task_take(struct up_task *task);
/* Asks it to end, and waits for that at most so long. false: it has not ended. */
bool up_task_end(struct up_task *task, uint64_t patience_ns);
