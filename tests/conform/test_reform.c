/* SPDX-License-Identifier: Apache-2.0 */
/* Syncs and compressors go on with the next group: a step that a member's going has interrupted is completed
 * there, the same on all, with nothing counted twice or lost; and training goes on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conform/formed.h"
#include "gradient/compressor.h"
#include "gradient/sync.h"
#include "support/watchdog.h"

static const char *const codecs[] = {"int8",       "topk:0.02", "topk:0.05,chunk=1024", "randomk:0.1",
                                     "powersgd:2", "onebit",    "randomk:0.05",         "none"};

/* What is left behind of each tensor. */
struct residuals {
    double *of[TENSORS];
};

struct training {
    struct model model[FORMED_MAX];
    struct residuals before[FORMED_MAX]; /* the step */
    const char *codec;
    int leaver, step;
    uint64_t seed;
    bool done[FORMED_MAX][TENSORS]; /* by whom, when the step was interrupted */
};

static double residual_of(const struct tensor *t, size_t k)
{
    if (t == NULL || t->state.residual == NULL)
        return 0;
    return t->form.dtype == HEARTH_F64 ? ((const double *)t->state.residual)[k]
                                       : (double)((const float *)t->state.residual)[k];
}

static const struct tensor *tensor_at(const struct model *m, int index)
{
    return tensors_find(&m->sync->compressor->tensors, m->sync->tensors[index].name);
}

static void residuals_read(const struct model *m, struct residuals *r)
{
    for (int i = 0; i < TENSORS; i++) {
        const struct tensor *t = tensor_at(m, i);
        for (size_t k = 0; k < model_count(i); k++)
            r->of[i][k] = residual_of(t, k);
    }
}

static void residuals_open(struct residuals *r)
{
    for (int i = 0; i < TENSORS; i++)
        r->of[i] = must_alloc(model_count(i) * sizeof(double));
}

static void residuals_free(struct residuals *r)
{
    for (int i = 0; i < TENSORS; i++)
        free(r->of[i]);
}

static void training_open(struct training *t, struct formed *f, const char *codec, uint64_t seed)
{
    *t = (struct training){.codec = codec, .seed = seed, .leaver = -1};
    for (int i = 0; i < f->size; i++)
        model_open(&t->model[f->member[i]], formed_world(f, f->member[i]), codec, HEARTH_SUM);
    for (int i = 0; i < FORMED_MAX; i++)
        residuals_open(&t->before[i]);
}

static void training_close(struct training *t)
{
    for (int i = 0; i < FORMED_MAX; i++) {
        if (t->model[i].data[0] != NULL)
            model_close(&t->model[i]);
        residuals_free(&t->before[i]);
    }
}

/* ---- steps ---- */

static void fill(struct training *t, int member)
{
    model_fill(&t->model[member], member, t->step);
    residuals_read(&t->model[member], &t->before[member]);
}

static void whole_step(struct formed *f, int member, void *arg)
{
    struct training *t = arg;
    (void)f;
    fill(t, member);
    model_ready(&t->model[member], (uint64_t)member);
    check_status(hearth_sync_wait(t->model[member].sync, NULL), HEARTH_OK);
}

static void complete(struct formed *f, int member, void *arg)
{
    struct training *t = arg;
    (void)f;
    model_ready(&t->model[member], (uint64_t)member + 7);
    check_status(hearth_sync_wait(t->model[member].sync, NULL), HEARTH_OK);
}

static void notice_done(struct training *t, int member)
{
    const hearth_sync *sync = t->model[member].sync;
    for (int i = 0; i < TENSORS; i++)
        t->done[member][i] =
            sync->frozen && sync->buckets[sync->tensors[i].item.bucket].progress == BUCKET_DONE;
}

/* One makes some of its tensors ready, or all, and goes. */
static void interrupted_step(struct formed *f, int member, void *arg)
{
    struct training *t = arg;
    fill(t, member);
    if (member == t->leaver) {
        int order[TENSORS], count = (int)(t->seed % (TENSORS + 1));
        model_order(order, t->seed);
        for (int i = 0; i < count; i++)
            check_status(hearth_sync_ready(t->model[member].sync, order[i]), HEARTH_OK);
        sleep_ms((int)(t->seed / 64 % 3));
        t->model[member].sync = NULL; /* goes with the node */
        formed_leave(f, member);
        return;
    }
    model_ready(&t->model[member], (uint64_t)member);
    int status = hearth_sync_wait(t->model[member].sync, NULL);
    for (int i = 0; i < 2 && status == HEARTH_OK; i++) { /* all had voted: then the next one */
        fill(t, member);
        model_ready(&t->model[member], (uint64_t)member);
        status = hearth_sync_wait(t->model[member].sync, NULL);
    }
    check_status(status, HEARTH_VIEW_CHANGED);
    notice_done(t, member);
}

