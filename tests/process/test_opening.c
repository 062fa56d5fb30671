/* SPDX-License-Identifier: Apache-2.0 */
/* Opening between real processes, and what can be wrong with it: every member says what, and with whom. */
#define _GNU_SOURCE /* unshare */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "process/team.h"
#include "support/ports.h"
#include "support/watchdog.h"

#define VARIABLES_MAX 5
#define OPEN_MS       2000
#define JOIN_S        30

enum { ANY_ERROR = 1 };

/* What one member has in its environment besides, and what must come of its hearth_node_open. */
struct role {
    const char *set[VARIABLES_MAX]; /* NAME=value; NAME alone takes it away; $A and $B are free ports */
    int status;           /* HEARTH_OK: it opens, and its rank is its place; ANY_ERROR: some error */
    const char *words[3]; /* that the error says */
    bool waits;           /* the error comes when time is up, and that is to be soon */
    rlim_t files;         /* that it may have open; 0: as many as we */
};

struct play {
    int size;
    struct role roles[4];
    uint16_t ports[2]; /* filled by play_run */
};

/* ---- members ---- */

static void put_value(const char *from, const uint16_t ports[2], char *to, size_t size)
{
    size_t len = 0;
    to[0] = '\0';
    for (; *from != '\0' && len + 8 < size; from++) {
        if (from[0] == '$' && (from[1] == 'A' || from[1] == 'B'))
            len += (size_t)snprintf(to + len, size - len, "%u", ports[*++from - 'A']);
        else
            len += (size_t)snprintf(to + len, size - len, "%c", *from);
    }
}

static void apply(const struct role *role, const uint16_t ports[2])
{
    for (int i = 0; i < VARIABLES_MAX && role->set[i]; i++) {
        char name[64], value[256];
        size_t len = strcspn(role->set[i], "=");
        snprintf(name, sizeof name, "%.*s", (int)len, role->set[i]);
        if (role->set[i][len] == '\0') {
            unsetenv(name);
            continue;
        }
        put_value(role->set[i] + len + 1, ports, value, sizeof value);
        setenv(name, value, 1);
    }
}

static void works(hearth_node *node, int rank, int size)
{
    hearth_group *world = hearth_node_world(node);
    int64_t sum = 1;
    check(hearth_group_size(world) == size && (rank < 0 || hearth_group_rank(world) == rank),
          "it is rank %d of %d, not %d of %d", hearth_group_rank(world), hearth_group_size(world), rank,
          size);
    check_ok(hearth_all_reduce(world, &sum, &sum, 1, HEARTH_I64, HEARTH_OP_SUM, NULL));
    check(sum == size, "the sum over %d is %lld", size, (long long)sum);
}

static void member(struct team *team, int rank, void *arg)
{
    const struct play *play = arg;
    const struct role *role = &play->roles[rank];
    struct note *note = &team->board->notes[rank];
    hearth_node *node = NULL;
    set_number_env("HEARTH_OPEN_TIMEOUT_MS", role->waits ? OPEN_MS : 10 * OPEN_MS * slow_factor());
    setenv("HEARTH_SECRET", TEAM_SECRET, 1);
    apply(role, play->ports);
    if (role->files > 0)
        check(setrlimit(RLIMIT_NOFILE, &(struct rlimit){role->files, role->files}) == 0,
              "the system allows no less files");
    uint64_t begin = now_ns();
    int status = hearth_node_open(NULL, &node);
    note_failed(note, status);
    note->value = (double)(note->failed_ns - begin) / 1e6;
    if (status == HEARTH_OK && role->status == HEARTH_OK)
        works(node, getenv("HEARTH_RANK") ? rank : -1, play->size);
    hearth_node_close(node);
}

/* A rank whose role is to be missing. */
static const char absent[] = "absent";

static void member_or_absent(struct team *team, int rank, void *arg)
{
    const struct play *play = arg;
    if (play->roles[rank].set[0] != absent)
        member(team, rank, arg);
}

/* ---- the test's side ---- */

static char last_text[TEAM_MAX][TEXT_MAX]; /* of the last play, for checks that a role cannot say */

