/* SPDX-License-Identifier: Apache-2.0 */
/* hearth plan: what each rank does in a collective, and what it costs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/plan/plan_setup.h"
#include "cli/shared/args.h"
#include "cli/shared/json.h"
#include "cli/shared/progress.h"
#include "cli/shared/table.h"
#include "collective/plan.h"

/* ---- pictures ---- */

#define WIDTH        98
#define INDENT       8
#define MESSAGE_LEN  48
#define MESSAGES_MAX 240 /* of a picture; more are not legible */

/* ---- step by step ---- */

static uint32_t last_step(const struct plan *plans, int size)
{
    uint32_t last = 0;
    for (int r = 0; r < size; r++) {
        for (uint32_t m = 0; m < plans[r].move_count; m++) {
            const struct move *move = &plans[r].moves[m];
            if ((move->bits & MOVE_SEND) && move->to_step > last)
                last = move->to_step;
        }
    }
    return last;
}

static int message_text(int rank, const struct move *move, char *text, size_t size)
{
    if (move->parts > 1)
        return snprintf(text, size, "%d>%d p%u-%u", rank, move->to, move->part, move->part + move->parts - 1);
    return snprintf(text, size, "%d>%d p%u", rank, move->to, move->part);
}

/* Prints one message in a cell of fixed width; the column it ends at. `gap` is what its predecessor left. */
static int put_message(int column, int gap, int width, const char *text)
{
    if (column + gap + width > WIDTH)
        return printf("\n%*s%s", INDENT, "", text) - 1;
    return column + printf("%*s%s", gap, "", text);
}

static int widest_message(const struct plan *plans, int size)
{
    char text[MESSAGE_LEN];
    int widest = 0;
    for (int r = 0; r < size; r++) {
        for (uint32_t m = 0; m < plans[r].move_count; m++) {
            const struct move *move = &plans[r].moves[m];
            int len = move->bits & MOVE_SEND ? message_text(r, move, text, sizeof text) : 0;
            widest = len > widest ? len : widest;
        }
    }
    return widest + 2;
}

static void draw_step(const struct plan *plans, int size, uint32_t step, int width)
{
    char text[MESSAGE_LEN];
    int column = 0, gap = 0;
    for (int r = 0; r < size; r++) {
        for (uint32_t m = 0; m < plans[r].move_count; m++) {
            const struct move *move = &plans[r].moves[m];
            if (!(move->bits & MOVE_SEND) || move->to_step != step)
                continue;
            if (column == 0)
                column = printf("  %4u  ", step);
            int len = message_text(r, move, text, sizeof text);
            column = put_message(column, gap, width, text);
            gap = width - len;
        }
    }
    if (column > 0)
        putchar('\n');
}

static uint64_t count_messages(const struct plan *plans, int size)
{
    uint64_t count = 0;
    for (int r = 0; r < size; r++) {
        for (uint32_t m = 0; m < plans[r].move_count; m++)
            count += (plans[r].moves[m].bits & MOVE_SEND) != 0;
    }
    return count;
}

/* A line per step with the messages of one lane, "0>1 p3": rank 0 sends part 3 to rank 1. Nothing if they are
 * too many to be legible. plans[size]. */
static void draw_steps(const struct plan *plans, int size)
{
    uint64_t messages = count_messages(plans, size);
    uint32_t last = last_step(plans, size);
    int width = widest_message(plans, size);
    if (messages == 0 || messages > MESSAGES_MAX)
        return;
    printf("\n  %4s  %s\n", "step", "messages (0>1 p3: rank 0 sends part 3 to rank 1)");
    for (uint32_t step = 0; step <= last; step++)
        draw_step(plans, size, step, width);
}

/* ---- graph ---- */

static void draw_nodes(int size, const int *host, int rank)
{
    for (int r = 0; r < size; r++) {
        if (host && (r == 0 || host[r] != host[r - 1]))
            printf("%s  subgraph cluster_%d {\n    label=\"host %d\";\n", r ? "  }\n" : "", host[r], host[r]);
        printf("  %s%d%s;\n", host ? "  " : "", r, r == rank ? " [style=bold]" : "");
    }
    if (host)
        printf("  }\n");
}

