/* SPDX-License-Identifier: Apache-2.0 */
/* hearth sim: a collective of many ranks on a network you describe, on virtual time, sizes only. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/plan/plan_setup.h"
#include "cli/plan/sim_compress.h"
#include "cli/shared/args.h"
#include "cli/shared/json.h"
#include "cli/shared/progress.h"
#include "cli/shared/table.h"
#include "os/clock.h"

#define ALGO_ALL ALGO_COUNT

struct simulation {
    struct plan_setup setup;
    int algo;             /* enum hearth_algo, or ALGO_ALL */
    size_t params;        /* instead of bytes; 0: not said */
    const char *compress; /* codecs to price; NULL: not wanted */
    bool json;
    json_t *doc;
    int done, failed;
};

static const char *algo_or_all(int index)
{
    return index == ALGO_ALL ? "all" : plan_setup_algo(index);
}

static const int widths[] = {-12, 10, 9, 14, 7, 12, 10};

static void row_json(struct simulation *sim, const char *name, const struct rehearsal *r, double wall_s)
{
    const struct plan_setup *s = &sim->setup;
    double bound = plan_setup_bound(s);
    json_t *row = doc_row(sim->doc);
    char full[64];
    snprintf(full, sizeof full, "sim.%s", plan_kind_name(s->call.kind));
    row_text(row, "name", full);
    row_text(row, "algo", name);
    row_count(row, "ranks", (uint64_t)s->ranks);
    row_count(row, "bytes", plan_setup_bytes(s));
    row_bool(row, "ok", r->done);
    row_real(row, "model_us", r->price_s * 1e6);
    if (!r->done) {
        row_text(row, "skipped", r->why);
        return;
    }
    row_real(row, "median_us", r->result.time_s * 1e6);
    row_real(row, "bytes_per_s", (double)plan_setup_bytes(s) / r->result.time_s);
    row_text(row, "vs", "bound");
    row_real(row, "bound_us", bound * 1e6);
    row_real(row, "ratio", bound > 0 ? r->result.time_s / bound : NAN);
    row_real(row, "share", bound > 0 ? bound / r->result.time_s : NAN);
    row_count(row, "messages", r->result.messages);
    row_count(row, "bytes_sent", r->result.bytes_sent_max);
    row_count(row, "hops", r->result.hops);
    row_real(row, "wall_us", wall_s * 1e6);
}

static void row_show(struct simulation *sim, const char *name, const struct rehearsal *r, double wall_s)
{
    double bound = plan_setup_bound(&sim->setup);
    if (!r->done) {
        printf("  %-12s %s%s: %s%s\n", name, paint(stdout, PAINT_DIM), r->failed ? "failed" : "left out",
               r->why, paint(stdout, PAINT_NONE));
        return;
    }
    COLUMNS(widths, name, text_time(r->result.time_s).s,
            bound > 0 ? text_share(bound / r->result.time_s).s : "-", text_count(r->result.messages).s,
            text_count(r->result.hops).s, text_bytes((double)r->result.bytes_sent_max).s,
            text_time(wall_s).s);
}

static void run_algo(struct simulation *sim, enum hearth_algo algo)
{
    struct progress progress;
    struct rehearsal r;
    const char *name = hearth_algo_name(algo);
    uint64_t start = clock_real();
    progress_start(&progress, "sim %s", name);
    plan_setup_rehearse(&sim->setup, algo, &progress, &r);
    progress_hide(&progress);
    double wall_s = (double)(clock_real() - start) / (double)NS_PER_S;
    if (sim->json)
        row_json(sim, name, &r, wall_s);
    else
        row_show(sim, name, &r, wall_s);
    sim->done += r.done;
    sim->failed += r.failed;
}

static void show_head(const struct simulation *sim)
{
    char line[256];
    double bound = plan_setup_bound(&sim->setup);
    plan_setup_line(&sim->setup, line, sizeof line);
    printf("%s%s%s\n", paint(stdout, PAINT_BOLD), line, paint(stdout, PAINT_NONE));
    if (bound > 0)
        printf("bound: %s, a member's bytes at its port's rate%s\n", text_time(bound).s,
               sim->setup.call.kind == PLAN_ALL_REDUCE ? ", 2(N-1)/N * bytes / rate" : "");
    putchar('\n');
    COLUMNS(widths, "algorithm", "time", "of bound", "messages", "hops", "most sent", "wall");
}

