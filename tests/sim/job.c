/* SPDX-License-Identifier: Apache-2.0 */
/* One collective as all members call it: drawn from a seed, posted, watched. */
#include "job.h"

#include "core/hash.h"
#include "numbers.h"
#include "support/suite.h"

/* ---- drawing ---- */

static bool has_op(enum plan_kind kind)
{
    return kind == PLAN_ALL_REDUCE || kind == PLAN_REDUCE_SCATTER || kind == PLAN_REDUCE ||
           kind == PLAN_SCAN || kind == PLAN_EXCLUSIVE_SCAN;
}

static size_t sum(const size_t *counts, int size)
{
    size_t all = 0;
    for (int i = 0; i < size; i++)
        all += counts[i];
    return all;
}

/* How many elements go from i to k. */
static size_t part(const struct job *job, int i, int k)
{
    return job->vector ? job->member[i].given[k] : job->count;
}

static void counts_fill(struct job *job)
{
    for (int r = 0; r < job->size; r++) {
        struct job_member *m = &job->member[r];
        size_t own = job->vector ? job->counts[r] : job->count;
        size_t all = job->vector ? sum(job->counts, job->size) : job->count * (size_t)job->size;
        bool root = r == job->root;
        m->in_count = m->out_count = own;
        switch (job->kind) {
        case PLAN_REDUCE_SCATTER:
            m->in_count = all;
            break;
        case PLAN_ALL_GATHER:
            m->out_count = all;
            break;
        case PLAN_GATHER:
            m->out_count = root ? all : 0;
            break;
        case PLAN_SCATTER:
            m->in_count = root ? all : 0;
            break;
        case PLAN_REDUCE:
            m->out_count = root ? own : 0;
            break;
        case PLAN_ALL_TO_ALL:
            m->in_count = m->out_count = 0;
            for (int k = 0; k < job->size; k++) {
                m->taken[k] = job->member[k].given[r];
                m->in_count += part(job, r, k);
                m->out_count += part(job, k, r);
            }
            break;
        case PLAN_BARRIER:
            m->in_count = m->out_count = 0;
            break;
        default:
            break;
        }
    }
}

/* Where the member's own part stands in the buffer that holds all. */
static size_t own_offset(const struct job *job, int rank)
{
    return job->vector ? sum(job->counts, rank) : job->count * (size_t)rank;
}

/* In place one buffer holds both; else the target stands behind the source, with a gap that nobody owns. */
static void buffers_make(struct job *job, int rank)
{
    struct job_member *m = &job->member[rank];
    size_t len = hearth_dtype_size(job->dtype), in = m->in_count * len, out = m->out_count * len;
    bool one = job->kind == PLAN_BROADCAST || (job->in_place && in > 0 && out > 0);
    m->input = calloc(in + 1, 1);
    m->buffer = calloc(one ? (in > out ? in : out) + 1 : in + out + 1, 1);
    assert_non_null(m->input);
    assert_non_null(m->buffer);
    uint8_t *base = m->buffer;
    m->source = base;
    m->target = one ? base : base + in;
    if (one && (job->kind == PLAN_REDUCE_SCATTER || job->kind == PLAN_SCATTER))
        m->target = base + own_offset(job, rank) * len;
    if (one && (job->kind == PLAN_ALL_GATHER || job->kind == PLAN_GATHER))
        m->source = base + own_offset(job, rank) * len;
    if (in == 0)
        m->source = NULL;
    if (out == 0)
        m->target = NULL;
}

static void fill(struct job *job, struct prng *prng)
{
    for (int r = 0; r < job->size; r++) {
        struct job_member *m = &job->member[r];
        m->status = HEARTH_PENDING;
        buffers_make(job, r);
        numbers_fill(m->input, m->in_count, job->dtype, has_op(job->kind) ? job->op : HEARTH_OP_SUM,
                     job->exact ? NUMBERS_WHOLE : NUMBERS_ANY, prng);
        if (m->source)
            memcpy(m->source, m->input, m->in_count * hearth_dtype_size(job->dtype));
    }
}

