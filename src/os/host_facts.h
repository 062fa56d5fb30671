/* SPDX-License-Identifier: Apache-2.0 */
/* What a machine has, for people and for plans. */
#pragma once

#include <stdint.h>

#define HOST_PLATFORM_MAX 32

/* Bits of struct host_facts.cpu; they travel to others. */
#define HOST_AVX2   1u
#define HOST_AVX512 2u
#define HOST_NEON   4u
#define HOST_AES    8u

struct host_facts {
    uint64_t
        machine; /* the same for all users and boots of it; other network namespaces are other machines */
    uint32_t memory_mib;
    uint16_t cores;
    uint16_t cpu;
    char platform[HOST_PLATFORM_MAX]; /* "Linux 6.1.0-18 x86_64", printable, cut */
};
/* What the system does not tell is 0. */
void host_facts(struct host_facts *facts);
