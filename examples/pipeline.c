/* SPDX-License-Identifier: Apache-2.0 */
/* Trains one network in two stages, each in its own process: activations go forward, gradients come back.
 * Run: hearth run -n 2 -- ./pipeline bf16; the codec may be left out, and -n 1 has both stages in one. */
#include <stdio.h>
#include <stdlib.h>

#include <hearth.h>

enum { INPUTS = 8, WIDTH = 64, BATCH = 64, STEPS = 1000 };
static float first[WIDTH][INPUTS], second[WIDTH], loss; /* weights of the stages; what the last one prints */
static float input[BATCH][INPUTS], hidden[BATCH * WIDTH], gradient[BATCH * WIDTH];

static void check(int status)
{
    if (status != HEARTH_OK)
        exit(fprintf(stderr, "%s\n", hearth_error_text()) > 0);
}

static void draw(float *values, int count) /* -1 to 1, the same in both processes */
{
    static uint32_t seed = 1;
    for (int i = 0; i < count; i++)
        values[i] = (float)((seed = seed * 1664525u + 1013904223u) >> 8) / 8388608.0f - 1;
}

static float dot(const float *a, const float *b, int count)
{
    float sum = 0;
    for (int i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void descend(float *weights, float slope, const float *x, int count)
{
    for (int i = 0; i < count; i++)
        weights[i] -= 0.1f / BATCH * slope * x[i];
}

int main(int argc, char **argv)
{
    hearth_node *node;
    check(hearth_node_open(NULL, &node));
    hearth_group *world = hearth_node_world(node); /* of two members, or one */
    int rank = hearth_group_rank(world), last = hearth_group_size(world) - 1;
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.codec = argc > 1 ? argv[1] : "none";
    draw(first[0], WIDTH * INPUTS);
    draw(second, WIDTH);
    for (int step = 0; step < STEPS; step++) {
        draw(input[0], BATCH * INPUTS);
        for (int n = 0; n < BATCH * WIDTH && rank == 0; n++) {
            float sum = dot(first[n % WIDTH], input[n / WIDTH], INPUTS);
            hidden[n] = sum > 0 ? sum : 0;
        }
        if (rank != last)
            check(hearth_send(world, 1, 0, hidden, sizeof hidden, &opts));
        else if (last == 1)
            check(hearth_recv(world, 0, 0, hidden, sizeof hidden, NULL, NULL));
        loss = step % 100 == 0 ? 0 : loss;                /* of the last 100 steps */
        for (int n = 0; n < BATCH && rank == last; n++) { /* it learns the product of two inputs */
            float error = dot(second, &hidden[n * WIDTH], WIDTH) - input[n][0] * input[n][1];
            loss += error * error / BATCH;
            for (int i = 0; i < WIDTH; i++)
                gradient[n * WIDTH + i] = error * second[i];
            descend(second, error, &hidden[n * WIDTH], WIDTH);
        }
        if (rank != last)
            check(hearth_recv(world, 1, 0, gradient, sizeof gradient, NULL, NULL));
        else if (last == 1)
            check(hearth_send(world, 0, 0, gradient, sizeof gradient, &opts));
        for (int n = 0; n < BATCH * WIDTH && rank == 0; n++)
            descend(first[n % WIDTH], hidden[n] > 0 ? gradient[n] : 0, input[n / WIDTH], INPUTS);
        if (rank == last && step % 100 == 99)
            printf("step %d: loss %.6f\n", step + 1, (double)loss / 100);
    }
    hearth_node_close(node);
}
