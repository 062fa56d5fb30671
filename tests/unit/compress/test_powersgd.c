/* SPDX-License-Identifier: Apache-2.0 */
/* powersgd: what it captures, what it keeps, and that nothing but the numbers decides its bits. */
#include <math.h>

#include "compress/powersgd.h"
#include "core/prng.h"
#include "numbers.h"
#include "support/suite.h"

#define MEMBERS_MAX 3

static void *room(size_t len)
{
    void *at = calloc(1, len);
    assert_non_null(at);
    return at;
}

static void *copy_of(const void *source, size_t len)
{
    void *at = room(len);
    memcpy(at, source, len);
    return at;
}

/* Between -1 and 1. */
static void fill(struct prng *prng, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(2 * prng_unit(prng) - 1);
}

/* x = sum of share[k] a_k b_k^T with random a, b. */
static void fill_low_rank(struct prng *prng, const struct matrix *m, const double *share, uint32_t rank,
                          float *x)
{
    float *a = room(m->rows * sizeof *a), *b = room(m->columns * sizeof *b);
    memset(x, 0, m->rows * m->columns * sizeof *x);
    for (uint32_t k = 0; k < rank; k++) {
        fill(prng, a, m->rows);
        fill(prng, b, m->columns);
        for (size_t i = 0; i < m->rows; i++)
            for (size_t j = 0; j < m->columns; j++)
                x[i * m->columns + j] += (float)share[k] * a[i] * b[j];
    }
    free(a);
    free(b);
}

