/* SPDX-License-Identifier: Apache-2.0 */
/* Names, sizes and parsing of types, operations and algorithms; the version. */
#include "core/types.h"
#include "support/suite.h"

TEST(every_dtype_has_name_size_and_parses_back)
{
    static const struct {
        const char *name;
        size_t size;
    } expected[DTYPE_COUNT] = {
        {"f32", 4}, {"f64", 8}, {"f16", 2}, {"bf16", 2}, {"i8", 1},
        {"i32", 4}, {"i64", 8}, {"u8", 1},  {"u32", 4},  {"u64", 8},
    };

    for (int i = 0; i < DTYPE_COUNT; i++) {
        enum hearth_dtype dtype = (enum hearth_dtype)i, parsed = (enum hearth_dtype)99;
        assert_string_equal(hearth_dtype_name(dtype), expected[i].name);
        assert_int_equal(hearth_dtype_size(dtype), expected[i].size);
        assert_int_equal(dtype_size(dtype), expected[i].size);
        assert_int_equal(hearth_dtype_parse(expected[i].name, &parsed), HEARTH_OK);
        assert_int_equal(parsed, dtype);
    }
}

TEST(every_op_and_algo_parses_back)
{
    static const char *const ops[OP_COUNT] = {"sum", "avg", "prod", "min", "max", "band", "bor", "bxor"};
    static const char *const algos[ALGO_COUNT] = {"auto", "ring", "direct",       "halving",
                                                  "tree", "star", "hierarchical", "exchange"};

    for (int i = 0; i < OP_COUNT; i++) {
        enum hearth_op op = (enum hearth_op)99;
        assert_string_equal(hearth_op_name((enum hearth_op)i), ops[i]);
        assert_int_equal(hearth_op_parse(ops[i], &op), HEARTH_OK);
        assert_int_equal(op, i);
    }
    for (int i = 0; i < ALGO_COUNT; i++) {
        enum hearth_algo algo = (enum hearth_algo)99;
        assert_string_equal(hearth_algo_name((enum hearth_algo)i), algos[i]);
        assert_int_equal(hearth_algo_parse(algos[i], &algo), HEARTH_OK);
        assert_int_equal(algo, i);
    }
}

TEST(the_unknown_is_refused)
{
    enum hearth_dtype dtype = HEARTH_U64;
    enum hearth_op op = HEARTH_OP_MAX;
    enum hearth_algo algo = HEARTH_ALGO_STAR;
    static const char *const bad[] = {"", "F32", "f32 ", "fp32", "ringg", "su", NULL};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(hearth_dtype_parse(bad[i], &dtype), HEARTH_INVALID);
        assert_int_equal(hearth_op_parse(bad[i], &op), HEARTH_INVALID);
        assert_int_equal(hearth_algo_parse(bad[i], &algo), HEARTH_INVALID);
        assert_non_null(strstr(hearth_error_text(), bad[i] ? bad[i] : "name is NULL"));
    }
    assert_int_equal(dtype, HEARTH_U64);
    assert_int_equal(op, HEARTH_OP_MAX);
    assert_int_equal(algo, HEARTH_ALGO_STAR);

    static const int unknown[] = {-1, 10, 14, 1 << 20, INT32_MIN};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        assert_string_equal(hearth_dtype_name((enum hearth_dtype)unknown[i]), "?");
        assert_int_equal(hearth_dtype_size((enum hearth_dtype)unknown[i]), 0);
        assert_string_equal(hearth_op_name((enum hearth_op)unknown[i]), "?");
        assert_string_equal(hearth_algo_name((enum hearth_algo)unknown[i]), "?");
    }
}

TEST(number_and_text_of_the_version_agree)
{
    char text[32];
    uint32_t version = hearth_version();

    snprintf(text, sizeof text, "%u.%u.%u", version >> 16, version >> 8 & 255, version & 255);
    assert_string_equal(hearth_version_string(), text);
    assert_int_equal(version >> 16, HEARTH_VERSION_MAJOR);
}
