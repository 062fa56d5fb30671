/* SPDX-License-Identifier: Apache-2.0 */
/* Reduces each layer's gradient while the next one is computed, and takes the results as they arrive. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <hearth.h>

enum { NODES = 2, LAYERS = 4, COUNT = 1000 };

static atomic_int ended; /* operations of all nodes */

static void check(int status)
{
    if (status == HEARTH_OK)
        return;
    fprintf(stderr, "%s\n", hearth_error_text());
    exit(1);
}

/* Runs on the thread that ended the operation: it is short and never waits. */
static void on_done(void *arg, int status)
{
    atomic_fetch_add((atomic_int *)arg, status == HEARTH_OK);
}

static void *member(void *node)
{
    static float gradient[NODES][LAYERS][COUNT]; /* an operation owns its buffer until it has ended */
    hearth_group *world = hearth_node_world(node);
    hearth_request *request[LAYERS], *barrier;
    int rank = hearth_group_rank(world);
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.done = on_done;
    opts.done_arg = &ended;
    for (int layer = LAYERS - 1; layer >= 0; layer--) { /* backward: the last layer is ready first */
        float *g = gradient[rank][layer];
        for (int i = 0; i < COUNT; i++)
            g[i] = (float)(layer + rank);
        opts.tag = (uint64_t)layer; /* operations of different tags may start in any order */
        check(hearth_all_reduce_nb(world, g, g, COUNT, HEARTH_F32, HEARTH_OP_AVG, &opts, &request[layer]));
    }
    for (int left = LAYERS; left > 0; left--) {
        size_t layer;
        check(hearth_request_wait_any(request, LAYERS, -1, &layer)); /* -1: each has its own deadline */
        if (gradient[rank][layer][COUNT - 1] != (float)layer + 0.5f)
            exit(1);
        hearth_request_close(request[layer]);
        request[layer] = NULL; /* wait_any skips it from now on */
    }

    /* The same for an event loop: a descriptor that becomes readable at the end. */
    check(hearth_barrier_nb(world, NULL, &barrier));
    struct pollfd at_end = {.fd = hearth_request_fd(barrier), .events = POLLIN};
    check(at_end.fd < 0 ? at_end.fd : HEARTH_OK);
    poll(&at_end, 1, -1);
    check(hearth_request_test(barrier));
    hearth_request_close(barrier);
    return NULL;
}

int main(void)
{
    hearth_node *nodes[NODES];
    pthread_t threads[NODES];
    check(hearth_node_open_local(NULL, NODES, nodes));
    for (int i = 0; i < NODES; i++)
        if (pthread_create(&threads[i], NULL, member, nodes[i]) != 0)
            return 1;
    for (int i = 0; i < NODES; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < NODES; i++)
        hearth_node_close(nodes[i]);
    printf("%d operations ended well\n", atomic_load(&ended));
    return atomic_load(&ended) == NODES * LAYERS ? 0 : 1;
}
