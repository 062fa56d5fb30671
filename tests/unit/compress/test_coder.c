/* SPDX-License-Identifier: Apache-2.0 */
/* The part-wise coder: nothing is lost, all sets of kernels agree, sums are in order, bad bytes are
 * refused. */
#include <float.h>
#include <math.h>

#include "compress/coder.h"
#include "core/bytes.h"
#include "core/prng.h"
#include "numbers.h"
#include "support/golden.h"
#include "support/suite.h"

#define COUNT_MAX   (17 * CODER_BLOCK)
#define PAYLOAD_MAX (PART_HEADER_LEN + COUNT_MAX * 4)
#define MEMBERS     3

static const struct codec codecs[] = {
    {.kind = CODEC_NONE},
    {.kind = CODEC_FP16},
    {.kind = CODEC_BF16},
    {.kind = CODEC_INT8},
    {.kind = CODEC_INT8, .stochastic = true},
    {.kind = CODEC_ONEBIT},
    {.kind = CODEC_TOPK, .ratio = 0.02, .chunk = 256},
    {.kind = CODEC_TOPK, .ratio = 0.02, .chunk = 8192, .values = VALUES_INT8},
};
static const size_t counts[] = {0, 1, 255, 256, 257, 4095, 4096, 4097, 3 * 4096 + 5};
static const enum hearth_dtype dtypes[] = {HEARTH_F32, HEARTH_F64, HEARTH_F16, HEARTH_BF16};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* A member's part, of any type, and what becomes of it. */
static struct member {
    _Alignas(64) uint8_t x[COUNT_MAX * 8];
    _Alignas(64) uint8_t e[COUNT_MAX * 8];
    _Alignas(64) uint8_t e_new[COUNT_MAX * 8];
    uint8_t payload[PAYLOAD_MAX];
} members[MEMBERS];
static _Alignas(64) uint8_t result[COUNT_MAX * 8];
static float numbers[COUNT_MAX], decoded[COUNT_MAX];

static struct feed feed_of(struct member *m, enum hearth_dtype dtype)
{
    return (struct feed){.dtype = dtype, .x = m->x, .e = m->e, .e_new = m->e_new, .gain = 1, .key = 77};
}

static void fill(struct member *m, enum hearth_dtype dtype, enum numbers kind, uint64_t seed, size_t count)
{
    numbers_fill(kind, seed, numbers, count);
    if (dtype == HEARTH_F64)
        for (size_t i = 0; i < count; i++)
            ((double *)(void *)m->x)[i] = (double)numbers[i] * 1.0000000001;
    else
        sets[0]->narrow(dtype, m->x, numbers, count);
    if (dtype == HEARTH_F16) /* what was beyond f16 */
        for (size_t i = 0; i < count; i++)
            if ((load_u16(m->x + 2 * i) & 0x7c00) == 0x7c00)
                store_u16(m->x + 2 * i, 0x7bff);
    if (dtype == HEARTH_BF16)
        for (size_t i = 0; i < count; i++)
            if ((load_u16(m->x + 2 * i) & 0x7f80) == 0x7f80)
                store_u16(m->x + 2 * i, 0x7f00);
    numbers_fill(NUMBERS_GAUSS, seed + 1000, numbers, count);
    for (size_t i = 0; i < count; i++) {
        if (dtype == HEARTH_F64)
            ((double *)(void *)m->e)[i] = (double)numbers[i] * 1e-3;
        else
            ((float *)(void *)m->e)[i] = numbers[i] * 1e-3f;
    }
    memset(m->e_new, 0xa5, sizeof m->e_new);
}

static double element(const uint8_t *bytes, enum hearth_dtype dtype, size_t i)
{
    float wide;
    if (dtype == HEARTH_F64)
        return ((const double *)(const void *)bytes)[i];
    sets[0]->widen(dtype, &wide, bytes + i * dtype_size(dtype), 1);
    return (double)wide;
}

static enum hearth_dtype residual_type(enum hearth_dtype dtype)
{
    return dtype == HEARTH_F64 ? HEARTH_F64 : HEARTH_F32;
}

