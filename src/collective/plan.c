/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a call, cuts its buffer into lanes, lets the planner write the moves.
 *
 *   EVEN. The buffer is cut into `lanes` slices, each slice into `parts`; slice l of n is
 *   [count*l/n, count*(l+1)/n), rounded down, parts likewise: sizes differ by one element at most.
 *
 *       buffer  |------ lane 0 ------|------ lane 1 ------|----- lane 2 ------|
 *       parts   |  0  |  1 |  2 |  3 |  0  |  1 |  2 |  3 |  0 |  1 |  2 |  3 |
 *
 *   GIVEN. The caller's counts are the parts (some may be empty); each is cut from its start into pieces of
 *   chunk_count, the last one shorter; piece l goes in lane l.
 *
 *       parts   |          0          |1|     2     |
 *       pieces  |  0  |  1  |  2  |3  |0|  0  |  1  |
 *
 *   Everything here that two members must agree on follows from what all of them know: never from a
 *   member's own moves. */
#include "collective/plan.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "collective/planners.h"
#include "core/hash.h"

__extension__ typedef unsigned __int128 u128;

#define BYTES_MAX ((size_t)INT64_MAX)

/* ---- names ---- */

static const struct {
    const char *name;
    bool rooted, reduces, given; /* given: its parts are */
} kinds[PLAN_KIND_COUNT] = {
    [PLAN_ALL_REDUCE] = {"all_reduce", .reduces = true},
    [PLAN_REDUCE_SCATTER] = {"reduce_scatter", .reduces = true, .given = true},
    [PLAN_ALL_GATHER] = {"all_gather", .given = true},
    [PLAN_BROADCAST] = {"broadcast", .rooted = true},
    [PLAN_REDUCE] = {"reduce", .rooted = true, .reduces = true},
    [PLAN_GATHER] = {"gather", .rooted = true, .given = true},
    [PLAN_SCATTER] = {"scatter", .rooted = true, .given = true},
    [PLAN_ALL_TO_ALL] = {"all_to_all", .given = true},
    [PLAN_SCAN] = {"scan", .reduces = true},
    [PLAN_EXCLUSIVE_SCAN] = {"exclusive_scan", .reduces = true},
    [PLAN_BARRIER] = {"barrier"},
};

const char *plan_kind_name(enum plan_kind kind)
{
    return (unsigned)kind < PLAN_KIND_COUNT ? kinds[kind].name : "?";
}

int plan_kind_parse(const char *name, enum plan_kind *kind)
{
    for (int i = 0; name && i < PLAN_KIND_COUNT; i++) {
        if (strcmp(name, kinds[i].name) == 0) {
            *kind = (enum plan_kind)i;
            return HEARTH_OK;
        }
    }
    return HEARTH_INVALID;
}

bool plan_kind_rooted(enum plan_kind kind)
{
    return (unsigned)kind < PLAN_KIND_COUNT && kinds[kind].rooted;
}

bool plan_kind_reduces(enum plan_kind kind)
{
    return (unsigned)kind < PLAN_KIND_COUNT && kinds[kind].reduces;
}

enum plan_split split_of(enum plan_kind kind)
{
    return kinds[kind].given ? SPLIT_GIVEN : SPLIT_EVEN;
}

void move_name(const struct move *move, char *text, size_t size)
{
    unsigned bits = move->bits;
    bool both = (bits & MOVE_RECV_ACC) && (bits & MOVE_OWN), fresh = bits & MOVE_LOAD;
    bool reduces = both || ((bits & (MOVE_RECV_ACC | MOVE_OWN)) && !fresh);
    bool copies = (bits & (MOVE_STORE | MOVE_COPY)) || ((bits & MOVE_RECV_OUT) && (bits & MOVE_SEND));
    const struct {
        bool is;
        const char *word;
    } words[] = {
        {bits & MOVE_RECV, "recv"},   {reduces, "reduce"}, {fresh && !reduces, "load"},
        {bits & MOVE_FENCE, "fence"}, {copies, "copy"},    {bits & MOVE_IDENTITY, "identity"},
        {bits & MOVE_SEND, "send"},
    };
    size_t len = 0;

    if (size == 0)
        return;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!words[i].is)
            continue;
        int wrote = snprintf(text + len, size - len, "%s%s", len > 0 ? "_" : "", words[i].word);
        if (wrote < 0 || (size_t)wrote >= size - len)
            return;
        len += (size_t)wrote;
    }
}

/* ---- cutting ---- */

