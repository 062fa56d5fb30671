/* SPDX-License-Identifier: Apache-2.0 */
/* Bad arguments: refused with words that name them, nothing happens, the next good call works. */
#include <inttypes.h>
#include <math.h>

#include "conform/reference.h"

/* ---- one bad thing at a time, in every collective ---- */

/* What is wrong, and the words that must say so. */
enum wrong {
    NULL_GROUP,
    BAD_DTYPE,
    NEGATIVE_DTYPE,
    BAD_OP,
    FLOAT_BITS,
    BAD_ROOT,
    NEGATIVE_ROOT,
    NULL_SOURCE,
    NULL_TARGET,
    OVERLAP,
    OVERFLOW_COUNT,
    OVERFLOW_BYTES,
    NULL_COUNTS,
    OPTS_SIZE,
    OPTS_TIMEOUT,
    OPTS_TIMEOUT_LONG,
    OPTS_WEIGHT,
    OPTS_WEIGHT_NAN,
    OPTS_WEIGHT_INF,
    OPTS_FLAGS,
    OPTS_ALGO,
    OPTS_CODEC,
    WRONGS
};

static const char *const words[WRONGS] = {
    [NULL_GROUP] = "group",
    [BAD_DTYPE] = "dtype",
    [NEGATIVE_DTYPE] = "dtype",
    [BAD_OP] = "op: unknown operation 9",
    [FLOAT_BITS] = "bxor combines the bits of integers, and dtype is f32",
    [BAD_ROOT] = "root is 3",
    [NEGATIVE_ROOT] = "root is -1",
    [NULL_SOURCE] = "NULL",
    [NULL_TARGET] = "NULL",
    [OVERLAP] = "overlap",
    [OVERFLOW_COUNT] = "2^63",
    [OVERFLOW_BYTES] = "2^63",
    [NULL_COUNTS] = "counts",
    [OPTS_SIZE] = "opts.size",
    [OPTS_TIMEOUT] = "opts.timeout_ms",
    [OPTS_TIMEOUT_LONG] = "opts.timeout_ms",
    [OPTS_WEIGHT] = "opts.weight",
    [OPTS_WEIGHT_NAN] = "opts.weight",
    [OPTS_WEIGHT_INF] = "opts.weight",
    [OPTS_FLAGS] = "opts.flags",
    [OPTS_ALGO] = "opts.algo",
    [OPTS_CODEC] = "opts.codec",
};

static bool applies(enum kind kind, enum wrong wrong)
{
    if (kind == BARRIER)
        return wrong == NULL_GROUP || wrong >= OPTS_SIZE;
    switch (wrong) {
    case BAD_OP:
    case FLOAT_BITS:
        return kind_has_op(kind);
    case BAD_ROOT:
    case NEGATIVE_ROOT:
        return kind_has_root(kind);
    case NULL_TARGET:
    case OVERLAP:
        return kind != BROADCAST;
    case NULL_COUNTS:
    case OVERFLOW_COUNT:
        return kind_is_vector(kind) == (wrong == NULL_COUNTS);
    default:
        return true;
    }
}

/* Makes the call of this rank wrong. The root is rank 0, so that it has both buffers. */
static void spoil(struct job *job, enum wrong wrong)
{
    switch (wrong) {
    case BAD_DTYPE:
        job->dtype = (enum hearth_dtype)10;
        break;
    case NEGATIVE_DTYPE:
        job->dtype = (enum hearth_dtype) - 1;
        break;
    case BAD_OP:
        job->op = (enum hearth_op)9;
        break;
    case FLOAT_BITS:
        job->dtype = HEARTH_F32;
        job->op = HEARTH_OP_BXOR;
        break;
    case BAD_ROOT:
        job->root = job->size;
        break;
    case NEGATIVE_ROOT:
        job->root = -1;
        break;
    case NULL_SOURCE:
        job->source[0] = NULL;
        job->target[0] = job->kind == BROADCAST ? NULL : job->target[0];
        break;
    case NULL_TARGET:
        job->target[0] = NULL;
        break;
    case OVERLAP: /* by one element, the wrong way */
        job->target[0] = (char *)job->source[0] + hearth_dtype_size(job->dtype);
        break;
    case OVERFLOW_COUNT:
        job->count = SIZE_MAX / 2;
        break;
    case OVERFLOW_BYTES:
        for (int i = 0; i < job->size * job->size; i++)
            job->counts[i] = SIZE_MAX / 16;
        job->count = (SIZE_MAX / 2 + 1) / hearth_dtype_size(job->dtype);
        break;
    default:
        break;
    }
}

