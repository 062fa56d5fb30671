/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the demo: a perceptron with one hidden layer, softmax and cross-entropy, in f32. */
#ifndef CLI_MLP_H
#define CLI_MLP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MLP_HIDDEN 256 /* a constant, so that the inner loops are of a known length */

/* Parameters are one flat array, which is what all_reduce and broadcast want:
 *   weights1 [in][MLP_HIDDEN], bias1 [MLP_HIDDEN], weights2 [out][MLP_HIDDEN], bias2 [out]. */
struct mlp {
    size_t in, out;
};

/* Room for one batch of at most `batch_max` inputs; one per thread. */
struct mlp_work {
    size_t batch_max;
    float *input;  /* [batch_max][in], filled by the caller */
    float *hidden; /* [batch_max][MLP_HIDDEN] */
    float *
        hidden_slope; /* [batch_max][MLP_HIDDEN]: of the loss by what enters the hidden layer (forward: f') */
    float *output;    /* [batch_max][out]: logits, then the slope of the loss by them */
};

size_t mlp_param_count(const struct mlp *mlp);
/* Random weights (He), the same for the same seed; biases 0. */
void mlp_init(const struct mlp *mlp, uint64_t seed, float *params);

bool mlp_work_init(struct mlp_work *work, const struct mlp *mlp, size_t batch_max); /* false: no memory */
void mlp_work_fini(struct mlp_work *work);

/* The mean slope of the loss over work->input[0..batch) by each parameter. Returns the sum of the losses. */
double mlp_gradient(const struct mlp *mlp, const float *params, const uint8_t *labels, size_t batch,
                    struct mlp_work *work, float *gradient);
/* How many of work->input[0..batch) get the right label. */
size_t mlp_correct(const struct mlp *mlp, const float *params, const uint8_t *labels, size_t batch,
                   struct mlp_work *work);

/* One step of gradient descent with momentum: v = momentum*v + g; p = p - rate*v. */
void mlp_descend(float *params, float *velocity, const float *gradient, size_t count, float rate,
                 float momentum);

#endif
