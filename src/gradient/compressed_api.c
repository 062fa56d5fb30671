/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed all-reduces as the user calls them: arguments are checked before anything happens. What goes
 * plain and has nothing left over from earlier is an ordinary all_reduce. */
#include "gradient/compressor.h"
#include "gradient/work.h"
#include "node/call.h"

static const char call_name[] = "all_reduce_compressed";

/* ---- checks ---- */

static int types_check(const struct reduction_call *call)
{
    if (!tensor_dtype_good(call->dtype))
        return error_call(call_name, HEARTH_UNSUPPORTED, "dtype is %s; it takes f32, f64, f16 and bf16",
                          hearth_dtype_name(call->dtype));
    if (call->op != HEARTH_OP_SUM && call->op != HEARTH_OP_AVG)
        return error_call(call_name, HEARTH_UNSUPPORTED, "op is %s; it takes sum and avg",
                          hearth_op_name(call->op));
    return HEARTH_OK;
}

static bool overlap(const void *a, size_t a_len, const void *b, size_t b_len)
{
    return a_len > 0 && b_len > 0 && (uintptr_t)a < (uintptr_t)b + b_len &&
           (uintptr_t)b < (uintptr_t)a + a_len;
}

static int buffers_check(const struct reduction_call *call)
{
    size_t len, residual_len;
    if (__builtin_mul_overflow(call->count, dtype_size(call->dtype), &len) ||
        __builtin_mul_overflow(call->count, residual_size(call->dtype), &residual_len) || len > INT64_MAX ||
        residual_len > INT64_MAX)
        return error_call(call_name, HEARTH_INVALID, "the buffers would hold 2^63 bytes or more");
    if (call->count > 0 && !call->buffer)
        return error_call(call_name, HEARTH_INVALID, "buffer is NULL");
    if (call->residual && overlap(call->buffer, len, call->residual, residual_len))
        return error_call(call_name, HEARTH_INVALID, "buffer and residual overlap");
    return HEARTH_OK;
}

static int codec_check(const struct reduction_call *call)
{
    const struct codec *codec = &call->codec;
    if (codec->kind == CODEC_TOPK && codec->chunk == 0 && call->count > SPARSE_COUNT_MAX)
        return error_call(call_name, HEARTH_UNSUPPORTED,
                          "topk over a whole tensor takes at most 4,294,967,295 elements; use chunk=4096");
    if (codec->kind != CODEC_POWERSGD || call->algo == REDUCTION_PLAIN)
        return HEARTH_OK;
    if (call->rows == 0 || call->columns == 0 || call->rows > call->count || call->count % call->rows != 0 ||
        call->count / call->rows != call->columns)
        return error_call(
            call_name, HEARTH_INVALID,
            "powersgd needs the shape of a matrix: rows=COUNT in the codec, of which the number of "
            "elements is a multiple");
    if (codec->alternate && !call->state)
        return error_call(call_name, HEARTH_UNSUPPORTED,
                          "powersgd,alternate needs what it keeps between steps: use a compressor");
    return HEARTH_OK;
}

static int guard_check(const struct reduction_call *call, int size)
{
    size_t limit = call->group->node->tuning.compressed_allreduce_max_bytes;
    size_t need = reduction_memory(call, size);
    if (limit == 0 || need <= limit)
        return HEARTH_OK;
    error_call(call_name, HEARTH_LIMIT,
               "it needs about %zu bytes here (%d ranks, a tensor of %zu bytes, shadows included), more than "
               "compressed_allreduce_max_bytes = %zu; reduce the tensor in pieces, or raise "
               "HEARTH_COMPRESSED_ALLREDUCE_MAX_BYTES (0: no limit)",
               need, size, call->count * dtype_size(call->dtype), limit);
    node_refuse(call->group, call->opts->tag, error_last());
    return HEARTH_LIMIT;
}