static void spoil_opts(struct hearth_opts *o, enum wrong wrong)
{
    switch (wrong) {
    case OPTS_SIZE:
        o->size -= 1;
        break;
    case OPTS_TIMEOUT:
        o->timeout_ms = -2;
        break;
    case OPTS_TIMEOUT_LONG:
        o->timeout_ms = INT64_MAX;
        break;
    case OPTS_FLAGS:
        o->flags = 1u << 17;
        break;
    case OPTS_ALGO:
        o->algo = (enum hearth_algo)8;
        break;
    case OPTS_CODEC:
        o->codec = "zip";
        break;
    default:
        break;
    }
}

static double spoilt_weight(enum wrong wrong)
{
    return wrong == OPTS_WEIGHT       ? -1.0
           : wrong == OPTS_WEIGHT_NAN ? (double)NAN
           : wrong == OPTS_WEIGHT_INF ? (double)INFINITY
                                      : 1.0;
}

/* The v-variants with NULL for each list of counts. */
static int null_counts(const struct job *job, hearth_group *g, hearth_request **q)
{
    const void *s = job->source[0];
    void *t = job->target[0];
    const size_t *list = job->counts;
    switch (job->kind) {
    case REDUCE_SCATTERV:
        return q ? hearth_reduce_scatterv_nb(g, s, t, NULL, job->dtype, job->op, NULL, q)
                 : hearth_reduce_scatterv(g, s, t, NULL, job->dtype, job->op, NULL);
    case ALL_GATHERV:
        return q ? hearth_all_gatherv_nb(g, s, t, NULL, job->dtype, NULL, q)
                 : hearth_all_gatherv(g, s, t, NULL, job->dtype, NULL);
    case GATHERV:
        return q ? hearth_gatherv_nb(g, s, job->count, t, NULL, job->dtype, 0, NULL, q)
                 : hearth_gatherv(g, s, job->count, t, NULL, job->dtype, 0, NULL);
    case SCATTERV:
        return q ? hearth_scatterv_nb(g, s, NULL, t, job->count, job->dtype, 0, NULL, q)
                 : hearth_scatterv(g, s, NULL, t, job->count, job->dtype, 0, NULL);
    default:
        return q ? hearth_all_to_allv_nb(g, s, NULL, t, list, job->dtype, NULL, q)
                 : hearth_all_to_allv(g, s, list, t, NULL, job->dtype, NULL);
    }
}

static void bad_call(hearth_group *group, enum kind kind, enum wrong wrong, bool nonblocking)
{
    struct job good, job;
    job_init(&good, kind, 3, kind == BARRIER ? 0 : 5);
    job_prepare(&good);
    job = good;
    spoil(&job, wrong);
    spoil_opts(&job.opts, wrong);
    job.weight[0] = spoilt_weight(wrong);
    hearth_request *const untouched = (hearth_request *)&job, *request = untouched;
    hearth_group *g = wrong == NULL_GROUP ? NULL : group;
    int status = wrong == NULL_COUNTS ? null_counts(&job, g, nonblocking ? &request : NULL)
                 : nonblocking        ? job_start(&job, g, 0, &request)
                                      : job_call(&job, g, 0);
    int wanted = wrong == OPTS_CODEC ? HEARTH_UNSUPPORTED : HEARTH_INVALID;
    if (check(status == wanted, "%s with wrong %d: %s: %s", kind_name(kind), wrong,
              hearth_status_name(status), hearth_error_text())) {
        check_text(hearth_error_text(), words[wrong]);
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(kind_name(kind), "v"), kind_name(kind));
        check_text(hearth_error_text(), name);
        check(hearth_status_scope(status) == HEARTH_SCOPE_ARGUMENT, "scope of %s",
              hearth_status_name(status));
    }
    check(request == untouched, "%s with wrong %d: the request was set", kind_name(kind), wrong);
    job_free(&good);
}

