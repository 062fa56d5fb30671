/* SPDX-License-Identifier: Apache-2.0 */
/* NaN, infinities, both zeros and subnormals through every algorithm, whatever modes the callers have set. */
#include <inttypes.h>
#include <math.h>

#include "conform/reference.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const enum hearth_dtype floats[] = {HEARTH_F32, HEARTH_F64, HEARTH_F16, HEARTH_BF16};

/* The values that matter, by type: exponent and fraction are put together from these. */
struct specials {
    uint64_t nan, quiet_payload, signalling, negative_nan, inf, minus_inf, zero, minus_zero, least,
        minus_least, subnormal, normal_least, most, one;
};

static struct specials specials_of(enum hearth_dtype dtype)
{
    int width = 8 * (int)hearth_dtype_size(dtype);
    int fraction = dtype == HEARTH_F64 ? 52 : dtype == HEARTH_F32 ? 23 : dtype == HEARTH_F16 ? 10 : 7;
    uint64_t sign = UINT64_C(1) << (width - 1), top = UINT64_C(1) << fraction;
    uint64_t inf = (sign - 1) & ~(top - 1);
    uint64_t bias = ((inf >> fraction) - 1) / 2;
    return (struct specials){
        .nan = inf | top >> 1,
        .quiet_payload = inf | top >> 1 | 5,
        .signalling = inf | 1,
        .negative_nan = sign | inf | top >> 1 | 3,
        .inf = inf,
        .minus_inf = sign | inf,
        .zero = 0,
        .minus_zero = sign,
        .least = 1,
        .minus_least = sign | 1,
        .subnormal = top >> 1 | 1,
        .normal_least = top,
        .most = inf - 1,
        .one = bias << fraction,
    };
}

/* Two contributions and what the operations must make of them; on more members the rest give `neutral`. */
struct pair {
    uint64_t a, b, sum, prod, min, max;
};

enum { PAIRS = 16 };

static void pairs_of(enum hearth_dtype dtype, struct pair *pairs)
{
    struct specials s = specials_of(dtype);
    uint64_t two_least = 2, nan = s.nan, inf = s.inf, down = s.minus_inf;
    struct pair list[PAIRS] = {
        {s.quiet_payload, s.one, nan, nan, nan, nan},
        {s.one, s.negative_nan, nan, nan, nan, nan},
        {s.signalling, s.zero, nan, nan, nan, nan},
        {s.nan, s.inf, nan, nan, nan, nan},
        {s.negative_nan, s.quiet_payload, nan, nan, nan, nan},
        {inf, s.one, inf, inf, s.one, inf},
        {down, s.one, down, down, down, s.one},
        {inf, down, nan, down, down, inf},
        {inf, s.zero, inf, nan, s.zero, inf},
        {s.zero, s.minus_zero, s.zero, s.minus_zero, s.minus_zero, s.zero},
        {s.minus_zero, s.zero, s.zero, s.minus_zero, s.minus_zero, s.zero},
        {s.minus_zero, s.minus_zero, s.minus_zero, s.zero, s.minus_zero, s.minus_zero},
        {s.least, s.least, two_least, s.zero, s.least, s.least},
        {s.subnormal, s.one, s.one, s.subnormal, s.subnormal, s.one},
        {s.minus_least, s.least, s.zero, s.minus_zero, s.minus_least, s.least},
        {s.most, s.most, inf, inf, s.most, s.most},
    };
    memcpy(pairs, list, sizeof list);
}

static uint64_t wanted_of(const struct pair *p, enum hearth_op op)
{
    return op == HEARTH_OP_PROD  ? p->prod
           : op == HEARTH_OP_MIN ? p->min
           : op == HEARTH_OP_MAX ? p->max
                                 : p->sum;
}

/* What changes nothing: -0 for sums (x + -0 is x for every x), 1, and a value that is no news. */
static uint64_t neutral(enum hearth_dtype dtype, enum hearth_op op, const struct pair *p)
{
    struct specials s = specials_of(dtype);
    return op == HEARTH_OP_SUM ? s.minus_zero : op == HEARTH_OP_PROD ? s.one : p->a;
}

struct trial {
    enum hearth_dtype dtype;
    enum hearth_op op;
    enum hearth_algo algo;
    int first, second; /* who gives a, who gives b */
    bool in_place;
    bool flush; /* the callers' threads flush subnormals to zero */
};

