/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of plans: who sends to whom, step by step, or as a Graphviz graph. */
#include "cli/plan/draw.h"

#include <stdio.h>

#include "cli/shared/text.h"

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

void draw_steps(const struct plan *plans, int size)
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

void draw_dot(const struct plan *plans, int size, const int *host, int rank)
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