static void bad_member(struct fixture *c, int rank, void *arg)
{
    for (int i = 0; rank == 0 && i < KIND_COUNT * WRONGS * 2; i++) {
        enum kind kind = (enum kind)(i / 2 / WRONGS);
        enum wrong wrong = (enum wrong)(i / 2 % WRONGS);
        if (applies(kind, wrong))
            bad_call(c->world[0], kind, wrong, i % 2);
    }
}

TEST(test_bad_arguments_of_every_collective)
{
    fixture_often(1, 3, NULL, bad_member, NULL);
}

/* ---- what only some calls can have ---- */

TEST(test_other_bad_arguments)
{
    struct fixture c;
    fixture_open(&c, 2, NULL);
    hearth_group *g = c.world[0];
    float x[8] = {0}, y[8];
    hearth_request *request;
    check_error(hearth_scan(g, x, y, 1, HEARTH_F32, HEARTH_OP_AVG, NULL), HEARTH_UNSUPPORTED, "average");
    check_error(hearth_exclusive_scan(g, x, y, 1, HEARTH_F32, HEARTH_OP_AVG, NULL), HEARTH_UNSUPPORTED,
                "exclusive_scan");
    /* in place means one's own part, not another's */
    check_error(hearth_all_gather(g, x + 1, x, 1, HEARTH_F32, NULL), HEARTH_INVALID, "overlap");
    check_error(hearth_reduce_scatter(g, x, x + 2, 2, HEARTH_F32, HEARTH_OP_SUM, NULL), HEARTH_INVALID,
                "overlap");
    check_status(hearth_gather(g, x + 1, x, 1, HEARTH_F32, 0, NULL), HEARTH_INVALID);
    check_status(hearth_scatter(g, x, x + 1, 1, HEARTH_F32, 0, NULL), HEARTH_INVALID);
    /* the last element of one is the first of the other */
    check_status(hearth_all_reduce(g, x, x + 3, 4, HEARTH_F32, HEARTH_OP_SUM, NULL), HEARTH_INVALID);
    check_status(hearth_all_reduce(g, x + 3, x, 4, HEARTH_F32, HEARTH_OP_SUM, NULL), HEARTH_INVALID);
    /* lists that contradict */
    const size_t ones[2] = {1, 1}, twos[2] = {2, 2}, mixed[2] = {1, 2};
    check_error(hearth_gatherv(g, x, 2, y, ones, HEARTH_F32, 0, NULL), HEARTH_INVALID, "counts[0]");
    check_error(hearth_scatterv(g, x, twos, y, 1, HEARTH_F32, 0, NULL), HEARTH_INVALID, "counts[0]");
    check_error(hearth_all_to_allv(g, x, mixed, y, twos, HEARTH_F32, NULL), HEARTH_INVALID, "itself");
    check_error(hearth_all_to_allv(g, x, ones, x, mixed, HEARTH_F32, NULL), HEARTH_INVALID, "in place");
    /* the request */
    check_error(hearth_all_reduce_nb(g, x, y, 1, HEARTH_F32, HEARTH_OP_SUM, NULL, NULL), HEARTH_INVALID,
                "request");
    check_status(hearth_barrier_nb(g, NULL, NULL), HEARTH_INVALID);
    check_error(hearth_request_test(NULL), HEARTH_INVALID, "test");
    check_error(hearth_request_wait(NULL, 0), HEARTH_INVALID, "wait");
    check_error(hearth_request_cancel(NULL), HEARTH_INVALID, "cancel");
    check_error(hearth_request_fd(NULL), HEARTH_INVALID, "request_fd");
    check(hearth_error_rank() == -1 && hearth_request_error_rank(NULL) == -1, "an argument is about a rank");
    check(hearth_error_reason() == HEARTH_REASON_NONE &&
              hearth_request_error_reason(NULL) == HEARTH_REASON_NONE,
          "an argument has a reason");
    check(strcmp(hearth_request_error(NULL), "") == 0, "an error of no request");
    hearth_request_close(NULL);
    size_t index;
    check_error(hearth_request_wait_all(NULL, 2, 0), HEARTH_INVALID, "wait_all");
    check_error(hearth_request_wait_any(NULL, 2, 0, &index), HEARTH_INVALID, "requests is NULL");
    hearth_request *const none[2] = {NULL, NULL};
    check_error(hearth_request_wait_any(none, 2, 0, &index), HEARTH_INVALID, "all 2 requests are NULL");
    check_ok(hearth_barrier_nb(g, NULL, &request));
    check_error(hearth_request_wait(request, -2), HEARTH_INVALID, "timeout_ms is -2");
    check_status(hearth_request_wait_all(&request, 1, -2), HEARTH_INVALID);
    check_status(hearth_request_wait_any(&request, 1, -2, &index), HEARTH_INVALID);
    check_status(hearth_request_wait(request, 0), HEARTH_PENDING);
    check_error(hearth_request_wait_any(&request, 1, 0, NULL), HEARTH_INVALID, "index is NULL");
    check_ok(hearth_barrier(c.world[1], NULL));
    hearth_request_close(request);
    fixture_works(&c);
    fixture_close(&c);
}

