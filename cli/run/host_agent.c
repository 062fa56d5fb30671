/* SPDX-License-Identifier: Apache-2.0 */
/* The host agent of one rank: a process between the launcher and the program, on the program's machine.
 *
 * It starts the program in a process group of its own, passes standard input and signals down, output and
 * the end up, and sees to it that nothing is left behind. The launcher may vanish at any moment, by kill
 * -9 or with its network: then `in` ends, which no process can prevent, and the host agent ends the program.
 * When the program ends, what remains of its group is asked to end too, and killed if it does not. Where the
 * system hands orphans to the host agent (os/spawn.h), processes that left the group are found and killed
 * too; and should the host agent itself be killed, the program follows it there. */
#include "cli/run/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/run/launch_message.h"
#include "cli/shared/args.h"
#include "cli/shared/route.h"
#include "cli/shared/signals.h"
#include "core/bytes.h"
#include "core/types.h"
#include "os/clock.h"
#include "os/memory.h"
#include "os/spawn.h"
#include "security/secret.h"

#define ARGS_MAX       65536
#define ABANDONED_NS   (2 * NS_PER_S) /* the launcher is gone: from SIGTERM to SIGKILL */
#define LEFT_BEHIND_NS (5 * NS_PER_S) /* the program is gone: the same for those it left behind */
#define LOOK_MS        20             /* how often we look whether the group is empty: no event tells */
#define SWEEP_MS       2              /* between two looks for the children of those we killed */
#define SWEEPS_MAX     1000
#define UP_WAITING_MAX (4 * OUTPUT_MAX)
#define CODE_NOT_FOUND 127
#define CODE_NOT_RUN   126

struct host_agent {
    struct launch_stream in, up;
    int heard; /* signals */
    struct vars args;
    bool answered;                 /* END or FAILED went up */
    pid_t program;                 /* 0: not started; also its process group */
    bool ended;                    /* the program, and it was reaped */
    bool stopping;                 /* its group was asked to end */
    uint64_t kill_ns;              /* then it is killed */
    int out, err, input;           /* of the program; -1: closed */
    int secret;                    /* memory file for the program; -1: none, or it has it */
    unsigned char wait[INPUT_MAX]; /* what it has not read yet: [at, len) */
    size_t at, len;
    bool input_ends;
};

/* ---- ends ---- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static bool group_is_empty(const struct host_agent *k)
{
    return kill(-k->program, 0) != 0 && errno == ESRCH;
}

static void group_signal(const struct host_agent *k, int number)
{
    if (k->program > 0)
        kill(-k->program, number);
    if (k->program > 0 && number != SIGKILL && number != SIGTSTP)
        kill(-k->program, SIGCONT); /* a stopped one would not hear it */
}

static void stop(struct host_agent *k, uint64_t patience_ns)
{
    uint64_t kill_ns = clock_real() + patience_ns;
    if (!k->stopping)
        group_signal(k, SIGTERM);
    if (!k->stopping || kill_ns < k->kill_ns)
        k->kill_ns = kill_ns;
    k->stopping = true;
}

static void abandon(struct host_agent *k)
{
    launch_stream_close(&k->in);
    launch_stream_close(&k->up);
    stop(k, ABANDONED_NS);
}

/* Kills our children once, by the system's own list of them. false: there are none, or no list. */
static bool sweep_once(void)
{
    char path[64];
    long child;
    bool any = false;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)getpid(), (int)getpid());
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    while (fscanf(file, "%ld", &child) == 1) {
        kill((pid_t)child, SIGKILL);
        any = true;
    }
    fclose(file);
    return any;
}

/* Killing a parent gives us its children, so it is done until there are none. */
static void sweep(void)
{
    for (int i = 0; i < SWEEPS_MAX && sweep_once(); i++) {
        (void)poll(NULL, 0, SWEEP_MS);
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
    }
}

/* ---- the start ---- */

static void fail(struct host_agent *k, int code, const char *what, const char *name, int reason)
{
    char text[1024];
    text[0] = (char)code;
    int len = snprintf(text + 1, sizeof text - 1, "%s '%.800s': %s", what, name, strerror(reason));
    if (!launch_stream_add(&k->up, LAUNCH_FAILED, text, 1 + (size_t)len))
        launch_stream_close(&k->up);
    k->answered = true;
}

