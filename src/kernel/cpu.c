/* SPDX-License-Identifier: Apache-2.0 */
/* What the processor can do, and its floating-point modes. */
#include "kernel/sets.h"

#if defined(__x86_64__)

#include <cpuid.h>

#define ECX_OSXSAVE (1u << 27)
#define ECX_AVX     (1u << 28)
#define ECX_F16C    (1u << 29)
#define EBX_AVX2    (1u << 5)
#define XCR0_YMM    0x6u /* the system saves the registers of SSE and AVX */

bool cpu_has_avx2(void)
{
    const unsigned int needed = ECX_OSXSAVE | ECX_AVX | ECX_F16C;
    unsigned int eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & needed) != needed)
        return false;
    __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
    if ((eax & XCR0_YMM) != XCR0_YMM)
        return false;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & EBX_AVX2);
}

/* The status flags travel with the modes: what our arithmetic raises is not the caller's business. The memory
 * clobbers keep the compiler from moving loads and stores, and so the arithmetic between them, across. */
#define MXCSR_DEFAULT 0x1f80u

uint64_t fpmode_enter(void)
{
    uint32_t saved, ours = MXCSR_DEFAULT;
    __asm__ volatile("stmxcsr %0" : "=m"(saved) : : "memory");
    __asm__ volatile("ldmxcsr %0" : : "m"(ours) : "memory");
    return saved;
}

void fpmode_leave(uint64_t saved)
{
    uint32_t theirs = (uint32_t)saved;
    __asm__ volatile("ldmxcsr %0" : : "m"(theirs) : "memory");
}

#elif defined(__aarch64__)

/* FPCR below, FPSR (the status flags) above: see x86-64. Writing FPCR is slow on some processors and the
 * default is what is nearly always there. */
uint64_t fpmode_enter(void)
{
    uint64_t control, status;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control) : : "memory");
    __asm__ volatile("mrs %0, fpsr" : "=r"(status) : : "memory");
    if (control != 0)
        __asm__ volatile("msr fpcr, %0" : : "r"(UINT64_C(0)) : "memory");
    return (control & UINT32_MAX) | status << 32;
}

void fpmode_leave(uint64_t saved)
{
    uint64_t control = saved & UINT32_MAX;
    if (control != 0)
        __asm__ volatile("msr fpcr, %0" : : "r"(control) : "memory");
    __asm__ volatile("msr fpsr, %0" : : "r"(saved >> 32) : "memory");
}

#else

#include <fenv.h>

/* All that portable C has a name for. */
uint64_t fpmode_enter(void)
{
    int saved = fegetround();
    fesetround(FE_TONEAREST);
    return (uint64_t)saved;
}

void fpmode_leave(uint64_t saved)
{
    fesetround((int)saved);
}

#endif

#if !defined(__x86_64__)
bool cpu_has_avx2(void)
{
    return false;
}
#endif
