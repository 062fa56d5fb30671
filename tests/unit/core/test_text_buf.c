/* SPDX-License-Identifier: Apache-2.0 */
/* Text that does not fit is cut, terminated, and its whole length known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/text_buf.h"

static void test_grows(void **state)
{
    char text[32];
    struct text_buf buf = text_buf_of(text, sizeof text);
    (void)state;
    text_buf_print(&buf, "%d and ", 12);
    text_buf_quote(&buf, "a \"b\" \\ \x7f\n");
    assert_string_equal(text, "12 and \"a \\\"b\\\" \\\\ ??\"");
    assert_int_equal(buf.len, strlen(text));
}

static void test_is_cut(void **state)
{
    char text[8] = "xxxxxxx";
    struct text_buf buf = text_buf_of(text, 5);
    (void)state;
    text_buf_print(&buf, "abc");
    text_buf_quote(&buf, "def");
    assert_string_equal(text, "abc\"");
    assert_int_equal(buf.len, 8);
    assert_int_equal(text[5], 'x');
}

static void test_no_buffer(void **state)
{
    struct text_buf buf = text_buf_of(NULL, 0);
    (void)state;
    text_buf_print(&buf, "abc");
    assert_int_equal(buf.len, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows),
        cmocka_unit_test(test_is_cut),
        cmocka_unit_test(test_no_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
