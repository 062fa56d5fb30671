/* SPDX-License-Identifier: Apache-2.0 */
/* One program that a command with a life of its own starts and looks after. */
#include "cli/run/child.h"
#include "cli/shared/signals.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/run/launch_message.h"
#include "cli/shared/args.h"
#include "core/types.h"
#include "os/clock.h"
#include "security/vault.h"

#define STOP_NS   (5 * NS_PER_S) /* from SIGTERM to SIGKILL, and from there to giving up the host agent */
#define DRAIN_MAX 64

extern char **environ;

/* ---- starting ---- */

/* Our own program, as a host agent at the other end of two pipes. */
static int spawn_host_agent(pid_t *pid, int in, int out)
{
    char name[] = "hearth", run[] = "run", child[] = "--child";
    char *args[] = {name, run, child, NULL};
    posix_spawn_file_actions_t actions;
    int reason = posix_spawn_file_actions_init(&actions);
    if (reason)
        return reason;
    reason = posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    if (!reason)
        reason = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (!reason)
        reason = posix_spawn(pid, "/proc/self/exe", &actions, NULL, args, environ);
    if (reason == ENOENT) /* a system without /proc */
        reason = posix_spawnp(pid, name, &actions, NULL, args, environ);
    posix_spawn_file_actions_destroy(&actions);
    return reason;
}

static bool send_setup(struct child_process *w, const struct child_process_plan *plan)
{
    bool good = true;
    for (char **var = plan->vars; good && var && *var; var++)
        good = launch_stream_add(&w->down, LAUNCH_VAR, *var, strlen(*var));
    for (char **arg = plan->args; good && *arg; arg++)
        good = launch_stream_add(&w->down, LAUNCH_ARG, *arg, strlen(*arg));
    return good;
}

static void close_ends(int ends[2])
{
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
    }
}

bool child_process_start(struct child_process *w, const struct child_process_plan *plan,
                         struct output *output)
{
    int down[2] = {-1, -1}, up[2] = {-1, -1};
    *w = (struct child_process){.output = output, .rank = plan->rank, .down = {.fd = -1}, .up = {.fd = -1}};
    int reason = pipe_open(down) && pipe_open(up) ? 0 : errno;
    if (!reason)
        reason = spawn_host_agent(&w->agent, down[0], up[1]);
    if (reason) {
        snprintf(w->why, sizeof w->why, "cannot start a process: %s", strerror(reason));
        close_ends(down);
        close_ends(up);
        w->agent = 0;
        return false;
    }
    close(down[0]);
    close(up[1]);
    launch_stream_init(&w->down, down[1]);
    launch_stream_init(&w->up, up[0]);
    if (plan->token)
        snprintf(w->token, sizeof w->token, "%s", plan->token);
    if (send_setup(w, plan))
        return true;
    snprintf(w->why, sizeof w->why, "its arguments and variables are too long");
    child_process_stop(w);
    while (!child_process_over(w)) {
        (void)poll(NULL, 0, 10);
        child_process_tend(w);
    }
    return false;
}

/* ---- messages ---- */

static void take_end(struct child_process *w, const struct launch_message *m)
{
    if (w->ended)
        return;
    w->ended = true;
    w->signal = m->signal;
    w->code = m->signal ? 128 + m->signal : m->number;
    snprintf(w->why, sizeof w->why, "%s", m->reason);
}

static void welcome(struct child_process *w)
{
    unsigned char has_input = 0, term = PASS_TERM;
    bool good = !w->token[0] || launch_stream_add(&w->down, LAUNCH_SECRET, w->token, strlen(w->token));
    wipe(w->token, sizeof w->token);
    good = good && launch_stream_add(&w->down, LAUNCH_GO, &has_input, 1);
    if (good && w->asked)
        good = launch_stream_add(&w->down, LAUNCH_SIGNAL, &term, 1);
    w->greeted = true;
    if (!good)
        launch_stream_close(&w->down); /* the host agent ends then */
}

/* false: it breaks the protocol. */
static bool take_launch(struct child_process *w, const struct launch_frame *frame)
{
    struct launch_message m;
    if (!launch_message_read(frame, &m))
        return false;
    switch (m.kind) {
    case LAUNCH_HELLO:
        if (!w->greeted)
            welcome(w);
        break;
    case LAUNCH_OUT:
        output_write(w->output, w->rank, OUTPUT_STDOUT, m.bytes, m.len);
        break;
    case LAUNCH_ERR:
        output_write(w->output, w->rank, OUTPUT_STDERR, m.bytes, m.len);
        break;
    case LAUNCH_FAILED:
    case LAUNCH_END:
        take_end(w, &m);
        break;
    default:
        break;
    }
    return true;
}

/* false: nothing was there. */
static bool hear(struct child_process *w)
{
    struct launch_frame frame;
    int more = 0, state = w->up.fd >= 0 ? launch_stream_read(&w->up) : -1;
    while (state > 0 && (more = launch_stream_next(&w->up, &frame)) == 1 && take_launch(w, &frame)) {
    }
    if (state < 0 || more != 0)
        launch_stream_close(&w->up);
    return state > 0;
}

/* ---- the end ---- */

void child_process_stop(struct child_process *w)
{
    unsigned char term = PASS_TERM;
    if (w->asked || w->agent == 0)
        return;
    w->asked = true;
    w->next_ns = clock_real() + STOP_NS;
    if (w->greeted)
        (void)launch_stream_add(&w->down, LAUNCH_SIGNAL, &term, 1);
    else
        launch_stream_close(
            &w->down); /* there is no program yet: the host agent sees that nobody wants one */
}

static void escalate(struct child_process *w)
{
    unsigned char number = PASS_KILL;
    if (!w->asked || w->agent == 0 || clock_real() < w->next_ns)
        return;
    w->next_ns = clock_real() + STOP_NS;
    if (w->kills++ == 0)
        (void)launch_stream_add(&w->down, LAUNCH_SIGNAL, &number, 1);
    else
        kill(w->agent, SIGKILL); /* its program follows it */
}

static void reap(struct child_process *w)
{
    int status = 0;
    if (w->agent == 0 || waitpid(w->agent, &status, WNOHANG) != w->agent)
        return;
    w->agent = 0;
    for (int i = 0; i < DRAIN_MAX && hear(w); i++) {
    }
    output_end(w->output, w->rank);
    launch_stream_close(&w->down);
    launch_stream_close(&w->up);
    wipe(w->token, sizeof w->token);
    if (w->ended)
        return;
    w->ended = true;
    w->code = w->asked ? 128 + SIGTERM : EXIT_FAILED_CHECK;
    snprintf(w->why, sizeof w->why, "its host agent was lost");
}

void child_process_polls(const struct child_process *w, struct pollfd polls[2])
{
    polls[0] = (struct pollfd){.fd = w->up.fd, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = launch_stream_waiting(&w->down) ? w->down.fd : -1, .events = POLLOUT};
}

void child_process_tend(struct child_process *w)
{
    hear(w);
    launch_stream_flush(&w->down);
    escalate(w);
    reap(w);
}

int child_process_patience_ms(const struct child_process *w)
{
    uint64_t now = clock_real();
    if (w->agent && w->up.fd < 0)
        return 20; /* it is about to end, and nothing but a look tells */
    if (!w->asked || w->agent == 0)
        return -1;
    return w->next_ns > now ? (int)((w->next_ns - now) / NS_PER_MS) + 1 : 0;
}

bool child_process_over(const struct child_process *w)
{
    return w->agent == 0;
}