static void role_check(const struct team *team, const struct play *play, int rank)
{
    const struct role *role = &play->roles[rank];
    const struct note *note = &team->board->notes[rank];
    if (role->set[0] == absent)
        return;
    print_message("  rank %d after %.0f ms: %s: %s\n", rank, note->value, hearth_status_name(note->status),
                  note->status == HEARTH_OK ? "" : note->text);
    if (role->status == ANY_ERROR)
        check(note->status < 0, "rank %d opened, which it should not", rank);
    else
        check(note->status == role->status, "rank %d: %s, not %s: %s", rank, hearth_status_name(note->status),
              hearth_status_name(role->status), note->text);
    for (int i = 0; i < 3 && role->words[i]; i++)
        check(strstr(note->text, role->words[i]), "rank %d: \"%s\" does not say \"%s\"", rank, note->text,
              role->words[i]);
    check(note->value < 10 * OPEN_MS * slow_factor(), "rank %d needed %.0f ms", rank, note->value);
}

static void play_run(struct play *play, const char *transport)
{
    struct team team;
    watchdog(3 * JOIN_S * (unsigned)slow_factor(), "opening");
    play->ports[0] = free_port();
    play->ports[1] = free_port();
    team_start(&team, play->size, transport, member_or_absent, play);
    team_join(&team, JOIN_S);
    for (int i = 0; i < play->size; i++)
        role_check(&team, play, i);
    for (int i = 0; i < play->size; i++)
        snprintf(last_text[i], TEXT_MAX, "%s", team.board->notes[i].text);
    team_free(&team);
    checks_end();
}

/* ---- it goes well ---- */

static void need_ipv6(void)
{
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool good = fd >= 0 && bind(fd, (struct sockaddr *)&addr, sizeof addr) == 0;
    if (fd >= 0)
        close(fd);
    if (!good) {
        print_message("skipped: this machine has no ::1\n");
        skip();
    }
}

TEST(test_rendezvous_by_tcp)
{
    struct role role = {.set = {"HEARTH_RENDEZVOUS=127.0.0.1:$A"}};
    struct play play = {3, {role, role, role}, {0}};
    play_run(&play, "tcp");
    play_run(&play, "auto");
}

TEST(test_rendezvous_by_ipv6)
{
    need_ipv6();
    struct role role = {.set = {"HEARTH_RENDEZVOUS=[::1]:$A", "HEARTH_BIND=::1"}};
    struct play play = {2, {role, role}, {0}};
    play_run(&play, "tcp");
}

TEST(test_ranks_as_they_come)
{
    struct role role = {.set = {"HEARTH_RENDEZVOUS=127.0.0.1:$A", "HEARTH_RANK"}};
    struct play play = {4, {role, role, role, role}, {0}};
    play_run(&play, "tcp");
}

TEST(test_static_list)
{
    struct role given = {
        .set = {"HEARTH_PEERS=127.0.0.1:$A,127.0.0.1:$B", "HEARTH_RENDEZVOUS", "HEARTH_WORLD_SIZE"}};
    struct play play = {2, {given, given}, {0}};
    play_run(&play, "tcp");
    play_run(&play, "auto");
}

TEST(test_static_list_where_the_port_is_the_rank)
{
    struct role zero = {.set = {"HEARTH_PEERS=127.0.0.1:$A,127.0.0.1:$B", "HEARTH_RENDEZVOUS", "HEARTH_RANK",
                                "HEARTH_PORT=$A"}};
    struct role one = {.set = {"HEARTH_PEERS=127.0.0.1:$A,127.0.0.1:$B", "HEARTH_RENDEZVOUS", "HEARTH_RANK",
                               "HEARTH_PORT=$B"}};
    struct play play = {2, {zero, one}, {0}};
    play_run(&play, "tcp");
}

TEST(test_static_list_of_ipv6)
{
    need_ipv6();
    struct role given = {.set = {"HEARTH_PEERS=[::1]:$A,[::1]:$B", "HEARTH_RENDEZVOUS", "HEARTH_BIND=::1"}};
    struct play play = {2, {given, given}, {0}};
    play_run(&play, "tcp");
}

TEST(test_list_of_names)
{
    struct role given = {.set = {"HEARTH_PEERS=localhost:$A,localhost:$B", "HEARTH_RENDEZVOUS"}};
    struct play play = {2, {given, given}, {0}};
    play_run(&play, "tcp");
}