static void draw_counts(struct job *job, struct prng *prng, size_t count_max)
{
    size_t share = count_max / (size_t)job->size + 1;
    bool whole = job->kind == PLAN_ALL_REDUCE || job->kind == PLAN_BROADCAST || job->kind == PLAN_REDUCE ||
                 job->kind == PLAN_SCAN || job->kind == PLAN_EXCLUSIVE_SCAN;
    job->count = prng_below(prng, whole ? count_max : share);
    if (prng_below(prng, 4) == 0)
        job->count = prng_below(prng, (uint64_t)job->size + 2);
    if (job->kind == PLAN_BARRIER)
        job->count = 0;
    job->vector = !whole && job->kind != PLAN_BARRIER && prng_below(prng, 2);
    for (int i = 0; i < job->size; i++) {
        job->counts[i] = prng_below(prng, 4) == 0 ? 0 : prng_below(prng, share);
        for (int k = 0; k < job->size; k++)
            job->member[i].given[k] = prng_below(prng, 4) == 0 ? 0 : prng_below(prng, share);
    }
}

void job_draw(struct job *job, struct prng *prng, int size, size_t count_max)
{
    static const double weights[] = {1, 1, 2, 0.5, 0.25, 0};
    memset(job, 0, sizeof *job);
    job->size = size;
    job->kind = (enum plan_kind)prng_below(prng, PLAN_KIND_COUNT);
    job->root = (int)prng_below(prng, (uint64_t)size);
    job->dtype = (enum hearth_dtype)prng_below(prng, DTYPE_COUNT);
    job->op = (enum hearth_op)prng_below(prng, HEARTH_OP_MAX + 1);
    bool scan = job->kind == PLAN_SCAN || job->kind == PLAN_EXCLUSIVE_SCAN;
    if (scan && job->op == HEARTH_OP_AVG)
        job->op = HEARTH_OP_SUM;
    job->exact = prng_below(prng, 2);
    draw_counts(job, prng, count_max);
    job->in_place = prng_below(prng, 2) && !(job->vector && job->kind == PLAN_ALL_TO_ALL);
    hearth_opts_init(&job->opts);
    job->opts.algo = prng_below(prng, 2) ? HEARTH_ALGO_AUTO : (enum hearth_algo)prng_below(prng, ALGO_COUNT);
    job->opts.flags = prng_below(prng, 4) == 0 ? HEARTH_FLAG_RANK_ORDER : 0;
    if (prng_below(prng, 4) == 0)
        job->opts.flags |= HEARTH_FLAG_RESTORE;
    for (int i = 0; i < size; i++)
        job->member[i].weight = i == 0 ? 1 : weights[prng_below(prng, 6)];
    counts_fill(job);
    fill(job, prng);
}

void job_vary(struct job *job, const struct job *like, struct prng *prng)
{
    *job = *like;
    for (int i = 0; i < job->size; i++)
        job->member[i].request = NULL;
    switch (prng_below(prng, 6)) {
    case 0:
        job->kind = (enum plan_kind)prng_below(prng, PLAN_BARRIER);
        job->vector = job->vector && job->kind == like->kind;
        break;
    case 1:
        job->dtype = (enum hearth_dtype)((job->dtype + 1) % DTYPE_COUNT);
        break;
    case 2:
        job->op = job->op == HEARTH_OP_MAX ? HEARTH_OP_SUM : HEARTH_OP_MAX;
        break;
    case 3:
        job->root = (job->root + 1) % job->size;
        break;
    case 4:
        job->opts.flags ^= HEARTH_FLAG_RANK_ORDER;
        break;
    default:
        job->count += job->kind != PLAN_BARRIER;
        job->counts[0]++;
        job->member[job->size - 1].given[0]++;
    }
    bool scan = job->kind == PLAN_SCAN || job->kind == PLAN_EXCLUSIVE_SCAN;
    if (scan && job->op == HEARTH_OP_AVG)
        job->op = HEARTH_OP_SUM;
    counts_fill(job);
    fill(job, prng);
}

void job_plain(struct job *job, int size, size_t count)
{
    struct prng prng;
    prng_init(&prng, count);
    memset(job, 0, sizeof *job);
    job->size = size;
    job->count = count;
    job->exact = job->in_place = true;
    hearth_opts_init(&job->opts);
    for (int i = 0; i < size; i++)
        job->member[i].weight = 1;
    counts_fill(job);
    fill(job, &prng);
}

void job_free(struct job *job)
{
    for (int i = 0; i < job->size; i++) {
        hearth_request_close(job->member[i].request);
        free(job->member[i].input);
        free(job->member[i].buffer);
    }
}

/* ---- posting ---- */

