/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of message between launcher and host agent may carry. */
#include "cli/run/launch_message.h"
#include "core/bytes.h"
#include "security/secret.h"
#include "support/suite.h"

/* A message without a byte behind it: reading further is seen by a sanitizer. */
static bool reads(int kind, const void *content, size_t len, struct launch_message *m)
{
    struct launch_stream stream = {.fd = -1, .data = malloc(4 + len), .len = 4 + len, .cap = 4 + len};
    assert_non_null(stream.data);
    store_u32(stream.data, (uint32_t)len << 8 | (uint32_t)kind);
    memcpy(stream.data + 4, content, len);
    bool good = launch_stream_next(&stream, m) == 1;
    launch_stream_close(&stream);
    return good;
}

TEST(lengths_are_those_of_the_kind)
{
    static const struct {
        char kind;
        size_t min, max;
    } cases[] = {
        {'d', 1, LAUNCH_CONTENT_MAX},
        {'v', 2, LAUNCH_CONTENT_MAX},
        {'a', 0, LAUNCH_CONTENT_MAX},
        {'k', 1, SECRET_TOKEN_MAX - 1},
        {'g', 1, 1},
        {'s', 1, 1},
        {'t', 1, 1},
        {'i', 1, INPUT_MAX},
        {'e', 0, 0},
        {'o', 0, OUTPUT_MAX},
        {'r', 0, OUTPUT_MAX},
        {'p', 4, 4},
        {'q', 2, 2},
        {'f', 1, LAUNCH_CONTENT_MAX},
    };
    struct launch_message m;
    char *ones = malloc(LAUNCH_CONTENT_MAX + 1);
    assert_non_null(ones);
    memset(ones, 1, LAUNCH_CONTENT_MAX + 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(reads(cases[i].kind, ones, cases[i].min, &m) && m.kind == cases[i].kind);
        assert_true(reads(cases[i].kind, ones, cases[i].max, &m) && m.len == cases[i].max);
        assert_false(reads(cases[i].kind, ones, cases[i].max + 1, &m));
        if (cases[i].min > 0)
            assert_false(reads(cases[i].kind, ones, cases[i].min - 1, &m));
    }
    free(ones);
}

TEST(numbers_are_in_range)
{
    struct launch_message m;
    assert_true(reads(LAUNCH_SIGNAL, "\7", 1, &m) && m.number == PASS_KILL);
    assert_false(reads(LAUNCH_SIGNAL, "\10", 1, &m));
    assert_false(reads(LAUNCH_GO, "\2", 1, &m));
    assert_false(reads(LAUNCH_TAKEN, "\377", 1, &m));
    assert_true(reads(LAUNCH_PID, "\1\2\0\0", 4, &m) && m.number == 513);
    assert_false(reads(LAUNCH_PID, "\0\0\0\0", 4, &m));
    assert_false(reads(LAUNCH_PID, "\1\0\0\0", 4, &m)); /* kill(-1) reaches every process */
    assert_false(reads(LAUNCH_PID, "\377\377\377\377", 4, &m));
    assert_true(reads(LAUNCH_END, "\3\0", 2, &m) && m.number == 3 && m.signal == 0);
    assert_false(reads(LAUNCH_END, "\0\200", 2, &m));
}

TEST(a_failure_has_a_code_and_a_printable_reason)
{
    struct launch_message m;
    assert_false(reads(LAUNCH_FAILED, "", 0, &m));
    assert_false(reads(LAUNCH_FAILED, "\0well", 5, &m)); /* a job that failed must not end with 0 */
    assert_true(reads(LAUNCH_FAILED, "\177", 1, &m) && m.number == 127);
    assert_string_equal(m.reason, "");
    assert_true(reads(LAUNCH_FAILED, "\176no\33[2J\n\0\377", 10, &m) && m.number == 126);
    assert_string_equal(m.reason, "no?[2J???");
}

TEST(texts_have_no_zero_inside)
{
    struct launch_message m;
    assert_false(reads(LAUNCH_VAR, "A=\0B", 4, &m));
    assert_false(reads(LAUNCH_ARG, "a\0", 2, &m));
    assert_false(reads(LAUNCH_DIR, "\0", 1, &m));
    assert_false(reads(LAUNCH_HELLO, "hearth host agent 9", 15, &m));
    assert_true(reads(LAUNCH_HELLO, LAUNCH_STREAM_GREETING, strlen(LAUNCH_STREAM_GREETING), &m));
    assert_true(reads('z', "from a later version", 20, &m) && m.kind == LAUNCH_NONE);
}
