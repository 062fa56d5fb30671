/* SPDX-License-Identifier: Apache-2.0 */
/* Text that does not fit is cut, terminated, and its whole length known. */
#include "core/text_buf.h"
#include "support/suite.h"

TEST(test_grows)
{
    char text[32];
    struct text_buf buf = text_buf_of(text, sizeof text);
    text_buf_print(&buf, "%d and ", 12);
    text_buf_quote(&buf, "a \"b\" \\ \x7f\n");
    assert_string_equal(text, "12 and \"a \\\"b\\\" \\\\ ??\"");
    assert_int_equal(buf.len, strlen(text));
}

TEST(test_is_cut)
{
    char text[8] = "xxxxxxx";
    struct text_buf buf = text_buf_of(text, 5);
    text_buf_print(&buf, "abc");
    text_buf_quote(&buf, "def");
    assert_string_equal(text, "abc\"");
    assert_int_equal(buf.len, 8);
    assert_int_equal(text[5], 'x');
}

TEST(test_no_buffer)
{
    struct text_buf buf = text_buf_of(NULL, 0);
    text_buf_print(&buf, "abc");
    assert_int_equal(buf.len, 3);
}
