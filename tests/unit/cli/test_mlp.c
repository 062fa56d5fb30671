/* SPDX-License-Identifier: Apache-2.0 */
/* The demo's backward pass against finite differences of an independent forward pass in double. */
#include <math.h>

#include "cli/demo/mlp.h"
#include "core/prng.h"
#include "support/suite.h"

#define IN    37 /* no multiple of anything in the code */
#define OUT   7
#define WIDE  (2 * MLP_BLOCK) /* more than one block of hidden units */
#define BATCH 9

struct net {
    struct mlp mlp;
    size_t count;
    float *params, *gradient;
    double *exact; /* the parameters in double, which a test may shift */
    uint8_t labels[BATCH];
    struct mlp_work work;
};

static void *zeros(size_t count, size_t size)
{
    void *block = calloc(count, size);
    assert_non_null(block);
    return block;
}

static void net_init(struct net *n)
{
    struct prng prng;
    n->mlp = (struct mlp){.in = IN, .hidden = WIDE, .out = OUT};
    n->count = mlp_param_count(&n->mlp);
    n->params = zeros(n->count, sizeof *n->params);
    n->gradient = zeros(n->count, sizeof *n->gradient);
    n->exact = zeros(n->count, sizeof *n->exact);
    assert_true(mlp_work_init(&n->work, &n->mlp, BATCH));
    mlp_init(&n->mlp, 5, n->params);
    prng_init(&prng, 6);
    for (size_t i = 0; i < n->count; i++) { /* biases too */
        n->params[i] += (float)(prng_unit(&prng) - 0.5) / 8;
        n->exact[i] = n->params[i];
    }
    for (size_t i = 0; i < BATCH * IN; i++)
        n->work.input[i] = i % 3 == 0 ? 0 : (float)(2 * prng_unit(&prng));
    for (size_t i = 0; i < BATCH; i++)
        n->labels[i] = (uint8_t)prng_below(&prng, OUT);
}

static void net_fini(struct net *n)
{
    free(n->params);
    free(n->gradient);
    free(n->exact);
    mlp_work_fini(&n->work);
}

/* The mean loss, by the plainest loops. */
static double loss_of(const struct net *n)
{
    const double *w1 = n->exact, *b1 = w1 + IN * WIDE, *w2 = b1 + WIDE, *b2 = w2 + OUT * WIDE;
    double loss = 0;
    for (size_t b = 0; b < BATCH; b++) {
        double hidden[WIDE], output[OUT], sum = 0;
        for (size_t j = 0; j < WIDE; j++) {
            double z = b1[j];
            for (size_t k = 0; k < IN; k++)
                z += (double)n->work.input[b * IN + k] * w1[k * WIDE + j];
            hidden[j] = z < 0 ? 0 : z < 1 ? z * z / 2 : z - 0.5;
        }
        for (size_t o = 0; o < OUT; o++) {
            output[o] = b2[o];
            for (size_t j = 0; j < WIDE; j++)
                output[o] += hidden[j] * w2[o * WIDE + j];
            sum += exp(output[o]);
        }
        loss += log(sum) - output[n->labels[b]];
    }
    return loss / BATCH;
}

static double slope_of(struct net *n, size_t param)
{
    const double step = 1e-5;
    double saved = n->exact[param];
    n->exact[param] = saved + step;
    double above = loss_of(n);
    n->exact[param] = saved - step;
    double below = loss_of(n);
    n->exact[param] = saved;
    return (above - below) / (2 * step);
}

