/* SPDX-License-Identifier: Apache-2.0 */
/* A compressor: opening, closing, and its all-reduces.
 *
 * A tensor's state belongs to one operation at a time. It is claimed under the lock before the operation
 * starts, and given back when it has ended: by the caller that waited, or by the operation's callback, which
 * runs before anybody can learn of the end in another way. After a non-blocking start nothing but the name
 * may be used to find the tensor again: it may have ended, and been forgotten, already. */
#include "gradient/compressor.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "compress/powersgd.h"
#include "core/hash.h"
#include "core/sized.h"
#include "gradient/work.h"
#include "node/call.h"

#define MIN_COUNT 4096
/* What codecs draw by, with a tensor's name and step. Not the group's id, which is another one in every run:
 * the same training gives the same bits again. */
#define SEED 1

struct operation {
    struct tensor *tensor;
    struct tensor_form form;
    uint64_t number;
    bool fresh; /* the tensor was not known before */
    struct hearth_opts opts;
    struct reduction_call call;
};

int node_check(const char *call, hearth_node *node)
{
    return node_forked(node) ? error_call(call, HEARTH_FORKED, "%s", hearth_status_text(HEARTH_FORKED))
                             : HEARTH_OK;
}

int compressor_check(const char *call, const hearth_compressor *compressor)
{
    return compressor ? node_check(call, compressor->node)
                      : error_call(call, HEARTH_INVALID, "compressor is NULL");
}

/* ---- opening and closing ---- */

void hearth_compressor_config_init_sized(struct hearth_compressor_config *config, size_t size)
{
    const struct hearth_compressor_config defaults = {.min_count = MIN_COUNT};
    sized_write(config, size, &defaults, sizeof defaults);
}

static void compressor_free(hearth_compressor *c)
{
    tensors_fini(&c->tensors);
    policy_fini(&c->policy);
    mutex_fini(&c->lock);
    heap_free(c);
}

static void drop(struct attachment *attachment)
{
    compressor_free(container_of(attachment, hearth_compressor, attachment));
}

/* Whether a tensor is in flight; *request: one that has not ended, of a call that does not wait, or NULL. */
static bool flying(hearth_compressor *c, hearth_request **request)
{
    bool any = false;
    *request = NULL;
    mutex_lock(&c->lock);
    for (size_t i = 0; i < c->tensors.count && !*request; i++) {
        const struct tensor *tensor = c->tensors.item[i];
        any = any || tensor->in_flight != 0;
        *request = tensor->in_flight != 0 ? tensor->request : NULL;
    }
    mutex_unlock(&c->lock);
    return any;
}

/* Goes on with another group: residuals, steps and rules are kept. What it chose by the old group's size and
 * costs is chosen anew. */
static int compressor_move(struct attachment *attachment, const struct group_move *move, struct error *error)
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

static int fill(hearth_compressor *c, hearth_group *group, const struct hearth_compressor_config *config,
                struct error *error)
{
    struct heap *heap = group->node->heap;
    int status = mutex_init(&c->lock);
    if (status != HEARTH_OK)
        return error_set(error, status, RANK_NONE, "the system gives no lock");
    status = policy_init(&c->policy, heap, config, group->node->config.codec, error);
    if (status != HEARTH_OK) {
        mutex_fini(&c->lock);
        return status;
    }
    tensors_init(&c->tensors, heap);
    c->node = group->node;
    c->group = group;
    c->seed = SEED;
    c->attachment.drop = drop;
    c->attachment.move = compressor_move;
    list_init(&c->attachment.item);
    return HEARTH_OK;
}

int hearth_compressor_open(hearth_group *group, const struct hearth_compressor_config *config,
                           hearth_compressor **out)
{
    static const char what[] = "compressor_open";
    struct hearth_compressor_config chosen;
    struct error error;
    if (!group || !out)
        return error_call(what, HEARTH_INVALID, "group or out is NULL");
    int status = node_check(what, group->node);
    if (status != HEARTH_OK)
        return status;
    hearth_compressor_config_init(&chosen);
    if (config && sized_read(&chosen, sizeof chosen, config, "compressor_config", &error) != HEARTH_OK)
        return error_call_because(what, &error);
    hearth_compressor *c = heap_alloc(group->node->heap, 1, sizeof *c);
    if (!c)
        return error_call(what, HEARTH_NO_MEMORY, "no memory");
    if (fill(c, group, &chosen, &error) != HEARTH_OK) {
        heap_free(c);
        return error_call_because(what, &error);
    }
    node_attach(group->node, &c->attachment);
    *out = c;
    return HEARTH_OK;
}

