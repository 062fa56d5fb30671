/* SPDX-License-Identifier: Apache-2.0 */
/* Leaving after one's own part is normal: whoever has its result closes and ends, whatever the others are
 * still at, and they get theirs. Every collective by every algorithm that can do it is the last one once,
 * with and without a member that begins when the others are gone. */
#include "conform/reference.h"
#include "process/team.h"
#include "support/watchdog.h"

#define JOIN_S       60
#define MEMBERS      4  /* a power of two: halving can do more then */
#define LATE_WAIT_MS 40 /* for members that may not be able to end without us */
#define SOAK_REPEATS 200
#define NOBODY       (-1)

/* ---- the last collective ---- */

enum place { WORLD, SPLIT, SPLIT_CLOSED, PLACES };

struct last {
    enum kind kind;
    enum hearth_algo algo;
    uint64_t seed;
    int late; /* the rank that begins when the others are gone, as far as they can be; NOBODY */
};

static void draw_job(struct job *job, const struct last *last)
{
    static const size_t counts[] = {1, 7, 1000, 30000, 300000};
    uint64_t seed = last->seed;
    size_t count = counts[draw_below(&seed, 5)];
    if (last->algo == HEARTH_ALGO_HALVING && last->kind != ALL_REDUCE && count > 1000)
        count = 1000; /* what halving can do of the others is small */
    job_init(job, last->kind, MEMBERS, count);
    job->seed = draw(&seed);
    job->dtype = draw(&seed) & 1 ? HEARTH_F32 : HEARTH_I32;
    job->root = (int)draw_below(&seed, MEMBERS);
    job->in_place = draw(&seed) & 1;
    job->opts.algo = last->algo;
    if (kind_is_vector(last->kind))
        job_draw_counts(job);
}

static void wait_for_others(const struct team *team, int rank)
{
    uint64_t until = now_ns() + (uint64_t)LATE_WAIT_MS * 1000000u;
    for (int i = 0; i < MEMBERS; i++)
        while (i != rank && atomic_load(&team->board->notes[i].close_ns) == 0 && now_ns() < until)
            sleep_ms(1);
}

static void last_member(struct team *team, int rank, void *arg)
{
    const struct last *last = arg;
    uint64_t seed = last->seed + 1;
    enum place place = (enum place)draw_below(&seed, PLACES);
    struct job job;
    if (draw(&seed) & 1)
        setenv("HEARTH_CONNECTIONS", "3", 1);
    hearth_node *node = member_open();
    if (!node)
        return;
    hearth_group *group = hearth_node_world(node);
    if (place != WORLD)
        check_ok(hearth_group_split(group, 0, 0, NULL, &group));
    draw_job(&job, last);
    job_prepare(&job);
    if (rank == last->late)
        wait_for_others(team, rank);
    int status = job_call(&job, group, rank);
    if (check(status == HEARTH_OK, "%s over %s, rank %d%s, seed %llu: %s: %s", job_name(&job),
              team->transport, rank, rank == last->late ? ", late" : "", (unsigned long long)last->seed,
              hearth_status_name(status), hearth_error_text()))
        reference_holds(&job, rank);
    if (place == SPLIT_CLOSED)
        hearth_group_close(group);
    uint64_t began = now_ns();
    hearth_node_close(node);
    atomic_store(&team->board->notes[rank].close_ns, now_ns() - began + 1);
    job_free(&job);
}

static void run_last(const struct last *last, const char *transport)
{
    struct team team;
    team_start(&team, MEMBERS, transport, last_member, (void *)(uintptr_t)last);
    team_join(&team, JOIN_S);
    team_free(&team);
    checks_end();
}

static void last_collectives(const char *transport)
{
    uint64_t seed = first_seed() * 1000;
    unsigned long repeats = repeat_count(soaking() ? SOAK_REPEATS : 1);
    for (unsigned long i = 0; i < repeats; i++) {
        watchdog(600 * (unsigned)slow_factor(), "last collectives");
        for (int kind = 0; kind < KIND_COUNT; kind++)
            for (int algo = 0; algo < ALGOS; algo++) {
                if (!kind_is_done_by((enum kind)kind, (enum hearth_algo)algo))
                    continue;
                struct last last = {(enum kind)kind, (enum hearth_algo)algo, ++seed, NOBODY};
                bool late = draw_below(&(uint64_t){seed}, 2);
                if (soaking() || !late)
                    run_last(&last, transport);
                last.late = (int)draw_below(&(uint64_t){seed + 1}, MEMBERS);
                if (soaking() || late)
                    run_last(&last, transport);
            }
    }
}

