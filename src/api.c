/* SPDX-License-Identifier: Apache-2.0 */
/* The public collectives: the user's arguments become a call; node/call.c checks and runs it. */
#include "node/call.h"

static struct call moving(enum plan_kind kind, const void *source, void *target, size_t count,
                          enum hearth_dtype dtype, int root)
{
    return (struct call){
        .kind = kind, .source = source, .target = target, .count = count, .dtype = dtype, .root = root};
}

static struct call reducing(enum plan_kind kind, const void *source, void *target, size_t count,
                            enum hearth_dtype dtype, enum hearth_op op)
{
    return (struct call){
        .kind = kind, .source = source, .target = target, .count = count, .dtype = dtype, .op = op};
}

/* Counts that all members know: NULL must not be taken for the form without counts. */
static int counts_check(const size_t *counts, const char *name)
{
    return counts ? HEARTH_OK
                  : error_set(error_last(), HEARTH_INVALID, RANK_NONE, "%s: counts is NULL", name);
}

int hearth_all_reduce(hearth_group *group, const void *source, void *target, size_t count,
                      enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts)
{
    struct call call = reducing(PLAN_ALL_REDUCE, source, target, count, dtype, op);
    return call_run(group, &call, opts);
}

int hearth_all_reduce_nb(hearth_group *group, const void *source, void *target, size_t count,
                         enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts,
                         hearth_request **request)
{
    struct call call = reducing(PLAN_ALL_REDUCE, source, target, count, dtype, op);
    return call_start(group, &call, opts, request);
}

int hearth_reduce_scatter(hearth_group *group, const void *source, void *target, size_t count,
                          enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts)
{
    struct call call = reducing(PLAN_REDUCE_SCATTER, source, target, count, dtype, op);
    return call_run(group, &call, opts);
}

int hearth_reduce_scatter_nb(hearth_group *group, const void *source, void *target, size_t count,
                             enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts,
                             hearth_request **request)
{
    struct call call = reducing(PLAN_REDUCE_SCATTER, source, target, count, dtype, op);
    return call_start(group, &call, opts, request);
}

static struct call reduce_scatterv_call(const void *source, void *target, const size_t *counts,
                                        enum hearth_dtype dtype, enum hearth_op op)
{
    struct call call = reducing(PLAN_REDUCE_SCATTER, source, target, 0, dtype, op);
    call.in_counts = counts;
    return call;
}

int hearth_reduce_scatterv(hearth_group *group, const void *source, void *target, const size_t *counts,
                           enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts)
{
    struct call call = reduce_scatterv_call(source, target, counts, dtype, op);
    int status = counts_check(counts, "reduce_scatterv");
    return status != HEARTH_OK ? status : call_run(group, &call, opts);
}

int hearth_reduce_scatterv_nb(hearth_group *group, const void *source, void *target, const size_t *counts,
                              enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts,
                              hearth_request **request)
{
    struct call call = reduce_scatterv_call(source, target, counts, dtype, op);
    int status = counts_check(counts, "reduce_scatterv");
    return status != HEARTH_OK ? status : call_start(group, &call, opts, request);
}

int hearth_all_gather(hearth_group *group, const void *source, void *target, size_t count,
                      enum hearth_dtype dtype, const struct hearth_opts *opts)
{
    struct call call = moving(PLAN_ALL_GATHER, source, target, count, dtype, 0);
    return call_run(group, &call, opts);
}

int hearth_all_gather_nb(hearth_group *group, const void *source, void *target, size_t count,
                         enum hearth_dtype dtype, const struct hearth_opts *opts, hearth_request **request)
{
    struct call call = moving(PLAN_ALL_GATHER, source, target, count, dtype, 0);
    return call_start(group, &call, opts, request);
}

static struct call all_gatherv_call(const void *source, void *target, const size_t *counts,
                                    enum hearth_dtype dtype)
{
    struct call call = moving(PLAN_ALL_GATHER, source, target, 0, dtype, 0);
    call.out_counts = counts;
    return call;
}

int hearth_all_gatherv(hearth_group *group, const void *source, void *target, const size_t *counts,
                       enum hearth_dtype dtype, const struct hearth_opts *opts)
{
    struct call call = all_gatherv_call(source, target, counts, dtype);
    int status = counts_check(counts, "all_gatherv");
    return status != HEARTH_OK ? status : call_run(group, &call, opts);
}

int hearth_all_gatherv_nb(hearth_group *group, const void *source, void *target, const size_t *counts,
                          enum hearth_dtype dtype, const struct hearth_opts *opts, hearth_request **request)
{
    struct call call = all_gatherv_call(source, target, counts, dtype);
    int status = counts_check(counts, "all_gatherv");
    return status != HEARTH_OK ? status : call_start(group, &call, opts, request);
}

int hearth_broadcast(hearth_group *group, void *buffer, size_t count, enum hearth_dtype dtype, int root,
                     const struct hearth_opts *opts)
{
    struct call call = moving(PLAN_BROADCAST, buffer, buffer, count, dtype, root);
    return call_run(group, &call, opts);
}

