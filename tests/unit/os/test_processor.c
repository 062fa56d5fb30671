/* SPDX-License-Identifier: Apache-2.0 */
/* What we think of the processor is what the kernel says of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "os/processor.h"

/* Among the words of a processor's line in /proc/cpuinfo, which may be long. */
static bool kernel_knows(FILE *file, const char *word)
{
    char line[16384];
    size_t len = strlen(word);

    rewind(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "flags", 5) != 0 && strncmp(line, "Features", 8) != 0)
            continue;
        for (const char *at = strstr(line, word); at; at = strstr(at + len, word))
            if (at[-1] == ' ' && (at[len] == ' ' || at[len] == '\n'))
                return true;
        return false;
    }
    return false;
}

static void test_aes(void **state)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    bool knows;

    (void)state;
    if (!file)
        skip();
    knows = kernel_knows(file, "aes") && (kernel_knows(file, "pclmulqdq") || kernel_knows(file, "pmull"));
    (void)fclose(file);
    assert_int_equal(processor_has_aes(), knows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_aes)};
    return cmocka_run_group_tests_name("processor", tests, NULL, NULL);
}
