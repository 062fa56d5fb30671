/* SPDX-License-Identifier: Apache-2.0 */
/* hearth demo: shows the race as it goes, and what it proves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/demo/demo.h"
#include "cli/demo/report.h"
#include "cli/shared/args.h"
#include "cli/shared/progress.h"
#include "cli/shared/table.h"

#define BAR_WIDTH  40
#define NAME_WIDTH 18

struct race_show {
    struct demo *demo;
    struct race *race;
    struct progress progress;
};

/* Seconds to the target, or of all steps where it was not reached. */
static double lane_seconds(const struct race_track *lane)
{
    return race_last(lane).seconds;
}

static double per_step(const struct race_track *lane, double value)
{
    return lane->steps ? value / (double)lane->steps : 0;
}

/* ---- as it goes ---- */

static const int widths[] = {-NAME_WIDTH, 5, 10, 11, 10, 10, 11};

static void lane_begins(void *arg, const struct race_track *lane)
{
    struct race_show *show = arg;
    progress_hide(&show->progress); /* a rank may begin before the last one has ended the lane before */
    progress_start(&show->progress, "%s", lane->name);
}

static void point_seen(void *arg, const struct race_track *lane)
{
    struct race_show *show = arg;
    if (show->progress.terminal || show->demo->json) /* else the table says it all */
        progress_show(&show->progress, race_share(show->race, lane));
}

static void trouble(void *arg)
{
    struct race_show *show = arg;
    progress_hide(&show->progress);
}

static void lane_ended(void *arg, const struct race_track *lane)
{
    struct race_show *show = arg;
    progress_hide(&show->progress);
    if (show->demo->json)
        return;
    char accuracy[16];
    snprintf(accuracy, sizeof accuracy, "%.2f %%", race_last(lane).score.accuracy * 100);
    COLUMNS(widths, lane->name, text_count(lane->steps).s, text_time(lane_seconds(lane)).s, accuracy,
            text_time(per_step(lane, lane->network_s)).s, text_time(per_step(lane, lane->compute_s)).s,
            text_bytes(per_step(lane, race_last(lane).bytes)).s);
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
        printf("  who      %s\n", race->machines);
    printf("  model    %s weights, so %s of gradient a step\n", text_count(count).s,
           text_bytes((double)count * sizeof(float)).s);
    printf("  data     %s: %zu images a step, split among them\n", demo->data, demo->job.batch);
    printf("  goal     %g %% of %s test images right; looked at every %d steps, which takes no time here\n",
           race->target * 100, text_count(race->test_images).s, RACE_EVERY);
    printf("  machine  %s\n\n", machine);
    COLUMNS(widths, "", "steps", "time", "accuracy", "network", "compute", "sent");
    COLUMNS(widths, "", "", "", "", "a step", "a step", "a step");
}

/* ---- in the end ---- */

static void show_bars(const struct race *race)
{
    double longest = 0, plain = lane_seconds(&race->lanes[0]);
    for (int i = 0; i < race->lane_count; i++) {
        if (race->lanes[i].like < 0 && lane_seconds(&race->lanes[i]) > longest)
            longest = lane_seconds(&race->lanes[i]);
    }
    printf("\n%sTime to %g %%%s\n", paint(stdout, PAINT_BOLD), race->target * 100, paint(stdout, PAINT_NONE));
    for (int i = 0; i < race->lane_count; i++) {
        const struct race_track *lane = &race->lanes[i];
        char bar[BAR_WIDTH + 1];
        double seconds = lane_seconds(lane);
        int full = longest > 0 ? (int)(seconds / longest * BAR_WIDTH + 0.5) : 0;
        if (lane->like >= 0)
            continue;
        full = full < 1 ? 1 : full;
        for (int c = 0; c < full; c++)
            bar[c] = '#';
        bar[full] = 0;
        printf("  %-*s %s%-*s%s %8s", NAME_WIDTH, lane->name, paint(stdout, PAINT_GOOD), BAR_WIDTH, bar,
               paint(stdout, PAINT_NONE), text_time(seconds).s);
        if (!lane->reached)
            printf("   not reached in %zu steps", lane->steps);
        else if (i > 0 && race->lanes[0].reached)
            printf("   %s x", text_ratio(plain / seconds).s);
        putchar('\n');
    }
}

static void show_same(const struct race *race)
{
    printf("\n%sThe %d replicas are identical, bit for bit, every time they are compared%s\n",
           paint(stdout, PAINT_GOOD), race->ranks, paint(stdout, PAINT_NONE));
    for (int i = 0; i < race->lane_count; i++) {
        const struct race_track *lane = &race->lanes[i];
        printf("  %-*s %3zu times, in the end all have %016llx\n", NAME_WIDTH, lane->name, lane->checks,
               (unsigned long long)lane->hash);
    }
}

