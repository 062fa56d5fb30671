/* SPDX-License-Identifier: Apache-2.0 */
/* Any call gives a plan or an error; plans stay inside their buffers, and their programs keep the order. */
#include <stdlib.h>
#include <string.h>

#include "collective/program.h"
#include "collective/select.h"
#include "core/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define MEMBERS_MAX 20
#define COUNT_MAX   5000u /* of a call whose lanes are all walked */

static void must(bool condition)
{
    if (!condition)
        abort();
}

struct input {
    struct plan_call call;
    struct group_view view;
    bool large; /* counts of any size: only looked at here and there */
    size_t in_counts[MEMBERS_MAX], out_counts[MEMBERS_MAX];
    int host[MEMBERS_MAX], order[MEMBERS_MAX];
    int64_t fail_after;
};

static size_t count_of(struct reader *r, bool large)
{
    return large ? (size_t)get_u64(r) >> (get_u8(r) & 63) : get_u16(r) % COUNT_MAX;
}

static void parse(struct input *in, struct reader *r)
{
    static const uint8_t lens[] = {4, 8, 2, 1, 0};
    memset(in, 0, sizeof *in);
    struct plan_call *call = &in->call;
    uint8_t flags = get_u8(r);
    in->large = flags & 1;
    call->kind = (enum plan_kind)(get_u8(r) % (PLAN_KIND_COUNT + 1));
    call->algo = (enum hearth_algo)(get_u8(r) % (ALGO_COUNT + 1));
    call->size = get_u8(r) % (MEMBERS_MAX + 1);
    call->rank = get_u8(r) % (MEMBERS_MAX + 1) - (flags & 2 ? 1 : 0);
    call->root = get_u8(r) % (MEMBERS_MAX + 1) - (flags & 2 ? 1 : 0);
    call->count = count_of(r, in->large);
    call->raw_len = lens[get_u8(r) % sizeof lens];
    call->acc_len = lens[get_u8(r) % sizeof lens];
    bool sums = call->kind == PLAN_ALL_REDUCE || call->kind == PLAN_REDUCE_SCATTER ||
                call->kind == PLAN_REDUCE || call->kind == PLAN_SCAN || call->kind == PLAN_EXCLUSIVE_SCAN;
    if (!sums || call->acc_len < call->raw_len) /* a sum is as wide as an element, or wider */
        call->acc_len = call->raw_len;
    call->rank_order = flags & 4;
    call->chunk_bytes = get_u16(r);
    call->window_bytes = get_u32(r) % (1u << 22);
    in->fail_after = flags & 8 ? get_u8(r) : -1;
    for (int i = 0; i < MEMBERS_MAX; i++)
        in->host[i] = (int)(get_u8(r) % 5) - 1;
    for (int i = 0; i < MEMBERS_MAX; i++) {
        in->in_counts[i] = count_of(r, in->large) / (in->large ? 1 : MEMBERS_MAX);
        in->out_counts[i] = count_of(r, in->large) / (in->large ? 1 : MEMBERS_MAX);
    }
    uint32_t turn = get_u8(r); /* an order: some way round, cut somewhere */
    for (int i = 0; i < call->size; i++)
        in->order[i] = turn & 1 ? call->size - 1 - i : (int)((turn / 2 + (uint32_t)i) % (uint32_t)call->size);
    call->host = flags & 16 ? in->host : NULL;
    call->order = flags & 128 ? in->order : NULL;
    call->in_counts = flags & 32 ? in->in_counts : NULL;
    call->out_counts = flags & 64 ? in->out_counts : NULL;
    in->view = (struct group_view){
        .size = call->size, .host = call->host, .order = call->order, .algo = HEARTH_ALGO_AUTO};
    in->view.inside = in->view.across = (struct link_cost){1e-6, 1e9, 1e-10, 1e-7};
}

