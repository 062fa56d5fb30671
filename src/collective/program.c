/* SPDX-License-Identifier: Apache-2.0 */
/* Flow tables of a plan, and the cache of programs. */
#include "collective/program.h"

#include <assert.h>
#include <string.h>

#include "collective/select.h"

/* ---- walking a flow ---- */

static uint64_t block_lanes(const struct plan *plan, uint64_t block)
{
    uint64_t first = block * plan->window, left = plan->lanes - first;
    return left < plan->window ? left : plan->window;
}

bool flow_more(const struct flow_table *flow, const struct flow_cursor *at)
{
    return at->index < flow->frames;
}

uint64_t flow_lane(const struct plan *plan, const struct flow_cursor *at)
{
    return at->block * plan->window + at->lane;
}

const struct move *flow_move(const struct plan *plan, const struct flow_table *flow,
                             const struct flow_cursor *at)
{
    return &plan->moves[flow->moves[at->turn]];
}

void flow_next(const struct plan *plan, const struct flow_table *flow, struct flow_cursor *at)
{
    at->index++;
    if (++at->lane < block_lanes(plan, at->block))
        return;
    at->lane = 0;
    if (++at->turn < flow->count)
        return;
    at->turn = 0;
    at->block++;
}

uint64_t flow_index(const struct plan *plan, const struct flow_table *flow, uint32_t turn, uint64_t lane)
{
    uint64_t block = lane / plan->window, first = block * plan->window;
    return first * flow->count + turn * block_lanes(plan, block) + (lane - first);
}

bool flow_turn(const struct plan *plan, const struct flow_table *flow, uint32_t step, uint32_t *turn)
{
    uint32_t low = 0, high = flow->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (plan->moves[flow->moves[middle]].from_step < step)
            low = middle + 1;
        else
            high = middle;
    }
    *turn = low;
    return low < flow->count && plan->moves[flow->moves[low]].from_step == step;
}

/* ---- tables ---- */

enum direction { INCOMING, OUTGOING };

static int peer_of(const struct move *move, enum direction direction)
{
    if (direction == INCOMING)
        return move->bits & MOVE_RECV ? move->from : RANK_NONE;
    return move->bits & MOVE_SEND ? move->to : RANK_NONE;
}

static uint32_t step_of(const struct move *move, enum direction direction)
{
    return direction == INCOMING ? move->from_step : move->to_step;
}

static size_t bytes_of(const struct plan *plan, uint64_t lane, const struct move *move,
                       enum direction direction)
{
    return direction == INCOMING ? plan_recv_bytes(plan, lane, move) : plan_send_bytes(plan, lane, move);
}

/* Insertion: planners write moves nearly in order of steps. */
static void table_insert(const struct plan *plan, struct flow_table *flow, uint32_t move,
                         enum direction direction)
{
    uint32_t at = flow->count++;
    while (at > 0 &&
           step_of(&plan->moves[flow->moves[at - 1]], direction) > step_of(&plan->moves[move], direction)) {
        flow->moves[at] = flow->moves[at - 1];
        at--;
    }
    flow->moves[at] = move;
}

static void tables_free(struct flow_table *tables, uint32_t count)
{
    heap_free(count > 0 ? tables[0].moves : NULL); /* the others' stand in the same block */
    heap_free(tables);
}

static void table_measure(const struct plan *plan, struct flow_table *flow, enum direction direction)
{
    flow->frames = flow->count * plan->lanes;
    flow->bytes = 0;
    for (uint32_t i = 0; i < flow->count; i++)
        for (uint64_t lane = 0; lane < plan->lanes; lane++)
            flow->bytes += bytes_of(plan, lane, &plan->moves[flow->moves[i]], direction);
}

/* Gives how many; -1: no memory. */
static int tables_make(const struct plan *plan, struct heap *heap, enum direction direction,
                       struct flow_table **tables, int32_t *of)
{
    uint32_t flows = 0, first = 0;
    for (int i = 0; i < plan->size; i++)
        of[i] = -1;
    for (uint32_t i = 0; i < plan->move_count; i++) {
        int peer = peer_of(&plan->moves[i], direction);
        if (peer != RANK_NONE && of[peer] < 0)
            of[peer] = (int32_t)flows++;
    }
    struct flow_table *flow = heap_alloc(heap, flows, sizeof *flow);
    uint32_t *block = flow && flows > 0 ? heap_alloc(heap, plan->move_count, sizeof *block) : NULL;
    if (!flow || (flows > 0 && !block)) {
        heap_free(flow);
        return -1;
    }
    for (uint32_t i = 0; i < plan->move_count; i++) {
        int peer = peer_of(&plan->moves[i], direction);
        if (peer == RANK_NONE)
            continue;
        struct flow_table *f = &flow[of[peer]];
        f->peer = peer;
        f->count++;
    }
    for (uint32_t i = 0; i < flows; i++) {
        flow[i].moves = block + first;
        first += flow[i].count;
        flow[i].count = 0;
    }
    for (uint32_t i = 0; i < plan->move_count; i++) {
        int peer = peer_of(&plan->moves[i], direction);
        if (peer != RANK_NONE)
            table_insert(plan, &flow[of[peer]], i, direction);
    }
    for (uint32_t i = 0; i < flows; i++)
        table_measure(plan, &flow[i], direction);
    *tables = flow;
    return (int)flows;
}

