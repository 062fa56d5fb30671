/* SPDX-License-Identifier: Apache-2.0 */
/* A compressor goes on with another group: residuals, steps and rules are kept. What it chose by the old
 * group's size and ways is chosen anew. */
#include "gradient/compressor.h"

/* A tensor in flight; *request: of a call that does not wait. */
static bool flying(hearth_compressor *c, hearth_request **request)
{
    bool any = false;
    mutex_lock(&c->lock);
    for (size_t i = 0; i < c->tensors.count && !any; i++) {
        any = c->tensors.item[i]->in_flight != 0;
        *request = any ? c->tensors.item[i]->request : NULL;
    }
    mutex_unlock(&c->lock);
    return any;
}

int compressor_move(struct attachment *attachment, const struct group_move *move, struct error *error)
{
    hearth_compressor *c = container_of(attachment, hearth_compressor, attachment);
    hearth_request *request;
    (void)error;
    if (c->group != move->from)
        return HEARTH_OK;
    while (move->phase == MOVE_PREPARE && flying(c, &request)) {
        if (request) /* the group has changed: it has ended, but for the last words */
            node_wait(request, NEVER_NS);
        else
            thread_yield();
    }
    if (move->phase != MOVE_COMMIT)
        return HEARTH_OK;
    node_detach(c->node, attachment);
    c->group = move->to;
    c->node = move->to->node;
    for (size_t i = 0; i < c->tensors.count; i++)
        c->tensors.item[i]->choice_version = 0;
    node_attach(c->node, attachment);
    return HEARTH_OK;
}

uint64_t compressor_place(hearth_compressor *compressor, const char *name)
{
    mutex_lock(&compressor->lock);
    const struct tensor *tensor = tensors_find(&compressor->tensors, name);
    uint64_t place = tensor ? 2 * tensor->state.step + (!!tensor->state.factor[FACTOR_Q]) : 0;
    mutex_unlock(&compressor->lock);
    return place;
}

bool compressor_undo(hearth_compressor *compressor, const char *name)
{
    mutex_lock(&compressor->lock);
    struct tensor *tensor = tensors_find(&compressor->tensors, name);
    bool done = tensor && tensor->in_flight == 0 && tensor_undo(&tensor->state);
    mutex_unlock(&compressor->lock);
    return done;
}

void compressor_forget(hearth_compressor *compressor, const char *name)
{
    mutex_lock(&compressor->lock);
    struct tensor *tensor = tensors_find(&compressor->tensors, name);
    if (tensor && tensor->in_flight == 0)
        tensor_forget(tensor);
    mutex_unlock(&compressor->lock);
}

int compressor_adopt(hearth_compressor *compressor, const char *name, const struct tensor_form *form,
                     uint64_t step)
{
    struct error error;
    int status = HEARTH_OK;
    mutex_lock(&compressor->lock);
    struct tensor *tensor = tensors_find(&compressor->tensors, name);
    if (!tensor)
        status = tensors_add(&compressor->tensors, name, form, &tensor, &error);
    if (status == HEARTH_OK) {
        tensor_drop_factors(&tensor->state);
        tensor->state.step = step;
    }
    mutex_unlock(&compressor->lock);
    return status == HEARTH_OK ? HEARTH_OK : compressor_refuse("sync", &error);
}
