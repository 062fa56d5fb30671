/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of arguments: a bad one is refused before any effect, with a text that names it. */
#include "node/call.h"

#include <string.h>

#include "core/sized.h"

#define WEIGHT_MAX  1e30 /* sums of weights must stay finite */
#define FLAGS_KNOWN ((uint32_t)(HEARTH_FLAG_RESTORE | HEARTH_FLAG_RANK_ORDER | HEARTH_FLAG_SYNC_SEND))

/* ---- options ---- */

void hearth_opts_init_sized(struct hearth_opts *opts, size_t size)
{
    const struct hearth_opts defaults = {.timeout_ms = -1, .weight = 1.0};
    sized_write(opts, size, &defaults, sizeof defaults);
}

int call_opts_read(const char *name, const struct hearth_opts *given, struct hearth_opts *o)
{
    struct error why;
    hearth_opts_init(o);
    if (!given)
        return HEARTH_OK;
    int status = sized_read(o, sizeof *o, given, "opts", &why);
    if (status != HEARTH_OK)
        return error_set(error_last(), status, RANK_NONE, "%s: %s", name, why.text);
    if (o->timeout_ms < -1 || o->timeout_ms > INT64_C(1000) * 3600 * 24 * 365)
        return error_call(name, HEARTH_INVALID,
                          "opts.timeout_ms is %lld; it takes -1 (default), 0 or up to a year",
                          (long long)o->timeout_ms);
    if (!(o->weight >= 0 && o->weight <= WEIGHT_MAX))
        return error_call(name, HEARTH_INVALID, "opts.weight is %g; it must be from 0 to %g", o->weight,
                          WEIGHT_MAX);
    if (o->flags & ~FLAGS_KNOWN)
        return error_call(name, HEARTH_INVALID, "opts.flags is 0x%x: unknown bits", o->flags);
    if ((unsigned)o->algo >= ALGO_COUNT)
        return error_call(name, HEARTH_INVALID, "opts.algo: unknown algorithm %d", (int)o->algo);
    if ((unsigned)o->priority > HEARTH_PRIORITY_BULK)
        return error_call(name, HEARTH_INVALID, "opts.priority: unknown priority %d", (int)o->priority);
    if (dtype_size(o->dtype) == 0)
        return error_call(name, HEARTH_INVALID, "opts.dtype: unknown type %d", (int)o->dtype);
    return HEARTH_OK;
}

static int opts_read(const struct call *call, const struct hearth_opts *given, struct hearth_opts *o)
{
    int status = call_opts_read(plan_kind_name(call->kind), given, o);
    if (status == HEARTH_OK && o->codec && strcmp(o->codec, "none") != 0)
        return error_call(plan_kind_name(call->kind), HEARTH_UNSUPPORTED,
                          "opts.codec is \"%s\"; call hearth_all_reduce_compressed for it", o->codec);
    return status;
}

/* ---- sizes ---- */

/* Bytes of a list of counts (or of `count` times `times`); false: 2^63 or more. */
static bool bytes_of(const size_t *counts, size_t times, size_t count, size_t element, size_t *out)
{
    size_t sum = 0, product;
    for (size_t i = 0; counts && i < times; i++)
        if (__builtin_add_overflow(sum, counts[i], &sum))
            return false;
    if (!counts && __builtin_mul_overflow(times, count, &sum))
        return false;
    if (__builtin_mul_overflow(sum, element, &product) || product > INT64_MAX)
        return false;
    *out = product;
    return true;
}

/* The bytes that the call reads and writes here: all parts or one, by collective. */
static bool regions_of(const struct call *call, int rank, int size, struct call_region *source,
                       struct call_region *target)
{
    size_t element = dtype_size(call->dtype), all = (size_t)size;
    bool root = rank == call->root;
    size_t in = 1, out = 1; /* how many parts of `count` */
    const size_t *in_counts = call->in_counts, *out_counts = call->out_counts;
    switch (call->kind) {
    case PLAN_REDUCE_SCATTER:
        in = all;
        break;
    case PLAN_ALL_GATHER:
        out = all;
        break;
    case PLAN_REDUCE:
        out = root;
        break;
    case PLAN_GATHER:
        out = root ? all : 0;
        break;
    case PLAN_SCATTER:
        in = root ? all : 0;
        break;
    case PLAN_ALL_TO_ALL:
        in = out = all;
        break;
    case PLAN_BARRIER:
        in = out = 0;
        break;
    default:
        break;
    }
    size_t own_in = call->count, own_out = call->count;
    if (call->kind == PLAN_REDUCE_SCATTER && in_counts)
        own_out = in_counts[rank];
    if (call->kind == PLAN_ALL_GATHER && out_counts)
        own_in = out_counts[rank];
    *source = (struct call_region){.at = call->source};
    *target = (struct call_region){.at = call->target};
    return bytes_of(in == all ? in_counts : NULL, in, own_in, element, &source->len) &&
           bytes_of(out == all ? out_counts : NULL, out, own_out, element, &target->len);
}

