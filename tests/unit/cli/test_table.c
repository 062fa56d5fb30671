/* SPDX-License-Identifier: Apache-2.0 */
/* Columns are aligned, empty ones left out, and what others sent cannot move a cursor. */
#include "cli/shared/table.h"
#include "printed.h"
#include "support/suite.h"

TEST(test_plain_text)
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(target, '!', sizeof target);
        assert_ptr_equal(plain_text(cases[i].text, target, cases[i].size), target);
        assert_string_equal(target, cases[i].plain);
    }
}

TEST(test_columns)
{
    struct table table;
    struct printed out;
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

TEST(test_many_rows)
{
    struct table table;
    struct printed out;
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
TEST(test_fixed_columns)
{
    static const int widths[] = {5, -4, 3, 0};
    const char *const row[] = {"1", "ab", "longer"};
    struct printed out;
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
