/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels on matrices: every set gives the bits of scalar, at every rank, and touches nothing else; and
 * scalar does what its contract says, in that order. */
#include <math.h>

#include "cases.h"
#include "support/suite.h"

#define COLUMNS_MAX 600 /* more than two pieces of a vector kernel */
#define ROWS_MAX    9
#define GUARD       16 /* elements */
#define STRIDE      (COLUMNS_MAX + 19)
#define FACTOR_MAX  (MATRIX_RANK_MAX * STRIDE)
#define PIECE_MAX   (MATRIX_RANK_MAX * MATRIX_GRAM_ROWS)
#define SQUARE_MAX  (MATRIX_RANK_MAX * MATRIX_RANK_MAX)

/* What goes in and comes out. One float off the alignment of a register, as memory may be. */
struct example {
    float odd;
    float m[ROWS_MAX * STRIDE], e[COLUMNS_MAX], q[FACTOR_MAX], p[ROWS_MAX * MATRIX_RANK_MAX];
    float single[GUARD + FACTOR_MAX + GUARD]; /* target of load, collect and expand */
    float sum[GUARD + MATRIX_RANK_MAX + GUARD];
    double square[GUARD + SQUARE_MAX + GUARD], piece[GUARD + PIECE_MAX + GUARD];
};

static struct example before, expected, got;

/* Wild: any bits, with infinities and NaNs. Tame: small numbers. */
static void example_fill(struct example *e, uint64_t seed, bool wild)
{
    float *single[] = {e->m, e->e, e->q, e->p, e->single, e->sum};
    const size_t single_count[] = {sizeof e->m / 4, sizeof e->e / 4,      sizeof e->q / 4,
                                   sizeof e->p / 4, sizeof e->single / 4, sizeof e->sum / 4};
    double *wide[] = {e->square, e->piece};
    const size_t wide_count[] = {sizeof e->square / 8, sizeof e->piece / 8};
    for (int i = 0; i < 6; i++)
        for (size_t at = 0; at < single_count[i]; at++)
            single[i][at] = (float)(int64_t)cases_next(&seed) * 0x1p-60f;
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < wide_count[i]; at++)
            wide[i][at] = (double)(int64_t)cases_next(&seed) * 0x1p-60;
    if (!wild)
        return;
    for (int i = 0; i < 6; i++)
        cases_fill(&seed, HEARTH_F32, single[i], single_count[i]);
    for (int i = 0; i < 2; i++)
        cases_fill(&seed, HEARTH_F64, wide[i], wide_count[i]);
}

struct shape {
    uint32_t rank;
    size_t columns, rows;
    int variant;
};

enum { LOAD, COLLECT, EXPAND, GRAM, MIX, KERNELS };

/* Variants: with and without e, near and far, one row and two, set and add, in place. */
static void run(const struct kernels *set, int kernel, struct shape s, struct example *e)
{
    const struct matrix_kernels *matrix = set->matrix;
    float *target = e->single + GUARD + (s.variant & 1 ? 0 : 3); /* aligned to 64 bytes, or not */
    size_t whole = (s.columns + MATRIX_LANES - 1) / MATRIX_LANES * MATRIX_LANES;
    const struct turned q = {e->q, STRIDE, s.rank};
    const struct rows m = {e->m, STRIDE, s.rows, 0};
    struct row_in in = {e->m, s.variant & 2 ? e->e : NULL, target, 0.7f, s.variant & 4, 8};
    struct rows_out out = {{e->p, e->p + s.rank}, {target, target + STRIDE}, s.variant & 2, s.variant & 4, 8};
    switch (kernel) {
    case LOAD:
        if (s.variant == 7) { /* in place */
            in.m = e->e;
            in.far = false;
        }
        matrix->load(&in, &q, s.columns, e->sum + GUARD);
        break;
    case COLLECT:
        matrix->collect(&m, e->p, s.rank, whole, target, STRIDE);
        break;
    case EXPAND:
        if (s.rows == 1) {
            out.p[1] = out.p[0];
            out.target[1] = out.target[0];
        }
        matrix->expand(&out, &q, s.columns);
        break;
    case GRAM:
        matrix->gram(e->piece + GUARD, s.rank, e->square + GUARD);
        break;
    case MIX:
        matrix->mix(e->piece + GUARD, s.rank, e->square + GUARD);
        break;
    }
    matrix->settle();
}

/* Some kernels leave any NaN. */
static void make_canonical(struct example *e)
{
    static struct example copy;
    memcpy(&copy, e, sizeof copy);
    sets[0]->widen(HEARTH_F32, e->e, copy.e, sizeof copy.e / 4);
    sets[0]->widen(HEARTH_F32, e->single, copy.single, sizeof copy.single / 4);
}

/* The whole example is compared: what is around the target too. */
static void check_shape(struct shape s, bool wild)
{
    for (int kernel = 0; kernel < KERNELS; kernel++) {
        example_fill(&before, s.rank * 1000 + s.columns, wild);
        for (uint32_t k = 0; k < s.rank; k++) /* as whoever turns a factor does */
            memset(before.q + k * STRIDE + s.columns, 0, (STRIDE - s.columns) * sizeof(float));
        memcpy(&expected, &before, sizeof before);
        run(sets[0], kernel, s, &expected);
        make_canonical(&expected);
        for (int i = 1; i < set_count; i++) {
            memcpy(&got, &before, sizeof before);
            run(sets[i], kernel, s, &got);
            make_canonical(&got);
            if (memcmp(&got, &expected, sizeof got) != 0)
                fail_msg("%s, kernel %d, rank %u, %zu columns, %zu rows, variant %d, wild %d", sets[i]->name,
                         kernel, (unsigned)s.rank, s.columns, s.rows, s.variant, wild);
        }
    }
}

