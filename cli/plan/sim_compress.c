/* SPDX-License-Identifier: Apache-2.0 */
/* hearth sim --compress: what a step of training costs on an imagined network, codec by codec. */
#include "cli/plan/sim_compress.h"

#include <stdio.h>
#include <string.h>

#include "cli/shared/table.h"

#define CODECS_MAX 32
#define LAYER      ((size_t)MODEL_SIDE * MODEL_SIDE)

/* "all": one of each kind, with the numbers that most people use. */
static const char everything[] =
    "none;bf16;int8;onebit;topk:0.01,values=int8;topk:0.01,chunk=4096,values=int8;"
    "topk:0.001,chunk=4096,values=int8;randomk:0.01,values=bf16;powersgd:4;powersgd:4,alternate";

/* ---- prices ---- */

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

/* ---- rows ---- */

static const int widths[] = {-34, -10, 10, 10, 10, 10, 9};

static void row_json(json_t *doc, const struct plan_setup *s, const char *codec, const struct model_price *m)
{
    json_t *row = doc_row(doc);
    row_text(row, "name", "sim.compress");
    row_text(row, "codec", codec);
    row_text(row, "way", reduction_algo_name(m->layer.algo));
    row_count(row, "ranks", (uint64_t)s->ranks);
    row_count(row, "params", s->call.count);
    row_real(row, "bytes_sent", m->bytes);
    row_real(row, "wire_us", m->wire_s * 1e6);
    row_real(row, "kernel_us", m->kernel_s * 1e6);
    row_real(row, "total_us", m->total_s * 1e6);
    row_text(row, "vs", "plain");
    row_real(row, "plain_us", m->plain_s * 1e6);
    row_real(row, "ratio", m->plain_s > 0 ? m->plain_s / m->total_s : 1);
}

static void show_head(const struct plan_setup *s)
{
    size_t layers = s->call.count / LAYER, rest = s->call.count % LAYER;
    printf("%sa step of %s %s parameters on %d ranks, %s, rtt %s%s\n", paint(stdout, PAINT_BOLD),
           text_count(s->call.count).s, hearth_dtype_name((enum hearth_dtype)s->dtype), s->ranks,
           text_rate(s->rate).s, text_time(s->rtt_s).s, paint(stdout, PAINT_NONE));
    printf("assumed: layers of %d x %d (%s of them) and %s parameters more, one core for the kernels;\n",
           MODEL_SIDE, MODEL_SIDE, text_count(layers).s, text_count(rest).s);
    printf("by the cost model, which is what auto decides by; bytes are those one rank sends\n\n");
    COLUMNS(widths, "codec", "way", "bytes", "wire", "kernels", "step", "speed-up");
}

static void row_show(const char *codec, const struct model_price *m)
{
    COLUMNS(widths, codec, reduction_algo_name(m->layer.algo), text_bytes(m->bytes).s, text_time(m->wire_s).s,
            text_time(m->kernel_s).s, text_time(m->total_s).s,
            text_ratio(m->plain_s > 0 ? m->plain_s / m->total_s : 1).s);
}

/* ---- the command ---- */

/* The text between two ';', from `at` on; false: longer than any codec is. */
static bool next_text(const char **at, char text[CODEC_TEXT_MAX])
{
    size_t len = strcspn(*at, ";");
    if (len >= CODEC_TEXT_MAX)
        return false;
    memcpy(text, *at, len);
    text[len] = '\0';
    *at += len + ((*at)[len] == ';');
    return true;
}

static int check_plan_setup(const struct plan_setup *s, const struct usage *usage)
{
    enum hearth_dtype dtype = (enum hearth_dtype)s->dtype;
    if (s->call.kind != PLAN_ALL_REDUCE)
        return args_refuse(usage, "--compress is for all_reduce, not for %s", plan_kind_name(s->call.kind));
    if (dtype != HEARTH_F32 && dtype != HEARTH_F64 && dtype != HEARTH_F16 && dtype != HEARTH_BF16)
        return args_refuse(usage, "--compress is for f32, f64, f16 and bf16, not for %s",
                           hearth_dtype_name(dtype));
    return ARGS_GO;
}

int sim_compress(const struct plan_setup *setup, const struct usage *usage, const char *codecs, json_t *doc)
{
    struct codec_list lists[CODECS_MAX];
    char texts[CODECS_MAX][CODEC_TEXT_MAX];
    struct error error;
    int count = 0, code = check_plan_setup(setup, usage);
    if (code != ARGS_GO)
        return code;
    const char *at = strcmp(codecs, "all") == 0 ? everything : codecs;
    do {
        if (count == CODECS_MAX)
            return args_refuse(usage, "--compress: more than %d codecs", CODECS_MAX);
        if (!next_text(&at, texts[count]))
            return args_refuse(usage, "--compress: a codec of more than %d bytes", CODEC_TEXT_MAX - 1);
        if (codec_parse(texts[count], &lists[count], &error))
            return args_refuse(usage, "--compress: %s", error.text);
        count++;
    } while (*at);
    if (!doc)
        show_head(setup);
    for (int i = 0; i < count; i++) {
        struct model_price price =
            model_price(&lists[i], setup->call.count, (enum hearth_dtype)setup->dtype, &setup->view);
        if (doc)
            row_json(doc, setup, texts[i], &price);
        else
            row_show(texts[i], &price);
    }
    return EXIT_GOOD;
}
