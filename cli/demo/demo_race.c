/* SPDX-License-Identifier: Apache-2.0 */
/* hearth demo: runs the race of processes, shows any race as it goes, and what it proves.
 *
 * The ranks are children of this process; they inherit the images. They meet over TCP on this machine, each
 * sending no faster than the rate it was given. What they see comes back in notes of one size through one
 * pipe: short enough that the system never mixes two of them. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/demo/demo.h"
#include "cli/shared/args.h"
#include "cli/shared/progress.h"
#include "cli/shared/secret_handover.h"
#include "cli/shared/signals.h"
#include "cli/shared/table.h"
#include "os/random.h"
#include "os/spawn.h"

#define BAR_WIDTH   40
#define TEST_IMAGES 2000 /* enough to tell 80 % from 79 %, and quick */
#define NAME_WIDTH  18

struct race_show {
    struct demo *demo;
    struct race *race;
    struct progress progress;
};

/* ---- as it goes ---- */

static const int widths[] = {-NAME_WIDTH, 5, 10, 11, 10, 10, 11};

static void seen(void *arg, enum race_event event, const struct race_track *lane)
{
    struct race_show *show = arg;
    if (event == RACE_POINT) {
        if (show->progress.terminal || show->demo->json) /* else the table says it all */
            progress_show(&show->progress, race_share(show->race, lane));
        return;
    }
    progress_hide(&show->progress); /* also at RACE_BEGIN: the lane before may not have ended for all ranks */
    if (event == RACE_BEGIN)
        progress_start(&show->progress, "%s", lane->name);
    if (event != RACE_END || show->demo->json)
        return;
    struct lane_text t = lane_text(show->race, lane);
    COLUMNS(widths, lane->name, t.steps.s, t.time.s, t.accuracy.s, t.network.s, t.compute.s, t.sent.s);
}

static void show_head(const struct demo *demo, const struct race *race)
{
    char machine[256];
    const struct mlp *mlp = &demo->job.mlp;
    size_t count = mlp_param_count(mlp);
    machine_line(machine, sizeof machine);
    printf("%s%d %s train a %zu-%zu-%zu perceptron%s%s%s\n", paint(stdout, PAINT_BOLD), race->ranks,
           race->machines ? "machines" : "processes", mlp->in, mlp->hidden, mlp->out,
           race->machines ? "" : ", each behind a line of ", race->machines ? "" : text_rate(race->rate).s,
           paint(stdout, PAINT_NONE));
    if (race->machines)
        printf("  hosts    %s\n", race->machines);
    printf("  model    %s weights, so %s of gradient a step\n", text_count(count).s,
           text_bytes((double)count * sizeof(float)).s);
    printf("  data     %s: %zu images a step, split among them\n", demo->data, demo->job.batch);
    printf("  goal     %g %% of %s test images right; checked every %d steps, outside of the times\n",
           race->target * 100, text_count(race->test_images).s, RACE_EVERY);
    printf("  machine  %s\n\n", machine);
    COLUMNS(widths, "", "steps", "time", "accuracy", "network", "compute", "sent");
    COLUMNS(widths, "", "", "", "", "a step", "a step", "a step");
}

/* ---- in the end ---- */

static void show_bars(const struct race *race)
{
    print_title(PAINT_BOLD, "Time to %g %%", race->target * 100);
    for (int i = 0; i < race->lane_count; i++) {
        const struct race_track *lane = &race->lanes[i];
        struct lane_text t = lane_text(race, lane);
        char bar[BAR_WIDTH + 1] = "";
        int full = (int)(t.share * BAR_WIDTH + 0.5);
        if (lane->like >= 0)
            continue;
        memset(bar, '#', full < 1 ? 1 : (size_t)full);
        printf("  %-*s %s%-*s%s %8s", NAME_WIDTH, lane->name, paint(stdout, PAINT_GOOD), BAR_WIDTH, bar,
               paint(stdout, PAINT_NONE), t.time.s);
        if (t.note[0])
            printf("   %s", t.note);
        if (!lane->result.reached)
            printf(" in %zu steps", lane->result.steps);
        putchar('\n');
    }
}

static void show_same(const struct race *race)
{
    print_title(PAINT_GOOD, "The %d replicas are identical, bit for bit, every time they are compared",
                race->ranks);
    for (int i = 0; i < race->lane_count; i++)
        printf("  %-*s %3zu times, in the end all have %s\n", NAME_WIDTH, race->lanes[i].name,
               race->lanes[i].result.checks, lane_text(race, &race->lanes[i]).hash.s);
}