/* Where piece `index` of `pieces` begins. */
static size_t cut(size_t count, uint64_t pieces, uint64_t index)
{
    size_t product;
    if (!__builtin_mul_overflow(count, index, &product)) /* nearly always: a fifth of the time of the other */
        return product / pieces;
    return (size_t)((u128)count * index / pieces);
}

static size_t divide_up(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

/* a * b / c rounded up; what is larger than a size_t can be becomes the largest. */
static size_t scale_up(size_t a, uint64_t b, uint64_t c)
{
    u128 x = ((u128)a * b + (c - 1)) / c;
    return x > SIZE_MAX ? SIZE_MAX : (size_t)x;
}

static uint32_t longer_len(const struct plan_call *call)
{
    return call->raw_len > call->acc_len ? call->raw_len : call->acc_len;
}

/* Elements in a frame of chunk_bytes, at least one. */
static size_t chunk_elements(const struct plan_call *call, uint32_t element_len)
{
    size_t count = element_len > 0 ? call->chunk_bytes / element_len : SIZE_MAX;
    return count > 0 ? count : 1;
}

/* As few lanes as keep the largest frame within a chunk. */
static size_t cut_even(const struct plan_call *call, struct plan_shape *shape)
{
    uint32_t len = shape->sums_travel ? longer_len(call) : call->raw_len;
    u128 lane_max = (u128)chunk_elements(call, len) * shape->parts / shape->frame_parts;
    size_t most = lane_max > SIZE_MAX ? SIZE_MAX : (size_t)lane_max;

    shape->lanes = divide_up(call->count, most);
    if (call->kind == PLAN_BARRIER && call->size > 1)
        shape->lanes = 1;
    shape->lane_count = shape->lanes > 0 ? divide_up(call->count, shape->lanes) : 0;
    if (shape->acc_parts > 0)
        return scale_up(scale_up(shape->lane_count, shape->acc_parts, shape->parts), call->acc_len, 1);
    return scale_up(scale_up(shape->lane_count, shape->frame_parts, shape->parts), len, 1);
}

static size_t cut_given(const struct plan_call *call, struct plan_shape *shape)
{
    size_t chunk = chunk_elements(call, longer_len(call)), longest = 0;

    for (int p = 0; p < call->size; p++) {
        size_t in = part_count(call, SIDE_IN, p), out = part_count(call, SIDE_OUT, p);
        longest = in > longest ? in : longest;
        longest = out > longest ? out : longest;
    }
    shape->lanes = divide_up(longest, chunk);
    shape->lane_count = longest < chunk ? longest : chunk;
    return scale_up(chunk, longer_len(call), 1);
}

struct plan_shape planner_shape(const struct planner *planner, const struct plan_call *call)
{
    struct plan_shape shape = {.parts = 1, .frame_parts = 1, .acc_parts = plan_kind_reduces(call->kind)};
    planner->shape(call, &shape);
    assert(shape.frame_parts >= 1 && shape.frame_parts <= shape.parts && shape.acc_parts <= shape.parts);

    bool even = split_of(call->kind) == SPLIT_EVEN;
    size_t held = even ? cut_even(call, &shape) : cut_given(call, &shape);
    size_t window = held > 0 ? call->window_bytes / held : 1;
    shape.window = window > shape.lanes ? shape.lanes : window;
    if (shape.window < 1) /* also without lanes: it is a divisor */
        shape.window = 1;
    return shape;
}

/* ---- ranges ---- */

static struct range range_even(const struct plan *plan, size_t slice, uint32_t part, uint32_t parts)
{
    size_t start = cut(slice, plan->parts, part);
    return (struct range){start, cut(slice, plan->parts, (uint64_t)part + parts) - start};
}

struct range plan_range(const struct plan *plan, enum plan_side side, uint64_t lane, uint32_t part,
                        uint32_t parts)
{
    assert(parts >= 1 && part < plan->parts && parts <= plan->parts - part);
    assert(lane < plan->lanes);
    if (plan->split == SPLIT_EVEN) {
        size_t start = cut(plan->count, plan->lanes, lane);
        struct range range = range_even(plan, cut(plan->count, plan->lanes, lane + 1) - start, part, parts);
        range.offset += start;
        return range;
    }
    const size_t *counts = side == SIDE_IN ? plan->in_count : plan->out_count;
    const size_t *offsets = side == SIDE_IN ? plan->in_offset : plan->out_offset;
    uint32_t last = part + parts - 1;
    if (parts > 1) {
        assert(plan->lanes == 1); /* pieces of several parts are neighbours only if they are whole */
        return (struct range){offsets[part], offsets[last] + counts[last] - offsets[part]};
    }
    size_t done = (size_t)lane * plan->chunk_count;
    size_t left = counts[part] > done ? counts[part] - done : 0;
    return (struct range){offsets[part] + (left > 0 ? done : counts[part]),
                          left < plan->chunk_count ? left : plan->chunk_count};
}

static enum plan_side move_side(const struct move *move)
{
    bool in = move->bits & (MOVE_RECV_ACC | MOVE_OWN | MOVE_COPY | MOVE_STORE | MOVE_SEND_IN | MOVE_SEND_ACC);
    return in ? SIDE_IN : SIDE_OUT;
}

struct range plan_move_range(const struct plan *plan, uint64_t lane, const struct move *move)
{
    return plan_range(plan, move_side(move), lane, move->part, move->parts);
}

static uint32_t recv_len(const struct plan *plan, const struct move *move)
{
    if ((move->bits & MOVE_RECV) == 0)
        return 0;
    return (move->bits & MOVE_RECV_OUT) || (move->bits & MOVE_RAW) ? plan->raw_len : plan->acc_len;
}

static uint32_t send_len(const struct plan *plan, const struct move *move)
{
    if ((move->bits & MOVE_SEND) == 0)
        return 0;
    return move->bits & MOVE_SEND_ACC ? plan->acc_len : plan->raw_len;
}

size_t plan_recv_bytes(const struct plan *plan, uint64_t lane, const struct move *move)
{
    return (move->bits & MOVE_RECV) ? plan_move_range(plan, lane, move).count * recv_len(plan, move) : 0;
}

size_t plan_send_bytes(const struct plan *plan, uint64_t lane, const struct move *move)
{
    return (move->bits & MOVE_SEND) ? plan_move_range(plan, lane, move).count * send_len(plan, move) : 0;
}

/* The most elements the move meets in any lane. Slices have one of two sizes, and either may give the larger
 * part; of given parts the first piece is the largest. */
static size_t move_count_max(const struct plan *plan, const struct move *move)
{
    if (plan->lanes == 0)
        return 0;
    if (plan->split == SPLIT_GIVEN)
        return plan_move_range(plan, 0, move).count;
    size_t small = plan->count / plan->lanes, large = divide_up(plan->count, plan->lanes);
    size_t a = range_even(plan, small, move->part, move->parts).count;
    size_t b = range_even(plan, large, move->part, move->parts).count;
    return a > b ? a : b;
}

static void sizes_fill(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->move_count; i++) {
        const struct move *move = &plan->moves[i];
        uint32_t in = recv_len(plan, move), out = send_len(plan, move);
        size_t count = move_count_max(plan, move), bytes = count * (in > out ? in : out);
        if (bytes > plan->frame_bytes)
            plan->frame_bytes = bytes;
        if ((move->bits & MOVE_LOAD) && count > plan->acc_count)
            plan->acc_count = count;
    }
}

