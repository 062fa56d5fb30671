/* SPDX-License-Identifier: Apache-2.0 */
/* hearth plan: what each rank does in a collective, and what it costs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/plan/plan_setup.h"
#include "cli/shared/args.h"
#include "cli/shared/listing.h"
#include "collective/plan.h"

#define WIDTH             98
#define INDENT            8
#define MESSAGES_MAX      240 /* of a picture; more are not legible */
#define LIST_RANKS_MAX    64  /* more ranks are summed up, and their moves are left out of --json */
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
    struct plan *plans; /* [setup.ranks], or only that of `rank` */
    int plan_count;
};

/* ---- step by step ---- */

struct plan_message {
    uint32_t step;
    int index;
    char text[48];
};

static int compare_messages(const void *a, const void *b)
{
    const struct plan_message *x = a, *y = b;
    return x->step != y->step ? (x->step > y->step) - (x->step < y->step) : x->index - y->index;
}

/* Of one lane, "0>1 p3": rank 0 sends part 3 to rank 1. How many; more than MESSAGES_MAX are not kept. */
static int list_messages(const struct planning *p, struct plan_message *list)
{
    int count = 0;
    for (int r = 0; r < p->plan_count; r++) {
        for (uint32_t m = 0; m < p->plans[r].move_count; m++) {
            const struct move *move = &p->plans[r].moves[m];
            if (!(move->bits & MOVE_SEND) || count++ >= MESSAGES_MAX)
                continue;
            struct plan_message *message = &list[count - 1];
            message->step = move->to_step;
            message->index = count;
            int len = snprintf(message->text, sizeof message->text, "%d>%d p%u", r, move->to, move->part);
            if (move->parts > 1)
                snprintf(message->text + len, sizeof message->text - (size_t)len, "-%u",
                         move->part + move->parts - 1);
        }
    }
    return count;
}