/* What `plan`'s rank sends to `to`. */
static void draw_edge(const struct plan *plan, int to)
{
    uint64_t messages = 0, bytes = 0;
    for (uint32_t m = 0; m < plan->move_count; m++) {
        const struct move *move = &plan->moves[m];
        if (!(move->bits & MOVE_SEND) || move->to != to)
            continue;
        messages += plan->lanes;
        for (uint64_t lane = 0; lane < plan->lanes; lane++)
            bytes += plan_send_bytes(plan, lane, move);
    }
    if (messages > 0)
        printf("  %d -> %d [label=\"%s x, %s\"];\n", plan->rank, to, text_count(messages).s,
               text_bytes((double)bytes).s);
}

/* A digraph: an edge per pair with its messages and bytes, hosts as boxes. Of one rank only its own edges;
 * RANK_NONE: all. */
static void draw_dot(const struct plan *plans, int size, const int *host, int rank)
{
    printf("digraph \"%s by %s\" {\n", plan_kind_name(plans[0].kind), hearth_algo_name(plans[0].algo));
    printf("  node [shape=circle];\n  edge [fontsize=9];\n");
    draw_nodes(size, host, rank);
    for (int r = 0; r < size; r++) {
        for (int to = 0; to < size; to++) {
            if (rank == RANK_NONE || r == rank || to == rank)
                draw_edge(&plans[r], to);
        }
    }
    printf("}\n");
}

#define LIST_RANKS_MAX    64 /* more ranks are summed up, and their moves are left out of --json */
#define PICTURE_RANKS_MAX 16
#define DOT_RANKS_MAX     256
#define LANES_MAX         10000000 /* bytes are summed lane by lane */
#define NAME_LEN          64

struct planning {
    struct plan_setup setup;
    int algo, rank; /* RANK_NONE: all */
    bool json, dot, table;
    enum hearth_algo chosen;
    struct rehearsal rehearsal;
    struct heap heap;
};

static int write_plan(struct planning *p, int rank, struct plan *plan)
{
    struct plan_call call = plan_setup_call(&p->setup, p->chosen, rank);
    struct error error;
    if (plan_write(&call, &p->heap, plan, &error) == HEARTH_OK)
        return EXIT_GOOD;
    return command_fail("plan", "%s", error.text);
}

/* ---- one rank ---- */

static void peer_text(int rank, char *text, size_t size)
{
    if (rank == RANK_NONE)
        snprintf(text, size, "-");
    else
        snprintf(text, size, "%d", rank);
}

static uint64_t move_bytes(const struct plan *plan, const struct move *move,
                           size_t (*bytes)(const struct plan *, uint64_t, const struct move *))
{
    uint64_t sum = 0;
    for (uint64_t lane = 0; lane < plan->lanes; lane++)
        sum += bytes(plan, lane, move);
    return sum;
}

static void add_move(struct table *table, const struct plan *plan, const struct move *move)
{
    char name[NAME_LEN], part[32], from[16], to[16], step[32];
    bool recvs = move->bits & MOVE_RECV, sends = move->bits & MOVE_SEND;
    uint64_t in = recvs ? move_bytes(plan, move, plan_recv_bytes) : 0;
    uint64_t out = sends ? move_bytes(plan, move, plan_send_bytes) : 0;
    move_name(move, name, sizeof name);
    peer_text(move->from, from, sizeof from);
    peer_text(move->to, to, sizeof to);
    snprintf(part, sizeof part, move->parts > 1 ? "%u..%u" : "%u", move->part, move->part + move->parts - 1);
    if (recvs && sends)
        snprintf(step, sizeof step, "%u>%u", move->from_step, move->to_step);
    else
        snprintf(step, sizeof step, "%s%u", "", recvs ? move->from_step : move->to_step);
    TABLE_ROW(table, PAINT_NONE, recvs || sends ? step : "-", name, part, from, to,
              recvs ? text_count(in).s : "-", sends ? text_count(out).s : "-");
}

