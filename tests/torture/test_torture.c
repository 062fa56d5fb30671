/* SPDX-License-Identifier: Apache-2.0 */
/* Memory runs out at every place, one after the other: nobody crashes, hangs, leaks or hears nothing. */
#include <pthread.h>

#include "collective/state.h"
#include "sim/job.h"
#include "sim/mix.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define SIZE 3

/* From a certain allocation on all of them fail, or only for a moment. */
enum shortage { LASTING, PASSING, SHORTAGES };

/* Which allocations fail: each of the first ones, then some. */
static int64_t next_failure(int64_t n)
{
    return n < 200 ? n + 1 : n + 1 + n / 20;
}

struct run {
    struct sim sim;
    int victim;
    enum shortage shortage;
    int64_t fail_after;
    bool failed; /* an allocation did */
};

static struct heap *heap_of(struct run *run)
{
    return run->sim.nodes[run->victim]->heap;
}

static void run_open(struct run *run, int victim, enum shortage shortage, int64_t fail_after)
{
    memset(run, 0, sizeof *run);
    run->victim = victim;
    run->shortage = shortage;
    run->fail_after = fail_after;
    sim_init(&run->sim, SIZE, 1);
    run->sim.mem.ring_bytes = 20000;
    run->sim.tuning.chunk_bytes = 4096;
    run->sim.tuning.window_bytes = 16384;
    run->sim.tuning.eager_bytes = 16384;
    run->sim.config.op_timeout_ms = 60000;
    sim_start(&run->sim);
    sim_run_until(&run->sim, run->sim.now_ns + NS_PER_S);
}

static void shortage_begins(struct run *run)
{
    atomic_store(&heap_of(run)->fail_after, run->fail_after);
}

static void look(struct run *run)
{
    if (!run->sim.nodes[run->victim] || atomic_load(&heap_of(run)->fail_after) != 0)
        return;
    run->failed = true;
    if (run->shortage == PASSING)
        atomic_store(&heap_of(run)->fail_after, -1);
}

static void run_on(struct run *run)
{
    look(run);
    while (sim_step(&run->sim, run->sim.now_ns + 100 * NS_PER_S))
        look(run);
    look(run);
}

static void shortage_ends(struct run *run)
{
    look(run);
    atomic_store(&heap_of(run)->fail_after, -1);
}

static bool all_linked(const struct run *run)
{
    for (int i = 0; i < SIZE; i++)
        for (int k = 0; k < SIZE; k++)
            if (i != k && !link_up(&run->sim.nodes[i]->engine->peers[k].link))
                return false;
    return true;
}

/* Every member calls a barrier: it works if the links have held, else everybody is told. */
static void check_after(struct run *run, const char *what)
{
    hearth_request *requests[SIZE] = {NULL};
    struct sim *sim = &run->sim;
    run_on(run);
    bool linked = all_linked(run);
    for (int r = 0; r < SIZE; r++) {
        int status = hearth_barrier_nb(sim_world(sim, r), NULL, &requests[r]);
        if (status != HEARTH_OK && (linked || strlen(hearth_error_text()) == 0))
            fail_msg("%s, rank %d fails at %lld: then a barrier on rank %d: %s: %s", what, run->victim,
                     (long long)run->fail_after, r, hearth_status_name(status), hearth_error_text());
    }
    run_on(run);
    for (int r = 0; r < SIZE; r++) {
        int status = requests[r] ? sim_status(requests[r]) : HEARTH_GROUP_BROKEN;
        if (status == HEARTH_PENDING || (linked && status != HEARTH_OK))
            fail_msg("%s, rank %d fails at %lld: then a barrier on rank %d: %s: %s", what, run->victim,
                     (long long)run->fail_after, r, hearth_status_name(status),
                     hearth_request_error(requests[r]));
        hearth_request_close(requests[r]);
    }
    if (linked)
        sim_check_idle(sim);
}

static bool names(const char *text, int rank)
{
    char word[32];
    snprintf(word, sizeof word, "rank %d", rank);
    return strstr(text, word);
}

