/* SPDX-License-Identifier: Apache-2.0 */
/* A job on machines that restart, lose power, are cut off and meet again, each with a disk that remembers it:
 * it never begins anew beside a group that goes on, and when all is well again everybody is in it.
 * HEARTH_TEST_SEED and HEARTH_TEST_REPEAT choose seeds, HEARTH_TEST_TRACE=1 tells what happens. */
#include "membership/jobs.h"
#include "sim_cluster.h"
#include "sim_cluster_facts.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define NODES    5
#define LEAST    2 /* members of the job */
#define JOB      "work"
#define SEEDS    60
#define CALM_NS  (60 * NS_PER_S)
#define STORM_NS (60 * NS_PER_S)

/* A program that wants to be in the job, and what the machine's disk has. */
static struct worker {
    struct jobs *jobs;       /* NULL: no process */
    bool joined;             /* all were, and it is remembered */
    struct group_spec group; /* id 0: none */
    bool over, again;        /* the group has ended; it forms again */
    bool remembers;          /* in the file, and so in memory */
    struct view ran;
    uint64_t instance, epoch; /* that the jobs machine was told */
    bool leads, quorum;
} workers[NODES];

static bool begun;     /* all have been in it: from now on everybody has heard of it */
static bool forgetful; /* disks remember nothing: to see that the check is worth something */

/* ---- what a node does: cluster/paths.c ---- */

static void start(struct sim_cluster *t, int node)
{
    struct worker *w = &workers[node];
    struct jobs_setup setup = {
        .heap = &t->heap,
        .outbox = &t->nodes[node].outbox,
        .self = t->nodes[node].info.id,
        .seed = t->nodes[node].info.id.instance,
        .now_ns = t->now_ns,
    };
    *w = (struct worker){.remembers = w->remembers && !forgetful, .ran = w->ran};
    assert_ok(jobs_open(&setup, &w->jobs));
}

static void end(struct sim_cluster *t, int node)
{
    jobs_close(workers[node].jobs);
    workers[node].jobs = NULL;
    workers[node].group.id = 0;
}

static void tell_view(struct sim_cluster *t, int node, uint64_t now_ns)
{
    struct worker *w = &workers[node];
    const struct consensus *a = t->nodes[node].consensus;
    const struct view *view = consensus_view(a);
    bool leads = consensus_leads(a), quorum = consensus_state(a) == CONSENSUS_MEMBER;
    bool other = view->instance != w->instance || view->epoch != w->epoch;

    if (other || leads != w->leads || quorum != w->quorum)
        jobs_view(w->jobs, view, leads, quorum, now_ns);
    if (quorum && other && w->remembers && w->group.id != 0 &&
        (w->ran.instance == view->instance || jobs_runs(w->jobs, JOB))) {
        struct view before = w->ran;
        w->ran = *view;
        job_record_follow(&w->ran, &before);
    }
    w->instance = view->instance;
    w->epoch = view->epoch;
    w->leads = leads;
    w->quorum = quorum;
    if (consensus_state(a) == CONSENSUS_STRANDED)
        jobs_stranded(w->jobs, now_ns);
}

/* ---- what must hold ---- */

/* All of its members are in it, and none knows that it is over. */
static bool whole(const struct sim_cluster *t, const struct group_spec *f)
{
    for (int r = 0; r < f->size; r++) {
        int node = f->members[r].node.bytes[1];
        const struct worker *w = &workers[node];
        if (!w->jobs || w->group.id != f->id || w->over ||
            !identity_equal(&t->nodes[node].info.id, &f->members[r]))
            return false;
    }
    return true;
}

/* It can make a step. */
static bool steps(const struct sim_cluster *t, const struct group_spec *f)
{
    bool all = whole(t, f);

    for (int r = 0; r < f->size; r++)
        all = all && workers[f->members[r].node.bytes[1]].joined;
    return all;
}

static void check_once(struct sim_cluster *t, int node)
{
    const struct group_spec *mine = &workers[node].group;

    for (int i = 0; begun && steps(t, mine) && i < NODES; i++)
        if (workers[i].jobs && workers[i].group.id != 0 && workers[i].group.id != mine->id &&
            steps(t, &workers[i].group))
            facts_fail(t, "the job runs twice: with %d and with %d", node, i);
}

/* ---- what the program does ---- */

static void hear(struct sim_cluster *t, int node)
{
    struct worker *w = &workers[node];
    struct job_news news;

    while (jobs_news(w->jobs, &news)) {
        if (news.kind == JOB_FORMED) {
            w->group = *news.spec;
            w->over = w->joined = false;
            sim_cluster_trace(t, "%2d  FORMED %llx, rank %d of %d", node, (unsigned long long)news.id,
                              w->group.rank, w->group.size);
        } else if (news.kind == JOB_ENDED && news.id == w->group.id) {
            w->over = true;
        } else if (news.kind == JOB_WANTED) {
            w->again = true;
        }
    }
}

