/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files of golden bytes. */
#include "support/golden.h"
#include "support/suite.h"

#include <ctype.h>

/* Takes the pairs of hex digits of a line. */
static void bytes_add(struct golden *item, const char *line)
{
    unsigned byte;

    while (sscanf(line, " %2x", &byte) == 1) {
        assert_true(item->len < sizeof item->bytes);
        item->bytes[item->len++] = (uint8_t)byte;
        line += strspn(line, " ") + 2;
    }
}

size_t golden_read(const char *file, struct golden items[GOLDEN_MAX])
{
    const char *root = getenv("HEARTH_SOURCE_DIR");
    char path[1024], line[256];
    size_t count = 0;

    snprintf(path, sizeof path, "%s/tests/golden/%s", root ? root : ".", file);
    FILE *in = fopen(path, "r");
    if (!in)
        fail_msg("%s: cannot be read; run from the source directory or set HEARTH_SOURCE_DIR", path);
    while (fgets(line, sizeof line, in)) {
        if (isalpha((unsigned char)line[0])) {
            assert_true(count < GOLDEN_MAX);
            items[count] = (struct golden){.len = 0};
            assert_int_equal(sscanf(line, "%15s", items[count].name), 1);
            count++;
        } else if (line[0] == ' ') {
            assert_true(count > 0);
            bytes_add(&items[count - 1], line);
        }
    }
    fclose(in);
    return count;
}
