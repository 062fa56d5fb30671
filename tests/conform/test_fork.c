/* SPDX-License-Identifier: Apache-2.0 */
/* A fork while operations run: the parent goes on, in the child every call says so, and close only frees. */
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/reference.h"

enum { MEMBERS = 3 };

struct family {
    struct fixture *cluster;
    hearth_group *child_group[MEMBERS];
    hearth_request *requests[MEMBERS]; /* unfinished: not all members have started theirs */
    _Atomic(bool) stop;
    _Atomic(int) rounds;
    bool child_frees; /* not where the sanitizer's allocator may have been locked by another thread */
};

/* In the child nothing of cmocka or stdio is used: a number of the first thing that is wrong. */
static int wrong_in_child(struct family *f)
{
    hearth_group *world = f->cluster->world[0], *out = NULL;
    hearth_request *request = NULL;
    float x[4] = {0}, y[4] = {0};
    char text[64];
    size_t index;
    if (hearth_node_world(f->cluster->nodes[0]))
        return 10;
    if (hearth_all_reduce(world, x, y, 4, HEARTH_F32, HEARTH_OP_SUM, NULL) != HEARTH_FORKED)
        return 11;
    if (hearth_all_reduce_nb(world, x, y, 4, HEARTH_F32, HEARTH_OP_SUM, NULL, &request) != HEARTH_FORKED)
        return 12;
    if (hearth_barrier(f->child_group[1], NULL) != HEARTH_FORKED)
        return 13;
    if (hearth_group_split(world, 0, 0, NULL, &out) != HEARTH_FORKED)
        return 14;
    if (hearth_group_same(world, x, sizeof x, NULL, NULL) != HEARTH_FORKED)
        return 15;
    if (hearth_node_metrics_text(f->cluster->nodes[0], text, sizeof text) != HEARTH_FORKED)
        return 16;
    if (hearth_request_test(f->requests[0]) != HEARTH_FORKED ||
        hearth_request_wait(f->requests[1], -1) != HEARTH_FORKED)
        return 17;
    if (hearth_request_wait_all(f->requests, MEMBERS, -1) != HEARTH_FORKED)
        return 18;
    if (hearth_request_wait_any(f->requests, MEMBERS, -1, &index) != HEARTH_FORKED)
        return 19;
    if (hearth_request_cancel(f->requests[0]) != HEARTH_FORKED ||
        hearth_request_fd(f->requests[0]) != HEARTH_FORKED)
        return 20;
    if (strlen(hearth_error_text()) == 0 || hearth_status_scope(HEARTH_FORKED) != HEARTH_SCOPE_NODE)
        return 21;
    hearth_request_close(f->requests[0]);
    hearth_group_close(f->child_group[0]);
    for (int i = 0; i < MEMBERS && f->child_frees; i++)
        hearth_node_close(f->cluster->nodes[i]);
    return 0;
}

/* The child may open nodes of its own. */
static int wrong_with_new_nodes(void)
{
    hearth_node *nodes[2];
    hearth_request *requests[2];
    int x[2] = {1, 2};
    if (hearth_node_open_local(NULL, 2, nodes) != HEARTH_OK)
        return 30;
    for (int i = 0; i < 2; i++)
        if (sum_in_place_nb(hearth_node_world(nodes[i]), &x[i], 1, NULL, &requests[i]) != HEARTH_OK)
            return 31;
    if (hearth_request_wait_all(requests, 2, -1) != HEARTH_OK || x[0] != 3 || x[1] != 3)
        return 32;
    hearth_node_close(nodes[0]);
    hearth_node_close(nodes[1]);
    return 0;
}

static void check_child(pid_t child, int number)
{
    int status;
    if (!check(child > 0 && waitpid(child, &status, 0) == child, "fork %d", number))
        return;
    check(!WIFSIGNALED(status), "child %d was killed by signal %d", number, WTERMSIG(status));
    check(!WIFEXITED(status) || WEXITSTATUS(status) == 0, "child %d: wrong at %d", number,
          WEXITSTATUS(status));
}

