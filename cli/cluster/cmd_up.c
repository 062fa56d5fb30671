/* SPDX-License-Identifier: Apache-2.0 */
/* hearth up: holds this machine's place in the home cluster, shows the others, takes part in what they start,
 * and runs a program with them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/bench/cluster_bench.h"
#include "cli/cluster/cluster_open.h"
#include "cli/cluster/up.h"
#include "cli/commands.h"
#include "cli/demo/cluster_demo.h"
#include "cli/demo/demo.h"
#include "cli/shared/args.h"
#include "cli/shared/route.h"
#include "cli/shared/signals.h"
#include "cli/shared/text.h"
#include "os/clock.h"

#define FORM_TIMEOUT_MS 3000 /* forming is tried again and again: what it waits for is said */
#define LOOK_MS         1000 /* the table is drawn anew, and the board of jobs is looked at */
#define NOTE_MAX        512
#define TASKS           2
#define WANTED_MAX      16
#define WANTED_NS       (30 * NS_PER_S)

/* What a machine that is up does for others: it takes part in their measurements, and in their demo if it
 * allows that. Each kind has a call of its own, so that none waits for another. */
struct up_task {
    struct node_call call;
    const char *job;
    enum cluster_plan_kind kind;
    char said[256]; /* when it is done: what it did; "": nothing */
};

struct up_wanted {
    char job[64];
    uint64_t seen_ns; /* when it was last asked for */
};

struct up {
    /* What the user says. */
    struct hearth_config said;
    int port, health;
    bool allow_demo, job_given, min_given;
    struct up_program program; /* that of `args`, if there are any */

    struct cluster_session cluster;
    bool table;          /* it is drawn; else there are lines */
    int drawn;           /* lines of the table on the terminal */
    char note[NOTE_MAX]; /* below the table: what happened last */
    int wake[2];
    int heard;
    struct up_task tasks[TASKS];
    int task_count;
    bool interrupt;
    uint64_t look_ns;
    struct up_wanted wanted[WANTED_MAX];
    struct cluster_status status;
};

/* ---- tasks: in their threads ---- */

static int run_demo(struct up_task *task, hearth_group **group, struct cluster_plan *plan, int *starter)
{
    struct race *race = malloc(sizeof *race);
    if (!race)
        return HEARTH_NO_MEMORY;
    struct cluster_demo demo = {.node = task->call.node,
                                .group = *group,
                                .plan = plan,
                                .starter = *starter,
                                .race = race,
                                .data = DEMO_DATA_DIR,
                                .quit = &task->call.quit};
    cluster_demo_race(&plan->demo, hearth_group_size(*group), race);
    int status = cluster_demo_run(&demo);
    cluster_demo_fini(&demo);
    *group = demo.group;
    *starter = demo.starter;
    free(race);
    return status;
}

static void take_part(struct up_task *task, hearth_group **group)
{
    struct cluster_plan plan = {.kind = task->kind};
    struct hearth_member member = {.size = sizeof member};
    char whose[128] = "";
    int starter, status = cluster_plan_share(*group, false, &plan, &starter);
    if (status == HEARTH_PROTOCOL || (!status && plan.kind != task->kind)) {
        snprintf(task->said, sizeof task->said, "%s: what is asked for is not known here: other versions?",
                 task->job);
        return;
    }
    if (status)
        return; /* the starter is gone already */
    if (task->kind == CLUSTER_PLAN_BENCH)
        status = cluster_bench_run(*group, &plan.bench, NULL, NULL, &task->call.quit);
    else
        status = run_demo(task, group, &plan, &starter);
    if (*group && starter >= 0 && hearth_group_member(*group, starter, &member) == HEARTH_OK)
        snprintf(whose, sizeof whose, " for %.63s with %d machines", member.name, hearth_group_size(*group));
    snprintf(task->said, sizeof task->said, "%s%s%s%s",
             task->kind == CLUSTER_PLAN_BENCH ? "measured" : "trained the demo", whose,
             status || !whose[0] ? ", which ended early: " : "",
             status || !whose[0] ? hearth_status_text(status) : "");
}

