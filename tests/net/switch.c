/* SPDX-License-Identifier: Apache-2.0 */
/* hearth-switch: joins TAP devices of namespaces by lines of given rate, delay and loss; see README.md. */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "net/control.h"
#include "net/tap.h"

#define CLIENTS_MAX  8
#define STARTING_MAX 64
#define READS_MAX    64 /* frames of one port in a row */

/* An uplink is booked no further ahead than this; what the host has beyond it waits in the host. */
#define AHEAD_NS 1000000

/* A sleeping thread wakes up about this much late. So the switch sleeps less and looks at the clock instead,
   but in no more than one part in SPIN_SHARE of all time: hosts need the processor too. */
#define LATE_NS    60000
#define SPIN_SHARE 10
#define SPIN_MAX   2000000 /* ns saved up at most */

#define EXIT_USAGE 2
#define WAIT_MAX   (NS_PER_S / 2)

struct client {
    int fd;
    size_t len;
    char line[LINE_LEN];
};

struct program {
    struct fabric fabric;
    struct control control;
    struct client clients[CLIENTS_MAX];
    int listener;
    char path[sizeof((struct sockaddr_un *)NULL)->sun_path];
    const char *starting[STARTING_MAX]; /* lines of -c */
    int starting_count;
    bool offload, realtime;
    uint64_t spin_ns, spin_at_ns;
};

static struct program program;
static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- control socket ---- */

static bool control_listen(struct program *p)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!p->path[0])
        return true;
    memcpy(address.sun_path, p->path, sizeof p->path);
    p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    mode_t mask = umask(077);
    bool good = p->listener >= 0 && bind(p->listener, (struct sockaddr *)&address, sizeof address) == 0 &&
                listen(p->listener, CLIENTS_MAX) == 0;
    umask(mask);
    if (!good) {
        fprintf(stderr, "hearth-switch: %s: %s\n", p->path, strerror(errno));
        p->path[0] = 0; /* not ours to remove */
    }
    return good;
}

static void client_close(struct client *c)
{
    close(c->fd);
    c->fd = -1;
    c->len = 0;
}

