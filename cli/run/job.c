/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the ranks of a job, stays with them until they have ended, and ends all when one fails.
 *
 * Between the launcher and each program stands a host agent (agent_link.h): started through ssh for ranks of
 * other machines; to the loop here all are two pipes. What the launcher wants goes down in messages, what
 * happens comes up.
 *
 * After the first failure the others get `grace_ns` to say what they saw and end by themselves; then
 * SIGTERM, then SIGKILL, then even the host agents are given up. */
#include "cli/run/job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/run/agent_link.h"
#include "cli/shared/args.h"
#include "cli/shared/signals.h"
#include "cli/shared/text.h"
#include "core/types.h"
#include "os/clock.h"
#include "security/vault.h"

#define TERM_NS       (5 * NS_PER_S) /* from SIGTERM to SIGKILL, and from there to giving up the host agent */
#define SSH_STARTS    8              /* at a time: sshd drops more than ten who have not shown who they are */
#define SSH_WORDS_MAX 32
#define SSH_DEFAULT                                                                                          \
    "ssh -x -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=10 -o ServerAliveCountMax=3"
#define LOOK_MS 1000 /* how often a terminal is looked at that others use now */

enum launch_phase { PHASE_WAITING, PHASE_STARTING, PHASE_RUNNING, PHASE_ENDED, PHASE_GONE };

struct rank {
    struct job *job;
    const struct job_rank *plan;
    enum launch_phase phase; /* ENDED: the program's end is known, GONE: its agent's too */
    int program;             /* process id on its machine, 0: not known */
    struct agent_link agent;
};

/* What is being done to end the job; each step comes at `next_ns`. */
enum job_step { STEP_NONE, STEP_GRACE, STEP_TERM, STEP_KILL, STEP_GIVE_UP };

struct job {
    const struct job_plan *plan;
    struct rank *ranks;
    struct secret *secret; /* NULL: none, or all have it */
    struct pollfd *polls;  /* [2 + AGENT_POLLS * count] */
    struct output output;
    int heard;
    enum job_step step;
    uint64_t next_ns;
    int code;                     /* of the first failure */
    bool failed, told;            /* told: that the program cannot be started, once is enough */
    int passed;                   /* the last of SIGINT, SIGTERM and SIGHUP that was passed on, 0: none */
    bool input_open, input_asked; /* rank 0 wants more; a piece is under way */
};

/* ---- words ---- */

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    int len = snprintf(line, sizeof line, "hearth run: ");
    vsnprintf(line + len, sizeof line - (size_t)len, format, args);
    va_end(args);
    fprintf(stderr, "%s\n", line); /* in one piece, between the lines of the ranks */
}

struct who {
    char s[HOST_NAME_LEN + 64];
};

static struct who who(const struct job *l, const struct rank *r)
{
    struct who w;
    int rank = (int)(r - l->ranks);
    if (r->program)
        snprintf(w.s, sizeof w.s, "rank %d (pid %d, host %s)", rank, r->program, r->plan->host->name);
    else
        snprintf(w.s, sizeof w.s, "rank %d (host %s)", rank, r->plan->host->name);
    return w;
}

/* ---- the way to the end ---- */

static void pass(struct job *l, enum launch_signal place)
{
    for (int i = 0; i < l->plan->count; i++) {
        struct rank *r = &l->ranks[i];
        if (r->phase == PHASE_WAITING && place == PASS_KILL)
            r->phase = PHASE_GONE;
        if (r->phase > PHASE_WAITING && r->phase < PHASE_GONE)
            agent_signal(&r->agent, place);
    }
}

static void enter(struct job *l, enum job_step step)
{
    l->step = step;
    l->next_ns = clock_real() + (step == STEP_GRACE ? l->plan->grace_ns : TERM_NS);
    for (int i = 0; i < l->plan->count; i++) {
        struct rank *r = &l->ranks[i];
        if (r->phase == PHASE_WAITING)
            r->phase = PHASE_GONE; /* never to be started */
        else if (step == STEP_TERM && r->phase == PHASE_STARTING)
            launch_stream_close(&r->agent.down); /* there is no program to be asked */
        if (step == STEP_GIVE_UP && r->agent.pid > 0)
            kill(r->agent.pid, SIGKILL);
    }
    if (step == STEP_TERM)
        pass(l, PASS_TERM);
    if (step == STEP_KILL)
        pass(l, PASS_KILL);
    if (step == STEP_GIVE_UP)
        l->next_ns = UINT64_MAX;
}

