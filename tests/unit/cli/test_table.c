/* SPDX-License-Identifier: Apache-2.0 */
/* Columns are aligned, empty ones left out, and what others sent cannot move a cursor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/shared/table.h"
#include "printed.h"

static void test_plain_text(void **state)
{
    static const struct {
        const char *text, *plain;
        size_t size;
    } cases[] = {{"desk", "desk", 32},
                 {"", "", 32},
                 {"a\033[2Jb\nc\td\x7f", "a?[2Jb?c?d?", 32},
                 {"K\xc3\xbc"
                  "che",
                  "K\xc3\xbc"
                  "che",
                  32},
                 {"a\xc2\x9b"
                  "31m",
                  "a?31m", 32},
                 {"abcdef", "abc", 4},
                 {"ab\xc3\xbc", "ab", 4},
                 {"a\xe2\x82\xac", "a", 3},
                 {"a\xe2\x82\xac", "a\xe2\x82\xac", 5},
                 {"abc", "", 1}};
    char target[32];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(target, '!', sizeof target);
        assert_ptr_equal(plain_text(cases[i].text, target, cases[i].size), target);
        assert_string_equal(target, cases[i].plain);
    }
}

static void test_columns(void **state)
{
    struct table table;
    struct printed out;
    (void)state;
    table_open(&table, "lrll");
    TABLE_ROW(&table, PAINT_DIM, "name", "count", "never", "end");
    TABLE_ROW(&table, PAINT_NONE,
              "K\xc3\xbc"
              "che",
              "7", "", "x");
    TABLE_ROW(&table, PAINT_NONE, "b", "1000000");
    TABLE_ROW(&table, PAINT_NONE, "c\n", NULL);
    table_print(&table, printed_open(&out), "  ");
    table_close(&table);
    assert_string_equal(printed_text(&out), "  name     count  end\n"
                                            "  K\xc3\xbc"
                                            "che        7  x\n"
                                            "  b      1000000\n"
                                            "  c?\n");
    printed_free(&out);
}

static void test_many_rows(void **state)
{
    struct table table;
    struct printed out;
    (void)state;
    table_open(&table, "rr");
    TABLE_ROW(&table, PAINT_DIM, "a", "b");
    for (int i = 0; i < 1000; i++)
        TABLE_ROW(&table, PAINT_NONE, "1", "2");
    table_print(&table, printed_open(&out), "");
    table_close(&table);
    assert_int_equal(strlen(printed_text(&out)), 1001 * 5);
    printed_free(&out);
}

/* Rows that cannot wait for those to come. */
static void test_fixed_columns(void **state)
{
    static const int widths[] = {5, -4, 3, 0};
    const char *const row[] = {"1", "ab", "longer"};
    struct printed out;
    (void)state;
    FILE *file = printed_open(&out);
    columns_print(file, widths, (const char *const[]){"size", "name", "n", "exact"}, 4);
    columns_print(file, widths, row, 3);
    columns_print(file, widths, (const char *const[]){"", "", "", text_exact(true).s}, 4);
    assert_string_equal(printed_text(&out), "   size name   n exact\n"
                                            "      1 ab   longer\n"
                                            "                 yes\n");
    printed_free(&out);
    assert_non_null(strstr(text_exact(false).s, "NO"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain_text), cmocka_unit_test(test_columns),
                                       cmocka_unit_test(test_many_rows),
                                       cmocka_unit_test(test_fixed_columns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
