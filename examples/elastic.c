/* SPDX-License-Identifier: Apache-2.0 */
/* Training that survives the loss of a machine: the members of a home cluster fit one vector. Run: ./elastic
 * [STEPS] on some machines and end one with Ctrl-C or kill -9: the others go on, and it can join again. */
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

/* The member with the most steps broadcasts its weights; a newcomer has none. An error changes nothing. */
static int catch_up(hearth_group *group, int64_t *step)
{
    int64_t size = hearth_group_size(group), most = *step * size + (size - 1 - hearth_group_rank(group));
    int status = hearth_all_reduce(group, &most, &most, 1, HEARTH_I64, HEARTH_OP_MAX, NULL);
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.flags = HEARTH_FLAG_RESTORE;
    if (!status)
        status = hearth_broadcast(group, weight, COUNT, HEARTH_F32, (int)(size - 1 - most % size), &opts);
    *step = status ? *step : most / size;
    return status;
}

/* Each member's loss has its own minimum; averaged gradients lead to the mean of them. */
static int backward(hearth_sync *sync, int offset)
{
    for (int i = 0; i < COUNT; i++)
        gradient[i] = weight[i] - (float)i / COUNT - (float)offset;
    int status = hearth_sync_ready(sync, 0);
    return status ? status : hearth_sync_wait(sync, NULL);
}

int main(int argc, char **argv)
{
    int64_t steps = argc > 1 ? strtol(argv[1], NULL, 10) : 100, step = 0;
    struct hearth_config config;
    hearth_node *node;
    hearth_group *group;
    hearth_sync *sync;
    hearth_config_init(&config);
    check(hearth_config_env(&config));
    config.discover = "mdns";
    check(hearth_node_open(&config, &node));
    check(hearth_group_form(node, "elastic", 2, NULL, &group));
    check(hearth_sync_open(group, "int8", HEARTH_OP_AVG, &sync));
    struct hearth_tensor tensor = {sizeof tensor, "weight", gradient, HEARTH_F32, 1, (size_t[]){COUNT}};
    check(hearth_sync_add(sync, &tensor));
    int status = catch_up(group, &step);
    while (step < steps || status) {
        if (!status)
            status = backward(sync, 2 * hearth_group_rank(group) - hearth_group_size(group) + 1);
        if (status == HEARTH_VIEW_CHANGED) {
            printf("step %d: %s\n", (int)step, hearth_error_text());
            if (check(hearth_group_reform(&group, NULL)) == HEARTH_BEHIND)
                step = 0; /* this member lacks steps of the others */
            status = catch_up(group, &step);
            continue; /* repeat the step with the members of the new group */
        }
        check(status);
        for (int i = 0; i < COUNT; i++)
            weight[i] -= 0.2f * gradient[i];
        step++;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* stands for computation */
    }
    printf("rank %d: %d steps, weight %g\n", hearth_group_rank(group), (int)step, (double)weight[0]);
    hearth_node_close(node);
    return 0;
}
