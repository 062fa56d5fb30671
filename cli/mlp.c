/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the demo: a perceptron with one hidden layer, softmax and cross-entropy, in f32.
 *
 *   z = x W1 + b1,  h = f(z),  y = h W2' + b2,  loss = -log softmax(y)[label], mean over the batch
 *   dy = (softmax(y) - onehot(label)) / batch,  dW2 = dy' h,  db2 = sum dy
 *   dz = f'(z) * (dy W2),                       dW1 = x' dz,  db1 = sum dz
 *
 * f is a ReLU with a rounded corner: 0 below 0, z*z/2 up to 1, z - 1/2 above; f' is z kept within 0..1. The
 * sharp corner has a slope that jumps: where two runs that should agree differ by rounding alone, some unit
 * soon lands on either side of it, and one such flip is 10,000 times larger than all rounding together.
 *
 * All heavy products are sums of scaled rows of MLP_HIDDEN floats (add_rows): the length is a constant and
 * the compiler makes vectors of it. Sums run in a fixed order, so a run can be repeated bit for bit. */
#include "cli/mlp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/prng.h"

#define ROWS_BLOCK 16 /* rows of W1 that stay in the first-level cache while all inputs pass by */
#define DOT_LANES  16

struct layers {
    size_t weights1, bias1, weights2, bias2, count; /* offsets in the flat array */
};

static struct layers layers_of(const struct mlp *mlp)
{
    struct layers at = {.weights1 = 0};
    at.bias1 = at.weights1 + mlp->in * MLP_HIDDEN;
    at.weights2 = at.bias1 + MLP_HIDDEN;
    at.bias2 = at.weights2 + mlp->out * MLP_HIDDEN;
    at.count = at.bias2 + mlp->out;
    return at;
}

size_t mlp_param_count(const struct mlp *mlp)
{
    return layers_of(mlp).count;
}

void mlp_init(const struct mlp *mlp, uint64_t seed, float *params)
{
    struct layers at = layers_of(mlp);
    struct prng prng;
    double limit1 = sqrt(6.0 / (double)mlp->in), limit2 = sqrt(6.0 / MLP_HIDDEN);
    prng_init(&prng, seed);
    memset(params, 0, at.count * sizeof *params);
    for (size_t i = at.weights1; i < at.bias1; i++)
        params[i] = (float)((2 * prng_unit(&prng) - 1) * limit1);
    for (size_t i = at.weights2; i < at.bias2; i++)
        params[i] = (float)((2 * prng_unit(&prng) - 1) * limit2);
}

bool mlp_work_init(struct mlp_work *work, const struct mlp *mlp, size_t batch_max)
{
    *work = (struct mlp_work){.batch_max = batch_max};
    work->input = calloc(batch_max * mlp->in, sizeof(float));
    work->hidden = calloc(batch_max * MLP_HIDDEN, sizeof(float));
    work->hidden_slope = calloc(batch_max * MLP_HIDDEN, sizeof(float));
    work->output = calloc(batch_max * mlp->out, sizeof(float));
    if (work->input && work->hidden && work->hidden_slope && work->output)
        return true;
    mlp_work_fini(work);
    return false;
}

void mlp_work_fini(struct mlp_work *work)
{
    free(work->input);
    free(work->hidden);
    free(work->hidden_slope);
    free(work->output);
    *work = (struct mlp_work){.batch_max = 0};
}

/* ---- products ---- */

static void add_row(float *restrict target, float a, const float *restrict row)
{
    for (int j = 0; j < MLP_HIDDEN; j++)
        target[j] += a * row[j];
}

/* target += sum over k of a[k*stride] * rows[k]. Four rows a pass: one load and store of the target for four
 * products. Rows with factor 0 are left out, which for images is about every second. */
static void add_rows(float *restrict target, const float *a, size_t stride, const float *restrict rows,
                     size_t count)
{
    size_t k = 0;
    for (; k + 4 <= count; k += 4) {
        const float *restrict row = rows + k * MLP_HIDDEN;
        float a0 = a[k * stride], a1 = a[(k + 1) * stride], a2 = a[(k + 2) * stride],
              a3 = a[(k + 3) * stride];
        if (a0 == 0 && a1 == 0 && a2 == 0 && a3 == 0)
            continue;
        for (int j = 0; j < MLP_HIDDEN; j++)
            target[j] += a0 * row[j] + a1 * row[j + MLP_HIDDEN] + a2 * row[j + 2 * MLP_HIDDEN] +
                         a3 * row[j + 3 * MLP_HIDDEN];
    }
    for (; k < count; k++)
        add_row(target, a[k * stride], rows + k * MLP_HIDDEN);
}

static float dot(const float *restrict a, const float *restrict b)
{
    float lanes[DOT_LANES] = {0}, sum = 0;
    for (int j = 0; j < MLP_HIDDEN; j += DOT_LANES) {
        for (int l = 0; l < DOT_LANES; l++)
            lanes[l] += a[j + l] * b[j + l];
    }
    for (int l = 0; l < DOT_LANES; l++)
        sum += lanes[l];
    return sum;
}

