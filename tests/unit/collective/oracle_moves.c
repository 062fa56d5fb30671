/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at the moves of all members alone, whatever the timing: see trial_check_moves. */
#include "oracle.h"
#include "support/suite.h"

struct cast {
    const struct trial *trial;
    int size;
    struct heap heap;
    struct plan *plans;
};

/* What each member knows of the others, as the number of moves it knows them to have done (Lamport,
 * Mattern). A buffer that was lent to a frame is free when we know that its receiver has taken it. */
struct causality {
    const struct cast *cast;
    uint32_t *known;  /* [rank * size + other] */
    uint32_t *in_air; /* [(from * size + to) * size + other]: what the sender knew; one slot, so one frame */
    uint32_t *done;   /* [rank]: moves begun, by observation */
};

/* The number of the receiver's move that takes what `from` sends to `to` at `step`. */
static uint32_t taker(const struct cast *cast, int from, int to, uint32_t step)
{
    const struct plan *plan = &cast->plans[to];

    for (uint32_t i = 0; i < plan->move_count; i++)
        if ((plan->moves[i].bits & MOVE_RECV) && plan->moves[i].from == from &&
            plan->moves[i].from_step == step)
            return i;
    fail_msg("%s: nobody takes step %u from %d to %d", trial_name(cast->trial), step, from, to);
    return 0;
}

static bool overlap(const struct move *a, const struct move *b)
{
    return a->part < b->part + b->parts && b->part < a->part + a->parts;
}

/* Move `at` of `rank` writes its target: everything it sent out of these parts must have left. */
static void check_lent(struct causality *c, int rank, uint32_t at)
{
    const struct plan *plan = &c->cast->plans[rank];
    const struct move *writes = &plan->moves[at];
    bool fenced = writes->bits & MOVE_FENCE, same_place = plan->split == SPLIT_EVEN;

    for (uint32_t i = at; i-- > 0;) {
        const struct move *sent = &plan->moves[i];
        bool input = (sent->bits & MOVE_SEND_IN) && !fenced, output = sent->bits & MOVE_SEND_OUT;
        fenced = fenced || (sent->bits & MOVE_FENCE);
        /* given parts: only our own is at the same place in source and target */
        bool meets = overlap(sent, writes) && (same_place || output || writes->part == (uint32_t)rank);
        if ((!input && !output) || !meets || plan->kind == PLAN_ALL_TO_ALL || plan->sync)
            continue;
        if (c->known[rank * plan->size + sent->to] <= taker(c->cast, rank, sent->to, sent->to_step))
            fail_msg("%s: rank %d, move %u overwrites what move %u may still be sending",
                     trial_name(c->cast->trial), rank, at, i);
    }
}

static void observe(void *arg, int rank, uint64_t lane, const struct move *move)
{
    struct causality *c = arg;
    int size = c->cast->size;
    const struct plan *plan = &c->cast->plans[rank];
    uint32_t *known = &c->known[rank * size], at = c->done[rank];

    unsigned last_bit = move->bits & -(unsigned)move->bits; /* pieces come in the order of the bits */
    if (move->bits & MOVE_RECV)
        for (int r = 0; r < size; r++) {
            uint32_t told =
                c->in_air[((size_t)move->from * (size_t)size + (size_t)rank) * (size_t)size + (size_t)r];
            known[r] = told > known[r] ? told : known[r];
        }
    if (move->bits & (MOVE_RECV_OUT | MOVE_STORE | MOVE_IDENTITY))
        check_lent(c, rank, at);
    known[rank] = at + 1;
    if (move->bits & MOVE_SEND)
        memcpy(&c->in_air[((size_t)rank * (size_t)size + (size_t)move->to) * (size_t)size], known,
               (size_t)size * sizeof *known);
    if ((plan->moves[at].bits & ~(last_bit - 1) & ~move->bits) == 0) /* nothing of it is left to be shown */
        c->done[rank]++;
}

static void check_order(const struct cast *cast, int rank)
{
    const struct plan *plan = &cast->plans[rank];
    struct range last = {0, 0};
    uint32_t step = 0;
    bool received = false; /* at this step */

    for (uint32_t i = 0; i < plan->move_count; i++) {
        const struct move *m = &plan->moves[i];
        bool recv = m->bits & MOVE_RECV, send = m->bits & MOVE_SEND;
        struct range range = plan_move_range(plan, 0, m);
        bool ok = (!recv || m->from_step >= step) &&
                  (!send || m->to_step > step || (m->to_step == step && !received));
        ok = ok && (!recv || !send || m->from_step < m->to_step) && (recv || m->from == RANK_NONE) &&
             (send || m->to == RANK_NONE) && (!recv || m->from != rank) && (!send || m->to != rank);
        if (!ok)
            fail_msg("%s: rank %d, move %u: steps fall", trial_name(cast->trial), rank, i);
        uint32_t now = send ? m->to_step : recv ? m->from_step : step;
        received = send ? false : recv || (received && now == step);
        step = now;
        if (m->bits & MOVE_LOAD)
            last = range;
        bool combines = m->bits & (MOVE_RECV_ACC | MOVE_OWN), uses = m->bits & (MOVE_STORE | MOVE_SEND_ACC);
        bool inside = range.offset >= last.offset && range.offset + range.count <= last.offset + last.count;
        if ((combines || uses) && range.count > 0 && !inside)
            fail_msg("%s: rank %d, move %u: accumulator grows", trial_name(cast->trial), rank, i);
        if (combines)
            last = range;
    }
}

static void plans_write(struct cast *cast)
{
    size_t *column = calloc((size_t)cast->size, sizeof *column);

    for (int r = 0; r < cast->size; r++) {
        struct plan_call call = trial_call(cast->trial, r, column);
        write_ok(&call, &cast->heap, &cast->plans[r]);
        check_order(cast, r);
    }
    free(column);
}

void trial_check_moves(const struct trial *trial)
{
    size_t size = (size_t)trial->call.size;
    struct cast cast = {.trial = trial, .size = trial->call.size, .plans = calloc(size, sizeof *cast.plans)};
    struct causality c = {&cast, calloc(size * size, sizeof *c.known),
                          calloc(size * size * size, sizeof *c.in_air), calloc(size, sizeof *c.done)};
    struct dry_net net = {.inside = trial->inside,
                          .across = trial->across,
                          .host = trial->call.host,
                          .slots = 1,
                          .observer = observe,
                          .observer_arg = &c};
    struct dry_result result;
    struct error error;

    heap_init(&cast.heap, 0);
    plans_write(&cast);
    assert_true(cast.plans[0].lanes <= 1);
    if (dryrun(cast.plans, cast.size, &net, &cast.heap, &result, &error) != HEARTH_OK)
        fail_msg("%s: %s", trial_name(trial), error.text);
    for (int r = 0; r < cast.size; r++) {
        if (cast.plans[r].lanes > 0)
            assert_int_equal(c.done[r], cast.plans[r].move_count);
        plan_fini(&cast.plans[r]);
    }
    free(cast.plans);
    free(c.known);
    free(c.in_air);
    free(c.done);
}