static void run_step(struct formed *f, struct training *t, formed_fn *fn)
{
    t->step++;
    formed_run(f, fn, t);
}

/* ---- checks ---- */

static double get(int index, const void *data, size_t k)
{
    return get_number(model_shapes[index].dtype, data, k);
}

/* What went in is what came out and what is left behind. */
static void mass_holds(const struct formed *f, const struct training *t, int index)
{
    const struct tensor *tensors[FORMED_MAX];
    for (int i = 0; i < f->size; i++)
        tensors[i] = tensor_at(&t->model[f->member[i]], index);
    bool good = true;
    for (size_t k = 0; good && k < model_count(index); k++) {
        double in = 0, out = get(index, t->model[f->member[0]].data[index], k), size = fabs(out);
        for (int i = 0; i < f->size; i++) {
            int member = f->member[i];
            double x = get(index, t->model[member].before[index], k), e = t->before[member].of[index][k];
            in += x + e;
            double after = residual_of(tensors[i], k);
            out += after;
            size += fabs(x) + fabs(e) + fabs(after);
        }
        bool narrow = model_shapes[index].dtype == HEARTH_F16 || model_shapes[index].dtype == HEARTH_BF16;
        good = check(fabs(in - out) <= size * (narrow ? 0x1p-7 : 2e-6) + 1e-6,
                     "%s: tensor %d, element %zu: in %.9g, out %.9g", t->codec, index, k, in, out);
    }
}

static void all_alike(const struct formed *f, const struct training *t)
{
    for (int i = 0; i < TENSORS; i++)
        for (int k = 1; k < f->size; k++)
            check(memcmp(t->model[f->member[0]].data[i], t->model[f->member[k]].data[i], model_len(i)) == 0,
                  "%s: tensor %d differs between member %d and %d", t->codec, i, f->member[0], f->member[k]);
}

/* Every tensor but those that all who are left had done together with the one that has gone. */
static void check_step(const struct formed *f, const struct training *t)
{
    all_alike(f, t);
    for (int i = 0; i < TENSORS; i++) {
        bool stays = true;
        for (int k = 0; k < f->size; k++)
            stays = stays && t->done[f->member[k]][i];
        if (!stays)
            mass_holds(f, t, i);
    }
    checks_end();
}

static void train_on(struct formed *f, struct training *t)
{
    memset(t->done, 0, sizeof t->done);
    for (int i = 0; i < 2; i++) {
        run_step(f, t, whole_step);
        check_step(f, t);
    }
}

/* ---- one leaves ---- */

static void lose_one(struct formed *f, struct training *t, const char *codec, uint64_t seed)
{
    formed_open(f);
    formed_group(f, (const int[]){0, 1, 2}, 3);
    training_open(t, f, codec, seed);
    for (uint64_t i = 0; i < 1 + seed % 3; i++)
        run_step(f, t, whole_step);
    t->leaver = (int)(seed % 3);
    run_step(f, t, interrupted_step);
}

static void survivors(const struct training *t, int left[2])
{
    left[0] = t->leaver == 0 ? 1 : 0;
    left[1] = t->leaver == 2 ? 1 : 2;
}

static void run_completed(const char *codec, uint64_t seed)
{
    struct formed f;
    struct training t;
    int left[2];
    lose_one(&f, &t, codec, seed);
    survivors(&t, left);
    formed_group(&f, left, 2);
    formed_run(&f, complete, &t);
    check_step(&f, &t);
    train_on(&f, &t);
    training_close(&t);
    formed_close(&f);
}

static void test_the_others_complete_the_step(void **state)
{
    uint64_t seed = first_seed();
    (void)state;
    for (unsigned long i = 0; i < repeat_count(1); i++)
        for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++)
            run_completed(codecs[c], draw(&seed));
}

