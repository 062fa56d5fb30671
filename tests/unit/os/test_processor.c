/* SPDX-License-Identifier: Apache-2.0 */
/* What we think of the processor is what the kernel says of it. */
#include "os/processor.h"
#include "support/suite.h"

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

TEST(test_aes)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    bool knows;

    if (!file)
        skip();
    knows = kernel_knows(file, "aes") && (kernel_knows(file, "pclmulqdq") || kernel_knows(file, "pmull"));
    (void)fclose(file);
    assert_int_equal(processor_has_aes(), knows);
}
