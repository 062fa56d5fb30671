/* SPDX-License-Identifier: Apache-2.0 */
/* powersgd: factors are arrays that are summed by rounds.
 *
 *   P = M Q, summed, made orthonormal; Q = M^T P, summed; out = P Qsum^T          two sums
 *   alternating: even steps sum P for the kept Q, odd steps Q for the kept P      one sum
 *
 * The last sum, made orthonormal, is what the next step starts from. M stands in the residual's shadow. */
#include "compress/powersgd.h"

#include <assert.h>
#include <float.h>
#include <string.h>

#include "compress/load.h"
#include "core/hash.h"
#include "gradient/codec_pool.h"

#define PIECE   (1u << 20) /* elements of a piece of work, about */
#define LABEL_Q 1          /* so that factors are drawn by different keys */
#define LABEL_P 2

enum { POWER_LOAD, POWER_SUM_P, POWER_SUM_Q, POWER_DONE };

struct power {
    struct matrix m;
    int stage;
    bool send_p, send_q;
    float *p, *q;         /* ours: what this member's factors are */
    float *p_sum, *q_sum; /* of all */
    size_t row_pieces, column_pieces;
    struct energy *energies; /* [row_pieces] */
    struct rounds *rounds;
};

static struct matrix matrix_of(const struct reduction_call *call)
{
    struct matrix m = {.rows = call->rows, .columns = call->columns};
    m.rank = powersgd_rank(&call->codec, m.rows, m.columns);
    return m;
}

static size_t factors_len(const struct matrix *m)
{
    return 2 * (m->rows + m->columns) * m->rank * sizeof(float);
}

/* Factors of a state live as long as it does; the shadows are where the next ones are written. */
static int factors_make(struct reduction *r, struct power *p)
{
    struct tensor_state *state = r->call.state;
    size_t lengths[FACTOR_COUNT] = {[FACTOR_Q] = p->m.columns, [FACTOR_P] = p->m.rows};
    if (!state)
        return HEARTH_OK;
    assert(state->factor_rank == 0 || state->factor_rank == p->m.rank); /* tensor_reshape has seen to it */
    state->factor_rank = p->m.rank;
    for (int i = 0; i < FACTOR_COUNT; i++) {
        if (i == FACTOR_P && !r->call.codec.alternate)
            continue;
        if (!state->factor_shadow[i])
            state->factor_shadow[i] =
                heap_alloc_raw(r->call.group->node->heap, lengths[i] * p->m.rank, sizeof(float));
        if (!state->factor_shadow[i])
            return error_set(&r->error, HEARTH_NO_MEMORY, r->rank, "no memory for the factors of powersgd");
    }
    return HEARTH_OK;
}

static bool factor_kept(const struct reduction *r, int which)
{
    return r->call.state && r->call.state->factor[which];
}

static size_t pieces_of(const struct reduction *r, size_t length)
{
    size_t pieces = r->call.count / PIECE + 1;
    return pieces < length ? pieces : length;
}

static int power_open(struct reduction *r)
{
    struct matrix m = matrix_of(&r->call);
    struct power *p = reduction_take(r, sizeof *p);
    float *factors = reduction_take(r, factors_len(&m));
    struct energy *energies = reduction_energies(r, pieces_of(r, m.rows));
    if (!p || !factors || !energies)
        return r->error.status;
    *p = (struct power){.m = m,
                        .row_pieces = pieces_of(r, m.rows),
                        .column_pieces = pieces_of(r, m.columns),
                        .energies = energies};
    int status = factors_make(r, p);
    if (status != HEARTH_OK)
        return status;
    bool alternate = r->call.codec.alternate, odd = alternate && (r->call.state->step & 1) != 0;
    p->send_q = !alternate || (odd && factor_kept(r, FACTOR_P));
    p->send_p = !alternate || !p->send_q;
    p->p = factors;
    p->p_sum = p->p + m.rows * m.rank;
    p->q = p->p_sum + m.rows * m.rank;
    p->q_sum = p->q + m.columns * m.rank;
    r->work = p;
    return HEARTH_OK;
}