TEST(test_bad_arguments_of_groups_and_nodes)
{
    struct fixture c;
    hearth_group *out = NULL;
    char text[8];
    fixture_open(&c, 2, NULL);
    check_error(hearth_group_split(NULL, 0, 0, NULL, &out), HEARTH_INVALID, ": group is NULL");
    check_error(hearth_group_split(c.world[0], 0, 0, NULL, NULL), HEARTH_INVALID, ": out is NULL");
    struct hearth_opts opts = opts_default();
    opts.size = 3;
    check_error(hearth_group_split(c.world[0], 0, 0, &opts, &out), HEARTH_INVALID, "opts.size");
    check(!out, "the group was set");
    check_error(hearth_group_same(NULL, text, 1, NULL, NULL), HEARTH_INVALID, "same: group is NULL");
    check_error(hearth_group_same(c.world[0], NULL, 1, NULL, NULL), HEARTH_INVALID, "same: buffer is NULL");
    check_error(hearth_group_rank(NULL), HEARTH_INVALID, "group_rank: group is NULL");
    check_error(hearth_group_size(NULL), HEARTH_INVALID, "group_size: group is NULL");
    struct hearth_member member = {.size = sizeof member};
    check_error(hearth_group_member(NULL, 0, &member), HEARTH_INVALID, "group is NULL");
    check_error(hearth_group_member(c.world[0], 2, &member), HEARTH_INVALID,
                "rank is 2; it must be from 0 to 1");
    check_error(hearth_group_member(c.world[0], 0, NULL), HEARTH_INVALID, "member is NULL");
    member.size = 3;
    check_error(hearth_group_member(c.world[0], 0, &member), HEARTH_INVALID, "member->size is 3");
    check(!hearth_node_world(NULL), "the world of nothing");
    check_status((int)hearth_node_metrics_text(NULL, text, 8), HEARTH_INVALID);
    check_status((int)hearth_node_metrics_text(c.nodes[0], NULL, 8), HEARTH_INVALID);
    hearth_node_close(NULL);
    hearth_group_close(NULL);
    fixture_works(&c);

    int64_t whole = hearth_node_metrics_text(c.nodes[0], NULL, 0); /* as snprintf does */
    check(whole > 100, "metrics text of %" PRId64, whole);
    memset(text, 'x', sizeof text);
    check(hearth_node_metrics_text(c.nodes[0], text, 5) >= whole, "the length of the whole text");
    check(strlen(text) == 4 && text[5] == 'x', "\"%.8s\" was cut wrongly", text);
    fixture_close(&c);
}

/* ---- what is allowed ---- */