int hearth_broadcast_nb(hearth_group *group, void *buffer, size_t count, enum hearth_dtype dtype, int root,
                        const struct hearth_opts *opts, hearth_request **request)
{
    struct call call = moving(PLAN_BROADCAST, buffer, buffer, count, dtype, root);
    return call_start(group, &call, opts, request);
}

static struct call reduce_call(const void *source, void *target, size_t count, enum hearth_dtype dtype,
                               enum hearth_op op, int root)
{
    struct call call = reducing(PLAN_REDUCE, source, target, count, dtype, op);
    call.root = root;
    return call;
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

int hearth_gather(hearth_group *group, const void *source, void *target, size_t count,
                  enum hearth_dtype dtype, int root, const struct hearth_opts *opts)
{
    struct call call = moving(PLAN_GATHER, source, target, count, dtype, root);
    return call_run(group, &call, opts);
}

int hearth_gather_nb(hearth_group *group, const void *source, void *target, size_t count,
                     enum hearth_dtype dtype, int root, const struct hearth_opts *opts,
                     hearth_request **request)
{
    struct call call = moving(PLAN_GATHER, source, target, count, dtype, root);
    return call_start(group, &call, opts, request);
}

static struct call gatherv_call(const void *source, size_t count, void *target, const size_t *counts,
                                enum hearth_dtype dtype, int root)
{
    struct call call = moving(PLAN_GATHER, source, target, count, dtype, root);
    call.out_counts = counts;
    call.vector = true;
    return call;
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

int hearth_scatter(hearth_group *group, const void *source, void *target, size_t count,
                   enum hearth_dtype dtype, int root, const struct hearth_opts *opts)
{
    struct call call = moving(PLAN_SCATTER, source, target, count, dtype, root);
    return call_run(group, &call, opts);
}

int hearth_scatter_nb(hearth_group *group, const void *source, void *target, size_t count,
                      enum hearth_dtype dtype, int root, const struct hearth_opts *opts,
                      hearth_request **request)
{
    struct call call = moving(PLAN_SCATTER, source, target, count, dtype, root);
    return call_start(group, &call, opts, request);
}

static struct call scatterv_call(const void *source, const size_t *counts, void *target, size_t count,
                                 enum hearth_dtype dtype, int root)
{
    struct call call = moving(PLAN_SCATTER, source, target, count, dtype, root);
    call.in_counts = counts;
    call.vector = true;
    return call;
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

int hearth_all_to_all(hearth_group *group, const void *source, void *target, size_t count,
                      enum hearth_dtype dtype, const struct hearth_opts *opts)
{
    struct call call = moving(PLAN_ALL_TO_ALL, source, target, count, dtype, 0);
    return call_run(group, &call, opts);
}

int hearth_all_to_all_nb(hearth_group *group, const void *source, void *target, size_t count,
                         enum hearth_dtype dtype, const struct hearth_opts *opts, hearth_request **request)
{
    struct call call = moving(PLAN_ALL_TO_ALL, source, target, count, dtype, 0);
    return call_start(group, &call, opts, request);
}

static struct call all_to_allv_call(const void *source, const size_t *source_counts, void *target,
                                    const size_t *target_counts, enum hearth_dtype dtype)
{
    struct call call = moving(PLAN_ALL_TO_ALL, source, target, 0, dtype, 0);
    call.in_counts = source_counts;
    call.out_counts = target_counts;
    call.vector = true;
    return call;
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

int hearth_scan(hearth_group *group, const void *source, void *target, size_t count, enum hearth_dtype dtype,
                enum hearth_op op, const struct hearth_opts *opts)
{
    struct call call = reducing(PLAN_SCAN, source, target, count, dtype, op);
    return call_run(group, &call, opts);
}

int hearth_scan_nb(hearth_group *group, const void *source, void *target, size_t count,
                   enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts,
                   hearth_request **request)
{
    struct call call = reducing(PLAN_SCAN, source, target, count, dtype, op);
    return call_start(group, &call, opts, request);
}

int hearth_exclusive_scan(hearth_group *group, const void *source, void *target, size_t count,
                          enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts)
{
    struct call call = reducing(PLAN_EXCLUSIVE_SCAN, source, target, count, dtype, op);
    return call_run(group, &call, opts);
}

int hearth_exclusive_scan_nb(hearth_group *group, const void *source, void *target, size_t count,
                             enum hearth_dtype dtype, enum hearth_op op, const struct hearth_opts *opts,
                             hearth_request **request)
{
    struct call call = reducing(PLAN_EXCLUSIVE_SCAN, source, target, count, dtype, op);
    return call_start(group, &call, opts, request);
}

int hearth_barrier(hearth_group *group, const struct hearth_opts *opts)
{
    struct call call = moving(PLAN_BARRIER, NULL, NULL, 0, HEARTH_U8, 0);
    return call_run(group, &call, opts);
}

int hearth_barrier_nb(hearth_group *group, const struct hearth_opts *opts, hearth_request **request)
{
    struct call call = moving(PLAN_BARRIER, NULL, NULL, 0, HEARTH_U8, 0);
    return call_start(group, &call, opts, request);
}
