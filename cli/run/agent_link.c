/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher's end of a host agent. */
#define _GNU_SOURCE 1 /* POSIX_SPAWN_SETSID */
#include "cli/run/agent_link.h"

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

#include "cli/shared/signals.h"

#define DRAINS_MAX 64 /* reads of what an agent left in its pipe */

extern char **environ;

void agent_init(struct agent_link *a, struct output *output, int rank)
{
    *a = (struct agent_link){.down = {.fd = -1}, .up = {.fd = -1}, .err = -1, .output = output, .rank = rank};
}

void agent_close(struct agent_link *a)
{
    launch_stream_close(&a->down);
    launch_stream_close(&a->up);
    if (a->err >= 0)
        close(a->err);
    a->err = -1;
}

/* ---- starting ---- */

enum { OURS, THEIRS };
struct agent_ends {
    int down[2], up[2], err[2]; /* [OURS], [THEIRS] */
};

static void close_side(struct agent_ends *e, int side)
{
    int *fds[] = {&e->down[side], &e->up[side], &e->err[side]};
    for (int i = 0; i < 3; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

static bool open_ends(struct agent_ends *e, bool err)
{
    int pair[2];
    *e = (struct agent_ends){{-1, -1}, {-1, -1}, {-1, -1}};
    if (!pipe_open(pair))
        return false;
    e->down[THEIRS] = pair[0], e->down[OURS] = pair[1];
    if (!pipe_open(e->up))
        return false;
    return !err || pipe_open(e->err);
}

static int spawn(pid_t *pid, char *const *args, bool here, const struct agent_ends *e,
                 posix_spawn_file_actions_t *actions, posix_spawnattr_t *attr)
{
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    int reason = posix_spawn_file_actions_adddup2(actions, e->down[THEIRS], STDIN_FILENO);
    if (!reason)
        reason = posix_spawn_file_actions_adddup2(actions, e->up[THEIRS], STDOUT_FILENO);
    if (!reason && e->err[THEIRS] >= 0)
        reason = posix_spawn_file_actions_adddup2(actions, e->err[THEIRS], STDERR_FILENO);
    if (!reason)
        reason = posix_spawnattr_setsigdefault(attr, &all);
    if (!reason)
        reason = posix_spawnattr_setsigmask(attr, &none);
    if (!reason) /* no terminal: neither its signals nor a question for a password */
        reason = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETSID);
    if (!reason)
        reason = here ? posix_spawn(pid, "/proc/self/exe", actions, attr, args, environ)
                      : posix_spawnp(pid, args[0], actions, attr, args, environ);
    if (here && reason == ENOENT) /* a system without /proc */
        reason = posix_spawnp(pid, args[0], actions, attr, args, environ);
    return reason;
}

/* Spawned and not forked: we may have many threads, and secrets that are not the agent's. */
static int start_process(pid_t *pid, char *const *ssh, const struct agent_ends *e)
{
    char name[] = "hearth", run[] = "run", child[] = "--child", *own[] = {name, run, child, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int reason = posix_spawn_file_actions_init(&actions);
    if (reason)
        return reason;
    reason = posix_spawnattr_init(&attr);
    if (!reason) {
        reason = spawn(pid, ssh ? ssh : own, !ssh, e, &actions, &attr);
        posix_spawnattr_destroy(&attr);
    }
    posix_spawn_file_actions_destroy(&actions);
    return reason;
}

/* Everything that the agent must know before it starts the program, but the secret. */
static bool send_setup(struct agent_link *a, const struct agent_plan *plan)
{
    bool good = !plan->dir || launch_stream_add(&a->down, LAUNCH_DIR, plan->dir, strlen(plan->dir));
    for (char **var = plan->vars; good && var && *var; var++)
        good = launch_stream_add(&a->down, LAUNCH_VAR, *var, strlen(*var));
    for (char **arg = plan->args; good && *arg; arg++)
        good = launch_stream_add(&a->down, LAUNCH_ARG, *arg, strlen(*arg));
    return good;
}

bool agent_start(struct agent_link *a, const struct agent_plan *plan)
{
    struct agent_ends e;
    int reason = open_ends(&e, plan->ssh) ? 0 : errno;
    if (!reason)
        reason = start_process(&a->pid, plan->ssh, &e);
    close_side(&e, THEIRS);
    if (reason) {
        close_side(&e, OURS);
        a->pid = 0;
        snprintf(a->why, sizeof a->why, "cannot run '%s': %s", plan->ssh ? plan->ssh[0] : "hearth",
                 strerror(reason));
        return false;
    }
    launch_stream_init(&a->down, e.down[OURS]);
    launch_stream_init(&a->up, e.up[OURS]);
    a->err = e.err[OURS];
    if (a->err >= 0)
        fcntl(a->err, F_SETFL, O_NONBLOCK);
    if (send_setup(a, plan))
        return true;
    snprintf(a->why, sizeof a->why, "its arguments and variables are too long");
    return false;
}

bool agent_welcome(struct agent_link *a, const char *token, bool has_input)
{
    unsigned char input = has_input;
    bool good = !token || launch_stream_add(&a->down, LAUNCH_SECRET, token, strlen(token));
    good = good && launch_stream_add(&a->down, LAUNCH_GO, &input, 1);
    for (unsigned char place = 0; good && place < PASS_COUNT; place++) {
        if (a->early & 1U << place)
            good = launch_stream_add(&a->down, LAUNCH_SIGNAL, &place, 1);
    }
    return good;
}

void agent_signal(struct agent_link *a, enum launch_signal place)
{
    unsigned char byte = (unsigned char)place;
    if (a->greeted)
        (void)launch_stream_add(&a->down, LAUNCH_SIGNAL, &byte, 1);
    else
        a->early |= 1U << place;
}

/* ---- hearing ---- */

void agent_polls(const struct agent_link *a, struct pollfd polls[AGENT_POLLS])
{
    polls[0] = (struct pollfd){.fd = a->up.fd, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = launch_stream_waiting(&a->down) ? a->down.fd : -1, .events = POLLOUT};
    polls[2] = (struct pollfd){.fd = a->err, .events = POLLIN};
}

/* Whoever answered is no agent: most often a shell that greets its users. */
static int refuse_stranger(struct agent_link *a, const unsigned char *bytes, size_t len)
{
    char words[64];
    len = len < sizeof words - 1 ? len : sizeof words - 1;
    for (size_t i = 0; i < len; i++)
        words[i] = bytes[i] >= ' ' && bytes[i] < 127 ? (char)bytes[i] : ' ';
    words[len] = 0;
    snprintf(
        a->why, sizeof a->why,
        "its answer is not hearth's of this version but '%s'; a remote shell must print nothing by itself",
        words);
    return -1;
}

static int refuse_launch(struct agent_link *a, const struct launch_frame *frame)
{
    snprintf(a->why, sizeof a->why,
             "its host agent broke the protocol: a message of kind 0x%02x with %zu bytes",
             (unsigned)frame->kind, frame->len);
    return -1;
}

static bool take_launch(struct agent_link *a, const struct launch_frame *frame, agent_take *take, void *arg)
{
    struct launch_message m;
    if (!launch_message_read(frame, &m))
        return false;
    if (m.kind == LAUNCH_OUT || m.kind == LAUNCH_ERR)
        output_write(a->output, a->rank, m.kind == LAUNCH_OUT ? OUTPUT_STDOUT : OUTPUT_STDERR, m.bytes,
                     m.len);
    else if (m.kind != LAUNCH_HELLO || !a->greeted)
        return a->greeted = true, take(arg, &m);
    return true;
}

static bool hear_ssh(struct agent_link *a)
{
    char bytes[4096];
    ssize_t got = a->err >= 0 ? read(a->err, bytes, sizeof bytes) : -1;
    if (got > 0)
        output_write(a->output, a->rank, OUTPUT_STDERR, bytes, (size_t)got);
    if (got == 0) {
        close(a->err);
        a->err = -1;
    }
    return got > 0;
}

int agent_hear(struct agent_link *a, agent_take *take, void *arg)
{
    struct launch_frame frame;
    bool said = hear_ssh(a);
    int more = 0, state = a->up.fd >= 0 ? launch_stream_read(&a->up) : -1;
    launch_stream_flush(&a->down);
    while (state > 0 && a->up.fd >= 0) {
        const unsigned char *bytes = a->up.data + a->up.at;
        size_t waiting = launch_stream_waiting(&a->up);
        bool stranger = !a->greeted && waiting > 0 && bytes[0] != LAUNCH_HELLO;
        more = stranger ? -1 : launch_stream_next(&a->up, &frame);
        if (more == 0)
            break;
        bool good = more == 1 && take_launch(a, &frame, take, arg);
        if (!good)
            return a->greeted ? refuse_launch(a, &frame) : refuse_stranger(a, bytes, waiting);
    }
    if (state < 0)
        launch_stream_close(&a->up);
    return said || state > 0;
}

int agent_reap(struct agent_link *a, agent_take *take, void *arg, int *status)
{
    int heard = 1;
    if (a->pid <= 0 || waitpid(a->pid, status, WNOHANG) != a->pid)
        return 0;
    a->pid = 0;
    for (int i = 0; i < DRAINS_MAX && heard > 0; i++)
        heard = agent_hear(a, take, arg);
    output_end(a->output, a->rank);
    agent_close(a);
    return heard < 0 ? -1 : 1;
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
    va_start(args, format);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = vars->count < vars->max && len >= 0 ? malloc((size_t)len + 1) : NULL;
    if (!text) {
        vars->full = true;
        return;
    }
    va_start(args, format);
    vsnprintf(text, (size_t)len + 1, format, args);
    va_end(args);
    vars->list[vars->count++] = text;
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
