/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: test, wait, wait_all, wait_any, cancel, free, descriptors, deadlines, restore, limits. */
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>

#include "conform/reference.h"

#define PATIENCE_MS 60000

static hearth_request *start_sum(hearth_group *group, int32_t *x, size_t count,
                                 const struct hearth_opts *opts)
{
    hearth_request *request = NULL;
    check_ok(sum_in_place_nb(group, x, count, opts, &request));
    return request;
}

/* ---- test and wait ---- */

static void test_and_wait(struct fixture *c, int rank, void *arg)
{
    int32_t x = rank + 1;
    hearth_group *g = c->world[rank];
    if (rank != 0) {
        fixture_meet(c); /* rank 0 has looked at an operation that cannot have ended */
        check_ok(sum_in_place(g, &x, 1, NULL));
        return;
    }
    hearth_request *request = start_sum(g, &x, 1, NULL);
    check_status(hearth_request_test(request), HEARTH_PENDING);
    check_status(hearth_request_wait(request, 0), HEARTH_PENDING);
    check_status(hearth_request_wait(request, 20), HEARTH_PENDING); /* runs out, does not cancel */
    check_status(hearth_request_wait_all(&request, 1, 1), HEARTH_PENDING);
    check(strcmp(hearth_request_error(request), "") == 0, "an error: %s", hearth_request_error(request));
    fixture_meet(c);
    check_ok(hearth_request_wait(request, -1));
    check(hearth_request_error_rank(request) == -1, "about rank %d", hearth_request_error_rank(request));
    check(x == 6, "sum is %d", x);
    check_ok(hearth_request_test(request)); /* again after the end */
    check_ok(hearth_request_wait(request, 0));
    check_ok(hearth_request_wait(request, INT64_MAX));
    check_ok(hearth_request_cancel(request)); /* too late, and harmless */
    check_ok(hearth_request_test(request));
    hearth_request_close(request);
}

TEST(test_test_and_wait)
{
    fixture_often(1, 3, NULL, test_and_wait, NULL);
}

/* A timeout of centuries is not one of zero. */
static void long_wait(struct fixture *c, int rank, void *arg)
{
    const int64_t *timeout_ms = arg;
    int32_t x = 1;
    if (rank == 1)
        sleep_ms(20);
    hearth_request *request = start_sum(c->world[rank], &x, 1, NULL);
    size_t index = 7;
    check_ok(hearth_request_wait(request, *timeout_ms));
    check_ok(hearth_request_wait_all(&request, 1, *timeout_ms));
    check_ok(hearth_request_wait_any(&request, 1, *timeout_ms, &index));
    hearth_request_close(request);
}

TEST(test_the_longest_waits)
{
    int64_t timeouts[] = {INT64_MAX, INT64_MAX / 1000, INT64_MAX / 1000000, INT64_MAX / 500000, -1};
    struct fixture c;
    fixture_open(&c, 2, NULL);
    for (size_t i = 0; i < sizeof timeouts / sizeof *timeouts; i++)
        fixture_run(&c, long_wait, &timeouts[i]);
    fixture_close(&c);
}

/* ---- several ---- */

enum { SEVERAL = 8 };

static void several(struct fixture *c, int rank, void *arg)
{
    hearth_request *requests[SEVERAL + 2] = {NULL};
    int32_t x[SEVERAL];
    struct hearth_opts opts = opts_default();
    for (int i = 0; i < SEVERAL; i++) {
        x[i] = (rank + 1) * i;
        opts.tag = (uint64_t)i;
        requests[i + 1] = start_sum(c->world[rank], &x[i], 1, &opts);
    }
    check_ok(hearth_request_wait_all(requests, SEVERAL + 2, -1));
    for (int i = 0; i < SEVERAL; i++) {
        check(x[i] == i * c->size * (c->size + 1) / 2, "rank %d: sum %d is %d", rank, i, x[i]);
        hearth_request_close(requests[i + 1]);
    }
}

TEST(test_wait_all)
{
    fixture_once(3, NULL, several, NULL);
    /* nothing to wait for */
    hearth_request *none[2] = {NULL, NULL};
    size_t index = 7;
    check_ok(hearth_request_wait_all(none, 2, -1));
    check_ok(hearth_request_wait_all(NULL, 0, -1));
    check_status(hearth_request_wait_any(none, 2, -1, &index), HEARTH_INVALID);
    check(index == 7, "index was set to %zu", index);
    checks_end();
}

