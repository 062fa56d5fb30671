/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the ranks of a job, stays with them until they have ended, and ends all when one fails.
 *
 * After the first failure the others get `grace_s` to say what they saw and end by themselves; then they are
 * stopped (child.h): SIGTERM, SIGKILL, and then even their host agents are killed. */
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

#include "cli/shared/args.h"
#include "cli/shared/signals.h"
#include "cli/shared/text.h"
#include "core/types.h"
#include "os/clock.h"

#define SSH_STARTS    8 /* at a time: sshd drops more than ten that have not authenticated */
#define SSH_WORDS_MAX 32
#define VARS_MAX      320 /* of a rank; most are handed on from our environment to other machines */
#define SSH_DEFAULT                                                                                          \
    "ssh -x -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=10 -o ServerAliveCountMax=3"
#define LOOK_MS 1000 /* how often a terminal is looked at that others use now */

enum rank_phase { RANK_WAITING, RANK_STARTED, RANK_GONE };

struct rank {
    const struct host *host;
    enum rank_phase phase;
    bool shown, told; /* that it has started; how it ended */
    struct child_process child;
};

/* What is being done to end the job. */
enum job_step { STEP_NONE, STEP_GRACE, STEP_STOP, STEP_KILL };

struct job {
    const struct job_plan *plan;
    struct rank *ranks;
    struct secret *secret; /* NULL: none, or all have it */
    struct pollfd *polls;  /* [2 + CHILD_PROCESS_POLLS * count] */
    struct output output;
    int heard;
    enum job_step step;
    uint64_t grace_end_ns;
    int code;          /* of the first failure */
    bool failed, told; /* told: that the program cannot be started, once is enough */
    int passed;        /* the last of SIGINT, SIGTERM and SIGHUP that was passed on, 0: none */
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
    if (r->child.program)
        snprintf(w.s, sizeof w.s, "rank %d (pid %d, host %s)", rank, r->child.program, r->host->name);
    else
        snprintf(w.s, sizeof w.s, "rank %d (host %s)", rank, r->host->name);
    return w;
}

/* ---- the way to the end ---- */

static void enter(struct job *l, enum job_step step)
{
    l->step = step;
    l->grace_end_ns = clock_real() + (uint64_t)(l->plan->grace_s * (double)NS_PER_S);
    for (int i = 0; i < l->plan->hosts->ranks; i++) {
        struct rank *r = &l->ranks[i];
        if (r->phase == RANK_WAITING)
            r->phase = RANK_GONE; /* never to be started */
        if (step >= STEP_STOP)
            child_process_stop(&r->child);
        if (step == STEP_KILL)
            r->child.next_ns = 0;
    }
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
    if (l->output.broken)
        fail(l, 128 + SIGPIPE, STEP_STOP);
    if (l->step == STEP_GRACE && clock_real() >= l->grace_end_ns) {
        say("%s after the failure: ending the other ranks", text_time(l->plan->grace_s).s);
        enter(l, STEP_STOP);
    }
}

static void tend_signals(struct job *l)
{
    for (int number; (number = signals_next());) {
        enum launch_signal place = pass_place(number);
        bool ends = number == SIGINT || number == SIGTERM || number == SIGHUP;
        if (place == PASS_COUNT)
            continue; /* SIGCHLD: it only had to wake us */
        if (ends && number == l->passed) {
            say("second %s: killing all ranks", strsignal(number));
            fail(l, 128 + number, STEP_KILL);
            continue;
        }
        if (ends)
            l->passed = number;
        if (number == SIGINT)
            say("interrupt passed on to all ranks; the next one kills them");
        for (int i = 0; i < l->plan->hosts->ranks; i++) {
            if (l->ranks[i].phase == RANK_STARTED)
                child_process_signal(&l->ranks[i].child, place);
        }
        if (number == SIGTSTP)
            kill(getpid(), SIGSTOP);
    }
}

/* Also when our output is stuck. */
static void tend(void *arg)
{
    struct job *l = arg;
    tend_signals(l);
    tend_steps(l);
    for (int i = 0; i < l->plan->hosts->ranks; i++)
        child_process_hasten(&l->ranks[i].child);
}

