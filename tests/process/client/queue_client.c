/* SPDX-License-Identifier: Apache-2.0 */
/* A user's program: a queue of work in a home cluster, with messages and a remote call. One member has the
 * tasks; the others ask for one, answer it and ask again. When a member is lost, the tasks that it had are
 * given to others. It knows nothing of Hearth but hearth.h and the documents. Prints JSON lines. */
#include <hearth.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TASKS = 3000, TAG_ASK = 1, TAG_TASK = 2, NOBODY = -1, DONE = -2 };

struct answer {
    int64_t task; /* NOBODY: none yet */
    int64_t value;
};

static int64_t answers[TASKS];
static int owner[TASKS]; /* rank that has it, NOBODY or DONE */

static int fail(const char *what)
{
    printf("{\"what\": \"failed\", \"call\": \"%s\", \"text\": \"%s\"}\n", what, hearth_error_text());
    fflush(stdout);
    return 1;
}

/* The constant that the answers need, by remote call. */
static void offset(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    (void)arg, (void)request, (void)len;
    int64_t value = 7;
    hearth_rpc_reply(rpc, &value, sizeof value);
}

static int master_of(hearth_group *group, int master, int *rank)
{
    int32_t flags[64], own = master;
    int status = hearth_all_gather(group, &own, flags, 1, HEARTH_I32, NULL);
    for (int i = 0; status == HEARTH_OK && i < hearth_group_size(group); i++)
        if (flags[i])
            *rank = i;
    return status;
}

/* The next task for the rank; NOBODY: all are given or done. */
static int64_t next_task(int rank)
{
    for (int i = 0; i < TASKS; i++)
        if (owner[i] == NOBODY) {
            owner[i] = rank;
            return i;
        }
    return NOBODY;
}

static int left(void)
{
    int count = 0;
    for (int i = 0; i < TASKS; i++)
        count += owner[i] != DONE;
    return count;
}

/* One group: until all tasks are done and all members know it, or a member is lost. */
static int give(hearth_group *group, const char *half)
{
    int waiting[64], told = 0, count = 0;
    for (int i = 0; i < TASKS; i++) /* what members of the last group had is open again */
        owner[i] = owner[i] == DONE ? DONE : NOBODY;
    while (told < hearth_group_size(group) - 1) {
        struct answer a;
        struct hearth_received got = {.size = sizeof got};
        int status = hearth_recv(group, HEARTH_ANY_RANK, TAG_ASK, &a, sizeof a, NULL, &got);
        if (status != HEARTH_OK)
            return status;
        if (a.task >= 0 && owner[a.task] == DONE)
            printf("{\"what\": \"twice\", \"task\": %d}\n", (int)a.task);
        if (a.task >= 0) {
            answers[a.task] = a.value;
            owner[a.task] = DONE;
        }
        if (left() == TASKS / 2)
            fclose(fopen(half, "w"));
        waiting[count++] = got.rank;
        while (count > 0) {
            int64_t task = next_task(waiting[count - 1]);
            if (task == NOBODY && left() > 0)
                break; /* it waits: a task may come back */
            told += task == NOBODY;
            status = hearth_send(group, waiting[--count], TAG_TASK, &task, sizeof task, NULL);
            if (status != HEARTH_OK)
                return status;
        }
    }
    return HEARTH_OK;
}

static int take(hearth_group *group, int master)
{
    struct answer a = {.task = NOBODY};
    struct hearth_message *constant;
    int status = hearth_rpc_call(group, master, "offset", NULL, 0, NULL, &constant);
    if (status != HEARTH_OK)
        return status;
    int64_t add = *(int64_t *)constant->data;
    hearth_message_free(constant);
    for (;;) {
        status = hearth_send(group, master, TAG_ASK, &a, sizeof a, NULL);
        if (status == HEARTH_OK)
            status = hearth_recv(group, master, TAG_TASK, &a.task, sizeof a.task, NULL, NULL);
        if (status != HEARTH_OK || a.task == NOBODY)
            return status;
        a.value = a.task * a.task + add;
        usleep(300);
    }
}

int main(int argc, char **argv)
{
    int master = argc > 2 && argv[1][0] == '0', rank = -1, groups = 1;
    struct hearth_config config;
    hearth_node *node;
    hearth_group *group;
    hearth_config_init(&config);
    if (argc < 3 || hearth_config_env(&config) != HEARTH_OK || hearth_node_open(&config, &node) != HEARTH_OK)
        return fail("open");
    if (master && hearth_rpc_register(node, "offset", offset, NULL, NULL) != HEARTH_OK)
        return fail("rpc_register");
    for (int i = 0; i < TASKS; i++)
        owner[i] = NOBODY;
    if (hearth_node_wait_for_peers(node, 2, 30000) != HEARTH_OK ||
        hearth_group_form(node, "queue", 2, NULL, &group) != HEARTH_OK)
        return fail("group_form");
    for (;;) {
        int status = master_of(group, master, &rank);
        if (status == HEARTH_OK)
            status = master ? give(group, argv[2]) : take(group, rank);
        if (status == HEARTH_OK)
            status = hearth_barrier(group, NULL); /* nobody goes before all are done */
        if (status == HEARTH_OK)
            break;
        if (status != HEARTH_VIEW_CHANGED)
            return fail("queue");
        groups++;
        if (hearth_group_reform(&group, NULL) < 0)
            return fail("group_reform");
    }
    int64_t sum = 0;
    for (int i = 0; i < TASKS; i++)
        sum += answers[i];
    printf("{\"what\": \"end\", \"sum\": %lld, \"groups\": %d}\n", (long long)sum, groups);
    fflush(stdout);
    hearth_node_close(node);
    return 0;
}