/* The first bad status in order of the array, though a later one failed earlier. */
static void first_bad(struct fixture *c, int rank, void *arg)
{
    int32_t x[6] = {1, 1, 1, 1, 1, 1};
    hearth_request *requests[3];
    struct hearth_opts opts = opts_default();
    for (int i = 0; i < 2 + rank; i++) {
        opts.tag = (uint64_t)i;
        requests[i] = start_sum(c->world[rank], &x[2 * i], i == 1 && rank == 0 ? 2 : 1, &opts);
    }
    if (rank == 1) {
        check_ok(hearth_request_cancel(requests[2]));
        check_error(hearth_request_wait_all(requests, 3, -1), HEARTH_MISMATCH, "rank 0");
        check_ok(hearth_request_test(requests[0]));
        check_status(hearth_request_test(requests[2]), HEARTH_CANCELLED);
    } else {
        check_status(hearth_request_wait_all(requests, 2, -1), HEARTH_MISMATCH);
    }
    for (int i = 0; i < 2 + rank; i++)
        hearth_request_close(requests[i]);
    fixture_meet(c);
    opts.tag = 2;
    if (rank == 0)
        check_status(sum_in_place(c->world[0], x, 1, &opts), HEARTH_ABORTED);
}

TEST(test_wait_all_gives_the_first_bad)
{
    fixture_often(1, 2, NULL, first_bad, NULL);
}

/* Rank 1 starts them in an order of its own, one after the other: rank 0 sees each end. */
static void any_member(struct fixture *c, int rank, void *arg)
{
    const int *order = arg;
    hearth_request *requests[SEVERAL];
    int32_t x[SEVERAL];
    struct hearth_opts opts = opts_default();
    if (rank == 1) {
        for (int i = 0; i < SEVERAL; i++) {
            fixture_meet(c);
            opts.tag = (uint64_t)order[i];
            x[i] = 1;
            check_ok(sum_in_place(c->world[1], &x[i], 1, &opts));
        }
        return;
    }
    for (int i = 0; i < SEVERAL; i++) {
        opts.tag = (uint64_t)i;
        x[i] = i;
        requests[i] = start_sum(c->world[0], &x[i], 1, &opts);
    }
    for (int i = 0; i < SEVERAL; i++) {
        size_t index = 99;
        check_status(hearth_request_wait_any(requests, SEVERAL, 1, &index), HEARTH_PENDING);
        check(index == 99, "index was set to %zu", index);
        fixture_meet(c);
        check_ok(hearth_request_wait_any(requests, SEVERAL, -1, &index));
        check(index == (size_t)order[i], "%zu ended, not %d", index, order[i]);
        check(x[order[i]] == order[i] + 1, "sum is %d", x[order[i]]);
        hearth_request_close(requests[order[i]]);
        requests[order[i]] = NULL;
    }
}

TEST(test_wait_any)
{
    int order[SEVERAL] = {3, 0, 7, 1, 6, 2, 5, 4};
    fixture_once(2, NULL, any_member, order);
}

/* Requests of four nodes, waited for by one thread; nobody else drives them. */
TEST(test_wait_for_several_nodes)
{
    enum { NODES = 4 };
    struct fixture c;
    hearth_request *requests[NODES];
    int32_t x[NODES], *large[NODES];
    fixture_open(&c, NODES, NULL);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < NODES; i++) {
            x[i] = i;
            requests[i] = start_sum(c.world[i], &x[i], 1, NULL);
        }
        for (int i = 0; i < NODES; i++) {
            size_t index = 99;
            check_ok(hearth_request_wait_any(requests, NODES, -1, &index));
            if (!check(index < NODES && requests[index], "index is %zu", index))
                break;
            check(x[index] == 6, "sum is %d", x[index]);
            hearth_request_close(requests[index]);
            requests[index] = NULL;
        }
    }
    for (int i = 0; i < NODES; i++) {
        large[i] = must_alloc(400000 * sizeof(int32_t));
        memset(large[i], 0, 400000 * sizeof(int32_t));
        requests[i] = start_sum(c.world[i], large[i], 400000, NULL);
    }
    check_ok(hearth_request_wait_all(requests, NODES, -1));
    for (int i = 0; i < NODES; i++) {
        hearth_request_close(requests[i]);
        free(large[i]);
    }
    fixture_close(&c);
}

