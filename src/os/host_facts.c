/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the system what the machine has. */
#include "os/host_facts.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/hash.h"
#include "os/host_file.h"
#include "os/processor.h"
#include "os/thread.h"

#define TEXT_MAX 256

static uint64_t machine_hash(const struct utsname *name)
{
    char text[TEXT_MAX];
    struct stat net;
    uint64_t hash = 0;

    if (file_read("/etc/machine-id", text, sizeof text) ||
        file_read("/proc/sys/kernel/random/boot_id", text, sizeof text))
        hash = hash64(hash, text, strlen(text));
    else
        hash = hash64(hash, name->nodename, strlen(name->nodename));
    if (stat("/proc/self/ns/net", &net) == 0)
        hash = hash_mix(hash, (uint64_t)net.st_ino);
    return hash;
}

static uint16_t cpu_bits(void)
{
    unsigned bits = processor_has_aes() ? HOST_AES : 0;
#if defined(__x86_64__)
    bits |= __builtin_cpu_supports("avx2") ? HOST_AVX2 : 0;
    bits |= __builtin_cpu_supports("avx512f") ? HOST_AVX512 : 0;
#elif defined(__aarch64__)
    bits |= HOST_NEON;
#endif
    return (uint16_t)bits;
}

void host_facts(struct host_facts *facts)
{
    struct utsname name = {0};
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    int cores = cpu_count();

    (void)uname(&name); /* an empty name is what is left */
    memset(facts, 0, sizeof *facts);
    facts->machine = machine_hash(&name);
    facts->memory_mib = pages > 0 && page > 0 ? (uint32_t)(((uint64_t)pages * (uint64_t)page) >> 20) : 0;
    facts->cores = (uint16_t)(cores < UINT16_MAX ? cores : UINT16_MAX);
    facts->cpu = cpu_bits();
    name.release[14] = '\0'; /* distributions write long ones */
    snprintf(facts->platform, sizeof facts->platform, "%.8s %.12s %.8s", name.sysname, name.release,
             name.machine);
    for (char *c = facts->platform; *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}
