/* SPDX-License-Identifier: Apache-2.0 */
/* The program of `hearth up`. */
#include "cli/cluster/up_program.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/shared/args.h"
#include "os/clock.h"

#define VARS_MAX    32
#define GRACE_NS    (10 * NS_PER_S) /* from the failure of a program elsewhere to the end of ours */
#define PATIENCE_NS (4 * NS_PER_S)  /* for the thread to end */
#define SETTLE_NS   NS_PER_S        /* after the first failure, until those that failed are named */
#define LOOK_MS     10
#define TEXT_MAX    400
#define LEAVE_MS    20 /* who waits for the others is interrupted so often: it may not wait yet */
#define FORMING_YET 1  /* no status */

static void say(struct up_program *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct up_program *p, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->say(p->arg, text);
}

/* ---- forming ---- */

static void former_main(void *arg)
{
    struct up_program *p = arg;
    int status = up_job_form(&p->job);
    snprintf(p->why, sizeof p->why, "%s", status ? hearth_error_text() : "");
    atomic_store(&p->formed, status);
    p->job.ring(p->job.arg);
}

static void finish(struct up_program *p, int code)
{
    p->phase = UP_OVER;
    p->code = code;
}

static void begin_forming(struct up_program *p)
{
    p->phase = UP_FORMING;
    p->grace_ns = p->failed_ns = 0;
    atomic_store(&p->formed, FORMING_YET);
    p->joined = thread_start(&p->former, "hearth-form", former_main, p) != HEARTH_OK;
    if (!p->joined)
        return;
    say(p, "no thread to wait for the others");
    finish(p, EXIT_FAILED_CHECK);
}

/* ---- running ---- */

static bool start_child_process(struct up_program *p)
{
    struct vars vars;
    if (!vars_open(&vars, VARS_MAX))
        return false;
    up_job_vars(&p->job, &vars);
    vars_add(&vars, "HEARTH_PLAIN=0");
    if (p->handover->file[0]) /* where the trust list is, too */
        vars_add(&vars, "HEARTH_SECRET_FILE=%s", p->handover->file);
    struct child_process_plan plan = {.vars = vars.list, .args = p->args, .rank = p->job.rank};
    plan.secret = p->handover->file[0] ? NULL : p->handover->secret;
    bool good = !vars.full && child_process_start(&p->child, &plan, &p->output);
    vars_free(vars.list);
    if (!good)
        say(p, "cannot start %s: %s", p->args[0], p->child.why);
    return good;
}

static void open_output(struct up_program *p)
{
    if (p->has_output)
        output_close(&p->output);
    p->has_output = output_open(&p->output, p->job.size, true, NULL);
    p->output.idle = p->idle;
    p->output.arg = p->arg;
}

static void begin_running(struct up_program *p)
{
    say(p, "job %s: rank %d of %d, rendezvous %s", p->job.name, p->job.rank, p->job.size, p->job.meeting);
    open_output(p);
    p->phase = UP_RUNNING;
    if (p->has_output && start_child_process(p))
        return;
    up_job_tell(&p->job, EXIT_FAILED_CHECK);
    p->code = EXIT_FAILED_CHECK;
    p->phase = UP_ENDED;
}

static void tend_forming(struct up_program *p)
{
    char text[256];
    int status = atomic_load(&p->formed);
    if (up_job_waits(&p->job, &p->waits_seen, text, sizeof text) && status == FORMING_YET)
        say(p, "%s", text);
    if (status == FORMING_YET && p->quit)
        hearth_node_interrupt(p->job.node);
    if (status == FORMING_YET)
        return;
    thread_join(&p->former);
    p->joined = true;
    if (p->quit) {
        if (!status)
            up_job_close(&p->job);
        finish(p, 128 + p->quit);
    } else if (status) {
        say(p, "job %s cannot be formed: %s", p->job.name, p->why[0] ? p->why : hearth_status_text(status));
        finish(p, EXIT_FAILED_CHECK);
    } else {
        begin_running(p);
    }
}

/* ---- ending ---- */

static void stop(struct up_program *p, bool again)
{
    p->again = again && !p->quit;
    p->phase = UP_STOPPING;
    child_process_stop(&p->child);
}

static void tend_stopping(struct up_program *p)
{
    if (!child_process_over(&p->child))
        return;
    up_job_close(&p->job);
    if (p->again)
        begin_forming(p);
    else
        finish(p, p->child.code);
}

/* Our program has ended by itself. */
static void take_end(struct up_program *p)
{
    p->code = p->child.code;
    if (p->child.why[0])
        say(p, "our program (rank %d): %s", p->job.rank, p->child.why);
    else if (p->child.signal && !p->child.asked)
        say(p, "our program (rank %d) was killed by signal %d (%s)", p->job.rank, p->child.signal,
            strsignal(p->child.signal));
    else if (p->code && !p->child.asked)
        say(p, "our program (rank %d) exited with code %d", p->job.rank, p->code);
    up_job_tell(&p->job, p->code);
    p->phase = UP_ENDED;
}

