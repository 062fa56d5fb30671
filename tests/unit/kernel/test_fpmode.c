/* SPDX-License-Identifier: Apache-2.0 */
/* Between fpmode_enter and fpmode_leave results don't depend on the caller's modes, and these come back. */
#include <fenv.h>

#include "cases.h"
#include "support/suite.h"

#define COUNT 515

/* What fpmode_leave may put into the control register. */
static const struct {
    const char *name;
    uint64_t bits;
} modes[] = {
#if defined(__x86_64__)
    {"flush to zero", 0x9f80},
    {"denormals are zero", 0x1fc0},
    {"both", 0x9fc0},
    {"down", 0x3f80},
    {"up", 0x5f80},
    {"towards zero", 0x7f80},
    {"both, and up", 0xdfc0},
    {"traps", 0x0000},
    {"flags up", 0x1fbf},
#elif defined(__aarch64__)
    {"flush to zero", 1 << 24},
    {"flush 16-bit numbers to zero", 1 << 19},
    {"up", 1 << 22},
    {"down", 2 << 22},
    {"towards zero", 3 << 22},
    {"default NaN", 1 << 25},
    {"flush, and towards zero", 1 << 24 | 3 << 22},
    {"flags up", UINT64_C(0x1f) << 32},
#else
    {"up", FE_UPWARD},
    {"down", FE_DOWNWARD},
    {"towards zero", FE_TOWARDZERO},
#endif
};

#define MODES (sizeof(modes) / sizeof(modes[0]))

/* All results of a set, one after the other. */
struct results {
    uint64_t reduced[DTYPE_COUNT][KERNEL_OPS][COUNT];
    uint64_t widened[DTYPE_COUNT][COUNT], narrowed[DTYPE_COUNT][COUNT];
    uint64_t scaled[4][COUNT];
};

static uint64_t acc[DTYPE_COUNT][COUNT], source[DTYPE_COUNT][COUNT];

static void compute(const struct kernels *set, struct results *r)
{
    for (int d = 0; d < DTYPE_COUNT; d++) {
        enum hearth_dtype dtype = (enum hearth_dtype)d;
        for (int op = 0; op < cases_ops(d); op++)
            set->reduce(dtype, op, r->reduced[d][op], r->reduced[d][op], source[d], COUNT);
        set->widen(dtype, r->widened[d], source[d], COUNT);
        set->narrow(dtype, r->narrowed[d], source[cases_wide(dtype)], COUNT);
    }
    for (enum hearth_dtype dtype = HEARTH_F32; dtype <= HEARTH_F64; dtype++) {
        set->multiply(dtype, r->scaled[dtype], COUNT, 0.1);
        set->divide(dtype, r->scaled[2 + dtype], COUNT, 3);
    }
}

static void results_init(struct results *r)
{
    memset(r, 0, sizeof *r);
    for (int d = 0; d < DTYPE_COUNT; d++)
        for (int op = 0; op < cases_ops(d); op++)
            memcpy(r->reduced[d][op], acc[d], sizeof acc[d]);
    for (int i = 0; i < 4; i++)
        memcpy(r->scaled[i], source[i % 2 ? HEARTH_F64 : HEARTH_F32], sizeof acc[0]);
}

TEST(results_do_not_depend_on_modes)
{
    static struct results expected, got;
    uint64_t seed = 9;
    for (int d = 0; d < DTYPE_COUNT; d++) {
        cases_fill(&seed, (enum hearth_dtype)d, acc[d], COUNT);
        cases_fill(&seed, (enum hearth_dtype)d, source[d], COUNT);
    }
    for (int s = 0; s < set_count; s++) {
        results_init(&expected);
        compute(sets[s], &expected);
        for (size_t m = 0; m < MODES; m++) {
            results_init(&got);
            uint64_t ours = fpmode_enter();
            fpmode_leave(modes[m].bits);
            uint64_t saved = fpmode_enter();
            compute(sets[s], &got);
            fpmode_leave(saved);
            uint64_t left = fpmode_enter();
            fpmode_leave(ours);
            if (memcmp(&got, &expected, sizeof got))
                fail_msg("%s differs with mode \"%s\"", sets[s]->name, modes[m].name);
            assert_true(saved == modes[m].bits && left == modes[m].bits);
        }
    }
}

/* Without fpmode_enter the modes do matter: else the test above would show nothing. */
TEST(modes_matter)
{
    static struct results expected, got;
    int different = 0;
    results_init(&expected);
    compute(sets[0], &expected);
    for (size_t m = 0; m < 3; m++) {
        results_init(&got);
        uint64_t ours = fpmode_enter();
        fpmode_leave(modes[m].bits);
        compute(sets[0], &got);
        fpmode_leave(ours);
        different += memcmp(&got, &expected, sizeof got) != 0;
    }
    assert_true(different >= 2);
}

/* How the processor rounds, from what it computes: fegetround may ask the wrong unit. */
static int direction_seen(void)
{
    volatile double one = 1, tiny = 0x1p-60;
    volatile double above = one + tiny, below = one - tiny, minus_above = -one + tiny;
    if (above > 1)
        return FE_UPWARD;
    if (below < 1)
        return minus_above > -1 ? FE_TOWARDZERO : FE_DOWNWARD;
    return FE_TONEAREST;
}

TEST(the_rounding_of_the_caller_comes_back)
{
    static const int directions[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fesetround(directions[i]), 0);
        int before = direction_seen();
        uint64_t saved = fpmode_enter();
        int inside = direction_seen();
        fpmode_leave(saved);
        int after = direction_seen();
        fesetround(FE_TONEAREST);
        assert_int_equal(before, directions[i]);
        assert_int_equal(inside, FE_TONEAREST);
        assert_int_equal(after, directions[i]);
    }
}

TEST(pairs_nest)
{
    uint64_t ours = fpmode_enter();
    fpmode_leave(modes[0].bits);
    uint64_t outer = fpmode_enter();
    uint64_t inner = fpmode_enter();
    fpmode_leave(inner);
    uint64_t still_inside = fpmode_enter();
    fpmode_leave(outer);
    uint64_t outside = fpmode_enter();
    fpmode_leave(ours);
    assert_true(still_inside == inner && outside == modes[0].bits);
}