/* ---- one program ---- */

static void idle_free(struct program *p, void (*op_free)(struct list *item))
{
    assert(p->users == 0);
    struct list *item;
    while ((item = list_pop(&p->idle)))
        op_free(item);
}

static void program_free(struct program *p, void (*op_free)(struct list *item))
{
    idle_free(p, op_free);
    tables_free(p->in, p->in_count);
    tables_free(p->out, p->out_count);
    heap_free(p->in_of);
    heap_free(p->out_of);
    heap_free(p->sum_ends);
    plan_fini(&p->plan);
    heap_free((void *)(uintptr_t)p->call.in_counts);
    heap_free((void *)(uintptr_t)p->call.out_counts);
    heap_free(p);
}

/* Whether a move stores the accumulator and neither it nor a later one uses it again. */
static bool sum_ends_at(const struct plan *plan, uint32_t at)
{
    const unsigned uses = MOVE_RECV_ACC | MOVE_OWN | MOVE_STORE | MOVE_SEND_ACC;
    if (!(plan->moves[at].bits & MOVE_STORE) || (plan->moves[at].bits & MOVE_SEND_ACC))
        return false;
    for (uint32_t i = at + 1; i < plan->move_count && !(plan->moves[i].bits & MOVE_LOAD); i++)
        if (plan->moves[i].bits & uses)
            return false;
    return true;
}

static bool sum_ends_make(struct program *p, struct heap *heap)
{
    p->sum_ends = heap_alloc(heap, p->plan.move_count, sizeof *p->sum_ends);
    for (uint32_t i = 0; p->sum_ends && i < p->plan.move_count; i++)
        p->sum_ends[i] = sum_ends_at(&p->plan, i);
    return p->sum_ends;
}

/* What comes first of a peer, if that is its own input: then it tells when the peer has begun. */
static void prompts_find(struct program *p)
{
    for (uint32_t i = 0; i < p->in_count; i++) {
        const struct move *first = p->in[i].count > 0 ? &p->plan.moves[p->in[i].moves[0]] : NULL;
        p->in[i].prompt = first && (first->from_step == 0 || (first->bits & MOVE_RAW));
        p->prompt_count += p->in[i].prompt;
    }
}

/* How far a peer may be ahead of us: so that all of them together stay within the window. */
static uint32_t depth_of(const struct program *p)
{
    size_t frame = p->plan.frame_bytes > 0 ? p->plan.frame_bytes : 1;
    size_t peers = p->in_count > 0 ? p->in_count : 1;
    size_t depth = p->call.window_bytes / frame / peers;
    return depth < 1 ? 1 : depth > FLOW_WINDOW_MAX ? FLOW_WINDOW_MAX : (uint32_t)depth;
}

static bool counts_copy(struct heap *heap, const size_t **counts, int size)
{
    if (!*counts)
        return true;
    size_t len = (size_t)size * sizeof **counts;
    size_t *copy = heap_alloc_raw(heap, 1, len);
    if (copy)
        memcpy(copy, *counts, len);
    *counts = copy;
    return copy;
}

static int program_make(const struct plan_call *call, struct heap *heap, struct program **out,
                        struct error *error)
{
    struct program *p = heap_alloc(heap, 1, sizeof *p);
    if (!p)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for a plan");
    list_init(&p->item);
    list_init(&p->idle);
    p->call = *call;
    p->call.in_counts = NULL;
    p->call.out_counts = NULL;
    int status = plan_write(call, heap, &p->plan, error);
    if (status != HEARTH_OK) {
        heap_free(p);
        return status;
    }
    if (p->plan.lanes > PLAN_LANES_MAX) {
        program_free(p, NULL);
        return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE,
                         "%s: %zu elements are more than 2^32 chunks; raise chunk_bytes",
                         plan_kind_name(call->kind), call->count);
    }
    size_t size = (size_t)call->size;
    p->in_of = heap_alloc(heap, size, sizeof *p->in_of);
    p->out_of = heap_alloc(heap, size, sizeof *p->out_of);
    p->call.in_counts = call->in_counts;
    bool ok = counts_copy(heap, &p->call.in_counts, call->size);
    p->call.out_counts = call->out_counts;
    ok = counts_copy(heap, &p->call.out_counts, call->size) && ok && p->in_of && p->out_of;
    int in = ok ? tables_make(&p->plan, heap, INCOMING, &p->in, p->in_of) : -1;
    int outgoing = in >= 0 ? tables_make(&p->plan, heap, OUTGOING, &p->out, p->out_of) : -1;
    p->in_count = in > 0 ? (uint32_t)in : 0;
    p->out_count = outgoing > 0 ? (uint32_t)outgoing : 0;
    if (in < 0 || outgoing < 0 || !sum_ends_make(p, heap)) {
        program_free(p, NULL);
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for a plan");
    }
    p->depth = depth_of(p);
    p->window_room = p->plan.window;
    prompts_find(p);
    *out = p;
    return HEARTH_OK;
}

