/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of chosen elements as bytes: round trips, sizes, golden bytes, malformed ones; sums of lists. */
#include <math.h>

#include "compress/sparse.h"
#include "core/prng.h"
#include "numbers.h"
#include "support/golden.h"
#include "support/suite.h"

#define ENTRIES 5000

static uint32_t index_in[ENTRIES], index_out[ENTRIES];
static float value_in[ENTRIES], value_out[ENTRIES], value_left[ENTRIES];

static struct codec codec_with(enum codec_values values)
{
    return (struct codec){.kind = CODEC_TOPK, .values = values, .ratio = 1};
}

/* `keep` of `count` at random: each is taken with the chance that is left for it. */
static void draw(uint64_t seed, size_t keep, size_t count)
{
    struct prng p;
    size_t at = 0;
    prng_init(&p, seed);
    for (size_t i = 0; i < count && at < keep; i++)
        if (prng_below(&p, count - i) < keep - at)
            index_in[at++] = (uint32_t)i;
    assert_int_equal(at, keep);
    numbers_fill(NUMBERS_GAUSS, seed, value_in, keep);
}

static void round_trip(const struct codec *codec, size_t keep, size_t count)
{
    size_t len = sparse_len(codec, keep, count);
    uint8_t *bytes = malloc(len + 1), *first = malloc(len + 1);
    struct error error;
    assert_true(bytes && first);
    for (int s = 0; s < set_count; s++) {
        struct sparse in = {keep, index_in, value_left}, out = {keep, index_out, value_out};
        memcpy(value_left, value_in, keep * sizeof *value_in);
        memset(bytes, 0xee, len + 1);
        sparse_encode(codec, sets[s], &in, count, bytes);
        assert_int_equal(bytes[len], 0xee);
        if (s == 0)
            memcpy(first, bytes, len);
        assert_memory_equal(first, bytes, len);
        assert_int_equal(sparse_decode(codec, sets[s], bytes, count, &out, &error), 0);
        assert_int_equal(out.count, keep);
        assert_memory_equal(index_in, index_out, keep * sizeof *index_in);
        for (size_t i = 0; i < keep; i++)
            assert_true(value_left[i] == value_in[i] - value_out[i]);
        if (codec->values == VALUES_F32)
            assert_memory_equal(value_in, value_out, keep * sizeof *value_in);
    }
    free(first);
    free(bytes);
}

TEST(lists_survive)
{
    static const size_t counts[] = {1, 2, 7, 64, 255, 256, 4096, 5000, 100000};
    static const size_t keeps[] = {1, 2, 3, 8, 63, 255, 256, 257, 513, 1000, 4096, 5000};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (size_t k = 0; k < sizeof keeps / sizeof keeps[0]; k++) {
            if (keeps[k] > counts[c])
                continue;
            struct codec codec = codec_with((enum codec_values)((c + k) % 3));
            draw(100 * c + k, keeps[k], counts[c]);
            round_trip(&codec, keeps[k], counts[c]);
        }
}

/* The first ones, the last ones, and both ends, of a small array and of the longest. */
TEST(ends_survive)
{
    static const size_t counts[] = {300, SPARSE_COUNT_MAX};
    struct codec codec = codec_with(VALUES_BF16);
    for (size_t c = 0; c < 2; c++)
        for (uint32_t keep = 1; keep <= 300; keep += 23)
            for (uint32_t low = 0; low <= keep; low += keep) { /* how many stand at the low end */
                draw(keep, keep, 300);
                for (uint32_t i = 0; i < keep; i++)
                    index_in[i] = i < low ? i : (uint32_t)counts[c] - keep + i;
                round_trip(&codec, keep, counts[c]);
            }
}

TEST(an_empty_list_has_no_bytes)
{
    struct codec codec = codec_with(VALUES_INT8);
    struct sparse list = {0, index_out, value_out};
    struct error error;
    uint8_t none = 0xee;
    assert_int_equal(sparse_len(&codec, 0, 100), 0);
    assert_int_equal(sparse_decode(&codec, sets[0], &none, 100, &list, &error), 0);
    assert_int_equal(list.count, 0);
    sparse_encode(&codec, sets[0], &list, 100, &none);
    assert_int_equal(none, 0xee);
}

/* log2 of the ways to choose. */
static double entropy_bits(size_t keep, size_t count)
{
    double n = (double)count, k = (double)keep;
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2);
}

