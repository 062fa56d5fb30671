/* SPDX-License-Identifier: Apache-2.0 */
/* The race as one HTML file: tables, and charts as SVG; no scripts, nothing from elsewhere.
 *
 * Each lane has a class (lane0, lane1, ...) that gives it its colour, light or dark as the reader's system
 * is; lines differ by dashes too, so that the charts can be read without colours. */
#include "cli/demo/demo.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "cli/plan/plan_setup.h"

#define CHART_WIDTH  760
#define CHART_HEIGHT 340
#define LEFT         56
#define RIGHT        16
#define TOP          12
#define BOTTOM       44
#define BAR_HEIGHT   26
#define BAR_LEFT     150
#define BAR_RIGHT    140
#define TICKS_MAX    24

/* Its holes: how many, what they are, how they are connected. */
static const char page[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
    "<title>Hearth: a race of codecs</title>\n"
    "<style>\n"
    ":root{color-scheme:light dark;--back:#fff;--text:#1c1c1c;--soft:#5f5f5f;--grid:#dcdcdc;\n"
    "--lane0:#6b6b6b;--lane1:#1f6fd0;--lane2:#c65a00;--lane3:#13804f;--lane4:#c65a00}\n"
    "@media (prefers-color-scheme:dark){:root{--back:#161616;--text:#ececec;--soft:#a8a8a8;--grid:#383838;\n"
    "--lane0:#b5b5b5;--lane1:#6aaeff;--lane2:#ff9d4d;--lane3:#54d199;--lane4:#ff9d4d}}\n"
    "body{background:var(--back);color:var(--text);font:16px/1.5 system-ui,sans-serif;max-width:50rem;\n"
    "margin:2rem auto;padding:0 1rem}\n"
    "h1{font-size:1.6rem;line-height:1.25}h2{font-size:1.15rem;margin:2rem 0 .5rem}\n"
    "p{margin:.5rem 0}.soft{color:var(--soft)}svg{width:100%%;height:auto;display:block}\n"
    "div{overflow-x:auto}table{border-collapse:collapse;width:100%%}\n"
    "th,td{text-align:right;padding:.3rem .5rem;border-bottom:1px solid var(--grid);white-space:nowrap;\n"
    "font-variant-numeric:tabular-nums}th:first-child,td:first-child{text-align:left}\n"
    "th{font-weight:600;color:var(--soft)}code{font-size:.9em}\n"
    "text{fill:var(--text);font:13px system-ui,sans-serif}text.soft{fill:var(--soft)}\n"
    ".grid{stroke:var(--grid);stroke-width:1}.line{fill:none;stroke-width:2.2;stroke-linejoin:round}\n"
    ".lane0{--c:var(--lane0)}.lane1{--c:var(--lane1);stroke-dasharray:9 3}.lane2{--c:var(--lane2)}\n"
    ".lane3{--c:var(--lane3);stroke-dasharray:2 3}.lane4{--c:var(--lane4);stroke-dasharray:7 5}\n"
    ".line{stroke:var(--c)}.bar,.dot{fill:var(--c);stroke:none}\n"
    "</style>\n</head>\n<body>\n<h1>%d %s train one model%s</h1>\n";

struct lane_text lane_text(const struct race *race, const struct race_track *lane)
{
    const struct race_track *plain = &race->lanes[0];
    const struct race_result *r = &lane->result;
    const struct race_point last = race_last(lane);
    double steps = r->steps ? (double)r->steps : 1, longest = 0;
    struct lane_text t = {.steps = text_count(r->steps),
                          .time = text_time(last.seconds),
                          .network = text_time(r->network_s / steps),
                          .compute = text_time(r->compute_s / steps),
                          .sent = text_bytes(last.bytes / steps)};
    snprintf(t.accuracy.s, sizeof t.accuracy.s, "%.2f %%", last.score.accuracy * 100);
    snprintf(t.hash.s, sizeof t.hash.s, "%016llx", (unsigned long long)r->hash);
    if (!r->reached)
        snprintf(t.note, sizeof t.note, "not reached");
    else if (lane != plain && plain->result.reached)
        snprintf(t.note, sizeof t.note, "%s x", text_ratio(race_last(plain).seconds / last.seconds).s);
    for (int i = 0; i < race->lane_count; i++)
        longest = race->lanes[i].like < 0 ? fmax(longest, race_last(&race->lanes[i]).seconds) : longest;
    t.share = longest > 0 ? last.seconds / longest : 0;
    return t;
}

/* Text that may hold anything. */
static void put_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '&')
            fputs("&amp;", file);
        else
            fputc(*text, file);
    }
}