static void take_loss(struct up_program *p, int who)
{
    bool known = who >= 0 && who < p->job.size && p->job.names[who][0];
    if (p->phase == UP_ENDED && p->code == EXIT_GOOD) { /* ours is done, whatever becomes of the others */
        up_job_close(&p->job);
        finish(p, EXIT_GOOD);
        return;
    }
    say(p, "%s is lost%s", known ? p->job.names[who] : "a machine",
        p->once ? "; ending the program" : "; the program starts again with those that are left");
    stop(p, !p->once);
}

/* A moment later than the first, so that it is among them that made others fail. */
static void take_failures(struct up_program *p)
{
    char text[TEXT_MAX];
    uint64_t now = clock_real();
    if (p->failed_ns == 0)
        p->failed_ns = now;
    if (p->phase != UP_RUNNING || p->grace_ns != 0 || now < p->failed_ns + SETTLE_NS)
        return;
    int count = up_job_failures(&p->job, text, sizeof text);
    say(p, "the program%s of %s ha%s failed; ours has 10 s to end by itself", count == 1 ? "" : "s", text,
        count == 1 ? "s" : "ve");
    p->grace_ns = now + GRACE_NS;
}

static void take_over(struct up_program *p)
{
    char text[TEXT_MAX];
    if (up_job_failures(&p->job, text, sizeof text) > 0)
        say(p, "job %s has ended; failed: %s", p->job.name, text);
    up_job_close(&p->job);
    finish(p, p->code);
}

static void watch(struct up_program *p)
{
    int who = -1;
    switch (up_job_look(&p->job, &who)) {
    case UP_JOB_LOST:
        take_loss(p, who);
        break;
    case UP_JOB_OVER:
        take_over(p);
        break;
    case UP_JOB_FAILED:
        take_failures(p);
        break;
    case UP_JOB_RUNS:
        break;
    }
}

void up_program_tend(struct up_program *p)
{
    if (p->phase == UP_FORMING)
        tend_forming(p);
    if (p->phase == UP_RUNNING || p->phase == UP_STOPPING)
        child_process_tend(&p->child);
    if (p->phase == UP_RUNNING && child_process_over(&p->child))
        take_end(p);
    if (p->phase == UP_RUNNING || p->phase == UP_ENDED)
        watch(p);
    if (p->phase == UP_RUNNING && p->grace_ns && clock_real() >= p->grace_ns)
        child_process_stop(&p->child);
    if (p->phase == UP_STOPPING)
        tend_stopping(p);
}

/* ---- for the loop ---- */

bool up_program_open(struct up_program *p)
{
    if (mutex_init(&p->job.lock))
        return false;
    say(p, "job %s: waiting until %d machine%s there", p->job.name, p->job.min,
        p->job.min == 1 ? " is" : "s are");
    begin_forming(p);
    return true;
}

void up_program_polls(const struct up_program *p, struct pollfd polls[UP_PROGRAM_POLLS])
{
    if (p->phase == UP_RUNNING || p->phase == UP_STOPPING)
        child_process_polls(&p->child, polls);
    else
        polls[0] = polls[1] = polls[2] = (struct pollfd){.fd = -1};
}

int up_program_patience_ms(const struct up_program *p)
{
    if (p->phase == UP_FORMING && p->quit)
        return LEAVE_MS;
    return p->phase == UP_RUNNING || p->phase == UP_STOPPING ? child_process_patience_ms(&p->child) : -1;
}

void up_program_quit(struct up_program *p, int number)
{
    p->quit = number;
    p->again = false;
    atomic_store(&p->job.quit, true);
    if (p->phase == UP_RUNNING || p->phase == UP_ENDED)
        stop(p, false);
}

bool up_program_over(const struct up_program *p)
{
    return p->phase == UP_OVER;
}

int up_program_code(const struct up_program *p)
{
    return p->code;
}

bool up_program_close(struct up_program *p)
{
    uint64_t end = clock_real() + PATIENCE_NS;
    atomic_store(&p->job.quit, true);
    while (!p->joined && atomic_load(&p->formed) == FORMING_YET && clock_real() < end) {
        hearth_node_interrupt(p->job.node);
        (void)poll(NULL, 0, LOOK_MS);
    }
    if (!p->joined && atomic_load(&p->formed) == FORMING_YET)
        return false;
    if (!p->joined)
        thread_join(&p->former);
    if (p->has_output)
        output_close(&p->output);
    mutex_fini(&p->job.lock);
    return true;
}
