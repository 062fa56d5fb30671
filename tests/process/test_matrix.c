/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective between real processes: types, awkward sizes, ordinary and shared buffers, 2 to 8 members,
 * each result compared with the reference and equal on all ranks. Started as `test_matrix member` it is one
 * member, as its environment says; as `test_matrix forever` it adds until that fails: see test_mix.py. */
#include "conform/reference.h"
#include "process/team.h"
#include "support/watchdog.h"

#define CHUNKS_COUNT 300001            /* of f32: several chunks of the usual size, and a piece */
#define LARGE_COUNT  ((size_t)4 << 20) /* long enough for the way through hosts to pay */
#define OPEN_JOIN_S  90

/* ---- buffers that all members of a host see ---- */

static size_t buffer_len(const struct job *job, int rank, int which)
{
    size_t in = job_source_count(job, rank), out = job_target_count(job, rank);
    size_t count = which == 0 ? in : out > 0 ? out : job->count;
    return count * hearth_dtype_size(job->dtype) + job->offset;
}

static void *moved(void *pointer, char *from, char *to, size_t len)
{
    char *p = pointer;
    return p && p >= from && p <= from + len ? to + (p - from) : pointer;
}

/* Puts the buffers of a member into memory of hearth_mem_alloc (or back: `shared` are then the old ones). */
static bool buffers_move(struct job *job, int rank, void *shared[2])
{
    void *source = job->source[rank], *target = job->target[rank];
    for (int i = 0; i < 2; i++) {
        size_t len = buffer_len(job, rank, i);
        char *from = job->memory[rank][i], *to = shared[i];
        if (!to)
            return false;
        memcpy(to, from, len);
        /* Both may stand in either: in place. */
        if (source == job->source[rank])
            source = moved(source, from, to, len);
        if (target == job->target[rank])
            target = moved(target, from, to, len);
        shared[i] = from;
        job->memory[rank][i] = to;
    }
    job->source[rank] = source;
    job->target[rank] = target;
    return true;
}

/* ---- one job ---- */

static int job_here(const struct job *job, hearth_group *world, int rank)
{
    hearth_request *request = NULL;
    if (!job->nonblocking)
        return job_call(job, world, rank);
    int status = job_start(job, world, rank, &request);
    if (status == HEARTH_OK)
        status = hearth_request_wait(request, -1);
    hearth_request_close(request);
    return status;
}

static void results_check(const struct job *job, hearth_group *world, int rank)
{
    size_t element = hearth_dtype_size(job->dtype), in = job_source_count(job, rank);
    int who = -1;
    if (!job->in_place && job->kind != BROADCAST && in > 0 && job->source[rank])
        check(memcmp(job->source[rank], job->input[rank], in * element) == 0,
              "%s: rank %d's source was written to", job_name(job), rank);
    reference_holds(job, rank);
    if (kind_is_same(job->kind))
        check(hearth_group_same(world, job->target[rank], job_target_count(job, rank) * element, NULL,
                                &who) == HEARTH_OK,
              "%s: rank %d hears that rank %d has other bits: %s", job_name(job), rank, who,
              hearth_error_text());
}

/* False: go no further, the members would only disagree. */
static bool job_member(struct job *job, hearth_node *node, bool shared)
{
    hearth_group *world = hearth_node_world(node);
    int rank = hearth_group_rank(world);
    void *swap[2] = {NULL, NULL};
    job_prepare(job);
    if (shared) {
        for (int i = 0; i < 2; i++)
            swap[i] = hearth_mem_alloc(node, buffer_len(job, rank, i) + 1);
        if (!check(buffers_move(job, rank, swap), "hearth_mem_alloc: %s", hearth_error_text()))
            return false;
    }
    int status = job_here(job, world, rank);
    bool good = check(status == HEARTH_OK, "%s: rank %d: %s: %s", job_name(job), rank,
                      hearth_status_name(status), hearth_error_text());
    if (good)
        results_check(job, world, rank);
    if (shared) {
        buffers_move(job, rank, swap);
        hearth_mem_free(node, swap[0]);
        hearth_mem_free(node, swap[1]);
    }
    job_free(job);
    return good && !checks_failed();
}

/* ---- the matrix ---- */

static bool many_parts(enum kind kind)
{
    return kind == REDUCE_SCATTER || kind == REDUCE_SCATTERV || kind == ALL_GATHER || kind == ALL_GATHERV ||
           kind == GATHER || kind == GATHERV || kind == SCATTER || kind == SCATTERV || kind == ALL_TO_ALL ||
           kind == ALL_TO_ALLV;
}

