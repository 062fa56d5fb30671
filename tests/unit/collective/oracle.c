/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle: cells instead of numbers, so that what is missing, doubled or out of order can be seen.
 *
 *   A cell has a mass, drawn at random for each member and element and added without rounding: any
 *   contribution that is lost or counted twice shows. It has a value of any magnitude, added in f32: any
 *   change of order shows in its last bits. Weights are added beside, once per lane, as for an average.
 *
 *   Memory is lent as on a real link: what is sent out of a source or target is read at the last possible
 *   moment, when the receiver takes it, or when a FENCE makes sure that it has left. A sum is read when it
 *   is accepted, since nothing may change it before it has left. */
#include "oracle.h"

#include <math.h>

#include "core/hash.h"
#include "support/suite.h"

struct cell {
    uint64_t mass;
    float value;
};

struct parcel { /* a frame */
    struct parcel *next;
    uint64_t lane;
    uint32_t part, parts, step;
    bool raw, input; /* buffer's type; lent from the source */
    double weight;
    size_t count;
    const struct cell *lent; /* NULL: in cells */
    struct cell cells[];
};

struct sum { /* an accumulator */
    struct cell *cells;
    struct range range; /* what was loaded */
    double weight;
};

struct player {
    struct plan plan;
    struct cell *memory, *source, *target; /* memory: what to free */
    size_t source_count, target_count;
    struct cell *memory_2;
    struct sum *sums; /* [window] */
    uint64_t bytes_sent;
};

struct game {
    const struct trial *trial;
    int size;
    struct heap heap;
    struct player *players;
    struct parcel **heads, **tails; /* [from * size + to] */
};

const char *trial_name(const struct trial *t)
{
    static char text[160];
    snprintf(text, sizeof text, "%s%s by %s, %d members, %zu elements, root %d, chunk %zu, window %zu, %s",
             plan_kind_name(t->call.kind), t->counts ? "v" : "", hearth_algo_name(t->call.algo), t->call.size,
             t->call.count, t->call.root, t->call.chunk_bytes, t->call.window_bytes,
             t->in_place ? "in place" : "out of place");
    return text;
}

/* ---- numbers ---- */

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* What member `rank` has at element i of its source. */
static struct cell cell_of(int rank, size_t i)
{
    uint64_t x = mix((uint64_t)rank << 40 ^ i);
    float value = (float)((int64_t)(x >> 40) - (1 << 23)) / (float)(1 << 23);
    return (struct cell){x, ldexpf(value, (int)(x & 31) - 16)};
}

static double weight_of(int rank)
{
    return 1 + rank % 7;
}

static struct cell untouched(int rank, size_t i)
{
    return (struct cell){mix((uint64_t)~rank << 40 ^ i), -12345.0f};
}

static bool same(struct cell a, struct cell b)
{
    return a.mass == b.mass && memcmp(&a.value, &b.value, sizeof a.value) == 0;
}

static struct cell add(struct cell a, struct cell b)
{
    return (struct cell){a.mass + b.mass, a.value + b.value};
}

/* ---- calls ---- */

struct plan_call call_of(enum plan_kind kind, enum hearth_algo algo, int size, size_t count)
{
    return (struct plan_call){.kind = kind,
                              .algo = algo,
                              .size = size,
                              .count = kind == PLAN_BARRIER ? 0 : count,
                              .raw_len = 4,
                              .acc_len = 4,
                              .chunk_bytes = 1 << 20,
                              .window_bytes = 1 << 20};
}

void write_ok(const struct plan_call *call, struct heap *heap, struct plan *plan)
{
    struct error error;
    if (plan_write(call, heap, plan, &error) != HEARTH_OK)
        fail_msg("%s of %d, rank %d: %s", plan_kind_name(call->kind), call->size, call->rank, error.text);
}

struct plan_call trial_call(const struct trial *t, int rank, size_t *column)
{
    struct plan_call call = t->call;
    int size = call.size;

    call.rank = rank;
    if (!t->counts)
        return call;
    switch (call.kind) {
    case PLAN_REDUCE_SCATTER:
        call.in_counts = t->counts;
        break;
    case PLAN_ALL_GATHER:
        call.out_counts = t->counts;
        break;
    case PLAN_GATHER:
    case PLAN_SCATTER:
        call.count = t->counts[rank];
        if (rank == call.root && call.kind == PLAN_GATHER)
            call.out_counts = t->counts;
        else if (rank == call.root)
            call.in_counts = t->counts;
        break;
    default:
        for (int i = 0; i < size; i++)
            column[i] = t->counts[i * size + rank];
        call.in_counts = t->counts + rank * size;
        call.out_counts = column;
    }
    return call;
}