static void power_close(struct reduction *r, bool failed)
{
    struct power *p = r->work;
    rounds_close(p->rounds, r, failed);
}

/* ---- pieces ---- */

static void load_piece(void *arg, size_t piece)
{
    struct reduction *r = arg;
    struct power *p = r->work;
    struct feed feed = reduction_feed(r);
    feed.energy = r->call.feedback ? &p->energies[piece] : NULL;
    struct factors factors = {.p = p->p, .q = p->send_p ? p->q : NULL};
    if (powersgd_load(&p->m, r->kernels, &feed, &factors, share_at(p->m.rows, piece, p->row_pieces),
                      share_at(p->m.rows, piece + 1, p->row_pieces)) != HEARTH_OK)
        atomic_store(&r->poisoned, true);
}

static void project_piece(void *arg, size_t piece)
{
    struct reduction *r = arg;
    struct power *p = r->work;
    struct feed feed = reduction_feed(r);
    struct factors factors = {.p = p->p_sum, .q = p->q};
    powersgd_project(&p->m, r->kernels, &feed, &factors, share_at(p->m.columns, piece, p->column_pieces),
                     share_at(p->m.columns, piece + 1, p->column_pieces));
}

/* ---- sums ---- */

/* Poisoned input must not travel; the vote tells all. */
static void make_harmless(struct reduction *r, float *factor, size_t count)
{
    if (atomic_load(&r->poisoned) || r->kernels->quant->largest(factor, count) > FINITE_MAX) {
        atomic_store(&r->poisoned, true);
        memset(factor, 0, count * sizeof *factor);
    }
}

static int sum_start(struct reduction *r, struct power *p, float *own, float *sum, size_t length)
{
    size_t count = length * p->m.rank;
    make_harmless(r, own, count);
    struct array array = {
        .codec = codec_of_values(VALUES_F32),
        .feed = {.dtype = HEARTH_F32, .x = own, .gain = 1},
        .count = count,
        .out = {.out = sum, .dtype = HEARTH_F32, .divisor = 1},
    };
    array.algo = rounds_algo(r, &array.codec, count);
    rounds_close(p->rounds, r, false);
    p->rounds = rounds_open(r, &array);
    return p->rounds ? HEARTH_OK : r->error.status;
}

/* Products of a factor with an orthonormal one stay finite then. */
static int sum_check(struct reduction *r, const struct power *p, const float *sum, size_t length)
{
    float limit = FLT_MAX / (float)(2 * p->m.rank);
    for (size_t i = 0; i < length * p->m.rank; i++)
        if (!(sum[i] >= -limit && sum[i] <= limit))
            return reduction_poison(r);
    return HEARTH_OK;
}

static void q_begin(struct reduction *r, struct power *p)
{
    size_t count = p->m.columns * p->m.rank;
    if (factor_kept(r, FACTOR_Q))
        memcpy(p->q, r->call.state->factor[FACTOR_Q], count * sizeof(float));
    else
        powersgd_seed(r->kernels, hash_mix(r->key, LABEL_Q), p->m.columns, p->m.rank, p->q);
}

static int load_all(struct reduction *r, struct power *p)
{
    if (p->send_p)
        q_begin(r, p);
    reduction_compress(r, load_piece, r, p->row_pieces);
    if (p->send_p) {
        p->stage = POWER_SUM_P;
        return sum_start(r, p, p->p, p->p_sum, p->m.rows);
    }
    memcpy(p->p_sum, r->call.state->factor[FACTOR_P], p->m.rows * p->m.rank * sizeof(float));
    reduction_compress(r, project_piece, r, p->column_pieces);
    p->stage = POWER_SUM_Q;
    return sum_start(r, p, p->q, p->q_sum, p->m.columns);
}