static int decode(const struct codec *codec, const uint8_t *payload, size_t count)
{
    struct payloads payloads = {1, &payload};
    struct coder_out out = {decoded, HEARTH_F32, 1};
    struct error error = {0};
    return coder_decode(codec, kernels_best(), &payloads, &out, count, &error);
}

TEST(lengths_follow_from_the_count)
{
    static const size_t lens[] = {8 + 4 * 4097,      8 + 16 + 1 + 2 * 4097, 8 + 2 * 4097,
                                  8 + 32 + 2 + 4097, 8 + 32 + 2 + 4097,     8 + 32 + 2 + 512 + 1};
    for (size_t i = 0; i < LENGTH(lens); i++) {
        assert_int_equal(coder_len(&codecs[i], 4097), lens[i]);
        assert_int_equal(coder_len(&codecs[i], 0), PART_HEADER_LEN);
        assert_int_equal(coder_block(&codecs[i]), 4096);
    }
    assert_int_equal(coder_block(&codecs[7]), 8192);
}

/* gain * x + e = decoded + e_new, and the residual is rounded once. */
static void conserve(const struct codec *codec, enum hearth_dtype dtype, enum numbers kind, size_t count)
{
    struct member *m = &members[0];
    fill(m, dtype, kind, count + (size_t)kind, count);
    struct feed feed = feed_of(m, dtype);
    feed.gain = kind % 2 == 0 ? 1.0f : 0.75f;
    size_t len = coder_len(codec, count);
    memset(m->payload, 0xa5, len + 1);
    assert_int_equal(coder_encode(codec, kernels_best(), &feed, 0, count, m->payload), HEARTH_OK);
    assert_int_equal(m->payload[len], 0xa5);
    assert_int_equal(decode(codec, m->payload, count), HEARTH_OK);
    for (size_t i = 0; i < count; i++) {
        double x = element(m->x, dtype, i), e = element(m->e, residual_type(dtype), i);
        double left = element(m->e_new, residual_type(dtype), i), sent = (double)decoded[i];
        double lost = (double)feed.gain * x + e - sent - left;
        assert_true(fabs(lost) <= 1e-6 * (fabs(x) + fabs(e)) + 1.2e-7 * fabs(sent) + 0x1p-149);
        if (dtype != HEARTH_F64) {
            float acc = feed.gain * (float)x + (float)e;
            assert_true((float)left == acc - decoded[i]);
        }
    }
    if (dtype != HEARTH_F64 || count == 0)
        return;
    assert_int_equal(m->e_new[count * 8], 0xa5);
}

TEST(nothing_is_lost)
{
    for (size_t c = 0; c < LENGTH(codecs); c++)
        for (size_t d = 0; d < LENGTH(dtypes); d++)
            for (size_t n = 0; n < LENGTH(counts); n++)
                conserve(&codecs[c], dtypes[d], (enum numbers)((c + d + n) % NUMBERS_KINDS), counts[n]);
    for (size_t c = 0; c < LENGTH(codecs); c++)
        for (int kind = 0; kind < NUMBERS_KINDS; kind++)
            conserve(&codecs[c], HEARTH_F32, (enum numbers)kind, 3 * 4096 + 5);
}

TEST(all_sets_agree)
{
    for (size_t c = 0; c < LENGTH(codecs); c++)
        for (size_t n = 0; n < LENGTH(counts); n++)
            for (int s = 1; s < set_count; s++) {
                struct member *a = &members[0], *b = &members[1];
                enum numbers kind = (enum numbers)((c + n) % NUMBERS_KINDS);
                enum hearth_dtype dtype = dtypes[n % LENGTH(dtypes)];
                fill(a, dtype, kind, n, counts[n]);
                fill(b, dtype, kind, n, counts[n]);
                struct feed left = feed_of(a, dtype), right = feed_of(b, dtype);
                struct energy energies[2] = {{0, 0}, {0, 0}};
                left.energy = &energies[0];
                right.energy = &energies[1];
                assert_int_equal(coder_encode(&codecs[c], sets[0], &left, 0, counts[n], a->payload), 0);
                assert_int_equal(coder_encode(&codecs[c], sets[s], &right, 0, counts[n], b->payload), 0);
                assert_memory_equal(a->payload, b->payload, coder_len(&codecs[c], counts[n]));
                assert_memory_equal(a->e_new, b->e_new, sizeof a->e_new);
                assert_memory_equal(&energies[0], &energies[1], sizeof energies[0]);
            }
}