static void show_rank(const struct plan *plan)
{
    printf("\n%srank %d%s: %u moves in each of %s lane%s, %s at a time; sends %s in %s messages\n",
           paint(stdout, PAINT_BOLD), plan->rank, paint(stdout, PAINT_NONE), plan->move_count,
           text_count(plan->lanes).s, plan->lanes == 1 ? "" : "s", text_count(plan->window).s,
           text_bytes((double)plan_sent(plan)).s, text_count(plan_messages(plan)).s);
    struct table table;
    table_open(&table, "rlrrrrr");
    TABLE_ROW(&table, PAINT_NONE, "step", "move", "part", "from", "to", "bytes in", "bytes out");
    for (uint32_t m = 0; m < plan->move_count; m++)
        add_move(&table, plan, &plan->moves[m]);
    table_print(&table, stdout, "  ");
    table_close(&table);
}

static json_t *move_json(const struct plan *plan, const struct move *move)
{
    json_t *row = json_object();
    char name[NAME_LEN];
    move_name(move, name, sizeof name);
    row_text(row, "move", name);
    row_count(row, "part", move->part);
    row_count(row, "parts", move->parts);
    if (move->bits & MOVE_RECV) {
        row_count(row, "from", (uint64_t)move->from);
        row_count(row, "from_step", move->from_step);
        row_count(row, "bytes_received", move_bytes(plan, move, plan_recv_bytes));
    }
    if (move->bits & MOVE_SEND) {
        row_count(row, "to", (uint64_t)move->to);
        row_count(row, "to_step", move->to_step);
        row_count(row, "bytes_sent", move_bytes(plan, move, plan_send_bytes));
    }
    return row;
}

/* ---- all ranks ---- */

static void show_ranks(const struct plan *plans, int size)
{
    static const int widths[] = {6, 12, 14, 9};
    putchar('\n');
    COLUMNS(widths, "rank", "messages", "bytes sent", "moves");
    for (int r = 0; r < size; r++)
        COLUMNS(widths, text_count((uint64_t)r).s, text_count(plan_messages(&plans[r])).s,
                text_count(plan_sent(&plans[r])).s, text_count(plans[r].move_count).s);
}

static int all_plans(struct planning *p, struct plan **out)
{
    struct plan *plans = calloc((size_t)p->setup.ranks, sizeof *plans);
    int rank = 0;
    while (plans && rank < p->setup.ranks && write_plan(p, rank, &plans[rank]) == EXIT_GOOD)
        rank++;
    if (plans && rank == p->setup.ranks) {
        *out = plans;
        return EXIT_GOOD;
    }
    while (plans && rank > 0)
        plan_fini(&plans[--rank]);
    free(plans);
    return EXIT_FAILED_CHECK;
}

static void free_plans(struct plan *plans, int count)
{
    for (int i = 0; i < count; i++)
        plan_fini(&plans[i]);
    free(plans);
}

/* ---- prices ---- */

static double price_of(const struct planning *p, enum hearth_algo algo)
{
    struct plan_call call = plan_setup_call(&p->setup, algo, 0);
    return select_price(&call, algo, &p->setup.view);
}

static void show_choice(const struct planning *p)
{
    if (p->algo != HEARTH_ALGO_AUTO)
        return;
    printf("\nauto chose %s%s%s, the cheapest by the cost model:\n ", paint(stdout, PAINT_BOLD),
           hearth_algo_name(p->chosen), paint(stdout, PAINT_NONE));
    int column = 1;
    for (int a = 1; a < ALGO_COUNT; a++) {
        double price = price_of(p, (enum hearth_algo)a);
        if (!isfinite(price))
            continue;
        column += printf("%s %s %s", column > 1 ? "," : "", hearth_algo_name((enum hearth_algo)a),
                         text_time(price).s);
        if (column > 70)
            column = printf("\n ") - 1;
    }
    putchar('\n');
}