static void client_open(struct program *p)
{
    int fd = accept4(p->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    for (int i = 0; fd >= 0 && i < CLIENTS_MAX; i++) {
        if (p->clients[i].fd >= 0)
            continue;
        p->clients[i].fd = fd;
        return;
    }
    if (fd >= 0)
        close(fd);
}

/* An answer that does not fit into the socket's buffer is the client's fault: it does not read. */
static bool client_answer(struct program *p, struct client *c, const char *line)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (!out)
        return false;
    control_line(&p->control, line, now_ns(), out);
    fputc('\n', out);
    fclose(out);
    bool sent = send(c->fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len;
    free(text);
    return sent;
}

static void client_read(struct program *p, struct client *c)
{
    ssize_t got = read(c->fd, c->line + c->len, sizeof c->line - 1 - c->len);
    if (got <= 0) {
        if (got == 0 || errno != EAGAIN)
            client_close(c);
        return;
    }
    c->len += (size_t)got;
    for (char *end; (end = memchr(c->line, '\n', c->len));) {
        *end = 0;
        if (!client_answer(p, c, c->line)) {
            client_close(c);
            return;
        }
        c->len -= (size_t)(end + 1 - c->line);
        memmove(c->line, end + 1, c->len);
    }
    if (c->len == sizeof c->line - 1) {
        dprintf(c->fd, "error a line has at most %d bytes\n", LINE_LEN - 1);
        client_close(c);
    }
}

/* ---- the loop ---- */

static void port_read(struct program *p, int port, uint64_t now)
{
    static uint8_t data[FRAME_MAX];
    struct port *from = &p->fabric.ports[port];
    for (int i = 0; i < READS_MAX && from->up.free_ns <= now + AHEAD_NS; i++) {
        ssize_t len = read(from->fd, data, sizeof data);
        if (len <= 0)
            return;
        fabric_accept(&p->fabric, port, data, (size_t)len, now);
    }
}

/* Fills in what to wait for, and until when: frames, lines, and uplinks that are booked far ahead. */
static int watch(const struct program *p, struct pollfd *fds, uint64_t now, uint64_t *wake)
{
    const struct fabric *f = &p->fabric;
    uint64_t next = fabric_next(f), later = control_next(&p->control);
    int count = 0;
    next = later < next ? later : next;
    for (int i = 0; i < f->count; i++) {
        uint64_t free_ns = f->ports[i].up.free_ns;
        bool ahead = free_ns > now + AHEAD_NS;
        fds[count++] = (struct pollfd){.fd = ahead ? -1 : f->ports[i].fd, .events = POLLIN};
        if (ahead && free_ns - AHEAD_NS / 2 < next)
            next = free_ns - AHEAD_NS / 2;
    }
    fds[count++] = (struct pollfd){.fd = p->listener, .events = POLLIN};
    for (int i = 0; i < CLIENTS_MAX; i++)
        fds[count++] = (struct pollfd){.fd = p->clients[i].fd, .events = POLLIN};
    *wake = next;
    return count;
}

/* How long to sleep before `wake`. */
static uint64_t sleep_ns(struct program *p, uint64_t wake, uint64_t now)
{
    p->spin_ns += (now - p->spin_at_ns) / SPIN_SHARE;
    p->spin_ns = p->spin_ns < SPIN_MAX ? p->spin_ns : SPIN_MAX;
    p->spin_at_ns = now;
    if (wake <= now)
        return 0;
    uint64_t wait = wake - now < WAIT_MAX ? wake - now : WAIT_MAX;
    uint64_t spin = wait < LATE_NS ? wait : LATE_NS;
    if (p->spin_ns < spin)
        return wait;
    if (wait <= LATE_NS) { /* the time until the next look is what is spent */
        uint64_t spent = now_ns() - now + 1000;
        p->spin_ns -= spent < p->spin_ns ? spent : p->spin_ns;
        return 0;
    }
    return wait - LATE_NS;
}

static void loop(struct program *p, const sigset_t *unblocked)
{
    struct pollfd fds[PORTS_MAX + 1 + CLIENTS_MAX];
    int ports = p->fabric.count;
    p->spin_at_ns = now_ns();
    while (!stopped) {
        uint64_t now = now_ns(), wake;
        control_run(&p->control, now);
        fabric_run(&p->fabric, now);
        int count = watch(p, fds, now, &wake);
        uint64_t wait = sleep_ns(p, wake, now_ns());
        struct timespec timeout = {(time_t)(wait / NS_PER_S), (long)(wait % NS_PER_S)};
        if (ppoll(fds, (nfds_t)count, &timeout, unblocked) <= 0)
            continue;
        now = now_ns();
        for (int i = 0; i < ports; i++)
            if (fds[i].revents)
                port_read(p, i, now);
        if (fds[ports].revents)
            client_open(p);
        for (int i = 0; i < CLIENTS_MAX; i++)
            if (fds[ports + 1 + i].revents)
                client_read(p, &p->clients[i]);
    }
}

/* ---- start and end ---- */

static void usage(FILE *out)
{
    fputs(
        "usage: hearth-switch [-s PATH] [-c LINE]... [-S SEED] [-d NAME] [--plain] [--polite] NAMESPACE...\n"
        "Joins the given network namespaces by a switch. In each a TAP device appears; give it an address.\n"
        "  -s, --socket PATH    listen there for control lines\n"
        "  -c, --command LINE   carry out a control line at the start\n"
        "  -S, --seed SEED      of everything random (default 1)\n"
        "  -d, --device NAME    of the TAP devices (default eth0)\n"
        "      --plain          hosts may not hand over several segments at once: slower, each frame by "
        "itself\n"
        "      --polite         normal priority: a busy machine makes frames late\n"
        "Prints \"ready\" when the devices are there, and ends on SIGTERM.\n",
        out);
}

/* A network has its own time: other programs must not make it late. Where that is refused, it may be. */
static void hurry(void)
{
    struct sched_param high = {.sched_priority = 1};
    prctl(PR_SET_TIMERSLACK, 1ul);
    if (sched_setscheduler(0, SCHED_RR, &high) != 0)
        setpriority(PRIO_PROCESS, 0, -20);
}

static bool start(struct program *p, char **spaces, const char *device)
{
    char why[512];
    for (int i = 0; i < p->fabric.count; i++) {
        struct port *port = &p->fabric.ports[i];
        port->fd = tap_open(spaces[i], device, p->offload, why, sizeof why);
        if (port->fd < 0) {
            fprintf(stderr, "hearth-switch: port %d: %s\n", i, why);
            return false;
        }
    }
    for (int i = 0; i < p->starting_count; i++) {
        char *text = NULL;
        size_t len = 0;
        FILE *out = open_memstream(&text, &len);
        if (!out)
            return false;
        control_line(&p->control, p->starting[i], now_ns(), out);
        fclose(out);
        bool good = strncmp(text, "ok", 2) == 0;
        if (!good)
            fprintf(stderr, "hearth-switch: %s: %s\n", p->starting[i], text);
        free(text);
        if (!good)
            return false;
    }
    return control_listen(p);
}

static int run(struct program *p, char **spaces, int count, uint64_t seed, const char *device)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t blocked, before;
    int code = 1;
    if (!fabric_init(&p->fabric, count, seed, now_ns())) {
        perror("hearth-switch: no memory for frames");
        return 1;
    }
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGINT);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    p->control.fabric = &p->fabric;
    if (start(p, spaces, device)) {
        if (p->realtime)
            hurry();
        puts("ready");
        fflush(stdout);
        loop(p, &before);
        code = 0;
    }
    if (p->path[0])
        unlink(p->path);
    fabric_fini(&p->fabric);
    return code;
}

