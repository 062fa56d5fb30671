/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers in device memory: every collective, failures of the adapter, cancel, deadlines and close while it
 * copies. */
#include "conform/on_device.h"

#include <stdatomic.h>

/* ---- every collective ---- */

static void draw_job(struct job *job, uint64_t *seed)
{
    job->seed = draw_below(seed, 1u << 30);
    job->root = (int)draw_below(seed, (uint64_t)job->size);
    job->in_place = draw(seed) & 1;
    job->nonblocking = draw(seed) & 1;
    job->null_target = draw(seed) & 1;
    job->dtype = (enum hearth_dtype)draw_below(seed, DTYPES);
    job->offset = hearth_dtype_size(job->dtype) * draw_below(seed, 4);
    job->opts.flags = draw(seed) & 1 ? HEARTH_FLAG_RESTORE : 0;
    if (kind_is_vector(job->kind))
        job_draw_counts(job);
}

static void all_kinds(struct fixture *c, struct fake_device *device, const size_t *counts, int rounds)
{
    uint64_t seed = 77 + (uint64_t)c->size;
    for (int kind = 0; kind < KIND_COUNT; kind++)
        for (int i = 0; i < rounds; i++)
            for (int way = 0; way < 4; way++) {
                struct job job;
                job_init(&job, (enum kind)kind, c->size, kind == BARRIER ? 0 : counts[i]);
                draw_job(&job, &seed);
                job.in_place = way & 1;
                job.nonblocking = way & 2;
                if (kind_is_vector(job.kind))
                    job_draw_counts(&job);
                job.device = device;
                job_do(&job, c);
            }
}

TEST(every_collective_on_device_memory)
{
    const size_t counts[] = {1, 0, 4097, 100003};
    for (int size = 1; size <= 4; size++) {
        struct fixture c;
        struct fake_device device;
        open_device(&c, size, NULL, &device);
        all_kinds(&c, &device, counts, 4);
        close_device(&c, &device);
    }
}

/* Many lanes, which wait for their pieces. */
TEST(every_collective_in_small_chunks)
{
    const size_t counts[] = {200001};
    struct hearth_config config;
    struct fixture c;
    struct fake_device device;
    config_small(&config);
    open_device(&c, 3, &config, &device);
    all_kinds(&c, &device, counts, 1);
    close_device(&c, &device);
}

/* Members with different memory, and an adapter for one call only. */
static void mixed_member(struct fixture *c, int rank, void *arg)
{
    struct fake_device *device = arg;
    struct hearth_opts opts = opts_default();
    enum { COUNT = 500000 };
    int32_t *seen =
        rank == 0 ? must_alloc(COUNT * sizeof *seen) : fake_device_alloc(device, COUNT * sizeof *seen);
    for (int i = 0; i < COUNT; i++)
        seen[i] = i + rank;
    if (rank > 0)
        opts.memory = &device->memory;
    void *x = rank > 0 ? fake_device_address(device, seen) : seen;
    check_ok(hearth_all_reduce(c->world[rank], x, x, COUNT, HEARTH_I32, HEARTH_OP_SUM, &opts));
    bool good = true;
    for (int i = 0; i < COUNT; i++)
        good = good && seen[i] == 3 * i + 3;
    check(good, "rank %d has a wrong sum", rank);
    if (rank == 0)
        free(seen);
}

TEST(members_with_different_memory)
{
    struct fake_device device;
    fake_device_open(&device, DEVICE_LEN);
    fixture_once(3, NULL, mixed_member, &device);
    fake_device_close(&device);
}

/* ---- order ---- */

/* Under one tag in the order of the calls, whatever is to be copied. */
static void order_member(struct fixture *c, int rank, void *arg)
{
    struct fake_device *device = arg;
    enum { CALLS = 24 };
    hearth_request *requests[2 * CALLS];
    int32_t *seen[CALLS];
    for (int i = 0; i < CALLS; i++) {
        size_t count = i % 3 == 0 ? 300000 : 10;
        seen[i] = fake_device_alloc(device, count * sizeof *seen[i]);
        seen[i][0] = i;
        seen[i][count - 1] = i;
        void *x = fake_device_address(device, seen[i]);
        check_ok(hearth_all_reduce_nb(c->world[rank], x, x, count, HEARTH_I32, HEARTH_OP_SUM, NULL,
                                      &requests[2 * i]));
        check_ok(hearth_barrier_nb(c->world[rank], NULL, &requests[2 * i + 1]));
    }
    check_ok(hearth_request_wait_all(requests, 2 * CALLS, -1));
    for (int i = 0; i < CALLS; i++)
        check(seen[i][0] == i * c->size, "sum %d is %d", i, seen[i][0]);
    for (int i = 0; i < 2 * CALLS; i++)
        hearth_request_close(requests[i]);
}

