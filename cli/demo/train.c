/* SPDX-License-Identifier: Apache-2.0 */
/* Data-parallel training of the demo's model: one trainer per node, or one alone on the joined batches. */
#include "cli/demo/train.h"

#include <stdlib.h>
#include <string.h>

#include "cli/shared/stats.h"
#include "core/prng.h"
#include "os/clock.h"

#define TEST_BATCH  250
#define PROBE_CALLS 30

size_t train_steps(const struct train_job *job)
{
    return job->train->count / job->batch;
}

bool trainer_init(struct trainer *t, const struct train_job *job, hearth_group *group)
{
    size_t batch_max = job->batch > TEST_BATCH ? job->batch : TEST_BATCH;
    *t = (struct trainer){.job = job, .group = group, .size = 1, .count = mlp_param_count(&job->mlp)};
    if (group) {
        t->rank = hearth_group_rank(group);
        t->size = hearth_group_size(group);
    }
    t->params = calloc(t->count, sizeof *t->params);
    t->velocity = calloc(t->count, sizeof *t->velocity);
    t->gradient = calloc(t->count, sizeof *t->gradient);
    t->order = calloc(job->train->count, sizeof *t->order);
    t->labels = calloc(batch_max, sizeof *t->labels);
    if (t->params && t->velocity && t->gradient && t->order && t->labels &&
        mlp_work_init(&t->work, &job->mlp, batch_max))
        return true;
    trainer_fini(t);
    return false;
}

void trainer_fini(struct trainer *t)
{
    free(t->params);
    free(t->velocity);
    free(t->gradient);
    free(t->order);
    free(t->labels);
    mlp_work_fini(&t->work);
    *t = (struct trainer){.job = NULL};
}

int trainer_start(struct trainer *t)
{
    for (uint32_t i = 0; i < t->job->train->count; i++)
        t->order[i] = i;
    memset(t->velocity, 0, t->count * sizeof *t->velocity);
    t->rate = t->job->rate;
    t->step = 0;
    t->compute_ns = t->call_ns = 0;
    if (t->rank == 0)
        mlp_init(&t->job->mlp, t->job->seed, t->params);
    return t->group ? hearth_broadcast(t->group, t->params, t->count, HEARTH_F32, 0, NULL) : HEARTH_OK;
}

/* The same order for all, from the seed and the epoch. */
static void shuffle(struct trainer *t, size_t epoch)
{
    struct prng prng;
    prng_init(&prng, t->job->seed + 1 + epoch);
    for (size_t i = t->job->train->count; i > 1; i--) {
        size_t j = (size_t)prng_below(&prng, i);
        uint32_t swap = t->order[i - 1];
        t->order[i - 1] = t->order[j];
        t->order[j] = swap;
    }
}

static void load_image(struct trainer *t, const struct dataset *set, size_t image, size_t slot)
{
    size_t pixels = t->job->mlp.in;
    const uint8_t *source = set->images.bytes + image * pixels;
    float *target = t->work.input + slot * pixels;
    for (size_t i = 0; i < pixels; i++)
        target[i] = (float)source[i] / 255;
    t->labels[slot] = set->labels.bytes[image];
}

/* This rank's part of `count` things: from share_begin(rank) to share_begin(rank + 1). */
static size_t share_begin(const struct trainer *t, size_t count, int rank)
{
    return count * (size_t)rank / (size_t)t->size;
}

/* `shape` holds the dimensions. */
static struct hearth_tensor part_tensor(struct trainer *t, int part, struct mlp_shape *shape)
{
    *shape = mlp_shape(&t->job->mlp, (enum mlp_part)part);
    return (struct hearth_tensor){.size = sizeof(struct hearth_tensor),
                                  .name = shape->name,
                                  .data = t->gradient + shape->offset,
                                  .dtype = HEARTH_F32,
                                  .ndim = shape->ndim,
                                  .dims = shape->dims};
}

int trainer_sync(struct trainer *t)
{
    int status = hearth_sync_open_with(t->compressor, HEARTH_OP_AVG, &t->sync);
    for (int p = 0; p < MLP_PARTS && status >= 0; p++) {
        struct mlp_shape shape;
        struct hearth_tensor tensor = part_tensor(t, p, &shape);
        status = hearth_sync_add(t->sync, &tensor);
    }
    return status < 0 ? status : HEARTH_OK;
}

static int sync_gradient(struct trainer *t, double weight)
{
    int status = hearth_sync_set_weight(t->sync, weight);
    for (int p = 0; p < MLP_PARTS && !status; p++)
        status = hearth_sync_ready(t->sync, p);
    return status ? status : hearth_sync_wait(t->sync, NULL);
}

