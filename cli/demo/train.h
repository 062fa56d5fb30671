/* SPDX-License-Identifier: Apache-2.0 */
/* Data-parallel training of the demo's model: one trainer per node, or one alone on the joined batches. */
#pragma once

#include <hearth.h>

#include "cli/demo/idx.h"
#include "cli/demo/mlp.h"
#include "cli/shared/progress.h"

/* What all trainers of a run share. */
struct train_job {
    const struct dataset *train, *test;
    struct mlp mlp;
    int epochs;   /* for trainer_epoch's progress */
    size_t batch; /* images of a step, of all nodes together */
    float rate, momentum;
    uint64_t seed; /* of the first weights and of the order of the images */
};

size_t train_steps(const struct train_job *job); /* of an epoch; what does not fill a batch is left out */

/* One replica. With a group it takes its share of each batch and its gradients meet the others'; without
 * one it takes the whole batch. One thread at a time. */
struct trainer {
    const struct train_job *job;
    hearth_group *group;           /* NULL: alone */
    hearth_compressor *compressor; /* of the group, lent by the caller; NULL: one plain all_reduce a step */
    hearth_sync *sync;             /* on the compressor, lent likewise: see trainer_sync */
    int rank, size;
    size_t count; /* parameters */
    float *params, *velocity, *gradient;
    float rate;      /* the job's at first; the caller may change it between steps */
    uint32_t *order; /* of the images in this epoch */
    uint8_t *labels;
    struct mlp_work work;
    size_t step;                  /* done since trainer_start */
    uint64_t compute_ns, call_ns; /* time in the model, time in collectives, of these steps */
};

/* What the model gives on test images: mean loss, share of the images that are right. */
struct train_score {
    double loss, accuracy;
};

/* Mean loss of the training images, share of the test images that are right. */
struct train_epoch {
    double loss, accuracy, seconds;
};

bool trainer_init(struct trainer *t, const struct train_job *job, hearth_group *group); /* false: no memory */
void trainer_fini(struct trainer *t);

/* The first weights, broadcast by rank 0; the same trainer may start again. Returns a hearth status, as do
 * the others. */
int trainer_start(struct trainer *t);
/* From now on gradients meet by a sync on the compressor: t->sync, the caller's to close. */
int trainer_sync(struct trainer *t);
/* The next step. Adds the loss of this replica's images to *loss. */
int trainer_step(struct trainer *t, double *loss);
/* Scores the first `images` of the test set, shared among all trainers; all get the same result. */
int trainer_score(struct trainer *t, size_t images, struct train_score *score);
/* Epochs from 0, in order. `progress` may be NULL. All trainers get the same result. */
int trainer_epoch(struct trainer *t, int epoch, struct progress *progress, struct train_epoch *result);
/* Seconds of one all-reduce of the gradient when no node computes: median, the slowest node counts. */
int trainer_probe(struct trainer *t, double *seconds);
