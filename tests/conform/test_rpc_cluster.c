/* SPDX-License-Identifier: Apache-2.0 */
/* Remote calls in groups that nodes of a home cluster form: the handlers of the node serve all of them, over
 * encrypted connections. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "cluster_nodes.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define NODES 2
#define CALLS 500

struct member {
    hearth_node *node;
    pthread_barrier_t *meeting;
    bool late; /* registers when the group is there */
    int answered;
};

static atomic_int kept;
static hearth_rpc *unanswered;

static void twice(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    int value;
    memcpy(&value, request, sizeof value);
    value *= 2;
    hearth_rpc_reply(rpc, &value, sizeof value);
}

static void keep(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    unanswered = rpc;
    atomic_fetch_add(&kept, 1);
}

static void call_other(struct member *m, hearth_group *group)
{
    int other = 1 - hearth_group_rank(group);
    for (int i = 0; i < CALLS; i++) {
        struct hearth_message *reply = NULL;
        int status = hearth_rpc_call(group, other, "twice", &i, sizeof i, NULL, &reply), value = -1;
        if (status != HEARTH_OK) {
            fprintf(stderr, "%s\n", hearth_error_text());
            return;
        }
        memcpy(&value, reply->data, sizeof value);
        m->answered += value == 2 * i;
        hearth_message_free(reply);
    }
}

static void *member_run(void *arg)
{
    struct member *m = arg;
    hearth_group *group;
    for (int round = 0; round < 2; round++) { /* the second group, too */
        int status = hearth_group_form(m->node, "calls", NODES, NULL, &group);
        if (status == HEARTH_OK && m->late && round == 0)
            status = hearth_rpc_register(m->node, "twice", twice, NULL, NULL);
        pthread_barrier_wait(m->meeting);
        if (status == HEARTH_OK)
            call_other(m, group);
        else
            fprintf(stderr, "%s\n", hearth_error_text());
        pthread_barrier_wait(m->meeting);
        if (status == HEARTH_OK)
            hearth_group_close(group);
        pthread_barrier_wait(m->meeting);
    }
    return NULL;
}

static void run(struct member *members, void *(*fn)(void *))
{
    pthread_t threads[NODES];
    for (int i = 0; i < NODES; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fn, &members[i]), 0);
    for (int i = 0; i < NODES; i++)
        pthread_join(threads[i], NULL);
}

static void members_init(struct member *members, hearth_node *nodes[], pthread_barrier_t *meeting)
{
    assert_int_equal(pthread_barrier_init(meeting, NULL, NODES), 0);
    for (int i = 0; i < NODES; i++)
        members[i] = (struct member){.node = nodes[i], .meeting = meeting, .late = i == 1};
}

TEST(handlers_of_a_node_serve_every_group_that_it_forms)
{
    static const struct cluster_nodes_setup setup = {.transport = "tcp"};
    hearth_node *nodes[NODES];
    struct member members[NODES];
    pthread_barrier_t meeting;
    watchdog(120, "calls in formed groups");
    nodes_up(nodes, NODES, &setup);
    members_init(members, nodes, &meeting);
    check(hearth_rpc_register(nodes[0], "twice", twice, NULL, NULL), HEARTH_OK, "register");
    run(members, member_run);
    for (int i = 0; i < NODES; i++)
        assert_int_equal(members[i].answered, 2 * CALLS);
    nodes_down(nodes, NODES);
    pthread_barrier_destroy(&meeting);
}

static void *leaves_unanswered(void *arg)
{
    struct member *m = arg;
    hearth_group *group;
    hearth_request *request = NULL;
    struct hearth_message *reply = NULL;
    int status = hearth_group_form(m->node, "calls", NODES, NULL, &group);
    if (status == HEARTH_OK && m->late)
        status =
            hearth_rpc_call_nb(group, 1 - hearth_group_rank(group), "keep", NULL, 0, NULL, &reply, &request);
    while (status == HEARTH_OK && atomic_load(&kept) == 0)
        sched_yield();
    pthread_barrier_wait(m->meeting);
    if (!m->late) { /* the group goes, its call stays */
        m->answered = hearth_rpc_group(unanswered) == group;
        hearth_group_close(group);
        m->answered += hearth_rpc_time_left(unanswered) == 0 && !hearth_rpc_group(unanswered);
        m->answered += hearth_rpc_reply(unanswered, NULL, 0) == HEARTH_CLOSED;
    } else {
        m->answered = hearth_request_wait(request, -1) == HEARTH_VIEW_CHANGED;
        m->answered += hearth_request_error_fate(request) == HEARTH_FATE_UNKNOWN;
        hearth_request_close(request);
        hearth_group_close(group);
    }
    return NULL;
}

TEST(a_call_outlives_its_group)
{
    static const struct cluster_nodes_setup setup = {.transport = "tcp"};
    hearth_node *nodes[NODES];
    struct member members[NODES];
    pthread_barrier_t meeting;
    watchdog(120, "a call that outlives its group");
    nodes_up(nodes, NODES, &setup);
    members_init(members, nodes, &meeting);
    check(hearth_rpc_register(nodes[0], "keep", keep, NULL, NULL), HEARTH_OK, "register");
    run(members, leaves_unanswered);
    assert_int_equal(members[0].answered, 3);
    assert_int_equal(members[1].answered, 2);
    nodes_down(nodes, NODES);
    pthread_barrier_destroy(&meeting);
}
