/* SPDX-License-Identifier: Apache-2.0 */
/* topk of chunks: exactly the largest, nothing lost, the same bytes with every set, no harm by any bytes. */
#include "compress/block.h"
#include "compress/sparse.h"
#include "core/prng.h"
#include "numbers.h"
#include "support/suite.h"

#define BYTES_MAX (CODER_BLOCK_MAX * 5 + 16)

static struct codec topk(double ratio, uint32_t chunk, enum codec_values values)
{
    return (struct codec){
        .kind = CODEC_TOPK, .values = values, .ratio = ratio, .chunk = chunk, .feedback = true};
}

static float x[CODER_BLOCK_MAX], left[CODER_BLOCK_MAX], decoded[CODER_BLOCK_MAX];
static uint8_t bytes[BYTES_MAX], first_bytes[BYTES_MAX];
static uint32_t chosen[CODER_BLOCK_MAX];

/* What is coded, what is left and what was there agree, and the chosen are those of the naive selection. */
static void check_block(const struct codec *codec, size_t count)
{
    size_t keep = codec_keeps(codec, count), len = block_topk.len(codec, count), next = 0;
    numbers_largest(x, count, keep, chosen);
    for (int s = 0; s < set_count; s++) {
        struct block_context context = block_context_of(codec, sets[s]);
        memcpy(left, x, count * sizeof *x);
        memset(bytes, 0xee, sizeof bytes);
        block_topk.encode(&context, left, count, bytes);
        assert_int_equal(bytes[len], 0xee);
        if (s == 0)
            memcpy(first_bytes, bytes, len);
        assert_memory_equal(first_bytes, bytes, len);
        assert_true(block_topk.decode(&context, bytes, count, decoded, BLOCK_SET));
        next = 0;
        for (size_t i = 0; i < count; i++) {
            bool is_chosen = next < keep && chosen[next] == i;
            next += is_chosen;
            if (!is_chosen)
                assert_int_equal(magnitude_of(decoded[i]), 0);
            if (is_chosen && codec->values == VALUES_F32)
                assert_true(decoded[i] == x[i]);
            assert_true(left[i] == x[i] - decoded[i]);
        }
        assert_int_equal(next, keep);
    }
}

TEST(chooses_what_sorting_chooses)
{
    static const size_t counts[] = {1, 2, 3, 7, 63, 64, 65, 100, 255, 257, 1000, 4095, 4096};
    static const double ratios[] = {1e-9, 0.001, 0.01, 1.0 / 64, 0.1, 0.3, 0.5, 1.0};
    for (int kind = 0; kind < NUMBERS_KINDS; kind++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            for (size_t r = 0; r < sizeof ratios / sizeof ratios[0]; r++) {
                struct codec codec = topk(ratios[r], 4096, (enum codec_values)((c + r) % 3));
                numbers_fill((enum numbers)kind, 17 * c + r, x, counts[c]);
                check_block(&codec, counts[c]);
            }
}

TEST(chooses_in_the_longest_chunk)
{
    static const double ratios[] = {0.001, 0.02, 0.4, 1.0};
    for (int kind = 0; kind < NUMBERS_KINDS; kind++) {
        struct codec codec = topk(ratios[kind % 4], CODER_BLOCK_MAX, VALUES_INT8);
        numbers_fill((enum numbers)kind, 5, x, CODER_BLOCK_MAX);
        check_block(&codec, CODER_BLOCK_MAX);
    }
}

/* Whatever the blocks before ended with, the bytes are the same. */
TEST(levels_change_nothing)
{
    static const uint32_t levels[] = {0,          1,          0x3f000000, 0x40000000,
                                      0x401a0000, 0x40400000, 0x7f7fffff, 0xffffffff};
    struct codec codec = topk(1.0 / 64, 4096, VALUES_F32);
    size_t len = block_topk.len(&codec, 4096);
    for (int kind = 0; kind < NUMBERS_KINDS; kind++) {
        numbers_fill((enum numbers)kind, 8, x, 4096);
        check_block(&codec, 4096);
        for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++)
            for (int s = 0; s < set_count; s++) {
                uint32_t level = levels[l];
                struct block_context context = block_context_of(&codec, sets[s]);
                context.level = &level;
                for (int again = 0; again < 3; again++) { /* with what it made of the level */
                    memcpy(left, x, 4096 * sizeof *x);
                    memset(bytes, 0xee, len);
                    block_topk.encode(&context, left, 4096, bytes);
                    assert_memory_equal(first_bytes, bytes, len);
                }
            }
    }
}

