/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on arrays. Pure functions, any thread, any alignment of elements; scalar.c is their definition
 * and every vector path gives the same bits.
 *
 * Rules of all kernels: default rounding (nearest even), subnormals kept (see fpmode_enter), no contraction.
 * A NaN result is the canonical quiet NaN of its type (f32 0x7fc00000, f64 0x7ff8000000000000, f16 0x7e00,
 * bf16 0x7fc0), in every kernel that does arithmetic or conversion. */
#pragma once

#include "core/types.h"
#include "kernel/matrix.h"

/* target[i] = a[i] op b[i]; op is KERNEL_SUM..., bit operations for integers only. The target is a, or b, or
 * overlaps neither. f16 and bf16: computed in f32, rounded once per call. Integers wrap. min and max: IEEE
 * 754-2019 minimum and maximum. */
typedef void reduce_fn(enum hearth_dtype dtype, int op, void *target, const void *a, const void *b,
                       size_t count);
/* target[i] = source[i] in another type; dtype is the narrower one. Regions do not overlap. */
typedef void convert_fn(enum hearth_dtype dtype, void *target, const void *source, size_t count);
/* x[i] = x[i] * factor, or x[i] / factor. f32 or f64; the factor is rounded to the type first. */
typedef void scale_fn(enum hearth_dtype dtype, void *x, size_t count, double factor);

struct quant_kernels; /* quant.h */
struct sift_kernels;  /* sift.h */

enum {
    KERNEL_SUM,
    KERNEL_PROD,
    KERNEL_MIN,
    KERNEL_MAX,
    KERNEL_AND, /* from here on of the bits of integers */
    KERNEL_OR,
    KERNEL_XOR,
    KERNEL_OPS
};

struct kernels {
    const char *name; /* "scalar", "avx2", "neon" */
    reduce_fn *reduce;
    /* To the type sums are kept in: f16, bf16 -> f32; i8, i32, i64, u8, u32, u64 -> f64; f32 -> f32 and
     * f64 -> f64 are copies with canonical NaNs. */
    convert_fn *widen;
    /* Back again: round to nearest even; integers saturate, NaN becomes 0. f32 -> f16 overflows to
     * infinity as IEEE says. f32 -> f32 and f64 -> f64 are copies with canonical NaNs. */
    convert_fn *narrow;
    scale_fn *multiply, *divide;
    /* memcpy of something large that nobody reads soon: past the caches, where the processor can do that. */
    void (*copy_far)(void *target, const void *source, size_t len);
    /* The same in pieces: other threads may look at the targets after stream_end only. */
    void (*stream)(void *target, const void *source, size_t len);
    void (*stream_end)(void);
    const struct quant_kernels *quant; /* of the dense codecs */
    const struct sift_kernels *sift;   /* of topk */
    const struct matrix_kernels *matrix;
};

/* The best this processor has; asked once, thread-safe, never NULL. */
const struct kernels *kernels_best(void);
/* By name; NULL if this build or processor does not have it. For tests and benchmarks. */
const struct kernels *kernels_named(const char *name);

/* Elements 0..count-1 of `target` become the identity of the operation (KERNEL_SUM...): 0, 1, for min and max
 * +inf / -inf or the largest / smallest integer, and for AND all bits set. */
void kernel_identity(enum hearth_dtype dtype, int op, void *target, size_t count);

/* The floating-point environment our kernels are defined in (nearest even, no flush to zero, no traps).
 * enter returns what was there; leave puts it back. Cheap. */
uint64_t fpmode_enter(void);
void fpmode_leave(uint64_t saved);
