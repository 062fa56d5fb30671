/* SPDX-License-Identifier: Apache-2.0 */
/* One program that a command with a life of its own starts and looks after. */
#include "cli/program.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/args.h"
#include "core/types.h"
#include "os/clock.h"
#include "security/vault.h"

#define STOP_NS   (5 * NS_PER_S) /* from SIGTERM to SIGKILL, and from there to giving up the keeper */
#define DRAIN_MAX 64

extern char **environ;

/* ---- starting ---- */

/* Our own program, as a keeper at the other end of two pipes. */
static int spawn_keeper(pid_t *pid, int in, int out)
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

static bool send_setup(struct program *p, const struct program_plan *plan)
{
    bool good = true;
    for (char **var = plan->vars; good && var && *var; var++)
        good = post_add(&p->down, LETTER_VAR, *var, strlen(*var));
    for (char **arg = plan->args; good && *arg; arg++)
        good = post_add(&p->down, LETTER_ARG, *arg, strlen(*arg));
    return good;
}

static void close_ends(int ends[2])
{
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
    }
}

bool program_start(struct program *p, const struct program_plan *plan, struct output *output)
{
    int down[2] = {-1, -1}, up[2] = {-1, -1};
    *p = (struct program){.output = output, .rank = plan->rank, .down = {.fd = -1}, .up = {.fd = -1}};
    int reason = pipe_open(down) && pipe_open(up) ? 0 : errno;
    if (!reason)
        reason = spawn_keeper(&p->keeper, down[0], up[1]);
    if (reason) {
        snprintf(p->why, sizeof p->why, "cannot start a process: %s", strerror(reason));
        close_ends(down);
        close_ends(up);
        p->keeper = 0;
        return false;
    }
    close(down[0]);
    close(up[1]);
    post_init(&p->down, down[1]);
    post_init(&p->up, up[0]);
    if (plan->token)
        snprintf(p->token, sizeof p->token, "%s", plan->token);
    if (send_setup(p, plan))
        return true;
    snprintf(p->why, sizeof p->why, "its arguments and variables are too long");
    program_stop(p);
    while (!program_over(p)) {
        (void)poll(NULL, 0, 10);
        program_tend(p);
    }
    return false;
}

/* ---- letters ---- */

static void take_end(struct program *p, const struct letter *letter)
{
    if (letter->len != 2 || p->ended)
        return;
    p->ended = true;
    p->signal = letter->content[1];
    p->code = p->signal ? 128 + p->signal : letter->content[0];
}

static void take_failure(struct program *p, const struct letter *letter)
{
    if (letter->len == 0 || p->ended)
        return;
    p->ended = true;
    p->code = letter->content[0];
    snprintf(p->why, sizeof p->why, "%.*s", (int)letter->len - 1, (const char *)letter->content + 1);
}

static void welcome(struct program *p)
{
    unsigned char has_input = 0, term = PASS_TERM;
    bool good = !p->token[0] || post_add(&p->down, LETTER_SECRET, p->token, strlen(p->token));
    wipe(p->token, sizeof p->token);
    good = good && post_add(&p->down, LETTER_GO, &has_input, 1);
    if (good && p->asked)
        good = post_add(&p->down, LETTER_SIGNAL, &term, 1);
    p->greeted = true;
    if (!good)
        post_close(&p->down); /* the keeper ends then */
}

static void take_letter(struct program *p, const struct letter *letter)
{
    const char *text = (const char *)letter->content;
    switch (letter->kind) {
    case LETTER_HELLO:
        if (!p->greeted)
            welcome(p);
        break;
    case LETTER_OUT:
        output_write(p->output, p->rank, OUTPUT_STDOUT, text, letter->len);
        break;
    case LETTER_ERR:
        output_write(p->output, p->rank, OUTPUT_STDERR, text, letter->len);
        break;
    case LETTER_FAILED:
        take_failure(p, letter);
        break;
    case LETTER_END:
        take_end(p, letter);
        break;
    default:
        break;
    }
}

/* false: nothing was there. */
static bool hear(struct program *p)
{
    struct letter letter;
    int more = 0, state = p->up.fd >= 0 ? post_read(&p->up) : -1;
    while (state > 0 && (more = post_next(&p->up, &letter)) == 1)
        take_letter(p, &letter);
    if (state < 0 || more < 0)
        post_close(&p->up);
    return state > 0;
}

/* ---- the end ---- */

void program_stop(struct program *p)
{
    unsigned char term = PASS_TERM;
    if (p->asked || p->keeper == 0)
        return;
    p->asked = true;
    p->next_ns = clock_real() + STOP_NS;
    if (p->greeted)
        (void)post_add(&p->down, LETTER_SIGNAL, &term, 1);
    else
        post_close(&p->down); /* there is no program yet: the keeper sees that nobody wants one */
}

static void escalate(struct program *p)
{
    unsigned char number = PASS_KILL;
    if (!p->asked || p->keeper == 0 || clock_real() < p->next_ns)
        return;
    p->next_ns = clock_real() + STOP_NS;
    if (p->kills++ == 0)
        (void)post_add(&p->down, LETTER_SIGNAL, &number, 1);
    else
        kill(p->keeper, SIGKILL); /* its program follows it */
}

static void reap(struct program *p)
{
    int status = 0;
    if (p->keeper == 0 || waitpid(p->keeper, &status, WNOHANG) != p->keeper)
        return;
    p->keeper = 0;
    for (int i = 0; i < DRAIN_MAX && hear(p); i++) {
    }
    output_end(p->output, p->rank);
    post_close(&p->down);
    post_close(&p->up);
    wipe(p->token, sizeof p->token);
    if (p->ended)
        return;
    p->ended = true;
    p->code = p->asked ? 128 + SIGTERM : EXIT_FAILED_CHECK;
    snprintf(p->why, sizeof p->why, "its keeper was lost");
}

void program_polls(const struct program *p, struct pollfd polls[2])
{
    polls[0] = (struct pollfd){.fd = p->up.fd, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = post_waiting(&p->down) ? p->down.fd : -1, .events = POLLOUT};
}

void program_tend(struct program *p)
{
    hear(p);
    post_flush(&p->down);
    escalate(p);
    reap(p);
}

int program_patience_ms(const struct program *p)
{
    uint64_t now = clock_real();
    if (p->keeper && p->up.fd < 0)
        return 20; /* it is about to end, and nothing but a look tells */
    if (!p->asked || p->keeper == 0)
        return -1;
    return p->next_ns > now ? (int)((p->next_ns - now) / NS_PER_MS) + 1 : 0;
}

bool program_over(const struct program *p)
{
    return p->keeper == 0;
}
