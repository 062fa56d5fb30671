/* SPDX-License-Identifier: Apache-2.0 */
/* Training that goes on when a machine leaves: the members of a home cluster fit y = weight x.
 * Run: ./elastic on some of them, and end one with Ctrl-C or kill -9: the others form the next group and make
 * the same step again. ./elastic STEPS MIN PAUSE_MS: how many steps (100), members of a group at least (2),
 * and how long to wait after each step (100). */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <hearth.h>

enum { COUNT = 10000 };

static float weight[COUNT], gradient[COUNT];

static int check(int status)
{
    if (status >= 0)
        return status;
    fprintf(stderr, "%s\n", hearth_error_text());
    exit(1);
}

/* The slope of (weight - target)^2, whose minimum is elsewhere for each member: they meet in the middle. */
static void backward(int rank, int size)
{
    for (int i = 0; i < COUNT; i++)
        gradient[i] = weight[i] - (float)i / COUNT - (float)(2 * rank - size + 1);
}

/* Who has made the most steps tells all the others: a newcomer has made none. */
static int catch_up(hearth_group *group, int64_t *step)
{
    int64_t size = hearth_size(group), most = *step * size + (size - 1 - hearth_rank(group));
    int status = hearth_all_reduce(group, &most, &most, 1, HEARTH_I64, HEARTH_MAX, NULL);
    *step = most / size;
    return status ? status
                  : hearth_broadcast(group, weight, COUNT, HEARTH_F32, (int)(size - 1 - most % size), NULL);
}

static int meet(hearth_group *group, hearth_sync *sync)
{
    backward(hearth_rank(group), hearth_size(group));
    int status = hearth_sync_ready(sync, 0);
    return status ? status : hearth_sync_wait(sync, NULL);
}

int main(int argc, char **argv)
{
    int64_t steps = argc > 1 ? strtol(argv[1], NULL, 10) : 100, step = 0;
    int min = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 2, status;
    long pause_ms = argc > 3 ? strtol(argv[3], NULL, 10) : 100;
    struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000};
    struct hearth_config config;
    hearth_node *node;
    hearth_group *group;
    hearth_sync *sync;
    hearth_config_init(&config);
    check(hearth_config_env(&config));
    config.discover = "mdns";
    check(hearth_open(&config, &node));
    check(hearth_form(node, "elastic", min, &group));
    check(hearth_sync_open(group, "int8", HEARTH_AVG, &sync));
    struct hearth_tensor tensor = {"weight", gradient, HEARTH_F32, 1, (size_t[]){COUNT}};
    check(hearth_sync_add(sync, &tensor));
    status = catch_up(group, &step);
    while (step < steps) {
        if (!status)
            status = meet(group, sync);
        while (status == HEARTH_VIEW_CHANGED) { /* somebody is gone, and nothing was applied */
            printf("step %d: %s\n", (int)step, hearth_error_text());
            check(hearth_reform(&group)); /* those who are left, and those who came meanwhile */
            status = catch_up(group, &step);
            if (!status)
                status = meet(group, sync); /* the same step again */
        }
        check(status);
        for (int i = 0; i < COUNT; i++)
            weight[i] -= 0.2f * gradient[i];
        nanosleep(&pause, NULL);
        step++;
    }
    printf("rank %d of %d: %d steps, weight[0] %g\n", hearth_rank(group), hearth_size(group), (int)step,
           (double)weight[0]);
    hearth_close(node);
    return 0;
}