/* ---- it does not ---- */

TEST(test_missing_rank)
{
    struct role waits = {.status = HEARTH_TIMEOUT, .words = {"rank 1", "deadline"}, .waits = true};
    struct play play = {3, {waits, {.set = {absent}}, waits}, {0}};
    play_run(&play, "tcp");
    play_run(&play, "shm");
}

/* Nobody opens the rendezvous. */
TEST(test_missing_first_rank)
{
    struct role waits = {
        .status = HEARTH_TIMEOUT, .words = {"could not be reached", "rank 0"}, .waits = true};
    struct play play = {3, {{.set = {absent}}, waits, waits}, {0}};
    play_run(&play, "shm");
    for (int i = 1; i < 3; i++) {
        play.roles[i].set[0] = "HEARTH_RENDEZVOUS=127.0.0.1:$A";
        play.roles[i].words[2] = "127.0.0.1:";
    }
    play_run(&play, "tcp");
}

TEST(test_wrong_port)
{
    struct role zero = {.set = {"HEARTH_RENDEZVOUS=127.0.0.1:$A"},
                        .status = HEARTH_TIMEOUT,
                        .words = {"rank 1", "deadline"},
                        .waits = true};
    struct role one = {.set = {"HEARTH_RENDEZVOUS=127.0.0.1:$B"},
                       .status = HEARTH_TIMEOUT,
                       .words = {"127.0.0.1:", "could not be reached"},
                       .waits = true};
    struct play play = {2, {zero, one}, {0}};
    play_run(&play, "tcp");
}

/* A network of its own, loopback and no way out: nobody hears what is said to an address of documentation. */
static bool cut_off(void)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    if (unshare(CLONE_NEWNET) != 0)
        return false;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    bool good = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
    close(fd);
    return good;
}

static void member_cut_off(struct team *team, int rank, void *arg)
{
    if (rank == 1 && !cut_off())
        atomic_store(&team->board->stop, true);
    else if (rank == 1)
        member(team, rank, arg);
}

TEST(test_unreachable_rendezvous)
{
    struct role role = {.set = {"HEARTH_RENDEZVOUS=192.0.2.1:7"},
                        .status = ANY_ERROR,
                        .words = {"192.0.2.1:7", "unreachable"},
                        .waits = true};
    struct play play = {2, {{.set = {absent}}, role}, {0}};
    struct team team;
    watchdog(3 * JOIN_S * (unsigned)slow_factor(), "unreachable");
    team_start(&team, 2, "tcp", member_cut_off, &play);
    team_join(&team, JOIN_S);
    bool possible = !atomic_load(&team.board->stop);
    if (possible)
        role_check(&team, &play, 1);
    team_free(&team);
    checks_end();
    if (!possible) {
        print_message("skipped: a network namespace cannot be made\n");
        skip();
    }
}

TEST(test_beyond_this_machine_needs_a_word)
{
    struct role role = {.set = {"HEARTH_RENDEZVOUS=192.0.2.1:7", "HEARTH_PLAIN=1"},
                        .status = HEARTH_INVALID,
                        .words = {"192.0.2.1", "TRUST_NETWORK"}};
    struct play play = {2, {role, role}, {0}};
    play_run(&play, "tcp");
}

TEST(test_duplicate_rank)
{
    struct role hears = {.status = ANY_ERROR, .words = {"rank 1", "twice"}};
    struct role twin = {.set = {"HEARTH_RANK=1"}, .status = ANY_ERROR, .words = {"rank 1", "twice"}};
    struct play play = {3, {hears, twin, twin}, {0}};
    play_run(&play, "tcp");
    play_run(&play, "shm");
}

TEST(test_different_world_size)
{
    struct role three = {.status = ANY_ERROR, .words = {"members", "3"}};
    struct role four = {.set = {"HEARTH_WORLD_SIZE=4"}, .status = ANY_ERROR, .words = {"members", "4"}};
    struct play play = {3, {three, four, three}, {0}};
    play_run(&play, "tcp");
}

TEST(test_different_settings)
{
    struct role usual = {.status = ANY_ERROR, .words = {"chunk_bytes", "262144", "65536"}};
    struct role other = usual;
    other.set[0] = "HEARTH_CHUNK_BYTES=64K";
    struct play play = {3, {usual, usual, other}, {0}};
    play_run(&play, "tcp");
}

