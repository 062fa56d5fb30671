/* SPDX-License-Identifier: Apache-2.0 */
/* The sets of kernels that this room has, and what the processor must have for them. Inside kernel/ only. */
#pragma once

#include "kernel/kernel.h"

#ifdef __FAST_MATH__
#error "the kernels are defined by IEEE arithmetic: build without -ffast-math"
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define NAN_F32  UINT32_C(0x7fc00000)
#define NAN_F64  UINT64_C(0x7ff8000000000000)
#define NAN_F16  UINT16_C(0x7e00)
#define NAN_BF16 UINT16_C(0x7fc0)

extern const struct kernels kernels_scalar;
extern const struct kernels kernels_avx2; /* defined on x86-64 */
extern const struct kernels kernels_neon; /* defined on little-endian aarch64 */
extern const struct matrix_kernels matrix_scalar;

/* AVX2 and F16C, with the system saving their registers. */
bool cpu_has_avx2(void);