void hearth_compressor_close(hearth_compressor *compressor)
{
    hearth_request *request;
    if (!compressor || node_forked(compressor->node))
        return;
    mutex_lock(&compressor->lock);
    compressor->closing = true;
    mutex_unlock(&compressor->lock);
    while (flying(compressor, &request) && request)
        node_cancel(request);
    node_detach(compressor->node, &compressor->attachment);
    compressor_free(compressor);
}

int hearth_compressor_add_rule(hearth_compressor *compressor, const char *pattern, const char *codec)
{
    static const char what[] = "compressor_rule";
    struct error error;
    int status = compressor_check(what, compressor);
    if (status != HEARTH_OK)
        return status;
    if (!pattern || !codec)
        return error_call(what, HEARTH_INVALID, "pattern or codec is NULL");
    mutex_lock(&compressor->lock);
    status = policy_rule(&compressor->policy, pattern, codec, &error);
    mutex_unlock(&compressor->lock);
    return status == HEARTH_OK ? HEARTH_OK : error_call_because(what, &error);
}

/* ---- how a tensor goes ---- */

/* dims[0] x the rest. */
static struct tensor_shape shape_of(const struct tensor_form *form)
{
    struct tensor_shape shape = {.count = form->count, .dtype = form->dtype};
    if (form->ndim >= 2 && form->count > 0) {
        shape.rows = form->dims[0];
        shape.columns = form->count / form->dims[0];
    }
    return shape;
}

/* A codec that names its rows knows better. */
static void matrix_of(const struct codec *codec, struct tensor_shape *shape)
{
    if (codec->kind != CODEC_POWERSGD || codec->rows == 0)
        return;
    shape->rows = (size_t)codec->rows;
    shape->columns = shape->count / shape->rows;
}

void compressor_choose(const hearth_compressor *compressor, const struct policy_question *question,
                       const struct tensor *tensor, struct policy_answer *answer,
                       struct reduction_choice *choice)
{
    struct tensor_shape shape = shape_of(&tensor->form);
    policy_ask(&compressor->policy, question, answer);
    reduction_choose(&answer->list, &shape, group_view(compressor->group->group), choice);
}

struct policy_question compressor_question(const struct tensor *tensor)
{
    return (struct policy_question){
        .name = tensor->name,
        .ndim = tensor->form.ndim,
        .count = tensor->form.count,
        .step = tensor->in_flight != 0 ? tensor->step : tensor->state.step,
    };
}

/* The tensor's choice for its next step: made anew only while it may change. */
static void choose(const hearth_compressor *c, struct tensor *tensor)
{
    struct policy_question question = compressor_question(tensor);
    struct policy_answer answer;
    if (tensor->choice_version == c->policy.version)
        return;
    compressor_choose(c, &question, tensor, &answer, &tensor->choice);
    tensor->choice_version = policy_settled(&c->policy, question.step) ? c->policy.version : 0;
}

/* ---- one all-reduce ---- */

/* Under the lock: the tensor, as new or as it was. */
static int take(hearth_compressor *c, const char *name, struct operation *o, struct error *error)
{
    char was[TENSOR_TEXT_MAX], is[TENSOR_TEXT_MAX];
    o->tensor = tensors_find(&c->tensors, name);
    o->fresh = !o->tensor;
    if (c->closing)
        return error_set(error, HEARTH_CLOSED, RANK_NONE, "the compressor is closing");
    if (o->fresh)
        return tensors_add(&c->tensors, name, &o->form, &o->tensor, error);
    if (o->tensor->in_flight != 0)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "tensor '%s' is in an operation that has not ended", name);
    if (tensor_form_same(&o->tensor->form, &o->form))
        return HEARTH_OK;
    tensor_form_text(&o->tensor->form, was, sizeof was);
    tensor_form_text(&o->form, is, sizeof is);
    return error_set(error, HEARTH_INVALID, RANK_NONE, "tensor '%s' is %s since its first call, and now %s",
                     name, was, is);
}

/* The call for the choice, and the state as it must be for it. */
static void prepare(const hearth_compressor *c, struct operation *o)
{
    struct tensor *tensor = o->tensor;
    const struct codec *codec = &tensor->choice.codec;
    struct tensor_shape shape = shape_of(&tensor->form);
    matrix_of(codec, &shape);
    if (codec->kind == CODEC_POWERSGD)
        tensor_reshape(&tensor->state, shape.rows, shape.columns,
                       powersgd_rank(codec, shape.rows, shape.columns));
    o->call.group = c->group;
    o->call.count = tensor->form.count;
    o->call.dtype = tensor->form.dtype;
    o->call.codec = *codec;
    o->call.algo = tensor->choice.algo;
    o->call.rows = shape.rows;
    o->call.columns = shape.columns;
    o->call.state = &tensor->state;
    o->call.feedback = codec->feedback;
    o->call.key = hash64(c->seed, tensor->name, strlen(tensor->name));
    o->call.opts = &o->opts;
}