static void plans_write(struct game *game)
{
    size_t *column = calloc((size_t)game->size, sizeof *column);

    for (int r = 0; r < game->size; r++) {
        struct plan_call call = trial_call(game->trial, r, column);
        write_ok(&call, &game->heap, &game->players[r].plan);
    }
    free(column);
}

/* ---- buffers ---- */

static size_t total(const struct plan *plan, const size_t *counts)
{
    size_t sum = 0;
    if (plan->split == SPLIT_EVEN)
        return plan->count;
    for (int p = 0; p < plan->size; p++)
        sum += counts[p];
    return sum;
}

/* In place, the source is where the own part lands in the target, or the other way round. */
static void buffers_make(struct game *game, int rank)
{
    struct player *player = &game->players[rank];
    const struct plan *plan = &player->plan;
    size_t in = total(plan, plan->in_count), out = total(plan, plan->out_count);
    bool root = rank == plan->root, in_place = game->trial->in_place;

    player->source_count = in;
    player->target_count = out;
    player->memory = calloc(in + 1, sizeof(struct cell));
    player->memory_2 = calloc(out + 1, sizeof(struct cell));
    player->source = player->memory;
    player->target = player->memory_2;
    if (in_place && plan->split == SPLIT_EVEN)
        player->target = player->source;
    else if (in_place && (plan->kind == PLAN_REDUCE_SCATTER || (plan->kind == PLAN_SCATTER && root)))
        player->target = player->source + plan->in_offset[rank];
    else if (in_place && (plan->kind == PLAN_ALL_GATHER || (plan->kind == PLAN_GATHER && root)))
        player->source = player->target + plan->out_offset[rank];
    for (size_t i = 0; i < out; i++)
        player->target[i] = untouched(rank, i);
    for (size_t i = 0; i < in; i++)
        player->source[i] = cell_of(rank, i);
    player->sums = calloc(plan->window, sizeof *player->sums);
    for (uint64_t i = 0; i < plan->window; i++)
        player->sums[i].cells = calloc(plan->acc_count + 1, sizeof(struct cell));
}

static void buffers_free(struct player *player)
{
    for (uint64_t i = 0; i < player->plan.window; i++)
        free(player->sums[i].cells);
    free(player->sums);
    free(player->memory);
    free(player->memory_2);
    plan_fini(&player->plan);
}

/* ---- frames ---- */

static void parcel_settle(struct parcel *parcel)
{
    if (parcel->lent)
        memcpy(parcel->cells, parcel->lent, parcel->count * sizeof *parcel->cells);
    parcel->lent = NULL;
}

static void fence(struct game *game, int rank, uint64_t lane)
{
    for (int to = 0; to < game->size; to++)
        for (struct parcel *p = game->heads[rank * game->size + to]; p; p = p->next)
            if (p->lane == lane && p->input)
                parcel_settle(p);
}

/* The accumulator's cells of a range, which must be inside what was loaded. */
static struct cell *sum_at(const struct game *game, struct sum *sum, struct range range)
{
    if (range.count > 0 && (range.offset < sum->range.offset ||
                            range.offset + range.count > sum->range.offset + sum->range.count))
        fail_msg("%s: accumulator used outside of what was loaded", trial_name(game->trial));
    return sum->cells + (range.count > 0 ? range.offset - sum->range.offset : 0);
}

static void parcel_send(struct game *game, int rank, uint64_t lane, const struct move *move)
{
    struct player *player = &game->players[rank];
    const struct plan *plan = &player->plan;
    struct sum *sum = &player->sums[lane % plan->window];
    bool out = move->bits & MOVE_SEND_OUT, acc = move->bits & MOVE_SEND_ACC;
    struct range range = plan_range(plan, out ? SIDE_OUT : SIDE_IN, lane, move->part, move->parts);
    size_t bytes = range.count * (acc ? plan->acc_len : plan->raw_len);

    assert_int_equal(bytes, plan_send_bytes(plan, lane, move));
    assert_true(bytes <= plan->frame_bytes);
    player->bytes_sent += bytes;
    if (range.count == 0 && !plan->sync)
        return;
    struct parcel *parcel = malloc(sizeof *parcel + range.count * sizeof(struct cell));
    assert_non_null(parcel);
    *parcel = (struct parcel){.lane = lane,
                              .part = move->part,
                              .parts = move->parts,
                              .step = move->to_step,
                              .raw = !acc,
                              .input = move->bits & MOVE_SEND_IN,
                              .weight = acc ? sum->weight : weight_of(rank),
                              .count = range.count};
    parcel->lent = acc ? sum_at(game, sum, range) : (out ? player->target : player->source) + range.offset;
    if (acc)
        parcel_settle(parcel);
    struct parcel **head = &game->heads[rank * game->size + move->to];
    struct parcel **tail = &game->tails[rank * game->size + move->to];
    if (!*head)
        *head = parcel;
    else
        (*tail)->next = parcel;
    *tail = parcel;
}

