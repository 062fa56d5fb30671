/* SPDX-License-Identifier: Apache-2.0 */
/* randomk: which coordinates are drawn, and what happens at them and between them. */
#include <math.h>

#include "compress/randomk.h"
#include "core/prng.h"
#include "numbers.h"
#include "support/suite.h"

#define COUNT_MAX 20000

/* ---- what is drawn ------------------------------------------------------------------------------------- */

static const struct draw draws[] = {
    {1, 1, 1}, {2, 10, 1}, {3, 10, 10}, {4, 20000, 200}, {5, 19999, 77}, {6, 4097, 4096}, {7, 12345, 9876},
};
#define DRAWS (sizeof draws / sizeof draws[0])

TEST(each_stratum_has_one)
{
    for (size_t d = 0; d < DRAWS; d++)
        for (size_t place = 0; place < draws[d].keep; place++) {
            uint64_t product = (uint64_t)place * draws[d].count;
            size_t at = draw_at(&draws[d], place);
            struct span span = randomk_span(&draws[d], place, place + 1);
            assert_int_equal(span.from, product / draws[d].keep);
            assert_int_equal(span.to, (product + draws[d].count) / draws[d].keep);
            assert_true(at >= span.from && at < span.to);
        }
}

/* Where a product does not fit into 64 bits. */
TEST(large_tensors_have_exact_strata)
{
    struct draw draw = {1, SIZE_MAX - 1, SIZE_MAX / 3};
    size_t last = draw.keep - 1;
    struct span end = randomk_span(&draw, last, draw.keep), begin = randomk_span(&draw, 0, 1);
    assert_int_equal(begin.from, 0);
    assert_int_equal(end.to, draw.count);
    assert_true(end.from >= draw.count - 4 && end.from < draw.count);
    assert_true(draw_at(&draw, last) >= end.from && draw_at(&draw, last) < end.to);
}

/* chi^2 over the elements of a stratum, over keys and over places: 63 degrees of freedom, beyond 125 once in
 * a hundred thousand. */
static double chi_square(const int *hits, int bins, int total)
{
    double expected = (double)total / bins, sum = 0;
    for (int i = 0; i < bins; i++)
        sum += (hits[i] - expected) * (hits[i] - expected) / expected;
    return sum;
}

TEST(all_elements_are_as_likely)
{
    enum { BINS = 64, TOTAL = 64000 };
    int by_key[BINS] = {0}, by_place[BINS] = {0}, by_pair[BINS] = {0};
    struct draw draw = {0, BINS * (size_t)TOTAL, TOTAL};
    for (size_t i = 0; i + 1 < TOTAL; i++) {
        draw.key = 77;
        size_t at = draw_at(&draw, i) % BINS, next = draw_at(&draw, i + 1) % BINS;
        by_place[at]++;
        by_pair[at / 8 * 8 + next / 8]++; /* neighbours know nothing of each other */
        draw.key = i;
        by_key[draw_at(&draw, 5) % BINS]++;
    }
    assert_true(chi_square(by_place, BINS, TOTAL - 1) < 125);
    assert_true(chi_square(by_key, BINS, TOTAL - 1) < 125);
    assert_true(chi_square(by_pair, BINS, TOTAL - 1) < 125);
}

/* Lines "key place bits" in hex. */
TEST(drawn_numbers_stay_as_they_are)
{
    const char *root = getenv("HEARTH_SOURCE_DIR");
    char path[1024], line[256];
    unsigned long long key, place, bits;
    int count = 0;
    snprintf(path, sizeof path, "%s/tests/golden/draw_v1.hex", root ? root : ".");
    FILE *in = fopen(path, "r");
    if (!in)
        fail_msg("%s: cannot be read; run from the source directory or set HEARTH_SOURCE_DIR", path);
    while (fgets(line, sizeof line, in))
        if (sscanf(line, "%llx %llx %llx", &key, &place, &bits) == 3) {
            assert_int_equal(draw_bits(key, place), bits);
            count++;
        }
    fclose(in);
    assert_int_equal(count, 12);
}

/* ---- gather -------------------------------------------------------------------------------------------- */

/* A tensor of f32, f64 or bf16, its residual, and what is expected to be left of them. */
struct tensor {
    enum hearth_dtype dtype;
    union {
        float f32[COUNT_MAX];
        double f64[COUNT_MAX];
        uint16_t bf16[COUNT_MAX];
    } x, e, left;
    float acc[COUNT_MAX];
};