/* Elements of the whole buffer. */
static size_t whole(const struct plan *plan, enum plan_side side)
{
    if (plan->split == SPLIT_EVEN)
        return plan->count;
    const size_t *counts = side == SIDE_IN ? plan->in_count : plan->out_count;
    size_t sum = 0;
    for (int i = 0; i < plan->size; i++)
        sum += counts[i];
    return sum;
}

static void check_lane(const struct plan *plan, uint64_t lane)
{
    for (uint32_t i = 0; i < plan->move_count; i++) {
        const struct move *move = &plan->moves[i];
        for (int side = SIDE_IN; side <= SIDE_OUT; side++) {
            struct range range = plan_range(plan, (enum plan_side)side, lane, move->part, move->parts);
            size_t end;
            must(!__builtin_add_overflow(range.offset, range.count, &end));
            must(end <= whole(plan, (enum plan_side)side));
        }
        must(plan_send_bytes(plan, lane, move) <= plan->frame_bytes);
        must(plan_recv_bytes(plan, lane, move) <= plan->frame_bytes);
        must(!(move->bits & MOVE_LOAD) || plan_move_range(plan, lane, move).count <= plan->acc_count);
    }
}

static void check_flow(const struct plan *plan, const struct flow_table *flow, bool incoming)
{
    struct flow_cursor at = {0};
    uint64_t bytes = 0;
    for (; flow_more(flow, &at); flow_next(plan, flow, &at)) {
        const struct move *move = flow_move(plan, flow, &at);
        uint64_t lane = flow_lane(plan, &at);
        uint32_t turn = at.turn;
        must(!incoming || (flow_turn(plan, flow, move->from_step, &turn) && turn == at.turn));
        must(lane < plan->lanes && flow_index(plan, flow, turn, lane) == at.index);
        bytes += incoming ? plan_recv_bytes(plan, lane, move) : plan_send_bytes(plan, lane, move);
    }
    must(bytes == flow->bytes);
}

static const struct group_view no_view; /* the calls name their algorithm */

static void no_idle_op(struct list *item)
{
    (void)item;
    abort();
}

static void check_program(const struct input *in, struct heap *heap)
{
    struct program_cache cache;
    struct program *p;
    struct error error;
    program_cache_init(&cache, heap, no_idle_op);
    int status = program_get(&cache, &in->call, &no_view, &p, &error);
    must(status == HEARTH_OK || error.text[0] != '\0');
    if (status == HEARTH_OK) {
        for (uint64_t lane = 0; lane < p->plan.lanes; lane++)
            check_lane(&p->plan, lane);
        for (uint32_t i = 0; i < p->in_count; i++)
            check_flow(&p->plan, &p->in[i], true);
        for (uint32_t i = 0; i < p->out_count; i++)
            check_flow(&p->plan, &p->out[i], false);
    }
    program_cache_fini(&cache);
}

static void check_large(const struct input *in, struct heap *heap)
{
    struct plan plan;
    struct error error;
    if (plan_write(&in->call, heap, &plan, &error) != HEARTH_OK)
        return;
    for (uint64_t lane = 0; lane < plan.lanes; lane += 1 + plan.lanes / 7)
        check_lane(&plan, lane);
    if (plan.lanes > 0)
        check_lane(&plan, plan.lanes - 1);
    plan_fini(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static struct input in;
    struct reader r = reader_of(bytes, len);
    struct heap heap;
    parse(&in, &r);
    heap_init(&heap, 256u << 20);
    atomic_store(&heap.fail_after, in.fail_after);
    bool valid = in.call.size >= 1 && in.call.rank >= 0 && in.call.rank < in.call.size &&
                 (unsigned)in.call.kind < PLAN_KIND_COUNT;
    if (valid && in.call.raw_len > 0 && in.call.acc_len > 0 && !in.large) {
        struct error error;
        enum hearth_algo algo;
        if (select_algo(&in.call, &in.view, &algo, &error) == HEARTH_OK)
            must(algo != HEARTH_ALGO_AUTO);
    }
    if (in.large)
        check_large(&in, &heap);
    else
        check_program(&in, &heap);
    must(heap.blocks == 0);
    return 0;
}
