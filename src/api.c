/* SPDX-License-Identifier: Apache-2.0 */
/* The public collectives: the user's arguments become a call; node/call.c checks and runs it. */
#include "node/call.h"

/* Counts that only some members give: NULL must not be taken for the form without counts. */
static int no_counts(const char *name)
{
    return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "%s: counts is NULL", name);
}

static struct call all_reduce_call(const void *source, void *target, size_t count, enum hearth_dtype dtype,
                                   enum hearth_op op)
{
    return (struct call){.kind = PLAN_ALL_REDUCE,
                         .source = source,
                         .target = target,
                         .count = count,
                         .dtype = dtype,
                         .op = op};
}

int hearth_all_reduce(hearth_group *group, const void *source, void *target, size_t count,
                      enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts)
{
    struct call call = all_reduce_call(source, target, count, dtype, op);
    return call_run(group, &call, opts);
}

int hearth_all_reduce_nb(hearth_group *group, const void *source, void *target, size_t count,
                         enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts,
                         hearth_request **request)
{
    struct call call = all_reduce_call(source, target, count, dtype, op);
    return call_start(group, &call, opts, request);
}

static struct call reduce_scatter_call(const void *source, void *target, size_t count,
                                       enum hearth_dtype dtype, enum hearth_op op)
{
    return (struct call){.kind = PLAN_REDUCE_SCATTER,
                         .source = source,
                         .target = target,
                         .count = count,
                         .dtype = dtype,
                         .op = op};
}

int hearth_reduce_scatter(hearth_group *group, const void *source, void *target, size_t count,
                          enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts)
{
    struct call call = reduce_scatter_call(source, target, count, dtype, op);
    return call_run(group, &call, opts);
}

int hearth_reduce_scatter_nb(hearth_group *group, const void *source, void *target, size_t count,
                             enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts,
                             hearth_request **request)
{
    struct call call = reduce_scatter_call(source, target, count, dtype, op);
    return call_start(group, &call, opts, request);
}

static struct call reduce_scatterv_call(const void *source, void *target, const size_t *counts,
                                        enum hearth_dtype dtype, enum hearth_op op)
{
    return (struct call){.kind = PLAN_REDUCE_SCATTER,
                         .source = source,
                         .target = target,
                         .in_counts = counts,
                         .dtype = dtype,
                         .op = op};
}

int hearth_reduce_scatterv(hearth_group *group, const void *source, void *target, const size_t *counts,
                           enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts)
{
    if (!counts)
        return no_counts("reduce_scatterv");
    struct call call = reduce_scatterv_call(source, target, counts, dtype, op);
    return call_run(group, &call, opts);
}

int hearth_reduce_scatterv_nb(hearth_group *group, const void *source, void *target, const size_t *counts,
                              enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts,
                              hearth_request **request)
{
    if (!counts)
        return no_counts("reduce_scatterv");
    struct call call = reduce_scatterv_call(source, target, counts, dtype, op);
    return call_start(group, &call, opts, request);
}

static struct call all_gather_call(const void *source, void *target, size_t count, enum hearth_dtype dtype)
{
    return (struct call){
        .kind = PLAN_ALL_GATHER, .source = source, .target = target, .count = count, .dtype = dtype};
}

int hearth_all_gather(hearth_group *group, const void *source, void *target, size_t count,
                      enum hearth_dtype dtype, const struct hearth_opts *opts)
{
    struct call call = all_gather_call(source, target, count, dtype);
    return call_run(group, &call, opts);
}

int hearth_all_gather_nb(hearth_group *group, const void *source, void *target, size_t count,
                         enum hearth_dtype dtype, const struct hearth_opts *opts, hearth_request **request)
{
    struct call call = all_gather_call(source, target, count, dtype);
    return call_start(group, &call, opts, request);
}

static struct call all_gatherv_call(const void *source, void *target, const size_t *counts,
                                    enum hearth_dtype dtype)
{
    return (struct call){
        .kind = PLAN_ALL_GATHER, .source = source, .target = target, .out_counts = counts, .dtype = dtype};
}

int hearth_all_gatherv(hearth_group *group, const void *source, void *target, const size_t *counts,
                       enum hearth_dtype dtype, const struct hearth_opts *opts)
{
    if (!counts)
        return no_counts("all_gatherv");
    struct call call = all_gatherv_call(source, target, counts, dtype);
    return call_run(group, &call, opts);
}

int hearth_all_gatherv_nb(hearth_group *group, const void *source, void *target, const size_t *counts,
                          enum hearth_dtype dtype, const struct hearth_opts *opts, hearth_request **request)
{
    if (!counts)
        return no_counts("all_gatherv");
    struct call call = all_gatherv_call(source, target, counts, dtype);
    return call_start(group, &call, opts, request);
}