/* Layer by layer through the compressor, all under way at the same time. */
static int compress_gradient(struct trainer *t, const struct hearth_opts *opts)
{
    hearth_request *requests[MLP_PARTS] = {NULL};
    int status = HEARTH_OK;
    for (int p = 0; p < MLP_PARTS && !status; p++) {
        struct mlp_shape shape;
        struct hearth_tensor tensor = part_tensor(t, p, &shape);
        status = hearth_compressor_all_reduce_nb(t->compressor, &tensor, HEARTH_OP_AVG, opts, &requests[p]);
    }
    if (!status)
        status = hearth_request_wait_all(requests, MLP_PARTS, -1);
    for (int p = 0; p < MLP_PARTS; p++)
        hearth_request_close(requests[p]);
    return status;
}

/* The mean over all images of the batch: shares may differ by one image, so each weighs by its size. */
static int average_gradient(struct trainer *t, size_t share)
{
    struct hearth_opts opts;
    if (!t->group)
        return HEARTH_OK;
    hearth_opts_init(&opts);
    opts.weight = (double)share * t->size / (double)t->job->batch;
    if (t->sync)
        return sync_gradient(t, opts.weight);
    if (t->compressor)
        return compress_gradient(t, &opts);
    return hearth_all_reduce(t->group, t->gradient, t->gradient, t->count, HEARTH_F32, HEARTH_OP_AVG, &opts);
}

int trainer_step(struct trainer *t, double *loss)
{
    size_t begin = share_begin(t, t->job->batch, t->rank), end = share_begin(t, t->job->batch, t->rank + 1);
    size_t steps = train_steps(t->job), step = t->step % steps;
    if (step == 0)
        shuffle(t, t->step / steps);
    uint64_t start = clock_real();
    for (size_t i = begin; i < end; i++)
        load_image(t, t->job->train, t->order[step * t->job->batch + i], i - begin);
    *loss += mlp_gradient(&t->job->mlp, t->params, t->labels, end - begin, &t->work, t->gradient);
    uint64_t computed = clock_real();
    int status = average_gradient(t, end - begin);
    uint64_t met = clock_real();
    if (status)
        return status;
    mlp_descend(t->params, t->velocity, t->gradient, t->count, t->rate, t->job->momentum);
    t->call_ns += met - computed;
    t->compute_ns += (computed - start) + (clock_real() - met);
    t->step++;
    return HEARTH_OK;
}

static size_t score_share(struct trainer *t, size_t images, double *loss)
{
    size_t begin = share_begin(t, images, t->rank), end = share_begin(t, images, t->rank + 1), correct = 0;
    for (size_t at = begin; at < end; at += TEST_BATCH) {
        size_t batch = end - at < TEST_BATCH ? end - at : TEST_BATCH;
        for (size_t i = 0; i < batch; i++)
            load_image(t, t->job->test, at + i, i);
        correct += mlp_correct(&t->job->mlp, t->params, t->labels, batch, &t->work, loss);
    }
    return correct;
}

/* Of all trainers. */
static int sum_up(struct trainer *t, double loss, size_t correct, double sums[2])
{
    sums[0] = loss;
    sums[1] = (double)correct;
    return t->group ? hearth_all_reduce(t->group, sums, sums, 2, HEARTH_F64, HEARTH_OP_SUM, NULL) : HEARTH_OK;
}

int trainer_score(struct trainer *t, size_t images, struct train_score *score)
{
    double sums[2], loss = 0;
    size_t correct = score_share(t, images, &loss);
    int status = sum_up(t, loss, correct, sums);
    if (!status)
        *score = (struct train_score){sums[0] / (double)images, sums[1] / (double)images};
    return status;
}

int trainer_epoch(struct trainer *t, int epoch, struct progress *progress, struct train_epoch *result)
{
    size_t steps = train_steps(t->job), images = t->job->test->count;
    uint64_t start = clock_real();
    double sums[2], loss = 0, ignored = 0;
    int status = HEARTH_OK;
    for (size_t s = 0; s < steps && !status; s++) {
        status = trainer_step(t, &loss);
        if (progress)
            progress_show(progress, ((double)epoch + (double)s / (double)steps) / t->job->epochs);
    }
    if (!status)
        status = sum_up(t, loss, score_share(t, images, &ignored), sums);
    if (!status)
        *result = (struct train_epoch){sums[0] / (double)(steps * t->job->batch), sums[1] / (double)images,
                                       (double)(clock_real() - start) / (double)NS_PER_S};
    return status;
}

int trainer_probe(struct trainer *t, double *seconds)
{
    double times[PROBE_CALLS];
    int status = HEARTH_OK;
    for (int i = 0; i < PROBE_CALLS && !status; i++) {
        status = hearth_barrier(t->group, NULL);
        uint64_t start = clock_real();
        if (!status)
            status = hearth_all_reduce(t->group, t->gradient, t->gradient, t->count, HEARTH_F32,
                                       HEARTH_OP_AVG, NULL);
        times[i] = (double)(clock_real() - start) / (double)NS_PER_S;
    }
    if (!status)
        status = hearth_all_reduce(t->group, times, times, PROBE_CALLS, HEARTH_F64, HEARTH_OP_MAX, NULL);
    if (!status)
        *seconds = stats_of(times, PROBE_CALLS).median;
    return status;
}
