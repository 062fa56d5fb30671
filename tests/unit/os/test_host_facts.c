/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine has is told the same each time, to each process, and fit to be shown. */
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/host.h"
#include "os/thread.h"
#include "support/suite.h"

TEST(facts_are_those_of_the_system)
{
    struct host_facts facts;
    struct utsname name;
    memset(&facts, 0xff, sizeof facts);
    host_facts(&facts);
    assert_true(facts.machine != 0);
    assert_int_equal(facts.cores, cpu_count());
    assert_in_range(facts.memory_mib, 16, UINT32_MAX - 1);
    assert_int_equal(facts.cpu & ~(HOST_AVX2 | HOST_AVX512 | HOST_NEON | HOST_AES), 0);
    if (facts.cpu & HOST_NEON)
        assert_int_equal(facts.cpu & (HOST_AVX2 | HOST_AVX512), 0);
    assert_int_equal(uname(&name), 0);
    assert_memory_equal(facts.platform, name.sysname, strlen(name.sysname));
    assert_non_null(strstr(facts.platform, name.machine));
}

TEST(platform_is_short_and_printable)
{
    struct host_facts facts;
    host_facts(&facts);
    size_t len = strnlen(facts.platform, sizeof facts.platform);
    assert_in_range(len, 1, sizeof facts.platform - 1);
    for (size_t i = 0; i < len; i++)
        assert_in_range(facts.platform[i], ' ', '~');
}

/* One key on two machines was copied: so it must be the same machine to all processes on it. */
TEST(processes_see_the_same_machine)
{
    struct host_facts mine, theirs;
    int status, ends[2];
    host_facts(&mine);
    host_facts(&theirs);
    assert_memory_equal(&mine, &theirs, sizeof mine);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        host_facts(&theirs);
        _exit(write(ends[1], &theirs, sizeof theirs) != (ssize_t)sizeof theirs);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(ends[0], &theirs, sizeof theirs), sizeof theirs);
    close(ends[0]);
    close(ends[1]);
    assert_memory_equal(&mine, &theirs, sizeof mine);
}

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

TEST(the_processor_has_aes_if_the_kernel_says_so)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    bool knows;

    if (!file)
        skip();
    knows = kernel_knows(file, "aes") && (kernel_knows(file, "pclmulqdq") || kernel_knows(file, "pmull"));
    (void)fclose(file);
    assert_int_equal(processor_has_aes(), knows);
}