TEST(test_shm)
{
    last_collectives("shm");
}

TEST(test_tcp)
{
    last_collectives("tcp");
}

TEST(test_plain)
{
    last_collectives("plain");
}

TEST(test_quic)
{
    last_collectives("quic");
}

/* ---- what comes after it ---- */

#define LEAVER (MEMBERS - 1) /* at the end of chains: who begins one has nothing to do with it */

/* Waits until the one that leaves has gone, then calls. */
static void after_member(struct team *team, int rank, void *arg)
{
    enum hearth_algo algo = *(const enum hearth_algo *)arg;
    struct note *leaver = &team->board->notes[LEAVER];
    struct hearth_opts opts;
    float x[3] = {1, 2, 3};
    hearth_node *node = member_open();
    if (!node)
        return;
    hearth_opts_init(&opts);
    check_ok(hearth_broadcast(hearth_node_world(node), x, 3, HEARTH_F32, LEAVER, NULL));
    if (rank == LEAVER) {
        hearth_node_close(node);
        atomic_store(&leaver->close_ns, 1);
        return;
    }
    while (atomic_load(&leaver->close_ns) == 0)
        sleep_ms(1);
    opts.algo = algo;
    for (int i = 0; i < 3; i++) {
        int status = hearth_broadcast(hearth_node_world(node), x, 3, HEARTH_F32, 0, &opts);
        check(status == HEARTH_GROUP_BROKEN && names_rank(hearth_error_text(), LEAVER),
              "rank %d by %s: %s: %s", rank, hearth_algo_name(algo), hearth_status_name(status),
              hearth_error_text());
        check_text(hearth_error_text(), "has left");
    }
    hearth_node_close(node);
}

/* Who has left takes part in nothing more: the others hear it at once, also those that would not have waited
 * for it. */
TEST(test_later_calls_are_refused)
{
    const enum hearth_algo algos[] = {HEARTH_ALGO_RING, HEARTH_ALGO_TREE, HEARTH_ALGO_STAR};
    const char *const transports[] = {"shm", "tcp", "plain", "quic"};
    for (int i = 0; i < 12; i++) {
        struct team team;
        enum hearth_algo algo = algos[i % 3];
        watchdog(120 * (unsigned)slow_factor(), "later calls");
        team_start(&team, MEMBERS, transports[i / 3], after_member, &algo);
        team_join(&team, JOIN_S);
        team_free(&team);
        checks_end();
    }
}

/* ---- made of several operations ---- */

#define COMPRESSED_COUNT 20000

static void compressed_member(struct team *team, int rank, void *arg)
{
    const struct last *last = arg;
    float *x = must_alloc(COMPRESSED_COUNT * sizeof *x);
    hearth_node *node = member_open();
    if (!node)
        return;
    for (int i = 0; i < COMPRESSED_COUNT; i++)
        x[i] = 1;
    if (rank == last->late)
        wait_for_others(team, rank);
    int status = hearth_all_reduce_compressed(hearth_node_world(node), x, COMPRESSED_COUNT, HEARTH_F32,
                                              HEARTH_OP_SUM, last->seed % 2 ? "int8" : "topk:1", NULL, NULL);
    check(status == HEARTH_OK, "rank %d over %s: %s: %s", rank, team->transport, hearth_status_name(status),
          hearth_error_text());
    for (int i = 0; status == HEARTH_OK && i < COMPRESSED_COUNT; i++)
        if (x[i] < MEMBERS * 0.99F || x[i] > MEMBERS * 1.01F) {
            check(false, "rank %d: element %d is %g", rank, i, (double)x[i]);
            break;
        }
    hearth_node_close(node);
    atomic_store(&team->board->notes[rank].close_ns, 1);
    free(x);
}

TEST(test_compressed)
{
    const char *const transports[] = {"shm", "tcp", "plain", "quic"};
    unsigned long repeats = repeat_count(soaking() ? SOAK_REPEATS : 2);
    for (unsigned long i = 0; i < 4 * repeats; i++) {
        struct team team;
        struct last last = {.seed = i / 4, .late = i % 2 ? (int)(i / 4 % MEMBERS) : NOBODY};
        watchdog(120 * (unsigned)slow_factor(), "compressed");
        team_start(&team, MEMBERS, transports[i % 4], compressed_member, &last);
        team_join(&team, JOIN_S);
        team_free(&team);
        checks_end();
    }
}
