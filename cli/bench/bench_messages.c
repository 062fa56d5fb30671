/* SPDX-License-Identifier: Apache-2.0 */
/* hearth bench messages: messages and remote calls between two nodes of this process, in turns with a
 * reference: a memcpy of the same bytes where memory joins the nodes, bare sockets where a network does, and
 * for calls a round trip of messages. Bursts are short and alternate with the reference, so that a drift of
 * the machine hits both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/message_bursts.h"
#include "cli/commands.h"
#include "cli/shared/args.h"
#include "cli/shared/listing.h"
#include "cli/shared/progress.h"
#include "cli/shared/stats.h"

#define NAME         "bench messages"
#define ROW_S        1.0  /* how long a row is measured */
#define BURST_S      5e-3 /* of one, before it is the other's turn */
#define TIMES_MAX    50000
#define ROUNDS_MIN   5
#define ROUNDS_MAX   2000
#define WINDOW_BYTES ((size_t)16 << 20) /* so much is under way, if that is 2 to 16 messages */
#define CALLS_WINDOW 64                 /* calls in flight */

enum series { REFERENCE, MEASURED, SERIES };

struct samples {
    double times[TIMES_MAX + MESSAGE_BURST_MAX];
    size_t count;
};

struct command {
    /* What the user says. */
    struct bench_line line;
    struct arg_list sizes;
    int window, iters;
    bool calls, json;

    struct message_bench bench;
    struct samples samples[SERIES];
};

/* One line of the table. */
struct row_plan {
    enum message_course course;
    const char *name, *what;
    bool single; /* a window of 1 */
};

static const struct row_plan message_rows[] = {{COURSE_TRIP, "messages.trip", "half a round trip", true},
                                               {COURSE_STREAM, "messages.stream", "one way", false}};
static const struct row_plan call_rows[] = {{COURSE_CALL, "messages.call", "call", true},
                                            {COURSE_CALL, "messages.calls", "calls side by side", false}};
#define ROWS 2 /* of each size */

/* ---- measuring ---- */

static bool is_network(const struct command *c)
{
    return strcmp(c->line.transport, "tcp") == 0 || strcmp(c->line.transport, "quic") == 0;
}

static int window_for(const struct command *c, size_t bytes)
{
    size_t fit = WINDOW_BYTES / bytes;
    if (c->window > 0)
        return c->window;
    return c->calls ? CALLS_WINDOW : (int)(fit < 2 ? 2 : fit > 16 ? 16 : fit);
}

static void take_role(struct command *c, const struct row_plan *plan, enum series series)
{
    struct message_bench *b = &c->bench;
    b->course = series == REFERENCE && c->calls ? COURSE_TRIP : plan->course;
    b->medium = series == MEASURED || c->calls ? BY_NODES : is_network(c) ? BY_SOCKETS : BY_COPY;
    b->window = plan->single ? 1 : window_for(c, b->bytes);
}

/* Times of one burst, in seconds; of calls and their reference for the whole way there and back. */
static int burst(struct command *c, const struct row_plan *plan, enum series series, int count)
{
    struct message_bench *b = &c->bench;
    struct samples *s = &c->samples[series];
    take_role(c, plan, series);
    b->count = count;
    int code = message_burst(b);
    double factor = series == REFERENCE && c->calls ? 2 : 1;
    for (int i = 0; i < b->times && s->count < TIMES_MAX + MESSAGE_BURST_MAX; i++)
        s->times[s->count++] = b->took[i] * factor;
    return code;
}

static int verify(struct command *c, const struct row_plan *plan)
{
    take_role(c, plan, MEASURED);
    return message_verify(&c->bench);
}

static int clamp(double value, int least, int most)
{
    return !(value > least) ? least : value > most ? most : (int)value;
}

/* How many messages make a burst of each; a stream's has some windows, so that its ends do not count. */
static int warm_up(struct command *c, const struct row_plan *plan, int counts[SERIES], double *round_s)
{
    int code = verify(c, plan);
    *round_s = 0;
    for (int series = 0; series < SERIES && !code; series++) {
        take_role(c, plan, (enum series)series);
        int least = c->bench.window * (c->bench.window > 1 ? 4 : 1);
        code = burst(c, plan, (enum series)series, least);
        if (!code)
            code = burst(c, plan, (enum series)series, least);
        if (code)
            break;
        double once = c->samples[series].times[c->samples[series].count - 1];
        counts[series] = clamp(BURST_S / once, least, MESSAGE_BURST_MAX);
        if (c->iters > 0 && counts[series] > c->iters)
            counts[series] = c->iters > least ? c->iters : least;
        *round_s += once * counts[series];
        c->samples[series].count = 0;
    }
    return code;
}