static int post_vector(struct job *job, hearth_group *g, int rank, hearth_request **request)
{
    struct job_member *m = &job->member[rank];
    const size_t *counts = job->counts, own = job->counts[rank];
    const struct hearth_opts *o = &job->opts;
    bool root = rank == job->root;
    switch (job->kind) {
    case PLAN_REDUCE_SCATTER:
        return hearth_reduce_scatterv_nb(g, m->source, m->target, counts, job->dtype, job->op, o, request);
    case PLAN_ALL_GATHER:
        return hearth_all_gatherv_nb(g, m->source, m->target, counts, job->dtype, o, request);
    case PLAN_GATHER:
        return hearth_gatherv_nb(g, m->source, own, m->target, root ? counts : NULL, job->dtype, job->root, o,
                                 request);
    case PLAN_SCATTER:
        return hearth_scatterv_nb(g, m->source, root ? counts : NULL, m->target, own, job->dtype, job->root,
                                  o, request);
    default:
        return hearth_all_to_allv_nb(g, m->source, m->given, m->target, m->taken, job->dtype, o, request);
    }
}

static int post_plain(struct job *job, hearth_group *g, int rank, hearth_request **request)
{
    struct job_member *m = &job->member[rank];
    const struct hearth_opts *o = &job->opts;
    void *in = m->source, *out = m->target;
    enum hearth_dtype type = job->dtype;
    switch (job->kind) {
    case PLAN_ALL_REDUCE:
        return hearth_all_reduce_nb(g, in, out, job->count, type, job->op, o, request);
    case PLAN_REDUCE_SCATTER:
        return hearth_reduce_scatter_nb(g, in, out, job->count, type, job->op, o, request);
    case PLAN_ALL_GATHER:
        return hearth_all_gather_nb(g, in, out, job->count, type, o, request);
    case PLAN_BROADCAST:
        return hearth_broadcast_nb(g, in, job->count, type, job->root, o, request);
    case PLAN_REDUCE:
        return hearth_reduce_nb(g, in, out, job->count, type, job->op, job->root, o, request);
    case PLAN_GATHER:
        return hearth_gather_nb(g, in, out, job->count, type, job->root, o, request);
    case PLAN_SCATTER:
        return hearth_scatter_nb(g, in, out, job->count, type, job->root, o, request);
    case PLAN_ALL_TO_ALL:
        return hearth_all_to_all_nb(g, in, out, job->count, type, o, request);
    case PLAN_SCAN:
        return hearth_scan_nb(g, in, out, job->count, type, job->op, o, request);
    case PLAN_EXCLUSIVE_SCAN:
        return hearth_exclusive_scan_nb(g, in, out, job->count, type, job->op, o, request);
    default:
        return hearth_barrier_nb(g, o, request);
    }
}

int job_post(struct job *job, hearth_group *group, int rank)
{
    struct job_member *m = &job->member[rank];
    job->opts.weight = m->weight;
    int status =
        job->vector ? post_vector(job, group, rank, &m->request) : post_plain(job, group, rank, &m->request);
    m->status = status == HEARTH_OK ? HEARTH_PENDING : status;
    if (status != HEARTH_OK)
        m->error = *error_last();
    return status;
}

void job_post_all(struct job *job, struct sim *sim, int except)
{
    for (int r = 0; r < job->size; r++)
        if (r != except)
            assert_ok(job_post(job, sim_world(sim, r), r));
}

bool job_collect(struct job *job, uint64_t now_ns)
{
    bool all = true;
    for (int i = 0; i < job->size; i++) {
        struct job_member *m = &job->member[i];
        if (!m->request || m->status != HEARTH_PENDING)
            continue;
        m->status = sim_status(m->request);
        if (m->status == HEARTH_PENDING) {
            all = false;
            continue;
        }
        m->error = m->request->completion.error;
        m->ended_ns = now_ns;
    }
    return all;
}

/* ---- what came out ---- */

const char *job_name(const struct job *job)
{
    static char text[256];
    snprintf(text, sizeof text, "%s%s of %zu %s %s, root %d, algo %s, flags %u, tag %llu%s%s, %d members",
             plan_kind_name(job->kind), job->vector ? "v" : "", job->count, hearth_dtype_name(job->dtype),
             hearth_op_name(job->op), job->root, hearth_algo_name(job->opts.algo), job->opts.flags,
             (unsigned long long)job->opts.tag, job->in_place ? ", in place" : "",
             job->exact ? ", exact" : "", job->size);
    return text;
}

