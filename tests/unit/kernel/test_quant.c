/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the dense codecs: every set gives the bits of scalar at all lengths and addresses and touches
 * nothing else; scalar gives what arithmetic says. */
#include <math.h>

#include "cases.h"
#include "kernel/quant.h"
#include "support/suite.h"

#define COUNT_MAX 300
#define GUARD     64
#define ROUNDS    40

/* What a kernel reads and writes; floats begin one behind an aligned address, codes at any. */
struct field {
    float x[GUARD + COUNT_MAX + GUARD];
    float e[GUARD + COUNT_MAX + GUARD];
    uint8_t codes[GUARD + 2 * COUNT_MAX + GUARD];
    uint32_t number;
};

enum kernel {
    LOAD,
    LOAD_E,
    LARGEST,
    BF16_ENCODE,
    FP16_ENCODE,
    INT8_ENCODE,
    INT8_DITHER,
    ONEBIT_ENCODE,
    BF16_DECODE,
    FP16_DECODE,
    INT8_DECODE,
    ONEBIT_DECODE,
    KERNELS
};

struct job {
    enum kernel kernel;
    size_t count, offset;
    int exponent; /* of the largest number */
    bool add;     /* of an encode: keep */
};

static float scale_of(const struct job *job)
{
    int exponent = job->exponent - 6;
    exponent = exponent < -126 ? -126 : exponent > 121 ? 121 : exponent;
    return ldexpf(1 + 1.0f / 128, exponent);
}

static int exponent_of(const struct job *job)
{
    int exponent = job->exponent - 14;
    return exponent < QUANT_EXPONENT_LEAST ? QUANT_EXPONENT_LEAST : exponent;
}

static void run(const struct quant_kernels *quant, const struct job *job, struct field *f)
{
    float *x = f->x + GUARD + job->offset, *e = f->e + GUARD;
    uint8_t *codes = f->codes + GUARD - job->offset;
    const struct dither dither = {.seed = {123456789, 987654321}, .index = 3};
    size_t count = job->count;
    switch (job->kernel) {
    case LOAD:
        f->number = quant->load(e, x, NULL, count, 0.3f);
        break;
    case LOAD_E:
        f->number = quant->load(e, x, e, count, 1);
        break;
    case LARGEST:
        f->number = quant->largest(x, count);
        break;
    case BF16_ENCODE:
        quant->bf16_encode(x, count, codes, job->add);
        break;
    case FP16_ENCODE:
        quant->fp16_encode(x, count, exponent_of(job), codes, job->add);
        break;
    case INT8_ENCODE:
        quant->int8_encode(x, count, scale_of(job), NULL, codes, job->add);
        break;
    case INT8_DITHER:
        quant->int8_encode(x, count, scale_of(job), &dither, codes, job->add);
        break;
    case ONEBIT_ENCODE:
        f->number = quant->onebit_encode(x, count, codes, job->add);
        break;
    case BF16_DECODE:
        quant->bf16_decode(codes, count, x, job->add);
        break;
    case FP16_DECODE:
        quant->fp16_decode(codes, count, exponent_of(job), x, job->add);
        break;
    case INT8_DECODE:
        quant->int8_decode(codes, count, scale_of(job), x, job->add);
        break;
    default:
        quant->onebit_decode(codes, count, scale_of(job), x, job->add);
        break;
    }
}

/* Magnitudes below 2^(exponent + 1), and many of them special. */
static float number(uint64_t *seed, int exponent)
{
    uint64_t draw = cases_next(seed);
    uint32_t sign = (uint32_t)(draw >> 32) & UINT32_C(0x80000000);
    uint32_t most = (uint32_t)(exponent + 127) << 23 | UINT32_C(0x7fffff);
    uint32_t bits = (uint32_t)draw & UINT32_C(0x7fffff);
    switch (draw >> 32 & 7) {
    case 0:
        return f32_from_bits(sign);
    case 1:
        return f32_from_bits(sign | most);
    case 2:
        return f32_from_bits(sign | (uint32_t)draw % (most + 1));
    case 3: /* ties: few bits */
        return f32_from_bits(sign | (most & UINT32_C(0x7f800000)) | (bits & UINT32_C(0x7f8000)));
    default:
        return f32_from_bits(sign | (most & UINT32_C(0x7f800000)) | bits);
    }
}