static void check_member(const struct run *run, const struct job *job, int rank)
{
    const struct job_member *m = &job->member[rank];
    bool fine = m->status == HEARTH_OK || (m->status != HEARTH_PENDING && strlen(m->error.text) > 0 &&
                                           (rank == run->victim || names(m->error.text, run->victim)));
    if (!fine)
        fail_msg("%s, rank %d fails at %lld: rank %d: %s, names %d: %s", job_name(job), run->victim,
                 (long long)run->fail_after, rank, hearth_status_name(m->status), m->error.rank,
                 m->error.text);
    job_check(job, rank);
}

/* ---- one collective ---- */

/* Draws until it is what is asked for, from *seed on, which gives it at once the next time. */
static void draw_kind(struct job *job, int kind, bool vector, size_t count_max, uint64_t *seed)
{
    struct prng prng;
    for (;; ++*seed) {
        prng_init(&prng, *seed);
        job_draw(job, &prng, SIZE, count_max);
        if ((int)job->kind == kind && job->vector == vector && (kind == PLAN_BARRIER || job->count > 3))
            break;
        job_free(job);
    }
    job->opts.algo = HEARTH_ALGO_AUTO;
    job->opts.flags = HEARTH_FLAG_RESTORE;
}

/* True: an allocation failed. */
static bool run_job(struct job *job, int victim, enum shortage shortage, int64_t fail_after)
{
    struct run run;
    run_open(&run, victim, shortage, fail_after);
    shortage_begins(&run);
    for (int i = 0; i < SIZE; i++) {
        int rank = (int)(i + fail_after) % SIZE; /* others begin in other runs */
        job_post(job, sim_world(&run.sim, rank), rank);
        look(&run);
    }
    run_on(&run);
    job_collect(job, run.sim.now_ns);
    shortage_ends(&run);
    for (int i = 0; i < SIZE; i++)
        check_member(&run, job, i);
    for (int i = 0; i < SIZE; i++)
        hearth_request_close(job->member[i].request);
    check_after(&run, job_name(job));
    sim_stop(&run.sim);
    return run.failed;
}

TEST(collectives)
{
    unsigned long runs = 0;
    for (int kind = 0; kind < PLAN_KIND_COUNT; kind++) {
        bool has_vector = kind == PLAN_REDUCE_SCATTER || kind == PLAN_ALL_GATHER || kind == PLAN_GATHER ||
                          kind == PLAN_SCATTER || kind == PLAN_ALL_TO_ALL;
        for (int what = 0; what < 2 * (1 + has_vector) * SIZE * SHORTAGES; what++) {
            bool failed = true;
            uint64_t seed = 1;
            for (int64_t n = 0; failed; n = next_failure(n)) {
                static struct job job;
                draw_kind(&job, kind, what / (2 * SIZE * SHORTAGES), what & 1 ? 20000 : 100, &seed);
                failed = run_job(&job, what / 2 % SIZE, (enum shortage)(what / 2 / SIZE % SHORTAGES), n);
                for (int i = 0; i < SIZE; i++)
                    job.member[i].request = NULL;
                job_free(&job);
                runs++;
            }
        }
    }
    print_message("%lu runs\n", runs);
}

/* ---- many tags, in any order: notes, early frames, more tags than fit ---- */

static bool run_mixed(uint64_t seed, int victim, enum shortage shortage, int64_t fail_after)
{
    static struct mix mix;
    struct run run;
    run_open(&run, victim, shortage, fail_after);
    mix_draw(&mix, &run.sim, seed, 30000);
    for (int i = 0; i < mix.count; i++)
        mix.jobs[i].opts.tag = (uint64_t)i * 10; /* each its own: the table of tags must grow */
    shortage_begins(&run);
    while (mix_step(&mix, &run.sim, run.sim.now_ns + 100 * NS_PER_S))
        look(&run);
    shortage_ends(&run);
    for (int i = 0; i < mix.count; i++)
        for (int r = 0; r < SIZE; r++)
            check_member(&run, &mix.jobs[i], r);
    mix_free(&mix);
    check_after(&run, "a mix");
    sim_stop(&run.sim);
    return run.failed;
}

