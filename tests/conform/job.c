/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers, the sixteen calls in both forms, and the comparison of results. */
#include "conform/job.h"

#include <inttypes.h>

#include "conform/reference.h"

#define POISON 0xa5

static const char *const kind_names[KIND_COUNT] = {
    [ALL_REDUCE] = "all_reduce",   [REDUCE_SCATTER] = "reduce_scatter",
    [ALL_GATHER] = "all_gather",   [REDUCE_SCATTERV] = "reduce_scatterv",
    [ALL_GATHERV] = "all_gatherv", [BROADCAST] = "broadcast",
    [REDUCE] = "reduce",           [GATHER] = "gather",
    [GATHERV] = "gatherv",         [SCATTER] = "scatter",
    [SCATTERV] = "scatterv",       [ALL_TO_ALL] = "all_to_all",
    [ALL_TO_ALLV] = "all_to_allv", [SCAN] = "scan",
    [BARRIER] = "barrier",         [EXCLUSIVE_SCAN] = "exclusive_scan",
};

const char *kind_name(enum kind kind)
{
    return kind_names[kind];
}

bool kind_has_op(enum kind kind)
{
    return kind == ALL_REDUCE || kind == REDUCE_SCATTER || kind == REDUCE_SCATTERV || kind == REDUCE ||
           kind == SCAN || kind == EXCLUSIVE_SCAN;
}

bool kind_has_root(enum kind kind)
{
    return kind == BROADCAST || kind == REDUCE || kind == GATHER || kind == GATHERV || kind == SCATTER ||
           kind == SCATTERV;
}

bool kind_is_vector(enum kind kind)
{
    return kind == REDUCE_SCATTERV || kind == ALL_GATHERV || kind == GATHERV || kind == SCATTERV ||
           kind == ALL_TO_ALLV;
}

bool kind_is_same(enum kind kind)
{
    return kind == ALL_REDUCE || kind == ALL_GATHER || kind == ALL_GATHERV || kind == BROADCAST;
}

bool kind_is_done_by(enum kind kind, enum hearth_algo algo)
{
    enum {
        VECTOR = 1u << HEARTH_ALGO_AUTO,
        RING = 1u << HEARTH_ALGO_RING,
        DIRECT = 1u << HEARTH_ALGO_DIRECT,
        HALVING = 1u << HEARTH_ALGO_HALVING,
        TREE = 1u << HEARTH_ALGO_TREE,
        STAR = 1u << HEARTH_ALGO_STAR,
        HIERARCHICAL = 1u << HEARTH_ALGO_HIERARCHICAL,
        EXCHANGE = 1u << HEARTH_ALGO_EXCHANGE
    };
    static const unsigned algos[KIND_COUNT] = {
        [ALL_REDUCE] = RING | DIRECT | HALVING | TREE | STAR | HIERARCHICAL | EXCHANGE,
        [REDUCE_SCATTER] = RING | DIRECT | HALVING,
        [REDUCE_SCATTERV] = VECTOR,
        [ALL_GATHER] = RING | DIRECT | HALVING,
        [ALL_GATHERV] = VECTOR,
        [BROADCAST] = RING | TREE | STAR,
        [REDUCE] = RING | TREE | STAR,
        [GATHER] = DIRECT,
        [GATHERV] = VECTOR,
        [SCATTER] = DIRECT,
        [SCATTERV] = VECTOR,
        [ALL_TO_ALL] = DIRECT,
        [ALL_TO_ALLV] = VECTOR,
        [SCAN] = RING | TREE,
        [EXCLUSIVE_SCAN] = RING | TREE,
        [BARRIER] = HALVING | TREE | EXCHANGE,
    };
    return algos[kind] >> algo & 1;
}

void job_init(struct job *job, enum kind kind, int size, size_t count)
{
    memset(job, 0, sizeof *job);
    job->kind = kind;
    job->size = size;
    job->count = count;
    job->seed = 1;
    hearth_opts_init(&job->opts);
    for (int i = 0; i < size; i++)
        job->weight[i] = 1;
    for (int i = 0; i < size * size; i++)
        job->counts[i] = count;
}