/* Nothing to give, nothing to get: NULL and counts of 0; and what is not read is not looked at. */
static void allowed_member(struct fixture *c, int rank, void *arg)
{
    hearth_group *g = c->world[rank];
    bool root = rank == 1;
    float x[4] = {1, 2, 3, 4}, y[8];
    const size_t nothing[2] = {0, 0};
    const size_t *wild = root ? nothing : (const size_t *)(uintptr_t)8; /* read at the root only */
    check_ok(hearth_all_reduce(g, NULL, NULL, 0, HEARTH_F32, HEARTH_OP_SUM, NULL));
    check_ok(hearth_broadcast(g, NULL, 0, HEARTH_F32, 1, NULL));
    check_ok(hearth_all_gatherv(g, NULL, NULL, nothing, HEARTH_F32, NULL));
    check_ok(hearth_all_to_allv(g, NULL, nothing, NULL, nothing, HEARTH_F32, NULL));
    check_ok(hearth_gatherv(g, NULL, 0, NULL, wild, HEARTH_F32, 1, NULL));
    check_ok(hearth_scatterv(g, NULL, wild, NULL, 0, HEARTH_F32, 1, NULL));
    check_ok(hearth_reduce(g, x, root ? y : NULL, 4, HEARTH_F32, HEARTH_OP_SUM, 1, NULL));
    check_ok(hearth_gather(g, x, root ? y : NULL, 4, HEARTH_F32, 1, NULL));
    check_ok(hearth_scatter(g, root ? y : NULL, x, 4, HEARTH_F32, 1, NULL));
    /* neighbours are not overlaps */
    check_ok(hearth_all_reduce(g, y, y + 4, 4, HEARTH_F32, HEARTH_OP_MIN, NULL));
    check_ok(hearth_all_reduce(g, y + 4, y, 4, HEARTH_F32, HEARTH_OP_MIN, NULL));
    /* weight matters for averages only, but is checked always; 0 and large ones are fine */
    struct hearth_opts opts = opts_default();
    opts.weight = rank == 0 ? 0 : 1e30;
    opts.codec = "none";
    opts.timeout_ms = INT64_C(365) * 24 * 3600 * 1000;
    check_ok(hearth_barrier(g, &opts));
}

TEST(test_what_is_allowed)
{
    fixture_once(2, NULL, allowed_member, NULL);
}

/* ---- opening ---- */

static void refused(const struct hearth_config *config, int count, const char *word)
{
    hearth_node *nodes[HEARTH_LOCAL_MAX], *before = (hearth_node *)&config;
    nodes[0] = before;
    check_error(hearth_node_open_local(config, count, nodes), HEARTH_INVALID, word);
    check(nodes[0] == before, "nodes were set");
}

/* With one field of a config or of its tuning wrong, and the words that say so. */
#define REFUSED_WITH(part, field, value, words)                                                              \
    do {                                                                                                     \
        struct hearth_config config;                                                                         \
        struct hearth_tuning tuning;                                                                         \
        config_tuned(&config, &tuning);                                                                      \
        part.field = value;                                                                                  \
        refused(&config, 1, words);                                                                          \
    } while (0)
#define REFUSED(part, field, value) REFUSED_WITH(part, field, value, #field)

