/* SPDX-License-Identifier: Apache-2.0 */
/* Structs of different versions: the shorter length is copied, defaults stay, unknown fields must be zero. */
#include "core/sized.h"
#include "support/suite.h"

struct v1 {
    size_t size;
    uint64_t a;
};

struct v2 {
    size_t size;
    uint64_t a, b;
};

struct v3 {
    size_t size;
    uint64_t a, b, c;
};

static const struct v2 defaults = {.a = 1, .b = 2};

TEST(inputs_of_all_versions_are_read)
{
    struct error error;
    struct v1 older = {.size = sizeof older, .a = 7};
    struct v2 same = {.size = sizeof same, .a = 7, .b = 8}, own = defaults;
    struct v3 newer = {.size = sizeof newer, .a = 7, .b = 8};
    assert_int_equal(sized_read(&own, sizeof own, &older, "v", &error), HEARTH_OK);
    assert_true(own.size == sizeof own && own.a == 7 && own.b == 2);
    assert_int_equal(sized_read(&own, sizeof own, &same, "v", &error), HEARTH_OK);
    assert_true(own.size == sizeof own && own.a == 7 && own.b == 8);
    own = defaults;
    assert_int_equal(sized_read(&own, sizeof own, &newer, "v", &error), HEARTH_OK);
    assert_true(own.size == sizeof own && own.a == 7 && own.b == 8);
}

TEST(what_cannot_be_read_changes_nothing)
{
    static const size_t sizes[] = {0, 1, sizeof(size_t), sizeof(struct v3) - 1, 4096 + 8, SIZE_MAX};
    struct error error;
    struct v2 own = defaults;
    struct v3 given = {.a = 7};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        given.size = sizes[i];
        assert_int_equal(sized_check(&given, "call", "given", &error), HEARTH_INVALID);
        assert_non_null(strstr(error.text, "call: given->size is"));
        assert_int_equal(sized_read(&own, sizeof own, &given, "opts", &error), HEARTH_INVALID);
        assert_non_null(strstr(error.text, "hearth_opts_init"));
    }
    assert_int_equal(sized_check(NULL, "call", "given", &error), HEARTH_INVALID);
    assert_string_equal(error.text, "call: given is NULL");
    assert_int_equal(sized_read(&own, sizeof own, NULL, "opts", &error), HEARTH_INVALID);
    given = (struct v3){.size = sizeof given, .a = 7, .c = UINT64_C(1) << 63};
    assert_int_equal(sized_read(&own, sizeof own, &given, "opts", &error), HEARTH_UNSUPPORTED);
    assert_true(own.a == defaults.a && own.b == defaults.b);
}

TEST(outputs_are_as_long_as_the_caller_says)
{
    struct v3 given = {.size = 99, .a = 9, .b = 9, .c = 9};
    sized_write(&given, sizeof(struct v1), &defaults, sizeof defaults);
    assert_true(given.size == sizeof(struct v1) && given.a == 1 && given.b == 9 && given.c == 9);
    sized_write(&given, sizeof(struct v2), &defaults, sizeof defaults);
    assert_true(given.size == sizeof(struct v2) && given.a == 1 && given.b == 2 && given.c == 9);
    sized_write(&given, sizeof(struct v3), &defaults, sizeof defaults);
    assert_true(given.size == sizeof(struct v3) && given.a == 1 && given.b == 2 && given.c == 0);
    assert_int_equal(sized_check(&given, "call", "given", NULL), HEARTH_OK);
}