static struct tensor tensor, untouched;

static float bf16_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

static void tensor_fill(struct tensor *t, enum hearth_dtype dtype, float gain)
{
    struct prng prng;
    prng_init(&prng, 3);
    t->dtype = dtype;
    for (size_t i = 0; i < COUNT_MAX; i++) {
        double x = 2 * prng_unit(&prng) - 1, e = prng_unit(&prng);
        if (dtype == HEARTH_F64) {
            t->x.f64[i] = x;
            t->e.f64[i] = e;
            t->left.f64[i] = (double)gain * x + e;
            t->acc[i] = (float)t->left.f64[i];
            continue;
        }
        float narrow = (float)x;
        if (dtype == HEARTH_BF16) {
            kernels_named("scalar")->narrow(HEARTH_BF16, &t->x.bf16[i], &narrow, 1);
            narrow = bf16_value(t->x.bf16[i]);
        } else {
            t->x.f32[i] = narrow;
        }
        t->e.f32[i] = (float)e;
        t->acc[i] = narrow * gain + t->e.f32[i];
        t->left.f32[i] = t->acc[i];
    }
}

static void check_gather(const struct kernels *kernels)
{
    const enum hearth_dtype dtypes[] = {HEARTH_F32, HEARTH_F64, HEARTH_BF16};
    static float values[COUNT_MAX];
    for (size_t d = 0; d < DRAWS; d++)
        for (int type = 0; type < 3; type++) {
            const struct draw *draw = &draws[d];
            struct feed feed = {.dtype = dtypes[type], .x = &tensor.x, .e = &tensor.e, .e_new = &tensor.e};
            feed.gain = 0.75f;
            tensor_fill(&tensor, dtypes[type], feed.gain);
            memcpy(&untouched, &tensor, sizeof tensor);
            size_t cut = draw->keep / 3;
            assert_int_equal(randomk_gather(draw, kernels, &feed, 0, cut, values), HEARTH_OK);
            assert_int_equal(randomk_gather(draw, kernels, &feed, cut, draw->keep, values + cut), HEARTH_OK);
            for (size_t p = 0; p < draw->keep; p++) {
                size_t at = draw_at(draw, p);
                assert_true(values[p] == tensor.acc[at]);
                if (dtypes[type] == HEARTH_F64)
                    tensor.left.f64[at] -= (double)tensor.acc[at];
                else
                    tensor.left.f32[at] = 0;
            }
            size_t size = dtypes[type] == HEARTH_F64 ? 8 : 4, len = draw->count * size;
            assert_memory_equal(&tensor.e, &tensor.left, len);
            assert_memory_equal((char *)&tensor.e + len, (char *)&untouched.e + len, COUNT_MAX * size - len);
            assert_memory_equal(&tensor.x, &untouched.x, sizeof tensor.x);
        }
}

TEST(coordinates_go_and_the_rest_stays)
{
    for (int i = 0; i < set_count; i++)
        check_gather(sets[i]);
}

TEST(in_place_only_coordinates_are_touched)
{
    static float values[COUNT_MAX], again[COUNT_MAX];
    for (size_t d = 0; d < DRAWS; d++) {
        const struct draw *draw = &draws[d];
        struct feed feed = {.dtype = HEARTH_F32, .x = &tensor.x, .e_new = &tensor.x, .gain = 1};
        tensor_fill(&tensor, HEARTH_F32, 1);
        memcpy(&untouched, &tensor, sizeof tensor);
        size_t cut = draw->keep / 2;
        assert_int_equal(randomk_gather(draw, kernels_best(), &feed, cut, draw->keep, values + cut), 0);
        assert_int_equal(randomk_gather(draw, kernels_best(), &feed, 0, cut, values), HEARTH_OK);
        feed.x = &untouched.x;
        feed.e_new = NULL; /* the same, by the other way */
        assert_int_equal(randomk_gather(draw, kernels_best(), &feed, 0, draw->keep, again), HEARTH_OK);
        assert_memory_equal(values, again, draw->keep * sizeof *values);
        for (size_t p = 0; p < draw->keep; p++)
            untouched.x.f32[draw_at(draw, p)] = 0;
        assert_memory_equal(tensor.x.f32, untouched.x.f32, sizeof tensor.x.f32);
    }
}