TEST(residuals_may_stay_in_place)
{
    const size_t count = 3 * 4096 + 5;
    for (size_t c = 0; c < LENGTH(codecs); c++)
        for (size_t d = 0; d < LENGTH(dtypes); d++) {
            struct member *a = &members[0], *b = &members[1];
            fill(a, dtypes[d], NUMBERS_BURST, 5, count);
            fill(b, dtypes[d], NUMBERS_BURST, 5, count);
            struct feed apart = feed_of(a, dtypes[d]), in_place = feed_of(b, dtypes[d]);
            in_place.e_new = b->e;
            assert_int_equal(coder_encode(&codecs[c], kernels_best(), &apart, 0, count, a->payload), 0);
            assert_int_equal(coder_encode(&codecs[c], kernels_best(), &in_place, 0, count, b->payload), 0);
            assert_memory_equal(a->payload, b->payload, coder_len(&codecs[c], count));
            assert_memory_equal(a->e_new, b->e, count * dtype_size(residual_type(dtypes[d])));
        }
}

/* Without a residual the payload is that of a residual of zeros. */
TEST(residuals_may_be_missing)
{
    const size_t count = 4096 + 300;
    for (size_t c = 0; c < LENGTH(codecs); c++) {
        struct member *a = &members[0], *b = &members[1];
        fill(a, HEARTH_F32, NUMBERS_GAUSS, 6, count);
        fill(b, HEARTH_F32, NUMBERS_GAUSS, 6, count);
        memset(a->e, 0, sizeof a->e);
        struct feed with = feed_of(a, HEARTH_F32), without = feed_of(b, HEARTH_F32);
        without.e = without.e_new = NULL;
        assert_int_equal(coder_encode(&codecs[c], kernels_best(), &with, 0, count, a->payload), 0);
        assert_int_equal(coder_encode(&codecs[c], kernels_best(), &without, 0, count, b->payload), 0);
        assert_memory_equal(a->payload, b->payload, coder_len(&codecs[c], count));
    }
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

static const uint8_t *const all_bytes[MEMBERS] = {members[0].payload, members[1].payload, members[2].payload};

/* Encodes for all members; the sum of what they decode to, in their order, to `numbers`. */
static void encode_all(const struct codec *codec, size_t count)
{
    static float sum[COUNT_MAX];
    for (int i = 0; i < MEMBERS; i++) {
        fill(&members[i], HEARTH_F32, NUMBERS_GAUSS, (uint64_t)i, count);
        struct feed feed = feed_of(&members[i], HEARTH_F32);
        assert_int_equal(coder_encode(codec, kernels_best(), &feed, 0, count, members[i].payload), 0);
        assert_int_equal(decode(codec, members[i].payload, count), HEARTH_OK);
        for (size_t k = 0; k < count; k++)
            sum[k] = i == 0 ? decoded[k] : sum[k] + decoded[k];
    }
    memcpy(numbers, sum, count * sizeof *sum);
}

TEST(a_merge_codes_the_sum)
{
    static uint8_t target[PAYLOAD_MAX], expected[PAYLOAD_MAX];
    static float left[COUNT_MAX];
    for (size_t c = 0; c < LENGTH(codecs); c++)
        for (size_t n = 0; n < LENGTH(counts); n++) {
            const size_t count = counts[n];
            struct payloads payloads = {MEMBERS, all_bytes};
            struct member *owner = &members[1];
            struct error error = {0};
            encode_all(&codecs[c], count);
            struct feed sum = {.dtype = HEARTH_F32, .x = numbers, .e_new = left, .gain = 1, .key = 5};
            assert_int_equal(coder_encode(&codecs[c], kernels_best(), &sum, 0, count, expected), 0);
            for (size_t i = 0; i < count; i++)
                left[i] += ((float *)(void *)owner->e_new)[i];
            struct feed feed = {.dtype = HEARTH_F32, .e_new = owner->e_new, .gain = 1, .key = 5};
            assert_int_equal(coder_merge(&codecs[c], kernels_best(), &payloads,
                                         &(struct coder_owner){&feed, count, target}, &error),
                             HEARTH_OK);
            assert_memory_equal(target, expected, coder_len(&codecs[c], count));
            assert_memory_equal(owner->e_new, left, count * sizeof *left);
        }
}

TEST(results_are_rounded_to_the_type)
{
    const size_t count = 4096 + 7;
    for (size_t c = 0; c < LENGTH(codecs); c++)
        for (size_t d = 0; d < LENGTH(dtypes); d++) {
            struct payloads payloads = {MEMBERS, all_bytes};
            struct coder_out out = {result, dtypes[d], 3};
            struct error error = {0};
            encode_all(&codecs[c], count);
            memset(result, 0xa5, sizeof result);
            assert_int_equal(coder_decode(&codecs[c], kernels_best(), &payloads, &out, count, &error), 0);
            for (size_t i = 0; i < count; i++) {
                float mean = numbers[i] / 3;
                uint16_t narrow = 0;
                if (dtype_size(dtypes[d]) == 2) {
                    sets[0]->narrow(dtypes[d], &narrow, &mean, 1);
                    assert_int_equal(load_u16(result + 2 * i), narrow);
                } else {
                    assert_true(element(result, dtypes[d], i) == (double)mean);
                }
            }
            assert_int_equal(result[count * dtype_size(dtypes[d])], 0xa5);
        }
}

/* ---- int8 ---------------------------------------------------------------------------------------------- */

TEST(int8_has_no_bias)
{
    static const struct codec int8 = {.kind = CODEC_INT8},
                              stochastic = {.kind = CODEC_INT8, .stochastic = true};
    const struct codec *both[] = {&int8, &stochastic};
    struct member *m = &members[0];
    for (int i = 0; i < 2; i++) {
        double sum = 0, squares = 0;
        fill(m, HEARTH_F32, NUMBERS_GAUSS, 8, COUNT_MAX);
        struct feed feed = feed_of(m, HEARTH_F32);
        assert_int_equal(coder_encode(both[i], kernels_best(), &feed, 0, COUNT_MAX, m->payload), HEARTH_OK);
        for (size_t k = 0; k < COUNT_MAX; k++) {
            double left = element(m->e_new, HEARTH_F32, k);
            sum += left;
            squares += left * left;
        }
        assert_true(squares > 0 && fabs(sum) < 4 * sqrt(squares));
    }
}

/* A number between two steps becomes each of them as often as it should. */
TEST(stochastic_is_right_on_average)
{
    static const struct codec codec = {.kind = CODEC_INT8, .stochastic = true};
    struct member *m = &members[0];
    float *x = (float *)(void *)m->x;
    for (int part = 1; part < 10; part++) {
        double sum = 0;
        for (size_t i = 0; i < COUNT_MAX; i++)
            x[i] = i % 256 == 0 ? 127 : 20 + (float)part / 10; /* a scale of 1 */
        struct feed feed = {.dtype = HEARTH_F32, .x = x, .gain = 1, .key = (uint64_t)part};
        assert_int_equal(coder_encode(&codec, kernels_best(), &feed, 0, COUNT_MAX, m->payload), HEARTH_OK);
        assert_int_equal(decode(&codec, m->payload, COUNT_MAX), HEARTH_OK);
        for (size_t i = 0; i < COUNT_MAX; i++) {
            assert_true(i % 256 == 0 ? decoded[i] == 127 : decoded[i] == 20 || decoded[i] == 21);
            sum += i % 256 == 0 ? 0 : (double)decoded[i] - 20;
        }
        double drawn = COUNT_MAX / 256 * 255, expected = drawn * part / 10;
        assert_true(fabs(sum - expected) < 5 * sqrt(expected * (1 - part / 10.0)));
    }
}

TEST(dither_depends_on_key_and_place_only)
{
    static const struct codec codec = {.kind = CODEC_INT8, .stochastic = true};
    const size_t count = 2 * CODER_BLOCK;
    struct member *whole = &members[0], *parts = &members[1];
    fill(whole, HEARTH_F32, NUMBERS_GAUSS, 3, count);
    struct feed feed = {.dtype = HEARTH_F32, .x = whole->x, .gain = 1, .key = 1};
    assert_int_equal(coder_encode(&codec, kernels_best(), &feed, 0, count, whole->payload), HEARTH_OK);
    feed.x = whole->x + CODER_BLOCK * sizeof(float);
    assert_int_equal(coder_encode(&codec, kernels_best(), &feed, CODER_BLOCK, CODER_BLOCK, parts->payload),
                     HEARTH_OK);
    size_t len = coder_len(&codec, CODER_BLOCK) - PART_HEADER_LEN;
    assert_memory_equal(parts->payload + PART_HEADER_LEN, whole->payload + PART_HEADER_LEN + len, len);
    feed.key = 2;
    assert_int_equal(coder_encode(&codec, kernels_best(), &feed, CODER_BLOCK, CODER_BLOCK, parts->payload),
                     HEARTH_OK);
    assert_memory_not_equal(parts->payload + PART_HEADER_LEN, whole->payload + PART_HEADER_LEN + len, len);
}

/* ---- ends of ranges ------------------------------------------------------------------------------------ */

/* How large the residual of an element may be, for a block whose magnitudes are all the same. */
static double bound(enum codec_kind kind, double magnitude)
{
    switch (kind) {
    case CODEC_FP16:
        return magnitude * 0x1p-11;
    case CODEC_BF16:
        return fmax(magnitude * 0x1p-8, 0x1p-134); /* 2^-8: beyond the largest number nothing is near */
    case CODEC_INT8:
        return fmax(magnitude / 126, 0x1p-126);
    case CODEC_ONEBIT:
        return fmax(magnitude * 0x1p-8, 0x1p-133);
    default:
        return 0;
    }
}

TEST(extremes_stay_finite)
{
    static const float values[] = {0.0f,     0x1p-149f, 0x1.8p-140f, 0x1p-126f, 0x1.fffffep-127f, 0x1p-100f,
                                   65504.0f, 0x1p16f,   0x1p127f,    FLT_MAX,   FLT_MAX / 127};
    const size_t count = 513;
    float *x = (float *)(void *)members[0].x, *left = (float *)(void *)members[0].e_new;
    for (size_t c = 0; c < 6; c++)
        for (size_t v = 0; v < LENGTH(values); v++) {
            for (size_t i = 0; i < count; i++)
                x[i] = i % 3 == 0 ? -values[v] : values[v];
            struct feed feed = {.dtype = HEARTH_F32, .x = x, .e_new = left, .gain = 1};
            assert_int_equal(coder_encode(&codecs[c], kernels_best(), &feed, 0, count, members[0].payload),
                             0);
            assert_int_equal(decode(&codecs[c], members[0].payload, count), HEARTH_OK);
            for (size_t i = 0; i < count; i++) {
                assert_true(isfinite(decoded[i]) && isfinite(left[i]));
                assert_true(fabs((double)left[i]) <= bound(codecs[c].kind, (double)values[v]));
                assert_true(left[i] == x[i] - decoded[i]);
            }
        }
}

static void put_f32(struct member *m, enum hearth_dtype dtype, size_t at, float value)
{
    if (dtype == HEARTH_F64)
        ((double *)(void *)m->x)[at] = (double)value;
    else
        sets[0]->narrow(dtype, m->x + at * dtype_size(dtype), &value, 1);
}

/* The block that holds it is sent as zeros, or what is nearest; the others as ever. */
TEST(poison_is_reported)
{
    static const float poisons[] = {NAN, INFINITY, -INFINITY};
    const size_t count = 3 * CODER_BLOCK, at = CODER_BLOCK + 77;
    for (size_t c = 0; c < 6; c++)
        for (size_t d = 0; d < LENGTH(dtypes); d++)
            for (size_t v = 0; v < LENGTH(poisons); v++) {
                struct member *m = &members[0];
                fill(m, dtypes[d], NUMBERS_GAUSS, 4, count);
                put_f32(m, dtypes[d], at, poisons[v]);
                struct feed feed = feed_of(m, dtypes[d]);
                assert_int_equal(coder_encode(&codecs[c], kernels_best(), &feed, 0, count, m->payload),
                                 HEARTH_POISONED);
                assert_int_equal(decode(&codecs[c], m->payload, count), HEARTH_OK);
                for (size_t i = CODER_BLOCK; i < 2 * CODER_BLOCK; i++)
                    assert_true(decoded[i] == 0);
                assert_true(decoded[CODER_BLOCK - 1] != 0 && decoded[2 * CODER_BLOCK] != 0);
            }
    struct member *m = &members[0];
    fill(m, HEARTH_F64, NUMBERS_GAUSS, 4, count);
    ((double *)(void *)m->x)[at] = 1e300;
    struct feed feed = feed_of(m, HEARTH_F64);
    assert_int_equal(coder_encode(&codecs[3], kernels_best(), &feed, 0, count, m->payload), HEARTH_POISONED);
}

TEST(sums_beyond_f32_are_flagged)
{
    static uint8_t target[PAYLOAD_MAX];
    const size_t count = CODER_BLOCK + 9;
    float *x = (float *)(void *)members[0].x;
    for (size_t c = 0; c < 6; c++) {
        const uint8_t *const twice[] = {members[0].payload, members[0].payload};
        const uint8_t *const merged[] = {target, members[1].payload};
        struct payloads payloads = {2, twice}, flagged = {2, merged};
        struct coder_out out = {result, HEARTH_F32, 2};
        struct feed feed = {.dtype = HEARTH_F32, .x = x, .gain = 1};
        struct error error = {0};
        memset(x, 0, count * sizeof *x);
        assert_int_equal(coder_encode(&codecs[c], kernels_best(), &feed, 0, count, members[1].payload), 0);
        x[count - 1] = -FLT_MAX;
        if (codecs[c].kind == CODEC_ONEBIT)
            for (size_t i = CODER_BLOCK; i < count; i++)
                x[i] = -FLT_MAX;
        assert_int_equal(coder_encode(&codecs[c], kernels_best(), &feed, 0, count, members[0].payload), 0);
        assert_int_equal(coder_decode(&codecs[c], kernels_best(), &payloads, &out, count, &error),
                         HEARTH_POISONED);
        assert_int_equal(coder_merge(&codecs[c], kernels_best(), &payloads,
                                     &(struct coder_owner){&feed, count, target}, &error),
                         0);
        assert_int_equal(load_u64(target), PART_OVERFLOWS);
        assert_int_equal(coder_decode(&codecs[c], kernels_best(), &flagged, &out, count, &error),
                         HEARTH_POISONED);
        static uint8_t again[PAYLOAD_MAX];
        assert_int_equal(coder_merge(&codecs[c], kernels_best(), &flagged,
                                     &(struct coder_owner){&feed, count, again}, &error),
                         0);
        assert_int_equal(load_u64(again), PART_OVERFLOWS);
    }
}

/* ---- bytes --------------------------------------------------------------------------------------------- */

TEST(malformed_payloads_are_refused)
{
    static const struct {
        enum codec_kind kind;
        size_t at;
        uint8_t byte;
    } damages[] = {
        {CODEC_BF16, 0, 2},                    /* flags */
        {CODEC_NONE, 7, 1},                    /* reserved */
        {CODEC_FP16, 8 + 1, 114},              /* exponent */
        {CODEC_FP16, 8, 0x80},                 /* -128 */
        {CODEC_INT8, 8 + 3, 0x80},             /* a negative scale */
        {CODEC_INT8, 8 + 1, 0x7f},             /* infinite or nearly */
        {CODEC_ONEBIT, 8 + 1, 0xff},           /* negative */
        {CODEC_ONEBIT, 8 + 4 + 300 / 8, 0x10}, /* a bit that stands for no element */
    };
    const size_t count = 300;
    for (size_t i = 0; i < LENGTH(damages); i++) {
        struct codec codec = {.kind = damages[i].kind};
        struct payloads payloads = {MEMBERS, all_bytes};
        struct coder_out out = {result, HEARTH_F32, 1};
        struct feed feed = {.dtype = HEARTH_F32, .gain = 1};
        static uint8_t target[PAYLOAD_MAX];
        struct error error = {0};
        encode_all(&codec, count);
        members[2].payload[damages[i].at] = damages[i].byte;
        assert_int_equal(coder_decode(&codec, kernels_best(), &payloads, &out, count, &error),
                         HEARTH_PROTOCOL);
        assert_int_equal(error.rank, 2);
        assert_non_null(strstr(error.text, "part 2"));
        error.rank = -1;
        assert_int_equal(coder_merge(&codec, kernels_best(), &payloads,
                                     &(struct coder_owner){&feed, count, target}, &error),
                         HEARTH_PROTOCOL);
        assert_int_equal(error.rank, 2);
    }
}

TEST(energy_is_of_every_16th_block)
{
    static const struct codec codec = {.kind = CODEC_INT8};
    struct member *m = &members[0];
    double before = 0, after = 0;
    struct energy energy = {0, 0};
    fill(m, HEARTH_F32, NUMBERS_GAUSS, 12, COUNT_MAX);
    struct feed feed = feed_of(m, HEARTH_F32);
    feed.energy = &energy;
    assert_int_equal(coder_encode(&codec, kernels_best(), &feed, 0, COUNT_MAX, m->payload), HEARTH_OK);
    for (size_t i = 0; i < COUNT_MAX; i++) {
        float acc = ((float *)(void *)m->x)[i] + ((float *)(void *)m->e)[i];
        if (i / CODER_BLOCK % 16 != 0)
            continue;
        before += (double)acc * (double)acc;
        after += pow((double)((float *)(void *)m->e_new)[i], 2);
    }
    assert_true(fabs(energy.before - before) < 1e-9 * before);
    assert_true(after > 0 && fabs(energy.after - after) < 1e-9 * after && after < 1e-3 * before);
}

/* The part of tests/golden/coder_v1.hex: quarters, and for int8 and fp16 more than one sub-block. */
static void golden_number(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)((int)(i * 37 % 101) - 50) / 4 * (i >= 256 ? 0x1p-20f : 1.0f);
}