static void show_prediction(const struct planning *p)
{
    const struct rehearsal *r = &p->rehearsal;
    double bound = plan_setup_bound(&p->setup);
    printf("\n  predicted   %s by the cost model", text_time(r->price_s).s);
    if (r->done)
        printf(", %s%s%s by a dry run of all plans\n", paint(stdout, PAINT_BOLD),
               text_time(r->result.time_s).s, paint(stdout, PAINT_NONE));
    else
        printf("; no dry run: %s\n", r->why);
    if (!r->done)
        return;
    printf("  messages    %s with %s bytes, all ranks together; the busiest rank sends %s\n",
           text_count(r->result.messages).s, text_count(r->result.bytes_sent).s,
           text_count(r->result.bytes_sent_max).s);
    printf("  hops        %u: the longest chain of messages\n", r->result.hops);
    if (bound > 0)
        printf("  bound       %s for the bytes alone; this is %s of it\n", text_time(bound).s,
               text_share(bound / r->result.time_s).s);
}

static int column_width(enum hearth_algo algo)
{
    int len = (int)strlen(hearth_algo_name(algo));
    return len > 9 ? len : 9;
}

/* Sizes 4 B, 16 B, ... 1 GiB: the chosen algorithm and the price of each. */
static void price_row(struct planning *p, json_t *doc, size_t bytes)
{
    struct plan_setup *s = &p->setup;
    struct plan_call call = plan_setup_call(s, HEARTH_ALGO_AUTO, 0);
    struct error error;
    enum hearth_algo best;
    if (select_algo(&call, &s->view, &best, &error))
        return;
    json_t *row = doc ? doc_row(doc) : NULL, *prices = json_object();
    if (!doc)
        printf("  %-8s %-12s", text_bytes((double)bytes).s, hearth_algo_name(best));
    for (int a = 1; a < ALGO_COUNT; a++) {
        double price = price_of(p, (enum hearth_algo)a);
        const char *name = hearth_algo_name((enum hearth_algo)a);
        bool bold = a == (int)best;
        if (doc && isfinite(price))
            row_real(prices, name, price * 1e6);
        if (!doc)
            printf(" %s%*s%s", bold ? paint(stdout, PAINT_BOLD) : "", column_width((enum hearth_algo)a),
                   text_time(price).s, bold ? paint(stdout, PAINT_NONE) : "");
    }
    if (doc) {
        row_text(row, "name", "plan.table");
        row_text(row, "kind", plan_kind_name(call.kind));
        row_text(row, "algo", hearth_algo_name(best));
        row_count(row, "ranks", (uint64_t)s->ranks);
        row_count(row, "bytes", bytes);
        row_real(row, "model_us", price_of(p, best) * 1e6);
        json_object_set(row, "model_us_by_algo", prices);
    } else {
        putchar('\n');
    }
    json_decref(prices);
}

static int show_table(struct planning *p, const struct usage *usage, json_t *doc)
{
    struct plan_setup *s = &p->setup;
    if (!doc) {
        printf("%s%s%s by size: the cheapest algorithm, and the price of each by the cost model\n",
               paint(stdout, PAINT_BOLD), plan_kind_name(s->call.kind), paint(stdout, PAINT_NONE));
        printf("%d ranks, %s, rtt %s\n\n", s->ranks, text_rate(s->rate).s, text_time(s->rtt_s).s);
        printf("  %-8s %-12s", "bytes", "chosen");
        for (int a = 1; a < ALGO_COUNT; a++)
            printf(" %*s", column_width((enum hearth_algo)a), hearth_algo_name((enum hearth_algo)a));
        putchar('\n');
    }
    for (size_t bytes = 4; bytes <= (size_t)1 << 30; bytes *= 4) {
        s->bytes = bytes;
        if (bytes % hearth_dtype_size((enum hearth_dtype)s->dtype))
            continue;
        plan_setup_fini(s);
        int code = plan_setup_build(s, usage);
        if (code != ARGS_GO)
            return code;
        price_row(p, doc, bytes);
    }
    return EXIT_GOOD;
}