void job_draw_counts(struct job *job)
{
    uint64_t seed = job->seed ^ 0xc0c0;
    for (int i = 0; i < job->size * job->size; i++)
        job->counts[i] = draw_below(&seed, 4) == 0 ? 0 : draw_below(&seed, 2 * job->count + 1);
    if (job->kind == ALL_TO_ALLV && job->in_place) /* then i sends to j as much as j to i */
        for (int i = 0; i < job->size; i++)
            for (int j = 0; j < i; j++)
                job->counts[i * job->size + j] = job->counts[j * job->size + i];
}

/* ---- sizes ---- */

void job_to_counts(const struct job *job, int rank, size_t *to)
{
    for (int i = 0; i < job->size; i++)
        to[i] = job->counts[rank * job->size + i];
}

void job_from_counts(const struct job *job, int rank, size_t *from)
{
    for (int i = 0; i < job->size; i++)
        from[i] = job->counts[i * job->size + rank];
}

static size_t sum_of(const size_t *counts, int size)
{
    size_t sum = 0;
    for (int i = 0; i < size; i++)
        sum += counts[i];
    return sum;
}

size_t job_source_count(const struct job *job, int rank)
{
    size_t list[MEMBERS_MAX];
    switch (job->kind) {
    case REDUCE_SCATTER:
    case ALL_TO_ALL:
        return job->count * (size_t)job->size;
    case REDUCE_SCATTERV:
        return sum_of(job->counts, job->size);
    case ALL_GATHERV:
    case GATHERV:
        return job->counts[rank];
    case SCATTER:
        return rank == job->root ? job->count * (size_t)job->size : 0;
    case SCATTERV:
        return rank == job->root ? sum_of(job->counts, job->size) : 0;
    case ALL_TO_ALLV:
        job_to_counts(job, rank, list);
        return sum_of(list, job->size);
    case BARRIER:
        return 0;
    default:
        return job->count;
    }
}

size_t job_target_count(const struct job *job, int rank)
{
    size_t list[MEMBERS_MAX];
    bool root = rank == job->root;
    switch (job->kind) {
    case ALL_GATHER:
    case ALL_TO_ALL:
        return job->count * (size_t)job->size;
    case REDUCE_SCATTERV:
    case SCATTERV:
        return job->counts[rank];
    case ALL_GATHERV:
        return sum_of(job->counts, job->size);
    case REDUCE:
        return root ? job->count : 0;
    case GATHER:
        return root ? job->count * (size_t)job->size : 0;
    case GATHERV:
        return root ? sum_of(job->counts, job->size) : 0;
    case ALL_TO_ALLV:
        job_from_counts(job, rank, list);
        return sum_of(list, job->size);
    case BARRIER:
        return 0;
    default:
        return job->count;
    }
}

size_t job_own_offset(const struct job *job, int rank)
{
    return kind_is_vector(job->kind) ? sum_of(job->counts, rank) : job->count * (size_t)rank;
}

/* ---- buffers ---- */

/* The buffer that in place holds both: which of the two it is, and where the other stands in it. */
static void place(struct job *job, int rank)
{
    size_t element = hearth_dtype_size(job->dtype), own = job_own_offset(job, rank) * element;
    char *both;
    switch (job->kind) {
    case REDUCE_SCATTER:
    case REDUCE_SCATTERV:
        job->target[rank] = (char *)job->source[rank] + own;
        return;
    case SCATTER:
    case SCATTERV:
        if (rank == job->root)
            job->target[rank] = (char *)job->source[rank] + own;
        return;
    case ALL_GATHER:
    case ALL_GATHERV:
    case GATHER:
    case GATHERV:
        if (rank != job->root && (job->kind == GATHER || job->kind == GATHERV))
            return;
        both = job->target[rank];
        memcpy(both + own, job->source[rank], job_source_count(job, rank) * element);
        job->source[rank] = both + own;
        return;
    case REDUCE:
        if (rank == job->root)
            job->target[rank] = job->source[rank];
        return;
    default:
        job->target[rank] = job->source[rank];
    }
}

static void *buffer(struct job *job, int rank, int which, size_t len)
{
    char *memory =
        job->device ? fake_device_alloc(job->device, len + job->offset) : must_alloc(len + job->offset);
    memset(memory, POISON, len + job->offset);
    job->memory[rank][which] = memory;
    return memory + job->offset;
}

