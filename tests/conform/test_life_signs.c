/* SPDX-License-Identifier: Apache-2.0 */
/* Data that arrives is a sign of life: a member whose heartbeats are held up is not declared dead while its
 * links carry data. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include <hearth.h>

#include "cluster_nodes.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define HELD_MS 2500 /* the preset low-latency declares a silent member dead after one second */

static _Atomic(bool) held, released;

struct worker {
    pthread_t thread;
    hearth_node *node;
    int status, steps;
};

/* Sums until every member knows that the heartbeats have been held up and go on. */
static void *work(void *arg)
{
    struct worker *w = arg;
    hearth_group *group;
    double x[2] = {0, 0};

    w->status = hearth_group_form(w->node, "life", 2, NULL, &group);
    while (w->status == HEARTH_OK && x[1] == 0) {
        x[0] = 1;
        x[1] = atomic_load(&released);
        w->status = hearth_all_reduce(group, x, x, 2, HEARTH_F64, HEARTH_OP_SUM, NULL);
        if (w->status == HEARTH_OK && x[0] != 2)
            w->status = HEARTH_DIFFERS;
        w->steps++;
    }
    if (w->status != HEARTH_OK)
        fprintf(stderr, "after %d steps: %s\n", w->steps, hearth_error_text());
    return NULL;
}

/* Against the rules of a callback: so the thread that sends heartbeats stands still. */
static void hold_up(void *arg, const struct hearth_event *event)
{
    if (event->kind != HEARTH_EVENT_JOINED || atomic_exchange(&held, true))
        return;
    usleep(HELD_MS * 1000);
    atomic_store(&released, true);
}

TEST(a_member_lives_while_its_data_arrives)
{
    const struct cluster_nodes_setup setup = {.health = "low-latency"};
    hearth_node *nodes[3];
    struct worker workers[2] = {0};

    watchdog(120, "a member whose heartbeats are held up");
    nodes_up(nodes, 2, &setup);
    assert_ok(hearth_node_on_event(nodes[1], hold_up, NULL));
    for (int i = 0; i < 2; i++) {
        workers[i].node = nodes[i];
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    node_up(&nodes[2], &setup, port_of(nodes[0])); /* the event that is held up */
    for (int i = 0; i < 2; i++) {
        pthread_join(workers[i].thread, NULL);
        check(workers[i].status, HEARTH_OK,
              "a step"); /* a view without one of them would have ended the group */
    }
    assert_true(atomic_load(&released));
    nodes_down(nodes, 3);
    watchdog(0, NULL);
}