static void fail(struct job *l, int code, enum job_step step)
{
    if (!l->failed)
        l->code = code;
    l->failed = true;
    if (l->step < step)
        enter(l, step);
}

static void tend_steps(struct job *l)
{
    if (l->output.broken && l->step < STEP_TERM)
        fail(l, 128 + SIGPIPE, STEP_TERM);
    if (l->step == STEP_NONE || clock_real() < l->next_ns)
        return;
    if (l->step == STEP_GRACE)
        say("%s after the failure: ending the other ranks",
            text_time((double)l->plan->grace_ns / (double)NS_PER_S).s);
    enter(l, (enum job_step)(l->step + 1));
}

static void tend_signals(struct job *l)
{
    for (int number; (number = signals_next());) {
        enum launch_signal place = pass_place(number);
        bool ends = number == SIGINT || number == SIGTERM || number == SIGHUP;
        if (place == PASS_COUNT)
            continue; /* SIGCHLD: it only had to wake us */
        if (ends && l->passed && number == l->passed) {
            say("second %s: killing all ranks", strsignal(number));
            fail(l, 128 + number, STEP_KILL);
            continue;
        }
        if (ends)
            l->passed = number;
        if (number == SIGINT)
            say("interrupt passed on to all ranks; the next one kills them");
        pass(l, place);
        if (number == SIGTSTP)
            kill(getpid(), SIGSTOP);
    }
}

/* Also when our output is stuck. */
static void tend(void *arg)
{
    tend_signals(arg);
    tend_steps(arg);
}

/* ---- messages from host agents ---- */

static void take_end(struct job *l, struct rank *r, int code, int number)
{
    r->phase = PHASE_ENDED;
    output_end(&l->output, (int)(r - l->ranks));
    if (code == 0 && number == 0)
        return;
    /* Those who end because we or the user asked for it are no news. */
    bool asked = l->step >= STEP_TERM || (l->passed && (number == l->passed || code == 128 + l->passed));
    if (!asked && number)
        say("%s was killed by signal %d (%s)", who(l, r).s, number, strsignal(number));
    else if (!asked || l->plan->verbose)
        say("%s exited with code %d", who(l, r).s, number ? 128 + number : code);
    fail(l, number ? 128 + number : code, STEP_GRACE);
}

static void take_failure(struct job *l, struct rank *r, const struct launch_message *m)
{
    r->phase = PHASE_ENDED;
    launch_stream_close(&r->agent.down);
    if (!l->told)
        say("%s: %s", who(l, r).s, m->reason);
    l->told = true;
    fail(l, m->number, STEP_TERM); /* the others would wait in vain */
}

/* Only rank 0 has input, so only its host may say what became of it. */
static bool take_input(struct job *l, const struct rank *r, const struct launch_message *m)
{
    if (r != l->ranks || !l->input_asked)
        return false;
    l->input_asked = false;
    l->input_open = l->input_open && m->number == 1;
    return true;
}

/* The token goes to an agent that has shown itself, and to nobody else: whatever a login shell or a forced
 * command does with what it reads, it does not get the secret. */
static void welcome(struct job *l, struct rank *r)
{
    char token[SECRET_TOKEN_MAX];
    if (r->plan->has_secret)
        secret_token(l->secret, token);
    r->phase = PHASE_RUNNING;
    bool good = agent_welcome(&r->agent, r->plan->has_secret ? token : NULL, r == l->ranks);
    wipe(token, sizeof token);
    if (good)
        return;
    say("cannot start %s: its arguments and variables are too long", who(l, r).s);
    fail(l, EXIT_FAILED_CHECK, STEP_TERM);
}