static bool number_parse(const char *text, uint64_t *number)
{
    char *end;
    *number = strtoull(text, &end, 0);
    return *end == 0 && text[0] >= '0' && text[0] <= '9';
}

__attribute__((format(printf, 1, 0))) static bool refuse(const char *format, const char *text)
{
    fputs("hearth-switch: ", stderr);
    fprintf(stderr, format, text);
    fputc('\n', stderr);
    return false;
}

/* One option; false: it is not right, and that was said. */
static bool option(struct program *p, int message, uint64_t *seed, const char **device)
{
    switch (message) {
    case 's':
        if (strlen(optarg) >= sizeof p->path)
            return refuse("%s: too long for a socket", optarg);
        snprintf(p->path, sizeof p->path, "%s", optarg);
        return true;
    case 'c':
        if (p->starting_count == STARTING_MAX)
            return refuse("%s: too many lines", optarg);
        p->starting[p->starting_count++] = optarg;
        return true;
    case 'S':
        return number_parse(optarg, seed) || refuse("seed %s: not a number", optarg);
    case 'd':
        *device = optarg;
        return true;
    case 'p':
        p->offload = false;
        return true;
    case 'q':
        p->realtime = false;
        return true;
    default:
        usage(stderr);
        return false;
    }
}

int main(int argc, char **argv)
{
    static const struct option OPTIONS[] = {
        {"socket", required_argument, NULL, 's'}, {"command", required_argument, NULL, 'c'},
        {"seed", required_argument, NULL, 'S'},   {"device", required_argument, NULL, 'd'},
        {"plain", no_argument, NULL, 'p'},        {"polite", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
    };
    struct program *p = &program;
    uint64_t seed = 1;
    const char *device = "eth0";
    p->listener = -1;
    p->offload = p->realtime = true;
    for (int i = 0; i < CLIENTS_MAX; i++)
        p->clients[i].fd = -1;
    for (int message; (message = getopt_long(argc, argv, "s:c:S:d:h", OPTIONS, NULL)) != -1;) {
        if (message == 'h') {
            usage(stdout);
            return 0;
        }
        if (!option(p, message, &seed, &device))
            return EXIT_USAGE;
    }
    int count = argc - optind;
    if (count < 1 || count > PORTS_MAX) {
        fprintf(stderr, "hearth-switch: give 1 to %d namespaces\n", PORTS_MAX);
        return EXIT_USAGE;
    }
    return run(p, argv + optind, count, seed, device);
}