TEST(bad_numbers_are_found)
{
    const struct draw draw = {9, 9000, 300};
    static float values[300];
    for (size_t i = 0; i < draw.count; i += 997) {
        struct feed feed = {.dtype = HEARTH_F32, .x = &tensor.x, .e = &tensor.e, .gain = 1};
        tensor_fill(&tensor, HEARTH_F32, 1);
        tensor.x.f32[i] = i % 2 ? NAN : INFINITY;
        assert_int_equal(randomk_gather(&draw, kernels_best(), &feed, 0, 300, values), HEARTH_POISONED);
    }
    struct feed feed = {.dtype = HEARTH_F32, .x = &tensor.x, .e_new = &tensor.x, .gain = 1};
    tensor_fill(&tensor, HEARTH_F32, 1);
    tensor.x.f32[draw_at(&draw, 299)] = NAN;
    assert_int_equal(randomk_gather(&draw, kernels_best(), &feed, 0, 300, values), HEARTH_POISONED);
    /* What is counted of energy: all of the first block, and what is left of it. */
    struct energy energy = {0};
    feed = (struct feed){.dtype = HEARTH_F32, .x = &tensor.x, .gain = 1, .energy = &energy};
    tensor_fill(&tensor, HEARTH_F32, 1);
    assert_int_equal(randomk_gather(&draw, kernels_best(), &feed, 0, 300, values), HEARTH_OK);
    assert_true(energy.before > energy.after && energy.after > 0.9 * energy.before);
}

/* ---- back ---------------------------------------------------------------------------------------------- */

static void check_scatter(const struct kernels *kernels)
{
    static float values[COUNT_MAX], expected[COUNT_MAX];
    for (size_t d = 0; d < DRAWS; d++) {
        const struct draw *draw = &draws[d];
        size_t cut = draw->keep / 3;
        memset(expected, 0, sizeof expected);
        for (size_t p = 0; p < draw->keep; p++) {
            values[p] = (float)(p + 1) * 0.37f;
            expected[draw_at(draw, p)] = values[p] * 10.0f / 3.0f;
        }
        for (int type = 0; type < 3; type++) {
            const enum hearth_dtype dtypes[] = {HEARTH_F32, HEARTH_F64, HEARTH_BF16};
            struct randomk_out out = {&tensor.x, dtypes[type], 10, 3};
            memset(&tensor.x, 0x55, sizeof tensor.x);
            randomk_scatter(draw, kernels, values, 0, cut, &out);
            randomk_scatter(draw, kernels, values + cut, cut, draw->keep, &out);
            memset(&tensor.left, 0x55, sizeof tensor.left);
            for (size_t i = 0; i < draw->count; i++)
                if (dtypes[type] == HEARTH_F32)
                    tensor.left.f32[i] = expected[i];
                else if (dtypes[type] == HEARTH_F64)
                    tensor.left.f64[i] = (double)expected[i];
                else
                    kernels_named("scalar")->narrow(HEARTH_BF16, &tensor.left.bf16[i], &expected[i], 1);
            assert_memory_equal(&tensor.x, &tensor.left, sizeof tensor.x);
        }
    }
}

TEST(values_go_where_they_came_from)
{
    for (int i = 0; i < set_count; i++)
        check_scatter(sets[i]);
}

TEST(errors_are_left_at_coordinates)
{
    const struct draw draw = {11, 5000, 500};
    static float error[500];
    for (size_t p = 0; p < draw.keep; p++)
        error[p] = (float)(p + 1);
    for (int wide = 0; wide < 2; wide++) {
        tensor_fill(&tensor, wide ? HEARTH_F64 : HEARTH_F32, 1);
        memcpy(&untouched, &tensor, sizeof tensor);
        randomk_leave(&draw, error, 0, 123, tensor.dtype, &tensor.e);
        randomk_leave(&draw, error + 123, 123, 500, tensor.dtype, &tensor.e);
        for (size_t p = 0; p < draw.keep; p++)
            if (wide)
                untouched.e.f64[draw_at(&draw, p)] += (double)error[p];
            else
                untouched.e.f32[draw_at(&draw, p)] += error[p];
        assert_memory_equal(&tensor.e, &untouched.e, sizeof tensor.e);
    }
}