/* ---- checking a call ---- */

static int invalid_counts(const struct plan_call *call, struct error *error, const char *what)
{
    return error_set(error, HEARTH_INVALID, RANK_NONE, "%s: %s", plan_kind_name(call->kind), what);
}

static int check_given(const struct plan_call *call, struct error *error)
{
    size_t in = 0, out = 0, bytes;
    bool over = false;

    if (call->kind == PLAN_ALL_TO_ALL && (!call->in_counts) != (!call->out_counts))
        return invalid_counts(call, error, "counts are given for one side only");
    for (int p = 0; p < call->size; p++) {
        over = over || __builtin_add_overflow(in, part_count(call, SIDE_IN, p), &in);
        over = over || __builtin_add_overflow(out, part_count(call, SIDE_OUT, p), &out);
    }
    over = over || __builtin_mul_overflow(in > out ? in : out, (size_t)longer_len(call), &bytes) ||
           bytes > BYTES_MAX;
    if (over)
        return invalid_counts(call, error, "the counts add up to more than 2^63 bytes");
    if (call->kind == PLAN_ALL_TO_ALL &&
        part_count(call, SIDE_IN, call->rank) != part_count(call, SIDE_OUT, call->rank))
        return invalid_counts(call, error, "what this member gives itself is not what it expects of itself");
    return HEARTH_OK;
}