static void fill(struct field *f, uint64_t *seed, const struct job *job)
{
    memset(f, 0xa5, sizeof *f);
    for (size_t i = 0; i < job->count; i++) {
        f->x[GUARD + job->offset + i] = number(seed, job->exponent);
        f->e[GUARD + i] = number(seed, job->exponent > -126 ? job->exponent - 1 : job->exponent);
    }
    /* Only numbers: NaNs differ by processor. */
    unsigned mask = job->kernel == FP16_DECODE ? 0xbf : job->kernel == BF16_DECODE ? 0x7d : 0xff;
    for (size_t i = 0; i < sizeof f->codes; i++)
        f->codes[i] = (uint8_t)(cases_next(seed) & mask);
}

static void compare(const struct job *job, uint64_t seed)
{
    static struct field scalar, vector;
    uint64_t first = seed;
    fill(&scalar, &first, job);
    run(sets[0]->quant, job, &scalar);
    for (int s = 1; s < set_count; s++) {
        uint64_t second = seed;
        fill(&vector, &second, job);
        run(sets[s]->quant, job, &vector);
        if (memcmp(&scalar, &vector, sizeof scalar) != 0)
            fail_msg("%s: kernel %d, count %zu, offset %zu, exponent %d, add %d", sets[s]->name, job->kernel,
                     job->count, job->offset, job->exponent, job->add);
    }
}

TEST(all_sets_equal_scalar)
{
    static const int exponents[] = {-127, -126, -120, -20, 0, 5, 100, 126, 127};
    uint64_t seed = 1;
    for (int kernel = 0; kernel < KERNELS; kernel++)
        for (size_t count = 0; count <= COUNT_MAX; count++) {
            struct job job = {.kernel = (enum kernel)kernel, .count = count, .offset = count % 3};
            bool onebit = job.kernel == ONEBIT_ENCODE;
            if (onebit && (count == 0 || count > QUANT_BLOCK))
                continue;
            job.exponent = exponents[cases_next(&seed) % (sizeof exponents / sizeof *exponents)];
            compare(&job, cases_next(&seed));
            job.add = true;
            compare(&job, cases_next(&seed));
        }
    for (int kernel = 0; kernel < KERNELS; kernel++)
        for (int round = 0; round < ROUNDS; round++) {
            struct job job = {.kernel = (enum kernel)kernel, .count = QUANT_BLOCK};
            job.exponent = exponents[round % (int)(sizeof exponents / sizeof *exponents)];
            job.add = round % 2 == 1;
            compare(&job, cases_next(&seed));
        }
}

/* Nothing outside of what a kernel is given changes; scalar first, the others are equal to it. */
TEST(nothing_else_is_touched)
{
    static struct field before, after;
    for (int kernel = 0; kernel < KERNELS; kernel++)
        for (size_t count = 1; count <= QUANT_BLOCK; count += 15) {
            struct job job = {.kernel = (enum kernel)kernel, .count = count, .offset = 1, .exponent = 3};
            uint64_t seed = 9, same = 9;
            fill(&before, &seed, &job);
            fill(&after, &same, &job);
            run(sets[0]->quant, &job, &after);
            assert_memory_equal(before.x, after.x, (GUARD + 1) * sizeof(float));
            assert_memory_equal(before.x + GUARD + 1 + count, after.x + GUARD + 1 + count, 64);
            assert_memory_equal(before.e, after.e, GUARD * sizeof(float));
            assert_memory_equal(before.e + GUARD + count, after.e + GUARD + count, 64);
            assert_memory_equal(before.codes, after.codes, GUARD - 1);
            assert_memory_equal(before.codes + GUARD - 1 + 2 * count, after.codes + GUARD - 1 + 2 * count,
                                64);
        }
}

/* An encode that keeps its numbers gives the same codes. */
TEST(numbers_can_be_kept)
{
    static struct field kept, spent, before;
    for (int s = 0; s < set_count; s++)
        for (int kernel = BF16_ENCODE; kernel <= ONEBIT_ENCODE; kernel++)
            for (int exponent = 3; exponent <= 127; exponent += 124) {
                struct job keep = {.kernel = (enum kernel)kernel, .count = QUANT_BLOCK, .exponent = exponent};
                struct job spend = keep;
                uint64_t seeds[3] = {7, 7, 7};
                keep.add = true;
                fill(&before, &seeds[0], &keep);
                fill(&kept, &seeds[1], &keep);
                fill(&spent, &seeds[2], &spend);
                run(sets[s]->quant, &keep, &kept);
                run(sets[s]->quant, &spend, &spent);
                assert_memory_equal(kept.x, before.x, sizeof kept.x);
                assert_memory_not_equal(spent.x, before.x, sizeof kept.x);
                assert_memory_equal(kept.codes, spent.codes, sizeof kept.codes);
                assert_int_equal(kept.number, spent.number);
            }
}

