/* SPDX-License-Identifier: Apache-2.0 */
/* A program behind a host agent, which is started, listened to and ended here. */
#define _GNU_SOURCE 1 /* POSIX_SPAWN_SETSID, vasprintf */
#include "cli/run/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/shared/args.h"
#include "cli/shared/signals.h"
#include "core/types.h"
#include "os/clock.h"
#include "security/vault.h"

#define STOP_NS    (5 * NS_PER_S) /* from SIGTERM to SIGKILL, and from there to killing the agent */
#define DRAINS_MAX 64             /* reads of what an agent left in its pipe */
#define LOOK_MS    20             /* while an agent that said its last is about to end */

extern char **environ;

static void close_all(struct child_process *w)
{
    launch_stream_close(&w->down);
    launch_stream_close(&w->up);
    if (w->err >= 0)
        close(w->err);
    w->err = -1;
}

static void set_end(struct child_process *w, enum child_end end, int code, const char *why)
{
    w->end = end;
    w->code = code;
    snprintf(w->why, sizeof w->why, "%s", why);
}

/* ---- starting ---- */

/* The pipes of the agent's standard descriptors: [i][i > 0] is the agent's end, the other one ours. */
typedef int agent_pipes[3][2];

static void close_side(agent_pipes pipes, bool ours)
{
    for (int i = 0; i < 3; i++) {
        if (pipes[i][ours ^ (i > 0)] >= 0)
            close(pipes[i][ours ^ (i > 0)]);
    }
}

