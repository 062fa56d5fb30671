/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed all-reduces of simulated members. */
#include "reduce.h"

#include <math.h>

#include "gradient/compressor.h"
#include "numbers.h"
#include "support/suite.h"

/* ---- drawing ---- */

void reduce_draw(struct reduce *c, struct prng *prng, int size, int number)
{
    static const char *const codecs[] = {"fp16",
                                         "bf16",
                                         "int8",
                                         "onebit",
                                         "topk:0.05",
                                         "topk:0.1,chunk=64,values=int8",
                                         "randomk:0.2",
                                         "powersgd:2",
                                         "int8,stochastic,feedback=off",
                                         "topk:0.1,values=bf16"};
    static const enum hearth_algo algos[] = {HEARTH_ALGO_AUTO, HEARTH_ALGO_AUTO, HEARTH_ALGO_DIRECT,
                                             HEARTH_ALGO_EXCHANGE, HEARTH_ALGO_HIERARCHICAL};
    static const enum hearth_dtype dtypes[] = {HEARTH_F32, HEARTH_F32, HEARTH_F64, HEARTH_F16, HEARTH_BF16};
    memset(c, 0, sizeof *c);
    c->size = size;
    c->count = 8 + prng_below(prng, prng_below(prng, 4) == 0 ? REDUCE_COUNT_MAX - 8 : 300);
    const char *codec = codecs[prng_below(prng, sizeof codecs / sizeof *codecs)];
    bool matrix = strncmp(codec, "powersgd", 8) == 0;
    if (matrix || prng_below(prng, 2))
        c->count = c->count / 8 * 8;
    snprintf(c->codec, sizeof c->codec, "%s%s", codec, matrix ? ",rows=8" : "");
    snprintf(c->name, sizeof c->name, "tensor.%d", number);
    c->dtype = dtypes[prng_below(prng, 5)];
    c->op = prng_below(prng, 2) ? HEARTH_OP_SUM : HEARTH_OP_AVG;
    c->algo = matrix ? HEARTH_ALGO_AUTO : algos[prng_below(prng, 5)];
    c->feedback = prng_below(prng, 4) != 0 && !strstr(codec, "feedback=off");
    c->timeout_ms = -1;
    for (int r = 0; r < size; r++)
        c->member[r].weight = c->op == HEARTH_OP_AVG ? 0.25 + prng_unit(prng) : 1;
}

void reduce_fill(struct reduce *c, struct prng *prng)
{
    for (int r = 0; r < c->size; r++) {
        struct reduce_member *m = &c->member[r];
        numbers_fill(m->x, c->count, c->dtype, HEARTH_OP_SUM, NUMBERS_ANY, prng);
        m->status = HEARTH_PENDING;
        m->called = false;
    }
}

const char *reduce_name(const struct reduce *c)
{
    static char text[160];
    snprintf(text, sizeof text, "%s of %zu %s %s by %s (%s%s%s, tag %d)", c->name, c->count,
             hearth_dtype_name(c->dtype), hearth_op_name(c->op), c->codec, hearth_algo_name(c->algo),
             c->member[0].compressor ? ", compressor" : "", c->feedback ? "" : ", no feedback", (int)c->tag);
    return text;
}

/* ---- calling ---- */

static enum hearth_dtype residual_dtype(enum hearth_dtype dtype)
{
    return dtype == HEARTH_F64 ? HEARTH_F64 : HEARTH_F32;
}

static size_t residual_len(const struct reduce *c)
{
    return c->count * hearth_dtype_size(residual_dtype(c->dtype));
}

static size_t tensor_len(const struct reduce *c)
{
    return c->count * hearth_dtype_size(c->dtype);
}

/* What a compressor keeps, where the caller's residual would stand. */
static void residual_read(const struct reduce *c, struct reduce_member *m)
{
    if (!m->compressor)
        return;
    const struct tensor *tensor = tensors_find(&m->compressor->tensors, c->name);
    if (tensor && tensor->state.residual)
        memcpy(m->e, tensor->state.residual, residual_len(c));
    else
        memset(m->e, 0, residual_len(c));
}

static int start(struct reduce *c, struct sim *sim, int rank)
{
    struct reduce_member *m = &c->member[rank];
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.tag = c->tag;
    opts.algo = c->algo;
    opts.weight = m->weight;
    opts.timeout_ms = c->timeout_ms;
    if (!m->compressor)
        return hearth_all_reduce_compressed_nb(sim_world(sim, rank), m->x, c->count, c->dtype, c->op,
                                               c->codec, c->feedback ? m->e : NULL, &opts, &m->request);
    size_t dims[2] = {8, c->count / 8};
    struct hearth_tensor tensor = {
        .size = sizeof tensor, .name = c->name, .data = m->x, .dtype = c->dtype, .ndim = 2, .dims = dims};
    return hearth_compressor_all_reduce_nb(m->compressor, &tensor, c->op, &opts, &m->request);
}