TEST(mixes)
{
    unsigned long runs = 0;
    for (uint64_t seed = first_seed(); seed < first_seed() + repeat_count(6); seed++) {
        for (int what = 0; what < SIZE * SHORTAGES; what++) {
            bool failed = true;
            for (int64_t n = 0; failed; n = next_failure(n), runs++)
                failed = run_mixed(seed, what % SIZE, (enum shortage)(what / SIZE), n);
        }
    }
    print_message("%lu runs\n", runs);
}

/* ---- different calls ---- */

static bool run_mismatch(int odd, int victim, enum shortage shortage, int64_t fail_after)
{
    struct run run;
    static struct job job, other;
    run_open(&run, victim, shortage, fail_after);
    job_plain(&job, SIZE, 500);
    job_plain(&other, SIZE, 501);
    shortage_begins(&run);
    for (int r = 0; r < SIZE; r++) {
        job_post(r == odd ? &other : &job, sim_world(&run.sim, r), r);
        look(&run);
    }
    run_on(&run);
    job_collect(&job, run.sim.now_ns);
    job_collect(&other, run.sim.now_ns);
    shortage_ends(&run);
    for (int r = 0; r < SIZE; r++) {
        const struct job_member *m = r == odd ? &other.member[r] : &job.member[r];
        bool fine = m->status != HEARTH_PENDING && m->status != HEARTH_OK && strlen(m->error.text) > 0 &&
                    (m->status == HEARTH_MISMATCH || r == victim || names(m->error.text, victim));
        if (!fine)
            fail_msg("rank %d calls another, rank %d fails at %lld: rank %d: %s: %s", odd, victim,
                     (long long)fail_after, r, hearth_status_name(m->status), m->error.text);
    }
    job_free(&job);
    job_free(&other);
    check_after(&run, "a mismatch");
    sim_stop(&run.sim);
    return run.failed;
}

TEST(mismatches)
{
    for (int what = 0; what < SIZE * SIZE * SHORTAGES; what++) {
        bool failed = true;
        for (int64_t n = 0; failed; n = next_failure(n))
            failed = run_mismatch(what % SIZE, what / SIZE % SIZE, (enum shortage)(what / SIZE / SIZE), n);
    }
}

/* ---- cancelling, a descriptor, the metrics ---- */

static bool run_cancel(int who, int steps, int victim, int64_t fail_after)
{
    struct run run;
    static struct job job;
    run_open(&run, victim, LASTING, fail_after);
    job_plain(&job, SIZE, 20000);
    shortage_begins(&run);
    for (int r = 0; r < SIZE; r++) {
        job_post(&job, sim_world(&run.sim, r), r);
        int fd = job.member[r].request ? hearth_request_fd(job.member[r].request) : 0;
        assert_true(fd >= 0 || strlen(hearth_error_text()) > 0);
        char text[64];
        assert_true(hearth_node_metrics_text(run.sim.nodes[r], text, sizeof text) > 0);
    }
    for (int i = 0; i < steps; i++)
        sim_step(&run.sim, NEVER_NS);
    if (job.member[who].request)
        assert_ok(hearth_request_cancel(job.member[who].request));
    run_on(&run);
    job_collect(&job, run.sim.now_ns);
    shortage_ends(&run);
    for (int r = 0; r < SIZE; r++) {
        const struct job_member *m = &job.member[r];
        bool fine = m->status == HEARTH_OK || m->status == HEARTH_CANCELLED ||
                    (m->status != HEARTH_PENDING && strlen(m->error.text) > 0 &&
                     (r == victim || names(m->error.text, victim) || m->error.rank == who));
        if (!fine)
            fail_msg("rank %d cancels after %d, rank %d fails at %lld: rank %d: %s: %s", who, steps, victim,
                     (long long)fail_after, r, hearth_status_name(m->status), m->error.text);
    }
    job_free(&job);
    check_after(&run, "a cancel");
    sim_stop(&run.sim);
    return run.failed;
}