static struct call broadcast_call(void *buffer, size_t count, enum hearth_dtype dtype, int root)
{
    return (struct call){.kind = PLAN_BROADCAST,
                         .source = buffer,
                         .target = buffer,
                         .count = count,
                         .dtype = dtype,
                         .root = root};
}

int hearth_broadcast(hearth_group *group, void *buffer, size_t count, enum hearth_dtype dtype, int root,
                     const struct hearth_opts *opts)
{
    struct call call = broadcast_call(buffer, count, dtype, root);
    return call_run(group, &call, opts);
}

int hearth_broadcast_nb(hearth_group *group, void *buffer, size_t count, enum hearth_dtype dtype, int root,
                        const struct hearth_opts *opts, hearth_request **request)
{
    struct call call = broadcast_call(buffer, count, dtype, root);
    return call_start(group, &call, opts, request);
}

static struct call reduce_call(const void *source, void *target, size_t count, enum hearth_dtype dtype,
                               enum hearth_op op, int root)
{
    return (struct call){.kind = PLAN_REDUCE,
                         .source = source,
                         .target = target,
                         .count = count,
                         .dtype = dtype,
                         .op = op,
                         .root = root};
}

int hearth_reduce(hearth_group *group, const void *source, void *target, size_t count,
                  enum hearth_dtype dtype, enum hearth_op op, int root, const struct hearth_opts *opts)
{
    struct call call = reduce_call(source, target, count, dtype, op, root);
    return call_run(group, &call, opts);
}

int hearth_reduce_nb(hearth_group *group, const void *source, void *target, size_t count,
                     enum hearth_dtype dtype, enum hearth_op op, int root, const struct hearth_opts *opts,
                     hearth_request **request)
{
    struct call call = reduce_call(source, target, count, dtype, op, root);
    return call_start(group, &call, opts, request);
}

static struct call gather_call(const void *source, void *target, size_t count, enum hearth_dtype dtype,
                               int root)
{
    return (struct call){.kind = PLAN_GATHER,
                         .source = source,
                         .target = target,
                         .count = count,
                         .dtype = dtype,
                         .root = root};
}

int hearth_gather(hearth_group *group, const void *source, void *target, size_t count,
                  enum hearth_dtype dtype, int root, const struct hearth_opts *opts)
{
    struct call call = gather_call(source, target, count, dtype, root);
    return call_run(group, &call, opts);
}

int hearth_gather_nb(hearth_group *group, const void *source, void *target, size_t count,
                     enum hearth_dtype dtype, int root, const struct hearth_opts *opts,
                     hearth_request **request)
{
    struct call call = gather_call(source, target, count, dtype, root);
    return call_start(group, &call, opts, request);
}

static struct call gatherv_call(const void *source, size_t count, void *target, const size_t *counts,
                                enum hearth_dtype dtype, int root)
{
    return (struct call){.kind = PLAN_GATHER,
                         .source = source,
                         .target = target,
                         .count = count,
                         .out_counts = counts,
                         .vector = true,
                         .dtype = dtype,
                         .root = root};
}

int hearth_gatherv(hearth_group *group, const void *source, size_t count, void *target, const size_t *counts,
                   enum hearth_dtype dtype, int root, const struct hearth_opts *opts)
{
    struct call call = gatherv_call(source, count, target, counts, dtype, root);
    return call_run(group, &call, opts);
}

int hearth_gatherv_nb(hearth_group *group, const void *source, size_t count, void *target,
                      const size_t *counts, enum hearth_dtype dtype, int root, const struct hearth_opts *opts,
                      hearth_request **request)
{
    struct call call = gatherv_call(source, count, target, counts, dtype, root);
    return call_start(group, &call, opts, request);
}

static struct call scatter_call(const void *source, void *target, size_t count, enum hearth_dtype dtype,
                                int root)
{
    return (struct call){.kind = PLAN_SCATTER,
                         .source = source,
                         .target = target,
                         .count = count,
                         .dtype = dtype,
                         .root = root};
}

int hearth_scatter(hearth_group *group, const void *source, void *target, size_t count,
                   enum hearth_dtype dtype, int root, const struct hearth_opts *opts)
{
    struct call call = scatter_call(source, target, count, dtype, root);
    return call_run(group, &call, opts);
}

int hearth_scatter_nb(hearth_group *group, const void *source, void *target, size_t count,
                      enum hearth_dtype dtype, int root, const struct hearth_opts *opts,
                      hearth_request **request)
{
    struct call call = scatter_call(source, target, count, dtype, root);
    return call_start(group, &call, opts, request);
}

static struct call scatterv_call(const void *source, const size_t *counts, void *target, size_t count,
                                 enum hearth_dtype dtype, int root)
{
    return (struct call){.kind = PLAN_SCATTER,
                         .source = source,
                         .target = target,
                         .count = count,
                         .in_counts = counts,
                         .vector = true,
                         .dtype = dtype,
                         .root = root};
}