TEST(test_open_local)
{
    refused(NULL, 0, "count is 0");
    refused(NULL, -1, "count is -1");
    refused(NULL, HEARTH_LOCAL_MAX + 1, "count is 65");
    check_error(hearth_node_open_local(NULL, 1, NULL), HEARTH_INVALID, "open_local: nodes is NULL");
    REFUSED(config, size, 8);
    REFUSED(config, op_timeout_ms, 0);
    REFUSED_WITH(config, op_timeout_ms, -5, "op_timeout_ms is -5; it must be from 1");
    REFUSED_WITH(config, plain, 7, "plain is 7; it must be from 0 to 1");
    REFUSED_WITH(config, trust_network, -1, "trust_network is -1");
    REFUSED(config, log_level, (enum hearth_log_level)0);
    REFUSED(config, log_level, (enum hearth_log_level)5);
    REFUSED(tuning, size, 3);
    REFUSED(tuning, chunk_bytes, 16383);
    REFUSED(tuning, chunk_bytes, SIZE_MAX);
    REFUSED(tuning, window_bytes, 0);
    REFUSED(tuning, window_bytes, SIZE_MAX);
    REFUSED(tuning, eager_bytes, 1);
    REFUSED(tuning, eager_bytes, SIZE_MAX);
    REFUSED(tuning, ops_max, 0);
    REFUSED_WITH(tuning, ops_max, UINT32_MAX, "ops_max is 4294967295");
    REFUSED(tuning, spin_us, UINT32_MAX);
    REFUSED(tuning, algo, (enum hearth_algo)8);
    REFUSED(tuning, algo, (enum hearth_algo) - 1);
    checks_end();

    struct hearth_config config;
    hearth_node *nodes[HEARTH_LOCAL_MAX];
    hearth_config_init(&config);
    assert_ok(hearth_node_open_local(&config, HEARTH_LOCAL_MAX, nodes));
    for (int i = 0; i < HEARTH_LOCAL_MAX; i++)
        hearth_node_close(nodes[i]);
    config.memory_max = 1000; /* no node fits in there */
    check_error(hearth_node_open_local(&config, 2, nodes), HEARTH_NO_MEMORY, "memory");
    checks_end();
}

TEST(test_config_of_the_line)
{
    REFUSED(config, rate, 63999);
    REFUSED(config, rate, UINT64_C(1000000000001));
    REFUSED(config, codec, "zip");
    REFUSED(config, compress_threads, 0);
    REFUSED(config, compress_threads, 65);
    REFUSED(tuning, compressed_allreduce_max_bytes, SIZE_MAX);
    REFUSED(tuning, datagram_bytes, 1199);
    checks_end();
}

/* ---- names ---- */

TEST(test_names)
{
    enum hearth_dtype dtype;
    enum hearth_op op;
    enum hearth_algo algo;
    for (int i = 0; i < DTYPES; i++) {
        check_ok(hearth_dtype_parse(hearth_dtype_name((enum hearth_dtype)i), &dtype));
        check((int)dtype == i, "dtype %d is read as %d", i, (int)dtype);
    }
    for (int i = 0; i < OPS; i++) {
        check_ok(hearth_op_parse(hearth_op_name((enum hearth_op)i), &op));
        check((int)op == i, "op %d is read as %d", i, (int)op);
    }
    for (int i = 0; i < ALGOS; i++) {
        check_ok(hearth_algo_parse(hearth_algo_name((enum hearth_algo)i), &algo));
        check((int)algo == i, "algo %d is read as %d", i, (int)algo);
    }
    const char *const bad[] = {"", "f", "F32", "f32 ", "sums", "?", "rin"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        check_error(hearth_dtype_parse(bad[i], &dtype), HEARTH_INVALID, "dtype_parse: unknown name");
        check_error(hearth_op_parse(bad[i], &op), HEARTH_INVALID, "op_parse: unknown name");
        check_error(hearth_algo_parse(bad[i], &algo), HEARTH_INVALID, "algo_parse: unknown name");
    }
    check_status(hearth_dtype_parse(NULL, &dtype), HEARTH_INVALID);
    check(strcmp(hearth_dtype_name((enum hearth_dtype)10), "?") == 0, "name of dtype 10");
    check(strcmp(hearth_op_name((enum hearth_op) - 1), "?") == 0, "name of op -1");
    check(strcmp(hearth_algo_name((enum hearth_algo)8), "?") == 0, "name of algo 8");
    check(hearth_dtype_size((enum hearth_dtype)10) == 0, "size of dtype 10");
    check(hearth_version() == (HEARTH_VERSION_MAJOR << 16 | HEARTH_VERSION_MINOR << 8 | HEARTH_VERSION_PATCH),
          "version 0x%x", hearth_version());
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", HEARTH_VERSION_MAJOR, HEARTH_VERSION_MINOR,
             HEARTH_VERSION_PATCH);
    check(strcmp(hearth_version_string(), version) == 0, "version %s", hearth_version_string());
    checks_end();
}
