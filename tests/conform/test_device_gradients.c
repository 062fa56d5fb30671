/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients in device memory: compressed all-reduces, compressors and syncs, and failures of the adapter. */
#include "conform/cluster_group.h"
#include "conform/on_device.h"

/* ---- compressed ---- */

static const char *const codecs[] = {
    "fp16", "int8", "onebit", "topk:0.01", "topk:0.1,chunk=64", "randomk:0.1", "powersgd:2,rows=25", "none"};
enum { CODECS = sizeof codecs / sizeof *codecs, STEPS = 3 };

struct compressed {
    struct fake_device *device; /* NULL: host memory */
    const char *codec;
    size_t count;
    bool compressor, nonblocking;
    enum hearth_dtype dtype;
    uint64_t hash[MEMBERS_MAX]; /* of results and residuals */
};

/* As the test sees it; what the call gets is in *given. */
static void *compressed_alloc(const struct compressed *t, size_t len, void **given)
{
    void *seen = t->device ? fake_device_alloc(t->device, len) : must_alloc(len);
    memset(seen, 0, len);
    *given = t->device ? fake_device_address(t->device, seen) : seen;
    return seen;
}

static int compressed_call(const struct compressed *t, hearth_group *group, hearth_compressor *compressor,
                           void *x, void *residual)
{
    hearth_request *request = NULL;
    size_t dims[] = {25, t->count / 25};
    struct hearth_tensor tensor = {
        .size = sizeof tensor, .name = "w", .data = x, .dtype = t->dtype, .ndim = 2, .dims = dims};
    if (compressor && !t->nonblocking)
        return hearth_compressor_all_reduce(compressor, &tensor, HEARTH_OP_AVG, NULL);
    if (!t->nonblocking)
        return hearth_all_reduce_compressed(group, x, t->count, t->dtype, HEARTH_OP_AVG, t->codec, residual,
                                            NULL);
    int status = compressor
                     ? hearth_compressor_all_reduce_nb(compressor, &tensor, HEARTH_OP_AVG, NULL, &request)
                     : hearth_all_reduce_compressed_nb(group, x, t->count, t->dtype, HEARTH_OP_AVG, t->codec,
                                                       residual, NULL, &request);
    if (status == HEARTH_OK)
        status = hearth_request_wait(request, -1);
    hearth_request_close(request);
    return status;
}

static void compressed_member(struct fixture *c, int rank, void *arg)
{
    struct compressed *t = arg;
    hearth_compressor *compressor = NULL;
    struct hearth_compressor_config config;
    uint64_t seed = 1 + (uint64_t)rank;
    size_t len = t->count * hearth_dtype_size(t->dtype), residual_len = t->count * sizeof(float);
    void *x, *residual, *seen = compressed_alloc(t, len, &x),
                        *residual_seen = compressed_alloc(t, residual_len, &residual);
    hearth_compressor_config_init(&config);
    config.codec = t->codec;
    config.min_count = 0;
    if (t->compressor)
        check_ok(hearth_compressor_open(c->world[rank], &config, &compressor));
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < t->count; i++)
            set_number(t->dtype, seen, i, (double)draw_below(&seed, 2001) / 1000 - 1);
        check_ok(compressed_call(t, c->world[rank], compressor, x, t->compressor ? NULL : residual));
        t->hash[rank] =
            31 * t->hash[rank] + hash_bytes(seen, len) + 7 * hash_bytes(residual_seen, residual_len);
    }
    hearth_compressor_close(compressor);
    if (!t->device) {
        free(seen);
        free(residual_seen);
    }
}

TEST(compressed_gives_the_bits_of_host_memory)
{
    struct fixture here, there;
    struct fake_device device;
    fixture_open(&here, 3, NULL);
    open_device(&there, 3, NULL, &device);
    for (int i = 0; i < CODECS * 8; i++) {
        struct compressed t = {.codec = codecs[i / 8],
                               .compressor = i & 1,
                               .nonblocking = i & 2,
                               .count = i & 4 ? 600000 : 1000,
                               .dtype = i / 8 == 0 ? HEARTH_BF16 : HEARTH_F32};
        if (!t.compressor && (strncmp(t.codec, "randomk", 7) == 0 || strncmp(t.codec, "powersgd", 8) == 0))
            continue; /* draw by their group */
        struct compressed on_device = t;
        on_device.device = &device;
        fixture_run(&here, compressed_member, &t);
        fixture_run(&there, compressed_member, &on_device);
        for (int r = 0; r < 3; r++)
            check(t.hash[r] == on_device.hash[r], "%s, %zu elements, way %d: rank %d differs", t.codec,
                  t.count, i & 3, r);
        checks_end();
        fake_device_reset(&device);
    }
    fixture_close(&here);
    close_device(&there, &device);
}

static void compressed_failing(struct fixture *c, int rank, void *arg)
{
    struct failure *f = arg;
    struct compressed t = {.device = rank == 1 ? f->device : NULL,
                           .codec = f->nonblocking ? "int8" : "topk:0.01",
                           .count = f->count,
                           .nonblocking = f->nonblocking,
                           .dtype = HEARTH_F32};
    void *x, *residual;
    float *seen = compressed_alloc(&t, f->count * sizeof(float), &x);
    float *left = compressed_alloc(&t, f->count * sizeof(float), &residual);
    seen[0] = 3;
    left[1] = 2;
    int status = compressed_call(&t, c->world[rank], NULL, x, residual);
    int wanted = rank == 1 ? HEARTH_COPY_FAILED : f->before ? HEARTH_ABORTED : HEARTH_OK;
    check(status == wanted, "rank %d: %s: %s", rank, hearth_status_name(status), hearth_error_text());
    if (status != HEARTH_OK)
        check_text(hearth_error_text(), f->word);
    if (f->before)
        check(seen[0] == 3 && left[1] == 2, "rank %d: input or residual have changed", rank);
    if (rank != 1) {
        free(seen);
        free(left);
    }
}

