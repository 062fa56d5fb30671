/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a job fit one layer, each with its own examples: y = weight x + bias.
 * Run: hearth run -n 4 -- ./train_sync int8; the codec may be left out, and alone it is a world of one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hearth.h>

enum { IN = 64, OUT = 64, BATCH = 32, STEPS = 100 };

static float weight[OUT][IN], bias[OUT], weight_gradient[OUT][IN], bias_gradient[OUT];

static int check(int status) /* of a call; some return a number */
{
    if (status >= 0)
        return status;
    fprintf(stderr, "%s\n", hearth_error_text());
    exit(1);
}

static float draw(uint32_t *seed) /* -1 to 1 */
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / 8388608.0f - 1;
}

/* Adds the gradient of one example and returns its loss. The layer learns to reverse x. */
static float learn(uint32_t *seed)
{
    float x[IN], loss = 0;
    for (int k = 0; k < IN; k++)
        x[k] = draw(seed);
    for (int i = 0; i < OUT; i++) {
        float error = bias[i] - x[IN - 1 - i];
        for (int k = 0; k < IN; k++)
            error += weight[i][k] * x[k];
        bias_gradient[i] += error / BATCH;
        for (int k = 0; k < IN; k++)
            weight_gradient[i][k] += error * x[k] / BATCH;
        loss += error * error / OUT / BATCH;
    }
    return loss;
}

int main(int argc, char **argv)
{
    hearth_node *node;
    hearth_sync *sync;
    check(hearth_node_open(NULL, &node));
    hearth_group *world = hearth_node_world(node);
    check(hearth_sync_open(world, argc > 1 ? argv[1] : NULL, HEARTH_OP_AVG, &sync));
    struct hearth_tensor w = {sizeof w, "weight", weight_gradient, HEARTH_F32, 2, (size_t[]){OUT, IN}};
    struct hearth_tensor b = {sizeof b, "bias", bias_gradient, HEARTH_F32, 1, (size_t[]){OUT}};
    int w_index = check(hearth_sync_add(sync, &w)), b_index = check(hearth_sync_add(sync, &b));

    uint32_t seed = (uint32_t)hearth_group_rank(world);
    float loss = 1;
    for (int step = 0; step < STEPS; step++) {
        memset(weight_gradient, 0, sizeof weight_gradient);
        memset(bias_gradient, 0, sizeof bias_gradient);
        loss = 0;
        for (int example = 0; example < BATCH; example++)
            loss += learn(&seed);
        check(hearth_sync_ready(sync, b_index)); /* a complete gradient travels */
        check(hearth_sync_ready(sync, w_index)); /* while the program computes the rest */
        check(hearth_sync_wait(sync, NULL));     /* now all are averages over the members */
        for (int i = 0; i < OUT; i++) {
            bias[i] -= 0.3f * bias_gradient[i];
            for (int k = 0; k < IN; k++)
                weight[i][k] -= 0.3f * weight_gradient[i][k];
        }
    }
    check(hearth_group_same(world, weight, sizeof weight, NULL, NULL)); /* with every codec, bit for bit */
    printf("rank %d of %d: loss %g\n", hearth_group_rank(world), hearth_group_size(world), (double)loss);
    hearth_sync_close(sync);
    hearth_node_close(node);
    return loss < 0.2f ? 0 : 1; /* the first step has 0.33 */
}