/* As if the member's own operation had failed: what was done is as before. */
static void pretend_failed(struct model *m, uint32_t bucket)
{
    hearth_sync *sync = m->sync;
    struct sync_bucket *b = &sync->buckets[bucket];
    struct sync_tensor *t = &sync->tensors[b->plan.first];
    if (b->progress != BUCKET_DONE)
        return;
    if (!b->plan.fused && t->item.count > 0) {
        assert_true(compressor_undo(sync->compressor, t->name));
        memcpy(t->data, b->kept, t->item.count * hearth_dtype_size(t->item.dtype));
    }
    b->progress = BUCKET_OPEN;
    b->missing = b->plan.items;
    for (uint32_t i = b->plan.first; i != BUCKET_NOBODY; i = sync->tensors[i].item.next)
        sync->tensors[i].progress = TENSOR_IDLE;
    sync_vote_reset(sync);
}

/* Done by one and not by the other: it is made again by both, out of the gradients as they were. */
static void test_what_not_all_have_done_is_made_again(void **state)
{
    uint64_t seed = first_seed() + 100;
    (void)state;
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        struct formed f;
        struct training t;
        int left[2];
        lose_one(&f, &t, codecs[c], (draw(&seed) & ~UINT64_C(63)) * 25 + TENSORS); /* it was ready with all */
        survivors(&t, left);
        for (uint32_t b = 0; b < t.model[left[0]].sync->bucket_count; b++)
            pretend_failed(&t.model[left[b % 2]], b);
        for (int i = 0; i < 2; i++)
            notice_done(&t, left[i]);
        formed_group(&f, left, 2);
        formed_run(&f, complete, &t);
        check_step(&f, &t);
        train_on(&f, &t);
        training_close(&t);
        formed_close(&f);
    }
}

/* As if the vote of a step that has ended had not come back. */
static void pretend_not_heard(struct model *m)
{
    hearth_sync *sync = m->sync;
    for (int i = 0; i < TENSORS; i++)
        if (sync->buckets[sync->tensors[i].item.bucket].plan.fused)
            memcpy(m->data[i], m->before[i], model_len(i));
    for (uint32_t b = 0; b < sync->bucket_count; b++)
        sync->buckets[b].progress = BUCKET_DONE;
    for (int i = 0; i < TENSORS; i++)
        sync->tensors[i].progress = TENSOR_DONE;
    sync->steps--;
    sync_vote_reset(sync);
}

/* One has heard that the step is over and is in the next one; the other ends it by itself, and follows. */
static void late_and_next(struct formed *f, int member, void *arg)
{
    struct training *t = arg;
    if (member == 1) {
        complete(f, member, arg);
        for (int i = 0; i < TENSORS; i++)
            check(memcmp(t->model[1].data[i], t->model[1].wanted[i], model_len(i)) == 0,
                  "%s: tensor %d is not the step's", t->codec, i);
    }
    whole_step(f, member, arg);
}

static void test_who_has_not_heard_of_the_end_ends_it(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        struct formed f;
        struct training t;
        formed_open(&f);
        formed_group(&f, (const int[]){0, 1, 2}, 3);
        training_open(&t, &f, codecs[c], 1);
        run_step(&f, &t, whole_step);
        run_step(&f, &t, whole_step);
        for (int i = 0; i < TENSORS; i++)
            memcpy(t.model[1].wanted[i], t.model[0].data[i], model_len(i));
        pretend_not_heard(&t.model[1]);
        t.model[2].sync = NULL;
        formed_leave(&f, 2);
        formed_group(&f, (const int[]){0, 1}, 2);
        formed_group(&f, (const int[]){1, 0}, 2); /* and once more, before anybody has compared */
        run_step(&f, &t, late_and_next);
        check_step(&f, &t);
        train_on(&f, &t);
        training_close(&t);
        formed_close(&f);
    }
}

/* ---- others come, steps are given up, memory runs out ---- */