static double norm(const float *x, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* The largest entry of |F^T F - 1|. */
static double off_orthonormal(const float *factor, size_t length, uint32_t rank)
{
    double worst = 0;
    for (uint32_t a = 0; a < rank; a++)
        for (uint32_t b = a; b < rank; b++) {
            double sum = a == b ? -1 : 0;
            for (size_t i = 0; i < length; i++)
                sum += (double)factor[i * rank + a] * (double)factor[i * rank + b];
            worst = fabs(sum) > worst ? fabs(sum) : worst;
        }
    return worst;
}

/* ---- a step of several members ------------------------------------------------------------------------- */

/* All memory of a step. Residuals and out are f64 for f64 tensors; x and out are of the tensor's type. */
struct step {
    struct matrix m;
    enum hearth_dtype dtype;
    int members;
    void *x[MEMBERS_MAX], *residual[MEMBERS_MAX], *out;
    float *p, *q, *p_own[MEMBERS_MAX], *q_own[MEMBERS_MAX];
    struct energy energy;
};

static size_t element_count(const struct step *s)
{
    return s->m.rows * s->m.columns;
}

static size_t residual_len(const struct step *s)
{
    return element_count(s) * (s->dtype == HEARTH_F64 ? sizeof(double) : sizeof(float));
}

static void step_init(struct step *s, const struct matrix *m, enum hearth_dtype dtype, int members)
{
    *s = (struct step){.m = *m, .dtype = dtype, .members = members};
    s->p = room(m->rows * m->rank * sizeof(float));
    s->q = room(m->columns * m->rank * sizeof(float));
    s->out = room(element_count(s) * dtype_size(dtype));
    for (int i = 0; i < members; i++) {
        s->x[i] = room(element_count(s) * dtype_size(dtype));
        s->residual[i] = room(residual_len(s));
        s->p_own[i] = room(m->rows * m->rank * sizeof(float));
        s->q_own[i] = room(m->columns * m->rank * sizeof(float));
    }
}

static void step_fini(struct step *s)
{
    for (int i = 0; i < s->members; i++) {
        free(s->x[i]);
        free(s->residual[i]);
        free(s->p_own[i]);
        free(s->q_own[i]);
    }
    free(s->p);
    free(s->q);
    free(s->out);
}

static void add_all(float *sum, float *const *own, int members, size_t count)
{
    memset(sum, 0, count * sizeof *sum);
    for (int member = 0; member < members; member++)
        for (size_t i = 0; i < count; i++)
            sum[i] += own[member][i];
}

/* Ranges of `cut` rows or columns. 0: all at once. */
static size_t cut_end(size_t from, size_t cut, size_t end)
{
    return cut == 0 || end - from < cut ? end : from + cut;
}

/* s->q is the warm start and becomes the sum of Q. The last status that is not OK counts. */
static int step_run(struct step *s, const struct kernels *kernels, size_t cut)
{
    int status = HEARTH_OK;
    s->energy = (struct energy){0};
    powersgd_orthonormal(kernels, 5, s->m.columns, s->m.rank, s->q);
    for (int i = 0; i < s->members; i++) {
        struct feed feed = {.dtype = s->dtype,
                            .x = s->x[i],
                            .e = s->residual[i],
                            .e_new = s->residual[i],
                            .gain = 1,
                            .energy = &s->energy};
        struct factors factors = {s->p_own[i], s->q};
        for (size_t from = 0, to; from < s->m.rows; from = to) {
            to = cut_end(from, cut, s->m.rows);
            int one = powersgd_load(&s->m, kernels, &feed, &factors, from, to);
            status = one ? one : status;
        }
    }
    add_all(s->p, s->p_own, s->members, s->m.rows * s->m.rank);
    powersgd_orthonormal(kernels, 6, s->m.rows, s->m.rank, s->p);
    for (int i = 0; i < s->members; i++) {
        struct feed feed = {.dtype = s->dtype, .e_new = s->residual[i]};
        struct factors factors = {s->p, s->q_own[i]};
        for (size_t from = 0, to; from < s->m.columns; from = to) {
            to = cut_end(from, cut, s->m.columns);
            powersgd_project(&s->m, kernels, &feed, &factors, from, to);
        }
    }
    add_all(s->q, s->q_own, s->members, s->m.columns * s->m.rank);
    for (int i = 0; i < s->members; i++) {
        struct powersgd_end end = {.p_sum = s->p,
                                   .q_sum = s->q,
                                   .p_own = s->p,
                                   .q_own = s->q_own[i],
                                   .out = s->out,
                                   .residual = s->residual[i],
                                   .dtype = s->dtype,
                                   .divisor = (float)s->members,
                                   .energy = &s->energy};
        for (size_t from = 0, to; from < s->m.rows; from = to) {
            to = cut_end(from, cut, s->m.rows);
            int one = powersgd_finish(&s->m, kernels, &end, from, to);
            status = one ? one : status;
        }
    }
    return status;
}

static double number_at(enum hearth_dtype dtype, const void *x, size_t at)
{
    uint16_t half;
    uint32_t bits;
    float single;
    switch (dtype) {
    case HEARTH_F64:
        return ((const double *)x)[at];
    case HEARTH_BF16:
        memcpy(&half, (const uint16_t *)x + at, sizeof half);
        bits = (uint32_t)half << 16;
        memcpy(&single, &bits, sizeof single);
        return (double)single;
    case HEARTH_F16:
        kernels_named("scalar")->widen(HEARTH_F16, &single, (const uint16_t *)x + at, 1);
        return (double)single;
    default:
        return (double)((const float *)x)[at];
    }
}

static void number_put(enum hearth_dtype dtype, void *x, size_t at, double number)
{
    float single = (float)number;
    if (dtype == HEARTH_F64)
        ((double *)x)[at] = number;
    else
        kernels_named("scalar")->narrow(dtype, (char *)x + at * dtype_size(dtype), &single, 1);
}

static enum hearth_dtype residual_type(const struct step *s)
{
    return s->dtype == HEARTH_F64 ? HEARTH_F64 : HEARTH_F32;
}

/* How much of the inputs is neither in out nor in the residuals, as a share of them. `before`: residuals
 * before the step, or NULL. */
static double lost(const struct step *s, void *const *before)
{
    double lost_square = 0, square = 0;
    for (size_t at = 0; at < element_count(s); at++) {
        double in = 0, out = number_at(s->dtype, s->out, at) * s->members;
        for (int i = 0; i < s->members; i++) {
            in += number_at(s->dtype, s->x[i], at);
            in += before ? number_at(residual_type(s), before[i], at) : 0;
            out += number_at(residual_type(s), s->residual[i], at);
        }
        lost_square += (in - out) * (in - out);
        square += in * in;
    }
    return sqrt(lost_square / square);
}

/* ---- tests --------------------------------------------------------------------------------------------- */

TEST(a_true_low_rank_is_found_at_once)
{
    const double share[] = {1, 0.7, 0.4, 0.2};
    struct prng prng;
    prng_init(&prng, 1);
    for (uint32_t rank = 1; rank <= 4; rank++) {
        struct step s;
        step_init(&s, &(struct matrix){150, 211, rank}, HEARTH_F32, 1);
        fill_low_rank(&prng, &s.m, share, rank, s.x[0]);
        powersgd_seed(kernels_best(), 3, s.m.columns, rank, s.q);
        assert_int_equal(step_run(&s, kernels_best(), 0), HEARTH_OK);
        double left = norm(s.residual[0], element_count(&s)), all = norm(s.x[0], element_count(&s));
        if (left > 1e-5 * all)
            fail_msg("rank %u: %g of %g left", (unsigned)rank, left, all);
        assert_true(s.energy.before > 0 && s.energy.after < 1e-9 * s.energy.before);
        step_fini(&s);
    }
}

/* With the last Q as the next start the best rank-r matrix is neared, with a new one it is not. */
TEST(a_warm_start_converges)
{
    double share[40], best = 0, all = 0, first = 0, left = 0;
    struct prng prng;
    struct step s;
    prng_init(&prng, 2);
    for (int k = 0; k < 40; k++)
        share[k] = pow(0.8, k);
    step_init(&s, &(struct matrix){200, 300, 4}, HEARTH_F32, 1);
    fill_low_rank(&prng, &s.m, share, 40, s.x[0]);
    for (int k = 0; k < 40; k++) {
        all += share[k] * share[k];
        best += k < 4 ? 0 : share[k] * share[k];
    }
    powersgd_seed(kernels_best(), 3, s.m.columns, 4, s.q);
    for (int i = 0; i < 20; i++) {
        memset(s.residual[0], 0, residual_len(&s));
        assert_int_equal(step_run(&s, kernels_best(), 0), HEARTH_OK);
        left = norm(s.residual[0], element_count(&s)) / norm(s.x[0], element_count(&s));
        first = i == 0 ? left : first;
    }
    assert_true(left < first * 0.9);
    assert_true(left < sqrt(best / all) * 1.1);
    step_fini(&s);
}

static void fill_step(struct step *s, uint64_t seed)
{
    struct prng prng;
    prng_init(&prng, seed);
    for (int i = 0; i < s->members; i++)
        for (size_t at = 0; at < element_count(s); at++)
            number_put(s->dtype, s->x[i], at, 2 * prng_unit(&prng) - 1);
    powersgd_seed(kernels_named("scalar"), seed, s->m.columns, s->m.rank, s->q);
}

static const struct matrix shapes[] = {
    {1, 37, 1},  {37, 1, 1},   {7, 13, 3},     {7, 13, 7},     {16, 16, 16},   {65, 4097, 4},
    {64, 64, 5}, {129, 50, 8}, {100, 2100, 2}, {300, 260, 32}, {70, 1400, 12}, {200, 31, 1},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

/* 16 bits: what the result loses by rounding is lost. */
static double tolerance(enum hearth_dtype dtype)
{
    return dtype == HEARTH_F16 ? 1e-3 : dtype == HEARTH_BF16 ? 8e-3 : 1e-6;
}

TEST(nothing_is_lost)
{
    const enum hearth_dtype dtypes[] = {HEARTH_F32, HEARTH_F64, HEARTH_F16, HEARTH_BF16};
    for (size_t shape = 0; shape < SHAPES; shape++)
        for (int d = 0; d < 4; d++) {
            struct step s;
            step_init(&s, &shapes[shape], dtypes[d], MEMBERS_MAX);
            fill_step(&s, shape);
            for (int turn = 0; turn < 2; turn++) {
                void *before[MEMBERS_MAX];
                for (int i = 0; i < MEMBERS_MAX; i++)
                    before[i] = copy_of(s.residual[i], residual_len(&s));
                assert_int_equal(step_run(&s, kernels_best(), 0), HEARTH_OK);
                double share = lost(&s, before);
                if (!(share < tolerance(s.dtype)))
                    fail_msg("%zu x %zu, rank %u, type %d: %g lost", s.m.rows, s.m.columns,
                             (unsigned)s.m.rank, (int)s.dtype, share);
                for (int i = 0; i < MEMBERS_MAX; i++)
                    free(before[i]);
            }
            step_fini(&s);
        }
}

static void assert_same(const struct step *a, const struct step *b)
{
    assert_memory_equal(a->p, b->p, a->m.rows * a->m.rank * sizeof(float));
    assert_memory_equal(a->q, b->q, a->m.columns * a->m.rank * sizeof(float));
    assert_memory_equal(a->out, b->out, element_count(a) * dtype_size(a->dtype));
    for (int i = 0; i < a->members; i++)
        assert_memory_equal(a->residual[i], b->residual[i], residual_len(a));
}

/* Scalar at once is the reference; every set, with every cut, gives its bits. */
TEST(sets_and_cuts_change_nothing)
{
    const size_t cuts[] = {0, 1, 16, 17, 64, 100};
    for (size_t shape = 0; shape < SHAPES; shape++) {
        enum hearth_dtype dtype = shape % 3 == 1 ? HEARTH_F64 : shape % 3 == 2 ? HEARTH_BF16 : HEARTH_F32;
        struct step reference;
        step_init(&reference, &shapes[shape], dtype, 2);
        fill_step(&reference, shape);
        assert_int_equal(step_run(&reference, sets[0], 0), HEARTH_OK);
        for (int set = 0; set < set_count; set++)
            for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
                struct step s;
                step_init(&s, &shapes[shape], dtype, 2);
                fill_step(&s, shape);
                assert_int_equal(step_run(&s, sets[set], cuts[c]), HEARTH_OK);
                assert_same(&reference, &s);
                step_fini(&s);
            }
        step_fini(&reference);
    }
}

TEST(a_zero_matrix_stays_zero)
{
    struct step s;
    step_init(&s, &(struct matrix){40, 50, 4}, HEARTH_F32, 2);
    powersgd_seed(kernels_best(), 1, 50, 4, s.q);
    for (int turn = 0; turn < 3; turn++) { /* from the second on Q is zero too, and drawn anew */
        assert_int_equal(step_run(&s, kernels_best(), 0), HEARTH_OK);
        assert_true(norm(s.out, 2000) == 0 && norm(s.residual[0], 2000) == 0);
        assert_true(off_orthonormal(s.p, 40, 4) < 1e-6);
    }
    step_fini(&s);
}

TEST(bad_numbers_are_found)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++)
        for (size_t at = 0; at < 65 * 70; at += 113) {
            struct step s;
            step_init(&s, &(struct matrix){65, 70, 4}, HEARTH_F32, 1);
            fill_step(&s, 9);
            ((float *)s.x[0])[at] = bad[i];
            struct feed feed = {.dtype = HEARTH_F32, .x = s.x[0], .e_new = s.residual[0], .gain = 1};
            struct factors factors = {s.p, s.q};
            assert_int_equal(powersgd_load(&s.m, kernels_best(), &feed, &factors, 0, 65), HEARTH_POISONED);
            factors.q = NULL;
            assert_int_equal(powersgd_load(&s.m, kernels_best(), &feed, &factors, 0, 65), HEARTH_POISONED);
            step_fini(&s);
        }
}