static void act(struct sim_cluster *t, int node, uint64_t now_ns)
{
    struct worker *w = &workers[node];
    struct job_request request = {.job = JOB, .min = LEAST, .place_len = 1};
    char why[JOB_TEXT_MAX];
    struct error error;

    if (w->group.id != 0 && (w->over || w->again)) {
        jobs_end(w->jobs, w->group.id, now_ns);
        w->group.id = 0;
    }
    w->again = false;
    jobs_why_not(w->jobs, JOB, why, sizeof why);
    if (w->group.id != 0 || strcmp(why, "this node does not ask for it") != 0)
        return;
    assert_ok(jobs_request(w->jobs, &request, 0, now_ns, &error));
    assert_ok(jobs_remember(w->jobs, JOB, w->remembers ? &w->ran : NULL, now_ns));
}

/* Whoever is joined with all remembers it, and then makes steps. */
static void join(struct sim_cluster *t, int node)
{
    struct worker *w = &workers[node];

    if (w->group.id == 0 || w->joined || !whole(t, &w->group))
        return;
    w->joined = w->remembers = true;
    w->ran = *consensus_view(t->nodes[node].consensus);
    job_record_mark(&w->ran, w->group.members, w->group.size);
    check_once(t, node);
}

static void look(struct sim_cluster *t, int node)
{
    struct worker *w = &workers[node];
    uint64_t now_ns = sim_cluster_clock(t, node);

    tell_view(t, node, now_ns);
    hear(t, node);
    join(t, node);
    act(t, node, now_ns);
    if (now_ns >= jobs_deadline(w->jobs))
        jobs_tick(w->jobs, now_ns);
    consensus_set_begun(t->nodes[node].consensus, jobs_running(w->jobs));
    consensus_set_busy(t->nodes[node].consensus, jobs_busy(w->jobs, now_ns));
    hear(t, node);
}

static int message(struct sim_cluster *t, int node, const struct identity *from,
                   const struct outbox_message *message, const char **what)
{
    return jobs_input(workers[node].jobs,
                      &(struct received){from, message->kind, message->payload, message->len},
                      sim_cluster_clock(t, node), what);
}

static uint64_t deadline(const struct sim_cluster *t, int node)
{
    return jobs_deadline(workers[node].jobs);
}

static const struct sim_cluster_tenant tenant = {start, end, look, message, deadline};

/* ---- towns ---- */

static void close_sim_cluster(struct sim_cluster *t)
{
    sim_cluster_close(t);
    test_free(t);
}

/* These, and only these, are in one group that runs. */
static bool together(const struct sim_cluster *t, unsigned nodes)
{
    const struct group_spec *first = NULL;

    for (int i = 0; i < NODES; i++) {
        const struct group_spec *f = &workers[i].group;
        if (!(nodes >> i & 1))
            continue;
        if (!workers[i].jobs || f->id == 0 || !steps(t, f) || f->size != __builtin_popcount(nodes))
            return false;
        first = first ? first : f;
        if (f->id != first->id)
            return false;
    }
    return true;
}

static void run(struct sim_cluster *t, uint64_t ns)
{
    if (!sim_cluster_run(t, t->now_ns + ns))
        fail_msg("seed %d, at %.3f s: %s", (int)t->seed, (double)t->now_ns / 1e9, t->failure);
}

static void until_together(struct sim_cluster *t, unsigned nodes, const char *when)
{
    uint64_t until_ns = t->now_ns + CALM_NS;
    char why[JOB_TEXT_MAX] = "";

    while (!together(t, nodes)) {
        int first = __builtin_ctz(nodes);
        if (t->now_ns > until_ns) {
            jobs_why_not(workers[first].jobs, JOB, why, sizeof why);
            fail_msg("seed %d: %s they are not together: %s", (int)t->seed, when, why);
        }
        run(t, 100 * NS_PER_MS);
        sim_cluster_link_all(t, 100 * NS_PER_MS); /* who lost a connection dials again */
    }
}

static struct sim_cluster *open_sim_cluster(uint64_t seed)
{
    struct sim_cluster *t = test_malloc(sizeof *t);

    memset(workers, 0, sizeof workers);
    FILE *trace = getenv("HEARTH_TEST_TRACE") ? stdout : NULL;
    sim_cluster_open(t, &(struct sim_cluster_setup){.seed = seed, .trace = trace});
    t->size = NODES;
    t->tenant = &tenant;
    for (int i = 0; i < NODES; i++)
        sim_cluster_start(t, i);
    sim_cluster_link_all(t, 200 * NS_PER_MS);
    begun = false;
    until_together(t, (1u << NODES) - 1, "at the beginning");
    begun = true;
    return t;
}

static int drawn(struct sim_cluster *t, int limit)
{
    return (int)prng_below(&t->prng, (uint64_t)limit);
}

