/* SPDX-License-Identifier: Apache-2.0 */
/* One net after the other on the same heaps. */
#include "conform/cluster_group.h"

#include "node/reconcile.h"
#include "support/watchdog.h"

#define HANG_SECONDS 100u

void cluster_group_open(struct cluster_group *f)
{
    watchdog(HANG_SECONDS * (unsigned)slow_factor(), "a group that is formed anew");
    *f = (struct cluster_group){.id = 1000};
    for (int i = 0; i < CLUSTER_GROUP_MAX; i++) {
        f->heap[i] = heap_open(0);
        assert_non_null(f->heap[i]);
    }
}

void cluster_group_close(struct cluster_group *f)
{
    for (int i = 0; i < CLUSTER_GROUP_MAX; i++)
        cluster_group_leave(f, i);
    for (int i = 0; i < CLUSTER_GROUP_MAX; i++) {
        if (f->heap[i]->blocks != 0)
            fail_msg("member %d leaves %lu blocks behind", i, (unsigned long)f->heap[i]->blocks);
        heap_close(f->heap[i]);
    }
}

hearth_group *cluster_group_world(const struct cluster_group *f, int member)
{
    return hearth_node_world(f->node[member]);
}

void cluster_group_leave(struct cluster_group *f, int member)
{
    hearth_node_close(f->node[member]);
    f->node[member] = NULL;
}

/* One member of the next group. */
struct mover {
    hearth_node *old, *next;
    int status;
    struct error error;
};

static void *mover_run(void *arg)
{
    struct mover *m = arg;
    hearth_group *from = m->old ? hearth_node_world(m->old) : NULL;
    m->status = node_move_attachments(from, hearth_node_world(m->next), NULL, &m->error);
    return NULL;
}

void cluster_group_group(struct cluster_group *f, const int *members, int size)
{
    struct error error;
    struct hearth_config config;
    hearth_node *nodes[CLUSTER_GROUP_MAX];
    struct heap *heaps[CLUSTER_GROUP_MAX];
    struct mover movers[CLUSTER_GROUP_MAX];
    pthread_t threads[CLUSTER_GROUP_MAX];
    hearth_config_init(&config);
    for (int i = 0; i < size; i++)
        heaps[i] = f->heap[members[i]];
    struct local_setup setup = {
        .config = &config, .count = size, .id = ++f->id, .lent_heaps = heaps, .loss = HEARTH_VIEW_CHANGED};
    assert_ok(local_open(&setup, nodes, &error));
    for (int i = 0; i < size; i++) {
        movers[i] = (struct mover){.old = f->node[members[i]], .next = nodes[i]};
        if (pthread_create(&threads[i], NULL, mover_run, &movers[i]) != 0)
            abort();
    }
    for (int i = 0; i < size; i++) {
        pthread_join(threads[i], NULL);
        if (movers[i].status < 0)
            fail_msg("member %d does not move: %s", members[i], movers[i].error.text);
        hearth_node_close(movers[i].old);
        f->node[members[i]] = nodes[i];
        f->member[i] = members[i];
        f->behind[members[i]] = movers[i].status == HEARTH_BEHIND;
    }
    f->size = size;
}

struct runner {
    struct cluster_group *f;
    cluster_group_fn *fn;
    void *arg;
    int member;
};

static void *runner_run(void *arg)
{
    struct runner *r = arg;
    r->fn(r->f, r->member, r->arg);
    return NULL;
}

void cluster_group_run(struct cluster_group *f, cluster_group_fn *fn, void *arg)
{
    pthread_t threads[CLUSTER_GROUP_MAX];
    struct runner runners[CLUSTER_GROUP_MAX];
    for (int i = 0; i < f->size; i++) {
        runners[i] = (struct runner){f, fn, arg, f->member[i]};
        if (pthread_create(&threads[i], NULL, runner_run, &runners[i]) != 0)
            abort();
    }
    for (int i = 0; i < f->size; i++)
        pthread_join(threads[i], NULL);
    checks_end();
}