/* ---- what became of the ranks ---- */

static void tell_end(struct job *l, struct rank *r)
{
    const struct child_process *c = &r->child;
    /* An end that we or the user asked for is no news. */
    bool stopped = l->step >= STEP_STOP, asked = stopped || (l->passed && c->code == 128 + l->passed);
    switch (c->end) {
    case CHILD_RUNS:
        break;
    case CHILD_EXITED:
        if (c->code == 0)
            break;
        if (!asked && c->signal)
            say("%s was killed by signal %d (%s)", who(l, r).s, c->signal, strsignal(c->signal));
        else if (!asked || l->plan->verbose)
            say("%s exited with code %d", who(l, r).s, c->code);
        fail(l, c->code, STEP_GRACE);
        break;
    case CHILD_NOT_STARTED:
        if (!l->told)
            say("%s: %s", who(l, r).s, c->why);
        l->told = true;
        fail(l, c->code, STEP_STOP); /* the others would wait in vain */
        break;
    case CHILD_BROKEN:
        say("%s: %s", who(l, r).s, c->why);
        fail(l, c->code, STEP_STOP);
        break;
    case CHILD_LOST:
        if (!stopped || l->plan->verbose)
            say("%s was lost: %s", who(l, r).s, c->why);
        fail(l, c->code, STEP_GRACE);
        break;
    }
}

static void tend_ranks(struct job *l)
{
    bool all_have_it = true;
    for (int i = 0; i < l->plan->hosts->ranks; i++) {
        struct rank *r = &l->ranks[i];
        child_process_reap(&r->child);
        if (r->child.program && !r->shown && l->plan->verbose)
            say("%s started", who(l, r).s);
        r->shown = r->child.program;
        if (r->child.end != CHILD_RUNS && !r->told) {
            r->told = true;
            tell_end(l, r);
        }
        if (r->phase == RANK_STARTED && child_process_over(&r->child))
            r->phase = RANK_GONE;
        all_have_it = all_have_it && (r->child.greeted || r->told || r->phase == RANK_GONE);
    }
    if (all_have_it) {
        secret_close(l->secret);
        l->secret = NULL;
    }
}

/* ---- starting ---- */

/* Our own program on the other machine: where it is here, else by its name. No word needs quoting for a
 * shell, since a path with other characters is not used. */
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
    int rank = (int)(r - l->ranks), count = 0;
    struct child_process_plan plan = {.args = l->plan->args, .rank = rank, .has_input = rank == 0};
    struct vars vars;
    plan.secret = r->host->local && l->plan->elsewhere ? NULL : l->secret;
    if (!r->host->local) {
        snprintf(words, sizeof words, "%s", l->plan->ssh ? l->plan->ssh : SSH_DEFAULT);
        for (char *word; count < SSH_WORDS_MAX && (word = strsep(&rest, " "));) {
            if (*word)
                ssh[count++] = word;
        }
        remote_command(command, sizeof command);
        ssh[count++] = (char *)(uintptr_t)r->host->name;
        ssh[count++] = command;
        ssh[count] = NULL;
        plan.ssh = ssh;
        plan.dir = dir;
        if (!getcwd(dir, sizeof dir))
            say("the current directory is unknown; remote ranks run in /");
    }
    bool room = vars_open(&vars, VARS_MAX);
    if (room)
        l->plan->set_vars(l->plan->arg, rank, r->host, &vars);
    room = room && !vars.full;
    plan.vars = vars.list;
    bool good = room && child_process_start(&r->child, &plan, &l->output);
    if (!good)
        say("cannot start %s: %s", who(l, r).s, room ? r->child.why : "no memory, or too many variables");
    r->phase = good ? RANK_STARTED : RANK_GONE;
    vars_free(vars.list);
    return good;
}

