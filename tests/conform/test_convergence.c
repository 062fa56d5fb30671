/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed training ends where plain training does, because what a step leaves out is kept: four members,
 * Fashion-MNIST, fixed seeds, the same number of steps for every codec. After each step all members hold the
 * same bits. */
#include "fixture.h"

#include <stdio.h>
#include <unistd.h>

#include "cli/demo/train.h"

#define DATA_DIR    "/usr/share/datasets/fashion-mnist"
#define MEMBERS     4
#define STEPS       300
#define STEPS_SHORT 10 /* enough to compare bits, not to learn */
#define TEST_IMAGES 2000

struct run {
    const char *codec;
    struct train_job *job;
    size_t steps;
    struct train_score score;
    uint64_t hash; /* of the last weights */
};

/* At full rate for half of the steps, then down to nothing, so that what is held back comes to rest. */
static float rate_at(const struct run *run, size_t step)
{
    double left = 2 * (1 - (double)step / (double)run->steps);
    return (float)((double)run->job->rate * (left < 1 ? left : 1));
}

static int train(struct trainer *t, const struct run *run, struct train_score *score)
{
    int status = trainer_start(t);
    double loss = 0;
    while (!status && t->step < run->steps) {
        t->rate = rate_at(run, t->step);
        status = trainer_step(t, &loss);
        if (!status)
            status = hearth_group_same(t->group, t->params, t->count * sizeof *t->params, NULL, NULL);
    }
    return status ? status : trainer_score(t, TEST_IMAGES, score);
}

static void member(struct fixture *c, int rank, void *arg)
{
    struct run *run = arg;
    struct trainer t;
    struct train_score score = {0, 0};
    struct hearth_compressor_config config;
    if (!check(trainer_init(&t, run->job, c->world[rank]), "no memory"))
        return;
    hearth_compressor_config_init(&config);
    config.codec = run->codec;
    if (check_ok(hearth_compressor_open(c->world[rank], &config, &t.compressor)))
        check_ok(train(&t, run, &score));
    if (rank == 0) {
        run->score = score;
        run->hash = hash_bytes(t.params, t.count * sizeof *t.params);
    }
    hearth_compressor_close(t.compressor);
    trainer_fini(&t);
}

static struct run run_of(const char *codec, struct train_job *job, size_t steps)
{
    struct run run = {.codec = codec, .job = job, .steps = steps};
    fixture_once(MEMBERS, NULL, member, &run);
    return run;
}

static struct train_score score_of(const char *codec, struct train_job *job)
{
    struct train_score score = run_of(codec, job, slow_factor() > 1 ? STEPS_SHORT : STEPS).score;
    printf("%-24s loss %.4f, %.2f %% right\n", codec, score.loss, score.accuracy * 100);
    return score;
}

static struct dataset images, test_set;

static int read_images(void **state)
{
    static struct train_job job = {.train = &images,
                                   .test = &test_set,
                                   .batch = 64,
                                   .rate = 0.2f,
                                   .seed = 1,
                                   .mlp = {.in = 784, .out = 10}};
    struct error error;
    if (access(DATA_DIR, R_OK) != 0) {
        printf("skipped: there is no %s (Debian: dataset-fashion-mnist)\n", DATA_DIR);
        return 0;
    }
    if (dataset_read(DATA_DIR, "train", &images, &error) ||
        dataset_read(DATA_DIR, "t10k", &test_set, &error)) {
        printf("%s\n", error.text);
        return -1;
    }
    job.mlp.hidden = MLP_BLOCK;
    *state = &job;
    return 0;
}

static int free_images(void **state)
{
    dataset_free(&images);
    dataset_free(&test_set);
    return 0;
}

/* Under sanitizers only the bits are compared: learning takes too long. */
TEST_WITH(convergence, read_images, free_images)
{
    static const char *const codecs[] = {"int8", "topk:0.01", "powersgd:4"};
    struct train_job *job = *state;
    bool learns = slow_factor() == 1;
    if (!job)
        skip();
    struct train_score plain = score_of("none", job);
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        struct train_score score = score_of(codecs[i], job);
        if (learns && score.loss > 1.01 * plain.loss && score.accuracy < plain.accuracy - 0.005)
            fail_msg("%s: loss %.4f, %.2f %% right; plain: %.4f, %.2f %%", codecs[i], score.loss,
                     score.accuracy * 100, plain.loss, plain.accuracy * 100);
    }
    struct train_score lossy = score_of("topk:0.01,feedback=off", job);
    if (learns) {
        assert_true(plain.accuracy > 0.8);
        assert_true(lossy.loss > 1.1 * plain.loss);
        assert_true(lossy.accuracy < plain.accuracy - 0.01);
    }
}

/* The same training gives the same bits again, also where codecs draw. */
TEST_WITH(repeats, read_images, free_images)
{
    static const char *const codecs[] = {"topk:0.01", "randomk:0.01", "powersgd:4"};
    struct train_job *job = *state;
    if (!job)
        skip();
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        struct run first = run_of(codecs[i], job, STEPS_SHORT), second = run_of(codecs[i], job, STEPS_SHORT);
        if (first.hash != second.hash)
            fail_msg("%s: a second run ends with other bits", codecs[i]);
    }
}
