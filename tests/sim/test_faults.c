/* SPDX-License-Identifier: Apache-2.0 */
/* Clusters on virtual time whose members err: who does not come, who calls something else, who cancels. */
#include "core/hash.h"
#include "mix.h"
#include "support/suite.h"
#include "support/watchdog.h"

/* Nobody: then the one that is waited for waits itself. */
static bool names(const char *text, int rank)
{
    char word[32];
    snprintf(word, sizeof word, "rank %d", rank);
    return strstr(text, rank != RANK_NONE ? word : "which has begun it");
}

/* All members call a barrier, and it works: whatever happened, the group is usable. A member that is still
 * owed the error of an operation that it had returned from gets it first, into `owed`. */
static void group_works(struct sim *sim, struct error owed[SIM_MAX])
{
    hearth_request *requests[SIM_MAX];
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.tag = 77; /* those of other tags may have to be refused first */
    for (int r = 0; r < sim->size; r++) {
        int status = hearth_barrier_nb(sim_world(sim, r), &opts, &requests[r]);
        if (status == HEARTH_MISMATCH && owed) {
            owed[r] = *error_last();
            status = hearth_barrier_nb(sim_world(sim, r), &opts, &requests[r]);
        }
        if (status != HEARTH_OK)
            fail_msg("barrier on rank %d: %s", r, hearth_error_text());
    }
    sim_run_until(sim, sim->now_ns + 100 * NS_PER_S);
    for (int r = 0; r < sim->size; r++) {
        if (sim_status(requests[r]) != HEARTH_OK)
            fail_msg("barrier on rank %d: %s %s", r, hearth_status_name(sim_status(requests[r])),
                     hearth_request_error(requests[r]));
        hearth_request_close(requests[r]);
    }
    sim_check_idle(sim);
}

static bool post_or_plain(struct job *job, struct sim *sim, int rank)
{
    int status = job_post(job, sim_world(sim, rank), rank);
    if (status == HEARTH_UNSUPPORTED) {
        job->opts.algo = HEARTH_ALGO_AUTO;
        job->opts.flags &= (uint32_t)~HEARTH_FLAG_RANK_ORDER;
        status = job_post(job, sim_world(sim, rank), rank);
    }
    return status == HEARTH_OK;
}

/* ---- deadlines ---- */

static uint64_t run_late(uint64_t seed)
{
    struct sim sim;
    static struct job job;
    struct prng prng;
    prng_init(&prng, seed);
    int size = 2 + (int)prng_below(&prng, 5), late = (int)prng_below(&prng, (uint64_t)size);
    sim_draw_quick(&sim, size, seed);
    sim_start(&sim);
    job_draw(&job, &prng, size, 1 + prng_below(&prng, 4000));
    job.opts.timeout_ms = 500 + (int64_t)prng_below(&prng, 100000);
    sim_run_until(&sim, sim.now_ns + prng_below(&prng, NS_PER_S));
    uint64_t deadline = sim.now_ns + (uint64_t)job.opts.timeout_ms * NS_PER_MS;
    for (int r = 0; r < size; r++)
        if (r != late)
            assert_true(post_or_plain(&job, &sim, r));
    while (sim_step(&sim, deadline + NS_PER_S))
        job_collect(&job, sim.now_ns);
    assert_true(job_collect(&job, sim.now_ns));
    int in_time = 0, named = 0;
    for (int r = 0; r < size; r++) {
        const struct job_member *m = &job.member[r];
        if (r == late || m->status == HEARTH_OK)
            continue;
        if (m->status != HEARTH_TIMEOUT || m->ended_ns != deadline || !names(m->error.text, m->error.rank))
            fail_msg("%s: rank %d: %s, %lld ns after the deadline: %s", job_name(&job), r,
                     hearth_status_name(m->status), (long long)(m->ended_ns - deadline), m->error.text);
        in_time++;
        named += m->error.rank == late;
    }
    assert_true(in_time == 0 || named > 0); /* at least whoever waits for it directly names it */
    job_check_all(&job);
    if (in_time > 0) { /* too late: it is over */
        assert_ok(job_post(&job, sim_world(&sim, late), late));
        sim_settle(&sim);
        assert_true(job_collect(&job, sim.now_ns));
        assert_int_equal(job.member[late].status, HEARTH_ABORTED);
        assert_true(strlen(job.member[late].error.text) > 0);
    } else {
        assert_true(post_or_plain(&job, &sim, late));
        sim_run_until(&sim, sim.now_ns + 200 * NS_PER_S);
    }
    group_works(&sim, NULL);
    job_free(&job);
    sim_stop(&sim);
    return 0;
}

