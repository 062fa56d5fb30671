/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that find each other: by one seed, without mDNS, on this machine. They agree on a view, form groups,
 * lose a member, and go on. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include <hearth.h>

#include "cluster_nodes.h"
#include "node/local.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define NODES_MAX  5
#define COUNT      5000
#define LATE_NODES 3

/* Deaths are found sooner. */
static const struct cluster_nodes_setup ours_are = {.health = "low-latency"};
static const struct cluster_nodes_setup theirs_are = {
    .secret = "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
    .health = "low-latency",
};

/* ---- a member that works ---- */

struct worker {
    hearth_node *node;
    const char *job;
    int min, steps, quits_after;
    int size, status, reforms;
    bool adapts; /* after its first step, and again with an operation in flight at one member */
    double sum;  /* of the last step */
};

/* Sums ones: the result is the size of the group. */
static int step(hearth_group *group, double *sum)
{
    float x[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = 1;
    int status = hearth_all_reduce(group, x, x, COUNT, HEARTH_F32, HEARTH_OP_SUM, NULL);
    for (int i = 0; status == HEARTH_OK && i < COUNT; i++)
        if (x[i] != x[0])
            return HEARTH_DIFFERS;
    *sum = x[0];
    return status;
}

/* A step may have ended for some before a member left, and not for others: all go on with the latest. */
static int go_on(hearth_group **group, int *step)
{
    int64_t most = *step;
    int status = hearth_group_reform(group, NULL);
    if (status == HEARTH_OK)
        status = hearth_all_reduce(*group, &most, &most, 1, HEARTH_I64, HEARTH_OP_MAX, NULL);
    *step = status == HEARTH_OK ? (int)most : *step;
    return status;
}

/* All on one host: nothing to adapt to. With an operation in flight at one member it is refused there, and
 * the others hear of it; the operation goes on. */
static int adapt_twice(hearth_group *group)
{
    struct hearth_opts opts;
    hearth_request *request = NULL;
    bool busy = hearth_group_rank(group) == 1;
    float one = 1, sum = 0;
    int status = hearth_group_adapt(group, NULL);
    if (status != HEARTH_OK)
        return status;
    hearth_opts_init(&opts);
    opts.tag = 7;
    if (busy)
        status = hearth_all_reduce_nb(group, &one, &sum, 1, HEARTH_F32, HEARTH_OP_SUM, &opts, &request);
    int refused = hearth_group_adapt(group, NULL);
    if (busy && status == HEARTH_OK)
        status = hearth_request_wait(request, -1);
    else if (!busy)
        status = hearth_all_reduce(group, &one, &sum, 1, HEARTH_F32, HEARTH_OP_SUM, &opts);
    hearth_request_close(request);
    bool good = refused == (busy ? HEARTH_INVALID : HEARTH_ABORTED) && (int)sum == hearth_group_size(group);
    return status != HEARTH_OK || good ? status : HEARTH_DIFFERS;
}

static void *worker_run(void *arg)
{
    struct worker *w = arg;
    hearth_group *group;
    w->status = hearth_group_form(w->node, w->job, w->min, NULL, &group);
    if (w->status != HEARTH_OK) {
        fprintf(stderr, "form: %s\n", hearth_error_text());
        return NULL;
    }
    for (int i = 0; i < w->steps && i != w->quits_after; i++) {
        w->status = step(group, &w->sum);
        while (w->status == HEARTH_VIEW_CHANGED) {
            w->reforms++;
            w->status = go_on(&group, &i);
            if (w->status == HEARTH_OK)
                w->status = step(group, &w->sum);
        }
        if (w->status == HEARTH_OK && w->adapts && i == 0)
            w->status = adapt_twice(group);
        if (w->status != HEARTH_OK) {
            fprintf(stderr, "step %d: %s\n", i, hearth_error_text());
            break;
        }
    }
    w->size = hearth_group_size(group);
    if (w->quits_after >= 0)
        hearth_group_close(group);
    return NULL;
}

static bool knows_a_job(hearth_node *node)
{
    char *text = json_of(node);
    bool knows = !strstr(text, "\"jobs\": []");
    free(text);
    return knows;
}

/* The last one asks first, so that all wait for as many as it wants. */
static void run_workers(struct worker *workers, int count)
{
    pthread_t threads[NODES_MAX];
    for (int i = count - 1; i >= 0; i--) {
        while (i < count - 1 && !knows_a_job(workers[i].node)) /* the watchdog looks on */
            sched_yield();
        assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &workers[i]), 0);
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static struct worker worker_of(hearth_node *node, const char *job, int min, int steps)
{
    return (struct worker){.node = node, .job = job, .min = min, .steps = steps, .quits_after = -1};
}

/* ---- tests ---- */

/* Connections of a formed group are told with those of its node, and cut where they do not fit. */
static void check_links(hearth_node *node)
{
    char text[4096], head[64], part[40];
    int64_t len = hearth_node_links_text(node, text, sizeof text);
    assert_int_equal(len, strlen(text));
    int rank = 0;
    while (snprintf(head, sizeof head, "job sum, rank %d of %d:\n", rank, NODES_MAX) > 0 &&
           strncmp(text, head, strlen(head)) != 0)
        assert_true(++rank < NODES_MAX);
    for (int i = 0; i < NODES_MAX; i++) {
        snprintf(part, sizeof part, "\nrank %d  ", i);
        assert_non_null(strstr(text, part));
    }
    assert_int_equal(hearth_node_links_text(node, part, sizeof part), len);
    assert_int_equal(strlen(part), sizeof part - 1);
}

/* What the command is told without a text. */
static void check_snapshot(hearth_node *node)
{
    static struct cluster_status status;
    int selves = 0, leaders = 0;
    check(node_cluster_status(node, &status), HEARTH_OK, "snapshot");
    assert_int_equal(status.count, NODES_MAX);
    assert_string_equal(status.state, "member");
    for (int i = 0; i < status.count; i++) {
        const struct cluster_member *m = &status.members[i];
        selves += m->self && strcmp(m->state, "self") == 0;
        leaders += m->leads;
        assert_int_equal(strlen(m->id), 64);
        assert_int_not_equal(m->name[0], 0);
        assert_true(m->self || m->latency_us >= 0);
        for (int k = 0; k < status.count; k++)
            assert_true(status.rate[i][k] >= 0 && (i != k || status.rate[i][k] == 0));
    }
    assert_int_equal(selves, 1);
    assert_int_equal(leaders, 1);
    assert_true(status.job_count >= 1 && strcmp(status.jobs[0].name, "sum") == 0);
}

TEST(test_form_and_sum)
{
    hearth_node *nodes[NODES_MAX];
    struct worker workers[NODES_MAX];
    watchdog(120, "form and sum");
    nodes_up(nodes, NODES_MAX, &ours_are);
    for (int i = 0; i < NODES_MAX; i++) {
        workers[i] = worker_of(nodes[i], "sum", NODES_MAX, 3);
        workers[i].adapts = true;
    }
    run_workers(workers, NODES_MAX);
    for (int i = 0; i < NODES_MAX; i++) {
        check(workers[i].status, HEARTH_OK, "worker");
        assert_int_equal(workers[i].size, NODES_MAX);
        assert_int_equal((int)workers[i].sum, NODES_MAX);
    }
    char *text = json_of(nodes[0]);
    assert_non_null(strstr(text, "\"size\": 5, \"order\": [0, 1, 2, 3, 4], \"sites\": [0, 0, 0, 0, 0]}"));
    free(text);
    check_links(nodes[0]);
    check_snapshot(nodes[0]);
    nodes_down(nodes, NODES_MAX);
    watchdog(0, NULL);
}

/* One of them has done its part of the last operation and closed the group; the others have not begun it. */
struct late {
    hearth_node *node;
    _Atomic(int) *closed;
    int status, later;
    float x[100];
};

static void *late_run(void *arg)
{
    struct late *l = arg;
    hearth_group *group;
    l->status = hearth_group_form(l->node, "last", LATE_NODES, NULL, &group);
    if (l->status != HEARTH_OK)
        return NULL;
    int rank = hearth_group_rank(group);
    for (int i = 0; i < 100; i++)
        l->x[i] = rank == 0 ? (float)i : 0;
    while (rank > 0 && atomic_load(l->closed) == 0)
        sched_yield();
    if (rank > 0)
        usleep(200000u * (unsigned)rank); /* the home may have heard of it by now */
    l->status = hearth_broadcast(group, l->x, 100, HEARTH_F32, 0, NULL);
    if (l->status != HEARTH_OK)
        fprintf(stderr, "rank %d: %s\n", rank, hearth_error_text());
    l->later = rank > 0 ? hearth_broadcast(group, l->x, 100, HEARTH_F32, rank, NULL) : HEARTH_VIEW_CHANGED;
    hearth_group_close(group);
    atomic_fetch_add(l->closed, 1);
    return NULL;
}

TEST(test_closing_first_is_no_harm)
{
    hearth_node *nodes[LATE_NODES];
    struct late late[LATE_NODES] = {0};
    pthread_t threads[LATE_NODES];
    _Atomic(int) closed = 0;
    watchdog(120, "closing first");
    nodes_up(nodes, LATE_NODES, &ours_are);
    for (int i = 0; i < LATE_NODES; i++) {
        late[i].node = nodes[i];
        late[i].closed = &closed;
        assert_int_equal(pthread_create(&threads[i], NULL, late_run, &late[i]), 0);
    }
    for (int i = 0; i < LATE_NODES; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < LATE_NODES; i++) {
        check(late[i].status, HEARTH_OK, "the last operation");
        check(late[i].later, HEARTH_VIEW_CHANGED, "the one after it");
        for (int k = 0; k < 100; k++)
            assert_true(late[i].x[k] == (float)k);
    }
    nodes_down(nodes, LATE_NODES);
    watchdog(0, NULL);
}

TEST(test_jobs_do_not_mix)
{
    hearth_node *nodes[NODES_MAX];
    struct worker workers[4];
    watchdog(120, "two jobs and an idle node");
    nodes_up(nodes, NODES_MAX, &ours_are); /* the last one is idle */
    for (int i = 0; i < 4; i++)
        workers[i] = worker_of(nodes[i], i < 2 ? "a" : "b", 2, 20);
    run_workers(workers, 4);
    for (int i = 0; i < 4; i++) {
        check(workers[i].status, HEARTH_OK, "worker");
        assert_int_equal((int)workers[i].sum, 2);
    }
    nodes_down(nodes, NODES_MAX);
    watchdog(0, NULL);
}

TEST(test_reform)
{
    hearth_node *nodes[3];
    struct worker workers[3];
    watchdog(120, "a member leaves its group");
    nodes_up(nodes, 3, &ours_are);
    for (int i = 0; i < 3; i++) {
        workers[i] = worker_of(nodes[i], "again", i == 2 ? 3 : 2, 50);
        workers[i].quits_after = i == 2 ? 5 : -1;
    }
    run_workers(workers, 3);
    for (int i = 0; i < 2; i++) {
        check(workers[i].status, HEARTH_OK, "survivor");
        assert_int_equal(workers[i].size, 2);
        assert_int_equal((int)workers[i].sum, 2);
        assert_in_range(workers[i].reforms, 1, 3);
    }
    nodes_down(nodes, 3);
    watchdog(0, NULL);
}

/* ---- callbacks ---- */

struct notes {
    pthread_mutex_t lock;
    _Atomic(bool) called;
    int status;
};

static void note(void *arg, int status)
{
    struct notes *notes = arg;
    notes->called = true;
    pthread_mutex_lock(&notes->lock);
    notes->status = status;
    pthread_mutex_unlock(&notes->lock);
}

static void *reform(void *arg)
{
    hearth_group **group = arg;
    check(hearth_group_reform(group, NULL), HEARTH_OK, "reform");
    return NULL;
}

static void *form_pair(void *arg)
{
    struct worker *w = arg;
    hearth_group *group = NULL;
    w->status = hearth_group_form(w->node, w->job, 2, NULL, &group);
    return group;
}

/* A callback takes a lock of the program, and who holds that lock asks for the status: neither waits for the
 * other. */
TEST(test_callback_when_a_group_ends)
{
    hearth_node *nodes[2];
    hearth_group *groups[2];
    hearth_request *request;
    pthread_t threads[2];
    struct worker workers[2];
    struct notes notes = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct hearth_opts opts;
    float x = 1;
    watchdog(60, "a callback when a group ends");
    nodes_up(nodes, 2, &ours_are);
    for (int i = 0; i < 2; i++) {
        workers[i] = worker_of(nodes[i], "notes", 2, 0);
        assert_int_equal(pthread_create(&threads[i], NULL, form_pair, &workers[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], (void **)&groups[i]);
        check(workers[i].status, HEARTH_OK, "form");
    }
    hearth_opts_init(&opts);
    opts.done = note;
    opts.done_arg = &notes;
    check(hearth_all_reduce_nb(groups[0], &x, &x, 1, HEARTH_F32, HEARTH_OP_SUM, &opts, &request), HEARTH_OK,
          "start");
    pthread_mutex_lock(&notes.lock);
    assert_int_equal(pthread_create(&threads[1], NULL, reform, &groups[1]), 0); /* instead of taking part */
    while (!notes.called)
        sched_yield();
    free(json_of(nodes[0]));
    pthread_mutex_unlock(&notes.lock);
    check(hearth_request_wait(request, CLUSTER_NODES_PATIENCE), HEARTH_VIEW_CHANGED, "wait");
    assert_int_equal(notes.status, HEARTH_VIEW_CHANGED);
    hearth_request_close(request);
    reform(&groups[0]);
    pthread_join(threads[1], NULL);
    nodes_down(nodes, 2);
    watchdog(0, NULL);
}

TEST(test_two_clusters)
{
    hearth_node *ours[2], *theirs;
    watchdog(120, "two clusters");
    nodes_up(ours, 2, &ours_are);
    node_up(&theirs, &theirs_are, port_of(ours[0]));
    do
        check(hearth_node_wait_for_peers(theirs, 1, 500), HEARTH_TIMEOUT, "a node of another cluster");
    while (!strstr(hearth_error_text(), "secret")); /* the watchdog looks on */
    char *text = json_of(ours[0]);
    assert_null(strstr(text, "\"rank\": 2"));
    free(text);
    hearth_node_close(theirs);
    nodes_down(ours, 2);
    watchdog(0, NULL);
}

TEST(test_events)
{
    hearth_node *nodes[2];
    struct hearth_event event = {.size = sizeof event};
    int joined = 0, left = 0;
    watchdog(120, "events");
    nodes_up(nodes, 2, &ours_are);
    hearth_node_close(nodes[1]);
    while (left == 0) {
        check(hearth_node_next_event(nodes[0], &event, CLUSTER_NODES_PATIENCE), HEARTH_OK, "an event");
        joined += event.kind == HEARTH_EVENT_JOINED;
        left += event.kind == HEARTH_EVENT_LEFT;
        assert_string_not_equal(event.id, event.kind == HEARTH_EVENT_LEFT ? "" : "x");
    }
    assert_true(joined > 0);
    hearth_node_close(nodes[0]);
    watchdog(0, NULL);
}

static void check_words(int status, const char *words)
{
    check(status, HEARTH_INVALID, words);
    if (!strstr(hearth_error_text(), words))
        fail_msg("\"%s\" instead of \"%s\"", hearth_error_text(), words);
}

TEST(test_bad_calls)
{
    char long_job[5001] = "";
    hearth_node *node, *alone;
    hearth_group *group;
    struct hearth_config config;
    struct hearth_event event = {0};
    node_up(&node, &ours_are, 0);
    memset(long_job, 'j', sizeof long_job - 1);
    check_words(hearth_group_form(node, "a", 1, NULL, NULL), "form: group is NULL");
    check_words(hearth_group_form(node, NULL, 1, NULL, &group), "form: job is NULL");
    check_words(hearth_group_form(node, "", 1, NULL, &group), "job has 0 characters");
    check_words(hearth_group_form(node, long_job, 1, NULL, &group),
                "job has 5000 characters; it takes 1 to 63");
    check_words(hearth_group_form(node, "a\nb", 1, NULL, &group), "job: byte 1 is 0x0a");
    check_words(hearth_group_form(node, "a", 0, NULL, &group), "min_members is 0");
    check_words(hearth_group_form(node, "a", 65, NULL, &group), "min_members is 65; it must be from 1 to 64");
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.timeout_ms = -2;
    check(hearth_group_form(node, "a", 2, &opts, &group), HEARTH_INVALID, "no time");
    opts.timeout_ms = 0;
    check(hearth_group_form(node, "a", 2, &opts, &group), HEARTH_TIMEOUT, "only what is done at once");
    check(hearth_node_wait_for_peers(node, -2, 0), HEARTH_INVALID, "fewer than none");
    check_words(hearth_node_next_event(node, NULL, 0), "event is NULL");
    check_words(hearth_node_next_event(node, &event, 0), "event->size is 0");
    event.size = sizeof event;
    check_words(hearth_node_next_event(node, &event, -2), "timeout_ms is -2");
    group = hearth_node_world(node);
    check(hearth_group_reform(&group, NULL), HEARTH_UNSUPPORTED, "a world");
    hearth_node_close(node);
    hearth_config_init(&config);
    config.discover = "off";
    check(hearth_node_open(&config, &alone), HEARTH_OK, "open alone");
    check(hearth_group_form(alone, "a", 1, NULL, &group), HEARTH_UNSUPPORTED, "form without a cluster");
    check(node_cluster_status(alone, NULL), HEARTH_UNSUPPORTED, "status without a cluster");
    assert_non_null(strstr(hearth_error_text(), "hearth init"));
    hearth_node_close(alone);
    config.discover = "dns";
    check(hearth_node_open(&config, &alone), HEARTH_INVALID, "another way to discover");
}