TEST(compressed_failures_of_the_adapter)
{
    struct fixture c;
    struct fake_device device;
    fixture_open(&c, 3, NULL);
    fake_device_open(&device, DEVICE_LEN);
    for (int i = 0; i < 8; i++) {
        struct failure f = {.device = &device,
                            .nonblocking = i & 1,
                            .before = i & 2,
                            .count = i & 4 ? 1000000 : 1000,
                            .word = i & 2 ? "copy_in" : "copy_out"};
        atomic_store(i & 2 ? &device.in_left : &device.out_left, i & 4 ? 3 : 1);
        fake_device_reset(&device);
        assert_ok(hearth_group_set_memory(c.world[1], &device.memory));
        fixture_run(&c, compressed_failing, &f);
        assert_ok(hearth_group_set_memory(c.world[1], NULL));
        fixture_works(&c);
    }
    fixture_close(&c);
    fake_device_close(&device);
}

/* ---- syncs ---- */

struct steps {
    struct fake_device *device;
    const char *codec;
    bool exact;  /* plain: the same bits as all_reduce */
    int failing; /* this rank's results cannot be copied at first; -1: none */
};

static void model_to_device(struct model *m, struct fake_device *device)
{
    for (int i = 0; i < TENSORS; i++) {
        free(m->data[i]);
        m->data[i] = fake_device_alloc(device, model_len(i));
        check_ok(hearth_sync_set_data(m->sync, i, fake_device_address(device, m->data[i])));
    }
}

static void model_leave_device(struct model *m)
{
    memset(m->data, 0, sizeof m->data);
    model_close(m);
}

/* Of one member, as its group has the adapter. */
static void step_on_device(struct model *m, hearth_group *g, int rank, int step, const struct steps *s)
{
    model_fill(m, rank, step);
    check_ok(hearth_group_set_memory(g, NULL));
    model_reduce(m, g, HEARTH_OP_SUM, 1);
    check_ok(hearth_group_set_memory(g, &s->device->memory));
    model_ready(m, (uint64_t)(100 * step + rank));
    int status = hearth_sync_wait(m->sync, NULL);
    if (rank == s->failing) {
        check(status == HEARTH_COPY_FAILED, "%s: %s", hearth_status_name(status), hearth_error_text());
        check_text(hearth_error_text(), "copy_out");
        status = hearth_sync_wait(m->sync, NULL);
    }
    check(status == HEARTH_OK, "%s: %s", hearth_status_name(status), hearth_error_text());
    if (s->exact)
        model_check(m, m->wanted, "the sum");
    for (int i = 0; i < TENSORS; i++)
        check_ok(hearth_group_same(g, fake_device_address(s->device, m->data[i]), model_len(i), NULL, NULL));
}

static void steps_member(struct fixture *c, int rank, void *arg)
{
    const struct steps *s = arg;
    struct model m;
    model_open(&m, c->world[rank], s->codec, HEARTH_OP_SUM);
    model_to_device(&m, s->device);
    for (int step = 0; step < 3; step++)
        step_on_device(&m, c->world[rank], rank, step, s);
    model_leave_device(&m);
}

TEST(syncs_on_device_memory)
{
    for (int size = 1; size <= 3; size++) {
        struct fixture c;
        struct fake_device device;
        open_device(&c, size, NULL, &device);
        for (int k = 0; k < 3; k++) {
            struct steps s = {.device = &device,
                              .codec = k == 0   ? "none"
                                       : k == 1 ? "int8"
                                                : "topk:0.05",
                              .exact = k == 0,
                              .failing = -1};
            fixture_run(&c, steps_member, &s);
            fake_device_reset(&device);
        }
        close_device(&c, &device);
    }
}

/* Each member has its own device: that of one fails. */
struct formed {
    struct fake_device device[CLUSTER_GROUP_MAX];
    struct model model[CLUSTER_GROUP_MAX];
    struct steps steps;
    int step;
};

static void formed_step(struct cluster_group *f, int member, void *arg)
{
    struct formed *t = arg;
    struct steps s = t->steps;
    s.device = &t->device[member];
    step_on_device(&t->model[member], cluster_group_world(f, member), member, t->step, &s);
    check(hearth_sync_steps(t->model[member].sync) == (uint64_t)t->step + 1, "member %d is at step %d",
          member, (int)hearth_sync_steps(t->model[member].sync));
}

TEST(a_committed_step_is_written_by_the_next_wait)
{
    for (int k = 0; k < 2; k++) {
        struct cluster_group f;
        struct formed t = {.steps = {.codec = k == 0 ? "none" : "int8", .exact = k == 0, .failing = -1}};
        cluster_group_open(&f);
        cluster_group_group(&f, (const int[]){0, 1, 2}, 3);
        for (int i = 0; i < 3; i++) {
            fake_device_open(&t.device[i], DEVICE_LEN / 4);
            model_open(&t.model[i], cluster_group_world(&f, i), t.steps.codec, HEARTH_OP_SUM);
            model_to_device(&t.model[i], &t.device[i]);
        }
        for (t.step = 0; t.step < 3; t.step++) {
            t.steps.failing = t.step == 1 ? 2 : -1;
            atomic_store(&t.device[2].out_left, t.step == 1 ? 3 : -1);
            cluster_group_run(&f, formed_step, &t);
        }
        for (int i = 0; i < 3; i++)
            model_leave_device(&t.model[i]);
        cluster_group_close(&f);
        for (int i = 0; i < 3; i++)
            fake_device_close(&t.device[i]);
    }
}