static void start_more(struct job *l)
{
    int starting = 0;
    for (int i = 0; i < l->plan->hosts->ranks; i++) {
        const struct rank *r = &l->ranks[i];
        starting += r->phase == RANK_STARTED && !r->child.greeted && !r->child.here;
    }
    for (int i = 0; i < l->plan->hosts->ranks && l->step == STEP_NONE; i++) {
        struct rank *r = &l->ranks[i];
        bool remote = !r->host->local;
        if (r->phase != RANK_WAITING || (remote && starting >= SSH_STARTS))
            continue;
        starting += remote;
        if (!start(l, r))
            fail(l, EXIT_FAILED_CHECK, STEP_STOP);
    }
}

/* ---- the loop ---- */

/* A terminal is only read while it is ours: a job in the background would be stopped. */
static bool may_read_input(const struct child_process *zero)
{
    return zero->input_open && !zero->input_asked && zero->greeted && zero->end == CHILD_RUNS &&
           (!isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) == getpgrp());
}

static void read_input(struct child_process *zero)
{
    char bytes[INPUT_MAX];
    ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
    if (got >= 0 || (errno != EINTR && errno != EAGAIN))
        child_process_input(zero, bytes, got > 0 ? (size_t)got : 0);
}

static int patience_ms(const struct job *l)
{
    uint64_t now = clock_real();
    int soonest = l->ranks[0].child.input_open && isatty(STDIN_FILENO) ? LOOK_MS : -1;
    if (l->step == STEP_GRACE)
        soonest = l->grace_end_ns > now ? (int)((l->grace_end_ns - now) / NS_PER_MS) + 1 : 0;
    for (int i = 0; i < l->plan->hosts->ranks; i++) {
        int own = child_process_patience_ms(&l->ranks[i].child);
        soonest = own >= 0 && (soonest < 0 || own < soonest) ? own : soonest;
    }
    return soonest;
}

static void wait_for_events(struct job *l)
{
    struct pollfd *polls = l->polls;
    nfds_t count = 2;
    polls[0] = (struct pollfd){.fd = l->heard, .events = POLLIN};
    polls[1] =
        (struct pollfd){.fd = may_read_input(&l->ranks[0].child) ? STDIN_FILENO : -1, .events = POLLIN};
    for (int i = 0; i < l->plan->hosts->ranks; i++, count += CHILD_PROCESS_POLLS)
        child_process_polls(&l->ranks[i].child, polls + count);
    if (poll(polls, count, patience_ms(l)) <= 0)
        return;
    if (polls[1].revents)
        read_input(&l->ranks[0].child);
    for (int i = 0; i < l->plan->hosts->ranks; i++) {
        const struct pollfd *own = polls + 2 + CHILD_PROCESS_POLLS * i;
        if (own[0].revents || own[1].revents || own[2].revents)
            child_process_hear(&l->ranks[i].child);
    }
}

static bool all_gone(const struct job *l)
{
    for (int i = 0; i < l->plan->hosts->ranks; i++) {
        if (l->ranks[i].phase != RANK_GONE)
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
    size_t count = (size_t)l->plan->hosts->ranks;
    prepare_descriptors();
    signal(SIGPIPE, SIG_IGN);
    l->ranks = calloc(count, sizeof *l->ranks);
    l->polls = calloc(2 + CHILD_PROCESS_POLLS * count, sizeof *l->polls);
    l->heard = signals_open(heard, sizeof heard / sizeof *heard);
    if (!l->ranks || !l->polls || l->heard < 0) {
        say("no memory or descriptors for %d ranks", l->plan->hosts->ranks);
        return false;
    }
    for (size_t i = 0; i < count; i++)
        l->ranks[i].host = hosts_find(l->plan->hosts, (int)i);
    l->output.idle = tend;
    l->output.arg = l;
    return true;
}

int job_run(const struct job_plan *plan)
{
    struct job l = {.plan = plan, .secret = plan->secret, .code = EXIT_FAILED_CHECK};
    bool good = output_open(&l.output, plan->hosts->ranks, !plan->no_prefix, plan->dir) && prepare(&l);
    if (good)
        l.code = EXIT_GOOD;
    while (good && !all_gone(&l)) {
        start_more(&l);
        wait_for_events(&l);
        tend(&l);
        tend_ranks(&l);
    }
    secret_close(l.secret);
    output_close(&l.output);
    free(l.ranks);
    free(l.polls);
    return l.code;
}