static int run_all(struct simulation *sim)
{
    if (!sim->json)
        show_head(sim);
    for (int a = 1; a < ALGO_COUNT; a++) {
        struct plan_call call = plan_setup_call(&sim->setup, (enum hearth_algo)a, 0);
        if (sim->algo == ALGO_ALL && !isfinite(select_price(&call, call.algo, &sim->setup.view)))
            continue; /* the collective does not have it, or it needs a host map */
        if (sim->algo == ALGO_ALL || sim->algo == a)
            run_algo(sim, (enum hearth_algo)a);
    }
    if (sim->failed)
        fprintf(stderr, "hearth sim: this is a bug in Hearth, please report it\n");
    else if (sim->done == 0)
        fprintf(stderr,
                "hearth sim: nothing was run; try fewer --ranks or --bytes, or a larger --messages-max\n");
    return sim->failed || sim->done == 0 ? EXIT_FAILED_CHECK : EXIT_GOOD;
}

/* auto becomes what it stands for; a fixed choice must exist. */
static int settle_algo(struct simulation *sim, const struct usage *usage)
{
    struct error error;
    enum hearth_algo chosen;
    if (sim->algo == ALGO_ALL)
        return ARGS_GO;
    struct plan_call call = plan_setup_call(&sim->setup, (enum hearth_algo)sim->algo, 0);
    if (select_algo(&call, &sim->setup.view, &chosen, &error))
        return args_refuse(usage, "%s", error.text);
    sim->algo = (int)chosen;
    sim->setup.view.algo = chosen; /* for the price of plain, beside compressed ones */
    return ARGS_GO;
}

int cmd_sim(int argc, char **argv)
{
    struct simulation sim = {.algo = ALGO_ALL};
    struct arg args[PLAN_SETUP_ARGS + 4] = {
        {"algo", ARG_CHOICE, &sim.algo, .about = "algorithm (default all)", .choice = algo_or_all},
        {"params", ARG_COUNT, &sim.params, .about = "elements of the buffer, instead of --bytes"},
        {"compress", ARG_TEXT, &sim.compress, .value_name = "CODECS",
         .about = "price these codecs for a model of so many parameters instead: all, or texts with ; "
                  "between them"},
        {"json", ARG_FLAG, &sim.json, .about = "print one JSON object"},
    };
    struct usage usage = {
        "sim",
        "Runs the plans of all ranks against each other on virtual time, sizes only, and shows how "
        "long the collective takes, how near that is to the bound of the network, and how many "
        "messages it needs. Algorithms that need too much memory or time are left out. With --compress: "
        "what a step of training costs by the cost model, codec by codec.",
        "hearth sim --ranks 1000 --bytes 100M --rate 1gbit --rtt 200us --algo all", USAGE_ARGS(args)};
    plan_setup_init(&sim.setup);
    plan_setup_args(&sim.setup, args + 4);
    int code = args_parse(&usage, argc, argv);
    if (code != ARGS_GO)
        return code;
    if (sim.params > 0 && sim.setup.bytes_given)
        return args_refuse(&usage, "--params and --bytes both say how large the buffer is; take one of them");
    if (sim.params > 0)
        sim.setup.bytes = sim.params * hearth_dtype_size((enum hearth_dtype)sim.setup.dtype);
    code = plan_setup_build(&sim.setup, &usage);
    if (code == ARGS_GO)
        code = settle_algo(&sim, &usage);
    if (code == ARGS_GO && sim.json && !(sim.doc = doc_open(argc, argv)))
        code = EXIT_FAILED_CHECK;
    if (code == ARGS_GO)
        code = sim.compress ? sim_compress(&sim.setup, &usage, sim.compress, sim.doc) : run_all(&sim);
    if (sim.doc && code == EXIT_USAGE)
        json_decref(sim.doc);
    else if (sim.doc && !doc_close(sim.doc))
        code = EXIT_FAILED_CHECK;
    plan_setup_fini(&sim.setup);
    return code;
}
