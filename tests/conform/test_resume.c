/* SPDX-License-Identifier: Apache-2.0 */
/* A compressor's state is saved, and a new one goes on with it bit for bit; other bytes are refused. */
#include <stdlib.h>
#include <string.h>

#include "conform/gradients.h"

#define STEPS 5 /* before and after the state is saved */

static const struct kind kinds[] = {
    {"layer.topk", "topk:0.02", HEARTH_F32, 2, {100, 60, 0}},
    {"layer.chunk", "topk:0.02,chunk=256,values=int8", HEARTH_F32, 1, {9000, 0, 0}},
    {"layer.random", "randomk:0.1,values=bf16", HEARTH_F64, 1, {5000, 0, 0}},
    {"layer.rank", "powersgd:2", HEARTH_F32, 3, {64, 12, 8}},
    {"layer.alternate", "powersgd:3,alternate", HEARTH_F32, 2, {80, 64, 0}},
    {"layer.rows", "powersgd:1,rows=50", HEARTH_F32, 1, {5000, 0, 0}},
    {"layer.int8", "int8", HEARTH_BF16, 1, {3000, 0, 0}},
    {"layer.onebit", "onebit", HEARTH_F16, 2, {50, 50, 0}},
    {"layer.lossy", "int8,stochastic,feedback=off", HEARTH_F32, 1, {2000, 0, 0}},
    {"layer.bias", NULL, HEARTH_F32, 1, {17, 0, 0}},
    {"layer.scalar", NULL, HEARTH_F64, 0, {0, 0, 0}},
    {"layer.standard", NULL, HEARTH_F32, 2, {64, 128, 0}},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* With a rule for each kind that has a codec. */
static hearth_compressor *open_ruled(hearth_group *group, uint64_t warmup, uint64_t ramp)
{
    hearth_compressor *compressor = open_compressor(group, "bf16", warmup, ramp);
    for (int k = 0; k < KINDS; k++)
        if (kinds[k].codec)
            check_ok(hearth_compressor_add_rule(compressor, kinds[k].name, kinds[k].codec));
    return compressor;
}

/* ---- a run that is saved, and goes on elsewhere ---- */

struct run {
    uint64_t hash[MEMBERS_MAX][2 * STEPS][KINDS]; /* of the results */
    void *saved[MEMBERS_MAX], *final[MEMBERS_MAX];
    size_t saved_len[MEMBERS_MAX], final_len[MEMBERS_MAX];
    uint64_t warmup, ramp;
    int first;       /* step */
    struct run *old; /* whose state is loaded; NULL: none */
};

/* One step: half of the tensors at once, half one by one. */
static void run_step(struct run *run, hearth_compressor *compressor, int rank, int step)
{
    hearth_request *requests[KINDS] = {NULL};
    void *data[KINDS];
    for (int k = 0; k < KINDS; k++) {
        size_t len = kind_count(&kinds[k]) * hearth_dtype_size(kinds[k].dtype);
        data[k] = must_alloc(len);
        fill(&kinds[k], data[k], rank, step);
        struct hearth_tensor tensor = tensor_of(&kinds[k], data[k]);
        enum hearth_op op = k % 3 ? HEARTH_OP_AVG : HEARTH_OP_SUM;
        if (k % 2)
            check_ok(hearth_compressor_all_reduce_nb(compressor, &tensor, op, NULL, &requests[k]));
        else
            check_ok(hearth_compressor_all_reduce(compressor, &tensor, op, NULL));
    }
    check_ok(hearth_request_wait_all(requests, KINDS, -1));
    for (int k = 0; k < KINDS; k++) {
        size_t len = kind_count(&kinds[k]) * hearth_dtype_size(kinds[k].dtype);
        run->hash[rank][step][k] = hash_bytes(data[k], len);
        hearth_request_close(requests[k]);
        free(data[k]);
    }
}

static void run_member(struct fixture *c, int rank, void *arg)
{
    struct run *run = arg;
    hearth_compressor *compressor = open_ruled(c->world[rank], run->warmup, run->ramp);
    if (run->old)
        check_ok(hearth_compressor_load(compressor, run->old->saved[rank], run->old->saved_len[rank]));
    for (int step = run->first; step < 2 * STEPS; step++) {
        if (step == STEPS)
            run->saved[rank] = save(compressor, &run->saved_len[rank]);
        run_step(run, compressor, rank, step);
    }
    run->final[rank] = save(compressor, &run->final_len[rank]);
    hearth_compressor_close(compressor);
}

static void run_cluster(struct run *run, int size)
{
    fixture_once(size, NULL, run_member, run);
}

static void run_free(struct run *run, int size)
{
    for (int i = 0; i < size; i++) {
        free(run->saved[i]);
        free(run->final[i]);
    }
}

static void compare_runs(const struct run *whole, const struct run *resumed, int size)
{
    for (int i = 0; i < size * STEPS * KINDS; i++) {
        int rank = i / (STEPS * KINDS), step = STEPS + i / KINDS % STEPS, k = i % KINDS;
        check(whole->hash[rank][step][k] == whole->hash[0][step][k] || size == 1,
              "%d: ranks 0 and %d differ in %s", size, rank, kinds[k].name);
        check(whole->hash[rank][step][k] == resumed->hash[rank][step][k],
              "%d: rank %d: %s differs in step %d after a resume", size, rank, kinds[k].name, step);
    }
    for (int i = 0; i < size; i++) {
        check(whole->final_len[i] == resumed->final_len[i] &&
                  memcmp(whole->final[i], resumed->final[i], whole->final_len[i]) == 0,
              "%d: rank %d has another state at the end", size, i);
        check(whole->saved_len[i] == resumed->saved_len[i] &&
                  memcmp(whole->saved[i], resumed->saved[i], whole->saved_len[i]) == 0,
              "%d: rank %d does not save what it has loaded", size, i);
    }
}

/* In the middle of the ramp. */
TEST(test_resume)
{
    static struct run whole, resumed;
    for (int size = 1; size <= 4; size++) {
        whole = (struct run){.warmup = 2, .ramp = 6};
        resumed = (struct run){.warmup = 2, .ramp = 6, .first = STEPS, .old = &whole};
        run_cluster(&whole, size);
        run_cluster(&resumed, size);
        compare_runs(&whole, &resumed, size);
        run_free(&whole, size);
        run_free(&resumed, size);
        checks_end();
    }
}

/* Without what was kept, the same steps have other results; but for the smallest, which go plain. */
TEST(test_state_matters)
{
    static struct run whole, forgetful;
    whole = (struct run){0};
    forgetful = (struct run){.first = STEPS};
    run_cluster(&whole, 2);
    run_cluster(&forgetful, 2);
    for (int k = 0; k < KINDS; k++) {
        bool same = whole.hash[0][STEPS][k] == forgetful.hash[0][STEPS][k];
        check(same == (kind_count(&kinds[k]) < 20), "%s is %s without its state", kinds[k].name,
              same ? "the same" : "different");
    }
    run_free(&whole, 2);
    run_free(&forgetful, 2);
    checks_end();
}

/* ---- bytes that are not this member's state ---- */

static void refusals_member(struct fixture *c, int rank, void *arg)
{
    static struct run run;
    struct run *other = arg; /* of a cluster of another size */
    hearth_compressor *compressor = open_ruled(c->world[rank], 0, 0);
    size_t len, after_len;
    run_step(&run, compressor, rank, 0);
    uint8_t *bytes = save(compressor, &len);
    run.saved[rank] = bytes;
    run.saved_len[rank] = len;
    fixture_meet(c);
    int next = (rank + 1) % c->size;
    check_error(hearth_compressor_load(compressor, run.saved[next], run.saved_len[next]), HEARTH_INVALID,
                "this is rank");
    check_status(hearth_compressor_load(compressor, other->final[rank], other->final_len[rank]),
                 HEARTH_INVALID);
    check_text(hearth_error_text(), "of 3; this is");
    fixture_meet(c);
    uint8_t *damaged = must_alloc(len);
    memcpy(damaged, bytes, len);
    damaged[len / 2] ^= 1;
    check_error(hearth_compressor_load(compressor, damaged, len), HEARTH_INVALID, "checksum");
    check_status(hearth_compressor_load(compressor, bytes, len - 1), HEARTH_INVALID);
    check_status(hearth_compressor_load(compressor, bytes, 0), HEARTH_INVALID);
    check_status(hearth_compressor_load(compressor, NULL, 0), HEARTH_INVALID);
    check_status((int)hearth_compressor_save(compressor, NULL, len), HEARTH_INVALID);
    memset(damaged, 7, len);
    check(hearth_compressor_save(compressor, damaged, len - 1) == (int64_t)len && damaged[0] == 7,
          "too short a buffer was written to");
    uint8_t *after = save(compressor, &after_len);
    check(after_len == len && memcmp(after, bytes, len) == 0, "a refused load changed the state");
    fixture_meet(c);
    free(after);
    free(damaged);
    free(bytes);
    hearth_compressor_close(compressor);
}

TEST(test_load_refuses)
{
    static struct run other;
    other = (struct run){.first = 2 * STEPS - 1};
    run_cluster(&other, 3);
    fixture_once(2, NULL, refusals_member, &other);
    run_free(&other, 3);
}