/* ---- the command ---- */

/* What holds for all ranks; a rank's own follows. */
static void common_json(struct planning *p, json_t *row)
{
    const struct rehearsal *r = &p->rehearsal;
    char name[NAME_LEN];
    snprintf(name, sizeof name, "plan.%s", plan_kind_name(p->setup.call.kind));
    row_text(row, "name", name);
    row_text(row, "algo", hearth_algo_name(p->chosen));
    row_count(row, "ranks", (uint64_t)p->setup.ranks);
    row_count(row, "bytes", plan_setup_bytes(&p->setup));
    row_real(row, "model_us", r->price_s * 1e6);
    row_real(row, "predicted_us", (r->done ? r->result.time_s : r->price_s) * 1e6);
    if (r->done)
        row_count(row, "hops", r->result.hops);
}

static void rank_json(const struct plan *plan, json_t *row)
{
    json_t *moves = json_array();
    row_count(row, "rank", (uint64_t)plan->rank);
    row_count(row, "bytes_sent", plan_sent(plan));
    row_count(row, "messages", plan_messages(plan));
    row_count(row, "lanes", plan->lanes);
    row_count(row, "window", plan->window);
    for (uint32_t m = 0; m < plan->move_count; m++)
        json_array_append_new(moves, move_json(plan, &plan->moves[m]));
    json_object_set_new(row, "moves", moves);
}

/* A row per rank; of many ranks one row for all of them, unless one is asked for. */
static int show_json(struct planning *p, json_t *doc)
{
    const struct rehearsal *r = &p->rehearsal;
    int first = p->rank == RANK_NONE ? 0 : p->rank,
        last = p->rank == RANK_NONE ? p->setup.ranks - 1 : p->rank;
    if (last - first >= LIST_RANKS_MAX) {
        json_t *row = doc_row(doc);
        common_json(p, row);
        if (r->done) {
            row_count(row, "bytes_sent", r->result.bytes_sent_max);
            row_count(row, "messages", r->result.messages);
        }
        return EXIT_GOOD;
    }
    for (int rank = first; rank <= last; rank++) {
        struct plan plan;
        if (write_plan(p, rank, &plan))
            return EXIT_FAILED_CHECK;
        json_t *row = doc_row(doc);
        common_json(p, row);
        rank_json(&plan, row);
        plan_fini(&plan);
    }
    return EXIT_GOOD;
}

static int show_dot(struct planning *p)
{
    struct plan *plans;
    if (all_plans(p, &plans))
        return EXIT_FAILED_CHECK;
    draw_dot(plans, p->setup.ranks, p->setup.host, p->rank);
    free_plans(plans, p->setup.ranks);
    return EXIT_GOOD;
}

static int show_text(struct planning *p)
{
    char line[256];
    struct plan plan, *plans = NULL;
    bool picture = p->rank == RANK_NONE && p->setup.ranks <= PICTURE_RANKS_MAX;
    if (picture && all_plans(p, &plans))
        return EXIT_FAILED_CHECK;
    plan_setup_line(&p->setup, line, sizeof line);
    printf("%s%s%s: %s\n", paint(stdout, PAINT_BOLD), hearth_algo_name(p->chosen), paint(stdout, PAINT_NONE),
           line);
    show_choice(p);
    if (p->rank != RANK_NONE) {
        if (write_plan(p, p->rank, &plan))
            return EXIT_FAILED_CHECK;
        show_rank(&plan);
        plan_fini(&plan);
    } else if (picture) {
        show_ranks(plans, p->setup.ranks);
    }
    show_prediction(p);
    if (picture) {
        draw_steps(plans, p->setup.ranks);
        free_plans(plans, p->setup.ranks);
    }
    return EXIT_GOOD;
}