static int measure(struct command *c, const struct row_plan *plan, struct progress *progress, double done)
{
    int counts[SERIES];
    double round_s;
    c->samples[REFERENCE].count = c->samples[MEASURED].count = 0;
    c->bench.exact = true;
    int code = warm_up(c, plan, counts, &round_s);
    if (code)
        return code;
    int rounds = clamp(ROW_S / round_s, ROUNDS_MIN, ROUNDS_MAX);
    if (c->iters > 0)
        rounds = (c->iters + counts[MEASURED] - 1) / counts[MEASURED];
    for (int i = 0; i < rounds && !code && c->samples[MEASURED].count < TIMES_MAX; i++) {
        for (int series = 0; series < SERIES && !code; series++)
            code = burst(c, plan, (enum series)series, counts[series]);
        progress_show(progress, done + (double)i / rounds / (double)(c->sizes.count * ROWS));
    }
    return code ? code : verify(c, plan);
}

/* ---- showing ---- */

static const struct column columns[] = {
    {"bytes", "bytes", FORM_BYTES, .width = 8},      {"what", "what", FORM_TEXT, .width = -18},
    {"window", "window", FORM_NUMBER, .width = 6},   {"median", "median_us", FORM_US, .width = 9},
    {"p99", "p99_us", FORM_US, .width = 9},          {"speed", "bytes_per_s", FORM_SPEED, .width = 9},
    {"a second", "per_s", FORM_COUNT, .width = 10},  {"beside", "vs", FORM_TEXT, .width = -10},
    {"median", "vs_median_us", FORM_US, .width = 9}, {"x", "ratio", FORM_RATIO, .width = 6},
    {"exact", "ok", FORM_EXACT, .width = 0}};

static void show_head(const struct command *c, const struct listing *listing)
{
    char machine[256], line[96];
    if (listing->doc)
        return;
    machine_line(machine, sizeof machine);
    bench_line_text(&c->line, line, sizeof line);
    printf("%s%s between 2 nodes%s%s, beside %s\n%s\n\n", paint(stdout, PAINT_BOLD),
           c->calls ? "remote calls" : "messages", paint(stdout, PAINT_NONE), line,
           c->calls        ? "a round trip of messages"
           : is_network(c) ? "bare TCP sockets over loopback"
                           : "memcpy on one thread",
           machine);
    listing_head(listing);
}

static void show_row(struct command *c, const struct row_plan *plan, const struct listing *listing)
{
    const struct message_bench *b = &c->bench;
    struct stats time = stats_of(c->samples[MEASURED].times, c->samples[MEASURED].count);
    struct stats vs = stats_of(c->samples[REFERENCE].times, c->samples[REFERENCE].count);
    const char *reference = c->calls ? "messages" : is_network(c) ? "sockets" : "memcpy";
    json_t *row = json_pack(
        "{ss ss ss sb ss si sI si sI sf sf sf sf sf ss sf sf sb}", "name", plan->name, "what", plan->what,
        "transport", c->line.transport, "secure", bench_line_secure(&c->line), "compress", "none", "ranks", 2,
        "bytes", (json_int_t)b->bytes, "window", b->window, "calls", (json_int_t)c->samples[MEASURED].count,
        "median_us", time.median * 1e6, "p99_us", time.p99 * 1e6, "spread", time.spread, "bytes_per_s",
        (double)b->bytes / time.median, "per_s", 1 / time.median, "vs", reference, "vs_median_us",
        vs.median * 1e6, "ratio", time.median / vs.median, "ok", b->exact);
    listing_row(listing, row);
}

/* ---- the command ---- */

