/* SPDX-License-Identifier: Apache-2.0 */
/* A member that voted for a step and did not hear the vote: the next group decides, the same for all. */
#include <string.h>

#include "conform/training.h"
#include "gradient/sync.h"

/* As if the vote of a step that has ended had not come back to this member. */
static void pretend_not_heard(struct model *m, uint64_t lineage)
{
    hearth_sync *sync = m->sync;
    for (int i = 0; i < TENSORS; i++) {
        memcpy(m->wanted[i], m->data[i], model_len(i));
        memcpy(m->data[i], m->before[i], model_len(i));
        sync->tensors[i].progress = TENSOR_READY;
    }
    for (uint32_t b = 0; b < sync->bucket_count; b++)
        sync->buckets[b].progress = BUCKET_DONE;
    sync->steps--;
    sync->lineage = lineage;
    sync->stage = STAGE_DOUBT;
}

/* Two steps of three members; of the second one those of the mask do not hear, and one that does leaves. */
static void doubtful(struct cluster_group *f, struct training *t, const char *codec, int unheard)
{
    cluster_group_open(f);
    cluster_group_group(f, (const int[]){0, 1, 2}, 3);
    training_open(t, f, codec, 1);
    run_step(f, t, whole_step);
    uint64_t lineage = t->model[0].sync->lineage;
    run_step(f, t, whole_step);
    for (int i = 0; i < 3; i++)
        if (unheard & 1 << i)
            pretend_not_heard(&t->model[i], lineage);
    t->model[2].sync = NULL;
    cluster_group_leave(f, 2);
}

/* Until the next group nobody can tell. */
static void check_doubt(struct model *m)
{
    check_status(hearth_sync_wait(m->sync, NULL), HEARTH_VIEW_CHANGED);
    check_status(hearth_sync_ready(m->sync, 3), HEARTH_VIEW_CHANGED);
    check_status(hearth_sync_set_data(m->sync, 3, m->data[3]), HEARTH_OK); /* nothing of it is in flight */
    model_check(m, m->before, "what it held before");
    checks_end();
}

/* Whatever stands in the buffers by then. */
static void take_committed(struct cluster_group *f, int member, void *arg)
{
    struct training *t = arg;
    struct model *m = &t->model[member];
    if (m->sync->stage != STAGE_COMMITTED)
        return;
    for (int i = 0; i < TENSORS; i++) {
        memset(m->data[i], 0x55, model_len(i));
        check_status(hearth_sync_set_data(m->sync, i, m->data[i]), HEARTH_OK);
    }
    check_status(hearth_sync_wait(m->sync, NULL), HEARTH_OK);
    model_check(m, m->wanted, "the step's result");
}

TEST(test_a_committed_step_is_written_by_the_wait)
{
    for (size_t c = 0; c < TRAINING_CODECS; c++) {
        struct cluster_group f;
        struct training t;
        doubtful(&f, &t, training_codecs[c], c % 2 ? 3 : 2); /* both have not heard, or one of them */
        check_doubt(&t.model[1]);
        cluster_group_group(&f, (const int[]){0, 1}, 2);
        cluster_group_group(&f, (const int[]){1, 0}, 2); /* and once more, before anybody has asked */
        check(hearth_sync_steps(t.model[0].sync) == 2 && hearth_sync_steps(t.model[1].sync) == 2,
              "the step is not committed");
        cluster_group_run(&f, take_committed, &t);
        check_step(&f, &t);
        train_on(&f, &t);
        check(hearth_sync_steps(t.model[1].sync) == 4, "a step was counted twice, or not at all");
        training_close(&t);
        cluster_group_close(&f);
    }
}

/* The program catches up by itself, and begins the step that follows. */
TEST(test_a_member_that_has_caught_up_goes_on)
{
    for (size_t c = 0; c < TRAINING_CODECS; c++) {
        struct cluster_group f;
        struct training t;
        doubtful(&f, &t, training_codecs[c], 2);
        cluster_group_group(&f, (const int[]){0, 1}, 2);
        train_on(&f, &t);
        check(hearth_sync_steps(t.model[0].sync) == 4 && hearth_sync_steps(t.model[1].sync) == 4,
              "a step was counted twice, or not at all");
        training_close(&t);
        cluster_group_close(&f);
    }
}

/* Nobody who is left has made use of it, and all make the step again: residuals are as they were before. */
TEST(test_a_committed_step_that_all_make_again)
{
    for (size_t c = 0; c < TRAINING_CODECS; c++) {
        struct cluster_group f;
        struct training t;
        doubtful(&f, &t, training_codecs[c], 3);
        cluster_group_group(&f, (const int[]){0, 1}, 2);
        t.step--;
        contributors(&t, f.member, 2);
        for (int i = 0; i < 2; i++) /* ready takes the step back; so does drop */
            hearth_sync_drop(t.model[i].sync);
        train_on(&f, &t);
        check(hearth_sync_steps(t.model[0].sync) == 3, "a step was counted twice, or not at all");
        training_close(&t);
        cluster_group_close(&f);
    }
}

static void mismatch(struct cluster_group *f, int member, void *arg)
{
    struct training *t = arg;
    training_fill(t, member);
    model_ready(&t->model[member], (uint64_t)member);
    for (int i = 0; i < 2; i++) {
        check_status(hearth_sync_wait(t->model[member].sync, NULL), HEARTH_MISMATCH);
        check_text(hearth_error_text(), "rank 1 has committed 1 steps and rank 0 2");
    }
}

/* One takes the step and the other does not: they cannot go on, and all are told why. */
TEST(test_members_that_do_different_things_are_named)
{
    struct cluster_group f;
    struct training t;
    doubtful(&f, &t, "int8", 3);
    cluster_group_group(&f, (const int[]){0, 1}, 2);
    check_status(hearth_sync_wait(t.model[0].sync, NULL), HEARTH_OK);
    run_step(&f, &t, mismatch);
    training_close(&t);
    cluster_group_close(&f);
}

/* One was not prepared: nobody can have committed the step, and all make it again. */
TEST(test_one_that_is_not_prepared_aborts_it)
{
    for (size_t c = 0; c < TRAINING_CODECS; c++) {
        struct cluster_group f;
        struct training t;
        doubtful(&f, &t, training_codecs[c], 3);
        sync_abort(t.model[0].sync);
        cluster_group_group(&f, (const int[]){0, 1}, 2);
        check(hearth_sync_steps(t.model[1].sync) == 1, "the step is committed");
        contributors(&t, f.member, 2);
        for (int i = 0; i < 2; i++)
            residuals_read(&t.model[i], &t.before[i]);
        cluster_group_run(&f, complete, &t);
        check_step(&f, &t);
        train_on(&f, &t);
        training_close(&t);
        cluster_group_close(&f);
    }
}
