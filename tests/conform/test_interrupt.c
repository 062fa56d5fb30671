/* SPDX-License-Identifier: Apache-2.0 */
/* hearth_node_interrupt: whoever waits for others is let go, wherever it waits; nobody else is. */
#include <poll.h>
#include <pthread.h>

#include "cluster_nodes.h"
#include "node/cluster_groups.h"
#include "support/suite.h"
#include "support/watchdog.h"
#include "transport/quic.h"

#define HANG_S  50
#define LOOK_MS 5

static const struct cluster_nodes_setup plain;

static void pause_ms(int ms)
{
    (void)poll(NULL, 0, ms);
}

/* ---- calls that wait ---- */

enum wait { WAIT_FORM, WAIT_PEERS, WAIT_EVENT };

struct waiter {
    hearth_node *node;
    enum wait wait;
    int min;
    pthread_t thread;
    _Atomic(bool) over;
    int status;
    char text[512];
    hearth_group *group;
};

/* Events that have come are no reason to wait. */
static int wait_for_nothing(hearth_node *node)
{
    struct hearth_event event = {.size = sizeof event};
    int status;
    do
        status = hearth_node_next_event(node, &event, -1);
    while (status == HEARTH_OK);
    return status;
}

static void *waiter_run(void *arg)
{
    struct waiter *w = arg;
    if (w->wait == WAIT_FORM)
        w->status = hearth_group_form(w->node, "job", w->min, NULL, &w->group);
    else if (w->wait == WAIT_PEERS)
        w->status = hearth_node_wait_for_peers(w->node, w->min - 1, CLUSTER_NODES_PATIENCE);
    else
        w->status = wait_for_nothing(w->node);
    snprintf(w->text, sizeof w->text, "%s", hearth_error_text());
    atomic_store(&w->over, true);
    return NULL;
}

static void waiter_start(struct waiter *w, hearth_node *node, enum wait wait, int min)
{
    *w = (struct waiter){.node = node, .wait = wait, .min = min};
    assert_int_equal(pthread_create(&w->thread, NULL, waiter_run, w), 0);
}

static void waiter_end(struct waiter *w, int expected)
{
    pthread_join(w->thread, NULL);
    if (w->status != expected)
        fail_msg("a call that waits: %s, not %s: %s", hearth_status_name(w->status),
                 hearth_status_name(expected), w->text);
}

/* As often as it takes: the thread may not have begun. */
static void waiter_interrupt(struct waiter *w)
{
    while (!atomic_load(&w->over)) {
        check(hearth_node_interrupt(w->node), HEARTH_OK, "interrupt");
        pause_ms(LOOK_MS);
    }
    waiter_end(w, HEARTH_CANCELLED);
    assert_non_null(strstr(w->text, "interrupted"));
}

/* ---- a member that was formed with the others and does not join them ---- */

struct sitter {
    hearth_node *node;
    struct opening opening;
    struct group_spec spec;
    pthread_t thread;
    struct error error;
};

static int sitter_request(struct sitter *s)
{
    struct cluster_groups *r = s->node->cluster_groups;
    struct opening *o = &s->opening;
    struct job_request request = {.job = "job", .min = 2};
    struct cluster_patience patience = {.deadline_ns = clock_real() + HANG_S * NS_PER_S};
    int status = opening_init(o, &r->config, s->node->heap, &s->error);
    if (status == HEARTH_OK)
        status = opening_describe(o, &s->error);
    o->self.id.node = credentials_self(r->credentials)->node;
    if (status == HEARTH_OK)
        status = credentials_copy(r->credentials, o->heap, o->self.id.instance, &o->credentials, &s->error);
    if (status == HEARTH_OK)
        status = opening_listen(o, &s->error);
    if (status != HEARTH_OK)
        return status;
    opening_settings(o, request.settings);
    struct writer w = writer_of(request.place, sizeof request.place);
    peer_put(&w, &o->self);
    request.place_len = (size_t)(w.at - request.place);
    return cluster_form(r->cluster, &request, 0, &patience, &s->spec, &s->error);
}