TEST(a_result_beyond_f32_is_found)
{
    float p[4] = {1, 1, 1, 1}, q[4] = {3e38f, 1, 1, 1}, out[16], half_q[4] = {1e5f, 1, 1, 1};
    uint16_t half[16];
    struct matrix m = {4, 4, 1};
    struct powersgd_end end = {.p_sum = p, .q_sum = q, .out = out, .dtype = HEARTH_F32, .divisor = 0.5f};
    assert_int_equal(powersgd_finish(&m, kernels_best(), &end, 0, 4), HEARTH_POISONED);
    end.divisor = 2;
    assert_int_equal(powersgd_finish(&m, kernels_best(), &end, 0, 4), HEARTH_OK);
    assert_true(out[4] == 1.5e38f && out[15] == 0.5f);
    /* What only the narrow type cannot hold is infinity there, as in a plain all-reduce. */
    end = (struct powersgd_end){.p_sum = p, .q_sum = half_q, .out = half, .dtype = HEARTH_F16, .divisor = 1};
    assert_int_equal(powersgd_finish(&m, kernels_best(), &end, 0, 4), HEARTH_OK);
    assert_int_equal(half[0], 0x7c00);
}

/* Even steps send P for an orthonormal Q; what arrives and what is kept add up all the same. */
TEST(alternating_steps_keep_everything)
{
    struct step s;
    step_init(&s, &(struct matrix){90, 70, 4}, HEARTH_F32, 2);
    fill_step(&s, 4);
    for (int i = 0; i < 2; i++) {
        struct feed feed = {.dtype = HEARTH_F32, .x = s.x[i], .e_new = s.residual[i], .gain = 1};
        struct factors factors = {s.p_own[i], s.q};
        assert_int_equal(powersgd_load(&s.m, kernels_best(), &feed, &factors, 0, 90), HEARTH_OK);
    }
    add_all(s.p, s.p_own, 2, 90 * 4);
    for (int i = 0; i < 2; i++) {
        struct powersgd_end end = {.p_sum = s.p,
                                   .q_sum = s.q,
                                   .p_own = s.p_own[i],
                                   .q_own = s.q,
                                   .out = s.out,
                                   .residual = s.residual[i],
                                   .dtype = HEARTH_F32,
                                   .divisor = 2};
        assert_int_equal(powersgd_finish(&s.m, kernels_best(), &end, 0, 90), HEARTH_OK);
    }
    assert_true(lost(&s, NULL) < 1e-6);
    step_fini(&s);
}