/* Long enough that vector bodies and tails are reached, and every pair stands at many places. */
#define ELEMENTS (PAIRS * 9 + 5)

static void flush_to_zero(bool on)
{
#if defined(__x86_64__)
    _mm_setcsr(on ? _mm_getcsr() | 0x8040u : _mm_getcsr() & ~0x8040u); /* FTZ, DAZ */
#else
#endif
}

static bool flushes(void)
{
#if defined(__x86_64__)
    return (_mm_getcsr() & 0x8040u) == 0x8040u;
#else
    return false;
#endif
}

static void trial_member(struct fixture *c, int rank, void *arg)
{
    const struct trial *t = arg;
    struct pair pairs[PAIRS];
    size_t len = hearth_dtype_size(t->dtype);
    char source[ELEMENTS * 8], result[ELEMENTS * 8], *target = t->in_place ? source : result;
    pairs_of(t->dtype, pairs);
    memset(result, 0, sizeof result);
    for (size_t i = 0; i < ELEMENTS; i++) {
        const struct pair *p = &pairs[i % PAIRS];
        uint64_t x = rank == t->first ? p->a : rank == t->second ? p->b : neutral(t->dtype, t->op, p);
        set_bits(t->dtype, source, i, x);
    }
    struct hearth_opts opts = opts_default();
    opts.algo = t->algo;
    flush_to_zero(t->flush);
    int status = hearth_all_reduce(c->world[rank], source, target, ELEMENTS, t->dtype, t->op, &opts);
    bool still = flushes();
    flush_to_zero(false);
    check_ok(status);
    check(!t->flush || still, "rank %d: the caller's modes were changed", rank);
    for (size_t i = 0; i < ELEMENTS; i++) {
        uint64_t got = get_bits(t->dtype, target, i), wanted = wanted_of(&pairs[i % PAIRS], t->op);
        if (got != wanted)
            check(false, "%s %s by %s on %d (pair %zu at %zu): rank %d has 0x%0*" PRIx64 ", not 0x%0*" PRIx64,
                  hearth_dtype_name(t->dtype), hearth_op_name(t->op), hearth_algo_name(t->algo), c->size,
                  i % PAIRS, i, rank, (int)len * 2, got, (int)len * 2, wanted);
    }
}

static void run_trials(int size, bool flush)
{
    const enum hearth_op ops[] = {HEARTH_OP_SUM, HEARTH_OP_PROD, HEARTH_OP_MIN, HEARTH_OP_MAX};
    struct fixture c;
    uint64_t seed = 31 + (uint64_t)size;
    fixture_open(&c, size, NULL);
    for (int i = 0; i < 4 * 4 * ALGOS; i++) {
        struct trial t = {.dtype = floats[i % 4],
                          .op = ops[i / 4 % 4],
                          .algo = (enum hearth_algo)(i / 16),
                          .first = (int)draw_below(&seed, (uint64_t)size),
                          .in_place = draw(&seed) & 1,
                          .flush = flush};
        t.second = (t.first + 1 + (int)draw_below(&seed, (uint64_t)size - 1)) % size;
        fixture_run(&c, trial_member, &t);
    }
    fixture_close(&c);
}

TEST(test_special_values_through_every_algorithm)
{
    for (int size = 2; size <= 8; size++)
        run_trials(size, false);
}

TEST(test_flushing_callers_get_the_same_bits)
{
#if defined(__x86_64__)
    for (int size = 2; size <= 5; size++)
        run_trials(size, true);
#else
    print_message("skipped: setting FTZ and DAZ is written for x86-64 only\n");
    skip();
#endif
}

enum { FLOAT_OPS = HEARTH_OP_MAX + 1 }; /* the others are of integers */