int hearth_scatterv(hearth_group *group, const void *source, const size_t *counts, void *target, size_t count,
                    enum hearth_dtype dtype, int root, const struct hearth_opts *opts)
{
    struct call call = scatterv_call(source, counts, target, count, dtype, root);
    return call_run(group, &call, opts);
}

int hearth_scatterv_nb(hearth_group *group, const void *source, const size_t *counts, void *target,
                       size_t count, enum hearth_dtype dtype, int root, const struct hearth_opts *opts,
                       hearth_request **request)
{
    struct call call = scatterv_call(source, counts, target, count, dtype, root);
    return call_start(group, &call, opts, request);
}

static struct call all_to_all_call(const void *source, void *target, size_t count, enum hearth_dtype dtype)
{
    return (struct call){
        .kind = PLAN_ALL_TO_ALL, .source = source, .target = target, .count = count, .dtype = dtype};
}

int hearth_all_to_all(hearth_group *group, const void *source, void *target, size_t count,
                      enum hearth_dtype dtype, const struct hearth_opts *opts)
{
    struct call call = all_to_all_call(source, target, count, dtype);
    return call_run(group, &call, opts);
}

int hearth_all_to_all_nb(hearth_group *group, const void *source, void *target, size_t count,
                         enum hearth_dtype dtype, const struct hearth_opts *opts, hearth_request **request)
{
    struct call call = all_to_all_call(source, target, count, dtype);
    return call_start(group, &call, opts, request);
}

static struct call all_to_allv_call(const void *source, const size_t *source_counts, void *target,
                                    const size_t *target_counts, enum hearth_dtype dtype)
{
    return (struct call){.kind = PLAN_ALL_TO_ALL,
                         .source = source,
                         .target = target,
                         .in_counts = source_counts,
                         .out_counts = target_counts,
                         .vector = true,
                         .dtype = dtype};
}

int hearth_all_to_allv(hearth_group *group, const void *source, const size_t *source_counts, void *target,
                       const size_t *target_counts, enum hearth_dtype dtype, const struct hearth_opts *opts)
{
    struct call call = all_to_allv_call(source, source_counts, target, target_counts, dtype);
    return call_run(group, &call, opts);
}

int hearth_all_to_allv_nb(hearth_group *group, const void *source, const size_t *source_counts, void *target,
                          const size_t *target_counts, enum hearth_dtype dtype,
                          const struct hearth_opts *opts, hearth_request **request)
{
    struct call call = all_to_allv_call(source, source_counts, target, target_counts, dtype);
    return call_start(group, &call, opts, request);
}

static struct call scan_call(const void *source, void *target, size_t count, enum hearth_dtype dtype,
                             enum hearth_op op)
{
    return (struct call){
        .kind = PLAN_SCAN, .source = source, .target = target, .count = count, .dtype = dtype, .op = op};
}

int hearth_scan(hearth_group *group, const void *source, void *target, size_t count, enum hearth_dtype dtype,
                enum hearth_op op, const struct hearth_opts *opts)
{
    struct call call = scan_call(source, target, count, dtype, op);
    return call_run(group, &call, opts);
}

int hearth_scan_nb(hearth_group *group, const void *source, void *target, size_t count,
                   enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts,
                   hearth_request **request)
{
    struct call call = scan_call(source, target, count, dtype, op);
    return call_start(group, &call, opts, request);
}

static struct call exclusive_scan_call(const void *source, void *target, size_t count,
                                       enum hearth_dtype dtype, enum hearth_op op)
{
    return (struct call){.kind = PLAN_EXCLUSIVE_SCAN,
                         .source = source,
                         .target = target,
                         .count = count,
                         .dtype = dtype,
                         .op = op};
}

int hearth_exclusive_scan(hearth_group *group, const void *source, void *target, size_t count,
                          enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts)
{
    struct call call = exclusive_scan_call(source, target, count, dtype, op);
    return call_run(group, &call, opts);
}

int hearth_exclusive_scan_nb(hearth_group *group, const void *source, void *target, size_t count,
                             enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts,
                             hearth_request **request)
{
    struct call call = exclusive_scan_call(source, target, count, dtype, op);
    return call_start(group, &call, opts, request);
}

static struct call barrier_call(void)
{
    return (struct call){.kind = PLAN_BARRIER, .dtype = HEARTH_U8};
}

int hearth_barrier(hearth_group *group, const struct hearth_opts *opts)
{
    struct call call = barrier_call();
    return call_run(group, &call, opts);
}

int hearth_barrier_nb(hearth_group *group, const struct hearth_opts *opts, hearth_request **request)
{
    struct call call = barrier_call();
    return call_start(group, &call, opts, request);
}