static void show_feedback(const struct race *race)
{
    for (int i = 0; i < race->lane_count; i++) {
        const struct race_track *lane = &race->lanes[i],
                                *like = lane->like < 0 ? lane : &race->lanes[lane->like];
        const struct race_point *then = like == lane ? NULL : race_at(lane, like->result.steps);
        if (!then)
            continue;
        print_title(PAINT_BOLD, "Why what a step leaves out is added to the next");
        printf("  %s sends 1 weight in 100. After %zu steps: %.2f %% right with feedback, %.2f %% without;\n"
               "  without it after %zu steps: %.2f %%\n",
               like->name, then->step, race_last(like).score.accuracy * 100, then->score.accuracy * 100,
               lane->result.steps, race_last(lane).score.accuracy * 100);
    }
}

static void show_forecast(const struct race *race, const struct forecast *forecasts)
{
    printf("\n%sThe same for %s%s (cost model)\n", paint(stdout, PAINT_BOLD), FORECAST_WHAT,
           paint(stdout, PAINT_NONE));
    for (int i = 0; i < race->lane_count; i++) {
        if (race->lanes[i].like >= 0)
            continue;
        printf("  %-*s %8s a step, %s", NAME_WIDTH, race->lanes[i].name, text_time(forecasts[i].seconds).s,
               text_bytes(forecasts[i].bytes).s);
        if (i > 0)
            printf(", %s x", text_ratio(forecasts[0].seconds / forecasts[i].seconds).s);
        putchar('\n');
    }
    printf("  your own case: %s\n", FORECAST_COMMAND);
}

/* ---- as JSON ---- */

static void lane_json(json_t *doc, const struct race *race, const struct race_track *lane)
{
    const struct race_result *r = &lane->result;
    const struct race_point last = race_last(lane), plain = race_last(&race->lanes[0]);
    bool raced = lane->like < 0 && r->reached && race->lanes[0].result.reached;
    double steps = r->steps ? (double)r->steps : 1;
    json_t *row =
        doc_add(doc,
                "name:s compress:s transport:s ranks:i bytes:z steps:z reached:b seconds:f accuracy:f "
                "loss:f network_us:f compute_us:f bytes_sent:f vs:s ratio:f checks:z hash:s ok:b",
                "demo.lane", lane->codec, race->machines ? "auto" : "tcp", race->ranks,
                mlp_param_count(&race->job->mlp) * sizeof(float), r->steps, r->reached, last.seconds,
                last.score.accuracy, last.score.loss, r->network_s / steps * 1e6, r->compute_s / steps * 1e6,
                last.bytes / steps, "none", raced ? last.seconds / plain.seconds : (double)NAN, r->checks,
                lane_text(race, lane).hash.s, r->same);
    if (race->machines)
        row_text(row, "machines", race->machines);
    else
        row_real(row, "rate_bytes_per_s", race->rate);
    for (const struct race_point *p = lane->points; p < lane->points + lane->point_count; p++)
        doc_add(doc, "name:s compress:s step:z seconds:f bytes_sent:f loss:f accuracy:f", "demo.point",
                lane->codec, p->step, p->seconds, p->bytes, p->score.loss, p->score.accuracy);
}

static void all_json(json_t *doc, const struct race *race, const struct forecast *forecasts)
{
    for (int i = 0; i < race->lane_count; i++)
        lane_json(doc, race, &race->lanes[i]);
    for (int i = 0; i < race->lane_count; i++)
        doc_add(doc, "name:s what:s compress:s model_us:f bytes_sent:f", "demo.forecast", FORECAST_WHAT,
                race->lanes[i].codec, forecasts[i].seconds * 1e6, forecasts[i].bytes);
}

/* ---- the run ---- */

static int finish(struct demo *demo, const struct race *race, FILE *report)
{
    struct forecast forecasts[RACE_LANES];
    forecast_all(race, forecasts);
    if (demo->json) {
        all_json(demo->doc, race, forecasts);
    } else {
        show_bars(race);
        show_same(race);
        show_feedback(race);
        show_forecast(race, forecasts);
    }
    if (!report_close(report, demo->report, race, forecasts))
        return EXIT_FAILED_CHECK;
    if (!demo->json)
        printf("\nCharts of loss over time and over bytes: %s\n", demo->report);
    return EXIT_GOOD;
}

size_t demo_test_images(const struct demo *demo)
{
    return demo->test.count < TEST_IMAGES ? demo->test.count : TEST_IMAGES;
}

int demo_show(struct demo *demo, struct race *race, demo_run *run, void *arg)
{
    struct race_show show = {.demo = demo, .race = race};
    FILE *report = report_open(demo->report);
    if (!report)
        return EXIT_FAILED_CHECK;
    race->job = &demo->job;
    race->target = demo->target / 100;
    race->test_images = demo_test_images(demo);
    race->steps_max = (size_t)demo->steps_max;
    race->seen = seen;
    race->arg = &show;
    if (!demo->json)
        show_head(demo, race);
    if (run(race, arg))
        return finish(demo, race, report);
    fclose(report);
    return EXIT_FAILED_CHECK;
}

