/* SPDX-License-Identifier: Apache-2.0 */
/* What a member costs that does nothing: processor time and threads. */
#include <dirent.h>
#include <sys/resource.h>

#include "process/team.h"
#include "support/watchdog.h"

#define MEMBERS     4
#define IDLE_MS     2000
#define THREADS_MAX 4
#define PERCENT_MAX 5 /* the target is 1; this much tells a loop from a slow machine */

static double cpu_ms(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

/* 0 where the system does not show them. */
static int threads(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return count;
}

static void member(struct team *team, int rank, void *arg)
{
    struct note *note = &team->board->notes[rank];
    hearth_node *node = member_open();
    if (!node)
        return;
    check_ok(hearth_barrier(hearth_node_world(node), NULL));
    int count = threads() - (under_tsan() ? 1 : 0); /* it has one of its own */
    check(count <= THREADS_MAX, "rank %d has %d threads", rank, count);
    uint64_t begin = now_ns();
    double before = cpu_ms();
    sleep_ms(IDLE_MS);
    note->value = (cpu_ms() - before) / ((double)(now_ns() - begin) / 1e6) * 100;
    check(note->value < PERCENT_MAX * slow_factor(), "rank %d does nothing, with %.2f %% of a core", rank,
          note->value);
    atomic_store(&note->rounds, (uint64_t)count);
    check_ok(hearth_barrier(hearth_node_world(node), NULL));
    hearth_node_close(node);
}

static void idle(const char *transport)
{
    struct team team;
    double most = 0;
    watchdog(60 * (unsigned)slow_factor(), "idle");
    team_start(&team, MEMBERS, transport, member, NULL);
    team_join(&team, 30);
    for (int i = 0; i < MEMBERS; i++)
        most = team.board->notes[i].value > most ? team.board->notes[i].value : most;
    print_message("%s: %d threads, at most %.3f %% of a core at rest\n", transport,
                  (int)atomic_load(&team.board->notes[0].rounds), most);
    team_free(&team);
    checks_end();
}

TEST(test_tcp)
{
    idle("tcp");
}

TEST(test_shm)
{
    idle("shm");
}

TEST(test_quic)
{
    idle("quic");
}

/* One waits in an operation for a member that comes late: it sleeps too. */
static void waiting_member(struct team *team, int rank, void *arg)
{
    struct note *note = &team->board->notes[rank];
    hearth_node *node = member_open();
    if (!node)
        return;
    double before = cpu_ms();
    uint64_t begin = now_ns();
    if (rank == 0)
        sleep_ms(IDLE_MS);
    check_ok(hearth_barrier(hearth_node_world(node), NULL));
    note->value = (cpu_ms() - before) / ((double)(now_ns() - begin) / 1e6) * 100;
    check(note->value < PERCENT_MAX * slow_factor(), "rank %d waits with %.2f %% of a core", rank,
          note->value);
    hearth_node_close(node);
}

TEST(test_waiting)
{
    static const char *const transports[] = {"tcp", "shm", "quic"};
    for (int t = 0; t < 3; t++) {
        struct team team;
        double most = 0;
        watchdog(60 * (unsigned)slow_factor(), "waiting");
        team_start(&team, MEMBERS, transports[t], waiting_member, NULL);
        team_join(&team, 30);
        for (int i = 0; i < MEMBERS; i++)
            most = team.board->notes[i].value > most ? team.board->notes[i].value : most;
        print_message("%s: at most %.3f %% of a core while waiting\n", transports[t], most);
        team_free(&team);
        checks_end();
    }
}