/* One member: nothing is combined, yet a NaN comes out canonical, in place too. */
static void alone(struct fixture *c, int rank, void *arg)
{
    const enum hearth_op ops[FLOAT_OPS] = {HEARTH_OP_SUM, HEARTH_OP_AVG, HEARTH_OP_PROD, HEARTH_OP_MIN,
                                           HEARTH_OP_MAX};
    for (int i = 0; i < 4 * FLOAT_OPS * ALGOS; i++) {
        enum hearth_dtype dtype = floats[i % 4];
        struct specials s = specials_of(dtype);
        const uint64_t in[] = {s.quiet_payload, s.signalling, s.negative_nan, s.inf,       s.minus_inf,
                               s.minus_zero,    s.least,      s.minus_least,  s.subnormal, s.most};
        const uint64_t out[] = {s.nan,        s.nan,   s.nan,         s.inf,       s.minus_inf,
                                s.minus_zero, s.least, s.minus_least, s.subnormal, s.most};
        char x[10 * 8], y[10 * 8], *target = i / 20 % 2 ? x : y;
        struct hearth_opts opts = opts_default();
        opts.algo = (enum hearth_algo)(i / 20);
        for (size_t k = 0; k < 10; k++)
            set_bits(dtype, x, k, in[k]);
        check_ok(hearth_all_reduce(c->world[rank], x, target, 10, dtype, ops[i / 4 % FLOAT_OPS], &opts));
        for (size_t k = 0; k < 10; k++)
            check(get_bits(dtype, target, k) == out[k], "%s %s by %s: 0x%" PRIx64 " became 0x%" PRIx64,
                  hearth_dtype_name(dtype), hearth_op_name(ops[i / 4 % FLOAT_OPS]),
                  hearth_algo_name(opts.algo), in[k], get_bits(dtype, target, k));
    }
}

TEST(test_alone)
{
    fixture_once(1, NULL, alone, NULL);
}

/* What is only moved is not looked at: a NaN keeps its payload. */
static void moved(struct fixture *c, int rank, void *arg)
{
    uint32_t x = 0x7f800001u + (uint32_t)rank, all[MEMBERS_MAX], b = 0xffc12345u;
    check_ok(hearth_all_gather(c->world[rank], &x, all, 1, HEARTH_F32, NULL));
    for (int i = 0; i < c->size; i++)
        check(all[i] == 0x7f800001u + (uint32_t)i, "rank %d: 0x%x from %d", rank, all[i], i);
    b = rank == 1 ? b : 0;
    check_ok(hearth_broadcast(c->world[rank], &b, 1, HEARTH_F32, 1, NULL));
    check(b == 0xffc12345u, "rank %d: 0x%x", rank, b);
}

TEST(test_moved_values_keep_their_bits)
{
    fixture_once(4, NULL, moved, NULL);
}

/* A NaN of one member is a NaN for all, in every collective that reduces, and for prefixes from it on. */
static void nan_member(struct fixture *c, int rank, void *arg)
{
    const struct trial *t = arg;
    uint64_t one = specials_of(t->dtype).one, nan = specials_of(t->dtype).nan;
    uint64_t dirty = specials_of(t->dtype).negative_nan;
    char x[MEMBERS_MAX * 8], y[8] = {0};
    int n = c->size;
    for (size_t i = 0; i < (size_t)n; i++)
        set_bits(t->dtype, x, i, rank == t->first ? dirty : one);
    check_ok(hearth_reduce_scatter(c->world[rank], x, y, 1, t->dtype, t->op, NULL));
    check(get_bits(t->dtype, y, 0) == nan, "reduce_scatter: rank %d: no NaN", rank);
    check_ok(hearth_reduce(c->world[rank], x, y, 1, t->dtype, t->op, 0, NULL));
    check(rank != 0 || get_bits(t->dtype, y, 0) == nan, "reduce: no NaN");
    if (t->op == HEARTH_OP_AVG)
        return;
    check_ok(hearth_scan(c->world[rank], x, y, 1, t->dtype, t->op, NULL));
    check((get_bits(t->dtype, y, 0) == nan) == (rank >= t->first), "scan: rank %d: 0x%" PRIx64, rank,
          get_bits(t->dtype, y, 0));
    check_ok(hearth_exclusive_scan(c->world[rank], x, y, 1, t->dtype, t->op, NULL));
    check((get_bits(t->dtype, y, 0) == nan) == (rank > t->first), "exclusive_scan: rank %d: 0x%" PRIx64, rank,
          get_bits(t->dtype, y, 0));
}

TEST(test_nan_of_one_is_nan_for_all)
{
    for (int size = 2; size <= 5; size++) {
        struct fixture c;
        fixture_open(&c, size, NULL);
        for (int i = 0; i < 4 * FLOAT_OPS; i++) {
            struct trial t = {.dtype = floats[i % 4], .op = (enum hearth_op)(i / 4), .first = (i / 4) % size};
            fixture_run(&c, nan_member, &t);
        }
        fixture_close(&c);
    }
}