static struct parcel *parcel_take(struct game *game, int rank, uint64_t lane, const struct move *move)
{
    struct parcel **head = &game->heads[move->from * game->size + rank], *parcel = *head;
    const struct plan *plan = &game->players[rank].plan;

    if (plan_recv_bytes(plan, lane, move) == 0 && !plan->sync)
        return NULL;
    bool other = !parcel || parcel->lane != lane || parcel->step != move->from_step;
    if (!other && plan->kind != PLAN_ALL_TO_ALL) /* there, parts are named after the other side */
        other = parcel->part != move->part || parcel->parts != move->parts;
    if (other)
        fail_msg("%s: rank %d takes another frame than it expects from %d", trial_name(game->trial), rank,
                 move->from);
    if (parcel->raw != ((move->bits & MOVE_RAW) || (move->bits & MOVE_RECV_OUT)))
        fail_msg("%s: rank %d takes sums for elements, or elements for sums, from %d",
                 trial_name(game->trial), rank, move->from);
    parcel_settle(parcel);
    *head = parcel->next;
    return parcel;
}

/* ---- moves ---- */

static void accumulate(struct cell *at, const struct cell *from, size_t count, bool load)
{
    for (size_t i = 0; i < count; i++)
        at[i] = load ? from[i] : add(at[i], from[i]);
}

static void combine(struct game *game, int rank, uint64_t lane, const struct move *move,
                    const struct parcel *parcel)
{
    struct player *player = &game->players[rank];
    struct sum *sum = &player->sums[lane % player->plan.window];
    struct range range = plan_move_range(&player->plan, lane, move);
    bool load = move->bits & MOVE_LOAD;

    if (load) {
        assert_true(range.count <= player->plan.acc_count);
        sum->range = range;
        sum->weight = 0;
    }
    struct cell *at = sum_at(game, sum, range);
    if ((move->bits & MOVE_RECV_ACC) && parcel) {
        accumulate(at, parcel->cells, range.count, load);
        sum->weight += parcel->weight;
        load = false;
    }
    if (move->bits & MOVE_OWN) {
        accumulate(at, player->source + range.offset, range.count, load);
        sum->weight += weight_of(rank);
    }
}

static void check_weight(const struct game *game, int rank, double weight)
{
    const struct plan *plan = &game->players[rank].plan;
    double expected = 0;
    int members = plan->kind == PLAN_SCAN ? rank + 1 : plan->kind == PLAN_EXCLUSIVE_SCAN ? rank : plan->size;

    for (int r = 0; r < members; r++)
        expected += weight_of(r);
    if (weight != expected)
        fail_msg("%s: rank %d stores a sum of weight %g, not %g", trial_name(game->trial), rank, weight,
                 expected);
}

static void write_target(struct game *game, int rank, uint64_t lane, const struct move *move,
                         const struct parcel *parcel)
{
    struct player *player = &game->players[rank];
    const struct plan *plan = &player->plan;
    struct sum *sum = &player->sums[lane % plan->window];
    struct range in = plan_range(plan, SIDE_IN, lane, move->part, move->parts);
    struct range out = plan_range(plan, SIDE_OUT, lane, move->part, move->parts);
    const struct cell *from = NULL;

    if (move->bits & MOVE_RECV_OUT)
        from = parcel ? parcel->cells : NULL;
    else if (move->bits & MOVE_STORE)
        from = sum_at(game, sum, in);
    else if (move->bits & MOVE_COPY)
        from = player->source + in.offset;
    if ((move->bits & MOVE_STORE) && in.count > 0)
        check_weight(game, rank, sum->weight);
    if (move->bits & (MOVE_STORE | MOVE_COPY))
        assert_int_equal(in.count, out.count);
    assert_true(out.offset + out.count <= player->target_count);
    for (size_t i = 0; i < out.count; i++)
        player->target[out.offset + i] = from ? from[i] : (struct cell){0, 0};
}