/* It joins, and that is all: what comes after it waits for is missing. */
static int sitter_mesh(struct sitter *s)
{
    struct opening *o = &s->opening;
    const struct group_spec *f = &s->spec;
    o->roster.size = f->size;
    o->roster.rank = f->rank;
    o->roster.cluster = f->id;
    o->roster.members = heap_alloc(o->heap, (size_t)f->size, sizeof *o->roster.members);
    o->mesh = heap_alloc(o->heap, (size_t)f->size, sizeof *o->mesh);
    assert_true(o->roster.members && o->mesh);
    for (int i = 0; i < f->size; i++) {
        struct reader place = reader_of(f->place[i], f->place_len[i]);
        if (!peer_get(&place, &o->roster.members[i]))
            return HEARTH_PROTOCOL;
    }
    struct mesh_setup setup = {
        .heap = o->heap,
        .roster = &o->roster,
        .listener = o->listener,
        .choice = o->choice,
        .channels = o->quic_choice == QUIC_ALWAYS ? 1 : 0,
        .rate_bytes_per_s = 1e8,
        .credentials = o->credentials,
        .deadline_ns = clock_real() + HANG_S * NS_PER_S,
        .connect_timeout_ns = NS_PER_S,
        .connect_retries = 3,
    };
    return mesh_join(&setup, o->mesh, &s->error);
}

static void sitter_must(const struct sitter *s, int status)
{
    if (status != HEARTH_OK)
        fail_msg("a member that does not join: %s", s->error.text);
}

static void sitter_rise(struct sitter *s)
{
    cluster_end(s->node->cluster_groups->cluster, &s->spec, false);
    opening_fini(&s->opening);
}

/* ---- tests ---- */

TEST(test_form_alone)
{
    hearth_node *node;
    hearth_group *group;
    struct waiter waiter;
    watchdog(HANG_S, "a form for two, alone");
    node_up(&node, &plain, 0);
    waiter_start(&waiter, node, WAIT_FORM, 2);
    waiter_interrupt(&waiter);
    while (number_in_status(node, "\"waiting\": ") != 0)
        pause_ms(LOOK_MS);
    check(hearth_group_form(node, "job", 1, NULL, &group), HEARTH_OK, "the same job, with fewer members");
    hearth_node_close(node);
    watchdog(0, NULL);
}

TEST(test_every_wait)
{
    hearth_node *node;
    struct waiter waiters[3];
    watchdog(HANG_S, "all that wait at once");
    node_up(&node, &plain, 0);
    waiter_start(&waiters[0], node, WAIT_FORM, 2);
    waiter_start(&waiters[1], node, WAIT_PEERS, 2);
    waiter_start(&waiters[2], node, WAIT_EVENT, 0);
    for (int i = 0; i < 3; i++)
        waiter_interrupt(&waiters[i]);
    hearth_node_close(node);
    watchdog(0, NULL);
}

TEST(test_nothing_waits)
{
    hearth_node *node;
    hearth_group *group;
    struct hearth_event event = {.size = sizeof event};
    node_up(&node, &plain, 0);
    check(hearth_node_interrupt(node), HEARTH_OK, "interrupt");
    check(hearth_node_wait_for_peers(node, 1, 20), HEARTH_TIMEOUT, "the next wait for peers");
    while (hearth_node_next_event(node, &event, 0) == HEARTH_OK)
        ;
    check(hearth_node_interrupt(node), HEARTH_OK, "interrupt");
    check(hearth_node_next_event(node, &event, 20), HEARTH_PENDING, "the next wait for an event");
    check(hearth_group_form(node, "job", 1, NULL, &group), HEARTH_OK, "the next form");
    hearth_node_close(node);
}

