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
 * All heavy products are sums of scaled rows of MLP_BLOCK floats (add_rows): the length is a constant and the
 * compiler makes vectors of it; wider layers are done block by block, so that the rows stay in the nearest
 * cache. Sums run in a fixed order, so a run can be repeated bit for bit. */
#include "cli/demo/mlp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/prng.h"

#define ROWS_BLOCK 16 /* rows of W1 that stay in the first-level cache while all inputs pass by */
#define DOT_LANES  16

struct mlp_shape mlp_shape(const struct mlp *mlp, enum mlp_part part)
{
    const struct mlp_shape shapes[MLP_PARTS] = {
        [MLP_WEIGHTS1] = {"weights1", .ndim = 2, .dims = {mlp->in, mlp->hidden}},
        [MLP_BIAS1] = {"bias1", .ndim = 1, .dims = {mlp->hidden, 1}},
        [MLP_WEIGHTS2] = {"weights2", .ndim = 2, .dims = {mlp->out, mlp->hidden}},
        [MLP_BIAS2] = {"bias2", .ndim = 1, .dims = {mlp->out, 1}},
    };
    struct mlp_shape shape = shapes[part];
    for (int p = 0; p < (int)part; p++)
        shape.offset += shapes[p].dims[0] * shapes[p].dims[1];
    shape.count = shape.dims[0] * shape.dims[1];
    return shape;
}

size_t mlp_param_count(const struct mlp *mlp)
{
    struct mlp_shape last = mlp_shape(mlp, MLP_BIAS2);
    return last.offset + last.count;
}

static void draw_weights(struct mlp_shape shape, size_t inputs, struct prng *prng, float *params)
{
    double limit = sqrt(6.0 / (double)inputs);
    for (size_t i = shape.offset; i < shape.offset + shape.count; i++)
        params[i] = (float)((2 * prng_unit(prng) - 1) * limit);
}

void mlp_init(const struct mlp *mlp, uint64_t seed, float *params)
{
    struct prng prng;
    prng_init(&prng, seed);
    memset(params, 0, mlp_param_count(mlp) * sizeof *params);
    draw_weights(mlp_shape(mlp, MLP_WEIGHTS1), mlp->in, &prng, params);
    draw_weights(mlp_shape(mlp, MLP_WEIGHTS2), mlp->hidden, &prng, params);
}

bool mlp_work_init(struct mlp_work *work, const struct mlp *mlp, size_t batch_max)
{
    float *block = calloc(batch_max * (mlp->in + 2 * mlp->hidden + mlp->out), sizeof *block);
    *work = (struct mlp_work){.batch_max = batch_max, .input = block};
    if (!block)
        return false;
    work->hidden = work->input + batch_max * mlp->in;
    work->slope = work->hidden + batch_max * mlp->hidden;
    work->output = work->slope + batch_max * mlp->hidden;
    return true;
}

void mlp_work_fini(struct mlp_work *work)
{
    free(work->input);
    *work = (struct mlp_work){.batch_max = 0};
}

/* ---- products ---- */

static void add_row(float *restrict target, float a, const float *restrict row)
{
    for (int j = 0; j < MLP_BLOCK; j++)
        target[j] += a * row[j];
}

/* Numbers that stand `stride` apart. */
struct mlp_factors {
    const float *at;
    size_t stride;
};

/* target += sum over k of a[k] * rows[k], of MLP_BLOCK columns of rows that are `width` long. Four rows a
 * pass: one load and store of the target for four products. Rows with factor 0 are left out, which for images
 * is about every second. */
static void add_rows(float *restrict target, struct mlp_factors a, const float *restrict rows, size_t width,
                     size_t count)
{
    size_t k = 0;
    for (; k + 4 <= count; k += 4) {
        const float *restrict row0 = rows + k * width, *restrict row1 = row0 + width,
                              *restrict row2 = row1 + width, *restrict row3 = row2 + width;
        const float *at = a.at + k * a.stride;
        float a0 = at[0], a1 = at[a.stride], a2 = at[2 * a.stride], a3 = at[3 * a.stride];
        if (a0 == 0 && a1 == 0 && a2 == 0 && a3 == 0)
            continue;
        for (int j = 0; j < MLP_BLOCK; j++)
            target[j] += a0 * row0[j] + a1 * row1[j] + a2 * row2[j] + a3 * row3[j];
    }
    for (; k < count; k++)
        add_row(target, a.at[k * a.stride], rows + k * width);
}

static float dot(const float *restrict a, const float *restrict b, size_t count)
{
    float lanes[DOT_LANES] = {0}, sum = 0;
    for (size_t j = 0; j < count; j += DOT_LANES) {
        for (int l = 0; l < DOT_LANES; l++)
            lanes[l] += a[j + (size_t)l] * b[j + (size_t)l];
    }
    for (int l = 0; l < DOT_LANES; l++)
        sum += lanes[l];
    return sum;
}

/* ---- forward ---- */