static bool take(void *arg, const struct launch_message *m)
{
    struct rank *r = arg;
    struct job *l = r->job;
    switch (m->kind) {
    case LAUNCH_HELLO:
        welcome(l, r);
        break;
    case LAUNCH_PID:
        r->program = m->number;
        if (l->plan->verbose)
            say("%s started", who(l, r).s);
        break;
    case LAUNCH_TAKEN:
        return take_input(l, r, m);
    case LAUNCH_FAILED:
        take_failure(l, r, m);
        break;
    case LAUNCH_END:
        take_end(l, r, m->number, m->signal);
        break;
    default: /* a newer agent may say more */
        break;
    }
    return true;
}

static void drop_secret(struct job *l)
{
    for (int i = 0; i < l->plan->count; i++) {
        if (l->ranks[i].phase < PHASE_RUNNING)
            return;
    }
    secret_close(l->secret);
    l->secret = NULL;
}

static void refuse(struct job *l, struct rank *r)
{
    say("%s: %s", who(l, r).s, r->agent.why);
    r->phase = PHASE_ENDED;
    launch_stream_close(&r->agent.down);
    launch_stream_close(&r->agent.up);
    fail(l, EXIT_FAILED_CHECK, STEP_TERM);
}

/* ---- the end of an agent ---- */

static void lose(struct job *l, struct rank *r, int status)
{
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
        code = number ? 128 + number : WEXITSTATUS(status);
    const char *what = r->plan->host->local ? "its host agent" : "ssh";
    if (r->plan->host->local && r->program > 0)
        kill(-r->program, SIGKILL); /* nobody else is left to do it */
    if (l->step < STEP_TERM || l->plan->verbose) {
        if (number)
            say("%s was lost: %s was killed by signal %d (%s)", who(l, r).s, what, number, strsignal(number));
        else
            say("%s was lost: %s exited with code %d", who(l, r).s, what, code);
    }
    fail(l, code ? code : EXIT_FAILED_CHECK, STEP_GRACE);
}

static void reap(struct job *l)
{
    for (int i = 0; i < l->plan->count; i++) {
        struct rank *r = &l->ranks[i];
        int status, reaped = agent_reap(&r->agent, take, r, &status);
        if (reaped == 0)
            continue;
        if (reaped < 0)
            refuse(l, r);
        if (r->phase < PHASE_ENDED)
            lose(l, r, status);
        r->phase = PHASE_GONE;
    }
}

/* ---- starting ---- */

/* Our own program on the other machine: where it is here, else by its name. No word needs quoting for a
 * shell, since a path with other messages is not used. */
static void remote_command(char *command, size_t size)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-";
    char path[1024];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
    path[len > 0 ? len : 0] = 0;
    if (path[0] == '/' && !path[strspn(path, plain)])
        snprintf(command, size,
                 "sh -c 'if test -x %s; then exec %s run --child; fi; exec hearth run --child'", path, path);
    else
        snprintf(command, size, "hearth run --child");
}

static bool start(struct job *l, struct rank *r)
{
    char words[4096], command[4096], dir[4096] = "/", *ssh[SSH_WORDS_MAX + 3], *rest = words;
    struct agent_plan plan = {.vars = r->plan->vars, .args = l->plan->args};
    int count = 0;
    if (!r->plan->host->local) {
        snprintf(words, sizeof words, "%s", l->plan->ssh ? l->plan->ssh : SSH_DEFAULT);
        for (char *word; count < SSH_WORDS_MAX && (word = strsep(&rest, " "));) {
            if (*word)
                ssh[count++] = word;
        }
        remote_command(command, sizeof command);
        ssh[count++] = (char *)(uintptr_t)r->plan->host->name;
        ssh[count++] = command;
        ssh[count] = NULL;
        plan.ssh = ssh;
        plan.dir = dir;
        if (!getcwd(dir, sizeof dir))
            say("this directory has no name; remote ranks run in /");
    }
    bool good = agent_start(&r->agent, &plan);
    r->phase = r->agent.pid > 0 ? PHASE_STARTING : PHASE_GONE;
    if (!good)
        say("cannot start %s: %s", who(l, r).s, r->agent.why);
    return good;
}