/* ---- cancel ---- */

struct ending {
    size_t count;
    bool by_free; /* hearth_request_close instead of hearth_request_cancel */
    bool late;    /* the others post after the cancel */
    bool restore;
};

static void cancel_member(struct fixture *c, int rank, void *arg)
{
    const struct ending *e = arg;
    size_t len = e->count * sizeof(int32_t);
    int32_t *x = must_alloc(len), *copy = must_alloc(len);
    struct hearth_opts opts = opts_default();
    hearth_request *request = NULL;
    for (size_t i = 0; i < e->count; i++)
        copy[i] = x[i] = (int32_t)i * (rank + 3);
    opts.flags = e->restore ? HEARTH_FLAG_RESTORE : 0;
    opts.timeout_ms = PATIENCE_MS;
    int last = c->size - 1; /* never starts: nothing can have ended when it is cancelled */
    if (rank != last && (rank == 1 || !e->late))
        request = start_sum(c->world[rank], x, e->count, &opts);
    fixture_meet(c);
    if (rank == 1 && e->by_free) {
        hearth_request_close(request);
    } else if (rank == 1) {
        check_ok(hearth_request_cancel(request));
        check_status(hearth_request_test(request), HEARTH_CANCELLED);
        check_text(hearth_request_error(request), "cancelled");
        hearth_request_close(request);
    }
    if (rank == 1)
        memset(x, 0x77, e->restore ? 0 : len); /* the buffers are free: nothing may touch them any more */
    fixture_meet(c);
    if (rank != 1) {
        if (!request)
            request = start_sum(c->world[rank], x, e->count, &opts);
        check_status(hearth_request_wait(request, -1), HEARTH_ABORTED);
        check_text(hearth_request_error(request), "rank 1");
        check(hearth_request_error_rank(request) == 1, "about rank %d", hearth_request_error_rank(request));
        check(hearth_request_error_reason(request) == HEARTH_REASON_CANCELLED, "because of %s",
              hearth_reason_name(hearth_request_error_reason(request)));
        hearth_request_close(request);
    }
    fixture_meet(c);
    if (e->restore)
        check(memcmp(x, copy, len) == 0, "rank %d: the input was not given back", rank);
    for (size_t i = 0; rank == 1 && !e->restore && i < e->count; i++)
        if (x[i] != 0x77777777)
            check(false, "element %zu was written after the cancel", i);
    free(x);
    free(copy);
}

TEST(test_cancel)
{
    const size_t counts[] = {1, 1000, 60000, 700000};
    struct fixture c;
    fixture_open(&c, 3, NULL);
    for (int i = 0; i < 4 * 8 * 2; i++) {
        struct ending e = {
            .count = counts[i % 4], .by_free = i / 4 & 1, .late = i / 8 & 1, .restore = i / 16 & 1};
        fixture_run(&c, cancel_member, &e);
        if (i % 7 == 0)
            fixture_works(&c);
    }
    fixture_works(&c);
    fixture_close(&c);
}

/* Cancelled in the middle: all members run it, at some point one gives up. Each ends with the result or with
 * an error; with an error the input is back. */
static void cancel_midway(struct fixture *c, int rank, void *arg)
{
    const int *spin = arg;
    enum { COUNT = 300000 };
    int32_t *x = must_alloc(COUNT * sizeof *x);
    struct hearth_opts opts = opts_default();
    for (int i = 0; i < COUNT; i++)
        x[i] = i * (rank + 1);
    opts.flags = HEARTH_FLAG_RESTORE;
    hearth_request *request = start_sum(c->world[rank], x, COUNT, &opts);
    int status = HEARTH_PENDING;
    for (int i = 0; rank == 0 && status == HEARTH_PENDING && i < *spin; i++)
        status = hearth_request_test(request);
    if (rank == 0)
        check_ok(hearth_request_cancel(request));
    status = hearth_request_wait(request, -1);
    check(status == HEARTH_OK || status == (rank == 0 ? HEARTH_CANCELLED : HEARTH_ABORTED), "rank %d: %s",
          rank, hearth_status_name(status));
    int factor = status == HEARTH_OK ? c->size * (c->size + 1) / 2 : rank + 1;
    for (int i = 0; i < COUNT; i++)
        if (x[i] != i * factor)
            check(false, "rank %d: element %d is %d after %s", rank, i, x[i], hearth_status_name(status));
    hearth_request_close(request);
    free(x);
}