/* ---- the cache ---- */

void program_cache_init(struct program_cache *cache, struct heap *heap, void (*op_free)(struct list *item))
{
    cache->heap = heap;
    cache->op_free = op_free;
    cache->count = 0;
    list_init(&cache->programs);
}

void program_cache_fini(struct program_cache *cache)
{
    struct list *item, *after;
    LIST_EACH (item, after, &cache->programs)
        program_free(container_of(item, struct program, item), cache->op_free);
    list_init(&cache->programs);
}

static bool counts_equal(const size_t *a, const size_t *b, int size)
{
    if (!a || !b)
        return a == b;
    return memcmp(a, b, (size_t)size * sizeof *a) == 0;
}

/* But for their counts. The view's fields (size, host, chunking) are the same for all calls of a group. */
static bool call_alike(const struct plan_call *a, const struct plan_call *b)
{
    return a->kind == b->kind && a->algo == b->algo && a->count == b->count && a->root == b->root &&
           a->raw_len == b->raw_len && a->acc_len == b->acc_len && a->rank_order == b->rank_order &&
           !a->in_counts == !b->in_counts && !a->out_counts == !b->out_counts;
}

static bool call_equal(const struct plan_call *a, const struct plan_call *b)
{
    return call_alike(a, b) && counts_equal(a->in_counts, b->in_counts, a->size) &&
           counts_equal(a->out_counts, b->out_counts, a->size);
}

/* The program that is to be made over: the one that was unused longest, once there are enough for counts that
 * come back. NULL: none. */
static struct program *program_spare(const struct program_cache *cache, const struct plan_call *call)
{
    struct program *spare = NULL;
    int alike = 0;
    if (call->kind != PLAN_ALL_TO_ALL || !call->in_counts)
        return NULL;
    for (struct list *item = cache->programs.prev; item != &cache->programs; item = item->prev) {
        struct program *p = container_of(item, struct program, item);
        if (!call_alike(&p->call, call))
            continue;
        alike++;
        spare = p->users == 0 ? p : spare;
    }
    return alike >= PROGRAM_COUNTS_MAX ? spare : NULL;
}

/* Counts of an all_to_allv may differ in every call, as those of lists of chosen elements do: nothing is
 * allocated for them. False: it cannot be done. */
static bool program_recount(struct program *p, const struct plan_call *call, struct program_cache *cache)
{
    size_t len = (size_t)call->size * sizeof *call->in_counts;
    if (!plan_recount(call, &p->plan))
        return false;
    memcpy((void *)(uintptr_t)p->call.in_counts, call->in_counts, len);
    memcpy((void *)(uintptr_t)p->call.out_counts, call->out_counts, len);
    for (uint32_t i = 0; i < p->in_count; i++)
        table_measure(&p->plan, &p->in[i], INCOMING);
    for (uint32_t i = 0; i < p->out_count; i++)
        table_measure(&p->plan, &p->out[i], OUTGOING);
    p->depth = depth_of(p);
    if (p->plan.window <= p->window_room)
        return true;
    idle_free(p, cache->op_free);
    p->window_room = p->plan.window;
    return true;
}

static void cache_trim(struct program_cache *cache)
{
    struct list *item, *after;
    LIST_EACH (item, after, &cache->programs) {
        if (cache->count < PROGRAM_CACHE_MAX)
            return;
        struct program *p = container_of(item, struct program, item);
        if (p->users > 0)
            continue;
        list_remove(item);
        cache->count--;
        program_free(p, cache->op_free);
    }
}

static struct program *program_find(const struct program_cache *cache, const struct plan_call *call)
{
    for (struct list *item = cache->programs.prev; item != &cache->programs; item = item->prev)
        if (call_equal(&container_of(item, struct program, item)->call, call))
            return container_of(item, struct program, item);
    return NULL;
}

int program_get(struct program_cache *cache, const struct plan_call *call, const struct group_view *view,
                struct program **out, struct error *error)
{
    struct program *p = program_find(cache, call);
    int status = p ? HEARTH_OK : plan_check(call, error);
    if (status == HEARTH_OK && !p) {
        p = program_spare(cache, call);
        p = p && program_recount(p, call, cache) ? p : NULL;
    }
    if (p) {
        list_remove(&p->item);
        list_push(&cache->programs, &p->item);
        *out = p;
        return HEARTH_OK;
    }
    cache_trim(cache);
    struct plan_call chosen = *call;
    if (status == HEARTH_OK)
        status = select_algo(call, view, &chosen.algo, error);
    if (status == HEARTH_OK)
        status = program_make(&chosen, cache->heap, out, error);
    if (status != HEARTH_OK)
        return status;
    (*out)->call.algo = call->algo;
    list_push(&cache->programs, &(*out)->item);
    cache->count++;
    return HEARTH_OK;
}
