/* SPDX-License-Identifier: Apache-2.0 */
/* Many requests at once, callbacks, limits, several threads of one node. */
#include <inttypes.h>
#include <stdatomic.h>

#include "conform/reference.h"

#define PATIENCE_MS 60000

/* ---- many ---- */

enum { MANY = 200 };

struct many {
    hearth_request *requests[MANY];
    int32_t *x[MANY];
    size_t count[MANY];
};

static void many_start(struct many *m, struct fixture *c, int rank, const struct hearth_opts *like)
{
    uint64_t seed = 51, shuffle = 1000 + (uint64_t)rank;
    int order[MANY];
    for (int i = 0; i < MANY; i++) {
        m->count[i] = i % 10 == 0 ? 1 + draw_below(&seed, 40000) : 1 + draw_below(&seed, 300);
        m->x[i] = must_alloc(m->count[i] * sizeof(int32_t));
        for (size_t k = 0; k < m->count[i]; k++)
            m->x[i][k] = (rank + 1) * (i + (int32_t)k);
        order[i] = i;
    }
    for (int i = MANY - 1; i > 0; i--) { /* every member starts them in an order of its own */
        int k = (int)draw_below(&shuffle, (uint64_t)i + 1), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
    for (int i = 0; i < MANY; i++) {
        struct hearth_opts opts = *like;
        int at = order[i];
        opts.tag = (uint64_t)at * 1000;
        check_ok(sum_in_place_nb(c->world[rank], m->x[at], m->count[at], &opts, &m->requests[at]));
    }
}

static void many_check(const struct many *m, const struct fixture *c, int rank, int i)
{
    int32_t factor = c->size * (c->size + 1) / 2;
    for (size_t k = 0; k < m->count[i]; k++)
        if (m->x[i][k] != factor * (i + (int32_t)k))
            check(false, "rank %d: operation %d: element %zu is %d", rank, i, k, m->x[i][k]);
}

static void many_free(struct many *m)
{
    for (int i = 0; i < MANY; i++) {
        hearth_request_close(m->requests[i]);
        free(m->x[i]);
    }
    free(m);
}

static void many_member(struct fixture *c, int rank, void *arg)
{
    struct many *m = must_alloc(sizeof *m);
    struct hearth_opts opts = opts_default();
    many_start(m, c, rank, &opts);
    hearth_request *left[MANY];
    memcpy(left, m->requests, sizeof left);
    for (int i = 0; i < MANY; i++) {
        size_t index = MANY;
        check_ok(hearth_request_wait_any(left, MANY, -1, &index));
        if (!check(index < MANY && left[index], "rank %d: index is %zu", rank, index))
            break;
        many_check(m, c, rank, (int)index);
        left[index] = NULL;
    }
    many_free(m);
}

TEST(test_two_hundred_at_once)
{
    for (int size = 1; size <= 4; size++) {
        struct hearth_config config;
        config_small(&config);
        fixture_often(3, size, size % 2 ? NULL : &config, many_member, NULL);
    }
}

/* ---- many that end badly at the same time ---- */

enum { BY_DEADLINE, BY_CANCEL, BY_FREE, BY_GROUP_CLOSE, BY_NODE_CLOSE, WAYS };

struct bad_end {
    int way;
    bool late; /* the others start theirs after the end */
};

static void bad_start(struct fixture *c, hearth_group *group, int32_t *x, hearth_request **requests,
                      int64_t timeout_ms)
{
    struct hearth_opts opts = opts_default();
    opts.timeout_ms = timeout_ms;
    for (int i = 0; i < MANY; i++) {
        opts.tag = (uint64_t)i % 50;
        check_ok(sum_in_place_nb(group, &x[i], 1, &opts, &requests[i]));
    }
}

/* Rank 0 starts and ends them its way; what the others, who take part without the last member, get. */
static void bad_end_member(struct fixture *c, int rank, void *arg)
{
    const struct bad_end *e = arg;
    hearth_request *requests[MANY] = {NULL};
    int32_t x[MANY] = {0};
    hearth_group *group = c->world[rank];
    if (e->way == BY_GROUP_CLOSE)
        check_ok(hearth_group_split(c->world[rank], 1, 0, NULL, &group));
    int last = c->size - 1;
    bool first = rank == 0;
    if (first || (!e->late && rank != last))
        bad_start(c, group, x, requests, first && e->way == BY_DEADLINE ? 30 : PATIENCE_MS);
    fixture_meet(c);
    if (first && e->way == BY_DEADLINE)
        check_status(hearth_request_wait_all(requests, MANY, -1), HEARTH_TIMEOUT);
    for (int i = 0; first && e->way == BY_CANCEL && i < MANY; i++)
        check_ok(hearth_request_cancel(requests[i]));
    for (int i = 0; first && e->way == BY_FREE && i < MANY; i++) {
        hearth_request_close(requests[i]);
        requests[i] = NULL;
    }
    if (first && e->way == BY_GROUP_CLOSE)
        hearth_group_close(group);
    fixture_meet(c);
    if (!first && !requests[0])
        bad_start(c, group, x, requests, PATIENCE_MS);
    for (int i = 0; !first && i < MANY; i++) {
        int status = hearth_request_wait(requests[i], -1);
        check(status == HEARTH_ABORTED, "way %d: rank %d, operation %d: %s: %s", e->way, rank, i,
              hearth_status_name(status), hearth_error_text());
    }
    for (int i = 0; i < MANY; i++)
        hearth_request_close(requests[i]);
    if (e->way == BY_GROUP_CLOSE && !first)
        hearth_group_close(group);
}

TEST(test_many_end_badly_at_once)
{
    for (int way = 0; way < BY_NODE_CLOSE; way++) {
        for (int late = 0; late <= 1; late++) {
            struct bad_end e = {way, late};
            fixture_often(3, 3, NULL, bad_end_member, &e);
        }
    }
}

static void lost_member(struct fixture *c, int rank, void *arg)
{
    hearth_request *requests[MANY] = {NULL};
    int32_t x[MANY] = {0};
    if (rank != 0)
        bad_start(c, c->world[rank], x, requests, PATIENCE_MS);
    fixture_meet(c);
    if (rank == 0) {
        hearth_node_close(c->nodes[0]);
        c->nodes[0] = NULL;
        return;
    }
    for (int i = 0; i < MANY; i++) {
        check_status(hearth_request_wait(requests[i], -1), HEARTH_PEER_LOST);
        check_text(hearth_request_error(requests[i]), "rank 0");
        hearth_request_close(requests[i]);
    }
}

TEST(test_many_lose_the_same_peer)
{
    for (int i = 0; i < 5; i++)
        fixture_once(3, NULL, lost_member, NULL);
}

/* ---- callbacks ---- */

struct callback {
    _Atomic(int) runs, status;
};

static void count_run(void *arg, int status)
{
    struct callback *b = arg;
    b->status = status;
    b->runs++;
}

static void callback_member(struct fixture *c, int rank, void *arg)
{
    struct callback b = {0};
    struct hearth_opts opts = opts_default();
    int32_t x = 1;
    hearth_request *request;
    opts.done = count_run;
    opts.done_arg = &b;
    check_ok(sum_in_place(c->world[rank], &x, 1, &opts));
    check(b.runs == 1 && b.status == HEARTH_OK, "rank %d: ran %d times, status %d", rank, b.runs, b.status);

    check_ok(hearth_barrier_nb(c->world[rank], &opts, &request));
    check_ok(hearth_request_wait(request, -1));
    check(b.runs == 2, "rank %d: the request was done before its callback had run", rank);
    check_ok(hearth_request_wait(request, -1));
    hearth_request_close(request);
    check(b.runs == 2, "rank %d: ran %d times", rank, b.runs);

    opts.tag = 9; /* cancelled: the callback hears of it, before cancel returns */
    b.runs = 0;
    fixture_meet(c);
    if (rank == 0) {
        check_ok(hearth_barrier_nb(c->world[rank], &opts, &request));
        check_ok(hearth_request_cancel(request));
        check(b.runs == 1 && b.status == HEARTH_CANCELLED, "ran %d times, status %d", b.runs, b.status);
        hearth_request_close(request);
        check_ok(hearth_barrier_nb(c->world[rank], &opts, &request));
        hearth_request_close(request);
        check(b.runs == 2 && b.status == HEARTH_CANCELLED, "ran %d times, status %d", b.runs, b.status);
    }
    fixture_meet(c);
    for (int i = 0; rank != 0 && i < 2; i++) {
        check_status(hearth_barrier(c->world[rank], &opts), HEARTH_ABORTED);
        check(b.runs == i + 1 && b.status == HEARTH_ABORTED, "ran %d times, status %d", b.runs, b.status);
    }
    /* refused before anything happened: no callback */
    b.runs = 0;
    opts.weight = -1;
    check_status(hearth_barrier(c->world[rank], &opts), HEARTH_INVALID);
    check(b.runs == 0, "the callback of a call that was refused has run");
}

TEST(test_callbacks_run_once)
{
    for (int size = 2; size <= 4; size++)
        fixture_often(20, size, NULL, callback_member, NULL);
}

/* A chain: each callback starts the next operation. */
struct chain {
    hearth_group *group;
    int left;
    int32_t x;
    struct hearth_opts opts;
    hearth_request **requests;
    int started;
    _Atomic(bool) over;
};

static void next_link(void *arg, int status)
{
    struct chain *chain = arg;
    check(status == HEARTH_OK, "a link of the chain: %s", hearth_status_name(status));
    if (status != HEARTH_OK || chain->left == 0) {
        chain->over = true;
        return;
    }
    chain->left--;
    hearth_request **request = &chain->requests[chain->started++];
    chain->x = 1;
    check_ok(sum_in_place_nb(chain->group, &chain->x, 1, &chain->opts, request));
}

static void chain_member(struct fixture *c, int rank, void *arg)
{
    const int *links = arg;
    struct chain chain = {.group = c->world[rank], .left = *links, .opts = opts_default()};
    chain.requests = must_alloc(((size_t)*links + 1) * sizeof(hearth_request *));
    chain.opts.done = next_link;
    chain.opts.done_arg = &chain;
    next_link(&chain, HEARTH_OK);
    while (!chain.over) /* the library drives it alone */
        sleep_ms(1);
    check(chain.x == c->size, "rank %d: the last sum is %d", rank, chain.x);
    for (int i = 0; i < chain.started; i++) {
        check_ok(hearth_request_wait(chain.requests[i], -1));
        hearth_request_close(chain.requests[i]);
    }
    free(chain.requests);
}

TEST(test_callbacks_start_operations)
{
    for (int size = 1; size <= 4; size++) {
        int links = 500;
        fixture_often(1, size, NULL, chain_member, &links);
    }
}

/* With one member each operation is over at once: the chain must not go down the stack. */
TEST(test_a_long_chain_of_one)
{
    int links = 100000;
    fixture_once(1, NULL, chain_member, &links);
}

/* ---- limits ---- */

static void limit_member(struct fixture *c, int rank, void *arg)
{
    enum { LIMIT = 10 };
    hearth_request *requests[LIMIT];
    int32_t x[LIMIT + 1];
    struct hearth_opts opts = opts_default();
    for (int i = 0; i <= LIMIT; i++)
        x[i] = 1;
    opts.timeout_ms = PATIENCE_MS;
    if (rank == 0) {
        for (int i = 0; i < LIMIT; i++) {
            opts.tag = (uint64_t)i;
            check_ok(sum_in_place_nb(c->world[0], &x[i], 1, &opts, &requests[i]));
        }
        opts.tag = LIMIT;
        check_status(sum_in_place(c->world[0], &x[LIMIT], 1, &opts), HEARTH_LIMIT);
        check_text(hearth_error_text(), "ops_max");
        check_text(hearth_error_text(), "10");
    }
    fixture_meet(c);
    for (int i = 0; rank != 0 && i < LIMIT; i++) {
        opts.tag = (uint64_t)i;
        check_ok(sum_in_place(c->world[rank], &x[i], 1, &opts));
    }
    if (rank != 0) { /* the one that rank 0 could not start ended for all */
        opts.tag = LIMIT;
        check_status(sum_in_place(c->world[rank], &x[LIMIT], 1, &opts), HEARTH_ABORTED);
        check_text(hearth_error_text(), "rank 0");
    }
    if (rank == 0) {
        check_ok(hearth_request_wait_all(requests, LIMIT, -1));
        for (int i = 0; i < LIMIT; i++)
            hearth_request_close(requests[i]);
    }
    for (int i = 0; i < LIMIT; i++)
        check(x[i] == c->size, "rank %d: sum %d is %d", rank, i, x[i]);
}

TEST(test_operations_in_flight_are_limited)
{
    struct hearth_config config;
    struct hearth_tuning tuning;
    config_tuned(&config, &tuning);
    tuning.ops_max = 10;
    fixture_often(5, 3, &config, limit_member, NULL);
}

/* As many as the limit allows, started by one member long before the others; large ones, so that each asks
 * for its data at once. */
static void far_ahead(struct fixture *c, int rank, void *arg)
{
    const size_t *count = arg;
    enum { AHEAD = 3000, SIZE = 20000 };
    hearth_request **requests = must_alloc(AHEAD * sizeof(hearth_request *));
    int32_t *x = must_alloc(SIZE * sizeof *x), *all = must_alloc(SIZE * MEMBERS_MAX * sizeof *all);
    memset(x, 0, SIZE * sizeof *x);
    if (rank != 0)
        fixture_meet(c);
    for (int i = 0; i < AHEAD; i++)
        check_ok(hearth_all_gather_nb(c->world[rank], x, all, *count, HEARTH_I32, NULL, &requests[i]));
    if (rank == 0)
        fixture_meet(c);
    check_ok(hearth_request_wait_all(requests, AHEAD, -1));
    for (int i = 0; i < AHEAD; i++)
        hearth_request_close(requests[i]);
    free(requests);
    free(x);
    free(all);
}

TEST(test_one_member_far_ahead)
{
    size_t counts[] = {1, 20000};
    for (int i = 0; i < 2; i++) {
        struct hearth_config config;
        struct hearth_tuning tuning;
        config_tuned(&config, &tuning);
        tuning.ops_max = 4000;
        fixture_often(1, 2, &config, far_ahead, &counts[i]);
    }
}

/* Memory: what does not fit ends with HEARTH_NO_MEMORY here and with HEARTH_ABORTED there. */
static void memory_member(struct fixture *c, int rank, void *arg)
{
    size_t count = *(const size_t *)arg;
    int32_t *x = must_alloc(count * sizeof *x);
    struct hearth_opts opts = opts_default();
    memset(x, 0, count * sizeof *x);
    opts.flags = HEARTH_FLAG_RESTORE; /* needs a copy of the input */
    int status = sum_in_place(c->world[rank], x, count, &opts);
    check(status == HEARTH_NO_MEMORY || status == HEARTH_ABORTED, "rank %d: %s: %s", rank,
          hearth_status_name(status), hearth_error_text());
    free(x);
}

TEST(test_memory_is_limited)
{
    struct fixture c;
    struct hearth_config config;
    size_t count = 3u << 20;
    hearth_config_init(&config);
    config.memory_max = 8u << 20;
    fixture_open(&c, 3, &config);
    for (int i = 0; i < 3; i++) {
        fixture_run(&c, memory_member, &count);
        fixture_works(&c);
    }
    for (int i = 0; i < 3; i++)
        check(metric(c.nodes[i], "hearth_memory_peak_bytes") <= config.memory_max, "node %d went beyond", i);
    fixture_close(&c);
}

/* ---- threads of one node ---- */

struct worker {
    hearth_group *group;
    uint64_t tag;
    int size, rank;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct hearth_opts opts = opts_default();
    enum { COUNT = 3000 };
    int32_t *x = must_alloc(COUNT * sizeof *x);
    opts.tag = w->tag;
    for (int round = 0; round < 150 / slow_factor(); round++) {
        int32_t base = (int32_t)w->tag * 1000 + round;
        size_t count = round % 3 == 0 ? COUNT : 2;
        for (size_t i = 0; i < count; i++)
            x[i] = base + w->rank;
        check_ok(sum_in_place(w->group, x, count, &opts));
        int32_t wanted = w->size * base + w->size * (w->size - 1) / 2;
        for (size_t i = 0; i < count; i++)
            if (x[i] != wanted)
                check(false, "tag %" PRIu64 ": %d, not %d", w->tag, x[i], wanted);
    }
    free(x);
    return NULL;
}

/* Two threads per node (and three) block at the same time, each under a tag of its own. */
static void threads_member(struct fixture *c, int rank, void *arg)
{
    const int *count = arg;
    pthread_t threads[4];
    struct worker workers[4];
    for (int i = 0; i < *count; i++) {
        workers[i] = (struct worker){c->world[rank], (uint64_t)i + 1, c->size, rank};
        if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0)
            abort();
    }
    for (int i = 0; i < *count; i++)
        pthread_join(threads[i], NULL);
}

TEST(test_threads_of_one_node)
{
    for (int count = 2; count <= 3; count++)
        fixture_once(3, NULL, threads_member, &count);
}

/* One request, waited for by two threads. */
static void *wait_too(void *arg)
{
    check_ok(hearth_request_wait(arg, -1));
    return NULL;
}

static void shared_member(struct fixture *c, int rank, void *arg)
{
    pthread_t other;
    hearth_request *request;
    if (rank == 1) {
        fixture_meet(c);
        check_ok(hearth_barrier(c->world[1], NULL));
        return;
    }
    check_ok(hearth_barrier_nb(c->world[0], NULL, &request));
    if (pthread_create(&other, NULL, wait_too, request) != 0)
        abort();
    fixture_meet(c);
    check_ok(hearth_request_wait(request, -1));
    pthread_join(other, NULL);
    hearth_request_close(request);
}

TEST(test_two_threads_wait_for_one_request)
{
    fixture_often(100, 2, NULL, shared_member, NULL);
}