/* Lists of a chunk are so short that the two bytes that are filled up count. */
TEST(indices_are_near_their_entropy)
{
    static const double ratios[] = {0.001, 0.002, 0.005, 0.01, 1.0 / 64, 0.02, 0.03, 0.04, 0.05, 0.06, 0.1};
    struct codec codec = codec_with(VALUES_F32);
    for (size_t r = 0; r < sizeof ratios / sizeof ratios[0]; r++) {
        double limit = ratios[r] <= 0.05 ? 1.09 : 1.095;
        for (int shift = 12; shift <= 26; shift += 14) {
            size_t count = (size_t)1 << shift, keep = (size_t)ceil((double)count * ratios[r]);
            double bits = 8.0 * (double)(sparse_len(&codec, keep, count) - 4 * keep);
            assert_true(bits - (shift == 12 ? 14 : 0) <= limit * entropy_bits(keep, count));
        }
    }
    assert_int_equal(sparse_len(&codec, 64, 4096) - 4 * 64, 64);
}

/* ---- malformed ----------------------------------------------------------------------------------------- */

#define KEEP  70
#define COUNT 1000

static uint8_t good[1024], bad[1024];

static void refused(const struct codec *codec, const char *word)
{
    struct sparse out = {KEEP, index_out, value_out};
    struct error error;
    error_clear(&error);
    assert_int_equal(sparse_decode(codec, sets[0], bad, COUNT, &out, &error), HEARTH_PROTOCOL);
    assert_non_null(strstr(error.text, word));
}

static size_t make_good(const struct codec *codec)
{
    struct sparse in = {KEEP, index_in, value_in};
    draw(1, KEEP, COUNT);
    sparse_encode(codec, sets[0], &in, COUNT, good);
    memcpy(bad, good, sizeof bad);
    return sparse_len(codec, KEEP, COUNT);
}

TEST(indices_that_do_not_ascend_are_refused)
{
    struct codec codec = codec_with(VALUES_F32);
    size_t row = sparse_len(&codec, KEEP, COUNT) - 4 * KEEP;
    make_good(&codec);
    memset(bad, 0, row); /* too few ones in the row */
    refused(&codec, "ascend");
    make_good(&codec);
    memset(bad, 0xff, row); /* too many, and low bits that reach beyond the end, or bits beside */
    refused(&codec, "indices");
}

/* Low bits that fall while the row stands still: indices 0, 1 with their low bits exchanged. */
TEST(low_bits_that_fall_are_refused)
{
    struct codec codec = codec_with(VALUES_F32);
    struct sparse in = {2, index_in, value_in}, out = {2, index_out, value_out};
    struct error error;
    uint8_t bytes[64];
    index_in[0] = 0, index_in[1] = 8; /* v: 0, 7; five or more low bits, so both are in one bucket */
    value_in[0] = value_in[1] = 1;
    sparse_encode(&codec, sets[0], &in, 1000, bytes);
    assert_int_equal(sparse_decode(&codec, sets[0], bytes, 1000, &out, &error), 0);
    assert_int_equal(bytes[0], 0);
    bytes[0] = 9; /* v: 9, 7 */
    assert_int_equal(sparse_decode(&codec, sets[0], bytes, 1000, &out, &error), HEARTH_PROTOCOL);
    bytes[0] = 7; /* v: 7, 7: indices 7 and 8 */
    assert_int_equal(sparse_decode(&codec, sets[0], bytes, 1000, &out, &error), 0);
    assert_int_equal(index_out[0], 7);
}