static void observe(void *arg, int rank, uint64_t lane, const struct move *move)
{
    struct game *game = arg;
    struct parcel *parcel = NULL;

    if (move->bits & MOVE_RECV)
        parcel = parcel_take(game, rank, lane, move);
    if (move->bits & (MOVE_RECV_ACC | MOVE_OWN))
        combine(game, rank, lane, move, parcel);
    if (move->bits & MOVE_FENCE)
        fence(game, rank, lane);
    if (move->bits & (MOVE_RECV_OUT | MOVE_STORE | MOVE_COPY | MOVE_IDENTITY))
        write_target(game, rank, lane, move, parcel);
    free(parcel);
    if (move->bits & MOVE_SEND)
        parcel_send(game, rank, lane, move);
}

/* ---- what must come out ---- */

/* Members 0..end-1 added up in rank order; and in f64, with the sum of magnitudes. */
struct fold {
    struct cell cell;
    double exact, magnitude;
};

static void fold_add(struct fold *fold, struct cell cell, bool first)
{
    fold->cell = first ? cell : add(fold->cell, cell);
    fold->exact += (double)cell.value;
    fold->magnitude += fabs((double)cell.value);
}

static void check_sum(const struct game *game, int rank, size_t i, struct cell got, const struct fold *fold,
                      int members)
{
    const struct plan_call *call = &game->trial->call;
    bool ordered =
        call->algo == HEARTH_ALGO_DIRECT || call->algo == HEARTH_ALGO_STAR ||
        call->algo == HEARTH_ALGO_EXCHANGE ||
        (call->algo == HEARTH_ALGO_RING && (call->kind == PLAN_SCAN || call->kind == PLAN_EXCLUSIVE_SCAN));
    double bound = members * 0x1p-23 * fold->magnitude;

    if (got.mass != fold->cell.mass)
        fail_msg("%s: rank %d, element %zu: a contribution is missing or doubled", trial_name(game->trial),
                 rank, i);
    if (fabs((double)got.value - fold->exact) > bound)
        fail_msg("%s: rank %d, element %zu: %g, not %g", trial_name(game->trial), rank, i, (double)got.value,
                 fold->exact);
    if (ordered && !same(got, fold->cell))
        fail_msg("%s: rank %d, element %zu: not in rank order", trial_name(game->trial), rank, i);
}

static void expect_cell(const struct game *game, int rank, size_t i, struct cell got, struct cell expected)
{
    if (!same(got, expected))
        fail_msg("%s: rank %d, element %zu is not what it must be", trial_name(game->trial), rank, i);
}

/* Kinds that combine over a whole buffer. */
static void check_even(const struct game *game)
{
    const struct plan_call *call = &game->trial->call;
    int size = game->size;
    bool scan = call->kind == PLAN_SCAN || call->kind == PLAN_EXCLUSIVE_SCAN;

    for (size_t i = 0; i < call->count; i++) {
        struct fold fold = {.exact = 0};
        for (int r = 0; r < size; r++) {
            struct cell got = game->players[r].target[i], own = cell_of(r, i);
            if (call->kind == PLAN_EXCLUSIVE_SCAN && r == 0)
                expect_cell(game, r, i, got, (struct cell){0, 0});
            else if (call->kind == PLAN_EXCLUSIVE_SCAN)
                check_sum(game, r, i, got, &fold, r);
            fold_add(&fold, own, r == 0);
            if (call->kind == PLAN_SCAN)
                check_sum(game, r, i, got, &fold, r + 1);
        }
        for (int r = 0; r < size && !scan; r++) {
            struct cell got = game->players[r].target[i];
            struct cell before = game->trial->in_place ? cell_of(r, i) : untouched(r, i);
            if (call->kind == PLAN_BROADCAST)
                expect_cell(game, r, i, got, cell_of(call->root, i));
            else if (call->kind == PLAN_REDUCE && r != call->root)
                expect_cell(game, r, i, got, before);
            else
                check_sum(game, r, i, got, &fold, size);
            if (call->kind == PLAN_ALL_REDUCE)
                expect_cell(game, r, i, got, game->players[0].target[i]);
        }
    }
}

/* Element i of part p of a member's target. */
static void check_given_cell(const struct game *game, int rank, int p, size_t i)
{
    const struct player *player = &game->players[rank];
    struct cell got = player->target[player->plan.out_offset[p] + i];
    struct fold fold = {.exact = 0};

    switch (player->plan.kind) {
    case PLAN_REDUCE_SCATTER:
        for (int r = 0; r < game->size; r++)
            fold_add(&fold, cell_of(r, game->players[r].plan.in_offset[p] + i), r == 0);
        check_sum(game, rank, i, got, &fold, game->size);
        break;
    case PLAN_SCATTER:
        expect_cell(game, rank, i, got,
                    cell_of(player->plan.root, game->players[player->plan.root].plan.in_offset[p] + i));
        break;
    default: /* part p of the target came from member p; there it is the part for us, or its only one */
        expect_cell(
            game, rank, i, got,
            cell_of(p, player->plan.kind == PLAN_ALL_TO_ALL ? game->players[p].plan.in_offset[rank] + i : i));
    }
}