/* ---- orthonormal --------------------------------------------------------------------------------------- */

/* Columns that point nearly the same way: all but the first are it, plus a part of 1 / condition. */
static void fill_narrow(struct prng *prng, float *factor, size_t length, uint32_t rank, double condition)
{
    for (size_t i = 0; i < length; i++) {
        double base = 2 * prng_unit(prng) - 1;
        for (uint32_t k = 0; k < rank; k++)
            factor[i * rank + k] = (float)(base + (k ? (2 * prng_unit(prng) - 1) / condition : 0));
    }
}

TEST(columns_become_orthonormal)
{
    const double conditions[] = {1, 1e3, 1e6};
    const size_t lengths[] = {1, 5, 32, 129, 1000, 4096};
    struct prng prng;
    prng_init(&prng, 5);
    for (size_t l = 0; l < 6; l++)
        for (int c = 0; c < 3; c++)
            for (uint32_t rank = 1; rank <= 32 && rank <= lengths[l]; rank += rank < 9 ? 1 : 23) {
                float *factor = room(lengths[l] * rank * sizeof *factor);
                fill_narrow(&prng, factor, lengths[l], rank, conditions[c]);
                powersgd_orthonormal(kernels_best(), 1, lengths[l], rank, factor);
                double off = off_orthonormal(factor, lengths[l], rank);
                if (!(off < 1e-6))
                    fail_msg("length %zu, rank %u, condition %g: off by %g", lengths[l], (unsigned)rank,
                             conditions[c], off);
                free(factor);
            }
}

