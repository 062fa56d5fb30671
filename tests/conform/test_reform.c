/* SPDX-License-Identifier: Apache-2.0 */
/* Syncs and compressors go on with the next group: a step that a member's going has interrupted is
 * committed or aborted there, the same on all, with nothing counted twice or lost; and training goes on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conform/training.h"
#include "gradient/sync.h"
#include "node/reconcile.h"
#include "support/watchdog.h"

/* One makes some of its tensors ready, or all, and goes. */
static void interrupted_step(struct cluster_group *f, int member, void *arg)
{
    struct training *t = arg;
    training_fill(t, member);
    if (member == t->leaver) {
        int order[TENSORS], count = (int)(t->seed % (TENSORS + 1));
        model_order(order, t->seed);
        for (int i = 0; i < count; i++)
            check_status(hearth_sync_ready(t->model[member].sync, order[i]), HEARTH_OK);
        sleep_ms((int)(t->seed / 64 % 3));
        t->model[member].sync = NULL; /* goes with the node */
        cluster_group_leave(f, member);
        return;
    }
    model_ready(&t->model[member], (uint64_t)member);
    int status = hearth_sync_wait(t->model[member].sync, NULL);
    for (int i = 0; i < 2 && status == HEARTH_OK; i++) { /* all had voted: then the next one */
        training_fill(t, member);
        model_ready(&t->model[member], (uint64_t)member);
        status = hearth_sync_wait(t->model[member].sync, NULL);
    }
    check_status(status, HEARTH_VIEW_CHANGED);
    model_check(&t->model[member], t->model[member].before, "what it held before");
}

/* ---- one leaves ---- */

