/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the processor, or the kernel about it. */
#include "os/processor.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

#define CAN_AES   (1ul << 3) /* HWCAP_AES and HWCAP_PMULL of the kernel's asm/hwcap.h */
#define CAN_PMULL (1ul << 4)
#endif

bool processor_has_aes(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__) && defined(__linux__)
    return (getauxval(AT_HWCAP) & (CAN_AES | CAN_PMULL)) == (CAN_AES | CAN_PMULL);
#else
    return false;
#endif
}
