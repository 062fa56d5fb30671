/* SPDX-License-Identifier: Apache-2.0 */
/* Fills, reduces and compares the gradients of a model. */
#include "conform/model.h"

/* Vectors, scalars, matrices, an empty one, a vector that is too long to share a bucket. */
const struct shape model_shapes[TENSORS] = {
    {HEARTH_F32, 2, {96, 128}}, {HEARTH_F32, 1, {128}},         {HEARTH_F32, 0, {0}},
    {HEARTH_F32, 2, {128, 64}}, {HEARTH_F32, 1, {64}},          {HEARTH_F16, 1, {33}},
    {HEARTH_BF16, 2, {8, 8}},   {HEARTH_F64, 1, {7}},           {HEARTH_F32, 2, {0, 5}},
    {HEARTH_F32, 1, {300000}},  {HEARTH_F64, 2, {70, 90}},      {HEARTH_F32, 1, {1}},
    {HEARTH_BF16, 1, {501}},    {HEARTH_F16, 2, {65, 67}},      {HEARTH_F32, 3, {2, 3, 4}},
    {HEARTH_F32, 1, {5}},       {HEARTH_F32, 2, {64, 64}},      {HEARTH_F32, 1, {64}},
    {HEARTH_F64, 1, {1000}},    {HEARTH_BF16, 3, {16, 17, 18}}, {HEARTH_F32, 1, {3}},
    {HEARTH_F32, 2, {63, 65}},  {HEARTH_F32, 1, {4095}},        {HEARTH_F32, 2, {100, 100}},
};

size_t model_count(int index)
{
    size_t count = 1;
    for (int i = 0; i < model_shapes[index].ndim; i++)
        count *= model_shapes[index].dims[i];
    return count;
}

size_t model_len(int index)
{
    return model_count(index) * hearth_dtype_size(model_shapes[index].dtype);
}

int model_add(hearth_sync *sync, int index, const char *name, void *data)
{
    struct hearth_tensor tensor = {.size = sizeof tensor,
                                   .name = name,
                                   .data = data,
                                   .dtype = model_shapes[index].dtype,
                                   .ndim = model_shapes[index].ndim,
                                   .dims = model_shapes[index].dims};
    return hearth_sync_add(sync, &tensor);
}

static void model_register(struct model *m, hearth_sync *sync)
{
    m->sync = sync;
    for (int i = 0; i < TENSORS; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer%d.weight", i);
        m->data[i] = must_alloc(model_len(i));
        m->before[i] = must_alloc(model_len(i));
        m->wanted[i] = must_alloc(model_len(i));
        check(model_add(sync, i, name, m->data[i]) == i, "tensor %d: %s", i, hearth_error_text());
    }
}

void model_open(struct model *m, hearth_group *group, const char *codec, enum hearth_op op)
{
    hearth_sync *sync = NULL;
    check_ok(hearth_sync_open(group, codec, op, &sync));
    model_register(m, sync);
}

void model_close(struct model *m)
{
    hearth_sync_close(m->sync);
    for (int i = 0; i < TENSORS; i++) {
        free(m->data[i]);
        free(m->before[i]);
        free(m->wanted[i]);
    }
}

void model_fill(struct model *m, int rank, int step)
{
    uint64_t seed = (uint64_t)(1000 * step + rank);
    for (int i = 0; i < TENSORS; i++) {
        for (size_t k = 0; k < model_count(i); k++)
            set_number(model_shapes[i].dtype, m->data[i], k, (double)draw_below(&seed, 17) - 8);
        memcpy(m->before[i], m->data[i], model_len(i));
    }
}

void model_reduce(struct model *m, hearth_group *group, enum hearth_op op, double weight)
{
    struct hearth_opts opts = opts_default();
    opts.weight = weight;
    for (int i = 0; i < TENSORS; i++)
        check_ok(hearth_all_reduce(group, m->before[i], m->wanted[i], model_count(i), model_shapes[i].dtype,
                                   op, &opts));
}

bool model_holds(const struct model *m, int index, void *const *what)
{
    return memcmp(m->data[index], what[index], model_len(index)) == 0;
}

void model_check(const struct model *m, void *const *what, const char *text)
{
    for (int i = 0; i < TENSORS; i++)
        check(model_holds(m, i, what), "tensor %d does not hold %s", i, text);
}

void model_same(const struct model *m, hearth_group *group)
{
    for (int i = 0; i < TENSORS; i++)
        check_ok(hearth_group_same(group, m->data[i], model_len(i), NULL, NULL));
}

void model_order(int order[TENSORS], uint64_t seed)
{
    for (int i = 0; i < TENSORS; i++)
        order[i] = i;
    for (int i = TENSORS - 1; i > 0; i--) {
        int k = (int)draw_below(&seed, (uint64_t)i + 1), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

void model_ready(struct model *m, uint64_t seed)
{
    int order[TENSORS];
    model_order(order, seed);
    for (int i = 0; i < TENSORS; i++)
        check_ok(hearth_sync_ready(m->sync, order[i]));
}