TEST(test_cancel_midway_restores)
{
    struct fixture c;
    fixture_open(&c, 4, NULL);
    for (int spin = 0; spin < 60; spin++)
        fixture_run(&c, cancel_midway, &spin);
    fixture_works(&c);
    fixture_close(&c);
}

/* Every in-place collective gives its input back. */
static void restore_member(struct fixture *c, int rank, void *arg)
{
    struct job *job = arg;
    hearth_request *request = NULL;
    bool gives = rank != c->size - 1;
    if (gives)
        check_ok(job_start(job, c->world[rank], rank, &request));
    fixture_meet(c);
    if (rank == 0)
        check_ok(hearth_request_cancel(request));
    fixture_meet(c);
    if (!gives)
        check_ok(job_start(job, c->world[rank], rank, &request));
    int status = hearth_request_wait(request, -1);
    check(status == HEARTH_OK || status == (rank == 0 ? HEARTH_CANCELLED : HEARTH_ABORTED), "%s: rank %d: %s",
          job_name(job), rank, hearth_status_name(status));
    if (status != HEARTH_OK)
        check(memcmp(job->source[rank], job->input[rank],
                     job_source_count(job, rank) * hearth_dtype_size(job->dtype)) == 0,
              "%s: rank %d: the input was not given back", job_name(job), rank);
    hearth_request_close(request);
}

TEST(test_every_collective_restores)
{
    const enum kind kinds[] = {ALL_REDUCE, REDUCE_SCATTER, REDUCE_SCATTERV, ALL_GATHER, REDUCE,
                               GATHER,     ALL_TO_ALL,     ALL_TO_ALLV,     SCAN,       EXCLUSIVE_SCAN};
    struct fixture c;
    fixture_open(&c, 3, NULL);
    for (size_t i = 0; i < 2 * sizeof kinds / sizeof *kinds; i++) {
        struct job job;
        job_init(&job, kinds[i / 2], 3, i % 2 ? 7 : 90000);
        job.root = 1;
        job.dtype = HEARTH_I32;
        job.in_place = true;
        job.opts.flags = HEARTH_FLAG_RESTORE;
        job.opts.timeout_ms = PATIENCE_MS;
        job_prepare(&job);
        fixture_run(&c, restore_member, &job);
        job_free(&job);
    }
    fixture_works(&c);
    fixture_close(&c);
}

/* ---- descriptors ---- */

static bool readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN);
}

static void descriptor(struct fixture *c, int rank, void *arg)
{
    int32_t x[2] = {1, 1};
    if (rank == 1) {
        fixture_meet(c);
        check_ok(sum_in_place(c->world[1], x, 2, NULL));
        return;
    }
    hearth_request *request = start_sum(c->world[0], x, 2, NULL);
    int fd = hearth_request_fd(request);
    check(fd >= 0, "no descriptor: %s", hearth_error_text());
    check(hearth_request_fd(request) == fd, "another descriptor");
    check(!readable(fd, 5), "readable before the end");
    fixture_meet(c);
    check(readable(fd, PATIENCE_MS), "not readable after the end"); /* nobody waits: the library drives */
    check(readable(fd, 0), "readable only once");
    check_ok(hearth_request_test(request));
    check(x[0] == 2 && x[1] == 2, "sums are %d and %d", x[0], x[1]);
    hearth_request_close(request);
}

TEST(test_descriptor)
{
    struct fixture c;
    fixture_open(&c, 2, NULL);
    for (int i = 0; i < 30; i++)
        fixture_run(&c, descriptor, NULL);
    fixture_close(&c);

    fixture_open(&c, 1, NULL); /* asked for after the end */
    int32_t x = 1;
    hearth_request *request = start_sum(c.world[0], &x, 1, NULL);
    check_ok(hearth_request_wait(request, -1));
    check(readable(hearth_request_fd(request), 0), "not readable");
    hearth_request_close(request);
    fixture_close(&c);
}

/* ---- deadlines ---- */