static uint64_t count_lanes(struct planning *p)
{
    struct plan plan;
    if (write_plan(p, 0, &plan))
        return UINT64_MAX;
    uint64_t lanes = plan.lanes;
    plan_fini(&plan);
    return lanes;
}

/* Which algorithm, and what it would cost. */
static int settle(struct planning *p, const struct usage *usage)
{
    struct plan_call call = plan_setup_call(&p->setup, (enum hearth_algo)p->algo, 0);
    struct error error;
    struct progress progress;
    if (select_algo(&call, &p->setup.view, &p->chosen, &error))
        return args_refuse(usage, "%s", error.text);
    uint64_t lanes = count_lanes(p);
    if (lanes > LANES_MAX)
        return args_refuse(usage,
                           "the buffer would be cut into %s lanes; try a smaller --bytes or a larger --chunk",
                           text_count(lanes).s);
    if (p->dot)
        return ARGS_GO;
    progress_start(&progress, "dry run");
    plan_setup_rehearse(&p->setup, p->chosen, &progress, &p->rehearsal);
    progress_hide(&progress);
    if (!p->rehearsal.failed)
        return ARGS_GO;
    return command_fail("plan", "the dry run failed: %s\nThis is a bug in Hearth, please report it.",
                        p->rehearsal.why);
}

static int run_plan(struct planning *p, const struct usage *usage, int argc, char **argv)
{
    json_t *doc = NULL;
    int code = p->table ? ARGS_GO : settle(p, usage);
    if (code != ARGS_GO)
        return code;
    if (p->json && !(doc = doc_open(argc, argv)))
        return EXIT_FAILED_CHECK;
    if (p->table)
        code = show_table(p, usage, doc);
    else if (p->dot)
        code = show_dot(p);
    else
        code = p->json ? show_json(p, doc) : show_text(p);
    if (doc && !doc_close(doc))
        code = EXIT_FAILED_CHECK;
    return code;
}

int cmd_plan(int argc, char **argv)
{
    struct planning p = {.algo = HEARTH_ALGO_AUTO, .rank = RANK_NONE};
    struct arg args[PLAN_SETUP_ARGS + 5] = {
        {"algo", ARG_CHOICE, &p.algo, .about = "algorithm (default auto)", .choice = plan_setup_algo},
        {"rank", ARG_INT, &p.rank, .about = "show the moves of this rank (default: all ranks, summed up)",
         .max = PLAN_SETUP_RANKS_MAX},
        {"dot", ARG_FLAG, &p.dot, .about = "print a Graphviz graph of who sends to whom"},
        {"table", ARG_FLAG, &p.table, .about = "print what is chosen for 4 B to 1 GiB, with all prices"},
        {"json", ARG_FLAG, &p.json, .about = "print one JSON object; above 64 ranks without their moves"},
    };
    struct usage usage = {
        "plan",
        "What each rank does in a collective: its moves, bytes, messages and hops, and the time the "
        "cost model and a dry run on virtual time predict for the network you describe.",
        "hearth plan --kind all_reduce --algo ring --ranks 8 --rank 3", USAGE_ARGS(args)};
    plan_setup_init(&p.setup);
    plan_setup_args(&p.setup, args + 5);
    heap_init(&p.heap, 0);
    int code = args_parse(&usage, argc, argv);
    if (code != ARGS_GO)
        return code;
    if (p.rank >= p.setup.ranks)
        return args_refuse(&usage, "--rank %d is not a rank; with --ranks %d they go from 0 to %d", p.rank,
                           p.setup.ranks, p.setup.ranks - 1);
    if (p.dot && (p.json || p.table))
        return args_refuse(&usage, "--dot goes neither with --json nor with --table");
    if (p.dot && p.setup.ranks > DOT_RANKS_MAX)
        return args_refuse(&usage, "--dot draws at most %d ranks, not %d", DOT_RANKS_MAX, p.setup.ranks);
    code = plan_setup_build(&p.setup, &usage);
    if (code == ARGS_GO)
        code = run_plan(&p, &usage, argc, argv);
    plan_setup_fini(&p.setup);
    return code;
}
