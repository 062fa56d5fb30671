/* SPDX-License-Identifier: Apache-2.0 */
/* Many members with as many connections as there can be between two, all encrypted: they find together, none
 * is taken for a stranger, sums are right, and a connection at rest costs little. `test_crowd 32` is a crowd
 * of 32; the soak has 64. */
#include <sys/resource.h>

#include "process/team.h"
#include "support/watchdog.h"

#define USUAL       12
#define SANITIZED   5
#define SOAKING     64
#define CONNECTIONS 9 /* of a pair: control, and eight for data */
#define COUNT       100003
#define ROUNDS      2
#define DEADLINE_S  900 /* only against hanging: it is all on one machine, whose processors are few */
#define FILES_MORE  512 /* than connections: those that are not joined yet, and the process's own */
/* Memory of a node that rests: what does not depend on connections, and for each. */
#define NODE_BYTES ((uint64_t)8 << 20)
#define EACH_BYTES ((uint64_t)16 << 10)

static int crowd = USUAL;

static int64_t element(int rank, size_t i, int round)
{
    return (int64_t)(i % 1009) * (rank + 1) + round;
}

/* Rings, then pieces from everyone to everyone. */
static void sum(hearth_group *world, int round, int64_t *x)
{
    int rank = hearth_group_rank(world), size = hearth_group_size(world);
    int64_t ranks = (int64_t)size * (size + 1) / 2;
    struct hearth_opts opts = opts_default();
    size_t bad = 0;
    for (size_t i = 0; i < COUNT; i++)
        x[i] = element(rank, i, round);
    opts.algo = round % 2 == 0 ? HEARTH_ALGO_RING : HEARTH_ALGO_DIRECT;
    check_ok(hearth_all_reduce(world, x, x, COUNT, HEARTH_I64, HEARTH_OP_SUM, &opts));
    for (size_t i = 0; i < COUNT; i++)
        bad += x[i] != (int64_t)(i % 1009) * ranks + (int64_t)size * round;
    check(bad == 0, "rank %d of %d: %zu sums of %d are wrong in round %d", rank, size, bad, COUNT, round);
}

/* Of the node, once it is at rest: what a rush needed goes when the node sleeps. */
static uint64_t memory_at_rest(hearth_node *node, uint64_t enough)
{
    uint64_t bytes, deadline = now_ns() + 30u * 1000000000ull;
    while ((bytes = metric(node, "hearth_memory_bytes")) > enough && now_ns() < deadline)
        sleep_ms(10);
    return bytes;
}

/* No member may be taken for a stranger, or be put off. */
static void hear(void *arg, enum hearth_log_level level, const char *id, const char *text)
{
    if (strcmp(id, "HEARTH-STRANGER") == 0 || strcmp(id, "HEARTH-BUSY") == 0 ||
        strcmp(id, "HEARTH-NO-ACCEPT") == 0)
        check(false, "rank %d says: %s: %s", *(const int *)arg, id, text);
}

static void member(struct team *team, int rank, void *arg)
{
    struct note *note = &team->board->notes[rank];
    uint64_t enough = NODE_BYTES + EACH_BYTES * CONNECTIONS * (uint64_t)(team->size - 1);
    struct hearth_config config;
    hearth_node *node = NULL;
    set_number_env("HEARTH_CONNECTIONS", CONNECTIONS - 1);
    set_number_env("HEARTH_OPEN_TIMEOUT_MS", DEADLINE_S * 1000L);
    set_number_env("HEARTH_OP_TIMEOUT_MS", DEADLINE_S * 1000L);
    setenv("HEARTH_SECRET", TEAM_SECRET, 1);
    hearth_config_init(&config);
    check_ok(hearth_config_env(&config));
    config.log = hear;
    config.log_arg = &rank;
    uint64_t begin = now_ns();
    if (!check_ok(hearth_node_open(&config, &node)))
        return;
    note->value = (double)(now_ns() - begin) / 1e9;
    int64_t *x = must_alloc(COUNT * sizeof *x);
    for (int i = 0; i < ROUNDS; i++)
        sum(hearth_node_world(node), i, x);
    free(x);
    check_ok(hearth_barrier(hearth_node_world(node), NULL));
    uint64_t bytes = memory_at_rest(node, enough);
    check(bytes <= enough, "rank %d of %d has %llu bytes at rest, %llu are enough", rank, team->size,
          (unsigned long long)bytes, (unsigned long long)enough);
    atomic_store(&note->rounds, bytes);
    check_ok(hearth_barrier(hearth_node_world(node), NULL));
    hearth_node_close(node);
}

/* Whether each member may have so many files open. */
static bool files_allowed(rlim_t count)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return false;
    if (files.rlim_cur < count)
        files.rlim_cur = files.rlim_max < count ? files.rlim_max : count;
    return files.rlim_cur >= count && setrlimit(RLIMIT_NOFILE, &files) == 0;
}

TEST(test_crowd)
{
    struct team team;
    double opened = 0;
    uint64_t most = 0;
    int each = CONNECTIONS * (crowd - 1);
    if (!files_allowed((rlim_t)each + FILES_MORE)) {
        print_message("skipped: a process may not open %d files (ulimit -n)\n", each + FILES_MORE);
        skip();
    }
    watchdog(2 * DEADLINE_S, "a crowd");
    team_start(&team, crowd, "tcp", member, NULL);
    team_join(&team, DEADLINE_S);
    for (int i = 0; i < crowd; i++) {
        const struct note *note = &team.board->notes[i];
        opened = note->value > opened ? note->value : opened;
        most = atomic_load(&note->rounds) > most ? atomic_load(&note->rounds) : most;
    }
    print_message("%d members, %d connections each: open after %.1f s, at most %.1f MB each at rest\n", crowd,
                  each, opened, (double)most / 1e6);
    team_free(&team);
    checks_end();
}

int main(int argc, char **argv)
{
    if (slow_factor() > 1)
        crowd = SANITIZED;
    else if (soaking())
        crowd = SOAKING;
    if (argc > 1)
        crowd = (int)strtol(argv[1], NULL, 10);
    if (crowd < 2 || crowd > TEAM_MAX) {
        fprintf(stderr, "a crowd has 2 to %d members\n", TEAM_MAX);
        return 2;
    }
    return suite_run();
}
