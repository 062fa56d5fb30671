/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers at the port, while members compute, rest and open: random bytes, halves of greetings, huge
 * lengths, a trickle, resets, a thousand that say nothing. Members are not disturbed, need no more memory,
 * and send them away. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "process/team.h"
#include "support/ports.h"
#include "support/watchdog.h"

#define MEMBERS        3
#define COUNT          20000
#define SILENT         1000
#define GROWTH_KB_MAX  (16 * 1024)
#define PATIENCE_MS    20000 /* strangers have 5 s to greet */
#define GREETING_START "HG\x01\x01"

/* ---- members ---- */

/* Goes on until told to stop; the members agree about the last round, as they agree about sums. */
static void compute(struct team *team, hearth_group *world, struct note *note)
{
    int32_t *x = must_alloc(COUNT * sizeof *x);
    int32_t size = hearth_group_size(world), stop = 0;
    bool good = true;
    while (good && stop == 0) {
        for (int32_t i = 0; i < COUNT; i++)
            x[i] = i + hearth_group_rank(world);
        good = check_ok(sum_in_place(world, x, COUNT, NULL));
        for (int32_t i = 0; good && i < COUNT; i++)
            good = check(x[i] == size * i + size * (size - 1) / 2, "element %d is %d", i, x[i]);
        stop = atomic_load(&team->board->stop);
        good = good && check_ok(hearth_all_reduce(world, &stop, &stop, 1, HEARTH_I32, HEARTH_OP_MAX, NULL));
        atomic_fetch_add(&note->rounds, 1);
    }
    free(x);
}

static void member(struct team *team, int rank, void *arg)
{
    const uint16_t *ports = arg;
    struct note *note = &team->board->notes[rank];
    setenv("HEARTH_OPEN_TIMEOUT_MS", "60000", 1);
    if (ports) {
        char place[32];
        set_number_env("HEARTH_PORT", ports[1 + rank]);
        snprintf(place, sizeof place, "127.0.0.1:%u", ports[0]);
        setenv("HEARTH_RENDEZVOUS", place, 1);
        setenv("HEARTH_SECRET", TEAM_SECRET, 1);
        while (rank == MEMBERS - 1 &&
               !atomic_load(&team->board->go)) /* the others are opening till it comes */
            sleep_ms(1);
    }
    hearth_node *node = member_open();
    if (!node)
        return;
    note->port = listening_port();
    check(note->port != 0, "rank %d listens nowhere", rank);
    int32_t warm = 0;
    check_ok(sum_in_place(hearth_node_world(node), &warm, 1, NULL));
    while (!ports && !atomic_load(&team->board->go)) {
        atomic_store(&note->ready, true);
        sleep_ms(1);
    }
    atomic_store(&note->ready, true);
    compute(team, hearth_node_world(node), note);
    note->value = (double)peak_kb();
    hearth_node_close(node);
}

/* ---- strangers ---- */

static int dial(uint16_t port)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof addr) != 0) {
        close(fd);
        fd = -1;
    }
    if (fd >= 0)
        fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void say(int fd, const void *bytes, size_t len)
{
    (void)!send(fd, bytes, len, MSG_NOSIGNAL); /* it may have closed already, which is fine */
}

/* Sent away: the other end closed. */
static bool sent_away(int fd, int timeout_ms)
{
    uint64_t deadline = now_ns() + (uint64_t)timeout_ms * 1000000u;
    for (;;) {
        char bytes[256];
        ssize_t len = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (len == 0 || (len < 0 && errno != EAGAIN && errno != EINTR))
            return true;
        if (now_ns() >= deadline)
            return false;
        poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 100);
    }
}

static void reset(int fd)
{
    struct linger now = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

static void visit_random(uint16_t port, uint64_t *seed)
{
    uint8_t bytes[4096];
    int fd = dial(port);
    if (fd < 0)
        return;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)draw(seed);
    say(fd, bytes, 1 + draw_below(seed, sizeof bytes));
    close(fd);
}

/* A whole greeting (or frame) but for what matters. */
static void visit_forged(uint16_t port, uint64_t *seed)
{
    uint8_t bytes[64];
    int fd = dial(port);
    if (fd < 0)
        return;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = draw(seed) & 1 ? 0xff : (uint8_t)draw(seed); /* huge lengths among them */
    memcpy(bytes, draw(seed) & 1 ? GREETING_START : "HF\x01\x01", 4);
    say(fd, bytes, draw(seed) & 1 ? sizeof bytes : 1 + draw_below(seed, sizeof bytes));
    if (draw(seed) & 1)
        reset(fd);
    else
        close(fd);
}

struct flood {
    int silent[SILENT], half, trickle;
};

/* Port by turns. False: too few descriptors for it. */
static void flood_begin(struct flood *f, const uint16_t *ports, int count)
{
    uint8_t half[31] = GREETING_START;
    for (int i = 0; i < SILENT; i++)
        f->silent[i] = dial(ports[i % count]);
    f->half = dial(ports[0]);
    f->trickle = dial(ports[count - 1]);
    say(f->half, half, sizeof half);
}

static void flood_end(struct flood *f)
{
    for (int i = 0; i < SILENT; i++)
        if (f->silent[i] >= 0)
            close(f->silent[i]);
    close(f->half);
    close(f->trickle);
}