/* Draws what the matrix does not fix; all members draw the same. */
static bool run_drawn(hearth_node *node, enum kind kind, enum hearth_dtype dtype, size_t count,
                      uint64_t *seed)
{
    struct job job;
    int size = hearth_group_size(hearth_node_world(node));
    /* A large count is of the whole buffer. */
    job_init(&job, kind, size, many_parts(kind) && count > 1000 ? count / (size_t)size : count);
    job.seed = draw_below(seed, 1u << 30);
    job.dtype = dtype;
    job.op = (enum hearth_op)draw_below(seed, OPS);
    if ((job.op == HEARTH_OP_AVG && (kind == SCAN || kind == EXCLUSIVE_SCAN)) || !op_exists(job.op, dtype))
        job.op = HEARTH_OP_SUM;
    job.root = (int)draw_below(seed, (uint64_t)size);
    job.in_place = draw(seed) & 1;
    job.nonblocking = draw_below(seed, 4) == 0;
    job.null_target = draw(seed) & 1;
    job.values = draw(seed) & 1 ? WHOLE : ANY;
    bool shared = draw_below(seed, 3) == 0;
    job.offset = shared && draw(seed) & 1 ? 0 : hearth_dtype_size(dtype) * draw_below(seed, 4);
    if (kind_is_vector(kind))
        job_draw_counts(&job);
    return job_member(&job, node, shared);
}

static bool matrix_run(hearth_node *node, uint64_t seed)
{
    static const size_t small[] = {0, 1, 7, 1000}, large[] = {65537, CHUNKS_COUNT};
    bool good = true, full = soaking();
    int step = under_tsan() && !full ? 3 : 1;
    for (int kind = 0; good && kind < KIND_COUNT; kind++) {
        for (int d = kind % step; good && d < DTYPES; d += step)
            for (size_t i = 0; good && i < sizeof small / sizeof *small; i++)
                good = run_drawn(node, (enum kind)kind, (enum hearth_dtype)d, small[i], &seed);
        uint64_t drawn = draw_below(&seed, DTYPES), which = (uint64_t)kind == draw_below(&seed, KIND_COUNT);
        for (int d = 0; good && d < DTYPES; d++)
            for (size_t i = 0; good && i < 2; i++)
                if (full || ((uint64_t)d == drawn && i <= which))
                    good = run_drawn(node, (enum kind)kind, (enum hearth_dtype)d, large[i], &seed);
    }
    return good && run_drawn(node, ALL_REDUCE, HEARTH_F32, CHUNKS_COUNT, &seed);
}

struct plan {
    uint64_t seed;
    bool narrow; /* many lanes, blocks and grants */
};

static void matrix_member(struct team *team, int rank, void *arg)
{
    const struct plan *plan = arg;
    (void)team, (void)rank;
    if (plan->narrow) {
        setenv("HEARTH_CHUNK_BYTES", "16K", 1);
        setenv("HEARTH_WINDOW_BYTES", "16K", 1);
        setenv("HEARTH_EAGER_BYTES", "16K", 1);
    }
    hearth_node *node = member_open();
    if (!node)
        return;
    matrix_run(node, plan->seed);
    hearth_node_close(node);
}

static void matrix(const char *transport, int step)
{
    unsigned long repeats = repeat_count(1);
    for (unsigned long i = 0; i < repeats; i++) {
        for (int size = 2; size <= MEMBERS_USUAL; size += under_tsan() ? 3 : step) {
            struct team team;
            struct plan plan = {first_seed() + i * 100 + (uint64_t)size, size % 2 == 1};
            unsigned seconds = OPEN_JOIN_S * (soaking() ? 20 : 1);
            watchdog(2 * seconds * (unsigned)slow_factor(), "matrix");
            team_start(&team, size, transport, matrix_member, &plan);
            team_join(&team, seconds);
            team_free(&team);
            if (checks_failed())
                print_message("%s, %d members, seed %llu\n", transport, size, (unsigned long long)plan.seed);
            checks_end();
        }
    }
}

TEST(test_tcp)
{
    matrix("tcp", slow_factor() > 1 ? 2 : 1);
}

TEST(test_shm)
{
    matrix("shm", slow_factor() > 1 ? 2 : 1);
}

TEST(test_quic)
{
    matrix("quic", soaking() ? 1 : 3);
}

TEST(test_plain)
{
    matrix("plain", soaking() ? 1 : 5);
}

/* ---- many times what a ring holds, by every algorithm: a frame that waits must not hold up the rest ---- */

#define LONG_COUNT (1u << 22) /* of f32: 16 MiB, eight times the ring between four members */
#define LONG_TIMES 20         /* one after the other, so that members drift apart */

