/* SPDX-License-Identifier: Apache-2.0 */
/* hearth sim: a collective of many ranks on a network you describe, on virtual time, sizes only. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/plan/plan_setup.h"
#include "cli/shared/args.h"
#include "cli/shared/listing.h"
#include "os/clock.h"

#define ALGO_ALL   ALGO_COUNT
#define CODECS_MAX 32
#define LAYER      ((size_t)MODEL_SIDE * MODEL_SIDE)

/* "all" codecs: one of each kind, with the numbers that most people use. */
static const char everything[] =
    "none;bf16;int8;onebit;topk:0.01,values=int8;topk:0.01,chunk=4096,values=int8;"
    "topk:0.001,chunk=4096,values=int8;randomk:0.01,values=bf16;powersgd:4;powersgd:4,alternate";

struct simulation {
    struct plan_setup setup;
    int algo;             /* enum hearth_algo, or ALGO_ALL */
    size_t params;        /* instead of bytes; 0: not said */
    const char *compress; /* codecs to price; NULL: not wanted */
    bool json;
    struct listing listing;
    int done, failed;
};

static const char *algo_or_all(int index)
{
    return index == ALGO_ALL ? "all" : plan_setup_algo(index);
}

static const struct column algo_columns[] = {{"algorithm", "algo", FORM_TEXT, .width = -12},
                                             {"time", "median_us", FORM_US, .width = 10},
                                             {"of bound", "share", FORM_SHARE, .width = 9, .none = "-"},
                                             {"messages", "messages", FORM_COUNT, .width = 14},
                                             {"hops", "hops", FORM_COUNT, .width = 7},
                                             {"most sent", "bytes_sent", FORM_BYTES, .width = 12},
                                             {"wall", "wall_us", FORM_US, .width = 10}};