TEST(decoded_values_are_added)
{
    struct codec codec = topk(0.05, 1024, VALUES_F32);
    struct block_context context = block_context_of(&codec, sets[0]);
    numbers_fill(NUMBERS_GAUSS, 3, x, 1024);
    memcpy(left, x, 1024 * sizeof *x);
    block_topk.encode(&context, left, 1024, bytes);
    for (size_t i = 0; i < 1024; i++)
        decoded[i] = 1.0f;
    assert_true(block_topk.decode(&context, bytes, 1024, decoded, BLOCK_ADD));
    for (size_t i = 0; i < 1024; i++)
        assert_true(decoded[i] == (left[i] == 0 ? 1.0f + x[i] : 1.0f));
}

/* int8: as near as half a step of a scale that is at most one bf16 above the least possible. */
TEST(int8_is_as_near_as_its_scale)
{
    struct codec codec = topk(0.1, 2048, VALUES_INT8);
    struct block_context context = block_context_of(&codec, sets[0]);
    numbers_fill(NUMBERS_GAUSS, 9, x, 2048);
    memcpy(left, x, sizeof *x * 2048);
    block_topk.encode(&context, left, 2048, bytes);
    assert_true(block_topk.decode(&context, bytes, 2048, decoded, BLOCK_SET));
    float most = 0;
    for (size_t i = 0; i < 2048; i++)
        most = x[i] > most ? x[i] : -x[i] > most ? -x[i] : most;
    for (size_t i = 0; i < 2048; i++)
        if (decoded[i] != 0)
            assert_true(magnitude_of(left[i]) <= magnitude_of(most / 127 * 1.01f / 2));
}

TEST(extremes_stay_finite)
{
    static const float most[] = {0x1.fffffep127f, 0x1.fcp127f, 0x1p-149f, 0x1p-133f, 0x1p-126f};
    for (int values = 0; values < CODEC_VALUES_COUNT; values++)
        for (size_t m = 0; m < sizeof most / sizeof most[0]; m++) {
            struct codec codec = topk(0.5, 64, (enum codec_values)values);
            for (size_t i = 0; i < 64; i++)
                x[i] = (i % 2 ? most[m] : -most[m]) / (float)(1 + i % 7);
            check_block(&codec, 64);
            for (size_t i = 0; i < 64; i++)
                assert_true(magnitude_of(decoded[i]) <= 0x7f7fffff && magnitude_of(left[i]) <= 0x7f7fffff);
        }
}

TEST(sizes_are_those_promised)
{
    struct codec int8 = topk(0.01, 4096, VALUES_INT8), sixty_four = topk(1.0 / 64, 4096, VALUES_BF16);
    assert_int_equal(codec_keeps(&int8, 4096), 41);
    assert_true(block_topk.len(&int8, 4096) * 8 <= 17 * 41);
    assert_int_equal(block_topk.len(&sixty_four, 4096), 64 + 2 * 64);
}

/* Every change of one bit is refused or decodes to something else; none does harm. */
TEST(changed_bits_do_no_harm)
{
    struct codec codec = topk(0.02, 1024, VALUES_INT8);
    struct block_context context = block_context_of(&codec, sets[0]);
    size_t len = block_topk.len(&codec, 1024), refused = 0;
    numbers_fill(NUMBERS_GAUSS, 4, x, 1024);
    block_topk.encode(&context, x, 1024, bytes);
    uint8_t *exact = malloc(len); /* so that a sanitizer sees what is read beyond */
    assert_non_null(exact);
    for (size_t bit = 0; bit < len * 8; bit++) {
        memcpy(exact, bytes, len);
        exact[bit / 8] ^= (uint8_t)(1u << bit % 8);
        refused += !block_topk.decode(&context, exact, 1024, decoded, BLOCK_SET);
    }
    free(exact);
    assert_true(refused > 0);
}