static void run_task(void *arg)
{
    struct up_task *task = arg;
    hearth_group *group = NULL;
    task->said[0] = 0;
    if (hearth_group_form(task->call.node, task->job, 1, NULL, &group) == HEARTH_OK) {
        take_part(task, &group);
        hearth_group_close(group);
    }
}

/* ---- showing ---- */

static void wipe_table(struct up *up)
{
    if (up->drawn > 0)
        printf("\r\033[%dA\033[J", up->drawn); /* the terminal may have shown ^C */
    up->drawn = 0;
}

static void draw_table(struct up *up)
{
    if (!up->table)
        return;
    wipe_table(up);
    printf("\033[?7l"); /* lines are cut, not wrapped: their number must be right */
    up->drawn = cluster_table_draw(stdout, &up->status, up->note[0] ? up->note : "Ctrl-C leaves");
    printf("\033[?7h");
    fflush(stdout);
}

/* Lines go to where the program's do not. */
static FILE *line_file(const struct up *up)
{
    return up->program.args ? stderr : stdout;
}

static void say(void *arg, const char *text)
{
    struct up *up = arg;
    if (up->table)
        snprintf(up->note, sizeof up->note, "%s", text);
    else
        cluster_line(line_file(up), text, time(NULL));
}

/* ---- news ---- */

static void ring(void *arg)
{
    struct up *up = arg;
    ssize_t written = write(up->wake[1], "", 1); /* full: it rings already */
    (void)written;
}

static void ring_event(void *arg, const struct hearth_event *event)
{
    (void)event;
    ring(arg);
}

static void hear_ring(struct up *up)
{
    char bytes[64];
    while (read(up->wake[0], bytes, sizeof bytes) > 0) {
    }
}

/* A job that is waited for is asked for again and again: that is news only once. */
static bool is_news(struct up *up, const struct hearth_event *event)
{
    uint64_t now = clock_real();
    struct up_wanted *oldest = &up->wanted[0];
    if (event->kind != HEARTH_EVENT_JOB_WANTED)
        return event->kind != HEARTH_EVENT_VIEW || !up->table;
    for (int i = 0; i < WANTED_MAX; i++) {
        struct up_wanted *w = &up->wanted[i];
        if (strcmp(w->job, event->text) == 0) {
            bool recent = now - w->seen_ns < WANTED_NS;
            w->seen_ns = now;
            return !recent;
        }
        oldest = w->seen_ns < oldest->seen_ns ? w : oldest;
    }
    snprintf(oldest->job, sizeof oldest->job, "%.63s", event->text);
    oldest->seen_ns = now;
    return true;
}

static void start_task(struct up *up, const char *job)
{
    for (int i = 0; i < up->task_count; i++) {
        if (strcmp(up->tasks[i].job, job) == 0)
            node_call_start(&up->tasks[i].call);
    }
}

static void take_events(struct up *up)
{
    struct hearth_event event = {.size = sizeof event};
    char text[NOTE_MAX];
    while (hearth_node_next_event(up->cluster.node, &event, 0) == HEARTH_OK) {
        if (event.kind == HEARTH_EVENT_JOB_WANTED)
            start_task(up, event.text);
        if (is_news(up, &event)) {
            cluster_event_text(&event, text, sizeof text);
            say(up, text);
        }
        up->look_ns = 0;
        event.size = sizeof event;
    }
}

static void tend_tasks(struct up *up)
{
    for (int i = 0; i < up->task_count; i++) {
        if (!node_call_take(&up->tasks[i].call))
            continue;
        if (up->tasks[i].said[0])
            say(up, up->tasks[i].said);
        up->look_ns = 0; /* somebody may have asked meanwhile */
    }
}

static void look(struct up *up)
{
    uint64_t now = clock_real();
    if (now < up->look_ns)
        return;
    up->look_ns = now + LOOK_MS * NS_PER_MS;
    if (node_cluster_status(up->cluster.node, &up->status))
        return;
    for (int i = 0; i < up->task_count; i++) {
        if (cluster_status_wanted(&up->status, up->tasks[i].job))
            node_call_start(&up->tasks[i].call);
    }
    draw_table(up);
}