/* Somebody who has never made a step takes the place of the one that has gone. */
static void test_who_is_new_goes_on_with_the_others(void **state)
{
    uint64_t seed = first_seed() + 200;
    (void)state;
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        struct formed f;
        struct training t;
        int left[3];
        lose_one(&f, &t, codecs[c], draw(&seed));
        survivors(&t, left);
        left[2] = 3;
        formed_group(&f, left, 3);
        model_open(&t.model[3], formed_world(&f, 3), codecs[c], HEARTH_SUM);
        fill(&t, 3);
        formed_run(&f, complete, &t);
        memset(t.done, 0, sizeof t.done); /* the new one had done nothing: all was made again */
        check_step(&f, &t);
        train_on(&f, &t);
        training_close(&t);
        formed_close(&f);
    }
}

/* Given up by all: the next step begins where the last one ended, whatever some of them had done of it. */
static void test_a_step_that_is_given_up_leaves_nothing(void **state)
{
    uint64_t seed = first_seed() + 300;
    (void)state;
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        struct formed f;
        struct training t;
        int left[2];
        lose_one(&f, &t, codecs[c], (draw(&seed) & ~UINT64_C(63)) * 25 + TENSORS);
        survivors(&t, left);
        pretend_failed(&t.model[left[0]], 0);
        hearth_sync_drop(t.model[left[0]].sync);
        formed_group(&f, left, 2);
        hearth_sync_drop(t.model[left[1]].sync); /* before or after: all the same */
        train_on(&f, &t);
        training_close(&t);
        formed_close(&f);
    }
}

static void mismatch(struct formed *f, int member, void *arg)
{
    struct training *t = arg;
    (void)f;
    fill(t, member);
    model_ready(&t->model[member], (uint64_t)member);
    for (int i = 0; i < 2; i++) {
        check_status(hearth_sync_wait(t->model[member].sync, NULL), HEARTH_MISMATCH);
        check_text(hearth_error_text(), "rank 1 has ended 1 steps and rank 0 2");
    }
}

/* One has ended a step that the other gives up: they cannot go on, and all are told why. */
static void test_who_gives_up_what_others_ended_is_named(void **state)
{
    (void)state;
    struct formed f;
    struct training t;
    formed_open(&f);
    formed_group(&f, (const int[]){0, 1, 2}, 3);
    training_open(&t, &f, "int8", 1);
    run_step(&f, &t, whole_step);
    run_step(&f, &t, whole_step);
    pretend_not_heard(&t.model[1]);
    hearth_sync_drop(t.model[1].sync);
    t.model[2].sync = NULL;
    formed_leave(&f, 2);
    formed_group(&f, (const int[]){0, 1}, 2);
    run_step(&f, &t, mismatch);
    training_close(&t);
    formed_close(&f);
}

/* No memory to move: everything stays where it is, and can be moved later. */
static void test_moving_without_memory(void **state)
{
    struct formed f;
    struct training t;
    int left[2], refused = 0;
    struct error error;
    struct hearth_config config;
    hearth_node *nodes[2];
    (void)state;
    hearth_config_init(&config);
    lose_one(&f, &t, "topk:0.02", TENSORS);
    survivors(&t, left);
    struct local_setup setup = {.config = &config,
                                .count = 2,
                                .id = 99,
                                .lent_heaps = (struct heap *[]){f.heap[left[0]], f.heap[left[1]]},
                                .loss = HEARTH_VIEW_CHANGED};
    assert_int_equal(local_open(&setup, nodes, &error), HEARTH_OK);
    for (int after = 0; after < 3; after++) {
        atomic_store(&f.heap[left[0]]->fail_after, after);
        int status = node_move_attachments(formed_world(&f, left[0]), hearth_world(nodes[0]), &error);
        atomic_store(&f.heap[left[0]]->fail_after, -1);
        refused += status == HEARTH_NO_MEMORY;
        assert_int_equal(status, HEARTH_NO_MEMORY);
    }
    assert_int_equal(refused, 3);
    hearth_close(nodes[0]);
    hearth_close(nodes[1]);
    formed_group(&f, left, 2);
    formed_run(&f, complete, &t);
    check_step(&f, &t);
    training_close(&t);
    formed_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_others_complete_the_step),
        cmocka_unit_test(test_what_not_all_have_done_is_made_again),
        cmocka_unit_test(test_who_has_not_heard_of_the_end_ends_it),
        cmocka_unit_test(test_who_is_new_goes_on_with_the_others),
        cmocka_unit_test(test_a_step_that_is_given_up_leaves_nothing),
        cmocka_unit_test(test_who_gives_up_what_others_ended_is_named),
        cmocka_unit_test(test_moving_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
