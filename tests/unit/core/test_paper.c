/* SPDX-License-Identifier: Apache-2.0 */
/* Text that does not fit is cut, terminated, and its whole length known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/paper.h"

static void test_grows(void **state)
{
    char text[32];
    struct paper paper = paper_of(text, sizeof(text));
    (void)state;
    paper_print(&paper, "%d and ", 12);
    paper_quote(&paper, "a \"b\" \\ \x7f\n");
    assert_string_equal(text, "12 and \"a \\\"b\\\" \\\\ ??\"");
    assert_int_equal(paper.len, strlen(text));
}

static void test_is_cut(void **state)
{
    char text[8] = "xxxxxxx";
    struct paper paper = paper_of(text, 5);
    (void)state;
    paper_print(&paper, "abc");
    paper_quote(&paper, "def");
    assert_string_equal(text, "abc\"");
    assert_int_equal(paper.len, 8);
    assert_int_equal(text[5], 'x');
}

static void test_no_buffer(void **state)
{
    struct paper paper = paper_of(NULL, 0);
    (void)state;
    paper_print(&paper, "abc");
    assert_int_equal(paper.len, 3);
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