static void cut(struct sim_cluster *t, unsigned side)
{
    bool told = drawn(t, 2);

    sim_cluster_trace(t, "    CUT %x%s", side, told ? "" : " in silence");
    for (int a = 0; a < NODES; a++)
        for (int b = a + 1; b < NODES; b++) {
            if ((side >> a & 1) == (side >> b & 1))
                continue;
            if (told)
                sim_cluster_unlink(t, a, b);
            t->roads[a][b].dark = t->roads[b][a].dark = true;
        }
}

static void link_reachable(struct sim_cluster *t)
{
    for (int a = 0; a < NODES; a++)
        for (int b = a + 1; b < NODES; b++)
            if (t->nodes[a].state != SIM_NODE_EMPTY && t->nodes[b].state != SIM_NODE_EMPTY &&
                !t->roads[a][b].dark && !(t->roads[a][b].linked && t->roads[b][a].linked))
                sim_cluster_link_at(t, a, b, prng_below(&t->prng, 300 * NS_PER_MS));
}

static void heal(struct sim_cluster *t)
{
    sim_cluster_trace(t, "    HEAL");
    for (int a = 0; a < NODES; a++)
        for (int b = 0; b < NODES; b++)
            t->roads[a][b].dark = false;
}

static void fault(struct sim_cluster *t)
{
    int node = drawn(t, NODES), kind = drawn(t, 10);

    if (kind < 4 && t->nodes[node].state == SIM_NODE_LIVES)
        sim_cluster_crash(t, node, drawn(t, 3) == 0);
    else if (kind < 7 && t->nodes[node].state == SIM_NODE_EMPTY)
        sim_cluster_start(t, node);
    else if (kind == 7)
        cut(t, 1 + (unsigned)drawn(t, (1 << NODES) - 2));
    else if (kind == 8)
        heal(t);
    else if (kind == 9 && t->nodes[node].state == SIM_NODE_LIVES)
        sim_cluster_freeze(t, node);
    if (drawn(t, 4) == 0 && t->nodes[node].state == SIM_NODE_FROZEN)
        sim_cluster_thaw(t, node);
    link_reachable(t);
}

/* ---- tests ---- */

static void storm(uint64_t seed)
{
    struct sim_cluster *t = open_sim_cluster(seed);
    uint64_t end_ns;

    for (end_ns = t->now_ns + STORM_NS; t->now_ns < end_ns;) {
        fault(t);
        run(t, prng_below(&t->prng, 4 * NS_PER_S));
    }
    heal(t);
    for (int i = 0; i < NODES; i++) {
        if (t->nodes[i].state == SIM_NODE_FROZEN)
            sim_cluster_thaw(t, i);
        if (t->nodes[i].state == SIM_NODE_EMPTY)
            sim_cluster_start(t, i);
    }
    until_together(t, (1u << NODES) - 1, "after the storm");
    close_sim_cluster(t);
}

TEST(a_job_never_runs_twice_and_goes_on)
{
    for (uint64_t seed = first_seed(), last = seed + repeat_count(SEEDS); seed < last; seed++)
        storm(seed);
}

/* Two of five restart while they are cut off; and without the disks the check sees what is wrong. */
static bool twice_after_double_restart(uint64_t seed)
{
    struct sim_cluster *t = open_sim_cluster(seed);
    bool good = true;

    cut(t, 0x3);
    sim_cluster_crash(t, 0, false);
    sim_cluster_crash(t, 1, false);
    sim_cluster_start(t, 0);
    sim_cluster_start(t, 1);
    link_reachable(t);
    for (int i = 0; i < 200 && good; i++) {
        good = sim_cluster_run(t, t->now_ns + 100 * NS_PER_MS);
        link_reachable(t);
    }
    if (good) {
        assert_true(together(t, 0x1c));
        heal(t);
        until_together(t, 0x1f, "when they have found each other");
    } else {
        assert_non_null(strstr(t->failure, "twice"));
    }
    close_sim_cluster(t);
    return !good;
}

TEST(a_double_restart_waits_for_the_rest)
{
    for (uint64_t seed = 1; seed <= 10; seed++)
        assert_false(twice_after_double_restart(seed));
    forgetful = true;
    assert_true(twice_after_double_restart(1));
    forgetful = false;
}

TEST(after_a_power_cut_more_than_half_begin)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct sim_cluster *t = open_sim_cluster(seed);
        for (int i = 0; i < NODES; i++)
            sim_cluster_crash(t, i, true);
        for (int i = 0; i < 2; i++) /* too few: the others may have gone on */
            sim_cluster_start(t, (int)((seed + (uint64_t)i) % NODES));
        for (int i = 0; i < 100; i++) {
            run(t, 100 * NS_PER_MS);
            link_reachable(t);
        }
        for (int i = 0; i < NODES; i++)
            assert_int_equal(workers[i].group.id, 0);
        sim_cluster_start(t, (int)((seed + 2) % NODES));
        unsigned back = 0;
        for (int i = 0; i < 3; i++)
            back |= 1u << (seed + (uint64_t)i) % NODES;
        until_together(t, back, "after the power cut");
        close_sim_cluster(t);
    }
}