TEST_WITH(who_does_not_come_is_named_at_the_deadline, NULL, say_seed)
{
    run_seeds(200, 0, run_late);
}

/* With one hop everyone waits for the late one itself. */
TEST(all_name_it_where_all_wait_for_it)
{
    struct sim sim;
    static struct job job;
    sim_open(&sim, 4);
    job_plain(&job, 4, 100);
    job.opts.algo = HEARTH_ALGO_EXCHANGE;
    job.opts.timeout_ms = 250;
    job_post_all(&job, &sim, 2);
    sim_run_until(&sim, sim.now_ns + NS_PER_S);
    job_collect(&job, sim.now_ns);
    for (int r = 0; r < 4; r++) {
        if (r == 2)
            continue;
        assert_int_equal(job.member[r].status, HEARTH_TIMEOUT);
        assert_int_equal(job.member[r].error.rank, 2);
    }
    job_free(&job);
    sim_stop(&sim);
}

TEST(a_shorter_deadline_ends_it_for_all)
{
    struct sim sim;
    static struct job job;
    sim_open(&sim, 3);
    job_plain(&job, 3, 100);
    uint64_t start = sim.now_ns;
    job.opts.timeout_ms = 300;
    assert_ok(job_post(&job, sim_world(&sim, 0), 0));
    job.opts.timeout_ms = 100;
    assert_ok(job_post(&job, sim_world(&sim, 1), 1));
    while (sim_step(&sim, start + NS_PER_S))
        job_collect(&job, sim.now_ns);
    assert_int_equal(job.member[1].status, HEARTH_TIMEOUT);
    assert_int_equal(job.member[1].ended_ns, start + 100 * NS_PER_MS);
    assert_int_equal(job.member[0].status, HEARTH_ABORTED);
    assert_int_equal(job.member[0].error.rank, 1);
    assert_true(names(job.member[0].error.text, 1));
    assert_true(job.member[0].ended_ns < start + 101 * NS_PER_MS);
    job_free(&job);
    sim_stop(&sim);
}

TEST(no_time_at_all_does_what_is_done_at_once)
{
    for (int size = 1; size <= 2; size++) {
        struct sim sim;
        static struct job job;
        sim_open(&sim, size);
        job_plain(&job, size, 100);
        job.opts.timeout_ms = 0;
        assert_ok(job_post(&job, sim_world(&sim, 0), 0));
        sim_settle(&sim);
        job_collect(&job, sim.now_ns);
        assert_int_equal(job.member[0].status, size == 1 ? HEARTH_OK : HEARTH_TIMEOUT);
        job_free(&job);
        sim_stop(&sim);
    }
}

/* ---- different calls ---- */

/* The same text for all: from the call, or, for those that had returned, from the next one. */
static void check_verdict(const struct job *job, const struct job *other, int odd, struct sim *sim)
{
    struct error owed[SIM_MAX] = {{0}}, got[SIM_MAX];
    const char *text = NULL;
    group_works(sim, owed);
    for (int r = 0; r < sim->size; r++) {
        const struct job_member *m = r == odd ? &other->member[r] : &job->member[r];
        got[r] = m->status != HEARTH_OK ? m->error : owed[r];
        if (got[r].status != HEARTH_OK)
            text = got[r].text;
    }
    for (int r = 0; text && r < sim->size; r++) {
        if (got[r].status != HEARTH_MISMATCH || strcmp(text, got[r].text) != 0)
            fail_msg("%s, but rank %d: rank %d got %s: \"%s\", another \"%s\"", job_name(job), odd, r,
                     hearth_status_name(got[r].status), got[r].text, text);
    }
    if (text && !names(text, odd))
        fail_msg("%s: rank %d is not named: %s", job_name(job), odd, text);
}

