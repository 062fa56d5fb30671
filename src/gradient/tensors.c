/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors by name: a sorted array, so that what is saved has one order, whoever came first. */
#include "gradient/tensors.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/sized.h"

#define ROOM_FIRST 64

bool tensor_name_good(const char *name)
{
    size_t len = 0;
    for (; len <= TENSOR_NAME_MAX && name[len] != 0; len++)
        if (name[len] < 0x20 || name[len] > 0x7e)
            return false;
    return len >= 1 && len <= TENSOR_NAME_MAX;
}

bool tensor_dtype_good(enum hearth_dtype dtype)
{
    return dtype == HEARTH_F32 || dtype == HEARTH_F64 || dtype == HEARTH_F16 || dtype == HEARTH_BF16;
}

bool tensor_form_count(struct tensor_form *form)
{
    size_t count = 1;
    bool empty = false;
    for (int i = 0; i < form->ndim; i++)
        empty = empty || form->dims[i] == 0;
    for (int i = 0; i < form->ndim && !empty; i++)
        if (__builtin_mul_overflow(count, form->dims[i], &count))
            return false;
    form->count = empty ? 0 : count;
    return form->count <= (SIZE_MAX >> 1) / sizeof(double);
}

void hearth_tensor_init_sized(struct hearth_tensor *tensor, size_t size)
{
    const struct hearth_tensor defaults = {.dtype = HEARTH_F32};
    sized_write(tensor, size, &defaults, sizeof defaults);
}

int tensor_read(const struct hearth_tensor *given, struct hearth_tensor *t, struct tensor_form *form,
                struct error *error)
{
    hearth_tensor_init(t);
    int status = sized_read(t, sizeof *t, given, "tensor", error);
    if (status != HEARTH_OK)
        return status;
    if (!t->name || !tensor_name_good(t->name))
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "a tensor's name has 1 to %d printable characters (ASCII)", TENSOR_NAME_MAX);
    if (!tensor_dtype_good(t->dtype))
        return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE,
                         "tensor '%s' is %s; it must be f32, f64, f16 or bf16", t->name,
                         hearth_dtype_name(t->dtype));
    if (t->ndim < 0 || t->ndim > TENSOR_DIMS_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "tensor '%s' has %d dimensions; it takes 0 to %d",
                         t->name, t->ndim, TENSOR_DIMS_MAX);
    if (t->ndim > 0 && !t->dims)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "dims of tensor '%s' is NULL", t->name);
    *form = (struct tensor_form){.dtype = t->dtype, .ndim = t->ndim};
    if (t->ndim > 0)
        memcpy(form->dims, t->dims, (size_t)t->ndim * sizeof *form->dims);
    if (!tensor_form_count(form))
        return error_set(error, HEARTH_INVALID, RANK_NONE, "tensor '%s' would hold 2^63 bytes or more",
                         t->name);
    return HEARTH_OK;
}

void tensor_form_text(const struct tensor_form *form, char *text, size_t size)
{
    size_t len = (size_t)snprintf(text, size, "%s [", hearth_dtype_name(form->dtype));
    for (int i = 0; i < form->ndim && len < size; i++)
        len += (size_t)snprintf(text + len, size - len, "%s%zu", i > 0 ? ", " : "", form->dims[i]);
    if (len < size)
        snprintf(text + len, size - len, "]");
}

bool tensor_form_same(const struct tensor_form *a, const struct tensor_form *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof *a->dims) == 0;
}

/* ---- what is kept ---- */

static void factors_free(struct tensor_state *state)
{
    for (int i = 0; i < FACTOR_COUNT; i++) {
        heap_free(state->factor[i]);
        heap_free(state->factor_shadow[i]);
        state->factor[i] = state->factor_shadow[i] = NULL;
    }
    state->factor_rank = 0;
}

void tensor_forget(struct tensor *tensor)
{
    struct tensor_state *state = &tensor->state;
    factors_free(state);
    heap_free(state->residual);
    heap_free(state->shadow);
    *state = (struct tensor_state){.dtype = tensor->form.dtype, .count = tensor->form.count};
}

void tensor_reshape(struct tensor_state *state, size_t rows, size_t columns, uint32_t rank)
{
    if (state->rows != rows || state->columns != columns || state->factor_rank != rank)
        factors_free(state);
    state->rows = rows;
    state->columns = columns;
}