/* ---- axes ---- */

enum axis_kind { AXIS_TIME, AXIS_BYTES, AXIS_LOSS };

/* From numbers to pixels; times and bytes by their logarithms. */
struct axis {
    enum axis_kind kind;
    double low, high;
    double from, to;
};

static double axis_at(const struct axis *axis, double value)
{
    double low = axis->low, high = axis->high;
    if (axis->kind != AXIS_LOSS) {
        low = log10(low);
        high = log10(high);
        value = log10(value);
    }
    return axis->from + (axis->to - axis->from) * (value - low) / (high - low);
}

static double value_of(const struct race_point *point, enum axis_kind kind)
{
    return kind == AXIS_TIME ? point->seconds : kind == AXIS_BYTES ? point->bytes : point->score.loss;
}

/* Covers all points that can be drawn. */
static struct axis axis_of(const struct race *race, enum axis_kind kind)
{
    struct axis axis = {.kind = kind, .low = HUGE_VAL, .high = 0, .from = LEFT, .to = CHART_WIDTH - RIGHT};
    for (int i = 0; i < race->lane_count; i++) {
        for (size_t p = 0; p < race->lanes[i].point_count; p++) {
            double value = value_of(&race->lanes[i].points[p], kind);
            if (value > 0 && value < axis.low)
                axis.low = value;
            if (value > axis.high && isfinite(value))
                axis.high = value;
        }
    }
    if (!(axis.high > 0))
        axis.low = axis.high = 1;
    if (kind == AXIS_LOSS) {
        axis.low = floor(axis.low * 10) / 10;
        axis.high = ceil(axis.high * 10 + 0.01) / 10;
        axis.from = CHART_HEIGHT - BOTTOM;
        axis.to = TOP;
    } else {
        axis.low *= 0.9;
        axis.high *= 1.15;
    }
    return axis;
}

/* Where lines stand: 1, 2 and 5 of each power of ten, or tenths. Returns how many. */
static int axis_ticks(const struct axis *axis, double *ticks)
{
    static const double steps[] = {1, 2, 5};
    int count = 0;
    if (axis->kind == AXIS_LOSS) {
        double step = axis->high - axis->low > 1.2 ? 0.4 : axis->high - axis->low > 0.5 ? 0.2 : 0.1;
        for (double t = ceil(axis->low / step) * step; t <= axis->high && count < TICKS_MAX; t += step)
            ticks[count++] = t;
        return count;
    }
    bool wide = axis->high / axis->low > 300;
    for (double power = pow(10, floor(log10(axis->low))); power <= axis->high; power *= 10) {
        for (int s = 0; s < (wide ? 1 : 3); s++) {
            double t = power * steps[s];
            if (t >= axis->low && t <= axis->high && count < TICKS_MAX)
                ticks[count++] = t;
        }
    }
    return count;
}

static struct text tick_text(enum axis_kind kind, double value)
{
    struct text text;
    if (kind == AXIS_TIME)
        return text_time(value);
    if (kind == AXIS_LOSS)
        snprintf(text.s, sizeof text.s, "%.1f", value);
    else if (value >= 999e6)
        snprintf(text.s, sizeof text.s, "%g GB", value / 1e9);
    else if (value >= 999e3)
        snprintf(text.s, sizeof text.s, "%g MB", value / 1e6);
    else
        snprintf(text.s, sizeof text.s, "%g kB", value / 1e3);
    return text;
}

static void put_grid(FILE *file, const struct axis *axis)
{
    double ticks[TICKS_MAX], left = LEFT, right = CHART_WIDTH - RIGHT, top = TOP,
                             bottom = CHART_HEIGHT - BOTTOM;
    bool up = axis->kind == AXIS_LOSS;
    int count = axis_ticks(axis, ticks);
    for (int i = 0; i < count; i++) {
        double at = axis_at(axis, ticks[i]);
        fprintf(file,
                "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text class=\"soft\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n",
                up ? left : at, up ? right : at, up ? at : top, up ? at : bottom, up ? left - 8 : at,
                up ? at + 4 : bottom + 18, up ? "end" : "middle", tick_text(axis->kind, ticks[i]).s);
    }
}

/* ---- charts ---- */