/* The elements that member `rank` must have, from everyone's input. */
static void expect_moved(const struct job *job, int rank, uint8_t *target)
{
    size_t len = hearth_dtype_size(job->dtype), at = 0;
    for (int i = 0; i < job->size; i++) {
        const uint8_t *input = job->member[i].input;
        size_t count = job->vector ? job->counts[i] : job->count, skip = 0;
        if (job->kind == PLAN_BROADCAST || job->kind == PLAN_SCATTER) {
            if (i != job->root)
                continue;
            count = job->member[rank].out_count;
            skip = job->kind == PLAN_SCATTER ? own_offset(job, rank) : 0;
        } else if (job->kind == PLAN_ALL_TO_ALL) {
            count = part(job, i, rank);
            for (int k = 0; k < rank; k++)
                skip += part(job, i, k);
        }
        memcpy(target + at * len, input + skip * len, count * len);
        at += count;
    }
    assert_int_equal(at, job->member[rank].out_count);
}

static void check_reduced(const struct job *job, int rank)
{
    const struct job_member *m = &job->member[rank];
    struct numbers_sum sum = {.op = job->op, .dtype = job->dtype, .exact = job->exact};
    size_t skip = job->kind == PLAN_REDUCE_SCATTER ? own_offset(job, rank) : 0;
    int last = job->size;
    if (job->kind == PLAN_SCAN)
        last = rank + 1;
    if (job->kind == PLAN_EXCLUSIVE_SCAN)
        last = rank;
    sum.in_order = job->opts.flags & HEARTH_FLAG_RANK_ORDER;
    for (size_t e = 0; e < m->out_count; e++) {
        sum.count = 0;
        for (int i = 0; i < last; i++)
            numbers_add(&sum, job->member[i].input, skip + e, job->member[i].weight);
        if (!numbers_agree(&sum, m->target, e))
            fail_msg("%s: rank %d has %.17g at %zu, must be %.17g", job_name(job), rank,
                     numbers_get(m->target, job->dtype, e), e, numbers_value(&sum));
    }
}

static void check_failed(const struct job *job, int rank)
{
    const struct job_member *m = &job->member[rank];
    size_t len = m->in_count * hearth_dtype_size(job->dtype);
    bool one = m->source && m->target && (job->kind == PLAN_BROADCAST || (job->in_place && m->out_count > 0));
    if (!m->source || (one && (!(job->opts.flags & HEARTH_FLAG_RESTORE) || job->kind == PLAN_BROADCAST)))
        return;
    if (memcmp(m->source, m->input, len) != 0)
        fail_msg("%s: rank %d: the source is not what it was after %s", job_name(job), rank,
                 hearth_status_name(m->status));
}

void job_check(const struct job *job, int rank)
{
    const struct job_member *m = &job->member[rank];
    if (m->status == HEARTH_PENDING) /* not called, or its node was closed */
        return;
    if (m->status != HEARTH_OK) {
        check_failed(job, rank);
        return;
    }
    if (!m->target)
        return;
    if (has_op(job->kind)) {
        check_reduced(job, rank);
        return;
    }
    size_t len = m->out_count * hearth_dtype_size(job->dtype);
    uint8_t *expected = calloc(len + 1, 1);
    assert_non_null(expected);
    expect_moved(job, rank, expected);
    if (memcmp(expected, m->target, len) != 0)
        fail_msg("%s: rank %d has other bytes than it must", job_name(job), rank);
    free(expected);
}

void job_check_all(const struct job *job)
{
    int first = -1;
    for (int i = 0; i < job->size; i++) {
        job_check(job, i);
        if (job->kind != PLAN_ALL_REDUCE || job->member[i].status != HEARTH_OK)
            continue;
        first = first < 0 ? i : first;
        size_t len = job->count * hearth_dtype_size(job->dtype);
        if (len > 0 && memcmp(job->member[first].target, job->member[i].target, len) != 0)
            fail_msg("%s: ranks %d and %d have different bits", job_name(job), first, i);
    }
}

uint64_t job_hash(const struct job *job, uint64_t hash)
{
    for (int i = 0; i < job->size; i++) {
        const struct job_member *m = &job->member[i];
        hash = hash_mix(hash, (uint64_t)m->status);
        hash = hash_mix(hash, m->ended_ns);
        if (m->target)
            hash = hash64(hash, m->target, m->out_count * hearth_dtype_size(job->dtype));
        hash = hash64(hash, m->error.text, strlen(m->error.text));
    }
    return hash;
}