static void long_member(struct team *team, int rank, void *arg)
{
    (void)team, (void)arg;
    hearth_node *node = member_open();
    float *x = node ? hearth_mem_alloc(node, LONG_COUNT * sizeof *x) : NULL;
    float *y = calloc(LONG_COUNT, sizeof *y);
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    for (int i = 0; x && y && i < 2 * HEARTH_ALGO_EXCHANGE; i++) {
        float *buffer = i % 2 == 0 ? y : x;
        opts.algo = (enum hearth_algo)(1 + i / 2);
        for (size_t k = 0; k < LONG_COUNT; k++)
            buffer[k] = (float)((k + (size_t)rank) % 1000);
        hearth_group *world = hearth_node_world(node);
        int status = hearth_all_reduce(world, buffer, buffer, LONG_COUNT, HEARTH_F32, HEARTH_OP_SUM, &opts);
        check(status == HEARTH_OK, "rank %d by %s: %s", rank, hearth_algo_name(opts.algo),
              hearth_error_text());
        size_t wrong = 0;
        for (size_t k = 0; status == HEARTH_OK && k < LONG_COUNT; k++) {
            float sum = 0;
            for (size_t r = 0; r < 4; r++)
                sum += (float)((k + r) % 1000);
            wrong += buffer[k] != sum;
        }
        check(wrong == 0, "rank %d by %s: %zu elements are wrong", rank, hearth_algo_name(opts.algo), wrong);
        memset(buffer, 0, LONG_COUNT * sizeof *buffer);
        for (int k = 0; status == HEARTH_OK && k < (under_tsan() ? 2 : LONG_TIMES); k++)
            status = hearth_all_reduce(world, buffer, buffer, LONG_COUNT, HEARTH_F32, HEARTH_OP_SUM, &opts);
        check(status == HEARTH_OK, "rank %d by %s: %s", rank, hearth_algo_name(opts.algo),
              hearth_error_text());
    }
    free(y);
    hearth_node_close(node);
}

TEST(rings_are_not_held_up)
{
    struct team team;
    watchdog(200 * (unsigned)slow_factor(), "long");
    team_start(&team, 4, "shm", long_member, NULL);
    team_join(&team, OPEN_JOIN_S * (unsigned)slow_factor());
    team_free(&team);
    checks_end();
}

/* ---- several connections, many at once ---- */

static void channels_member(struct team *team, int rank, void *arg)
{
    (void)team, (void)rank, (void)arg;
    uint64_t seed = 77;
    setenv("HEARTH_CONNECTIONS", "4", 1);
    setenv("HEARTH_CHUNK_BYTES", "16K", 1);
    hearth_node *node = member_open();
    bool good = node;
    for (int i = 0; good && i < 12; i++)
        good = run_drawn(node, (enum kind)(i % KIND_COUNT), (enum hearth_dtype)(i % DTYPES), 65537, &seed);
    hearth_node_close(node);
}

TEST(several_connections)
{
    struct team team;
    watchdog(200, "several connections");
    team_start(&team, 3, "tcp", channels_member, NULL);
    team_join(&team, OPEN_JOIN_S);
    team_free(&team);
    checks_end();
}

/* ---- a member on its own ---- */

static void log_line(void *arg, enum hearth_log_level level, const char *id, const char *text)
{
    (void)arg, (void)level;
    fprintf(stderr, "%s %s\n", id, text);
}

static bool open_with_log(hearth_node **node)
{
    struct hearth_config config;
    hearth_config_init(&config);
    config.log = log_line;
    return check_ok(hearth_config_env(&config)) && check_ok(hearth_node_open(&config, node));
}

/* Adds ones, and says whether the sums are right. */
static int sum_large(hearth_group *world, float *large, bool *right)
{
    for (size_t i = 0; i < LARGE_COUNT; i++)
        large[i] = 1;
    int status = hearth_all_reduce(world, large, large, LARGE_COUNT, HEARTH_F32, HEARTH_OP_SUM, NULL);
    size_t at = 0;
    while (at < LARGE_COUNT && large[at] == (float)hearth_group_size(world))
        at++;
    *right = at == LARGE_COUNT;
    return status;
}

static int member_alone(bool forever)
{
    hearth_node *node;
    char links[4096];
    bool right;
    if (!open_with_log(&node))
        return 1;
    hearth_group *world = hearth_node_world(node);
    float *large = must_alloc(LARGE_COUNT * sizeof *large);
    int status = sum_large(world, large, &right);
    if (forever) {
        puts("computing");
        fflush(stdout);
        while (status == HEARTH_OK)
            status = sum_large(world, large, &right);
        printf("failed: %s: %s\n", hearth_status_name(status), hearth_error_text());
    } else {
        hearth_node_links_text(node, links, sizeof links);
        fputs(links, stdout);
        puts(check_ok(status) && right ? "large sum is right" : "large sum is wrong");
        puts(matrix_run(node, first_seed()) && !checks_failed() ? "matrix is right" : "matrix is wrong");
    }
    free(large);
    hearth_node_close(node);
    return checks_failed();
}

int main(int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[1], "member") == 0 || strcmp(argv[1], "forever") == 0))
        return member_alone(strcmp(argv[1], "forever") == 0);
    return suite_run();
}