static void put_line(FILE *file, const struct race_track *lane, int index, const struct axis *x,
                     const struct axis *y)
{
    bool begun = false;
    double at_x = 0, at_y = 0;
    fprintf(file, "<path class=\"line lane%d\" d=\"", index);
    for (size_t p = 0; p < lane->point_count; p++) {
        double value = value_of(&lane->points[p], x->kind), loss = lane->points[p].score.loss;
        if (!(value > 0) || !isfinite(loss))
            continue;
        at_x = axis_at(x, value);
        at_y = axis_at(y, loss);
        fprintf(file, "%c%.1f %.1f", begun ? 'L' : 'M', at_x, at_y);
        begun = true;
    }
    fprintf(file, "\"><title>%s</title></path>", lane->name);
    if (begun)
        fprintf(file, "<circle class=\"dot lane%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", index, at_x, at_y);
}

static void put_chart(FILE *file, const struct race *race, enum axis_kind kind, const char *title,
                      const char *label)
{
    struct axis x = axis_of(race, kind), y = axis_of(race, AXIS_LOSS);
    fprintf(file, "<h2>%s</h2>\n<svg viewBox=\"0 0 %d 24\" aria-hidden=\"true\">", title, CHART_WIDTH);
    for (int i = 0, at = LEFT; i < race->lane_count; i++) {
        fprintf(file, "<path class=\"line lane%d\" d=\"M%d 12h28\"/><text x=\"%d\" y=\"16\">%s</text>", i, at,
                at + 34, race->lanes[i].name);
        at += 34 + 22 + (int)strlen(race->lanes[i].name) * 8;
    }
    fprintf(file, "</svg>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", CHART_WIDTH,
            CHART_HEIGHT, title);
    put_grid(file, &y);
    put_grid(file, &x);
    for (int i = 0; i < race->lane_count; i++)
        put_line(file, &race->lanes[i], i, &x, &y);
    fprintf(file, "<text class=\"soft\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n</svg>\n",
            CHART_WIDTH - RIGHT, CHART_HEIGHT - 8, label);
}

static void put_bars(FILE *file, const struct race *race)
{
    int row = 0, rows = 0;
    for (int i = 0; i < race->lane_count; i++)
        rows += race->lanes[i].like < 0;
    fprintf(file,
            "<h2>Time to %g %%</h2>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Time to %g %%\">\n",
            race->target * 100, CHART_WIDTH, rows * BAR_HEIGHT, race->target * 100);
    for (int i = 0; i < race->lane_count; i++) {
        const struct race_track *lane = &race->lanes[i];
        struct lane_text t = lane_text(race, lane);
        double width = t.share * (CHART_WIDTH - BAR_LEFT - BAR_RIGHT);
        if (lane->like >= 0)
            continue;
        int top = row++ * BAR_HEIGHT;
        fprintf(file,
                "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>"
                "<rect class=\"bar lane%d\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>"
                "<text x=\"%.1f\" y=\"%d\">%s%s%s</text>\n",
                BAR_LEFT - 10, top + 17, lane->name, i, BAR_LEFT, top + 4, fmax(width, 2), BAR_HEIGHT - 8,
                BAR_LEFT + width + 8, top + 17, t.time.s, t.note[0] ? ", " : "", t.note);
    }
    fputs("</svg>\n", file);
}

/* ---- tables ---- */

static void put_results(FILE *file, const struct race *race)
{
    fputs("<h2>Results</h2>\n<div><table>\n<tr><th>codec</th><th>steps</th><th>time</th><th>accuracy</th>"
          "<th>network<br>a step</th><th>compute<br>a step</th><th>sent<br>a step</th>"
          "<th>replicas, all the same</th></tr>\n",
          file);
    for (int i = 0; i < race->lane_count; i++) {
        struct lane_text t = lane_text(race, &race->lanes[i]);
        fprintf(file,
                "<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td>"
                "<td><code>%s</code></td></tr>\n",
                race->lanes[i].name, t.steps.s, t.time.s, t.accuracy.s, t.network.s, t.compute.s, t.sent.s,
                t.hash.s);
    }
    fputs("</table></div>\n", file);
}

static void put_feedback(FILE *file, const struct race *race)
{
    for (int i = 0; i < race->lane_count; i++) {
        const struct race_track *lane = &race->lanes[i];
        const struct race_point *then =
            lane->like < 0 ? NULL : race_at(lane, race->lanes[lane->like].result.steps);
        if (!then)
            continue;
        fprintf(file,
                "<p>What a step leaves out is kept and added to the next one. Without that, <code>%s</code> "
                "has %.2f %% right after %zu steps, where it has %.2f %% with it, and %.2f %% after %zu "
                "steps.</p>\n",
                race->lanes[lane->like].name, then->score.accuracy * 100, then->step,
                race_last(&race->lanes[lane->like]).score.accuracy * 100,
                race_last(lane).score.accuracy * 100, lane->result.steps);
    }
}