void job_prepare(struct job *job)
{
    size_t element = hearth_dtype_size(job->dtype);
    for (int r = 0; r < job->size; r++) {
        size_t in = job_source_count(job, r), out = job_target_count(job, r);
        /* A member that gets nothing has a target all the same, to see that nothing is written there. */
        size_t room = out > 0 ? out : job->count;
        job->source[r] = buffer(job, r, 0, in * element);
        job->target[r] = buffer(job, r, 1, room * element);
        fill_values(job, r, job->source[r], in);
        job->input[r] = must_alloc(in * element);
        memcpy(job->input[r], job->source[r], in * element);
        if (job->in_place || job->kind == BROADCAST)
            place(job, r);
        if (out == 0 && job->null_target)
            job->target[r] = NULL;
        if (in == 0 && job->null_target)
            job->source[r] = NULL;
    }
}

void job_free(struct job *job)
{
    for (int r = 0; r < job->size; r++) {
        if (!job->device) {
            free(job->memory[r][0]);
            free(job->memory[r][1]);
        }
        free(job->input[r]);
        job->memory[r][0] = job->memory[r][1] = job->input[r] = NULL;
    }
    if (job->device)
        fake_device_reset(job->device);
}

/* ---- calls ---- */

static struct hearth_opts opts_of(const struct job *job, int rank)
{
    struct hearth_opts opts = job->opts;
    opts.weight = job->weight[rank];
    return opts;
}

int job_start(const struct job *job, hearth_group *g, int rank, hearth_request **q)
{
    const void *s = job->device ? fake_device_address(job->device, job->source[rank]) : job->source[rank];
    void *t = job->device ? fake_device_address(job->device, job->target[rank]) : job->target[rank];
    struct hearth_opts chosen = opts_of(job, rank), *o = &chosen;
    enum hearth_dtype d = job->dtype;
    enum hearth_op op = job->op;
    int root = job->root;
    size_t n = job->count, to[MEMBERS_MAX], from[MEMBERS_MAX];
    const size_t *list = job->counts, *at_root = rank == root ? list : NULL, own = list[rank];
    job_to_counts(job, rank, to);
    job_from_counts(job, rank, from);
    switch (job->kind) {
    case ALL_REDUCE:
        return q ? hearth_all_reduce_nb(g, s, t, n, d, op, o, q) : hearth_all_reduce(g, s, t, n, d, op, o);
    case REDUCE_SCATTER:
        return q ? hearth_reduce_scatter_nb(g, s, t, n, d, op, o, q)
                 : hearth_reduce_scatter(g, s, t, n, d, op, o);
    case REDUCE_SCATTERV:
        return q ? hearth_reduce_scatterv_nb(g, s, t, list, d, op, o, q)
                 : hearth_reduce_scatterv(g, s, t, list, d, op, o);
    case ALL_GATHER:
        return q ? hearth_all_gather_nb(g, s, t, n, d, o, q) : hearth_all_gather(g, s, t, n, d, o);
    case ALL_GATHERV:
        return q ? hearth_all_gatherv_nb(g, s, t, list, d, o, q) : hearth_all_gatherv(g, s, t, list, d, o);
    case BROADCAST:
        return q ? hearth_broadcast_nb(g, t, n, d, root, o, q) : hearth_broadcast(g, t, n, d, root, o);
    case REDUCE:
        return q ? hearth_reduce_nb(g, s, t, n, d, op, root, o, q)
                 : hearth_reduce(g, s, t, n, d, op, root, o);
    case GATHER:
        return q ? hearth_gather_nb(g, s, t, n, d, root, o, q) : hearth_gather(g, s, t, n, d, root, o);
    case GATHERV:
        return q ? hearth_gatherv_nb(g, s, own, t, at_root, d, root, o, q)
                 : hearth_gatherv(g, s, own, t, at_root, d, root, o);
    case SCATTER:
        return q ? hearth_scatter_nb(g, s, t, n, d, root, o, q) : hearth_scatter(g, s, t, n, d, root, o);
    case SCATTERV:
        return q ? hearth_scatterv_nb(g, s, at_root, t, own, d, root, o, q)
                 : hearth_scatterv(g, s, at_root, t, own, d, root, o);
    case ALL_TO_ALL:
        return q ? hearth_all_to_all_nb(g, s, t, n, d, o, q) : hearth_all_to_all(g, s, t, n, d, o);
    case ALL_TO_ALLV:
        return q ? hearth_all_to_allv_nb(g, s, to, t, from, d, o, q)
                 : hearth_all_to_allv(g, s, to, t, from, d, o);
    case SCAN:
        return q ? hearth_scan_nb(g, s, t, n, d, op, o, q) : hearth_scan(g, s, t, n, d, op, o);
    case EXCLUSIVE_SCAN:
        return q ? hearth_exclusive_scan_nb(g, s, t, n, d, op, o, q)
                 : hearth_exclusive_scan(g, s, t, n, d, op, o);
    default:
        return q ? hearth_barrier_nb(g, o, q) : hearth_barrier(g, o);
    }
}