int plan_check(const struct plan_call *call, struct error *error)
{
    size_t bytes;

    if ((unsigned)call->kind >= PLAN_KIND_COUNT)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "there is no collective number %d",
                         (int)call->kind);
    const char *name = kinds[call->kind].name;
    if (call->size < 1 || call->rank < 0 || call->rank >= call->size)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "%s: rank %d is not in a group of %d", name,
                         call->rank, call->size);
    if (plan_kind_rooted(call->kind) && (call->root < 0 || call->root >= call->size))
        return error_set(error, HEARTH_INVALID, RANK_NONE, "%s: root %d is not in a group of %d", name,
                         call->root, call->size);
    if (call->kind == PLAN_BARRIER)
        return call->count == 0 ? HEARTH_OK : invalid_counts(call, error, "it has no elements");
    if (call->raw_len == 0 || call->acc_len == 0)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "%s: an element has no bytes", name);
    if (split_of(call->kind) == SPLIT_GIVEN)
        return check_given(call, error);
    if (__builtin_mul_overflow(call->count, (size_t)longer_len(call), &bytes) || bytes > BYTES_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "%s: %zu elements are more than 2^63 bytes", name,
                         call->count);
    return HEARTH_OK;
}

/* ---- writing ---- */

static int given_make(const struct plan_call *call, struct heap *heap, struct plan *plan, struct error *error)
{
    size_t size = (size_t)call->size;

    plan->in_count = heap_alloc_raw(heap, 4 * size, sizeof *plan->in_count);
    if (!plan->in_count)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for a plan");
    plan->in_offset = plan->in_count + size;
    plan->out_count = plan->in_offset + size;
    plan->out_offset = plan->out_count + size;
    return HEARTH_OK;
}

/* Lengths and places of all parts. */
static void given_fill(const struct plan_call *call, struct plan *plan)
{
    size_t in = 0, out = 0;

    for (int p = 0; p < call->size; p++) {
        plan->in_count[p] = part_count(call, SIDE_IN, p);
        plan->in_offset[p] = in;
        in += plan->in_count[p];
        plan->out_count[p] = part_count(call, SIDE_OUT, p);
        plan->out_offset[p] = out;
        out += plan->out_count[p];
    }
}

int plan_write(const struct plan_call *call, struct heap *heap, struct plan *plan, struct error *error)
{
    int status = plan_check(call, error);
    if (status != HEARTH_OK)
        return status;
    const struct planner *planner = planner_of(call->algo);
    if (!planner)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "%s: no algorithm is chosen",
                         kinds[call->kind].name);
    if (!planner_can(planner, call))
        return call_refuse(call, call->algo, error);

    struct plan_shape shape = planner_shape(planner, call);
    *plan = (struct plan){
        .kind = call->kind,
        .algo = call->algo,
        .size = call->size,
        .rank = call->rank,
        .root = plan_kind_rooted(call->kind) ? call->root : RANK_NONE,
        .split = split_of(call->kind),
        .parts = shape.parts,
        .lanes = shape.lanes,
        .window = shape.window,
        .sync = call->kind == PLAN_BARRIER,
        .count = call->count,
        .chunk_count = chunk_elements(call, longer_len(call)),
        .raw_len = call->raw_len,
        .acc_len = call->acc_len,
    };
    if (plan->split == SPLIT_GIVEN) {
        plan->parts = (uint32_t)call->size;
        plan->count = 0;
        status = given_make(call, heap, plan, error);
        if (status == HEARTH_OK)
            given_fill(call, plan);
    }
    struct plan_writer writer = {.plan = plan, .heap = heap, .error = error, .status = status};
    if (status == HEARTH_OK)
        planner->write(call, &writer);
    if (writer.status == HEARTH_OK)
        sizes_fill(plan);
    else
        plan_fini(plan);
    return writer.status;
}

bool plan_recount(const struct plan_call *call, struct plan *plan)
{
    struct plan_shape shape = planner_shape(planner_of(plan->algo), call);

    assert(plan->kind == PLAN_ALL_TO_ALL && plan->size == call->size);
    if (shape.lanes > PLAN_LANES_MAX)
        return false;
    plan->lanes = shape.lanes;
    plan->window = shape.window;
    plan->frame_bytes = plan->acc_count = 0;
    given_fill(call, plan);
    sizes_fill(plan);
    return true;
}

void plan_fini(struct plan *plan)
{
    heap_free(plan->in_count); /* the other three stand in the same block */
    heap_free(plan->moves);
    *plan = (struct plan){.lanes = 0};
}

uint64_t plan_hash(const struct plan_call *call)
{
    uint64_t hash = hash_mix(0, (uint64_t)call->algo);

    hash = hash_mix(hash, call->chunk_bytes);
    hash = hash_mix(hash, call->window_bytes);
    hash = hash_mix(hash, call->rank_order);
    if (call->host)
        hash = hash64(hash, call->host, (size_t)call->size * sizeof *call->host);
    if (call->order)
        hash = hash64(hash_mix(hash, 1), call->order, (size_t)call->size * sizeof *call->order);
    return hash;
}