/* Every single bit of the indices: refused, or another list of indices that ascend below the count. */
TEST(changed_indices_are_refused_or_others)
{
    struct codec codec = codec_with(VALUES_F32);
    struct sparse out = {KEEP, index_out, value_out};
    struct error error;
    size_t len = make_good(&codec), refusals = 0;
    uint8_t *exact = malloc(len);
    assert_non_null(exact);
    for (size_t bit = 0; bit < 8 * (len - 4 * KEEP); bit++) {
        memcpy(exact, good, len);
        exact[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (sparse_decode(&codec, sets[0], exact, COUNT, &out, &error)) {
            refusals++;
            continue;
        }
        assert_memory_not_equal(index_in, index_out, KEEP * sizeof *index_in);
        for (size_t i = 1; i < KEEP; i++)
            assert_true(index_out[i] > index_out[i - 1]);
        assert_true(index_out[KEEP - 1] < COUNT);
    }
    assert_true(refusals >= KEEP); /* each 1 of the row that goes missing at least */
    free(exact);
}

TEST(filling_must_be_zero)
{
    struct codec codec = codec_with(VALUES_F32);
    size_t row_end =
        make_good(&codec) - 4 * KEEP; /* 70 of 1000: 3 low bits, 27 bytes; 70 + 116 bits, 24 bytes */
    assert_int_equal(row_end, 51);
    bad[26] |= 0x80;
    refused(&codec, "bits beside");
    make_good(&codec);
    bad[50] |= 0x80;
    refused(&codec, "bits beside");
}

TEST(values_must_be_numbers)
{
    struct codec f32 = codec_with(VALUES_F32), bf16 = codec_with(VALUES_BF16), int8 = codec_with(VALUES_INT8);
    size_t len = make_good(&f32);
    memcpy(bad + len - 4, "\x00\x00\x80\x7f", 4);
    refused(&f32, "values");
    memcpy(bad + len - 4, "\x01\x00\x80\xff", 4);
    refused(&f32, "values");
    len = make_good(&bf16);
    memcpy(bad + len - 2, "\x80\xff", 2);
    refused(&bf16, "values");
    len = make_good(&int8);
    bad[len - 1] = 0x80;
    refused(&int8, "values");
    make_good(&int8);
    memcpy(bad + len - KEEP - 2, "\x02\x7c", 2);
    refused(&int8, "values");
    memcpy(bad + len - KEEP - 2, "\x00\x80", 2);
    refused(&int8, "values");
}

/* ---- golden -------------------------------------------------------------------------------------------- */

/* Indices 3, 5, 64, 999 of 1000 with values 1, -2.5, 0.0078125, 3: written by fuzz/make_sparse.py. */
TEST(golden_bytes_stay)
{
    static const char *const names[CODEC_VALUES_COUNT] = {"f32", "bf16", "int8"};
    static const uint32_t indices[] = {3, 5, 64, 999};
    static const float values[] = {1, -2.5f, 0.0078125f, 3};
    static struct golden items[GOLDEN_MAX];
    assert_int_equal(golden_read("sparse_v1.hex", items), CODEC_VALUES_COUNT);
    for (int v = 0; v < CODEC_VALUES_COUNT; v++) {
        struct codec codec = codec_with((enum codec_values)v);
        struct sparse in = {4, index_in, value_in}, out = {4, index_out, value_out};
        struct error error;
        uint8_t bytes[64];
        memcpy(index_in, indices, sizeof indices);
        memcpy(value_in, values, sizeof values);
        assert_string_equal(items[v].name, names[v]);
        assert_int_equal(items[v].len, sparse_len(&codec, 4, 1000));
        sparse_encode(&codec, sets[0], &in, 1000, bytes);
        assert_memory_equal(bytes, items[v].bytes, items[v].len);
        assert_int_equal(sparse_decode(&codec, sets[0], bytes, 1000, &out, &error), 0);
        assert_memory_equal(index_out, indices, sizeof indices);
    }
}

/* ---- adding and merging -------------------------------------------------------------------------------- */

TEST(lists_are_put_and_added)
{
    float narrow[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    double wide[10] = {0};
    uint32_t index[3] = {0, 4, 9};
    float value[3] = {0.5f, -2, 0.1f};
    struct sparse list = {3, index, value};
    sparse_add(&list, HEARTH_F32, narrow);
    assert_true(narrow[0] == 1.5f && narrow[1] == 1 && narrow[4] == -1 && narrow[9] == 1 + 0.1f);
    sparse_put(&list, HEARTH_BF16, narrow);
    assert_true(narrow[0] == 0.5f && narrow[1] == 1 && narrow[4] == -2 && narrow[9] == 0.1f);
    sparse_put(&list, HEARTH_F64, wide);
    assert_true(wide[0] == 0.5 && wide[1] == 0 && wide[9] == (double)0.1f);
    sparse_add(&list, HEARTH_F64, wide);
    assert_true(wide[0] == 1 && wide[1] == 0 && wide[9] == 2 * (double)0.1f);
}

#define LISTS 40

/* Against a dense array to which the lists are added one after the other. */
TEST(merges_in_the_order_of_lists)
{
    static uint32_t index[LISTS][64], sum_index[LISTS * 64];
    static float value[LISTS][64], sum_value[LISTS * 64], dense[256];
    static bool there[256];
    struct sparse lists[LISTS], sum = {0, sum_index, sum_value};
    for (int count = 0; count <= LISTS; count = count < 5 ? count + 1 : count + 7) {
        memset(dense, 0, sizeof dense);
        memset(there, 0, sizeof there);
        for (int l = 0; l < count; l++) {
            size_t keep = (size_t)(l * 7 % 65);
            draw((uint64_t)(l + 50 * count), keep, 256);
            memcpy(index[l], index_in, keep * sizeof(uint32_t));
            memcpy(value[l], value_in, keep * sizeof(float));
            lists[l] = (struct sparse){keep, index[l], value[l]};
            for (size_t i = 0; i < keep; i++) {
                dense[index_in[i]] = there[index_in[i]] ? dense[index_in[i]] + value_in[i] : value_in[i];
                there[index_in[i]] = true;
            }
        }
        sparse_merge(lists, count, &sum);
        size_t at = 0;
        for (uint32_t i = 0; i < 256; i++) {
            if (!there[i])
                continue;
            assert_true(at < sum.count && sum.index[at] == i && sum.value[at] == dense[i]);
            at++;
        }
        assert_int_equal(at, sum.count);
    }
}