/* Long ones go past the caches, in other pieces than blocks and from any address. */
TEST(long_payloads_are_those_of_their_parts)
{
    enum { COUNT = (9 << 20) + 77, PART = 1 << 20 };
    static float x[COUNT];
    static uint8_t whole[COUNT * 2 + COUNT / 128], part[PART * 2 + PART / 128];
    const enum codec_kind kinds[] = {CODEC_BF16, CODEC_FP16, CODEC_INT8};
    numbers_fill(NUMBERS_GAUSS, 5, x, COUNT);
    for (size_t k = 0; k < LENGTH(kinds); k++) {
        struct codec codec = {.kind = kinds[k]};
        struct feed feed = {.dtype = HEARTH_F32, .x = x, .gain = 1};
        uint8_t *bytes = whole + 1 + k;
        memset(whole, 0xee, sizeof whole);
        assert_int_equal(coder_encode(&codec, sets[set_count - 1], &feed, 0, COUNT, bytes), HEARTH_OK);
        assert_int_equal(bytes[coder_len(&codec, COUNT)], 0xee);
        for (size_t at = 0; at < COUNT; at += PART) {
            size_t count = COUNT - at < PART ? COUNT - at : PART;
            feed.x = x + at;
            assert_int_equal(coder_encode(&codec, sets[0], &feed, at, count, part), HEARTH_OK);
            assert_memory_equal(bytes + coder_len(&codec, at), part + PART_HEADER_LEN,
                                coder_len(&codec, count) - PART_HEADER_LEN);
        }
    }
}

TEST(golden_payloads_stay)
{
    static const char *const names[] = {"none", "fp16", "bf16", "int8", "stochastic", "onebit"};
    static const size_t golden_counts[] = {9, 40, 40, 300, 40, 300};
    struct golden items[GOLDEN_MAX];
    assert_int_equal(golden_read("coder_v1.hex", items), LENGTH(names));
    for (size_t i = 0; i < LENGTH(names); i++) {
        float *x = (float *)(void *)members[0].x;
        struct feed feed = {.dtype = HEARTH_F32, .x = x, .gain = 1, .key = 1};
        golden_number(x, golden_counts[i]);
        assert_string_equal(items[i].name, names[i]);
        assert_int_equal(items[i].len, coder_len(&codecs[i], golden_counts[i]));
        for (int s = 0; s < set_count; s++) {
            assert_int_equal(
                coder_encode(&codecs[i], sets[s], &feed, 0, golden_counts[i], members[0].payload), HEARTH_OK);
            assert_memory_equal(members[0].payload, items[i].bytes, items[i].len);
        }
    }
}