TEST(operations_keep_their_order)
{
    struct fixture c;
    struct fake_device device;
    open_device(&c, 3, NULL, &device);
    fixture_run(&c, order_member, &device);
    close_device(&c, &device);
}

/* ---- arguments, groups ---- */

static void groups_member(struct fixture *c, int rank, void *arg)
{
    struct fake_device *device = arg;
    hearth_group *half = NULL;
    check_ok(hearth_group_split(c->world[rank], rank % 2, rank, NULL, &half));
    int64_t *seen = fake_device_alloc(device, sizeof *seen);
    *seen = rank;
    void *x = fake_device_address(device, seen);
    check_ok(hearth_all_reduce(half, x, x, 1, HEARTH_I64, HEARTH_OP_SUM, NULL));
    check(*seen == 2 * (rank % 2) + 2, "sum is %d", (int)*seen);
    check_ok(hearth_group_same(half, x, sizeof *seen, NULL, NULL));
    *seen = rank;
    check_status(hearth_group_same(half, x, sizeof *seen, NULL, NULL), HEARTH_DIFFERS);
    check_ok(hearth_group_set_memory(half, NULL));
    check_ok(hearth_all_reduce(half, seen, seen, 1, HEARTH_I64, HEARTH_OP_SUM, NULL));
    check(*seen == 2 * (rank % 2) + 2, "sum in host memory is %d", (int)*seen);
    hearth_group_close(half);
}

TEST(splits_take_the_memory_along)
{
    struct fixture c;
    struct fake_device device;
    open_device(&c, 4, NULL, &device);
    fixture_run(&c, groups_member, &device);
    close_device(&c, &device);
}

TEST(an_adapter_has_all_functions_or_none)
{
    struct fixture c;
    struct fake_device device;
    struct hearth_memory memory;
    fixture_open(&c, 1, NULL);
    fake_device_open(&device, 4096);
    memory = device.memory;
    memory.wait = NULL;
    assert_int_equal(hearth_group_set_memory(c.world[0], &memory), HEARTH_INVALID);
    check_text(hearth_error_text(), "memory.wait is NULL");
    memory.size = 3;
    assert_int_equal(hearth_group_set_memory(c.world[0], &memory), HEARTH_INVALID);
    assert_int_equal(hearth_group_set_memory(NULL, NULL), HEARTH_INVALID);
    hearth_memory_init(&memory);
    assert_ok(hearth_group_set_memory(c.world[0], &memory));
    checks_end();
    fake_device_close(&device);
    fixture_close(&c);
}

/* ---- failures ---- */

static int failing_call(hearth_group *group, void *x, const struct failure *f, char text[TEXT_MAX])
{
    hearth_request *request = NULL;
    int status;
    if (f->nonblocking) {
        check_ok(hearth_all_reduce_nb(group, x, x, f->count, HEARTH_I32, HEARTH_OP_SUM, NULL, &request));
        status = hearth_request_wait(request, -1);
        snprintf(text, TEXT_MAX, "%s", hearth_request_error(request));
        hearth_request_close(request);
    } else {
        status = hearth_all_reduce(group, x, x, f->count, HEARTH_I32, HEARTH_OP_SUM, NULL);
        snprintf(text, TEXT_MAX, "%s", hearth_error_text());
    }
    return status;
}

static void failing_member(struct fixture *c, int rank, void *arg)
{
    const struct failure *f = arg;
    char text[TEXT_MAX];
    int32_t *seen = rank == 1 ? fake_device_alloc(f->device, f->count * sizeof *seen)
                              : must_alloc(f->count * sizeof *seen);
    for (size_t i = 0; i < f->count; i++)
        seen[i] = 5;
    void *x = rank == 1 ? fake_device_address(f->device, seen) : seen;
    int status = failing_call(c->world[rank], x, f, text);
    int wanted = rank == 1 ? HEARTH_COPY_FAILED : f->before ? HEARTH_ABORTED : HEARTH_OK;
    check(status == wanted, "rank %d: %s: %s", rank, hearth_status_name(status), text);
    if (status != HEARTH_OK) {
        check_text(text, f->word);
        check_text(text, "-77");
    }
    if (rank == 1 && f->before)
        check(seen[0] == 5 && seen[f->count - 1] == 5, "the device was written");
    if (rank != 1)
        free(seen);
}