/* The codes are the nearest that there are, and what is left is what they lack. */
TEST(codes_are_nearest)
{
    const struct quant_kernels *quant = sets[0]->quant;
    uint64_t seed = 4;
    for (int round = 0; round < 20000; round++) {
        float x = number(&seed, 10), bf16 = x, fp16 = x, int8 = x, value;
        uint8_t codes[2];
        quant->bf16_encode(&bf16, 1, codes, false);
        assert_int_equal(codes[0] | codes[1] << 8, bf16_nearest((double)x));
        assert_true((double)bf16 == (double)x - bf16_value(bf16_nearest((double)x)));
        quant->fp16_encode(&fp16, 1, -4, codes, false);
        assert_int_equal(codes[0] | codes[1] << 8, f16_nearest((double)x * 16));
        assert_true((double)fp16 == (double)x - f16_value(f16_nearest((double)x * 16)) / 16);
        quant->int8_encode(&int8, 1, 16.25f, NULL, codes, false);
        assert_true(fabs((double)x / 16.25 - (int8_t)codes[0]) <= 0.5 + 1e-5);
        quant->int8_decode(codes, 1, 16.25f, &value, false);
        assert_true(int8 == x - value && (double)value == (int8_t)codes[0] * 16.25);
    }
}

TEST(no_code_is_infinite)
{
    const float most = f32_from_bits(0x7f7fffff);
    uint8_t codes[2];
    for (int s = 0; s < set_count; s++) {
        float x[QUANT_BLOCK];
        static uint8_t all[2 * QUANT_BLOCK];
        for (size_t i = 0; i < QUANT_BLOCK; i++)
            x[i] = i % 2 ? most : -most;
        sets[s]->quant->bf16_encode(x, QUANT_BLOCK, all, false);
        assert_int_equal(all[2] | all[3] << 8, 0x7f7f);
        assert_int_equal(all[0] | all[1] << 8, 0xff7f);
        for (size_t i = 0; i < QUANT_BLOCK; i++)
            x[i] = i % 2 ? most : -most;
        sets[s]->quant->fp16_encode(x, QUANT_BLOCK, QUANT_EXPONENT_MOST, all, false);
        assert_int_equal(all[2] | all[3] << 8, 0x77ff);
        sets[s]->quant->fp16_decode(all, QUANT_BLOCK, QUANT_EXPONENT_MOST, x, false);
        assert_true(sets[s]->quant->largest(x, QUANT_BLOCK) < 0x7f800000);
        for (size_t i = 0; i < QUANT_BLOCK; i++)
            x[i] = -most;
        assert_int_equal(sets[s]->quant->onebit_encode(x, QUANT_BLOCK, all, false), 0x7f7f);
        assert_int_equal(all[31], 0xff);
        float one = most;
        sets[s]->quant->int8_encode(&one, 1, f32_from_bits(QUANT_SCALE_MOST << 16), NULL, codes, false);
        assert_int_equal(codes[0], 127);
        sets[s]->quant->int8_decode(codes, 1, f32_from_bits(QUANT_SCALE_MOST << 16), &one, false);
        assert_true(one < INFINITY);
    }
}

TEST(not_numbers_are_seen)
{
    static const uint32_t bad[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001};
    for (int s = 0; s < set_count; s++)
        for (size_t b = 0; b < 4; b++)
            for (size_t at = 0; at < COUNT_MAX; at += 7) {
                float x[COUNT_MAX] = {0}, acc[COUNT_MAX], e[COUNT_MAX] = {0};
                x[at] = f32_from_bits(bad[b]);
                assert_true(sets[s]->quant->largest(x, COUNT_MAX) > 0x7f7fffff);
                assert_true(sets[s]->quant->load(acc, x, NULL, COUNT_MAX, 1) > 0x7f7fffff);
                assert_true(sets[s]->quant->load(acc, e, x, COUNT_MAX, 1) > 0x7f7fffff);
                x[at] = f32_from_bits(0xff7fffff);
                assert_true(sets[s]->quant->load(acc, x, e, COUNT_MAX, 1) == 0x7f7fffff);
                assert_true(sets[s]->quant->load(acc, x, x, COUNT_MAX, 1) > 0x7f7fffff);
            }
}