/* Also while our output cannot be written. */
static void hear_signals(void *arg)
{
    struct up *up = arg;
    for (int number; (number = signals_next());) {
        if (number == SIGCHLD || number == SIGWINCH)
            continue;
        if (!up->interrupt && up->program.args && up->program.phase == UP_RUNNING)
            say(up, "leaving; the program has 5 s to end");
        up->interrupt = true;
        up_program_quit(&up->program, number);
    }
}

/* ---- the loop ---- */

static int patience_ms(struct up *up)
{
    uint64_t now = clock_real();
    int ms = up->look_ns > now ? (int)((up->look_ns - now) / NS_PER_MS) + 1 : 0;
    int other = up_program_patience_ms(&up->program);
    return other >= 0 && other < ms ? other : ms;
}

static int run_loop(struct up *up)
{
    while (up->program.args ? up->program.phase != UP_OVER : !up->interrupt) {
        struct pollfd polls[2 + CHILD_PROCESS_POLLS] = {{.fd = up->heard, .events = POLLIN},
                                                        {.fd = up->wake[0], .events = POLLIN}};
        up_program_polls(&up->program, polls + 2);
        (void)poll(polls, sizeof polls / sizeof *polls, patience_ms(up));
        hear_ring(up);
        hear_signals(up);
        take_events(up);
        tend_tasks(up);
        if (up->program.args)
            up_program_tend(&up->program);
        look(up);
    }
    return up->program.args ? up->program.code : EXIT_GOOD;
}

/* ---- beginning ---- */

static void add_task(struct up *up, const char *job, enum cluster_plan_kind kind)
{
    struct up_task *task = &up->tasks[up->task_count++];
    *task = (struct up_task){
        .call = {.node = up->cluster.node, .work = run_task, .arg = task, .ring = ring, .ring_arg = up},
        .job = job,
        .kind = kind};
}

static bool prepare(struct up *up)
{
    static const int heard[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGWINCH};
    const char *term = getenv("TERM");
    signal(SIGPIPE, SIG_IGN);
    unsetenv("HEARTH_PEERS"); /* neither ours nor the program's: the cluster says who is there */
    up->heard = signals_open(heard, sizeof heard / sizeof *heard);
    if (up->heard < 0 || !pipe_open(up->wake)) {
        fprintf(stderr, "hearth up: no descriptors: %s\n", strerror(errno));
        return false;
    }
    for (int i = 0; i < 2; i++)
        fcntl(up->wake[i], F_SETFL, O_NONBLOCK);
    up->table = !up->program.args && isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
    return true;
}

static void log_line(void *arg, enum hearth_log_level level, const char *id, const char *text)
{
    const struct up *up = arg;
    (void)level;
    if (!up->table && strcmp(id, "HEARTH-OP-LATE") != 0) /* that programs run for long is no news */
        fprintf(stderr, "hearth up: %s: %s\n", id, text);
}

static int run(struct up *up)
{
    hearth_node_on_event(up->cluster.node, ring_event, up);
    if (!up->program.args)
        add_task(up, CLUSTER_BENCH_JOB, CLUSTER_PLAN_BENCH);
    if (up->allow_demo)
        add_task(up, CLUSTER_DEMO_JOB, CLUSTER_PLAN_DEMO);
    up->program.former = (struct node_call){.node = up->cluster.node, .ring = ring, .ring_arg = up};
    up->program.bind = up->said.bind;
    up->program.handover = &up->cluster.handover;
    if (up->program.args && !up_program_open(&up->program))
        return EXIT_FAILED_CHECK;
    int code = run_loop(up);
    wipe_table(up);
    hearth_node_on_event(up->cluster.node, NULL, NULL);
    bool ended = !up->program.args || up_program_close(&up->program);
    for (int i = 0; i < up->task_count; i++)
        ended = node_call_end(&up->tasks[i].call) && ended;
    if (!ended) { /* a thread is stuck in a call, so the node cannot be closed */
        fflush(NULL);
        _exit(code); /* the others see that the connections end */
    }
    return code;
}