static void show_feedback(const struct race *race)
{
    for (int i = 0; i < race->lane_count; i++) {
        const struct race_track *lane = &race->lanes[i];
        if (lane->like < 0)
            continue;
        const struct race_track *like = &race->lanes[lane->like];
        const struct race_point *then = race_at(lane, like->steps);
        if (!then)
            continue;
        printf("\n%sWhy what a step leaves out is kept for the next%s\n", paint(stdout, PAINT_BOLD),
               paint(stdout, PAINT_NONE));
        printf("  %s sends 1 weight in 100. After %zu steps: %.2f %% right with feedback, %.2f %% without;\n"
               "  without it after %zu steps: %.2f %%\n",
               like->name, then->step, race_last(like).score.accuracy * 100, then->score.accuracy * 100,
               lane->steps, race_last(lane).score.accuracy * 100);
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
    const struct race_track *plain = &race->lanes[0];
    bool raced = lane->like < 0 && lane->reached && plain->reached;
    json_t *row = doc_row(doc);
    row_text(row, "name", "demo.lane");
    row_text(row, "compress", lane->codec);
    row_text(row, "transport", race->machines ? "auto" : "tcp");
    row_count(row, "ranks", (uint64_t)race->ranks);
    if (race->machines)
        row_text(row, "machines", race->machines);
    else
        row_real(row, "rate_bytes_per_s", race->rate);
    row_count(row, "bytes", mlp_param_count(&race->job->mlp) * sizeof(float));
    row_count(row, "steps", lane->steps);
    row_bool(row, "reached", lane->reached);
    row_real(row, "seconds", lane_seconds(lane));
    row_real(row, "accuracy", race_last(lane).score.accuracy);
    row_real(row, "loss", race_last(lane).score.loss);
    row_real(row, "network_us", per_step(lane, lane->network_s) * 1e6);
    row_real(row, "compute_us", per_step(lane, lane->compute_s) * 1e6);
    row_real(row, "bytes_sent", per_step(lane, race_last(lane).bytes));
    row_text(row, "vs", "none");
    row_real(row, "ratio", raced ? lane_seconds(lane) / lane_seconds(plain) : (double)NAN);
    row_count(row, "checks", lane->checks);
    char hash[24];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)lane->hash);
    row_text(row, "hash", hash);
    row_bool(row, "ok", lane->same);
}

static void points_json(json_t *doc, const struct race_track *lane)
{
    for (size_t i = 0; i < lane->point_count; i++) {
        const struct race_point *point = &lane->points[i];
        json_t *row = doc_row(doc);
        row_text(row, "name", "demo.point");
        row_text(row, "compress", lane->codec);
        row_count(row, "step", point->step);
        row_real(row, "seconds", point->seconds);
        row_real(row, "bytes_sent", point->bytes);
        row_real(row, "loss", point->score.loss);
        row_real(row, "accuracy", point->score.accuracy);
    }
}

static void all_json(json_t *doc, const struct race *race, const struct forecast *forecasts)
{
    for (int i = 0; i < race->lane_count; i++) {
        lane_json(doc, race, &race->lanes[i]);
        points_json(doc, &race->lanes[i]);
    }
    for (int i = 0; i < race->lane_count; i++) {
        json_t *row = doc_row(doc);
        row_text(row, "name", "demo.forecast");
        row_text(row, "what", FORECAST_WHAT);
        row_text(row, "compress", race->lanes[i].codec);
        row_real(row, "model_us", forecasts[i].seconds * 1e6);
        row_real(row, "bytes_sent", forecasts[i].bytes);
    }
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

int demo_show(struct demo *demo, struct race *race, demo_run *run, void *arg)
{
    struct race_show show = {.demo = demo, .race = race};
    FILE *report = report_open(demo->report);
    if (!report)
        return EXIT_FAILED_CHECK;
    race->job = &demo->job;
    race->target = demo->target / 100;
    race->test_images = demo->test.count < DEMO_TEST_IMAGES ? demo->test.count : DEMO_TEST_IMAGES;
    race->steps_max = (size_t)demo->steps_max;
    race->lane_begins = lane_begins;
    race->point_seen = point_seen;
    race->lane_ended = lane_ended;
    race->trouble = trouble;
    race->arg = &show;
    if (!demo->json)
        show_head(demo, race);
    if (run(race, arg))
        return finish(demo, race, report);
    fclose(report);
    return EXIT_FAILED_CHECK;
}

static bool run_here(struct race *race, void *arg)
{
    (void)arg;
    return race_run(race);
}

int demo_race(struct demo *demo)
{
    struct race *race = calloc(1, sizeof *race);
    if (!race)
        return command_fail("demo", "no memory");
    race_init(race);
    race->ranks = demo->ranks;
    race->rate = demo->line_rate;
    int code = demo_show(demo, race, run_here, NULL);
    free(race);
    return code;
}