/* Everything that is still there after the patience is a failed check. */
static void flood_check(struct flood *f)
{
    uint64_t begin = now_ns();
    int dialled = 0, left = 0;
    const char *start = GREETING_START;
    for (int i = 0; i < 24 && !sent_away(f->trickle, 250); i++) /* a byte now and then */
        say(f->trickle, i < 4 ? start + i : "\0", 1);
    check(sent_away(f->trickle, PATIENCE_MS), "a trickle of bytes is listened to for ever");
    check(sent_away(f->half, PATIENCE_MS), "half a greeting is waited for for ever");
    for (int i = 0; i < SILENT; i++) {
        dialled += f->silent[i] >= 0;
        left += f->silent[i] >= 0 && !sent_away(f->silent[i], left == 0 ? PATIENCE_MS : 1);
    }
    check(dialled > SILENT / 2, "only %d of %d strangers could connect", dialled, SILENT);
    check(left == 0, "%d of %d silent strangers were not sent away", left, dialled);
    print_message("  %d strangers, the last sent away after %.1f s\n", dialled + 2,
                  (double)(now_ns() - begin) / 1e9);
}

static void visits(const uint16_t *ports, int count, int number, uint64_t seed)
{
    for (int i = 0; i < number; i++) {
        visit_random(ports[i % count], &seed);
        visit_forged(ports[(i + 1) % count], &seed);
        int fd = dial(ports[i % count]);
        if (fd >= 0)
            reset(fd);
    }
}

static void more_descriptors(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < SILENT + 100) {
        print_message("skipped: a process may have only %llu descriptors\n",
                      (unsigned long long)limit.rlim_cur);
        skip();
    }
}

static void rounds_check(struct team *team, const uint64_t *before)
{
    for (int i = 0; i < MEMBERS; i++)
        check(atomic_load(&team->board->notes[i].rounds) > before[i], "rank %d did not go on computing", i);
}

static double peak_without_strangers(void)
{
    struct team team;
    double most = 0;
    team_start(&team, MEMBERS, "tcp", member, NULL);
    if (team_ready(&team, 30)) {
        atomic_store(&team.board->go, true);
        while (atomic_load(&team.board->notes[0].rounds) < 50 && !checks_failed())
            sleep_ms(1);
    }
    atomic_store(&team.board->stop, true);
    team_join(&team, 30);
    for (int i = 0; i < MEMBERS; i++)
        most = team.board->notes[i].value > most ? team.board->notes[i].value : most;
    team_free(&team);
    return most;
}

static void memory_check(const struct team *team, double peak)
{
    for (int i = 0; i < team->size; i++) {
        double grown = team->board->notes[i].value - peak;
        print_message("  rank %d: %.0f KiB more than without strangers\n", i, grown);
        /* Sanitizers keep what was freed. */
        check(grown < GROWTH_KB_MAX * slow_factor(), "rank %d needed %.0f KiB more because of strangers", i,
              grown);
    }
}

static void flooded(bool computing)
{
    struct team team;
    struct flood flood;
    uint16_t ports[MEMBERS];
    uint64_t before[MEMBERS];
    watchdog(150 * (unsigned)slow_factor(), "strangers");
    more_descriptors();
    double peak = peak_without_strangers();
    team_start(&team, MEMBERS, "tcp", member, NULL);
    if (team_ready(&team, 30)) {
        for (int i = 0; i < MEMBERS; i++)
            ports[i] = team.board->notes[i].port;
        atomic_store(&team.board->go, computing);
        visits(ports, MEMBERS, 300, first_seed());
        flood_begin(&flood, ports, MEMBERS);
        visits(ports, MEMBERS, 50, first_seed() + 1);
        for (int i = 0; i < MEMBERS; i++)
            before[i] = atomic_load(&team.board->notes[i].rounds);
        flood_check(&flood);
        atomic_store(&team.board->go, true);
        for (int i = 0; i < 5000 && atomic_load(&team.board->notes[0].rounds) < before[0] + 2; i++)
            sleep_ms(1);
        rounds_check(&team, before);
        flood_end(&flood);
    }
    atomic_store(&team.board->go, true);
    atomic_store(&team.board->stop, true);
    team_join(&team, 30);
    memory_check(&team, peak);
    team_free(&team);
    checks_end();
}

TEST(test_strangers_while_members_compute)
{
    flooded(true);
}

TEST(test_strangers_while_members_rest)
{
    flooded(false);
}

/* The rendezvous and the members' ports are visited while one member is still missing, and while it comes. */
TEST(test_strangers_while_members_open)
{
    struct team team;
    struct flood flood;
    uint16_t ports[1 + MEMBERS];
    watchdog(150 * (unsigned)slow_factor(), "strangers while opening");
    more_descriptors();
    for (int i = 0; i < 1 + MEMBERS; i++)
        ports[i] = free_port();
    team_start(&team, MEMBERS, "tcp", member, ports);
    for (int i = 0; i < 2; i++) /* not the last one, which is not there yet */
        for (int wait = 0, fd = -1; fd < 0 && wait < 10000; wait++) {
            fd = dial(ports[i]);
            if (fd >= 0)
                close(fd);
            else
                sleep_ms(1);
        }
    flood_begin(&flood, ports, 3);
    visits(ports, 3, 100, first_seed());
    atomic_store(&team.board->go, true);
    visits(ports, 1 + MEMBERS, 100, first_seed() + 1);
    team_ready(&team, 60);
    atomic_store(&team.board->stop, true);
    team_join(&team, 30);
    flood_end(&flood);
    team_free(&team);
    checks_end();
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    return suite_run();
}