/* A line per step, in cells of one width. Nothing if there are too many to be legible. */
static void draw_steps(const struct planning *p)
{
    struct plan_message list[MESSAGES_MAX];
    int count = list_messages(p, list), column = 0, width = 0;
    if (count == 0 || count > MESSAGES_MAX)
        return;
    qsort(list, (size_t)count, sizeof *list, compare_messages);
    for (int i = 0; i < count; i++)
        width = (int)strlen(list[i].text) + 2 > width ? (int)strlen(list[i].text) + 2 : width;
    printf("\n  %4s  %s", "step", "messages (0>1 p3: rank 0 sends part 3 to rank 1)");
    for (int i = 0, gap = 0; i < count; i++) {
        bool first = i == 0 || list[i].step != list[i - 1].step;
        if (first)
            column = printf("\n  %4u  ", list[i].step) - 1;
        else if (column + gap + width > WIDTH)
            column = printf("\n%*s", INDENT, "") - 1;
        else
            column += printf("%*s", gap, "");
        column += printf("%s", list[i].text);
        gap = width - (int)strlen(list[i].text);
    }
    putchar('\n');
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

/* ---- one rank ---- */

static uint64_t move_bytes(const struct plan *plan, const struct move *move,
                           size_t (*bytes)(const struct plan *, uint64_t, const struct move *))
{
    uint64_t sum = 0;
    for (uint64_t lane = 0; lane < plan->lanes; lane++)
        sum += bytes(plan, lane, move);
    return sum;
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

static void step_cell(struct listing_cell *cell)
{
    const json_t *from = json_object_get(cell->row, "from_step"), *to = json_object_get(cell->row, "to_step");
    snprintf(cell->text, sizeof cell->text, "-");
    if (from && to)
        snprintf(cell->text, sizeof cell->text, "%lld>%lld", json_integer_value(from),
                 json_integer_value(to));
    else if (from || to)
        snprintf(cell->text, sizeof cell->text, "%lld", json_integer_value(from ? from : to));
}

static void part_cell(struct listing_cell *cell)
{
    long long part = json_count_of(cell->row, "part"), parts = json_count_of(cell->row, "parts");
    snprintf(cell->text, sizeof cell->text, parts > 1 ? "%lld..%lld" : "%lld", part, part + parts - 1);
}

static const struct column move_columns[] = {
    {"step", .form = FORM_NUMBER, .write = step_cell},
    {"move", "move", .form = FORM_TEXT},
    {"part", .form = FORM_NUMBER, .write = part_cell},
    {"from", "from", FORM_NUMBER, .none = "-", .zero = true},
    {"to", "to", FORM_NUMBER, .none = "-", .zero = true},
    {"bytes in", "bytes_received", FORM_COUNT, .none = "-", .zero = true},
    {"bytes out", "bytes_sent", FORM_COUNT, .none = "-", .zero = true},
};

/* What holds for all ranks; a rank's own follows. */
static json_t *common_json(const struct planning *p)
{
    const struct rehearsal *r = &p->rehearsal;
    char name[NAME_LEN];
    snprintf(name, sizeof name, "plan.%s", plan_kind_name(p->setup.call.kind));
    json_t *row = json_pack("{ss ss si sI}", "name", name, "algo", hearth_algo_name(p->chosen), "ranks",
                            p->setup.ranks, "bytes", (json_int_t)plan_setup_bytes(&p->setup));
    row_real(row, "model_us", r->price_s * 1e6);
    row_real(row, "predicted_us", (r->done ? r->result.time_s : r->price_s) * 1e6);
    if (r->done)
        row_count(row, "hops", r->result.hops);
    return row;
}

static json_t *rank_json(const struct planning *p, const struct plan *plan)
{
    json_t *row = common_json(p), *moves = json_array();
    row_count(row, "rank", (uint64_t)plan->rank);
    row_count(row, "bytes_sent", plan_sent(plan));
    row_count(row, "messages", plan_messages(plan));
    row_count(row, "lanes", plan->lanes);
    row_count(row, "window", plan->window);
    for (uint32_t m = 0; m < plan->move_count; m++)
        json_array_append_new(moves, move_json(plan, &plan->moves[m]));
    json_object_set_new(row, "moves", moves);
    return row;
}

static void show_rank(const struct planning *p)
{
    const struct listing_table table = {LISTING_COLUMNS(move_columns)};
    const struct plan *plan = &p->plans[0];
    json_t *row = rank_json(p, plan);
    printf("\n%srank %d%s: %u moves in each of %s lane%s, %s at a time; sends %s in %s messages\n",
           paint(stdout, PAINT_BOLD), plan->rank, paint(stdout, PAINT_NONE), plan->move_count,
           text_count(plan->lanes).s, plan->lanes == 1 ? "" : "s", text_count(plan->window).s,
           text_bytes(json_real_of(row, "bytes_sent")).s,
           text_count((uint64_t)json_count_of(row, "messages")).s);
    listing_print(&table, json_object_get(row, "moves"), stdout, "  ");
    json_decref(row);
}

/* ---- all ranks ---- */

static void moves_cell(struct listing_cell *cell)
{
    size_t count = json_array_size(json_object_get(cell->row, "moves"));
    snprintf(cell->text, sizeof cell->text, "%s", text_count(count).s);
}

static const struct column rank_columns[] = {
    {"rank", "rank", FORM_COUNT, .width = 6},
    {"messages", "messages", FORM_COUNT, .width = 12},
    {"bytes sent", "bytes_sent", FORM_COUNT, .width = 14},
    {"moves", .width = 9, .write = moves_cell},
};

/* ---- prices ---- */

static void show_choice(const struct planning *p)
{
    if (p->algo != HEARTH_ALGO_AUTO)
        return;
    printf("\nauto chose %s%s%s, the cheapest by the cost model:\n ", paint(stdout, PAINT_BOLD),
           hearth_algo_name(p->chosen), paint(stdout, PAINT_NONE));
    int column = 1;
    for (int a = 1; a < ALGO_COUNT; a++) {
        double price = plan_setup_price(&p->setup, (enum hearth_algo)a);
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

/* Of one algorithm; the cheapest is bold. */
static void price_cell(struct listing_cell *cell)
{
    const char *name = cell->column->key;
    const json_t *price = json_object_get(json_object_get(cell->row, "model_us_by_algo"), name);
    bool bold = strcmp(json_text_of(cell->row, "algo"), name) == 0;
    snprintf(cell->text, sizeof cell->text, "%s%*s%s", bold ? paint(stdout, PAINT_BOLD) : "",
             cell->column->width, price ? text_time(json_number_value(price) * 1e-6).s : "-",
             bold ? paint(stdout, PAINT_NONE) : "");
}

/* The size, the chosen algorithm, and a column for each that there is. */
#define PRICE_COLUMNS (1 + ALGO_COUNT)
static void fill_price_columns(struct column columns[PRICE_COLUMNS])
{
    columns[0] = (struct column){"bytes", "bytes", FORM_BYTES, .width = -8};
    columns[1] = (struct column){"chosen", "algo", FORM_TEXT, .width = -12};
    for (int a = 1; a < ALGO_COUNT; a++) {
        const char *name = hearth_algo_name((enum hearth_algo)a);
        int width = strlen(name) > 9 ? (int)strlen(name) : 9;
        columns[1 + a] = (struct column){name, name, .width = width, .write = price_cell};
    }
}

/* The chosen algorithm for this size, and the price of each. NULL: there is none. */
static json_t *price_row(const struct planning *p, size_t bytes)
{
    const struct plan_setup *s = &p->setup;
    struct plan_call call = plan_setup_call(s, HEARTH_ALGO_AUTO, 0);
    struct error error;
    enum hearth_algo best;
    if (select_algo(&call, &s->view, &best, &error))
        return NULL;
    json_t *prices = json_object();
    for (int a = 1; a < ALGO_COUNT; a++) {
        double price = plan_setup_price(&p->setup, (enum hearth_algo)a);
        if (isfinite(price))
            row_real(prices, hearth_algo_name((enum hearth_algo)a), price * 1e6);
    }
    return json_pack("{ss ss ss si sI sf so}", "name", "plan.table", "kind", plan_kind_name(call.kind),
                     "algo", hearth_algo_name(best), "ranks", s->ranks, "bytes", (json_int_t)bytes,
                     "model_us", plan_setup_price(&p->setup, best) * 1e6, "model_us_by_algo", prices);
}

/* Sizes 4 B, 16 B, ... 1 GiB. */
static int show_table(struct planning *p, const struct usage *usage, const struct listing *listing)
{
    struct plan_setup *s = &p->setup;
    if (!listing->doc) {
        printf("%s%s%s by size: the cheapest algorithm, and the price of each by the cost model\n",
               paint(stdout, PAINT_BOLD), plan_kind_name(s->call.kind), paint(stdout, PAINT_NONE));
        printf("%d ranks, %s, rtt %s\n\n", s->ranks, text_rate(s->rate).s, text_time(s->rtt_s).s);
        listing_head(listing);
    }
    for (size_t bytes = 4; bytes <= (size_t)1 << 30; bytes *= 4) {
        s->bytes = bytes;
        if (bytes % hearth_dtype_size((enum hearth_dtype)s->dtype))
            continue;
        plan_setup_fini(s);
        int code = plan_setup_build(s, usage);
        if (code != ARGS_GO)
            return code;
        json_t *row = price_row(p, bytes);
        if (row)
            listing_row(listing, row);
    }
    return EXIT_GOOD;
}

/* ---- the command ---- */

/* A row per rank; of many ranks one row for all of them, unless one is asked for. */
static void show_json(const struct planning *p, const struct listing *listing)
{
    const struct dry_result *result = &p->rehearsal.result;
    for (int i = 0; i < p->plan_count; i++)
        listing_row(listing, rank_json(p, &p->plans[i]));
    if (p->plan_count > 0)
        return;
    json_t *row = common_json(p);
    if (p->rehearsal.done) {
        row_count(row, "bytes_sent", result->bytes_sent_max);
        row_count(row, "messages", result->messages);
    }
    listing_row(listing, row);
}

static void show_text(const struct planning *p, const struct listing *listing)
{
    char line[256];
    plan_setup_line(&p->setup, line, sizeof line);
    printf("%s%s%s: %s\n", paint(stdout, PAINT_BOLD), hearth_algo_name(p->chosen), paint(stdout, PAINT_NONE),
           line);
    show_choice(p);
    if (p->rank != RANK_NONE) {
        show_rank(p);
    } else if (p->plan_count > 0) {
        putchar('\n');
        listing_head(listing);
        for (int r = 0; r < p->plan_count; r++)
            listing_row(listing, rank_json(p, &p->plans[r]));
    }
    show_prediction(p);
    if (p->rank == RANK_NONE)
        draw_steps(p);
}

/* The plans of ranks from `first` on, which are shown then. */
static int write_plans(struct planning *p, int first, int count)
{
    struct error error;
    if (plan_setup_write(&p->setup, &(struct plan_range){p->chosen, first, count, NULL}, &p->heap, &p->plans,
                         &error))
        return command_fail("plan", "%s", error.text);
    p->plan_count = count;
    return EXIT_GOOD;
}

static void free_plans(struct planning *p)
{
    plan_setup_free(p->plans, p->plan_count);
    p->plans = NULL;
    p->plan_count = 0;
}

/* Which algorithm, and what it would cost. */
static int settle(struct planning *p, const struct usage *usage)
{
    int code = plan_setup_choose(&p->setup, usage, (enum hearth_algo)p->algo, &p->chosen);
    if (code != ARGS_GO)
        return code;
    if (write_plans(p, 0, 1))
        return EXIT_FAILED_CHECK;
    uint64_t lanes = p->plans[0].lanes;
    free_plans(p);
    if (lanes > LANES_MAX)
        return args_refuse(usage,
                           "the buffer would be cut into %s lanes; try a smaller --bytes or a larger --chunk",
                           text_count(lanes).s);
    if (p->dot)
        return ARGS_GO;
    plan_setup_rehearse(&p->setup, p->chosen, "dry run", &p->rehearsal);
    if (!p->rehearsal.failed)
        return ARGS_GO;
    return command_fail("plan", "the dry run failed: %s\nThis is a bug in Hearth, please report it.",
                        p->rehearsal.why);
}

static int show_plan(struct planning *p, const struct listing *listing)
{
    int ranks = p->setup.ranks;
    bool one = p->rank != RANK_NONE && !p->dot;
    bool all = p->dot || ranks <= (p->json ? LIST_RANKS_MAX : PICTURE_RANKS_MAX);
    if ((one || all) && write_plans(p, one ? p->rank : 0, one ? 1 : ranks))
        return EXIT_FAILED_CHECK;
    if (p->dot)
        draw_dot(p->plans, ranks, p->setup.host, p->rank);
    else if (p->json)
        show_json(p, listing);
    else
        show_text(p, listing);
    free_plans(p);
    return EXIT_GOOD;
}

static int run_plan(struct planning *p, const struct usage *usage, int argc, char **argv)
{
    struct column price_columns[PRICE_COLUMNS];
    struct listing listing = {LISTING_COLUMNS(rank_columns)};
    int code = p->table ? ARGS_GO : settle(p, usage);
    if (p->table) {
        fill_price_columns(price_columns);
        listing = (struct listing){LISTING_COLUMNS(price_columns)};
    }
    if (code != ARGS_GO)
        return code;
    if (!listing_open(&listing, p->json, argc, argv))
        return EXIT_FAILED_CHECK;
    code = p->table ? show_table(p, usage, &listing) : show_plan(p, &listing);
    return listing_close(&listing, code);
}

int cmd_plan(int argc, char **argv)
{
    struct planning p = {.algo = HEARTH_ALGO_AUTO, .rank = RANK_NONE};
    struct arg args[PLAN_SETUP_ARGS + 5] = {
        {"algo", ARG_CHOICE, &p.algo, .about = "algorithm (default auto)", .choice = plan_setup_algo},
        {"rank", ARG_INT, &p.rank, .about = "show the moves of this rank (default: all ranks, summed up)",
         .max = PLAN_SETUP_RANKS_MAX},
        {"dot", ARG_FLAG, &p.dot, .about = "print a Graphviz graph of the messages between ranks"},
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