static void fail_once(struct fixture *c, struct failure *f)
{
    fake_device_reset(f->device);
    assert_ok(hearth_group_set_memory(c->world[1], &f->device->memory));
    fixture_run(c, failing_member, f);
    assert_ok(hearth_group_set_memory(c->world[1], NULL));
    fixture_works(c);
}

TEST(failures_of_the_adapter_reach_all_members)
{
    struct fixture c;
    struct fake_device device;
    fixture_open(&c, 3, NULL);
    fake_device_open(&device, DEVICE_LEN);
    for (int i = 0; i < 4; i++) {
        struct failure f = {.device = &device, .nonblocking = i & 1, .count = i & 2 ? 1500000 : 10};
        int pieces = i & 2 ? 3 : 0; /* not the first */
        f.before = true;
        f.word = "copy_in";
        atomic_store(&device.in_left, pieces);
        fail_once(&c, &f);
        f.word = "wait";
        atomic_store(&device.wait_left, pieces);
        fail_once(&c, &f);
        f.before = false;
        f.word = "copy_out";
        atomic_store(&device.out_left, pieces);
        fail_once(&c, &f);
        f.word = "wait";
        atomic_store(&device.wait_left, i & 2 ? 8 : 1);
        fail_once(&c, &f);
    }
    fixture_close(&c);
    assert_int_equal(atomic_load(&device.wrong), 0);
    fake_device_close(&device);
}

/* ---- while it copies ---- */

static void done_counts(void *arg, int status)
{
    (void)status;
    atomic_fetch_add((_Atomic(int) *)arg, 1);
}

static void until_inside(struct fake_device *device)
{
    while (atomic_load(&device->inside) == 0)
        sleep_ms(1);
}

struct pause {
    struct fake_device device; /* of rank 0 */
    _Atomic(int) done;
    _Atomic(bool) cancelled;
};

/* A thread that lets the device go on when the cancel waits for it. */
static void *unpause(void *arg)
{
    struct pause *p = arg;
    sleep_ms(30);
    atomic_store(&p->device.paused, false);
    return NULL;
}

static void cancel_member(struct fixture *c, int rank, void *arg)
{
    struct pause *p = arg;
    enum { COUNT = 1000 };
    int32_t host[COUNT] = {0}, *seen = fake_device_alloc(&p->device, sizeof host);
    memset(seen, 1, sizeof host);
    if (rank > 0) {
        check_error(sum_in_place(c->world[rank], host, COUNT, NULL), HEARTH_ABORTED, "cancelled");
        return;
    }
    struct hearth_opts opts = opts_default();
    hearth_request *request;
    pthread_t thread;
    opts.done = done_counts;
    opts.done_arg = &p->done;
    opts.memory = &p->device.memory;
    atomic_store(&p->device.paused, true);
    void *x = fake_device_address(&p->device, seen);
    check_ok(hearth_all_reduce_nb(c->world[0], x, x, COUNT, HEARTH_I32, HEARTH_OP_SUM, &opts, &request));
    until_inside(&p->device);
    check_status(hearth_request_test(request), HEARTH_PENDING);
    pthread_create(&thread, NULL, unpause, p);
    check_ok(hearth_request_cancel(request));
    check(!atomic_load(&p->device.paused), "the request ended while the device was still copying");
    check_status(hearth_request_test(request), HEARTH_CANCELLED);
    check(atomic_load(&p->done) == 1, "the callback ran %d times", atomic_load(&p->done));
    check(seen[0] == 0x01010101, "the device was written");
    pthread_join(thread, NULL);
    hearth_request_close(request);
}

TEST(cancel_while_it_copies)
{
    struct pause p = {0};
    fake_device_open(&p.device, DEVICE_LEN);
    struct fixture c;
    fixture_open(&c, 3, NULL);
    fixture_run(&c, cancel_member, &p);
    fixture_works(&c);
    fixture_close(&c);
    fake_device_close(&p.device);
}