/* Spawned and not forked: we may have many threads, and secrets that are not the agent's. */
static int start_process(pid_t *pid, char *const *ssh, agent_pipes pipes)
{
    char name[] = "hearth", run[] = "run", child[] = "--child", *own[] = {name, run, child, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t all, none;
    int reason = posix_spawn_file_actions_init(&actions);
    if (reason)
        return reason;
    reason = posix_spawnattr_init(&attr);
    if (reason)
        goto drop_actions;
    for (int i = 0; i < 3 && !reason; i++) {
        if (pipes[i][i > 0] >= 0)
            reason = posix_spawn_file_actions_adddup2(&actions, pipes[i][i > 0], i);
    }
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setsigmask(&attr, &none);
    /* No terminal: neither its signals nor a question for a password. */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
    if (!reason)
        reason =
            posix_spawnp(pid, ssh ? ssh[0] : "/proc/self/exe", &actions, &attr, ssh ? ssh : own, environ);
    if (!ssh && reason == ENOENT) /* a system without /proc */
        reason = posix_spawnp(pid, name, &actions, &attr, own, environ);
    posix_spawnattr_destroy(&attr);
drop_actions:
    posix_spawn_file_actions_destroy(&actions);
    return reason;
}

/* Everything that the agent must know before it starts the program, but the secret. */
static bool send_setup(struct child_process *w, const struct child_process_plan *plan)
{
    bool good = !plan->dir || launch_stream_add(&w->down, LAUNCH_DIR, plan->dir, strlen(plan->dir));
    for (char **var = plan->vars; good && var && *var; var++)
        good = launch_stream_add(&w->down, LAUNCH_VAR, *var, strlen(*var));
    for (char **arg = plan->args; good && *arg; arg++)
        good = launch_stream_add(&w->down, LAUNCH_ARG, *arg, strlen(*arg));
    return good;
}

bool child_process_start(struct child_process *w, const struct child_process_plan *plan,
                         struct output *output)
{
    agent_pipes pipes = {{-1, -1}, {-1, -1}, {-1, -1}};
    *w = (struct child_process){.down = {.fd = -1}, .up = {.fd = -1}, .err = -1, .output = output};
    w->rank = plan->rank;
    w->secret = plan->secret;
    w->here = !plan->ssh;
    w->input_open = plan->has_input;
    bool good = pipe_open(pipes[0]) && pipe_open(pipes[1]) && (!plan->ssh || pipe_open(pipes[2]));
    int reason = good ? start_process(&w->pid, plan->ssh, pipes) : errno;
    close_side(pipes, false);
    if (reason) {
        close_side(pipes, true);
        w->pid = 0;
        snprintf(w->why, sizeof w->why, "cannot run '%s': %s", plan->ssh ? plan->ssh[0] : "hearth",
                 strerror(reason));
        return false;
    }
    launch_stream_init(&w->down, pipes[0][1]);
    launch_stream_init(&w->up, pipes[1][0]);
    w->err = pipes[2][0];
    if (w->err >= 0)
        fcntl(w->err, F_SETFL, O_NONBLOCK);
    if (send_setup(w, plan))
        return true;
    snprintf(w->why, sizeof w->why, "its arguments and variables are too long");
    close_all(w);
    kill(w->pid, SIGKILL);
    while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    w->pid = 0;
    return false;
}

/* The token, the word to start, and the early signals, to an agent that has shown itself and to nothing else:
 * whatever a login shell or a forced command does with what it reads, it does not get the secret. */
static void welcome(struct child_process *w)
{
    char token[SECRET_TOKEN_MAX];
    unsigned char input = w->input_open;
    bool good = true;
    w->greeted = true;
    if (w->secret) {
        secret_token(w->secret, token);
        good = launch_stream_add(&w->down, LAUNCH_SECRET, token, strlen(token));
        wipe(token, sizeof token);
    }
    good = good && launch_stream_add(&w->down, LAUNCH_GO, &input, 1);
    for (unsigned char place = 0; good && place < PASS_COUNT; place++) {
        if (w->early & 1U << place)
            good = launch_stream_add(&w->down, LAUNCH_SIGNAL, &place, 1);
    }
    if (good)
        return;
    set_end(w, CHILD_BROKEN, EXIT_FAILED_CHECK, "its arguments and variables are too long");
    launch_stream_close(&w->down); /* the agent ends then */
}

/* ---- hearing ---- */

void child_process_polls(const struct child_process *w, struct pollfd polls[CHILD_PROCESS_POLLS])
{
    bool over = child_process_over(w);
    polls[0] = (struct pollfd){.fd = over ? -1 : w->up.fd, .events = POLLIN};
    polls[1] =
        (struct pollfd){.fd = !over && launch_stream_waiting(&w->down) ? w->down.fd : -1, .events = POLLOUT};
    polls[2] = (struct pollfd){.fd = over ? -1 : w->err, .events = POLLIN};
}

/* false: it breaks the protocol. */
static bool take(struct child_process *w, const struct launch_message *m)
{
    switch (m->kind) {
    case LAUNCH_HELLO:
        if (!w->greeted)
            welcome(w);
        break;
    case LAUNCH_OUT:
    case LAUNCH_ERR:
        output_write(w->output, w->rank, m->kind == LAUNCH_OUT ? OUTPUT_STDOUT : OUTPUT_STDERR, m->bytes,
                     m->len);
        break;
    case LAUNCH_PID:
        w->program = m->number;
        break;
    case LAUNCH_TAKEN: /* only from a host that was given input */
        if (!w->input_asked)
            return false;
        w->input_asked = false;
        w->input_open = w->input_open && m->number == 1;
        break;
    case LAUNCH_FAILED:
    case LAUNCH_END:
        if (w->end != CHILD_RUNS)
            break;
        w->signal = m->signal;
        set_end(w, m->kind == LAUNCH_END ? CHILD_EXITED : CHILD_NOT_STARTED,
                m->signal ? 128 + m->signal : m->number, m->reason);
        output_end(w->output, w->rank);
        break;
    default: /* a newer agent may say more */
        break;
    }
    return true;
}

/* Before the greeting, whatever answered is no agent: most often a shell that greets its users. */
static void refuse(struct child_process *w, const struct launch_message *m, const unsigned char *bytes,
                   size_t len)
{
    char why[sizeof w->why], words[64];
    len = len < sizeof words - 1 ? len : sizeof words - 1;
    for (size_t i = 0; i < len; i++)
        words[i] = bytes[i] >= ' ' && bytes[i] < 127 ? (char)bytes[i] : ' ';
    words[len] = 0;
    if (w->greeted)
        snprintf(why, sizeof why,
                 "its host agent broke the protocol: a message of kind 0x%02x with %zu bytes",
                 (unsigned)m->kind, m->len);
    else
        snprintf(
            why, sizeof why,
            "its answer is not that of this version of hearth but '%s'; a remote shell must print nothing by "
            "itself",
            words);
    if (w->end == CHILD_RUNS)
        set_end(w, CHILD_BROKEN, EXIT_FAILED_CHECK, why);
    launch_stream_close(&w->down);
    launch_stream_close(&w->up);
}

/* false: nothing came. */
static bool hear_ssh(struct child_process *w)
{
    char bytes[4096];
    ssize_t got = w->err >= 0 ? read(w->err, bytes, sizeof bytes) : -1;
    if (got > 0)
        output_write(w->output, w->rank, OUTPUT_STDERR, bytes, (size_t)got);
    if (got == 0) {
        close(w->err);
        w->err = -1;
    }
    return got > 0;
}

/* Reads once. false: nothing came. */
static bool hear(struct child_process *w)
{
    struct launch_message m;
    bool said = hear_ssh(w);
    int state = w->up.fd >= 0 ? launch_stream_read(&w->up) : -1;
    launch_stream_flush(&w->down);
    while (state > 0 && w->up.fd >= 0) {
        const unsigned char *bytes = w->up.data + w->up.at;
        size_t waiting = launch_stream_waiting(&w->up);
        bool stranger = !w->greeted && waiting > 0 && bytes[0] != LAUNCH_HELLO;
        int more = stranger ? -1 : launch_stream_next(&w->up, &m);
        if (more == 0)
            break;
        if (more < 0 || !take(w, &m))
            refuse(w, &m, bytes, waiting);
    }
    if (state < 0)
        launch_stream_close(&w->up);
    return said || state > 0;
}

void child_process_hear(struct child_process *w)
{
    if (!child_process_over(w))
        (void)hear(w);
}

/* ---- ending ---- */

void child_process_signal(struct child_process *w, enum launch_signal place)
{
    unsigned char byte = (unsigned char)place;
    if (w->greeted)
        (void)launch_stream_add(&w->down, LAUNCH_SIGNAL, &byte, 1);
    else
        w->early |= 1U << place;
}

void child_process_input(struct child_process *w, const char *bytes, size_t len)
{
    if (len > 0) {
        w->input_asked = launch_stream_add(&w->down, LAUNCH_INPUT, bytes, len);
    } else {
        w->input_open = false;
        (void)launch_stream_add(&w->down, LAUNCH_INPUT_END, NULL, 0);
    }
}

void child_process_stop(struct child_process *w)
{
    if (w->asked || child_process_over(w))
        return;
    w->asked = true;
    w->next_ns = clock_real() + STOP_NS;
    if (w->greeted)
        child_process_signal(w, PASS_TERM);
    else
        launch_stream_close(&w->down); /* there is no program yet: the agent sees that none is wanted */
}

void child_process_hasten(struct child_process *w)
{
    if (!w->asked || child_process_over(w) || clock_real() < w->next_ns)
        return;
    w->next_ns = clock_real() + STOP_NS;
    if (w->kills++ == 0)
        child_process_signal(w, PASS_KILL);
    else
        kill(w->pid, SIGKILL); /* its program follows it */
}

static void lose(struct child_process *w, int status)
{
    const char *what = w->here ? "its host agent" : "ssh";
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
        code = number ? 128 + number : WEXITSTATUS(status);
    char why[sizeof w->why];
    if (w->here && w->program > 0)
        kill(-w->program, SIGKILL); /* no agent is left to do it */
    if (number)
        snprintf(why, sizeof why, "%s was killed by signal %d (%s)", what, number, strsignal(number));
    else
        snprintf(why, sizeof why, "%s exited with code %d", what, code);
    set_end(w, CHILD_LOST, w->asked ? 128 + SIGTERM : code ? code : EXIT_FAILED_CHECK, why);
}

void child_process_reap(struct child_process *w)
{
    int status;
    if (child_process_over(w) || waitpid(w->pid, &status, WNOHANG) != w->pid)
        return;
    for (int i = 0; i < DRAINS_MAX && hear(w); i++) {
    }
    w->pid = 0;
    output_end(w->output, w->rank);
    close_all(w);
    if (w->end == CHILD_RUNS)
        lose(w, status);
}

void child_process_tend(struct child_process *w)
{
    child_process_hear(w);
    child_process_hasten(w);
    child_process_reap(w);
}

int child_process_patience_ms(const struct child_process *w)
{
    uint64_t now = clock_real();
    if (child_process_over(w))
        return -1;
    if (w->up.fd < 0)
        return LOOK_MS;
    if (!w->asked)
        return -1;
    return w->next_ns > now ? (int)((w->next_ns - now) / NS_PER_MS) + 1 : 0;
}

bool child_process_over(const struct child_process *w)
{
    return w->pid == 0;
}

/* ---- variables ---- */

bool vars_open(struct vars *vars, size_t max)
{
    *vars = (struct vars){.list = calloc(max + 1, sizeof *vars->list), .max = max};
    return vars->list;
}

void vars_add(struct vars *vars, const char *format, ...)
{
    va_list args;
    char *text = NULL;
    va_start(args, format);
    if (vars->count == vars->max || vasprintf(&text, format, args) < 0)
        vars->full = true;
    else
        vars->list[vars->count++] = text;
    va_end(args);
}

void vars_add_place(struct vars *vars, const struct rank_place *p)
{
    vars_add(vars, "HEARTH_RANK=%d", p->rank);
    vars_add(vars, "HEARTH_WORLD_SIZE=%d", p->size);
    vars_add(vars, "HEARTH_LOCAL_RANK=%d", p->local_rank);
    vars_add(vars, "HEARTH_LOCAL_SIZE=%d", p->local_size);
    vars_add(vars, "HEARTH_RENDEZVOUS=%s", p->meeting);
    vars_add(vars, "HEARTH_JOB=%s", p->job);
    vars_add(vars, "RANK=%d", p->rank);
    vars_add(vars, "WORLD_SIZE=%d", p->size);
    vars_add(vars, "LOCAL_RANK=%d", p->local_rank);
    vars_add(vars, "LOCAL_WORLD_SIZE=%d", p->local_size);
    vars_add(vars, "GROUP_RANK=%d", p->host);
    vars_add(vars, "MASTER_ADDR=%s", p->master);
    vars_add(vars, "MASTER_PORT=%u", p->port);
}

void vars_free(char **list)
{
    for (char **var = list; var && *var; var++)
        free(*var);
    free(list);
}