/* An algorithm that the caller has fixed, for measurement. */
static int algo_fix(struct reduction_call *call, enum hearth_algo algo)
{
    static const enum reduction_algo algos[ALGO_COUNT] = {[HEARTH_ALGO_DIRECT] = REDUCTION_OWNER,
                                                          [HEARTH_ALGO_EXCHANGE] = REDUCTION_ALLGATHER,
                                                          [HEARTH_ALGO_HIERARCHICAL] = REDUCTION_TWO_LEVEL};
    if (algo == HEARTH_ALGO_AUTO || call->algo == REDUCTION_PLAIN)
        return HEARTH_OK;
    if (algos[algo] == REDUCTION_PLAIN ||
        !reduction_can(&call->codec, algos[algo], group_view(call->group->group)) ||
        (algos[algo] == REDUCTION_TWO_LEVEL && call->dtype == HEARTH_F64))
        return error_call(
            call_name, HEARTH_UNSUPPORTED,
            "opts.algo is %s; there are direct (by owners; not for a user's codec) and exchange (all_gather) "
            "for codecs other than randomk and powersgd, and hierarchical where hosts have several members",
            hearth_algo_name(algo));
    call->algo = algos[algo];
    return HEARTH_OK;
}

/* Everything that can be known without the other members. */
static int call_check(struct reduction_call *call, struct hearth_opts *opts)
{
    if (!call->group)
        return error_call(call_name, HEARTH_INVALID, "group is NULL");
    int status = node_check(call_name, call->group->node);
    if (status != HEARTH_OK)
        return status;
    status = call_opts_read(call_name, call->opts, opts);
    if (status == HEARTH_OK)
        status = types_check(call);
    if (status == HEARTH_OK)
        status = buffers_check(call);
    if (status == HEARTH_OK)
        status = codec_check(call);
    if (status == HEARTH_OK)
        status = algo_fix(call, opts->algo);
    if (status == HEARTH_OK)
        status = memory_choose(call_name, call->group, opts->memory, &call->memory);
    if (opts->timeout_ms == -1)
        opts->timeout_ms = call->group->node->config.op_timeout_ms;
    call->feedback = call->feedback && call->codec.feedback && (call->residual || call->state);
    call->opts = opts;
    return status;
}

/* ---- plain ---- */

/* Ordinary all_reduce: nothing is left over from earlier that would have to go along. */
static bool is_plain(const struct reduction_call *call)
{
    if (call->codec.kind == CODEC_NONE && !call->state)
        return true;
    bool plain = call->codec.kind == CODEC_NONE || call->algo == REDUCTION_PLAIN;
    bool left = call->feedback && (call->residual || call->state->residual);
    return plain && !left;
}

static int plain_start(const struct reduction_call *call, hearth_request **request)
{
    struct call plain = {.kind = PLAN_ALL_REDUCE,
                         .source = call->buffer,
                         .target = call->buffer,
                         .count = call->count,
                         .dtype = call->dtype,
                         .op = call->op};
    if (call->state)
        call->state->plain = true;
    if (call->staged && memory_is_device(&call->memory)) {
        struct copy_range range = {call->buffer, call->staged, call->count * dtype_size(call->dtype)};
        struct staged_ranges staged = {.memory = &call->memory, .ranges = &range, .count = 1};
        plain.source = plain.target = call->staged;
        return call_start_staged(call->group, &plain, call->opts, &staged, request);
    }
    return request ? call_start(call->group, &plain, call->opts, request)
                   : call_run(call->group, &plain, call->opts);
}

/* ---- the way in ---- */

/* Nobody to meet: the result is the input, and the step changes nothing. */
static int alone_start(const struct reduction_call *call, hearth_request **request)
{
    struct node_task task = {.done = call->opts->done, .done_arg = call->opts->done_arg};
    struct error none;
    struct copy_range range = {call->buffer, call->staged, call->count * dtype_size(call->dtype)};
    if (call->staged && memory_is_device(&call->memory) &&
        copy_now(&call->memory, false, &range, 1, &none) != HEARTH_OK)
        return error_call_because(call_name, &none);
    if (call->state)
        tensor_commits(call->state);
    if (!request) {
        if (task.done)
            task.done(task.done_arg, HEARTH_OK);
        return HEARTH_OK;
    }
    int status = node_request(call->group->node, &task, request);
    if (status != HEARTH_OK)
        return error_call(call_name, status, "%s", hearth_status_text(status));
    error_clear(&none);
    node_settle(*request, &none);
    return HEARTH_OK;
}