static uint64_t run_mismatch(uint64_t seed)
{
    struct sim sim;
    static struct job job, other;
    struct prng prng;
    prng_init(&prng, seed);
    int size = 2 + (int)prng_below(&prng, 5), odd = (int)prng_below(&prng, (uint64_t)size);
    sim_draw_quick(&sim, size, seed);
    sim_start(&sim);
    job_draw(&job, &prng, size, 1 + prng_below(&prng, 4000));
    job_vary(&other, &job, &prng);
    int first = (int)prng_below(&prng, (uint64_t)size);
    for (int i = 0; i < size; i++) {
        int r = (first + i) % size;
        assert_true(post_or_plain(r == odd ? &other : &job, &sim, r));
        for (uint64_t steps = prng_below(&prng, 4); steps > 0; steps--)
            sim_step(&sim, NEVER_NS);
    }
    sim_run_until(&sim, sim.now_ns + 100 * NS_PER_S);
    if (!job_collect(&job, sim.now_ns) || !job_collect(&other, sim.now_ns))
        fail_msg("%s, but rank %d called another: somebody still waits", job_name(&job), odd);
    bool found = false;
    for (int r = 0; r < size; r++)
        found = found || (r == odd ? &other : &job)->member[r].status != HEARTH_OK;
    check_verdict(&job, &other, odd, &sim);
    job_free(&job);
    job_free(&other);
    sim_stop(&sim);
    return found;
}

TEST_WITH(who_calls_something_else_is_named_to_all_alike, NULL, say_seed)
{
    assert_true(run_seeds(300, 0, run_mismatch) >
                repeat_count(300) / 3); /* some variations are none: the root of an all_reduce */
}

/* ---- cancelling ---- */

static uint64_t run_cancel(uint64_t seed)
{
    static struct mix mix;
    struct sim sim;
    struct prng prng;
    prng_init(&prng, seed);
    int size = 2 + (int)prng_below(&prng, 5);
    sim_draw_quick(&sim, size, seed);
    sim_start(&sim);
    mix_draw(&mix, &sim, seed, 65536);
    int cancelled[MIX_MAX];
    memset(cancelled, -1, sizeof cancelled);
    bool more = true;
    while (more) {
        more = mix_step(&mix, &sim, sim.now_ns + 100 * NS_PER_S);
        int j = (int)prng_below(&prng, (uint64_t)mix.count), r = (int)prng_below(&prng, (uint64_t)size);
        struct job_member *m = &mix.jobs[j].member[r];
        if (cancelled[j] >= 0 || !m->request || m->status != HEARTH_PENDING || prng_below(&prng, 4))
            continue;
        assert_ok(hearth_request_cancel(m->request));
        assert_true(sim_status(m->request) != HEARTH_PENDING);
        cancelled[j] = r;
    }
    for (int j = 0; j < mix.count; j++) {
        for (int r = 0; r < size; r++) {
            const struct job_member *m = &mix.jobs[j].member[r];
            bool fine = m->status == HEARTH_OK ||
                        (m->status == (r == cancelled[j] ? HEARTH_CANCELLED : HEARTH_ABORTED) &&
                         m->error.rank == cancelled[j] && names(m->error.text, cancelled[j]));
            if (!fine)
                fail_msg("%s (cancelled by %d): rank %d: %s: %s", job_name(&mix.jobs[j]), cancelled[j], r,
                         hearth_status_name(m->status), m->error.text);
        }
    }
    mix_check(&mix);
    group_works(&sim, NULL);
    mix_free(&mix);
    sim_stop(&sim);
    return 0;
}

TEST_WITH(a_cancelled_operation_ends_for_all_and_disturbs_no_other, NULL, say_seed)
{
    run_seeds(200, 0, run_cancel);
}