static void late_member(struct fixture *c, int rank, void *arg)
{
    struct pause *p = arg;
    struct hearth_opts opts = opts_default();
    int32_t host = 1, *seen = fake_device_alloc(&p->device, sizeof host);
    if (rank > 0) {
        int status = sum_in_place(c->world[rank], &host, 1, NULL);
        check(status == HEARTH_ABORTED, "rank %d: %s", rank, hearth_status_name(status));
        check_text(hearth_error_text(), "input to be copied");
        return;
    }
    pthread_t thread;
    opts.memory = &p->device.memory;
    opts.timeout_ms = 5;
    atomic_store(&p->device.paused, true);
    pthread_create(&thread, NULL, unpause, p);
    void *x = fake_device_address(&p->device, seen);
    check_error(hearth_all_reduce(c->world[0], x, x, 1, HEARTH_I32, HEARTH_OP_SUM, &opts), HEARTH_TIMEOUT,
                "input to be copied");
    check(hearth_error_rank() == 0, "about rank %d", hearth_error_rank());
    pthread_join(thread, NULL);
}

TEST(a_deadline_while_it_copies)
{
    struct pause p = {0};
    fake_device_open(&p.device, DEVICE_LEN);
    struct fixture c;
    fixture_open(&c, 2, NULL);
    fixture_run(&c, late_member, &p);
    fixture_works(&c);
    fixture_close(&c);
    fake_device_close(&p.device);
}

/* The node closes while its copier is inside: it waits, and nothing is touched afterwards. */
TEST(close_while_it_copies)
{
    for (int out = 0; out < 2; out++) {
        struct pause p = {0};
        struct fixture c;
        pthread_t thread;
        fake_device_open(&p.device, DEVICE_LEN);
        fixture_open(&c, 1, NULL);
        struct hearth_opts opts = opts_default();
        hearth_request *requests[3];
        opts.done = done_counts;
        opts.done_arg = &p.done;
        opts.memory = &p.device.memory;
        for (int i = 0; i < 3; i++) {
            void *x = fake_device_address(&p.device, fake_device_alloc(&p.device, 4000000));
            assert_ok(hearth_all_reduce_nb(c.world[0], x, x, 1000000, HEARTH_I32, HEARTH_OP_SUM, &opts,
                                           &requests[i]));
            if (i == 0 && !out)
                atomic_store(&p.device.paused, true);
        }
        while (out && atomic_load(&p.device.out_bytes) == 0)
            sleep_ms(1);
        atomic_store(&p.device.paused, true);
        pthread_create(&thread, NULL, unpause, &p);
        fixture_close(&c);
        assert_int_equal(atomic_load(&p.device.inside), 0);
        assert_int_equal(atomic_load(&p.done), 3);
        pthread_join(thread, NULL);
        fake_device_close(&p.device);
    }
}

/* ---- memory ---- */

static void large_member(struct fixture *c, int rank, void *arg)
{
    struct fake_device *device = arg;
    size_t count = (size_t)3 << 20;
    void *x = fake_device_address(device, fake_device_alloc(device, count * 4));
    int status = hearth_all_reduce(c->world[rank], x, x, count, HEARTH_I32, HEARTH_OP_SUM, NULL);
    check(status == HEARTH_NO_MEMORY || status == HEARTH_ABORTED, "%s", hearth_status_name(status));
    check_text(hearth_error_text(), "host memory");
}

TEST(staging_counts_against_the_limit)
{
    struct hearth_config config;
    struct fixture c;
    struct fake_device device;
    hearth_config_init(&config);
    config.memory_max = 8 << 20;
    open_device(&c, 2, &config, &device);
    fixture_run(&c, large_member, &device);
    for (int r = 0; r < 2; r++)
        assert_ok(hearth_group_set_memory(c.world[r], NULL));
    fixture_works(&c);
    close_device(&c, &device);
}

static void same_member(struct fixture *c, int rank, void *arg)
{
    struct fake_device *device = arg;
    void *x = fake_device_address(device, fake_device_alloc(device, 400000));
    for (int i = 0; i < 100; i++)
        check_ok(hearth_all_reduce(c->world[rank], x, x, 100000, HEARTH_I32, HEARTH_OP_SUM, NULL));
}

TEST(buffers_are_used_again)
{
    struct fixture c;
    struct fake_device device;
    open_device(&c, 2, NULL, &device);
    fixture_run(&c, same_member, &device);
    uint64_t before = cluster_memory(&c);
    fixture_run(&c, same_member, &device);
    assert_true(cluster_memory(&c) < before + ((size_t)8 << 20)); /* frames that came early, but no buffers */
    close_device(&c, &device);
}