struct pipes {
    int out[2], err[2], input[2], exec[2];
};

static bool pipes_open(struct pipes *p, bool has_input)
{
    if (has_input ? !pipe_open(p->input) : (p->input[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
        return false;
    return pipe_open(p->out) && pipe_open(p->err) && pipe_open(p->exec);
}

/* In the child. Only what is safe between fork and exec. */
static void become(struct host_agent *k, struct pipes *p, int agent)
{
    int reason = 0;
    setpgid(0, 0);
    signals_reset();
    if (!leash_tie(agent))
        _exit(CODE_NOT_RUN);
    if (dup2(p->input[0], STDIN_FILENO) < 0 || dup2(p->out[1], STDOUT_FILENO) < 0 ||
        dup2(p->err[1], STDERR_FILENO) < 0)
        reason = errno;
    if (!reason && k->secret >= 0 && memory_file_hand_on(k->secret))
        reason = errno;
    if (!reason) {
        execvp(k->args.list[0], k->args.list);
        reason = errno;
    }
    ssize_t written = write(p->exec[1], &reason, sizeof reason);
    (void)written;
    _exit(CODE_NOT_RUN);
}

/* Gloo asks what this machine's name means, and takes 127.0.0.1 if it means nothing. */
static void tell_gloo(void)
{
    const char *bind = getenv("HEARTH_BIND"), *master = getenv("MASTER_ADDR");
    struct route route;
    bool found = bind && bind[0] ? route_bind(bind, &route) : master && route_to(master, false, &route);
    if (found)
        setenv("GLOO_SOCKET_IFNAME", route.interface, 0);
}

static void start(struct host_agent *k, bool has_input)
{
    struct pipes p = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    int agent = (int)getpid(), reason = 0;
    tell_gloo();
    pid_t pid = pipes_open(&p, has_input) ? fork() : -1;
    if (pid == 0)
        become(k, &p, agent);
    reason = pid < 0 ? errno : 0;
    if (pid > 0) {
        setpgid(pid, pid); /* parent or child, whichever is first */
        close_fd(&p.exec[1]);
        while (read(p.exec[0], &reason, sizeof reason) < 0 && errno == EINTR) {
        }
    }
    close_fd(&p.input[0]);
    close_fd(&p.out[1]);
    close_fd(&p.err[1]);
    close_fd(&p.exec[0]);
    close_fd(&k->secret);
    k->out = p.out[0], k->err = p.err[0], k->input = p.input[1];
    if (reason) {
        while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
        fail(k, reason == ENOENT ? CODE_NOT_FOUND : CODE_NOT_RUN, "cannot run", k->args.list[0], reason);
        return;
    }
    k->program = pid;
    int fds[] = {k->out, k->err, k->input};
    for (size_t i = 0; i < 3; i++)
        fcntl(fds[i], F_SETFL, O_NONBLOCK);
    uint8_t bytes[4];
    store_u32(bytes, (uint32_t)pid);
    if (!launch_stream_add(&k->up, LAUNCH_PID, bytes, sizeof bytes))
        abandon(k);
}

/* ---- messages from the launcher ---- */

/* Directory, variables and arguments. false: they cannot be taken. */
static bool take_setup(struct host_agent *k, const struct launch_message *m)
{
    if (m->kind == LAUNCH_ARG) {
        vars_add(&k->args, "%.*s", (int)m->len, m->bytes);
        return !k->args.full;
    }
    char *text = strndup(m->bytes, m->len), *equals = text ? strchr(text, '=') : NULL;
    bool good = text && (equals || m->kind == LAUNCH_DIR);
    if (good && m->kind == LAUNCH_VAR) {
        *equals = 0;
        good = setenv(text, equals + 1, 1) == 0;
    } else if (good && chdir(text) != 0) {
        fail(k, CODE_NOT_RUN, "cannot enter the directory", text, errno);
    }
    free(text);
    return good;
}

/* The token goes into a file without a name, and is nowhere else then. What a login may have set here is not
 * this job's. */
static bool take_secret(struct host_agent *k, const struct launch_message *m)
{
    char number[16];
    if (k->secret >= 0)
        return false;
    int status = memory_file_make(m->bytes, m->len, &k->secret);
    launch_stream_wipe(&k->in);
    snprintf(number, sizeof number, "%d", k->secret);
    if (status || unsetenv("HEARTH_SECRET") || unsetenv("HEARTH_SECRET_FILE") ||
        setenv("HEARTH_SECRET_FD", number, 1))
        fail(k, CODE_NOT_RUN, "cannot make", "a file in memory for the secret", errno);
    return true;
}

/* false: the one before has not been taken yet. */
static bool take_input(struct host_agent *k, const struct launch_message *m)
{
    if (k->at < k->len || k->input_ends)
        return false;
    memcpy(k->wait, m->bytes, m->len);
    k->at = 0;
    k->len = m->len;
    return true;
}

/* false: no message of ours, so the sender is no launcher. */
static bool take(struct host_agent *k, const struct launch_message *m)
{
    switch (m->kind) {
    case LAUNCH_DIR:
    case LAUNCH_VAR:
    case LAUNCH_ARG:
        return k->program > 0 || k->answered || take_setup(k, m);
    case LAUNCH_SECRET:
        return k->program > 0 || k->answered || take_secret(k, m);
    case LAUNCH_GO:
        if (k->args.count > 0 && k->program == 0 && !k->answered)
            start(k, m->number == 1);
        return k->args.count > 0;
    case LAUNCH_SIGNAL:
        group_signal(k, pass_number((enum launch_signal)m->number));
        return true;
    case LAUNCH_INPUT:
        return take_input(k, m);
    case LAUNCH_INPUT_END:
        k->input_ends = true;
        return true;
    default:
        return false;
    }
}

static void hear_launcher(struct host_agent *k)
{
    struct launch_message m;
    int state = launch_stream_read(&k->in), more = 0;
    if (state == 0)
        return;
    while (k->in.fd >= 0 && (more = launch_stream_next(&k->in, &m)) == 1 && take(k, &m)) {
    }
    if (state < 0 || more != 0)
        abandon(k);
}

/* ---- the program ---- */

static void feed(struct host_agent *k)
{
    if (k->at < k->len) {
        ssize_t sent = k->input >= 0 ? write(k->input, k->wait + k->at, k->len - k->at) : -1;
        if (sent < 0 && k->input >= 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (sent < 0) /* it reads no more */
            close_fd(&k->input);
        k->at = sent < 0 ? k->len : k->at + (size_t)sent;
        unsigned char more = k->input >= 0;
        if (k->at == k->len && !launch_stream_add(&k->up, LAUNCH_TAKEN, &more, 1))
            abandon(k);
    }
    if (k->input_ends && k->at == k->len)
        close_fd(&k->input);
}

/* Reads once. false: nothing there now, or closed. */
static bool carry(struct host_agent *k, int *fd, int kind)
{
    char bytes[OUTPUT_MAX];
    ssize_t got = *fd >= 0 ? read(*fd, bytes, sizeof bytes) : 0;
    if (got < 0 && errno == EINTR)
        return true;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return false;
    if (got <= 0)
        close_fd(fd);
    else if (!launch_stream_add(&k->up, kind, bytes, (size_t)got))
        abandon(k);
    return got > 0;
}

/* What the pipes hold when the program is gone: no more than a pipe can hold, though others may still
 * write. */
static void carry_rest(struct host_agent *k)
{
    for (int i = 0; i < 64 && carry(k, &k->out, LAUNCH_OUT); i++) {
    }
    for (int i = 0; i < 64 && carry(k, &k->err, LAUNCH_ERR); i++) {
    }
}

static void reap(struct host_agent *k)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != k->program || k->ended)
            continue; /* inherited */
        unsigned char end[2] = {(unsigned char)(WIFEXITED(status) ? WEXITSTATUS(status) : 0),
                                (unsigned char)(WIFSIGNALED(status) ? WTERMSIG(status) : 0)};
        k->ended = true;
        k->answered = true;
        carry_rest(k);
        if (!launch_stream_add(&k->up, LAUNCH_END, end, sizeof end))
            launch_stream_close(&k->up);
        if (!group_is_empty(k))
            stop(k, LEFT_BEHIND_NS);
    }
}

static void hear_signals(struct host_agent *k)
{
    for (int number; (number = signals_next());) {
        if (number == SIGCHLD)
            reap(k);
        else
            abandon(k);
    }
}

/* ---- the loop ---- */

static bool is_done(const struct host_agent *k)
{
    if (k->program == 0)
        return k->answered || k->in.fd < 0;
    return k->ended && group_is_empty(k);
}

/* -1: nothing but events. */
static int patience_ms(struct host_agent *k)
{
    if (!k->stopping)
        return -1;
    if (clock_real() >= k->kill_ns)
        group_signal(k, SIGKILL);
    return LOOK_MS;
}

static void turn(struct host_agent *k)
{
    bool room = launch_stream_waiting(&k->up) < UP_WAITING_MAX;
    bool feeding = k->at < k->len || k->input_ends;
    struct pollfd polls[] = {
        {.fd = k->heard, .events = POLLIN},
        {.fd = k->in.fd, .events = POLLIN},
        {.fd = room ? k->out : -1, .events = POLLIN},
        {.fd = room ? k->err : -1, .events = POLLIN},
        {.fd = feeding ? k->input : -1, .events = POLLOUT},
        {.fd = launch_stream_waiting(&k->up) ? k->up.fd : -1, .events = POLLOUT},
    };
    if (poll(polls, sizeof polls / sizeof *polls, patience_ms(k)) < 0 && errno != EINTR)
        abandon(k);
    hear_signals(k);
    if (polls[1].revents)
        hear_launcher(k);
    if (polls[2].revents)
        carry(k, &k->out, LAUNCH_OUT);
    if (polls[3].revents)
        carry(k, &k->err, LAUNCH_ERR);
    feed(k);
    launch_stream_flush(&k->up);
    if (k->up.fd < 0 && k->in.fd >= 0)
        abandon(k); /* it hears no more, so it is gone */
}

/* What is still to be said; the launcher reads it or is gone. */
static void finish(struct host_agent *k)
{
    sweep();
    carry_rest(k);
    k->program = 0; /* its number may be another's from now on */
    while (k->up.fd >= 0 && launch_stream_waiting(&k->up) > 0) {
        struct pollfd polls[] = {{.fd = k->up.fd, .events = POLLOUT}, {.fd = k->in.fd, .events = POLLIN}};
        (void)poll(polls, 2, -1);
        if (polls[1].revents)
            hear_launcher(k);
        launch_stream_flush(&k->up);
    }
    close_fd(&k->out);
    close_fd(&k->err);
    close_fd(&k->input);
    close_fd(&k->secret);
    launch_stream_close(&k->up);
    launch_stream_close(&k->in);
    vars_free(k->args.list);
}

/* The descriptors above the standard ones, which then lead nowhere: neither the launcher's input nor its
 * output may be held open by us. */
static bool settle(struct host_agent *k, int in, int up)
{
    int in_high = fcntl(in, F_DUPFD_CLOEXEC, 3), up_high = fcntl(up, F_DUPFD_CLOEXEC, 3);
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (in_high < 0 || up_high < 0 || nowhere < 0)
        return false;
    close(in);
    close(up);
    dup2(nowhere, STDIN_FILENO);
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
    launch_stream_init(&k->in, in_high);
    launch_stream_init(&k->up, up_high);
    return true;
}

int host_agent_serve(int in, int up)
{
    static const int heard[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    struct host_agent k = {.out = -1, .err = -1, .input = -1, .secret = -1};
    signals_reset();
    signal(SIGPIPE, SIG_IGN);
    setsid(); /* the terminal's signals come once, by the launcher */
    leash_inherit();
    k.heard = signals_open(heard, sizeof heard / sizeof *heard);
    if (k.heard < 0 || !vars_open(&k.args, ARGS_MAX) || !settle(&k, in, up))
        return EXIT_FAILED_CHECK;
    if (!launch_stream_add(&k.up, LAUNCH_HELLO, LAUNCH_STREAM_GREETING, strlen(LAUNCH_STREAM_GREETING)))
        abandon(&k);
    while (!is_done(&k))
        turn(&k);
    finish(&k);
    return EXIT_GOOD;
}