/* ---- forward ---- */

static void forward_hidden(const struct mlp *mlp, const float *params, size_t batch, struct mlp_work *work)
{
    struct layers at = layers_of(mlp);
    for (size_t b = 0; b < batch; b++)
        memcpy(work->hidden + b * MLP_HIDDEN, params + at.bias1, MLP_HIDDEN * sizeof(float));
    for (size_t k = 0; k < mlp->in; k += ROWS_BLOCK) {
        size_t rows = mlp->in - k < ROWS_BLOCK ? mlp->in - k : ROWS_BLOCK;
        for (size_t b = 0; b < batch; b++)
            add_rows(work->hidden + b * MLP_HIDDEN, work->input + b * mlp->in + k, 1,
                     params + at.weights1 + k * MLP_HIDDEN, rows);
    }
    for (size_t i = 0; i < batch * MLP_HIDDEN; i++) {
        float z = work->hidden[i], slope = z > 1 ? 1 : z > 0 ? z : 0;
        work->hidden[i] = z > 1 ? z - 0.5f : slope * slope / 2;
        work->hidden_slope[i] = slope;
    }
}

static void forward(const struct mlp *mlp, const float *params, size_t batch, struct mlp_work *work)
{
    struct layers at = layers_of(mlp);
    forward_hidden(mlp, params, batch, work);
    for (size_t b = 0; b < batch; b++) {
        for (size_t o = 0; o < mlp->out; o++)
            work->output[b * mlp->out + o] =
                params[at.bias2 + o] +
                dot(work->hidden + b * MLP_HIDDEN, params + at.weights2 + o * MLP_HIDDEN);
    }
}

static size_t largest(const float *x, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++) {
        if (x[i] > x[best])
            best = i;
    }
    return best;
}

size_t mlp_correct(const struct mlp *mlp, const float *params, const uint8_t *labels, size_t batch,
                   struct mlp_work *work)
{
    size_t correct = 0;
    forward(mlp, params, batch, work);
    for (size_t b = 0; b < batch; b++)
        correct += largest(work->output + b * mlp->out, mlp->out) == labels[b];
    return correct;
}

/* ---- backward ---- */

/* Logits become their slopes; the loss is returned. The largest logit is taken off first, so that exp cannot
 * overflow. */
static double softmax_slope(float *y, size_t count, size_t label, float scale)
{
    double sum = 0, top = y[largest(y, count)], loss = top - y[label];
    for (size_t o = 0; o < count; o++)
        sum += exp(y[o] - top);
    loss += log(sum);
    for (size_t o = 0; o < count; o++)
        y[o] = (float)((exp(y[o] - top) / sum - (o == label ? 1 : 0)) * scale);
    return loss;
}

static void backward_output(const struct mlp *mlp, const float *params, size_t batch, struct mlp_work *work,
                            float *gradient)
{
    struct layers at = layers_of(mlp);
    for (size_t o = 0; o < mlp->out; o++) {
        add_rows(gradient + at.weights2 + o * MLP_HIDDEN, work->output + o, mlp->out, work->hidden, batch);
        for (size_t b = 0; b < batch; b++)
            gradient[at.bias2 + o] += work->output[b * mlp->out + o];
    }
    for (size_t b = 0; b < batch; b++) {
        float back[MLP_HIDDEN] = {0}, *slope = work->hidden_slope + b * MLP_HIDDEN;
        add_rows(back, work->output + b * mlp->out, 1, params + at.weights2, mlp->out);
        for (int j = 0; j < MLP_HIDDEN; j++)
            slope[j] *= back[j];
    }
}

double mlp_gradient(const struct mlp *mlp, const float *params, const uint8_t *labels, size_t batch,
                    struct mlp_work *work, float *gradient)
{
    struct layers at = layers_of(mlp);
    double loss = 0;
    memset(gradient, 0, at.count * sizeof *gradient);
    if (batch == 0)
        return 0;
    forward(mlp, params, batch, work);
    for (size_t b = 0; b < batch; b++)
        loss += softmax_slope(work->output + b * mlp->out, mlp->out, labels[b], 1 / (float)batch);
    backward_output(mlp, params, batch, work, gradient);
    for (size_t k = 0; k < mlp->in; k++)
        add_rows(gradient + at.weights1 + k * MLP_HIDDEN, work->input + k, mlp->in, work->hidden_slope,
                 batch);
    for (size_t b = 0; b < batch; b++)
        add_row(gradient + at.bias1, 1, work->hidden_slope + b * MLP_HIDDEN);
    return loss;
}

void mlp_descend(float *params, float *velocity, const float *gradient, size_t count, float rate,
                 float momentum)
{
    for (size_t i = 0; i < count; i++) {
        velocity[i] = momentum * velocity[i] + gradient[i];
        params[i] -= rate * velocity[i];
    }
}