int job_call(const struct job *job, hearth_group *group, int rank)
{
    return job_start(job, group, rank, NULL);
}

static void member(struct fixture *c, int rank, void *arg)
{
    struct job *job = arg;
    hearth_request *request = NULL;
    if (!job->nonblocking) {
        job->status[rank] = job_call(job, c->world[rank], rank);
        snprintf(job->text[rank], TEXT_MAX, "%s", hearth_error_text());
        return;
    }
    int status = job_start(job, c->world[rank], rank, &request);
    if (status == HEARTH_OK)
        status = hearth_request_wait(request, -1);
    snprintf(job->text[rank], TEXT_MAX, "%s", request ? hearth_request_error(request) : hearth_error_text());
    hearth_request_close(request);
    job->status[rank] = status;
}

void job_run(struct job *job, struct fixture *c)
{
    job_prepare(job);
    fixture_run(c, member, job);
}

/* ---- results ---- */

const char *job_name(const struct job *job)
{
    static _Thread_local char name[TEXT_MAX];
    snprintf(name, sizeof name, "%s of %zu %s%s%s by %s on %d, root %d%s%s%s, seed %" PRIu64,
             kind_name(job->kind), job->count, hearth_dtype_name(job->dtype),
             kind_has_op(job->kind) ? " " : "", kind_has_op(job->kind) ? hearth_op_name(job->op) : "",
             hearth_algo_name(job->opts.algo), job->size, job->root, job->in_place ? ", in place" : "",
             job->nonblocking ? ", nb" : "", job->values == WHOLE ? ", whole numbers" : "", job->seed);
    return name;
}

/* What must not have been written: out of place the source, and the target of those who get nothing. */
static void check_untouched(const struct job *job, int rank)
{
    size_t element = hearth_dtype_size(job->dtype);
    bool apart = !job->in_place && job->kind != BROADCAST;
    size_t in = job_source_count(job, rank);
    if (apart && in > 0)
        check(memcmp(job->source[rank], job->input[rank], in * element) == 0,
              "%s: rank %d's source was written to", job_name(job), rank);
    if (job_target_count(job, rank) > 0 || !job->target[rank])
        return;
    const uint8_t *target = (const uint8_t *)job->memory[rank][1] + job->offset;
    size_t at = 0;
    while (at < job->count * element && target[at] == POISON)
        at++;
    check(at == job->count * element, "%s: rank %d has nothing to get, but byte %zu was written",
          job_name(job), rank, at);
}

void job_check(const struct job *job)
{
    size_t element = hearth_dtype_size(job->dtype);
    uint64_t first = 0;
    for (int r = 0; r < job->size; r++) {
        if (!check(job->status[r] == HEARTH_OK, "%s: rank %d: %s: %s", job_name(job), r,
                   hearth_status_name(job->status[r]), job->text[r]))
            continue;
        check_untouched(job, r);
        bool same = kind_is_same(job->kind);
        if ((!same || r == 0) && !reference_holds(job, r))
            return;
        if (!same)
            continue;
        uint64_t hash = hash_bytes(job->target[r], job_target_count(job, r) * element);
        first = r == 0 ? hash : first;
        check(hash == first, "%s: ranks 0 and %d do not have the same bits", job_name(job), r);
    }
}

void job_do(struct job *job, struct fixture *c)
{
    job_run(job, c);
    job_check(job);
    job_free(job);
    if (checks_failed()) /* with the name of the job still known */
        checks_end();
}