/* Members work, rank 0's thread forks again and again. */
static void working_member(struct fixture *c, int rank, void *arg)
{
    struct family *f = arg;
    int32_t *x = must_alloc(20000 * sizeof *x);
    for (int round = 0;; round++) {
        size_t count = round % 5 == 0 ? 20000 : 5;
        int32_t stop = rank == 0 && f->stop;
        for (size_t i = 0; i < count; i++)
            x[i] = (int32_t)i + rank;
        check_ok(sum_in_place(c->world[rank], x, count, NULL));
        for (size_t i = 0; i < count; i++)
            if (x[i] != MEMBERS * (int32_t)i + MEMBERS * (MEMBERS - 1) / 2)
                check(false, "rank %d, round %d: element %zu is %d", rank, round, i, x[i]);
        check_ok(hearth_broadcast(c->world[rank], &stop, 1, HEARTH_I32, 0, NULL));
        f->rounds++;
        if (stop)
            break;
    }
    free(x);
}

static void *forker(void *arg)
{
    struct family *f = arg;
    int forks = under_asan() || under_tsan() ? 10 : 60;
    for (int i = 0; i < forks && !checks_failed(); i++) {
        int before = f->rounds;
        pid_t child = fork();
        if (child == 0)
            _exit(i % 3 == 0 && f->child_frees ? wrong_with_new_nodes() : wrong_in_child(f));
        check_child(child, i);
        while (f->rounds < before + 2 && !checks_failed()) /* the parent goes on */
            sleep_ms(1);
    }
    f->stop = true;
    return NULL;
}

static void start_requests(struct family *f)
{
    static int32_t x[MEMBERS];
    struct hearth_opts opts = opts_default();
    opts.tag = 99;
    for (int i = 0; i < MEMBERS; i++) {
        opts.tag = 99 + (uint64_t)i; /* nobody else calls these */
        check_ok(sum_in_place_nb(f->cluster->world[i], &x[i], 1, &opts, &f->requests[i]));
    }
}

static void split_all(struct fixture *c, int rank, void *arg)
{
    struct family *f = arg;
    check_ok(hearth_group_split(c->world[rank], 0, 0, NULL, &f->child_group[rank]));
}

TEST(test_fork_while_operations_run)
{
    if (under_tsan()) {
        print_message("skipped: the thread sanitizer cannot follow threads into a forked child\n");
        skip();
    }
    struct fixture c;
    struct family f = {.cluster = &c, .child_frees = !under_asan()};
    pthread_t thread;
    fixture_open(&c, MEMBERS, NULL);
    fixture_run(&c, split_all, &f);
    start_requests(&f);
    if (pthread_create(&thread, NULL, forker, &f) != 0)
        abort();
    fixture_run(&c, working_member, &f);
    pthread_join(thread, NULL);
    for (int i = 0; i < MEMBERS; i++)
        hearth_request_close(f.requests[i]);
    fixture_works(&c);
    fixture_close(&c);
}

/* A quiet fork, without anything running. */
TEST(test_fork_at_rest)
{
    if (under_tsan()) {
        print_message("skipped: the thread sanitizer cannot follow threads into a forked child\n");
        skip();
    }
    struct fixture c;
    struct family f = {.cluster = &c, .child_frees = true};
    fixture_open(&c, MEMBERS, NULL);
    fixture_run(&c, split_all, &f);
    start_requests(&f);
    pid_t child = fork();
    if (child == 0)
        _exit(wrong_in_child(&f));
    check_child(child, 0);
    child = fork();
    if (child == 0)
        _exit(wrong_with_new_nodes());
    check_child(child, 1);
    for (int i = 0; i < MEMBERS; i++)
        hearth_request_close(f.requests[i]);
    fixture_works(&c);
    fixture_close(&c);
}