static void put_forecast(FILE *file, const struct race *race, const struct forecast *forecasts)
{
    fprintf(file, "<h2>The same for %s</h2>\n<div><table>\n", FORECAST_WHAT);
    fputs("<tr><th>codec</th><th>a step</th><th>sent</th><th>speed-up</th></tr>\n", file);
    for (int i = 0; i < race->lane_count; i++) {
        if (race->lanes[i].like >= 0)
            continue;
        fprintf(file, "<tr><td>%s</td><td>%s</td><td>%s</td><td>%s x</td></tr>\n", race->lanes[i].name,
                text_time(forecasts[i].seconds).s, text_bytes(forecasts[i].bytes).s,
                text_ratio(forecasts[0].seconds / forecasts[i].seconds).s);
    }
    fprintf(file,
            "</table></div>\n<p class=\"soft\">From the cost model, not measured. Your own case: "
            "<code>%s</code></p>\n",
            FORECAST_COMMAND);
}

static void put_head(FILE *file, const struct race *race)
{
    const struct mlp *mlp = &race->job->mlp;
    size_t count = mlp_param_count(mlp);
    char machine[256], line[64];
    machine_line(machine, sizeof machine);
    snprintf(line, sizeof line, ", each behind a line of %s", text_rate(race->rate).s);
    fprintf(file, page, race->ranks, race->machines ? "machines" : "processes", race->machines ? "" : line);
    if (race->machines) {
        fputs("<p>", file);
        put_text(file, race->machines);
        fputs(".</p>\n", file);
    }
    fprintf(file,
            "<p>A %zu-%zu-%zu perceptron, %s weights: %s of gradient in every step. Same images, same seeds, "
            "until %g %% of %s test images are right. Every %d steps the accuracy is measured and all "
            "replicas are compared, outside of the times.</p>\n<p class=\"soft\">",
            mlp->in, mlp->hidden, mlp->out, text_count(count).s, text_bytes((double)count * sizeof(float)).s,
            race->target * 100, text_count(race->test_images).s, RACE_EVERY);
    put_text(file, machine);
    fprintf(file, "; Hearth %s</p>\n", hearth_version_string());
}

static bool refuse(const char *path)
{
    fprintf(stderr, "hearth demo: %s: cannot be written: %s\n", path, strerror(errno));
    return false;
}

FILE *report_open(const char *path)
{
    FILE *file = fopen(path, "we");
    if (!file)
        refuse(path);
    return file;
}

bool report_close(FILE *file, const char *path, const struct race *race, const struct forecast *forecasts)
{
    put_head(file, race);
    put_bars(file, race);
    put_results(file, race);
    put_feedback(file, race);
    put_chart(file, race, AXIS_TIME, "Loss over time", "time in the steps, logarithmic");
    put_chart(file, race, AXIS_BYTES, "Loss over bytes", "bytes sent by one of them, logarithmic");
    put_forecast(file, race, forecasts);
    fputs("</body>\n</html>\n", file);
    bool written = fflush(file) == 0 && !ferror(file);
    written = fclose(file) == 0 && written;
    return written || refuse(path);
}

/* ---- what a model of today would cost ---- */

#define PARAMS UINT64_C(1000000000)
#define RANKS  2
#define RATE   (1e9 / 8)
#define PATH_S 5e-3 /* half of the round trip */

/* As FORECAST_COMMAND sees it. */
void forecast_all(const struct race *race, struct forecast *forecasts)
{
    struct hearth_tuning tuning;
    hearth_tuning_init(&tuning);
    struct group_view view = {.size = RANKS, .algo = HEARTH_ALGO_AUTO};
    view.across = view.inside = (struct link_cost){PATH_S, RATE, 0, 0};
    view.chunk_bytes = tuning.chunk_bytes;
    view.window_bytes = tuning.window_bytes;
    for (int i = 0; i < race->lane_count; i++) {
        struct codec_list list;
        struct error error;
        forecasts[i] = (struct forecast){.bytes = 0};
        if (codec_parse(race->lanes[i].codec, &list, &error))
            continue;
        struct model_price price = model_price(&list, PARAMS, HEARTH_F32, &view);
        forecasts[i] = (struct forecast){price.bytes, price.total_s};
    }
}