TEST(test_bad_calls)
{
    hearth_node *alone;
    struct hearth_config config;
    check(hearth_node_interrupt(NULL), HEARTH_INVALID, "no node");
    hearth_config_init(&config);
    config.discover = "off";
    check(hearth_node_open(&config, &alone), HEARTH_OK, "open alone");
    check(hearth_node_interrupt(alone), HEARTH_UNSUPPORTED, "a node that waits for nobody");
    hearth_node_close(alone);
}

/* The leader forgets the request, and the others go on to wait. */
TEST(test_others_wait_on)
{
    hearth_node *nodes[4];
    struct waiter waiters[4];
    watchdog(HANG_S, "others that wait");
    nodes_up(nodes, 4, &plain);
    for (int i = 0; i < 2; i++)
        waiter_start(&waiters[i], nodes[i], WAIT_FORM, 3);
    while (number_in_status(nodes[3], "\"waiting\": ") != 2)
        pause_ms(LOOK_MS);
    waiter_interrupt(&waiters[0]);
    while (number_in_status(nodes[3], "\"waiting\": ") != 1)
        pause_ms(LOOK_MS);
    assert_false(atomic_load(&waiters[1].over));
    for (int i = 2; i < 4; i++)
        waiter_start(&waiters[i], nodes[i], WAIT_FORM, 3);
    for (int i = 1; i < 4; i++) {
        waiter_end(&waiters[i], HEARTH_OK);
        assert_int_equal(hearth_group_size(waiters[i].group), 3);
    }
    nodes_down(nodes, 4);
    watchdog(0, NULL);
}

static void joining_is_interrupted(const char *transport, bool meshed)
{
    hearth_node *nodes[2];
    struct waiter waiter;
    watchdog(HANG_S, "a member that does not join");
    nodes_up(nodes, 2, &(struct cluster_nodes_setup){.transport = transport});
    struct sitter sitter = {.node = nodes[1]};
    waiter_start(&waiter, nodes[0], WAIT_FORM, 2);
    sitter_must(&sitter, sitter_request(&sitter));
    assert_int_equal(sitter.spec.size, 2);
    if (meshed)
        sitter_must(&sitter, sitter_mesh(&sitter));
    pause_ms(50); /* so that it really waits, for what comes next */
    assert_false(atomic_load(&waiter.over));
    waiter_interrupt(&waiter);
    assert_non_null(strstr(waiter.text, "while connecting"));
    sitter_rise(&sitter);
    nodes_down(nodes, 2);
    watchdog(0, NULL);
}

TEST(test_joining)
{
    joining_is_interrupted("auto", false); /* in the mesh */
    joining_is_interrupted("auto", true);  /* handing over memory */
    joining_is_interrupted("tcp", true);   /* in the first collective */
}

TEST(test_joining_quic)
{
    if (!quic_built())
        skip();
    joining_is_interrupted("quic", true);
}

/* One of three is interrupted while it joins: the others form again, and it can come back. */
TEST(test_others_form_again)
{
    hearth_node *nodes[3];
    struct waiter waiters[3];
    watchdog(HANG_S, "others that were formed with it");
    nodes_up(nodes, 3, &(struct cluster_nodes_setup){.transport = "auto"});
    struct sitter sitter = {.node = nodes[2]};
    for (int i = 0; i < 2; i++)
        waiter_start(&waiters[i], nodes[i], WAIT_FORM, 3);
    sitter_must(&sitter, sitter_request(&sitter));
    assert_int_equal(sitter.spec.size, 3);
    pause_ms(50);
    waiter_interrupt(&waiters[0]);
    sitter_rise(&sitter);
    assert_false(atomic_load(&waiters[1].over));
    waiter_start(&waiters[0], nodes[0], WAIT_FORM, 3);
    waiter_start(&waiters[2], nodes[2], WAIT_FORM, 3);
    for (int i = 0; i < 3; i++) {
        waiter_end(&waiters[i], HEARTH_OK);
        assert_int_equal(hearth_group_size(waiters[i].group), 3);
    }
    nodes_down(nodes, 3);
    watchdog(0, NULL);
}