TEST(test_different_transport)
{
    struct role usual = {.status = ANY_ERROR, .words = {"transport", "tcp", "shm"}};
    struct role other = usual;
    other.set[0] = "HEARTH_TRANSPORT=shm";
    struct play play = {2, {usual, other}, {0}};
    play_run(&play, "tcp");
}

/* So many are enough, though the rendezvous could serve more connections than that. */
TEST(test_few_open_files)
{
    struct role usual = {.set = {"HEARTH_RENDEZVOUS=127.0.0.1:$A"}}, few = usual;
    few.files = 64;
    struct play play = {3, {few, usual, few}, {0}};
    play_run(&play, "tcp");
}

/* One of them cannot have what it needs: that is seen when all are there, or from the beginning. */
TEST(test_too_few_open_files)
{
    static const struct {
        int rank;
        rlim_t files;
    } cases[] = {{0, 35}, {0, 33}, {1, 35}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct role hears = {.set = {"HEARTH_RENDEZVOUS=127.0.0.1:$A"}, .status = HEARTH_LIMIT};
        struct play play = {3, {hears, hears, hears}, {0}};
        char who[16], may[64];
        snprintf(who, sizeof who, "rank %d", cases[i].rank);
        snprintf(may, sizeof may, "this process may have %u", (unsigned)cases[i].files);
        for (int k = 0; k < 3; k++)
            memcpy(play.roles[k].words, (const char *[]){who, may, "ulimit -n"}, sizeof hears.words);
        play.roles[cases[i].rank].files = cases[i].files;
        play_run(&play, "tcp");
    }
}

/* Who came to the wrong job is sent away; those who are right wait for theirs. */
TEST(test_different_job)
{
    struct role one = {.status = ANY_ERROR, .words = {"rank 1"}, .waits = true};
    struct role other = {
        .set = {"HEARTH_JOB=other"}, .status = ANY_ERROR, .words = {"job", "other", "hearth"}};
    struct play play = {2, {one, other}, {0}};
    play_run(&play, "tcp");
}

TEST(test_bad_static_lists)
{
    struct role given = {.set = {"HEARTH_PEERS=127.0.0.1:$A,127.0.0.1:$B", "HEARTH_RENDEZVOUS"},
                         .status = HEARTH_TIMEOUT,
                         .words = {"rank 1"},
                         .waits = true};
    struct play missing = {2, {given, {.set = {absent}}}, {0}};
    play_run(&missing, "tcp");
    struct role text = {.set = {"HEARTH_PEERS=127.0.0.1:$A,127.0.0.1:99999", "HEARTH_RENDEZVOUS"},
                        .status = HEARTH_INVALID,
                        .words = {"rank 1", "99999"}};
    struct play bad = {2, {text, text}, {0}};
    play_run(&bad, "tcp");
    struct role size = {.set = {"HEARTH_PEERS=127.0.0.1:$A", "HEARTH_RENDEZVOUS"},
                        .status = HEARTH_INVALID,
                        .words = {"1 members", "world_size is 2"}};
    struct play few = {2, {size, size}, {0}};
    play_run(&few, "tcp");
    struct role both = {.set = {"HEARTH_PEERS=127.0.0.1:$A,127.0.0.1:$B"},
                        .status = HEARTH_INVALID,
                        .words = {"peers", "rendezvous"}};
    struct play two = {2, {both, both}, {0}};
    play_run(&two, "tcp");
}

/* Both are to listen on the same port. */
TEST(test_list_in_another_order)
{
    struct role zero = {.set = {"HEARTH_PEERS=127.0.0.1:$A,127.0.0.1:$B", "HEARTH_RENDEZVOUS"},
                        .status = ANY_ERROR,
                        .waits = true};
    struct role one = zero;
    one.set[0] = "HEARTH_PEERS=127.0.0.1:$B,127.0.0.1:$A";
    struct play play = {2, {zero, one}, {0}};
    play_run(&play, "tcp");
    check(strstr(last_text[0], "in use") || strstr(last_text[1], "in use"),
          "nobody says that a port is in use: \"%s\", \"%s\"", last_text[0], last_text[1]);
    checks_end();
}