void tensor_commits(struct tensor_state *state)
{
    state->undo = (struct tensor_undo){.there = true,
                                       .energy = state->energy,
                                       .step = state->step,
                                       .plain_bytes = state->plain_bytes,
                                       .sent_bytes = state->sent_bytes};
}

void tensor_count_plain(struct tensor_state *state, int size)
{
    uint64_t bytes = 2 * (uint64_t)(size - 1) * state->count * dtype_size(state->dtype) / (uint64_t)size;
    tensor_commits(state);
    state->step++;
    state->energy = (struct energy){0};
    state->plain_bytes += bytes;
    state->sent_bytes += bytes;
}

void tensor_swap_residual(struct tensor_state *state)
{
    void *before = state->residual;
    state->residual = state->shadow;
    state->shadow = before;
    state->undo.residual = true;
}

void tensor_swap_factor(struct tensor_state *state, int which)
{
    float *before = state->factor[which];
    state->factor[which] = state->factor_shadow[which];
    state->factor_shadow[which] = before;
    state->undo.factor[which] = true;
}

bool tensor_undo(struct tensor_state *state)
{
    struct tensor_undo undo = state->undo;
    if (!undo.there)
        return false;
    if (undo.residual)
        tensor_swap_residual(state);
    for (int i = 0; i < FACTOR_COUNT; i++)
        if (undo.factor[i])
            tensor_swap_factor(state, i);
    state->step = undo.step;
    state->energy = undo.energy;
    state->plain_bytes = undo.plain_bytes;
    state->sent_bytes = undo.sent_bytes;
    state->undo.there = false;
    return true;
}

void tensor_drop_factors(struct tensor_state *state)
{
    factors_free(state);
    state->undo.there = false;
}

/* ---- by name ---- */

void tensors_init(struct tensors *tensors, struct heap *heap)
{
    *tensors = (struct tensors){.heap = heap};
}

static void tensor_free(struct tensor *tensor)
{
    tensor_forget(tensor);
    heap_free(tensor);
}

void tensors_fini(struct tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++)
        tensor_free(tensors->item[i]);
    heap_free(tensors->item);
    tensors_init(tensors, tensors->heap);
}

/* Where the name stands, or would. */
static size_t place_of(const struct tensors *tensors, const char *name)
{
    size_t from = 0, to = tensors->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (strcmp(tensors->item[middle]->name, name) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

struct tensor *tensors_find(const struct tensors *tensors, const char *name)
{
    size_t place = place_of(tensors, name);
    if (place == tensors->count || strcmp(tensors->item[place]->name, name) != 0)
        return NULL;
    return tensors->item[place];
}

static bool make_room(struct tensors *tensors)
{
    if (tensors->count < tensors->room)
        return true;
    size_t room = tensors->room > 0 ? 2 * tensors->room : ROOM_FIRST;
    struct tensor **item = heap_alloc(tensors->heap, room, sizeof *item);
    if (!item)
        return false;
    if (tensors->count > 0)
        memcpy(item, tensors->item, tensors->count * sizeof *item);
    heap_free(tensors->item);
    tensors->item = item;
    tensors->room = room;
    return true;
}

int tensors_add(struct tensors *tensors, const char *name, const struct tensor_form *form,
                struct tensor **out, struct error *error)
{
    size_t name_size = strlen(name) + 1, place = place_of(tensors, name);
    assert(tensor_name_good(name));
    if (tensors->count == TENSORS_MAX)
        return error_set(error, HEARTH_LIMIT, RANK_NONE, "there are %d tensors already, which is the limit",
                         TENSORS_MAX);
    struct tensor *tensor = heap_alloc(tensors->heap, 1, sizeof *tensor + name_size);
    if (!tensor || !make_room(tensors)) {
        heap_free(tensor);
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for tensor '%s'", name);
    }
    memcpy(tensor->name, name, name_size);
    tensor->form = *form;
    tensor_forget(tensor);
    memmove(tensors->item + place + 1, tensors->item + place,
            (tensors->count - place) * sizeof *tensors->item);
    tensors->item[place] = tensor;
    tensors->count++;
    *out = tensor;
    return HEARTH_OK;
}

void tensors_remove(struct tensors *tensors, struct tensor *tensor)
{
    size_t place = place_of(tensors, tensor->name);
    assert(place < tensors->count && tensors->item[place] == tensor);
    tensors->count--;
    memmove(tensors->item + place, tensors->item + place + 1,
            (tensors->count - place) * sizeof *tensors->item);
    tensor_free(tensor);
}