/* One block of columns of the hidden layer: z = x W1 + b1. */
static void forward_block(const struct mlp *mlp, const float *params, size_t column, size_t batch,
                          struct mlp_work *work)
{
    const float *weights = params + mlp_shape(mlp, MLP_WEIGHTS1).offset + column;
    const float *bias = params + mlp_shape(mlp, MLP_BIAS1).offset + column;
    for (size_t b = 0; b < batch; b++)
        memcpy(work->hidden + b * mlp->hidden + column, bias, MLP_BLOCK * sizeof(float));
    for (size_t k = 0; k < mlp->in; k += ROWS_BLOCK) {
        size_t rows = mlp->in - k < ROWS_BLOCK ? mlp->in - k : ROWS_BLOCK;
        for (size_t b = 0; b < batch; b++)
            add_rows(work->hidden + b * mlp->hidden + column,
                     (struct mlp_factors){work->input + b * mlp->in + k, 1}, weights + k * mlp->hidden,
                     mlp->hidden, rows);
    }
}

static void forward(const struct mlp *mlp, const float *params, size_t batch, struct mlp_work *work)
{
    const float *weights = params + mlp_shape(mlp, MLP_WEIGHTS2).offset;
    const float *bias = params + mlp_shape(mlp, MLP_BIAS2).offset;
    for (size_t column = 0; column < mlp->hidden; column += MLP_BLOCK)
        forward_block(mlp, params, column, batch, work);
    for (size_t i = 0; i < batch * mlp->hidden; i++) {
        float z = work->hidden[i], slope = z > 1 ? 1 : z > 0 ? z : 0;
        work->hidden[i] = z > 1 ? z - 0.5f : slope * slope / 2;
        work->slope[i] = slope;
    }
    for (size_t b = 0; b < batch; b++) {
        for (size_t o = 0; o < mlp->out; o++)
            work->output[b * mlp->out + o] =
                bias[o] + dot(work->hidden + b * mlp->hidden, weights + o * mlp->hidden, mlp->hidden);
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

size_t mlp_correct(const struct mlp *mlp, const float *params, const uint8_t *labels, size_t batch,
                   struct mlp_work *work, double *loss)
{
    size_t correct = 0;
    forward(mlp, params, batch, work);
    for (size_t b = 0; b < batch; b++) {
        float *output = work->output + b * mlp->out;
        correct += largest(output, mlp->out) == labels[b];
        *loss += softmax_slope(output, mlp->out, labels[b], 1);
    }
    return correct;
}

/* ---- backward ---- */

static void backward_output(const struct mlp *mlp, size_t batch, const struct mlp_work *work, float *gradient)
{
    float *weights = gradient + mlp_shape(mlp, MLP_WEIGHTS2).offset;
    float *bias = gradient + mlp_shape(mlp, MLP_BIAS2).offset;
    for (size_t o = 0; o < mlp->out; o++) {
        for (size_t column = 0; column < mlp->hidden; column += MLP_BLOCK)
            add_rows(weights + o * mlp->hidden + column, (struct mlp_factors){work->output + o, mlp->out},
                     work->hidden + column, mlp->hidden, batch);
        for (size_t b = 0; b < batch; b++)
            bias[o] += work->output[b * mlp->out + o];
    }
}

/* The slopes by what enters one block of the hidden layer, then by its weights. */
static void backward_block(const struct mlp *mlp, const float *params, size_t column, size_t batch,
                           struct mlp_work *work, float *gradient)
{
    const float *weights2 = params + mlp_shape(mlp, MLP_WEIGHTS2).offset + column;
    float *weights1 = gradient + mlp_shape(mlp, MLP_WEIGHTS1).offset + column;
    float *bias1 = gradient + mlp_shape(mlp, MLP_BIAS1).offset + column;
    for (size_t b = 0; b < batch; b++) {
        float back[MLP_BLOCK] = {0}, *slope = work->slope + b * mlp->hidden + column;
        add_rows(back, (struct mlp_factors){work->output + b * mlp->out, 1}, weights2, mlp->hidden, mlp->out);
        for (int j = 0; j < MLP_BLOCK; j++)
            slope[j] *= back[j];
        add_row(bias1, 1, slope);
    }
    for (size_t k = 0; k < mlp->in; k++)
        add_rows(weights1 + k * mlp->hidden, (struct mlp_factors){work->input + k, mlp->in},
                 work->slope + column, mlp->hidden, batch);
}

double mlp_gradient(const struct mlp *mlp, const float *params, const uint8_t *labels, size_t batch,
                    struct mlp_work *work, float *gradient)
{
    double loss = 0;
    memset(gradient, 0, mlp_param_count(mlp) * sizeof *gradient);
    if (batch == 0)
        return 0;
    forward(mlp, params, batch, work);
    for (size_t b = 0; b < batch; b++)
        loss += softmax_slope(work->output + b * mlp->out, mlp->out, labels[b], 1 / (float)batch);
    backward_output(mlp, batch, work, gradient);
    for (size_t column = 0; column < mlp->hidden; column += MLP_BLOCK)
        backward_block(mlp, params, column, batch, work, gradient);
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