/* The offset of this member's part in the buffer of all parts. */
static size_t own_offset(const struct call *call, const size_t *counts, int rank)
{
    size_t elements = 0;
    if (!counts)
        elements = (size_t)rank * call->count;
    for (int i = 0; counts && i < rank; i++)
        elements += counts[i];
    return elements * dtype_size(call->dtype);
}

/* In place: the source is this member's part of the target, or the reverse. */
static bool is_in_place(const struct call *call, int rank, const struct call_region *source,
                        const struct call_region *target)
{
    switch (call->kind) {
    case PLAN_REDUCE_SCATTER:
    case PLAN_SCATTER:
        return target->at == source->at + own_offset(call, call->in_counts, rank);
    case PLAN_ALL_GATHER:
    case PLAN_GATHER:
        return source->at == target->at + own_offset(call, call->out_counts, rank);
    default:
        return source->at == target->at;
    }
}

static bool overlap(const struct call_region *a, const struct call_region *b)
{
    return a->len > 0 && b->len > 0 && (uintptr_t)a->at < (uintptr_t)b->at + b->len &&
           (uintptr_t)b->at < (uintptr_t)a->at + a->len;
}

static int buffers_check(struct call *call, int rank, int size, struct call_region *source,
                         struct call_region *target)
{
    if (!regions_of(call, rank, size, source, target))
        return error_call(plan_kind_name(call->kind), HEARTH_INVALID,
                          "the buffers would hold 2^63 bytes or more");
    if (source->len > 0 && !source->at)
        return error_call(plan_kind_name(call->kind), HEARTH_INVALID,
                          "source is NULL, but %zu bytes are to be read from it", source->len);
    if (target->len > 0 && !target->at)
        return error_call(plan_kind_name(call->kind), HEARTH_INVALID,
                          "target is NULL, but %zu bytes are to be written to it", target->len);
    call->in_place = source->at && target->at && is_in_place(call, rank, source, target);
    if (call->kind == PLAN_BROADCAST)
        return HEARTH_OK;
    if (!call->in_place && overlap(source, target))
        return error_call(plan_kind_name(call->kind), HEARTH_INVALID,
                          "source and target overlap, but not as an in-place call");
    if (call->kind == PLAN_ALL_TO_ALL && call->in_place && call->in_counts &&
        memcmp(call->in_counts, call->out_counts, (size_t)size * sizeof(size_t)) != 0)
        return error_call(plan_kind_name(call->kind), HEARTH_INVALID,
                          "in place both lists of counts must be the same");
    return HEARTH_OK;
}

/* ---- the rest ---- */

static int arguments_check(const struct call *call, int rank, int size)
{
    if (dtype_size(call->dtype) == 0)
        return error_call(plan_kind_name(call->kind), HEARTH_INVALID, "dtype: unknown type %d",
                          (int)call->dtype);
    if (plan_kind_reduces(call->kind) && (unsigned)call->op >= OP_COUNT)
        return error_call(plan_kind_name(call->kind), HEARTH_INVALID, "op: unknown operation %d",
                          (int)call->op);
    if (plan_kind_reduces(call->kind) && !op_takes(call->op, call->dtype))
        return error_call(plan_kind_name(call->kind), HEARTH_INVALID,
                          "%s combines the bits of integers, and dtype is %s", hearth_op_name(call->op),
                          hearth_dtype_name(call->dtype));
    if ((call->kind == PLAN_SCAN || call->kind == PLAN_EXCLUSIVE_SCAN) && call->op == HEARTH_OP_AVG)
        return error_call(plan_kind_name(call->kind), HEARTH_UNSUPPORTED,
                          "there is no average over a prefix; use sum and divide");
    if (!plan_kind_rooted(call->kind))
        return HEARTH_OK;
    if (call->root < 0 || call->root >= size)
        return error_call(plan_kind_name(call->kind), HEARTH_INVALID,
                          "root is %d; the group has ranks 0 to %d", call->root, size - 1);
    const size_t *counts = call->kind == PLAN_GATHER ? call->out_counts : call->in_counts;
    if (rank == call->root && counts && counts[rank] != call->count)
        return error_call(plan_kind_name(call->kind), HEARTH_INVALID,
                          "count is %zu, but counts[%d] is %zu: both are the root's own part", call->count,
                          rank, counts[rank]);
    return HEARTH_OK;
}