static void lose_one(struct cluster_group *f, struct training *t, const char *codec, uint64_t seed)
{
    cluster_group_open(f);
    cluster_group_group(f, (const int[]){0, 1, 2}, 3);
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

/* The next group: all of it has committed the step that the old one left, with the one that has gone, or
 * nobody has. */
static void go_on(struct cluster_group *f, struct training *t, const int *members, int size)
{
    uint64_t before[CLUSTER_GROUP_MAX];
    int committed = 0, old = 0;
    for (int i = 0; i < CLUSTER_GROUP_MAX; i++)
        before[i] = t->model[i].sync ? hearth_sync_steps(t->model[i].sync) : 0;
    cluster_group_group(f, members, size);
    for (int i = 0; i < size; i++) {
        check(!f->behind[members[i]], "member %d is behind", members[i]);
        if (!t->model[members[i]].sync)
            continue;
        old++;
        committed += hearth_sync_steps(t->model[members[i]].sync) > before[members[i]];
    }
    check(committed == 0 || committed == old, "%d of %d members have committed the step", committed, old);
    if (committed == 0)
        contributors(t, members, size);
    checks_end();
}

static void run_completed(const char *codec, uint64_t seed)
{
    struct cluster_group f;
    struct training t;
    int left[2];
    lose_one(&f, &t, codec, seed);
    survivors(&t, left);
    go_on(&f, &t, left, 2);
    cluster_group_run(&f, complete, &t);
    check_step(&f, &t);
    train_on(&f, &t);
    training_close(&t);
    cluster_group_close(&f);
}

TEST(test_the_others_complete_the_step)
{
    uint64_t seed = first_seed();
    for (unsigned long i = 0; i < repeat_count(1); i++)
        for (size_t c = 0; c < TRAINING_CODECS; c++)
            run_completed(training_codecs[c], draw(&seed));
}

/* ---- a step that is made again ---- */

/* The program computes the gradients anew, into the same buffers. */
static void other_gradients(struct cluster_group *f, int member, void *arg)
{
    struct training *t = arg;
    model_fill(&t->model[member], member, t->step);
    model_ready(&t->model[member], (uint64_t)member + 7);
    check_status(hearth_sync_wait(t->model[member].sync, NULL), HEARTH_OK);
}

/* It has computed some of them anew, and says so only of those. */
static void some_gradients(struct cluster_group *f, int member, void *arg)
{
    struct training *t = arg;
    model_fill(&t->model[member], member, t->step);
    for (int i = 0; i < TENSORS; i += 3)
        check_status(hearth_sync_ready(t->model[member].sync, i), HEARTH_OK);
    check_status(hearth_sync_wait(t->model[member].sync, NULL), HEARTH_OK);
}

TEST(test_what_stands_in_the_buffers_is_sent)
{
    cluster_group_fn *const algos[] = {other_gradients, some_gradients};
    for (size_t c = 0; c < 2 * TRAINING_CODECS; c++) {
        struct cluster_group f;
        struct training t;
        int left[2];
        lose_one(&f, &t, training_codecs[c / 2], 64 * c + 3); /* it was ready with some of its tensors */
        survivors(&t, left);
        go_on(&f, &t, left, 2);
        run_step(&f, &t, algos[c % 2]);
        check_step(&f, &t);
        train_on(&f, &t);
        training_close(&t);
        cluster_group_close(&f);
    }
}

/* ---- failures without a loss ---- */

/* One gradient is no number: the whole step is aborted for all, and made again as it stands. */
static void poisoned_step(struct cluster_group *f, int member, void *arg)
{
    struct training *t = arg;
    struct model *m = &t->model[member];
    enum { BAD = 16 };
    training_fill(t, member);
    float *x = m->data[BAD], kept = x[77];
    if (member == 1)
        ((float *)m->before[BAD])[77] = x[77] = (float)NAN;
    model_ready(m, (uint64_t)member);
    check_status(hearth_sync_wait(m->sync, NULL), HEARTH_POISONED);
    check_text(hearth_error_text(), "rank 1");
    model_check(m, m->before, "what it held before");
    ((float *)m->before[BAD])[77] = x[77] = kept;
    check_status(hearth_barrier(cluster_group_world(f, member), NULL), HEARTH_OK);
    check_status(hearth_sync_wait(m->sync, NULL), HEARTH_OK);
}

TEST(test_poison_aborts_the_whole_step)
{
    struct cluster_group f;
    struct training t;
    cluster_group_open(&f);
    cluster_group_group(&f, (const int[]){0, 1, 2}, 3);
    training_open(&t, &f, "int8", 1);
    train_on(&f, &t);
    run_step(&f, &t, poisoned_step);
    check_step(&f, &t);
    train_on(&f, &t);
    training_close(&t);
    cluster_group_close(&f);
}

/* ---- members that come, stay away or give up; memory that runs out ---- */

/* Members whose step the next group has committed take its result: a new step would give it up. */
static void take_committed(const struct cluster_group *f, struct training *t)
{
    for (int i = 0; i < f->size; i++) {
        hearth_sync *sync = t->model[f->member[i]].sync;
        if (sync && sync->stage == STAGE_COMMITTED)
            check_status(hearth_sync_wait(sync, NULL), HEARTH_OK);
    }
}

/* Somebody who has never made a step takes the place of the one that has gone. */
TEST(test_a_new_member_goes_on_with_the_others)
{
    uint64_t seed = first_seed() + 200;
    for (size_t c = 0; c < TRAINING_CODECS; c++) {
        struct cluster_group f;
        struct training t;
        int left[3];
        lose_one(&f, &t, training_codecs[c], draw(&seed));
        survivors(&t, left);
        left[2] = 3;
        go_on(&f, &t, left, 3);
        take_committed(&f, &t);
        model_open(&t.model[3], cluster_group_world(&f, 3), training_codecs[c], HEARTH_OP_SUM);
        train_on(&f, &t);
        check(hearth_sync_steps(t.model[3].sync) == hearth_sync_steps(t.model[left[0]].sync),
              "the new one counts other steps");
        training_close(&t);
        cluster_group_close(&f);
    }
}

/* The first step with it is interrupted as well: it is one of them, or new still. */
TEST(test_a_new_member_and_another_loss)
{
    uint64_t seed = first_seed() + 400;
    for (size_t c = 0; c < TRAINING_CODECS; c++) {
        struct cluster_group f;
        struct training t;
        lose_one(&f, &t, training_codecs[c], 192 * draw_below(&seed, 99));
        int left[] = {1, 2, 3}; /* 0 has gone: so says the seed */
        cluster_group_group(&f, left, 3);
        take_committed(&f, &t);
        model_open(&t.model[3], cluster_group_world(&f, 3), training_codecs[c], HEARTH_OP_SUM);
        t.leaver = 1;
        t.seed = draw(&seed);
        run_step(&f, &t, interrupted_step);
        cluster_group_group(&f, left + 1, 2);
        take_committed(&f, &t);
        train_on(&f, &t);
        check(hearth_sync_steps(t.model[3].sync) == hearth_sync_steps(t.model[2].sync),
              "the new one counts other steps");
        training_close(&t);
        cluster_group_close(&f);
    }
}

/* It slept while the others made five steps: it is told, begins with nothing left behind, disturbs
 * nobody, and is as good as any other from then on. */
TEST(test_a_member_that_slept_is_behind)
{
    for (size_t c = 0; c < TRAINING_CODECS; c++) {
        struct cluster_group f;
        struct training t;
        cluster_group_open(&f);
        cluster_group_group(&f, (const int[]){0, 1, 2}, 3);
        training_open(&t, &f, training_codecs[c], 1);
        train_on(&f, &t);
        cluster_group_group(&f, (const int[]){0, 1}, 2);
        for (int i = 0; i < 5; i++)
            run_step(&f, &t, whole_step);
        cluster_group_group(&f, (const int[]){2, 0, 1}, 3);
        check(f.behind[2] && !f.behind[0] && !f.behind[1], "who is behind is not told so");
        check(hearth_sync_steps(t.model[2].sync) == 2, "it counts steps that it has not made");
        residuals_read(&t.model[2], &t.before[2]);
        for (int i = 0; i < TENSORS; i++)
            for (size_t k = 0; k < model_count(i); k++)
                check(t.before[2].of[i][k] == 0, "something is left behind of tensor %d", i);
        cluster_group_group(&f, (const int[]){0, 1, 2}, 3);
        check(f.behind[2], "it is not behind any more, without a step");
        train_on(&f, &t);
        cluster_group_group(&f, (const int[]){0, 2}, 2); /* one is lost now */
        check(!f.behind[0] && !f.behind[2], "it is behind again");
        train_on(&f, &t);
        check(hearth_sync_steps(t.model[2].sync) == 11, "it counts other steps than the others");
        training_close(&t);
        cluster_group_close(&f);
    }
}

/* Given up by all: the next step begins where the last one ended. */
TEST(test_a_step_that_is_given_up_leaves_nothing)
{
    uint64_t seed = first_seed() + 300;
    for (size_t c = 0; c < TRAINING_CODECS; c++) {
        struct cluster_group f;
        struct training t;
        int left[2];
        lose_one(&f, &t, training_codecs[c], draw(&seed));
        survivors(&t, left);
        hearth_sync_drop(t.model[left[0]].sync);
        cluster_group_group(&f, left, 2);
        hearth_sync_drop(t.model[left[1]].sync); /* before or after: all the same */
        train_on(&f, &t);
        training_close(&t);
        cluster_group_close(&f);
    }
}

/* A member is lost while the next group is made: what hangs on the old one stays there. */
struct moving {
    hearth_node *nodes[3];
    int left[2];
};

static void interrupted_move(struct cluster_group *f, int member, void *arg)
{
    const struct moving *m = arg;
    struct error error;
    int rank = member == m->left[0] ? 0 : 1;
    check_status(node_move_attachments(cluster_group_world(f, member), hearth_node_world(m->nodes[rank]),
                                       NULL, &error),
                 HEARTH_VIEW_CHANGED);
}

TEST(test_a_move_that_is_interrupted)
{
    struct cluster_group f;
    struct training t;
    struct moving m;
    struct error error;
    struct hearth_config config;
    hearth_config_init(&config);
    lose_one(&f, &t, "topk:0.02", TENSORS);
    survivors(&t, m.left);
    struct heap *heaps[] = {f.heap[m.left[0]], f.heap[m.left[1]], f.heap[3]};
    struct local_setup setup = {
        .config = &config, .count = 3, .id = 99, .lent_heaps = heaps, .loss = HEARTH_VIEW_CHANGED};
    assert_int_equal(local_open(&setup, m.nodes, &error), HEARTH_OK);
    f.size = 2;
    f.member[0] = m.left[0];
    f.member[1] = m.left[1];
    hearth_node_close(m.nodes[2]);
    cluster_group_run(&f, interrupted_move, &m);
    hearth_node_close(m.nodes[0]);
    hearth_node_close(m.nodes[1]);
    go_on(&f, &t, m.left, 2);
    cluster_group_run(&f, complete, &t);
    check_step(&f, &t);
    train_on(&f, &t);
    training_close(&t);
    cluster_group_close(&f);
}

/* No memory to move: everything stays where it is, and can be moved later. */
TEST(test_moving_without_memory)
{
    struct cluster_group f;
    struct training t;
    int left[2], refused = 0;
    struct error error;
    struct hearth_config config;
    hearth_node *nodes[2];
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
        int status = node_move_attachments(cluster_group_world(&f, left[0]), hearth_node_world(nodes[0]),
                                           NULL, &error);
        atomic_store(&f.heap[left[0]]->fail_after, -1);
        refused += status == HEARTH_NO_MEMORY;
        assert_int_equal(status, HEARTH_NO_MEMORY);
    }
    assert_int_equal(refused, 3);
    hearth_node_close(nodes[0]);
    hearth_node_close(nodes[1]);
    go_on(&f, &t, left, 2);
    cluster_group_run(&f, complete, &t);
    check_step(&f, &t);
    training_close(&t);
    cluster_group_close(&f);
}
