/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the demo: a perceptron with one hidden layer, softmax and cross-entropy, in f32. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MLP_BLOCK 256 /* units of the hidden layer come in blocks of this: inner loops of a known length */

struct mlp {
    size_t in, hidden, out; /* hidden: a multiple of MLP_BLOCK */
};

/* Parameters are one flat array, made of these, row by row, in this order. */
enum mlp_part {
    MLP_WEIGHTS1, /* [in][hidden] */
    MLP_BIAS1,    /* [hidden] */
    MLP_WEIGHTS2, /* [out][hidden] */
    MLP_BIAS2,    /* [out] */
    MLP_PARTS
};

struct mlp_shape {
    const char *name; /* "weights1" */
    size_t offset, count;
    int ndim;
    size_t dims[2];
};

/* Room for one batch of at most `batch_max` inputs; one per thread. */
struct mlp_work {
    size_t batch_max;
    float *input;  /* [batch_max][in], filled by the caller */
    float *hidden; /* [batch_max][hidden] */
    float *slope;  /* [batch_max][hidden]: of the loss by what enters the hidden layer (forward: f') */
    float *output; /* [batch_max][out]: logits, then the slope of the loss by them */
};

struct mlp_shape mlp_shape(const struct mlp *mlp, enum mlp_part part);
size_t mlp_param_count(const struct mlp *mlp);
/* Random weights (He), the same for the same seed; biases 0. */
void mlp_init(const struct mlp *mlp, uint64_t seed, float *params);

bool mlp_work_init(struct mlp_work *work, const struct mlp *mlp, size_t batch_max); /* false: no memory */
void mlp_work_fini(struct mlp_work *work);

/* The mean slope of the loss over work->input[0..batch) by each parameter. Returns the sum of the losses. */
double mlp_gradient(const struct mlp *mlp, const float *params, const uint8_t *labels, size_t batch,
                    struct mlp_work *work, float *gradient);
/* How many of work->input[0..batch) get the right label. Adds up their losses in *loss. */
size_t mlp_correct(const struct mlp *mlp, const float *params, const uint8_t *labels, size_t batch,
                   struct mlp_work *work, double *loss);

/* One step of gradient descent with momentum: v = momentum*v + g; p = p - rate*v. */
void mlp_descend(float *params, float *velocity, const float *gradient, size_t count, float rate,
                 float momentum);