void reduce_post(struct reduce *c, struct sim *sim, int rank)
{
    struct reduce_member *m = &c->member[rank];
    residual_read(c, m);
    memcpy(m->x_before, m->x, tensor_len(c));
    memcpy(m->e_before, m->e, residual_len(c));
    m->request = NULL;
    m->called = true;
    int status = start(c, sim, rank);
    if (status == HEARTH_UNSUPPORTED &&
        c->algo != HEARTH_ALGO_AUTO) { /* so it is for all, and for the first first */
        c->algo = HEARTH_ALGO_AUTO;
        status = start(c, sim, rank);
    }
    c->plain = c->plain || (m->request && !m->request->cancel);
    m->status = status == HEARTH_OK ? HEARTH_PENDING : status;
    if (status != HEARTH_OK)
        m->error = *error_last();
}

bool reduce_collect(struct reduce *c)
{
    bool all = true;
    for (int r = 0; r < c->size; r++) {
        struct reduce_member *m = &c->member[r];
        if (m->request && sim_status(m->request) != HEARTH_PENDING) {
            m->status = sim_status(m->request);
            m->error = m->request->completion.error;
            hearth_request_close(m->request);
            m->request = NULL;
        }
        all = all && !m->request;
    }
    return all;
}

/* ---- the oracle ---- */

/* One rounding of the result, in units of the type. */
static double rounding(enum hearth_dtype dtype)
{
    return dtype == HEARTH_BF16 ? 0x1p-8 : dtype == HEARTH_F16 ? 0x1p-11 : 0;
}

void mass_check(const char *name, enum hearth_dtype dtype, enum hearth_op op, size_t count,
                const struct mass_side *sides, int size)
{
    enum hearth_dtype residual = residual_dtype(dtype);
    for (size_t i = 0; i < count; i++) {
        double in = 0, out = 0, scale = 0, weights = 0;
        for (int r = 0; r < size; r++) {
            double x = sides[r].weight * numbers_get(sides[r].x_before, dtype, i);
            double before = numbers_get(sides[r].e_before, residual, i);
            double after = numbers_get(sides[r].e, residual, i);
            weights += sides[r].weight;
            in += x + before;
            out += after;
            scale += fabs(x) + fabs(before) + fabs(after);
        }
        double result = numbers_get(sides[0].x, dtype, i) * (op == HEARTH_OP_AVG ? weights : 1);
        scale += fabs(result);
        double allowed = scale * (1e-6 + rounding(dtype)) + (dtype == HEARTH_F16 ? 1e-6 * size : 0);
        if (!(fabs(in - out - result) <= allowed))
            fail_msg("%s: element %zu: in %.9g, out %.9g and left %.9g", name, i, in, result, out);
    }
}

static void check_mass(const struct reduce *c)
{
    struct mass_side sides[SIM_MAX];
    for (int r = 0; r < c->size; r++) {
        const struct reduce_member *m = &c->member[r];
        sides[r] = (struct mass_side){
            .x = m->x, .x_before = m->x_before, .e = m->e, .e_before = m->e_before, .weight = m->weight};
    }
    mass_check(reduce_name(c), c->dtype, c->op, c->count, sides, c->size);
}

static void check_untouched(struct reduce *c, int rank)
{
    const struct reduce_member *m = &c->member[rank];
    if (memcmp(m->x, m->x_before, tensor_len(c)) != 0)
        fail_msg("%s: rank %d failed (%s), but its input has changed", reduce_name(c), rank, m->error.text);
    if (memcmp(m->e, m->e_before, residual_len(c)) != 0)
        fail_msg("%s: rank %d failed (%s), but its residual has changed", reduce_name(c), rank,
                 m->error.text);
}

int reduce_check(struct reduce *c, bool whole)
{
    int well = 0, first = -1, failed = -1;
    for (int r = 0; r < c->size; r++) {
        struct reduce_member *m = &c->member[r];
        if (!m->called)
            continue;
        if (m->status == HEARTH_PENDING)
            fail_msg("%s: rank %d still waits", reduce_name(c), r);
        residual_read(c, m);
        if (m->status != HEARTH_OK) {
            failed = r;
            if (!c->plain)
                check_untouched(c, r);
            continue;
        }
        first = well++ == 0 ? r : first;
        if (memcmp(m->x, c->member[first].x, tensor_len(c)) != 0)
            fail_msg("%s: ranks %d and %d have different bits", reduce_name(c), first, r);
    }
    if (whole && !c->plain && well != 0 && well != c->size)
        fail_msg("%s: %d of %d members have ended well, and rank %d with %s", reduce_name(c), well, c->size,
                 failed, failed >= 0 ? c->member[failed].error.text : "nothing");
    if (well == c->size && c->feedback)
        check_mass(c);
    return well;
}
