/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels on matrices: every set gives the bits of scalar, at every rank, and touches nothing else; and
 * scalar does what its contract says, in that order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "cases.h"

#define COLUMNS_MAX 80
#define ROWS_MAX    9
#define GUARD       16 /* elements */
#define FACTOR_MAX  (MATRIX_RANK_MAX * (COLUMNS_MAX + 3))
#define SUMS_MAX    (MATRIX_RANK_MAX * COLUMNS_MAX)
#define PIECE_MAX   (MATRIX_RANK_MAX * MATRIX_GRAM_ROWS)
#define SQUARE_MAX  (MATRIX_RANK_MAX * MATRIX_RANK_MAX)

static const struct kernels *sets[CASE_SETS_MAX];
static int set_count;

/* What goes in and comes out. One float off the alignment of a register, as memory may be. */
struct example {
    float odd;
    float m[ROWS_MAX * (COLUMNS_MAX + 5)], q[FACTOR_MAX], p[ROWS_MAX * MATRIX_RANK_MAX];
    float single[GUARD + SUMS_MAX + GUARD]; /* target of dot, collect and expand */
    double square[GUARD + SQUARE_MAX + GUARD], piece[GUARD + PIECE_MAX + GUARD];
};

static struct example before, expected, got;

/* Wild: any bits, with infinities and NaNs. Tame: small numbers. */
static void example_fill(struct example *e, uint64_t seed, bool wild)
{
    float *single[] = {e->m, e->q, e->p, e->single};
    const size_t single_count[] = {sizeof e->m / 4, sizeof e->q / 4, sizeof e->p / 4, sizeof e->single / 4};
    double *wide[] = {e->square, e->piece};
    const size_t wide_count[] = {sizeof e->square / 8, sizeof e->piece / 8};
    for (int i = 0; i < 4; i++)
        for (size_t at = 0; at < single_count[i]; at++)
            single[i][at] = (float)(int64_t)cases_next(&seed) * 0x1p-60f;
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < wide_count[i]; at++)
            wide[i][at] = (double)(int64_t)cases_next(&seed) * 0x1p-60;
    if (!wild)
        return;
    for (int i = 0; i < 4; i++)
        cases_fill(&seed, HEARTH_F32, single[i], single_count[i]);
    for (int i = 0; i < 2; i++)
        cases_fill(&seed, HEARTH_F64, wide[i], wide_count[i]);
}

struct shape {
    uint32_t rank;
    size_t columns, rows;
};

enum { DOT, COLLECT, EXPAND, GRAM, MIX, KERNELS };

static void run(const struct kernels *set, int kernel, struct shape s, struct example *e)
{
    const struct matrix_kernels *matrix = set->matrix;
    struct turned q = {e->q, s.columns + 3, s.rank};
    struct rows m = {e->m, COLUMNS_MAX + 5, s.rows};
    switch (kernel) {
    case DOT:
        matrix->dot(e->m, &q, s.columns, e->single + GUARD);
        break;
    case COLLECT:
        matrix->collect(&m, e->p, s.rank, s.columns, e->single + GUARD);
        break;
    case EXPAND:
        matrix->expand(&q, e->p, s.columns, e->single + GUARD);
        break;
    case GRAM:
        matrix->gram(e->piece + GUARD, s.rank, e->square + GUARD);
        break;
    case MIX:
        matrix->mix(e->piece + GUARD, s.rank, e->square + GUARD);
        break;
    }
}

/* The whole example is compared: what is around the target too. */
static void check_shape(struct shape s, bool wild)
{
    for (int kernel = 0; kernel < KERNELS; kernel++) {
        example_fill(&before, s.rank * 1000 + s.columns, wild);
        memcpy(&expected, &before, sizeof before);
        run(sets[0], kernel, s, &expected);
        for (int i = 1; i < set_count; i++) {
            memcpy(&got, &before, sizeof before);
            run(sets[i], kernel, s, &got);
            if (memcmp(&got, &expected, sizeof got) != 0)
                fail_msg("%s, kernel %d, rank %u, %zu columns, %zu rows, wild %d", sets[i]->name, kernel,
                         (unsigned)s.rank, s.columns, s.rows, wild);
        }
    }
}

static void sets_give_the_same_bits(void **state)
{
    (void)state;
    for (uint32_t rank = 1; rank <= MATRIX_RANK_MAX; rank++)
        for (size_t columns = 16; columns <= COLUMNS_MAX; columns += 16)
            for (int wild = 0; wild < 2; wild++)
                check_shape((struct shape){rank, columns, 1 + (rank + columns / 16) % ROWS_MAX}, wild);
}

/* Numbers of which no two orders give the same sum. */
static void sums_have_their_order(void **state)
{
    const struct matrix_kernels *matrix = sets[0]->matrix;
    float m[64], q[64], sum[1] = {0.1f}, lane[16] = {0};
    uint64_t seed = 1;
    (void)state;
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
    matrix->dot(m, &(struct turned){q, 64, 1}, 64, sum);
    assert_int_equal(bits_of_f32(sum[0]), bits_of_f32(0.1f + lane[0]));

    float total[16] = {1, 2, 3}, p[4] = {0.3f, -0.7f, 0.11f, 5}, t[16];
    matrix->collect(&(struct rows){m, 16, 3}, p, 1, 16, total);
    assert_int_equal(bits_of_f32(total[1]), bits_of_f32(2 + m[1] * p[0] + m[17] * p[1] + m[33] * p[2]));
    matrix->expand(&(struct turned){q, 16, 4}, p, 16, t);
    assert_int_equal(bits_of_f32(t[2]),
                     bits_of_f32(p[0] * q[2] + p[1] * q[18] + p[2] * q[34] + p[3] * q[50]));
}

static void gram_and_mix_do_what_they_say(void **state)
{
    enum { RANK = 3, ROWS = MATRIX_GRAM_ROWS };
    double piece[RANK * ROWS], mixed[RANK * ROWS], square[RANK * RANK] = {0};
    double upper[RANK * RANK] = {2, 3, 5, 99, 7, 11, 99, 99, 13}; /* what is below is not looked at */
    uint64_t seed = 2;
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_give_the_same_bits),
        cmocka_unit_test(sums_have_their_order),
        cmocka_unit_test(gram_and_mix_do_what_they_say),
    };
    set_count = cases_sets(sets);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
