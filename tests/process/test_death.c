/* SPDX-License-Identifier: Apache-2.0 */
/* A member is killed, frozen or closes while the others work or rest: every other one gets an error that
 * names it, the group is broken from then on, everybody can close and end, and nothing is left behind. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process/death.h"
#include "support/watchdog.h"

#define COUNT_MAX     (1u << 18)
#define STRIKE_US_MAX 8000

/* ---- members ---- */

static void calls_after(hearth_group *world, const struct death *d, struct note *note)
{
    float x = 1;
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.timeout_ms = CLOSED_MS_MAX * slow_factor();
    for (int i = 0; i < 3; i++) {
        note->later = i == 2 ? hearth_barrier(world, &opts)
                             : hearth_all_reduce(world, &x, &x, 1, HEARTH_F32, HEARTH_OP_SUM, &opts);
        snprintf(note->later_text, sizeof note->later_text, "%s", hearth_error_text());
        check(hearth_status_scope(note->later) == HEARTH_SCOPE_GROUP &&
                  names_rank(note->later_text, d->victim),
              "seed %llu: call %d after the end of rank %d: %s: %s", (unsigned long long)d->seed, i,
              d->victim, hearth_status_name(note->later), note->later_text);
    }
}

/* Works until it fails; who is to close, until it is time. Sizes are drawn, the same on all. */
static void work(struct team *team, hearth_group *world, float *buffer, const struct death *d)
{
    struct note *note = &team->board->notes[hearth_group_rank(world)];
    bool closes = d->signal == 0 && hearth_group_rank(world) == d->victim;
    uint64_t seed = d->seed;
    int status = HEARTH_OK;
    while (!closes || !atomic_load(&team->board->stop)) {
        size_t count = (size_t)1 << draw_below(&seed, 19);
        buffer[0] = buffer[count - 1] = 1;
        status = hearth_all_reduce(world, buffer, buffer, count, HEARTH_F32, HEARTH_OP_SUM, NULL);
        if (status != HEARTH_OK)
            break;
        check(buffer[0] == (float)hearth_group_size(world) && buffer[count - 1] == buffer[0],
              "seed %llu: the sum of ones is %g", (unsigned long long)d->seed, (double)buffer[0]);
        if (atomic_fetch_add(&note->rounds, 1) == 2)
            atomic_store(&note->ready, true);
    }
    note_failed(note, status);
}

/* All but the victim wait outside of Hearth, then call. */
static void rest(struct team *team, hearth_group *world, float *buffer, struct note *note)
{
    atomic_store(&note->ready, true);
    while (!atomic_load(&team->board->go))
        sleep_ms(1);
    note_failed(note, hearth_all_reduce(world, buffer, buffer, 1000, HEARTH_F32, HEARTH_OP_SUM, NULL));
}

static void victim_waits(struct team *team, struct note *note)
{
    atomic_store(&note->ready, true);
    while (!atomic_load(&team->board->stop))
        sleep_ms(1);
}

/* A child like a data loader's: it knows nothing of Hearth, and outlives its parent by a while. */
static void leave_child(struct team *team)
{
    pid_t pid = fork();
    check(pid >= 0, "no child: %s", strerror(errno));
    if (pid != 0)
        return;
    for (int i = 0; i < 3000 && !atomic_load(&team->board->over); i++)
        sleep_ms(10);
    _exit(0);
}

static void member(struct team *team, int rank, void *arg)
{
    const struct death *d = arg;
    struct note *note = &team->board->notes[rank];
    death_expect(d);
    hearth_node *node = member_open();
    if (!node)
        return;
    if (d->parent && rank == d->victim)
        leave_child(team);
    hearth_group *world = hearth_node_world(node);
    float *own = calloc(COUNT_MAX, sizeof *own), *buffer = own;
    if (d->shared)
        buffer = hearth_mem_alloc(node, COUNT_MAX * sizeof *buffer);
    if (rank == d->victim && d->resting)
        victim_waits(team, note);
    else if (d->resting)
        rest(team, world, buffer, note);
    else
        work(team, world, buffer, d);
    if (rank != d->victim)
        calls_after(world, d, note);
    death_close(node, note);
    free(own);
}

/* ---- the test's side ---- */

/* A connection of quic ends by itself when a peer is silent. */
static bool reason_fits(const struct team *team, const struct death *d, enum hearth_reason reason)
{
    if (d->signal == SIGSTOP && strcmp(team->transport, "quic") == 0 && reason == HEARTH_REASON_PEER_CLOSED)
        return true;
    return reason == (d->signal == SIGSTOP   ? HEARTH_REASON_PEER_SILENT
                      : d->signal == SIGKILL ? HEARTH_REASON_PEER_CLOSED
                                             : HEARTH_REASON_PEER_LEFT);
}

