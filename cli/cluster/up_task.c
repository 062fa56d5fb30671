/* SPDX-License-Identifier: Apache-2.0 */
/* What a machine that is up does for others. */
#include "cli/cluster/up_task.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/bench/cluster_bench.h"
#include "cli/demo/cluster_demo.h"
#include "os/clock.h"

#define LOOK_MS 10

static int run_demo(struct up_task *task, hearth_group **group, struct cluster_plan *plan, int *starter)
{
    struct race *race = malloc(sizeof *race);
    if (!race)
        return HEARTH_NO_MEMORY;
    struct cluster_demo demo = {.node = task->node,
                                .group = *group,
                                .plan = plan,
                                .starter = *starter,
                                .race = race,
                                .data = task->data,
                                .quit = &task->quit};
    cluster_demo_race(&plan->demo, hearth_group_size(*group), race);
    int status = cluster_demo_run(&demo);
    cluster_demo_fini(&demo);
    *group = demo.group;
    *starter = demo.starter;
    free(race);
    return status;
}

static void say(struct up_task *task, hearth_group *group, int starter, int status)
{
    struct hearth_member member = {.size = sizeof member};
    const char *what = task->kind == CLUSTER_PLAN_BENCH ? "measured" : "trained the demo";
    if (!group || starter < 0 || hearth_group_member(group, starter, &member)) {
        snprintf(task->said, sizeof task->said, "%s, which ended early: %s", what,
                 hearth_status_text(status));
        return;
    }
    if (status)
        snprintf(task->said, sizeof task->said, "%s for %s with %d machines, which ended early: %s", what,
                 member.name, hearth_group_size(group), hearth_status_text(status));
    else
        snprintf(task->said, sizeof task->said, "%s for %s with %d machines", what, member.name,
                 hearth_group_size(group));
}

static void work(struct up_task *task, hearth_group **group)
{
    struct cluster_plan plan = {.kind = task->kind};
    int starter, status = cluster_plan_share(*group, false, &plan, &starter);
    if (status == HEARTH_PROTOCOL || (!status && plan.kind != task->kind)) {
        snprintf(task->said, sizeof task->said, "%s: what is asked for is not known here: other versions?",
                 task->job);
        return;
    }
    if (status)
        return; /* who asked is gone already */
    if (task->kind == CLUSTER_PLAN_BENCH)
        status = cluster_bench_run(*group, &plan.bench, NULL, NULL, &task->quit);
    else
        status = run_demo(task, group, &plan, &starter);
    say(task, *group, starter, status);
}

static void task_main(void *arg)
{
    struct up_task *task = arg;
    hearth_group *group = NULL;
    task->said[0] = 0;
    if (hearth_group_form(task->node, task->job, 1, NULL, &group) == HEARTH_OK) {
        work(task, &group);
        hearth_group_close(group);
    }
    atomic_store(&task->state, UP_TASK_DONE);
    task->ring(task->arg);
}

void up_task_start(struct up_task *task)
{
    if (atomic_load(&task->state) != UP_TASK_IDLE || atomic_load(&task->quit))
        return;
    atomic_store(&task->state, UP_TASK_BUSY);
    if (thread_start(&task->thread, "hearth-task", task_main, task))
        atomic_store(&task->state, UP_TASK_IDLE);
}

bool up_task_take(struct up_task *task)
{
    if (atomic_load(&task->state) != UP_TASK_DONE)
        return false;
    thread_join(&task->thread);
    atomic_store(&task->state, UP_TASK_IDLE);
    return true;
}

bool up_task_end(struct up_task *task, uint64_t patience_ns)
{
    uint64_t end = clock_real() + patience_ns;
    atomic_store(&task->quit, true);
    while (atomic_load(&task->state) == UP_TASK_BUSY && clock_real() < end) {
        hearth_node_interrupt(task->node);
        (void)poll(NULL, 0, LOOK_MS);
    }
    if (atomic_load(&task->state) == UP_TASK_BUSY)
        return false;
    up_task_take(task);
    return true;
}