static void deadline_member(struct fixture *c, int rank, void *arg)
{
    const size_t *count = arg;
    int32_t *x = must_alloc(*count * sizeof *x);
    memset(x, 0, *count * sizeof *x);
    struct hearth_opts opts = opts_default();
    int late = c->size - 1;
    opts.algo = HEARTH_ALGO_EXCHANGE; /* everyone waits for everyone, so for the late one too */
    if (rank != late) {
        opts.timeout_ms = 150 * slow_factor() + rank; /* enough for all but the late one to come */
        int status = sum_in_place(c->world[rank], x, *count, &opts);
        char who[32];
        snprintf(who, sizeof who, "waiting for rank %d", late);
        check(status == HEARTH_TIMEOUT || status == HEARTH_ABORTED, "rank %d: %s", rank,
              hearth_status_name(status));
        check_text(hearth_error_text(), who);
        check_text(hearth_error_text(), "timed out"); /* as programs that know other libraries look for it */
        check_text(hearth_error_text(), " timeout ");
    }
    fixture_meet(c);
    if (rank == late) {
        check_status(sum_in_place(c->world[rank], x, *count, &opts), HEARTH_ABORTED);
        check(hearth_error_reason() == HEARTH_REASON_TIMED_OUT, "because of %s: %s",
              hearth_reason_name(hearth_error_reason()), hearth_error_text());
    }
    free(x);
}

TEST(test_deadline_names_who_is_late)
{
    size_t counts[] = {1, 50000, 400000};
    for (int size = 2; size <= 4; size++) {
        struct fixture c;
        fixture_open(&c, size, NULL);
        for (size_t i = 0; i < 3; i++) {
            fixture_run(&c, deadline_member, &counts[i]);
            fixture_works(&c);
        }
        fixture_close(&c);
    }
}

/* Whatever way the data takes: the rank that is named is the late one, or none, never one that waits too. */
static void blaming_member(struct fixture *c, int rank, void *arg)
{
    const enum hearth_algo *algo = arg;
    enum { COUNT = 200000, LATE = 2 };
    int32_t *x = must_alloc(COUNT * sizeof *x);
    memset(x, 0, COUNT * sizeof *x);
    struct hearth_opts opts = opts_default();
    opts.algo = *algo;
    opts.timeout_ms = 800 * slow_factor() + 10 * rank; /* enough for all but the late one to come */
    fixture_meet(c);
    if (rank != LATE && sum_in_place(c->world[rank], x, COUNT, &opts) == HEARTH_TIMEOUT)
        check(hearth_error_rank() == LATE || hearth_error_rank() == -1, "%s: rank %d names rank %d: %s",
              hearth_algo_name(*algo), rank, hearth_error_rank(), hearth_error_text());
    fixture_meet(c);
    opts.timeout_ms = -1;
    if (rank == LATE)
        check_status(sum_in_place(c->world[rank], x, COUNT, &opts), HEARTH_ABORTED);
    free(x);
}

TEST(test_deadline_blames_nobody_who_waits)
{
    enum hearth_algo algos[] = {HEARTH_ALGO_RING, HEARTH_ALGO_HALVING, HEARTH_ALGO_TREE};
    struct fixture c;
    fixture_open(&c, 4, NULL);
    for (size_t i = 0; i < sizeof algos / sizeof *algos; i++) {
        fixture_run(&c, blaming_member, &algos[i]);
        fixture_works(&c);
    }
    fixture_close(&c);
}

/* Of the node's config, and zero: only what is done at once. */
TEST(test_deadlines_of_config_and_of_zero)
{
    struct fixture c;
    struct hearth_config config;
    int32_t x = 1;
    hearth_config_init(&config);
    config.op_timeout_ms = 30;
    fixture_open(&c, 2, &config);
    check_error(sum_in_place(c.world[0], &x, 1, NULL), HEARTH_TIMEOUT, "30 ms");
    check_status(sum_in_place(c.world[1], &x, 1, NULL), HEARTH_ABORTED);
    struct hearth_opts opts = opts_default();
    opts.timeout_ms = 0;
    opts.tag = 1;
    check_status(sum_in_place(c.world[0], &x, 1, &opts), HEARTH_TIMEOUT);
    check_status(sum_in_place(c.world[1], &x, 1, &opts), HEARTH_ABORTED);
    fixture_close(&c);

    fixture_open(&c, 1, NULL);
    check_ok(sum_in_place(c.world[0], &x, 1, &opts));
    fixture_close(&c);
}