/* The columns span what they spanned: what is in the span is left of nothing after its part there is taken
 * away. */
TEST(the_span_stays)
{
    enum { LENGTH = 500, RANK = 6 };
    float before[LENGTH * RANK], after[LENGTH * RANK];
    struct prng prng;
    prng_init(&prng, 6);
    fill_narrow(&prng, before, LENGTH, RANK, 100);
    memcpy(after, before, sizeof after);
    powersgd_orthonormal(kernels_best(), 1, LENGTH, RANK, after);
    for (int k = 0; k < RANK; k++) {
        double left[LENGTH], sum = 0;
        for (int i = 0; i < LENGTH; i++)
            left[i] = (double)before[i * RANK + k];
        for (int c = 0; c < RANK; c++) {
            double dot = 0;
            for (int i = 0; i < LENGTH; i++)
                dot += (double)before[i * RANK + k] * (double)after[i * RANK + c];
            for (int i = 0; i < LENGTH; i++)
                left[i] -= dot * (double)after[i * RANK + c];
        }
        for (int i = 0; i < LENGTH; i++)
            sum += left[i] * left[i];
        assert_true(sqrt(sum) < 1e-4);
    }
}

/* Column 1 repeats column 0, 2 is zero, 4 is not a number, 5 is tiny, 6 huge. */
TEST(useless_columns_are_replaced)
{
    enum { LENGTH = 300, RANK = 8 };
    float factor[LENGTH * RANK], again[LENGTH * RANK], kept[LENGTH];
    struct prng prng;
    prng_init(&prng, 7);
    fill(&prng, factor, LENGTH * RANK);
    for (int i = 0; i < LENGTH; i++) {
        factor[i * RANK + 1] = -3 * factor[i * RANK];
        factor[i * RANK + 2] = 0;
        factor[i * RANK + 4] = i % 2 ? NAN : INFINITY;
        factor[i * RANK + 5] *= 1e-42f;
        factor[i * RANK + 6] *= 3e38f;
        kept[i] = factor[i * RANK];
    }
    memcpy(again, factor, sizeof again);
    powersgd_orthonormal(kernels_best(), 1, LENGTH, RANK, factor);
    assert_true(off_orthonormal(factor, LENGTH, RANK) < 1e-6);
    double length = norm(kept, LENGTH), dot = 0;
    for (int i = 0; i < LENGTH; i++)
        dot += (double)kept[i] * (double)factor[i * RANK] / length;
    assert_true(fabs(dot - 1) < 1e-6); /* the first column only became shorter */
    powersgd_orthonormal(kernels_named("scalar"), 1, LENGTH, RANK, again);
    assert_memory_equal(again, factor, sizeof again);
}

TEST(seeds_are_orthonormal_and_differ)
{
    float one[50 * 4], same[50 * 4], other[50 * 4];
    powersgd_seed(kernels_best(), 1, 50, 4, one);
    powersgd_seed(kernels_named("scalar"), 1, 50, 4, same);
    powersgd_seed(kernels_best(), 2, 50, 4, other);
    assert_memory_equal(one, same, sizeof one);
    assert_memory_not_equal(one, other, sizeof one);
    assert_true(off_orthonormal(one, 50, 4) < 1e-6);
}

TEST(ranks_fit_the_matrix)
{
    struct codec codec = {.kind = CODEC_POWERSGD, .rank = 8};
    assert_int_equal(powersgd_rank(&codec, 100, 100), 8);
    assert_int_equal(powersgd_rank(&codec, 5, 100), 5);
    assert_int_equal(powersgd_rank(&codec, 100, 1), 1);
    assert_true(powersgd_pays(&(struct matrix){100, 100, 8}));
    assert_true(powersgd_pays(&(struct matrix){33, 33, 8}));
    assert_false(powersgd_pays(&(struct matrix){32, 32, 8})); /* just half */
    assert_false(powersgd_pays(&(struct matrix){1, 1000, 1}));
}