static void show_row(const struct simulation *sim, const char *name, const struct rehearsal *r, double wall_s)
{
    const struct plan_setup *s = &sim->setup;
    double bound = plan_setup_bound(s);
    char full[64];
    if (!r->done && !sim->json) {
        printf("  %-12s %s%s: %s%s\n", name, paint(stdout, PAINT_DIM), r->failed ? "failed" : "left out",
               r->why, paint(stdout, PAINT_NONE));
        return;
    }
    snprintf(full, sizeof full, "sim.%s", plan_kind_name(s->call.kind));
    json_t *row = json_pack("{ss ss si sI sb}", "name", full, "algo", name, "ranks", s->ranks, "bytes",
                            (json_int_t)plan_setup_bytes(s), "ok", r->done);
    row_real(row, "model_us", r->price_s * 1e6);
    if (!r->done) {
        row_text(row, "skipped", r->why);
        listing_row(&sim->listing, row);
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
    listing_row(&sim->listing, row);
}

static void run_algo(struct simulation *sim, enum hearth_algo algo)
{
    char label[48];
    struct rehearsal r;
    const char *name = hearth_algo_name(algo);
    uint64_t start = clock_real();
    snprintf(label, sizeof label, "sim %s", name);
    plan_setup_rehearse(&sim->setup, algo, label, &r);
    double wall_s = (double)(clock_real() - start) / (double)NS_PER_S;
    show_row(sim, name, &r, wall_s);
    sim->done += r.done;
    sim->failed += r.failed;
}

static void show_head(const struct simulation *sim)
{
    char line[256];
    double bound = plan_setup_bound(&sim->setup);
    if (sim->json)
        return;
    plan_setup_line(&sim->setup, line, sizeof line);
    printf("%s%s%s\n", paint(stdout, PAINT_BOLD), line, paint(stdout, PAINT_NONE));
    if (bound > 0)
        printf("bound: %s, a member's bytes at its port's rate%s\n", text_time(bound).s,
               sim->setup.call.kind == PLAN_ALL_REDUCE ? ", 2(N-1)/N * bytes / rate" : "");
    putchar('\n');
    listing_head(&sim->listing);
}

static int run_all(struct simulation *sim)
{
    show_head(sim);
    for (int a = 1; a < ALGO_COUNT; a++) {
        if (sim->algo == ALGO_ALL && !isfinite(plan_setup_price(&sim->setup, (enum hearth_algo)a)))
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
    enum hearth_algo chosen;
    if (sim->algo == ALGO_ALL)
        return ARGS_GO;
    int code = plan_setup_choose(&sim->setup, usage, (enum hearth_algo)sim->algo, &chosen);
    if (code != ARGS_GO)
        return code;
    sim->algo = (int)chosen;
    sim->setup.view.algo = chosen; /* for the price of plain, beside compressed ones */
    return ARGS_GO;
}

/* ---- prices of codecs ---- */

static struct reduction_choice choose(const struct codec_list *list, size_t rows, enum hearth_dtype dtype,
                                      const struct group_view *view)
{
    struct tensor_shape shape = {
        .count = rows * MODEL_SIDE, .rows = rows, .columns = MODEL_SIDE, .dtype = dtype};
    struct reduction_choice choice;
    reduction_choose(list, &shape, view, &choice);
    return choice;
}

static double plain_s(size_t count, enum hearth_dtype dtype, const struct group_view *view)
{
    static const struct codec none = {.kind = CODEC_NONE};
    struct tensor_shape shape = {.count = count, .dtype = dtype};
    return reduction_price(&none, REDUCTION_PLAIN, &shape, view).total_s;
}

/* `times` more tensors like this one, in flight with the others: their latencies are the same ones. */
static void model_add(struct model_price *model, const struct reduction_choice *choice, double times)
{
    const struct reduction_price *price = &choice->price;
    model->bytes += times * price->bytes;
    model->wire_s += times * (price->wire_s - price->hops_s);
    model->kernel_s += times * price->kernel_s;
    model->total_s += times * (price->total_s - price->hops_s);
}

struct model_price model_price(const struct codec_list *list, size_t params, enum hearth_dtype dtype,
                               const struct group_view *view)
{
    struct model_price model = {.plain_s = plain_s(params, dtype, view)};
    size_t layers = params / LAYER, rows = params % LAYER / MODEL_SIDE, rest = params % MODEL_SIDE;
    size_t plain_params = rest;
    model.layer = choose(list, layers > 0 ? MODEL_SIDE : rows, dtype, view);
    double hops_s = model.layer.price.hops_s;
    if (model.layer.algo != REDUCTION_PLAIN) {
        model_add(&model, &model.layer, layers > 0 ? (double)layers : 1);
    } else {
        plain_params += layers > 0 ? layers * LAYER : rows * MODEL_SIDE;
    }
    if (layers > 0 && rows > 0) {
        struct reduction_choice last = choose(list, rows, dtype, view);
        hops_s = last.price.hops_s > hops_s ? last.price.hops_s : hops_s;
        if (last.algo != REDUCTION_PLAIN)
            model_add(&model, &last, 1);
        else
            plain_params += rows * MODEL_SIDE;
    }
    model.wire_s += hops_s;
    model.total_s += hops_s;
    if (plain_params > 0) {
        double seconds = plain_s(plain_params, dtype, view), n = view->size;
        model.bytes += 2 * (n - 1) / n * (double)(plain_params * dtype_size(dtype));
        model.wire_s += seconds;
        model.total_s += seconds;
    }
    return model;
}

static const struct column codec_columns[] = {
    {"codec", "codec", FORM_TEXT, .width = -34},      {"way", "way", FORM_TEXT, .width = -10},
    {"bytes", "bytes_sent", FORM_BYTES, .width = 10}, {"wire", "wire_us", FORM_US, .width = 10},
    {"kernels", "kernel_us", FORM_US, .width = 10},   {"step", "total_us", FORM_US, .width = 10},
    {"speed-up", "ratio", FORM_RATIO, .width = 9}};

static void show_codec(const struct simulation *sim, const char *codec, const struct codec_list *list)
{
    const struct plan_setup *s = &sim->setup;
    struct model_price m = model_price(list, s->call.count, (enum hearth_dtype)s->dtype, &s->view);
    double ratio = m.plain_s > 0 ? m.plain_s / m.total_s : 1;
    listing_row(&sim->listing,
                json_pack("{ss ss ss si sI sf sf sf sf ss sf sf}", "name", "sim.compress", "codec", codec,
                          "way", reduction_algo_name(m.layer.algo), "ranks", s->ranks, "params",
                          (json_int_t)s->call.count, "bytes_sent", m.bytes, "wire_us", m.wire_s * 1e6,
                          "kernel_us", m.kernel_s * 1e6, "total_us", m.total_s * 1e6, "vs", "plain",
                          "plain_us", m.plain_s * 1e6, "ratio", ratio));
}

static void show_codec_head(const struct simulation *sim)
{
    const struct plan_setup *s = &sim->setup;
    size_t layers = s->call.count / LAYER, rest = s->call.count % LAYER;
    if (sim->json)
        return;
    printf("%sa step of %s %s parameters on %d ranks, %s, rtt %s%s\n", paint(stdout, PAINT_BOLD),
           text_count(s->call.count).s, hearth_dtype_name((enum hearth_dtype)s->dtype), s->ranks,
           text_rate(s->rate).s, text_time(s->rtt_s).s, paint(stdout, PAINT_NONE));
    printf("assumed: layers of %d x %d (%s of them) and %s parameters more, one core for the kernels;\n",
           MODEL_SIDE, MODEL_SIDE, text_count(layers).s, text_count(rest).s);
    printf("by the cost model, which is what auto decides by; bytes are those one rank sends\n\n");
    listing_head(&sim->listing);
}

/* `codecs` by ';', or "all". */
static int run_codecs(const struct simulation *sim, const struct usage *usage)
{
    struct codec_list lists[CODECS_MAX];
    char texts[CODECS_MAX][CODEC_TEXT_MAX];
    enum hearth_dtype dtype = (enum hearth_dtype)sim->setup.dtype;
    struct error error;
    int count = 0;
    if (sim->setup.call.kind != PLAN_ALL_REDUCE)
        return args_refuse(usage, "--compress is for all_reduce, not for %s",
                           plan_kind_name(sim->setup.call.kind));
    if (dtype != HEARTH_F32 && dtype != HEARTH_F64 && dtype != HEARTH_F16 && dtype != HEARTH_BF16)
        return args_refuse(usage, "--compress is for f32, f64, f16 and bf16, not for %s",
                           hearth_dtype_name(dtype));
    const char *at = strcmp(sim->compress, "all") == 0 ? everything : sim->compress;
    do {
        size_t len = strcspn(at, ";");
        if (count == CODECS_MAX)
            return args_refuse(usage, "--compress: more than %d codecs", CODECS_MAX);
        if (len >= CODEC_TEXT_MAX)
            return args_refuse(usage, "--compress: a codec of more than %d bytes", CODEC_TEXT_MAX - 1);
        snprintf(texts[count], CODEC_TEXT_MAX, "%.*s", (int)len, at);
        at += len + (at[len] == ';');
        if (codec_parse(texts[count], &lists[count], &error))
            return args_refuse(usage, "--compress: %s", error.text);
        count++;
    } while (*at);
    show_codec_head(sim);
    for (int i = 0; i < count; i++)
        show_codec(sim, texts[i], &lists[i]);
    return EXIT_GOOD;
}

/* ---- the command ---- */

int cmd_sim(int argc, char **argv)
{
    struct simulation sim = {.algo = ALGO_ALL, .listing = {LISTING_COLUMNS(algo_columns)}};
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
    if (sim.compress)
        sim.listing = (struct listing){LISTING_COLUMNS(codec_columns)};
    code = plan_setup_build(&sim.setup, &usage);
    if (code == ARGS_GO)
        code = settle_algo(&sim, &usage);
    if (code == ARGS_GO && !listing_open(&sim.listing, sim.json, argc, argv))
        code = EXIT_FAILED_CHECK;
    if (code == ARGS_GO)
        code = sim.compress ? run_codecs(&sim, &usage) : run_all(&sim);
    if (code == EXIT_USAGE)
        json_decref(sim.listing.doc);
    else
        code = listing_close(&sim.listing, code);
    plan_setup_fini(&sim.setup);
    return code;
}
