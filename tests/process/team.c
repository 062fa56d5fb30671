/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and ends processes, and small things that members need. */
#include "process/team.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "support/watchdog.h"

/* Far below the usual ones: what hangs is to say where. */
#define OP_TIMEOUT_MS   15000
#define OPEN_TIMEOUT_MS 15000

extern char **environ;

/* ---- small things ---- */

uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void set_number_env(const char *name, long value)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    setenv(name, text, 1);
}

bool soaking(void)
{
    return getenv("HEARTH_TEST_SOAK");
}

uint16_t listening_port(void)
{
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_storage addr;
        socklen_t len = sizeof addr, size = sizeof(int);
        int listens = 0;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens ||
            getsockname(fd, (struct sockaddr *)&addr, &len) != 0)
            continue;
        if (addr.ss_family == AF_INET)
            return ntohs(((struct sockaddr_in *)&addr)->sin_port);
        if (addr.ss_family == AF_INET6)
            return ntohs(((struct sockaddr_in6 *)&addr)->sin6_port);
    }
    return 0;
}

long peak_kb(void)
{
    char line[256];
    long kb = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "VmHWM:", 6) == 0)
            kb = strtol(line + 6, NULL, 10);
    if (file)
        fclose(file);
    return kb;
}

bool names_rank(const char *text, int rank)
{
    char word[16];
    int len = snprintf(word, sizeof word, "rank %d", rank);
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        if (at[len] < '0' || at[len] > '9')
            return true;
    return false;
}

void note_failed(struct note *note, int status)
{
    note->failed_ns = now_ns();
    note->status = status;
    note->reason = hearth_error_reason();
    snprintf(note->text, sizeof note->text, "%s", hearth_error_text());
}

hearth_node *member_open(void)
{
    hearth_node *node = NULL;
    check_ok(hearth_node_open(NULL, &node));
    return node;
}

/* ---- processes ---- */

static void clean_environment(void)
{
    for (char **item = environ; *item;) {
        char name[64];
        size_t len = strcspn(*item, "=");
        if (strncmp(*item, "HEARTH_", 7) != 0 || strncmp(*item, "HEARTH_TEST_", 12) == 0 ||
            len >= sizeof name) {
            item++;
            continue;
        }
        memcpy(name, *item, len);
        name[len] = '\0';
        unsetenv(name); /* moves the rest down */
    }
}

static void live(struct team *team, int rank, team_fn *fn, void *arg)
{
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    signal(SIGALRM, SIG_DFL);
    clean_environment();
    set_number_env("HEARTH_RANK", rank);
    set_number_env("HEARTH_WORLD_SIZE", team->size);
    setenv("HEARTH_RENDEZVOUS", team->rendezvous, 1);
    set_number_env("HEARTH_OP_TIMEOUT_MS", OP_TIMEOUT_MS * slow_factor());
    set_number_env("HEARTH_OPEN_TIMEOUT_MS", OPEN_TIMEOUT_MS * slow_factor());
    bool plain = strcmp(team->transport, "plain") == 0;
    setenv("HEARTH_TRANSPORT", plain ? "tcp" : team->transport, 1);
    setenv("HEARTH_PLAIN", plain ? "1" : "0", 1);
    setenv("HEARTH_PORT", "0", 1); /* any: others on this machine may have all of the usual ones */
    setenv("HEARTH_KEY_FILE", "fresh", 1);
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1); /* nobody's own secret */
    fn(team, rank, arg);
    exit(checks_failed() ? 1 : 0); /* not _exit: leaks are looked for on the way out */
}

void team_start(struct team *team, int size, const char *transport, team_fn *fn, void *arg)
{
    static int serial;
    *team = (struct team){.size = size, .transport = transport};
    snprintf(team->rendezvous, sizeof team->rendezvous, "unix:@hearth-test-%d-%d", (int)getpid(), serial++);
    team->board = mmap(NULL, sizeof *team->board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (team->board == MAP_FAILED)
        fail_msg("no memory for the board of the members");
    fflush(NULL);
    for (int i = 0; i < size; i++) {
        pid_t pid = fork();
        if (pid == 0)
            live(team, i, fn, arg);
        team->pids[i] = pid;
        check(pid > 0, "rank %d cannot be started: %s", i, strerror(errno));
    }
}

void team_kill(struct team *team, int rank, int number)
{
    if (team->pids[rank] > 0)
        kill(team->pids[rank], number);
    team->killed[rank] = team->killed[rank] || number == SIGKILL;
}

static void member_ended(struct team *team, int rank, int end)
{
    team->pids[rank] = 0;
    if (team->killed[rank])
        return;
    if (WIFSIGNALED(end))
        check(false, "rank %d of %d (%s) was ended by signal %d", rank, team->size, team->transport,
              WTERMSIG(end));
    else
        check(WEXITSTATUS(end) == 0, "rank %d of %d (%s) ended with %d, see above", rank, team->size,
              team->transport, WEXITSTATUS(end));
}

static int reap(struct team *team)
{
    int left = 0;
    for (int i = 0; i < team->size; i++) {
        int end;
        if (team->pids[i] <= 0)
            continue;
        if (waitpid(team->pids[i], &end, WNOHANG) == team->pids[i])
            member_ended(team, i, end);
        else
            left++;
    }
    return left;
}

bool team_ready(struct team *team, unsigned seconds)
{
    uint64_t deadline = now_ns() + (uint64_t)seconds * (uint64_t)slow_factor() * 1000000000u;
    bool ready = true;
    for (int i = 0; ready && i < team->size; i++) {
        const struct note *note = &team->board->notes[i];
        while (!atomic_load(&note->ready) && now_ns() < deadline && reap(team) == team->size)
            sleep_ms(1);
        ready = check(atomic_load(&note->ready), "rank %d of %d (%s) does not become ready", i, team->size,
                      team->transport);
    }
    for (int i = 0; !ready && i < team->size; i++)
        team_kill(team, i, SIGKILL);
    return ready;
}

void team_join(struct team *team, unsigned seconds)
{
    uint64_t deadline = now_ns() + (uint64_t)seconds * (uint64_t)slow_factor() * 1000000000u;
    int left;
    while ((left = reap(team)) > 0 && now_ns() < deadline)
        sleep_ms(2);
    for (int i = 0; i < team->size; i++) {
        if (team->pids[i] <= 0)
            continue;
        check(false, "rank %d of %d (%s) hangs: not ended after %u s, %llu operations", i, team->size,
              team->transport, seconds, (unsigned long long)atomic_load(&team->board->notes[i].rounds));
        team_kill(team, i, SIGKILL);
        waitpid(team->pids[i], NULL, 0);
        team->pids[i] = 0;
    }
}

void team_free(struct team *team)
{
    munmap(team->board, sizeof *team->board);
    team->board = NULL;
}