TEST(test_gradient)
{
    struct net n;
    double largest = 0;
    net_init(&n);
    double sum = mlp_gradient(&n.mlp, n.params, n.labels, BATCH, &n.work, n.gradient);
    assert_true(fabs(sum / BATCH - loss_of(&n)) < 1e-5);
    for (size_t i = 0; i < n.count; i++)
        largest = fmax(largest, fabs((double)n.gradient[i]));
    assert_true(largest > 0.01);
    for (size_t i = 0; i < n.count; i += i % 5 + 1) { /* a third of all, in every layer */
        double expected = slope_of(&n, i), got = n.gradient[i];
        if (fabs(got - expected) > 1e-5 * largest + 1e-4 * fabs(expected))
            fail_msg("parameter %zu of %zu: slope %.9g, by differences %.9g", i, n.count, got, expected);
    }
    net_fini(&n);
}

/* The mean gradients of shares, weighted by size, are the whole batch's: what data-parallel training rests
 * on. */
TEST(test_shares)
{
    struct net n;
    enum { FIRST = 4 };
    net_init(&n);
    float *joined = zeros(n.count, sizeof *joined), *input = zeros(BATCH * IN, sizeof *input);
    memcpy(input, n.work.input, BATCH * IN * sizeof *input);
    mlp_gradient(&n.mlp, n.params, n.labels, BATCH, &n.work, joined);
    mlp_gradient(&n.mlp, n.params, n.labels, FIRST, &n.work, n.gradient);
    for (size_t i = 0; i < n.count; i++)
        n.exact[i] = (double)n.gradient[i] * FIRST / BATCH;
    memcpy(n.work.input, input + FIRST * IN, (BATCH - FIRST) * IN * sizeof *input);
    mlp_gradient(&n.mlp, n.params, n.labels + FIRST, BATCH - FIRST, &n.work, n.gradient);
    for (size_t i = 0; i < n.count; i++) {
        double mean = n.exact[i] + (double)n.gradient[i] * (BATCH - FIRST) / BATCH;
        if (fabs(mean - (double)joined[i]) > 1e-6)
            fail_msg("parameter %zu: %.9g of shares, %.9g of the whole", i, mean, (double)joined[i]);
    }
    free(joined);
    free(input);
    net_fini(&n);
}

TEST(test_learns)
{
    struct net n;
    net_init(&n);
    float *velocity = zeros(n.count, sizeof *velocity);
    double first = mlp_gradient(&n.mlp, n.params, n.labels, BATCH, &n.work, n.gradient), last = first;
    for (int i = 0; i < 200; i++) {
        mlp_descend(n.params, velocity, n.gradient, n.count, 0.02f, 0.9f);
        last = mlp_gradient(&n.mlp, n.params, n.labels, BATCH, &n.work, n.gradient);
    }
    assert_true(last < first / 10);
    double again = 0;
    assert_int_equal(mlp_correct(&n.mlp, n.params, n.labels, BATCH, &n.work, &again), BATCH);
    assert_true(again == last);
    free(velocity);
    net_fini(&n);
}

TEST(test_init_repeats)
{
    struct mlp mlp = {.in = IN, .hidden = WIDE, .out = OUT};
    size_t count = mlp_param_count(&mlp);
    float *a = zeros(count, sizeof *a), *b = zeros(count, sizeof *b);
    mlp_init(&mlp, 1, a);
    mlp_init(&mlp, 1, b);
    assert_memory_equal(a, b, count * sizeof *a);
    mlp_init(&mlp, 2, b);
    assert_memory_not_equal(a, b, count * sizeof *a);
    free(a);
    free(b);
}

/* Parts follow each other without gaps and cover the parameters. */
TEST(test_shapes)
{
    struct mlp mlp = {.in = IN, .hidden = WIDE, .out = OUT};
    size_t at = 0;
    for (int p = 0; p < MLP_PARTS; p++) {
        struct mlp_shape shape = mlp_shape(&mlp, (enum mlp_part)p);
        assert_int_equal(shape.offset, at);
        assert_int_equal(shape.count, shape.dims[0] * (shape.ndim == 2 ? shape.dims[1] : 1));
        at += shape.count;
    }
    assert_int_equal(at, IN * WIDE + WIDE + OUT * WIDE + OUT);
    assert_int_equal(at, mlp_param_count(&mlp));
}