/* ---- processes ---- */

static int open_node(struct racer *r, const char *meeting, hearth_node **node)
{
    struct hearth_config config;
    hearth_config_init(&config);
    int status = hearth_config_env(&config);
    config.peers = NULL;
    config.rendezvous = meeting;
    config.job = "hearth demo"; /* always the same: what codecs draw depends on it */
    config.rank = r->rank;
    config.world_size = r->race->ranks;
    config.bind = "127.0.0.1";
    config.transport = "tcp"; /* as between machines; shared memory would have no line to be slow */
    config.rate = (uint64_t)(r->race->rate * 8);
    if (!status)
        status = hearth_node_open(&config, node);
    if (status)
        return racer_fail(r, 0, status, hearth_error_text());
    if (!trainer_init(&r->trainer, r->race->job, hearth_node_world(*node)))
        return racer_fail(r, 0, HEARTH_NO_MEMORY, "no memory for a replica");
    return HEARTH_OK;
}

static int rank_main(struct race *race, int rank, int pipe, const char *meeting)
{
    struct racer r = {.race = race, .rank = rank, .pipe = pipe};
    hearth_node *node = NULL;
    int status = open_node(&r, meeting, &node);
    for (int lane = 0; lane < race->lane_count && !status; lane++)
        status = racer_lane(&r, lane);
    hearth_node_close(node);
    trainer_fini(&r.trainer);
    return status ? 1 : 0;
}

static bool start_ranks(struct race *race, const int pipe[2], const char *meeting, pid_t *pids)
{
    int parent = (int)getpid();
    for (int rank = 0; rank < race->ranks; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) {
            close(pipe[0]);
            _exit(leash_tie(parent) ? rank_main(race, rank, pipe[1], meeting) : 1);
        }
        if (pids[rank] > 0)
            continue;
        fprintf(stderr, "hearth demo: cannot start %d processes: %s\n", race->ranks, strerror(errno));
        for (int r = 0; r < rank; r++)
            kill(pids[r], SIGKILL); /* they would wait for those that never come */
        return false;
    }
    return true;
}

/* How each of them ended; a rank that failed has said why. */
static bool reap(const struct race *race, const pid_t *pids)
{
    bool good = true;
    for (int rank = 0; rank < race->ranks && pids[rank] > 0; rank++) {
        int status = 0;
        while (waitpid(pids[rank], &status, 0) < 0 && errno == EINTR)
            ;
        if (WIFSIGNALED(status))
            fprintf(stderr, "hearth demo: rank %d was killed by signal %d (%s)\n", rank, WTERMSIG(status),
                    strsignal(WTERMSIG(status)));
        else if (status != 0 && !race->failed)
            fprintf(stderr, "hearth demo: rank %d ended with code %d\n", rank, WEXITSTATUS(status));
        good = good && status == 0;
    }
    return good;
}

/* Until the last rank has closed its end. */
static void hear(struct race *race, int pipe)
{
    struct race_note note;
    ssize_t got;
    while ((got = read(pipe, &note, sizeof note)) == (ssize_t)sizeof note || (got < 0 && errno == EINTR)) {
        if (got > 0)
            race_take(race, &note);
    }
}

static bool run_processes(struct race *race, void *arg)
{
    pid_t pids[DEMO_RANKS_MAX] = {0};
    int ends[2];
    uint64_t draw;
    char meeting[64];
    (void)arg;
    if (random_bytes(&draw, sizeof draw) || !pipe_open(ends)) {
        command_fail("demo", "no pipe or no random numbers: %s", strerror(errno));
        return false;
    }
    if (!secret_handover_here("demo", false))
        return false;
    snprintf(meeting, sizeof meeting, "unix:@hearth-demo-%016llx", (unsigned long long)draw);
    fflush(NULL); /* what waits in buffers is the parent's to write */
    bool started = start_ranks(race, ends, meeting, pids);
    close(ends[1]);
    if (started)
        hear(race, ends[0]);
    close(ends[0]);
    return reap(race, pids) && started && !race->failed;
}

int demo_race(struct demo *demo)
{
    struct race *race = calloc(1, sizeof *race);
    if (!race)
        return command_fail("demo", "no memory");
    race_init(race);
    race->ranks = demo->ranks;
    race->rate = demo->line_rate;
    int code = demo_show(demo, race, run_processes, NULL);
    free(race);
    return code;
}