static void check_sources(const struct game *game, int rank)
{
    const struct player *player = &game->players[rank];
    const struct cell *end = player->target + player->target_count;

    for (size_t i = 0; i < player->source_count; i++) {
        const struct cell *at = player->source + i;
        if (game->trial->in_place && at >= player->target && at < end)
            continue; /* it is the result now */
        expect_cell(game, rank, i, *at, cell_of(rank, i));
    }
}

static void check_all(const struct game *game)
{
    for (int i = 0; i < game->size * game->size; i++)
        assert_null(game->heads[i]);
    if (game->players[0].plan.split == SPLIT_EVEN)
        check_even(game);
    for (int r = 0; r < game->size; r++) {
        const struct plan *plan = &game->players[r].plan;
        check_sources(game, r);
        for (int p = 0; plan->split == SPLIT_GIVEN && p < game->size; p++)
            for (size_t i = 0; i < plan->out_count[p]; i++)
                check_given_cell(game, r, p, i);
    }
}

/* ---- digest ---- */

#define DIGEST_SIZE_MAX 16

static uint64_t digest;

uint64_t trial_digest(void)
{
    return digest;
}

static void digest_add(const struct game *game)
{
    for (int r = 0; r < game->size && game->size <= DIGEST_SIZE_MAX; r++) {
        const struct player *player = &game->players[r];
        for (uint32_t i = 0; i < player->plan.move_count; i++) {
            const struct move *m = &player->plan.moves[i];
            digest = hash_mix(digest, (uint64_t)m->bits << 32 | m->part);
            digest = hash_mix(digest, (uint64_t)(uint32_t)m->from << 32 | m->from_step);
            digest = hash_mix(digest, (uint64_t)(uint32_t)m->to << 32 | m->to_step);
        }
        for (size_t i = 0; i < player->target_count; i++) {
            uint32_t bits;
            memcpy(&bits, &player->target[i].value, sizeof bits);
            digest = hash_mix(digest, bits);
        }
    }
}

/* ---- running ---- */

static void game_open(struct game *game, const struct trial *trial)
{
    size_t size = (size_t)trial->call.size;

    *game = (struct game){.trial = trial, .size = trial->call.size};
    heap_init(&game->heap, 0);
    game->players = calloc(size, sizeof *game->players);
    game->heads = calloc(size * size, sizeof *game->heads);
    game->tails = calloc(size * size, sizeof *game->tails);
    assert_true(game->players && game->heads && game->tails);
    plans_write(game);
    for (int r = 0; r < game->size; r++)
        buffers_make(game, r);
}

static void game_close(struct game *game)
{
    for (int r = 0; r < game->size; r++)
        buffers_free(&game->players[r]);
    free(game->players);
    free(game->heads);
    free(game->tails);
    assert_int_equal(game->heap.blocks, 0);
}

static void game_run(struct game *game, dry_observer *observer, void *arg, struct dry_result *result)
{
    struct dry_net net = {.inside = game->trial->inside,
                          .across = game->trial->across,
                          .host = game->trial->call.host,
                          .slots = game->trial->slots,
                          .observer = observer,
                          .observer_arg = arg};
    struct plan *plans = calloc((size_t)game->size, sizeof *plans);
    struct error error;

    assert_non_null(plans);
    for (int r = 0; r < game->size; r++)
        plans[r] = game->players[r].plan;
    if (dryrun(plans, game->size, &net, &game->heap, result, &error) != HEARTH_OK)
        fail_msg("%s: %s", trial_name(game->trial), error.text);
    free(plans);
}

void trial_run(const struct trial *trial, struct dry_result *result, uint64_t *bytes_sent)
{
    struct game game;
    uint64_t bytes = 0, most = 0;

    game_open(&game, trial);
    game_run(&game, observe, &game, result);
    check_all(&game);
    digest_add(&game);
    for (int r = 0; r < game.size; r++) {
        uint64_t sent = game.players[r].bytes_sent;
        bytes += sent;
        most = sent > most ? sent : most;
        if (bytes_sent)
            bytes_sent[r] = sent;
    }
    assert_int_equal(bytes, result->bytes_sent);
    assert_int_equal(most, result->bytes_sent_max);
    game_close(&game);
}