/* P has been summed: it is either all, or what Q is made with. */
static int after_p(struct reduction *r, struct power *p)
{
    int status = sum_check(r, p, p->p_sum, p->m.rows);
    if (status != HEARTH_OK)
        return status;
    if (!p->send_q) {
        p->stage = POWER_DONE;
        return HEARTH_OK;
    }
    powersgd_orthonormal(r->kernels, hash_mix(r->key, LABEL_P), p->m.rows, p->m.rank, p->p_sum);
    reduction_compress(r, project_piece, r, p->column_pieces);
    p->stage = POWER_SUM_Q;
    return sum_start(r, p, p->q, p->q_sum, p->m.columns);
}

static int advance(struct reduction *r, struct power *p)
{
    if (p->stage == POWER_LOAD)
        return load_all(r, p);
    if (p->stage == POWER_SUM_P)
        return after_p(r, p);
    p->stage = POWER_DONE;
    return sum_check(r, p, p->q_sum, p->m.columns);
}

static enum step power_step(struct reduction *r)
{
    struct power *p = r->work;
    if (p->stage == POWER_DONE)
        return STEP_DONE;
    if (p->rounds) {
        enum step step = rounds_step(p->rounds, r);
        if (step != STEP_DONE)
            return step;
    }
    return step_of(advance(r, p));
}

/* ---- the end ---- */

static struct powersgd_end end_of(const struct reduction *r, const struct power *p)
{
    struct powersgd_end end = {
        .out = r->call.buffer, .residual = r->e_new, .dtype = r->call.dtype, .divisor = r->divisor};
    end.p_sum = p->p_sum;
    end.q_sum = p->send_q ? p->q_sum : p->q;
    end.p_own = p->send_q ? p->p_sum : p->p;
    end.q_own = r->call.feedback ? p->q : NULL;
    return end;
}

static void finish_piece(void *arg, size_t piece)
{
    struct reduction *r = arg;
    struct power *p = r->work;
    struct powersgd_end end = end_of(r, p);
    end.energy = r->call.feedback ? &p->energies[piece] : NULL;
    /* The factors were found small enough: what is not finite now is so only in the tensor's own type. */
    int ignored = powersgd_finish(&p->m, r->kernels, &end, share_at(p->m.rows, piece, p->row_pieces),
                                  share_at(p->m.rows, piece + 1, p->row_pieces));
    (void)ignored;
}

static void factor_keep(struct reduction *r, struct power *p, int which, const float *sum, size_t length)
{
    struct tensor_state *state = r->call.state;
    float *next = state->factor_shadow[which];
    memcpy(next, sum, length * p->m.rank * sizeof *next);
    powersgd_orthonormal(r->kernels, hash_mix(r->key, which == FACTOR_Q ? LABEL_Q : LABEL_P), length,
                         p->m.rank, next);
    tensor_swap_factor(state, which);
}

static void power_publish(struct reduction *r)
{
    struct power *p = r->work;
    reduction_expand(r, finish_piece, r, p->row_pieces);
    reduction_measure(r, p->energies, p->row_pieces);
    if (!r->call.state)
        return;
    if (p->send_q)
        factor_keep(r, p, FACTOR_Q, p->q_sum, p->m.columns);
    else
        factor_keep(r, p, FACTOR_P, p->p_sum, p->m.rows);
}

static size_t power_memory(const struct reduction_call *call, int size)
{
    struct matrix m = matrix_of(call);
    struct codec values = codec_of_values(VALUES_F32);
    size_t longer = (m.rows > m.columns ? m.rows : m.columns) * m.rank;
    return 2 * factors_len(&m) + rounds_memory(&values, REDUCTION_OWNER, longer, size) +
           (call->feedback ? 0 : call->count * residual_size(call->dtype));
}

const struct method method_powersgd = {
    .open = power_open,
    .step = power_step,
    .publish = power_publish,
    .close = power_close,
    .memory = power_memory,
    .works_in_shadow = true,
};