static void start_more(struct job *l)
{
    int starting = 0;
    for (int i = 0; i < l->plan->count; i++)
        starting += l->ranks[i].phase == PHASE_STARTING && !l->ranks[i].plan->host->local;
    for (int i = 0; i < l->plan->count && l->step == STEP_NONE; i++) {
        struct rank *r = &l->ranks[i];
        bool remote = !r->plan->host->local;
        if (r->phase != PHASE_WAITING || (remote && starting >= SSH_STARTS))
            continue;
        starting += remote;
        if (!start(l, r))
            fail(l, EXIT_FAILED_CHECK, STEP_TERM);
    }
}

/* ---- the loop ---- */

/* A terminal is only read while it is ours: a job in the background would be stopped. */
static bool may_read_input(const struct job *l)
{
    return l->input_open && !l->input_asked && l->ranks[0].phase == PHASE_RUNNING &&
           (!isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) == getpgrp());
}

static void read_input(struct job *l)
{
    char bytes[INPUT_MAX];
    ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got > 0) {
        l->input_asked = launch_stream_add(&l->ranks[0].agent.down, LAUNCH_INPUT, bytes, (size_t)got);
    } else {
        l->input_open = false;
        (void)launch_stream_add(&l->ranks[0].agent.down, LAUNCH_INPUT_END, NULL, 0);
    }
}

static int patience_ms(const struct job *l)
{
    uint64_t now = clock_real();
    if (l->step != STEP_NONE && l->next_ns != UINT64_MAX)
        return l->next_ns > now ? (int)((l->next_ns - now) / NS_PER_MS) + 1 : 0;
    return l->input_open && isatty(STDIN_FILENO) ? LOOK_MS : -1;
}

static void wait_for_events(struct job *l)
{
    struct pollfd *polls = l->polls;
    nfds_t count = 2;
    polls[0] = (struct pollfd){.fd = l->heard, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = may_read_input(l) ? STDIN_FILENO : -1, .events = POLLIN};
    for (int i = 0; i < l->plan->count; i++, count += AGENT_POLLS)
        agent_polls(&l->ranks[i].agent, polls + count);
    if (poll(polls, count, patience_ms(l)) <= 0)
        return;
    if (polls[1].revents)
        read_input(l);
    for (int i = 0; i < l->plan->count; i++) {
        const struct pollfd *own = polls + 2 + AGENT_POLLS * i;
        if ((own[0].revents || own[1].revents || own[2].revents) &&
            agent_hear(&l->ranks[i].agent, take, &l->ranks[i]) < 0)
            refuse(l, &l->ranks[i]);
    }
}

static bool all_gone(const struct job *l)
{
    for (int i = 0; i < l->plan->count; i++) {
        if (l->ranks[i].phase != PHASE_GONE)
            return false;
    }
    return true;
}

/* Three descriptors a rank may be more than the usual limit; the standard ones must not be taken by pipes. */
static void prepare_descriptors(void)
{
    struct rlimit limit;
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) {
    }
    if (fd > STDERR_FILENO)
        close(fd);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static bool prepare(struct job *l)
{
    static const int heard[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
    size_t count = (size_t)l->plan->count;
    prepare_descriptors();
    signal(SIGPIPE, SIG_IGN);
    l->ranks = calloc(count, sizeof *l->ranks);
    l->polls = calloc(2 + AGENT_POLLS * count, sizeof *l->polls);
    l->heard = signals_open(heard, sizeof heard / sizeof *heard);
    if (!l->ranks || !l->polls || l->heard < 0) {
        say("no memory or descriptors for %d ranks", l->plan->count);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        l->ranks[i] = (struct rank){.job = l, .plan = &l->plan->ranks[i]};
        agent_init(&l->ranks[i].agent, &l->output, (int)i);
    }
    l->output.idle = tend;
    l->output.arg = l;
    return true;
}

int job_run(const struct job_plan *plan)
{
    struct job l = {.plan = plan, .secret = plan->secret, .input_open = true, .code = EXIT_FAILED_CHECK};
    bool good = output_open(&l.output, plan->count, plan->prefix, plan->dir) && prepare(&l);
    if (good)
        l.code = EXIT_GOOD;
    while (good && !all_gone(&l)) {
        start_more(&l);
        wait_for_events(&l);
        tend(&l);
        reap(&l);
        drop_secret(&l);
    }
    secret_close(l.secret);
    output_close(&l.output);
    free(l.ranks);
    free(l.polls);
    return l.code;
}
