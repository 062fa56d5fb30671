/* SPDX-License-Identifier: Apache-2.0 */
/* The law of conservation, computed in f64. */
#include "conform/mass.h"

#include <math.h>

#include "conform/reference.h"
#include "node/node.h"

static enum hearth_dtype residual_dtype(const struct mass *m)
{
    return m->dtype == HEARTH_F64 ? HEARTH_F64 : HEARTH_F32;
}

size_t mass_residual_len(const struct mass *m)
{
    return m->count * hearth_dtype_size(residual_dtype(m));
}

static size_t tensor_len(const struct mass *m)
{
    return m->count * hearth_dtype_size(m->dtype);
}

struct mass mass_of(const char *codec, enum hearth_op op, size_t count, uint64_t seed)
{
    return (struct mass){
        .codec = codec, .dtype = HEARTH_F32, .op = op, .count = count, .feedback = true, .seed = seed};
}

void mass_open(struct mass *m, int size)
{
    for (int i = 0; i < size; i++) {
        m->x[i] = must_alloc(tensor_len(m));
        m->x_before[i] = must_alloc(tensor_len(m));
        m->e[i] = must_alloc(mass_residual_len(m));
        m->e_before[i] = must_alloc(mass_residual_len(m));
        memset(m->e[i], 0, mass_residual_len(m));
    }
}

void mass_close(struct mass *m, int size)
{
    for (int i = 0; i < size; i++) {
        free(m->x[i]);
        free(m->x_before[i]);
        free(m->e[i]);
        free(m->e_before[i]);
    }
}

/* Mostly small, some large: as gradients are. */
void mass_fill(struct mass *m, int rank)
{
    uint64_t seed = m->seed * 1000003 + (uint64_t)rank + 1;
    for (size_t i = 0; i < m->count; i++) {
        uint64_t bits = draw(&seed);
        double unit = (double)(bits >> 40) / 16777216.0 - 0.5;
        set_number(m->dtype, m->x[rank], i, unit * (bits % 29 == 0 ? 8 : 1));
    }
}

void mass_fill_all(struct mass *m, int size)
{
    for (int i = 0; i < size; i++)
        mass_fill(m, i);
}

void mass_remember(struct mass *m, int rank)
{
    memcpy(m->x_before[rank], m->x[rank], tensor_len(m));
    memcpy(m->e_before[rank], m->e[rank], mass_residual_len(m));
}

int mass_step(struct fixture *c, struct mass *m, int rank)
{
    struct hearth_opts opts = opts_default();
    opts.algo = m->algo;
    if (m->weight[rank] != 0)
        opts.weight = m->weight[rank];
    mass_remember(m, rank);
    return hearth_all_reduce_compressed(c->world[rank], m->x[rank], m->count, m->dtype, m->op, m->codec,
                                        m->feedback ? m->e[rank] : NULL, &opts);
}

/* What one element's numbers add up to. */
struct balance {
    double in, out, size; /* size: of all that takes part in the arithmetic */
};

static struct balance balance_of(const struct mass *m, int size, size_t i)
{
    double weights = 0;
    struct balance b = {0};
    for (int k = 0; k < size; k++) {
        double w = m->op == HEARTH_OP_AVG && m->weight[k] != 0 ? m->weight[k] : 1;
        double x = w * get_number(m->dtype, m->x_before[k], i);
        double before = get_number(residual_dtype(m), m->e_before[k], i);
        double after = get_number(residual_dtype(m), m->e[k], i);
        weights += w;
        b.in += x + before;
        b.out += after;
        b.size += fabs(x) + fabs(before) + fabs(after);
    }
    double out = get_number(m->dtype, m->x[0], i) * (m->op == HEARTH_OP_AVG ? weights : 1);
    b.out += out;
    b.size += fabs(out);
    return b;
}

/* One rounding of the result, in units of the type. */
static double rounding(enum hearth_dtype dtype)
{
    return dtype == HEARTH_BF16 ? 0x1p-8 : dtype == HEARTH_F16 ? 0x1p-11 : 0;
}

void mass_check(const struct mass *m, int size)
{
    for (int k = 1; k < size; k++)
        check(memcmp(m->x[0], m->x[k], tensor_len(m)) == 0, "%s, %zu %s on %d: rank %d has other bits",
              m->codec, m->count, hearth_dtype_name(m->dtype), size, k);
    for (size_t i = 0; m->feedback && i < m->count; i++) {
        struct balance b = balance_of(m, size, i);
        double allowed = b.size * (1e-6 + rounding(m->dtype)) + (m->dtype == HEARTH_F16 ? 1e-6 * size : 0);
        if (!check(fabs(b.in - b.out) <= allowed, "%s, %zu %s %s by %s on %d: element %zu: in %.9g, out %.9g",
                   m->codec, m->count, hearth_dtype_name(m->dtype), hearth_op_name(m->op),
                   hearth_algo_name(m->algo), size, i, b.in, b.out))
            break;
    }
}

void mass_check_member(const struct mass *m, int rank)
{
    check(memcmp(m->x[rank], m->x_before[rank], tensor_len(m)) == 0, "%s: rank %d: the buffer has changed",
          m->codec, rank);
    check(memcmp(m->e[rank], m->e_before[rank], mass_residual_len(m)) == 0,
          "%s: rank %d: the residual has changed", m->codec, rank);
}

void mass_check_untouched(const struct mass *m, int size)
{
    for (int i = 0; i < size; i++)
        mass_check_member(m, i);
}

void fixture_open_known(struct fixture *c, int size, const int *host, uint32_t threads)
{
    struct hearth_config config;
    struct error error;
    hearth_config_init(&config);
    config.compress_threads = threads > 0 ? threads : config.compress_threads;
    struct local_setup setup = {.config = &config, .count = size, .host = host, .id = 77};
    fixture_open(c, size, NULL); /* for its meeting place and guard */
    for (int i = 0; i < size; i++)
        hearth_node_close(c->nodes[i]);
    assert_int_equal(local_open(&setup, c->nodes, &error), HEARTH_OK);
    for (int i = 0; i < size; i++)
        c->world[i] = hearth_node_world(c->nodes[i]);
}