/* The operation has the tensor's state for itself then. */
static int claim(hearth_compressor *c, const struct hearth_tensor *tensor, struct operation *o)
{
    struct error error;
    mutex_lock(&c->lock);
    int status = take(c, tensor->name, o, &error);
    if (status == HEARTH_OK) {
        choose(c, o->tensor);
        prepare(c, o);
        o->number = ++c->operations;
        o->tensor->owner = c;
        o->tensor->in_flight = o->number;
        o->tensor->request = NULL;
        o->tensor->step = o->tensor->state.step;
    }
    mutex_unlock(&c->lock);
    if (status == HEARTH_NO_MEMORY)
        node_refuse(c->group, o->opts.tag, &error);
    return status == HEARTH_OK ? HEARTH_OK : error_call_because("compressor_all_reduce", &error);
}

/* The operation has ended. The tensor of one that never came to be is forgotten, and with it the shape it
 * gave. */
static void give_back(hearth_compressor *c, struct tensor *tensor, int status, bool forget)
{
    mutex_lock(&c->lock);
    tensor->in_flight = 0;
    if (status == HEARTH_OK && tensor->state.plain)
        tensor_count_plain(&tensor->state, hearth_group_size(c->group));
    if (forget)
        tensors_remove(&c->tensors, tensor);
    mutex_unlock(&c->lock);
}

static int begin(hearth_compressor *c, const struct hearth_tensor *given, enum hearth_op op,
                 const struct hearth_opts *opts, struct operation *o)
{
    static const char what[] = "compressor_all_reduce";
    struct hearth_tensor tensor;
    struct error error;
    int status = compressor_check(what, c);
    if (status != HEARTH_OK)
        return status;
    if (!given)
        return error_call(what, HEARTH_INVALID, "tensor is NULL");
    *o = (struct operation){.call = {.op = op}};
    if (tensor_read(given, &tensor, &o->form, &error) != HEARTH_OK)
        return error_call_because(what, &error);
    if (!tensor.data && o->form.count > 0)
        return error_call(what, HEARTH_INVALID, "data of tensor '%s' is NULL", tensor.name);
    o->call.buffer = tensor.data;
    status = call_opts_read(what, opts, &o->opts);
    return status == HEARTH_OK ? claim(c, &tensor, o) : status;
}

int hearth_compressor_all_reduce(hearth_compressor *compressor, const struct hearth_tensor *tensor,
                                 enum hearth_op op, const struct hearth_opts *opts)
{
    struct operation o;
    int status = begin(compressor, tensor, op, opts, &o);
    if (status != HEARTH_OK)
        return status;
    status = reduction_start(&o.call, NULL);
    give_back(compressor, o.tensor, status, o.fresh && status != HEARTH_OK);
    return status;
}

/* A non-blocking operation has ended. */
static void ended(void *arg, int status)
{
    struct tensor *tensor = arg;
    hearth_done_fn *done = tensor->done; /* the tensor may be gone when it is given back */
    void *done_arg = tensor->done_arg;
    give_back(tensor->owner, tensor, status, false);
    if (done)
        done(done_arg, status);
}

/* For hearth_compressor_close, if the operation is still there. */
static void note_request(hearth_compressor *c, const char *name, uint64_t number, hearth_request *request)
{
    mutex_lock(&c->lock);
    struct tensor *tensor = tensors_find(&c->tensors, name);
    if (tensor && tensor->in_flight == number)
        tensor->request = request;
    mutex_unlock(&c->lock);
}

int hearth_compressor_all_reduce_nb(hearth_compressor *compressor, const struct hearth_tensor *tensor,
                                    enum hearth_op op, const struct hearth_opts *opts,
                                    hearth_request **request)
{
    return compressor_start(compressor, tensor, op, opts, NULL, request);
}

int compressor_start(hearth_compressor *compressor, const struct hearth_tensor *tensor, enum hearth_op op,
                     const struct hearth_opts *opts, void *staged, hearth_request **request)
{
    struct operation o;
    if (!request)
        return error_call("compressor_all_reduce", HEARTH_INVALID, "request is NULL");
    int status = begin(compressor, tensor, op, opts, &o);
    if (status != HEARTH_OK)
        return status;
    o.call.staged = staged;
    o.tensor->done = o.opts.done;
    o.tensor->done_arg = o.opts.done_arg;
    o.opts.done = ended;
    o.opts.done_arg = o.tensor;
    status = reduction_start(&o.call, request);
    if (status != HEARTH_OK)
        give_back(compressor, o.tensor, status, o.fresh);
    else
        note_request(compressor, tensor->name, o.number, *request);
    return status;
}

/* ---- for syncs ---- */

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
    return status == HEARTH_OK ? HEARTH_OK : error_call_because("sync", &error);
}
