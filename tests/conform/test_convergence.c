/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed training ends where plain training does, because what a step leaves out is kept: four members,
 * Fashion-MNIST, fixed seeds, the same number of steps for every codec. After each step all members hold the
 * same bits. */
#include "cluster.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/train.h"

#define DATA_DIR    "/usr/share/datasets/fashion-mnist"
#define MEMBERS     4
#define STEPS       400
#define STEPS_SLOW  20 /* under sanitizers: enough to compare bits, not to learn */
#define TEST_IMAGES 5000

struct run {
    const char *codec;
    struct train_job *job;
    struct train_score score;
};

/* At full rate for half of the steps, then down to nothing, so that what is held back comes to rest. */
static float rate_at(const struct train_job *job, size_t step, size_t steps)
{
    double left = 2 * (1 - (double)step / (double)steps);
    return (float)((double)job->rate * (left < 1 ? left : 1));
}

static int train(struct trainer *t, struct run *run)
{
    size_t steps = slow_factor() > 1 ? STEPS_SLOW : STEPS;
    int status = trainer_start(t);
    double loss = 0;
    while (!status && t->step < steps) {
        t->rate = rate_at(run->job, t->step, steps);
        status = trainer_step(t, &loss);
        if (!status)
            status = hearth_same(t->group, t->params, t->count * sizeof *t->params, NULL);
    }
    return status ? status
                  : trainer_score(t, TEST_IMAGES, t->rank == 0 ? &run->score : &(struct train_score){0});
}

static void member(struct cluster *c, int rank, void *arg)
{
    struct run *run = arg;
    struct trainer t;
    struct hearth_compressor_config config;
    if (!check(trainer_init(&t, run->job, c->world[rank]), "no memory"))
        return;
    hearth_compressor_config_init(&config);
    config.codec = run->codec;
    if (check_status(hearth_compressor_open(c->world[rank], &config, &t.compressor), HEARTH_OK))
        check_status(train(&t, run), HEARTH_OK);
    hearth_compressor_close(t.compressor);
    trainer_fini(&t);
}

static struct train_score score_of(const char *codec, struct train_job *job)
{
    struct cluster c;
    struct run run = {.codec = codec, .job = job};
    cluster_open(&c, MEMBERS, NULL);
    cluster_run(&c, member, &run);
    cluster_close(&c);
    printf("%-24s loss %.4f, %.2f %% right\n", codec, run.score.loss, run.score.accuracy * 100);
    return run.score;
}

static void test_convergence(void **state)
{
    static const char *const codecs[] = {"int8", "topk:0.01", "powersgd:4"};
    struct dataset images, test;
    struct error error;
    (void)state;
    if (access(DATA_DIR, R_OK) != 0) {
        printf("skipped: there is no %s (Debian: dataset-fashion-mnist)\n", DATA_DIR);
        skip();
    }
    if (dataset_read(DATA_DIR, "train", &images, &error) || dataset_read(DATA_DIR, "t10k", &test, &error))
        fail_msg("%s", error.text);
    struct train_job job = {.train = &images, .test = &test, .batch = 64, .rate = 0.2f, .seed = 1};
    job.mlp = (struct mlp){.in = 784, .hidden = MLP_BLOCK, .out = 10};
    struct train_score plain = score_of("none", &job);
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        struct train_score score = score_of(codecs[i], &job);
        if (slow_factor() > 1)
            continue;
        if (score.loss > 1.01 * plain.loss && score.accuracy < plain.accuracy - 0.005)
            fail_msg("%s: loss %.4f, %.2f %% right; plain: %.4f, %.2f %%", codecs[i], score.loss,
                     score.accuracy * 100, plain.loss, plain.accuracy * 100);
    }
    struct train_score lossy = score_of("topk:0.01,feedback=off", &job);
    if (slow_factor() == 1) {
        assert_true(plain.accuracy > 0.8);
        assert_true(lossy.loss > 1.1 * plain.loss);
        assert_true(lossy.accuracy < plain.accuracy - 0.01);
    }
    dataset_free(&images);
    dataset_free(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convergence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