TEST(cancels)
{
    for (int what = 0; what < SIZE * SIZE * 5; what++) {
        bool failed = true;
        for (int64_t n = 0; failed; n = next_failure(n))
            failed = run_cancel(what % SIZE, what / SIZE / SIZE * 3, what / SIZE % SIZE, n);
    }
}

/* ---- opening: through the limit, which is there from the first byte ---- */

TEST(opening)
{
    int status = HEARTH_NO_MEMORY;
    unsigned opened = 0;
    for (size_t limit = 1; opened < 3; limit += limit < 4096 ? 61 : limit / 64) {
        struct sim sim;
        struct error error = {0};
        sim_init(&sim, SIZE, 1);
        sim.config.memory_max = limit;
        sim.mem.now_ns = &sim.now_ns;
        struct local_setup setup = {.config = &sim.config, .count = SIZE, .mem = sim.mem, .id = 5};
        status = local_open(&setup, sim.nodes, &error);
        if (status == HEARTH_OK) {
            sim.net = sim.nodes[0]->net;
            sim_run_until(&sim, sim.now_ns + NS_PER_S);
            sim_stop(&sim);
            opened++;
            continue;
        }
        assert_int_equal(status, HEARTH_NO_MEMORY);
        assert_true(strlen(error.text) > 0);
    }
}

TEST(opening_with_threads)
{
    struct hearth_config config;
    unsigned failures = 0;
    hearth_config_init(&config);
    for (config.memory_max = 1000; failures < 1000; config.memory_max += config.memory_max / 8, failures++) {
        hearth_node *nodes[SIZE];
        int status = hearth_node_open_local(&config, SIZE, nodes);
        if (status == HEARTH_OK) {
            for (int i = 0; i < SIZE; i++)
                hearth_node_close(nodes[i]);
            break;
        }
        assert_int_equal(status, HEARTH_NO_MEMORY);
        assert_true(strlen(hearth_error_text()) > 0);
    }
    assert_true(failures > 3 && failures < 1000);
}

/* ---- splitting and comparing: they block, so each member has a thread ---- */

struct blocker {
    hearth_node *node;
    int rank;
    int status, same;
    char text[ERROR_TEXT_MAX];
    hearth_group *child;
};

static void *block(void *arg)
{
    struct blocker *b = arg;
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.timeout_ms = 2000;
    b->child = NULL;
    b->text[0] = '\0';
    b->status = hearth_group_split(hearth_node_world(b->node), b->rank % 2, 0, &opts, &b->child);
    if (b->status != HEARTH_OK)
        snprintf(b->text, sizeof b->text, "%s", hearth_error_text());
    return NULL;
}

static bool run_split(int victim, int64_t fail_after)
{
    hearth_node *nodes[SIZE];
    struct blocker b[SIZE];
    pthread_t threads[SIZE];
    assert_ok(hearth_node_open_local(NULL, SIZE, nodes));
    atomic_store(&nodes[victim]->heap->fail_after, fail_after);
    for (int i = 0; i < SIZE; i++) {
        b[i] = (struct blocker){.node = nodes[i], .rank = i};
        assert_int_equal(pthread_create(&threads[i], NULL, block, &b[i]), 0);
    }
    for (int i = 0; i < SIZE; i++)
        pthread_join(threads[i], NULL);
    bool failed = atomic_load(&nodes[victim]->heap->fail_after) == 0;
    for (int i = 0; i < SIZE; i++) {
        if (b[i].status != HEARTH_OK)
            assert_true(strlen(b[i].text) > 0);
        if (!failed)
            assert_ok(b[i].status);
        hearth_group_close(b[i].child);
    }
    for (int i = 0; i < SIZE; i++)
        hearth_node_close(nodes[i]);
    return failed;
}

TEST(splits)
{
    for (int victim = 0; victim < SIZE; victim++) {
        bool failed = true;
        for (int64_t n = 0; failed; n = next_failure(n))
            failed = run_split(victim, n);
    }
}