static int counts_given(const struct call *call, int rank)
{
    bool root = rank == call->root;
    if (call->kind == PLAN_ALL_TO_ALL && (!call->in_counts || !call->out_counts))
        return error_call(plan_kind_name(call->kind), HEARTH_INVALID,
                          "source_counts and target_counts must not be NULL");
    if ((call->kind == PLAN_GATHER && root && !call->out_counts) ||
        (call->kind == PLAN_SCATTER && root && !call->in_counts))
        return error_call(plan_kind_name(call->kind), HEARTH_INVALID, "counts must not be NULL at the root");
    return HEARTH_OK;
}

/* A checked call, by where its buffers are. */
static int start_checked(hearth_group *group, const struct call *call, const struct call_region regions[2],
                         enum caller_next caller, hearth_request **request)
{
    struct hearth_memory memory;
    int status = memory_choose(plan_kind_name(call->kind), group, call->opts->memory, &memory);
    if (status != HEARTH_OK)
        return status;
    if (memory_is_device(&memory) && regions[0].len + regions[1].len > 0)
        return staging_start(group, call, &memory, &regions[0], &regions[1], request);
    return node_start(group, call, caller, request, error_last());
}

static int start(hearth_group *group, struct call *call, const struct hearth_opts *opts,
                 const struct staged_ranges *staged, enum caller_next caller, hearth_request **request)
{
    struct hearth_opts chosen;
    struct call_region regions[2]; /* source and target */
    if (!group || !request)
        return error_call(plan_kind_name(call->kind), HEARTH_INVALID,
                          !group ? "group is NULL" : "request is NULL");
    if (node_forked(group->node))
        return error_call(plan_kind_name(call->kind), HEARTH_FORKED, "%s", hearth_status_text(HEARTH_FORKED));
    int rank = group_rank(group->group), size = group_size(group->group);
    int status = opts_read(call, opts, &chosen);
    if (chosen.timeout_ms == -1)
        chosen.timeout_ms = group->node->config.op_timeout_ms;
    call->opts = &chosen;
    /* Only the root's counts are read. */
    if (call->kind == PLAN_GATHER && rank != call->root)
        call->out_counts = NULL;
    if (call->kind == PLAN_SCATTER && rank != call->root)
        call->in_counts = NULL;
    if (status == HEARTH_OK)
        status = arguments_check(call, rank, size);
    if (status == HEARTH_OK && call->vector)
        status = counts_given(call, rank);
    if (status == HEARTH_OK)
        status = buffers_check(call, rank, size, &regions[0], &regions[1]);
    if (status == HEARTH_OK)
        status = staged ? staging_start_ranges(group, call, staged, request)
                        : start_checked(group, call, regions, caller, request);
    call->opts = NULL;
    return status;
}

int call_start(hearth_group *group, struct call *call, const struct hearth_opts *opts,
               hearth_request **request)
{
    return start(group, call, opts, NULL, CALLER_GOES, request);
}

int call_start_staged(hearth_group *group, struct call *call, const struct hearth_opts *opts,
                      const struct staged_ranges *staged, hearth_request **request)
{
    return start(group, call, opts, staged, CALLER_GOES, request);
}

int call_run(hearth_group *group, struct call *call, const struct hearth_opts *opts)
{
    return call_run_unless(group, call, opts, NULL);
}

int call_run_unless(hearth_group *group, struct call *call, const struct hearth_opts *opts,
                    const struct stop *stop)
{
    hearth_request *request;
    int status = start(group, call, opts, NULL, CALLER_WAITS, &request);
    if (status != HEARTH_OK)
        return status;
    do
        status = node_wait(request, stop_look(stop, NEVER_NS)); /* the operation has its own deadline */
    while (status == HEARTH_PENDING && !stop_asked(stop));
    if (status == HEARTH_PENDING) {
        node_cancel(request);
        status = request->completion.error.status;
    }
    if (status != HEARTH_OK)
        *error_last() = request->completion.error;
    node_release(request);
    return status;
}