static int check(const struct up *up, const struct usage *usage)
{
    if (up->program.args && !up->program.args[0])
        return args_refuse(usage, "there is no program after --");
    if (!up->program.args && (up->program.once || up->job_given || up->min_given))
        return args_refuse(usage, "--job, --min and --once are about a program, which stands after --");
    if (up->program.args && up->allow_demo)
        return args_refuse(usage, "--allow-demo is for a machine without a program of its own");
    if (strlen(up->program.job) > 63)
        return args_refuse(usage, "--job is longer than 63 characters");
    return route_check_bind(usage, up->said.bind);
}

int cmd_up(int argc, char **argv)
{
    static struct up up; /* large: it holds the status */
    up = (struct up){
        .health = -1,
        .program = {.job = "up", .min = 2, .say = say, .idle = hear_signals, .arg = &up},
        .said = {.form_timeout_ms = FORM_TIMEOUT_MS, .log = log_line, .log_arg = &up},
    };
    const struct arg args[] = {
        {"job", ARG_TEXT, &up.program.job, .value_name = "NAME", .given = &up.job_given,
         .about = "with a program: machines with the same run it together (default up)"},
        {"min", ARG_INT, &up.program.min,
         .about = "with a program: it starts when so many are there (default 2)", .min = 1,
         .max = UP_MEMBERS_MAX, .given = &up.min_given},
        {"once", ARG_FLAG, &up.program.once,
         .about = "with a program: end when a machine is lost, instead of starting it again with the others"},
        {"allow-demo", ARG_FLAG, &up.allow_demo,
         .about = "take part when a member types `hearth demo --cluster`"},
        {"port", ARG_INT, &up.port, .about = "to listen on; a taken one moves to the next (default 52416)",
         .min = 1, .max = UINT16_MAX},
        {"seeds", ARG_TEXT, &up.said.seeds, .value_name = "LIST",
         .about = "host[:port],...: nodes to ask beside those that are found; one of the cluster is enough"},
        {"bind", ARG_TEXT, &up.said.bind, .value_name = "IFACE|ADDR",
         .about = "network to use (default: all)"},
        {"health", ARG_CHOICE, &up.health, .about = "how soon a silent machine is lost, 3 s, 1 s or 12 s",
         .choice = cluster_health_name},
        {"PROGRAM [ARGUMENTS]", ARG_REST, &up.program.args,
         .about = "what to run here when enough machines are there; it gets its rank as by hearth run"},
    };
    const struct usage usage = {
        "up",
        "Holds this machine's place in the home cluster and shows its members, until Ctrl-C. While it is up, "
        "others can measure with it (hearth bench cluster). With a program: starts it here, once, together "
        "with the other machines that are up for the same job; a machine that is lost ends it, and it is "
        "started again with those that are left. The exit code is the program's.",
        "hearth up", USAGE_ARGS(args),
        .exit_codes =
            "0 left by a signal, without a program; with one its own (128 + N: killed by signal N; 126, 127: "
            "could\n"
            "not be run, was not found), 1 the cluster or the job failed, 2 wrong usage."};
    int code = args_parse(&usage, argc, argv);
    if (code == ARGS_GO)
        code = check(&up, &usage);
    if (code != ARGS_GO)
        return code;
    if (!prepare(&up))
        return EXIT_FAILED_CHECK;
    up.said.port = (uint16_t)up.port;
    up.said.health = cluster_health_name(up.health);
    up.said.roles = (up.program.args ? 0 : HEARTH_ROLE_BENCH) | (up.allow_demo ? HEARTH_ROLE_DEMO : 0);
    code = cluster_enter(&usage, &up.said, &up.cluster);
    if (code != ARGS_GO)
        return code;
    code = run(&up);
    cluster_leave(&up.cluster);
    return code;
}