int reduction_start(const struct reduction_call *given, hearth_request **request)
{
    struct reduction_call call = *given;
    struct hearth_opts opts;
    int status = call_check(&call, &opts);
    if (status != HEARTH_OK)
        return status;
    if (call.state)
        call.state->plain = false;
    if (hearth_group_size(call.group) == 1 || call.count == 0)
        return alone_start(&call, request);
    if (is_plain(&call))
        return plain_start(&call, request);
    status = guard_check(&call, hearth_group_size(call.group));
    if (status != HEARTH_OK)
        return status;
    return request ? work_start(&call, request) : work_run(&call);
}

/* A text that is no codec. A member that has not registered one that the others have must not keep them
 * waiting. */
static int codec_refuse(const struct reduction_call *call, hearth_group *group, const char *codec,
                        const struct error *reason)
{
    struct hearth_opts opts;
    int status = error_call_because(call_name, reason);
    struct error why = *error_last();
    if (codec_names_unknown(codec) && call_opts_read(call_name, call->opts, &opts) == HEARTH_OK)
        node_refuse(group, opts.tag, &why);
    *error_last() = why;
    return status;
}

/* The codec's text becomes a choice of codec and way. */
static int call_of(hearth_group *group, const char *codec, struct reduction_call *call)
{
    struct codec_list list;
    struct error reason;
    if (!group)
        return error_call(call_name, HEARTH_INVALID, "group is NULL");
    int status = node_check(call_name, group->node);
    if (status != HEARTH_OK)
        return status;
    codec = codec ? codec : group->node->config.codec;
    if (codec_parse(codec, &list, &reason) != HEARTH_OK)
        return codec_refuse(call, group, codec, &reason);
    status = types_check(call);
    if (status != HEARTH_OK)
        return status;
    struct tensor_shape shape = {.count = call->count, .dtype = call->dtype};
    for (int i = 0; i < list.count; i++)
        shape.rows = list.codec[i].kind == CODEC_POWERSGD ? list.codec[i].rows : shape.rows;
    shape.columns = shape.rows > 0 ? call->count / shape.rows : 0;
    struct reduction_choice choice;
    reduction_choose(&list, &shape, group_view(group->group), &choice);
    /* A shape that does not fit is the caller's mistake, not a reason to go plain. */
    call->codec = list.count == 1 && list.codec[0].kind == CODEC_POWERSGD && shape.rows == 0 ? list.codec[0]
                                                                                             : choice.codec;
    call->algo = call->codec.kind == choice.codec.kind ? choice.algo : REDUCTION_SHARED;
    call->rows = shape.rows;
    call->columns = shape.columns;
    call->group = group;
    call->feedback = true;
    return HEARTH_OK;
}

int hearth_all_reduce_compressed(hearth_group *group, void *buffer, size_t count, enum hearth_dtype dtype,
                                 enum hearth_op op, const char *codec, void *residual,
                                 const struct hearth_opts *opts)
{
    struct reduction_call call = {
        .buffer = buffer, .count = count, .dtype = dtype, .op = op, .residual = residual, .opts = opts};
    int status = call_of(group, codec, &call);
    return status != HEARTH_OK ? status : reduction_start(&call, NULL);
}

int hearth_all_reduce_compressed_nb(hearth_group *group, void *buffer, size_t count, enum hearth_dtype dtype,
                                    enum hearth_op op, const char *codec, void *residual,
                                    const struct hearth_opts *opts, hearth_request **request)
{
    struct reduction_call call = {
        .buffer = buffer, .count = count, .dtype = dtype, .op = op, .residual = residual, .opts = opts};
    if (!request)
        return error_call(call_name, HEARTH_INVALID, "request is NULL");
    int status = call_of(group, codec, &call);
    return status != HEARTH_OK ? status : reduction_start(&call, request);
}