static int run_rows(struct command *c, const struct listing *listing)
{
    const struct row_plan *rows = c->calls ? call_rows : message_rows;
    struct progress progress;
    int wrong = 0, code = EXIT_GOOD;
    size_t all = c->sizes.count * ROWS;
    show_head(c, listing);
    progress_start(&progress, NAME);
    for (size_t i = 0; i < all && !code; i++) {
        const struct row_plan *plan = &rows[i % ROWS];
        c->bench.bytes = c->sizes.item[i / ROWS];
        c->bench.stride = (c->bench.bytes + 63) / 64 * 64;
        code = measure(c, plan, &progress, (double)i / (double)all);
        progress_hide(&progress);
        if (code)
            break;
        show_row(c, plan, listing);
        if (!c->bench.exact)
            fprintf(stderr, "hearth " NAME ": a message of %s arrived with wrong bytes; please report it\n",
                    text_bytes((double)c->bench.bytes).s);
        wrong += !c->bench.exact;
    }
    return wrong ? EXIT_FAILED_CHECK : code;
}

static size_t memory_needed(const struct command *c)
{
    size_t most = 0;
    for (size_t i = 0; i < c->sizes.count; i++) {
        size_t stride = (c->sizes.item[i] + 63) / 64 * 64;
        size_t all = stride * (size_t)window_for(c, c->sizes.item[i]);
        most = all > most ? all : most;
    }
    return most;
}

static int run_bench(struct command *c, int argc, char **argv)
{
    struct listing listing = {columns, sizeof columns / sizeof *columns, NULL};
    if (!listing_open(&listing, c->json, argc, argv))
        return EXIT_FAILED_CHECK;
    int code = message_bench_open(&c->bench, &c->line, memory_needed(c));
    if (!code)
        code = run_rows(c, &listing);
    message_bench_close(&c->bench);
    return listing_close(&listing, code);
}

int bench_messages(int argc, char **argv)
{
    struct command *c = calloc(1, sizeof *c); /* large: it holds the times */
    bool sizes_given = false;
    if (!c)
        return command_fail(NAME, "no memory");
    c->line = (struct bench_line){.command = NAME, .transport = "mem", .ranks = 2};
    struct arg args[] = {
        {"transport", ARG_TEXT, &c->line.transport,
         .about = "what joins the nodes: " BENCH_TRANSPORTS " (default mem)", .value_name = "NAME"},
        {"bytes", ARG_SIZES, &c->sizes,
         .about = "sizes of a message (default 4,1K,64K,1M,100M; of a call 64,1K,64K)", .min = 1,
         .given = &sizes_given},
        {"window", ARG_INT, &c->window,
         .about = "messages or calls under way at the same time (default auto: 2 to 16 messages, 64 calls)",
         .min = 1, .max = MESSAGE_WINDOW_MAX, .word = "auto"},
        {"calls", ARG_FLAG, &c->calls, .about = "remote calls, answered with what they carry"},
        {"rate", ARG_RATE, &c->line.rate, .about = "what a node sends at most (default: no limit)"},
        {"rtt", ARG_DURATION, &c->line.rtt_s, .about = "mem: round trip time (default 0)"},
        {"plain", ARG_FLAG, &c->line.plain, .about = "tcp, shm: no secret, no encryption"},
        {"iters", ARG_INT, &c->iters, .about = "messages of each row (default auto: about a second)",
         .min = 1, .max = TIMES_MAX, .word = "auto"},
        {"json", ARG_FLAG, &c->json, .about = "print one JSON object"},
    };
    struct usage usage = {
        NAME,
        "Messages between two nodes of this process: half a round trip, and a stream with several under way; "
        "with --calls remote calls. Median and 99th percentile, in turns with a memcpy of the same bytes, "
        "with "
        "bare TCP sockets (tcp, quic) or with a round trip of messages (--calls); contents are checked.",
        "hearth bench messages --transport tcp --bytes 4,64K,100M", USAGE_ARGS(args)};
    int code = args_parse(&usage, argc - 1, argv + 1);
    if (!sizes_given)
        c->sizes = c->calls ? (struct arg_list){{64, 1 << 10, 64 << 10}, 3}
                            : (struct arg_list){{4, 1 << 10, 64 << 10, 1 << 20, (size_t)100 << 20}, 5};
    if (code == ARGS_GO)
        code = bench_line_check(&c->line, &usage);
    if (code == ARGS_GO)
        code = run_bench(c, argc, argv);
    free(c);
    return code;
}
