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
#include "gradient/reduction.h"
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

int compressor_refuse(const char *what, const struct error *error)
{
    return error_wrap(error_last(), error, "%s: %s", what, error->text);
}

int compressor_check(const hearth_compressor *compressor, const char *what)
{
    if (!compressor)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "%s: compressor is NULL", what);
    if (node_forked(compressor->node))
        return error_set(error_last(), HEARTH_FORKED, RANK_NONE, "%s: %s", what,
                         hearth_status_text(HEARTH_FORKED));
    return HEARTH_OK;
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
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "%s: group or out is NULL", what);
    if (node_forked(group->node))
        return error_set(error_last(), HEARTH_FORKED, RANK_NONE, "%s: %s", what,
                         hearth_status_text(HEARTH_FORKED));
    hearth_compressor_config_init(&chosen);
    int status = HEARTH_OK;
    if (config)
        status = sized_read(&chosen, sizeof chosen, config, "compressor_config", &error);
    if (status != HEARTH_OK)
        return compressor_refuse(what, &error);
    hearth_compressor *c = heap_alloc(group->node->heap, 1, sizeof *c);
    if (!c)
        return error_set(error_last(), HEARTH_NO_MEMORY, RANK_NONE, "%s: no memory", what);
    status = fill(c, group, &chosen, &error);
    if (status != HEARTH_OK) {
        heap_free(c);
        return compressor_refuse(what, &error);
    }
    node_attach(group->node, &c->attachment);
    *out = c;
    return HEARTH_OK;
}

/* A request that has not ended yet. */
static hearth_request *next_request(hearth_compressor *c)
{
    hearth_request *request = NULL;
    mutex_lock(&c->lock);
    c->closing = true;
    for (size_t i = 0; i < c->tensors.count && !request; i++)
        if (c->tensors.item[i]->in_flight != 0)
            request = c->tensors.item[i]->request;
    mutex_unlock(&c->lock);
    return request;
}

void hearth_compressor_close(hearth_compressor *compressor)
{
    hearth_request *request;
    if (!compressor || node_forked(compressor->node))
        return;
    while ((request = next_request(compressor)))
        node_cancel(request);
    node_detach(compressor->node, &compressor->attachment);
    compressor_free(compressor);
}

int hearth_compressor_add_rule(hearth_compressor *compressor, const char *pattern, const char *codec)
{
    static const char what[] = "compressor_rule";
    struct error error;
    int status = compressor_check(compressor, what);
    if (status != HEARTH_OK)
        return status;
    if (!pattern || !codec)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "%s: pattern or codec is NULL", what);
    mutex_lock(&compressor->lock);
    status = policy_rule(&compressor->policy, pattern, codec, &error);
    mutex_unlock(&compressor->lock);
    return status == HEARTH_OK ? HEARTH_OK : compressor_refuse(what, &error);
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

void hearth_tensor_init_sized(struct hearth_tensor *tensor, size_t size)
{
    const struct hearth_tensor defaults = {.dtype = HEARTH_F32};
    sized_write(tensor, size, &defaults, sizeof defaults);
}

static int form_of(const struct hearth_tensor *tensor, struct tensor_form *form, struct error *error)
{
    *form = (struct tensor_form){.dtype = tensor->dtype, .ndim = tensor->ndim};
    if (!tensor->name || !tensor_name_good(tensor->name))
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "a tensor's name has 1 to %d printable characters (ASCII)", TENSOR_NAME_MAX);
    if (!tensor_dtype_good(tensor->dtype))
        return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE,
                         "tensor '%s' is %s; compressed are f32, f64, f16 and bf16", tensor->name,
                         hearth_dtype_name(tensor->dtype));
    if (tensor->ndim < 0 || tensor->ndim > TENSOR_DIMS_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "tensor '%s' has %d dimensions; it takes 0 to %d",
                         tensor->name, tensor->ndim, TENSOR_DIMS_MAX);
    if (tensor->ndim > 0 && !tensor->dims)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "dims of tensor '%s' is NULL", tensor->name);
    if (tensor->ndim > 0)
        memcpy(form->dims, tensor->dims, (size_t)tensor->ndim * sizeof *form->dims);
    if (!tensor_form_count(form))
        return error_set(error, HEARTH_INVALID, RANK_NONE, "tensor '%s' would hold 2^63 bytes or more",
                         tensor->name);
    if (!tensor->data && form->count > 0)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "data of tensor '%s' is NULL", tensor->name);
    return HEARTH_OK;
}

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
    int status = form_of(tensor, &o->form, &error);
    if (status != HEARTH_OK)
        return compressor_refuse("compressor_all_reduce", &error);
    mutex_lock(&c->lock);
    status = take(c, tensor->name, o, &error);
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
    return status == HEARTH_OK ? HEARTH_OK : compressor_refuse("compressor_all_reduce", &error);
}

/* The tensor of an operation that never came to be is forgotten, and with it the shape it gave. */
static void give_back(hearth_compressor *c, struct operation *o, int status)
{
    mutex_lock(&c->lock);
    o->tensor->in_flight = 0;
    if (status != HEARTH_OK && o->fresh)
        tensors_remove(&c->tensors, o->tensor);
    mutex_unlock(&c->lock);
}

static int begin(hearth_compressor *c, const struct hearth_tensor *given, enum hearth_op op,
                 const struct hearth_opts *opts, struct operation *o)
{
    static const char what[] = "compressor_all_reduce";
    struct hearth_tensor tensor;
    struct error error;
    int status = compressor_check(c, what);
    if (status != HEARTH_OK)
        return status;
    if (!given)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "%s: tensor is NULL", what);
    hearth_tensor_init(&tensor);
    if (sized_read(&tensor, sizeof tensor, given, "tensor", &error) != HEARTH_OK)
        return compressor_refuse(what, &error);
    *o = (struct operation){.call = {.buffer = tensor.data, .op = op}};
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
    status = reduction_run(&o.call);
    give_back(compressor, &o, status);
    return status;
}

/* A non-blocking operation has ended. */
static void ended(void *arg, int status)
{
    struct tensor *tensor = arg;
    hearth_compressor *c = tensor->owner;
    mutex_lock(&c->lock);
    hearth_done_fn *done = tensor->done;
    void *done_arg = tensor->done_arg;
    tensor->in_flight = 0;
    mutex_unlock(&c->lock);
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
    struct operation o;
    if (!request)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "compressor_all_reduce: request is NULL");
    int status = begin(compressor, tensor, op, opts, &o);
    if (status != HEARTH_OK)
        return status;
    o.tensor->done = o.opts.done;
    o.tensor->done_arg = o.opts.done_arg;
    o.opts.done = ended;
    o.opts.done_arg = o.tensor;
    status = reduction_start(&o.call, request);
    if (status != HEARTH_OK)
        give_back(compressor, &o, status);
    else
        note_request(compressor, tensor->name, o.number, *request);
    return status;
}