TEST(sets_give_the_same_bits)
{
    const size_t columns[] = {1, 15, 16, 17, 64, 255, 256, 257, 271, 272, 590};
    int number = 0;
    for (uint32_t rank = 4; rank <= MATRIX_RANK_MAX; rank += rank < 12 ? 4 : 20)
        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
            for (int variant = 0; variant < 8; variant++, number++)
                check_shape((struct shape){rank, columns[c], 1 + (size_t)number % ROWS_MAX, variant},
                            number / ROWS_MAX % 2);
}

/* Numbers of which no two orders give the same sum. */
TEST(sums_have_their_order)
{
    const struct matrix_kernels *matrix = sets[0]->matrix;
    float m[64], q[64], lane[16] = {0};
    uint64_t seed = 1;
    for (int j = 0; j < 64; j++) {
        m[j] = (float)(int64_t)cases_next(&seed) * 0x1p-60f;
        q[j] = (float)(int64_t)cases_next(&seed) * 0x1p-63f;
    }
    for (int j = 0; j < 64; j++) {
        float product = m[j] * q[j];
        lane[j % 16] += product;
    }
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    const struct row_in row = {m, NULL, m, 1, false, 0};
    float padded[4][64] = {{0}}, sums[4] = {0.1f};
    memcpy(padded[0], q, sizeof q);
    matrix->load(&row, &(struct turned){padded[0], 64, 4}, 64, sums);
    assert_int_equal(f32_bits(sums[0]), f32_bits(0.1f + lane[0]));

    float total[4 * 16] = {1, 2, 3}, t[16] = {1, 2, 3};
    float p[12] = {0.3f, -0.7f, 0.11f, 5, 0.9f, 0.2f, -1.3f, 0.77f, 0.6f, 0.13f, 0.4f, -0.1f};
    matrix->collect(&(struct rows){m, 16, 3, 0}, p, 4, 16, total, 16);
    assert_int_equal(f32_bits(total[1]), f32_bits(2 + m[1] * p[0] + m[17] * p[4] + m[33] * p[8]));
    const struct rows_out rows = {{p, p}, {t, t}, true, false, 0};
    float eight[8 * 16];
    memcpy(eight, q, 64 * sizeof *q);
    memcpy(eight + 64, m, 64 * sizeof *m);
    matrix->expand(&rows, &(struct turned){eight, 16, 8}, 16);
    float low = p[0] * q[2] + p[1] * q[18] + p[2] * q[34] + p[3] * q[50];
    float high = p[4] * m[2] + p[5] * m[18] + p[6] * m[34] + p[7] * m[50];
    assert_int_equal(f32_bits(t[2]), f32_bits(3 + low + high));
}

TEST(what_is_not_finite_shows_in_the_sums)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int set = 0; set < set_count; set++)
        for (size_t at = 0; at < 40; at++)
            for (int i = 0; i < 3; i++) {
                float x[40] = {0}, m[40], q[4][48] = {{0}}, sum[4] = {0};
                const struct row_in row = {x, NULL, m, 1, false, 0};
                x[at] = bad[i];
                sets[set]->matrix->load(&row, &(struct turned){q[0], 48, 4}, 40, sum);
                assert_false(isfinite(sum[0]) || isfinite(sum[3]));
            }
}

TEST(gram_and_mix_do_what_they_say)
{
    enum { RANK = 3, ROWS = MATRIX_GRAM_ROWS };
    double piece[RANK * ROWS], mixed[RANK * ROWS], square[RANK * RANK] = {0};
    double upper[RANK * RANK] = {2, 3, 5, 99, 7, 11, 99, 99, 13}; /* what is below is not looked at */
    uint64_t seed = 2;
    for (int i = 0; i < RANK * ROWS; i++)
        piece[i] = (double)(cases_next(&seed) % 1000); /* so that all sums are exact */
    memcpy(mixed, piece, sizeof mixed);
    for (int turn = 0; turn < 2; turn++)
        sets[0]->matrix->gram(piece, RANK, square);
    sets[0]->matrix->mix(mixed, RANK, upper);
    for (int a = 0; a < RANK; a++)
        for (int b = 0; b < RANK; b++) {
            double sum = 0;
            for (int i = 0; i < ROWS; i++)
                sum += 2 * piece[a * ROWS + i] * piece[b * ROWS + i];
            assert_true(square[a * RANK + b] == (a <= b ? sum : 0));
        }
    for (int i = 0; i < ROWS; i++) {
        const double *x = piece + i;
        assert_true(mixed[i] == 2 * x[0]);
        assert_true(mixed[ROWS + i] == 3 * x[0] + 7 * x[ROWS]);
        assert_true(mixed[2 * ROWS + i] == 5 * x[0] + 11 * x[ROWS] + 13 * x[2 * ROWS]);
    }
}