static void notes_check(const struct trial *s)
{
    const struct team *team = &s->team;
    const struct death *d = &s->death;
    for (int rank = 0; rank < team->size; rank++) {
        const struct note *note = &team->board->notes[rank];
        enum hearth_scope scope = hearth_status_scope(note->status);
        if (rank == d->victim)
            continue;
        check((note->status == HEARTH_PEER_LOST || note->status == HEARTH_ABORTED ||
               scope == HEARTH_SCOPE_GROUP) &&
                  reason_fits(team, d, note->reason) && names_rank(note->text, d->victim),
              "seed %llu, %s: rank %d of %d got %s, %s, and not of rank %d: %s", (unsigned long long)d->seed,
              team->transport, rank, team->size, hearth_status_name(note->status),
              hearth_reason_name(note->reason), d->victim, note->text);
    }
    if (d->signal == SIGSTOP && !d->resting)
        check(team->board->notes[d->victim].status != HEARTH_OK,
              "rank %d was frozen and given up, but does not know", d->victim);
}

/* Where the system does not tell of closed ports, who is killed is found by silence in quic: later than these
 * trials allow. */
#if defined(HEARTH_POSIX)
#define QUIC_IF_TOLD "tcp"
#else
#define QUIC_IF_TOLD "quic"
#endif

static struct trial_plan plan_of(const char *what, unsigned long usual, unsigned long soak)
{
    static const char *const transports[] = {"tcp", "shm", QUIC_IF_TOLD, "plain"};
    return (struct trial_plan){.what = what,
                               .member = member,
                               .inspect = notes_check,
                               .transports = transports,
                               .transport_count = 4,
                               .size_max = 5,
                               .strike_us_max = STRIKE_US_MAX,
                               .count = repeat_count(soaking() ? soak : usual),
                               .together = 1};
}

static void play(const char *what, struct death death, unsigned long usual, unsigned long soak)
{
    struct trial_plan plan = plan_of(what, usual, soak);
    scenes_play(&plan, death);
}

/* ---- tests ---- */

TEST(test_killed_in_an_operation)
{
    play("killed", (struct death){.signal = SIGKILL}, 24, 200);
}

TEST(test_killed_while_all_rest)
{
    play("killed at rest", (struct death){.signal = SIGKILL, .resting = true}, 8, 100);
}

TEST(test_killed_with_a_child)
{
    play("killed with a child", (struct death){.signal = SIGKILL, .parent = true}, 4, 100);
}

TEST(test_closed_while_others_work)
{
    play("closed", (struct death){0}, 8, 100);
}

TEST(test_closed_while_all_rest)
{
    play("closed at rest", (struct death){.resting = true}, 8, 100);
}

static void play_frozen(const char *what, bool resting, unsigned long usual, unsigned long soak)
{
    static const char *const transports[] = {"tcp", "shm", "quic", "plain"};
    struct trial_plan plan = plan_of(what, usual, soak);
    plan.transports = transports;
    plan.together = 4;
    scenes_play(&plan, (struct death){.signal = SIGSTOP, .resting = resting});
}

TEST(test_frozen_in_an_operation)
{
    play_frozen("frozen", false, 8, 200);
}

TEST(test_frozen_while_all_rest)
{
    play_frozen("frozen at rest", true, 4, 40);
}

/* ---- what is left ---- */

static int count_names(const char *directory, const char *prefix)
{
    int count = 0;
    DIR *dir = opendir(directory);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    if (dir)
        closedir(dir);
    return count;
}

static char meeting[64]; /* a directory for a socket with a name */

static void member_at_path(struct team *team, int rank, void *arg)
{
    char path[96];
    snprintf(path, sizeof path, "unix:%s/socket", meeting);
    setenv("HEARTH_RENDEZVOUS", path, 1);
    member(team, rank, arg);
}

/* Other runs of Hearth on this machine may come and go, so this may need a second look. */
TEST(test_nothing_is_left)
{
    snprintf(meeting, sizeof meeting, "/tmp/hearth-test-XXXXXX");
    assert_non_null(mkdtemp(meeting));
    watchdog(120 * (unsigned)slow_factor(), "what is left");
    struct trial s = {.death = {.seed = 1, .signal = SIGKILL}};
    s.death.victim = 0; /* it opened the rendezvous */
    s.death.shared = true;
    struct trial_plan plan = plan_of("what is left", 1, 1);
    double worst[2] = {0};
    team_start(&s.team, 3, "shm", member_at_path, &s.death);
    trial_strike(&s, STRIKE_US_MAX);
    trial_end(&s, &plan, worst);
    checks_end();
    int left = 1;
    for (int i = 0; i < 500 && left > 0; i++, sleep_ms(10))
        left = count_names("/dev/shm", "hearth");
    assert_int_equal(left, 0);
    assert_int_equal(count_names(meeting, "socket"), 0);
    assert_int_equal(rmdir(meeting), 0);
}

int main(void)
{
#if defined(HEARTH_POSIX)
    print_message("quic is left out where a member is killed: the system does not tell of closed ports\n");
#endif
    return suite_run();
}
