/* SPDX-License-Identifier: Apache-2.0 */
/* One loop for all element types and operations. A loop is always inlined, with type and operation as
 * constants, so the compiler makes a copy for each pair that tests neither. Inside kernel/ only. */
#pragma once

#include <assert.h>

#include "kernel/sets.h"

struct operands {
    void *target;
    const void *a, *b; /* b: of reductions only */
    size_t count;
};

typedef void typed_loop(enum hearth_dtype dtype, int op, const struct operands *x);

ALWAYS_INLINE size_t size_of(enum hearth_dtype dtype)
{
    static const uint8_t sizes[DTYPE_COUNT] = {
        [HEARTH_F32] = 4, [HEARTH_F64] = 8, [HEARTH_F16] = 2, [HEARTH_BF16] = 2, [HEARTH_I8] = 1,
        [HEARTH_I32] = 4, [HEARTH_I64] = 8, [HEARTH_U8] = 1,  [HEARTH_U32] = 4,  [HEARTH_U64] = 8,
    };
    return sizes[dtype];
}

ALWAYS_INLINE void for_op(enum hearth_dtype dtype, int op, const struct operands *x, typed_loop *loop)
{
    if (dtype < HEARTH_I8 && op >= KERNEL_AND) /* no copies for bits of floating-point numbers */
        __builtin_unreachable();
    switch (op) {
    case KERNEL_SUM:
        loop(dtype, KERNEL_SUM, x);
        break;
    case KERNEL_PROD:
        loop(dtype, KERNEL_PROD, x);
        break;
    case KERNEL_MIN:
        loop(dtype, KERNEL_MIN, x);
        break;
    case KERNEL_MAX:
        loop(dtype, KERNEL_MAX, x);
        break;
    case KERNEL_AND:
        loop(dtype, KERNEL_AND, x);
        break;
    case KERNEL_OR:
        loop(dtype, KERNEL_OR, x);
        break;
    default:
        loop(dtype, KERNEL_XOR, x);
    }
}

ALWAYS_INLINE void for_type(enum hearth_dtype dtype, int op, const struct operands *x, typed_loop *loop)
{
    assert(dtype >= HEARTH_I8 || op < KERNEL_AND);
    switch (dtype) {
    case HEARTH_F32:
        for_op(HEARTH_F32, op, x, loop);
        break;
    case HEARTH_F64:
        for_op(HEARTH_F64, op, x, loop);
        break;
    case HEARTH_F16:
        for_op(HEARTH_F16, op, x, loop);
        break;
    case HEARTH_BF16:
        for_op(HEARTH_BF16, op, x, loop);
        break;
    case HEARTH_I8:
        for_op(HEARTH_I8, op, x, loop);
        break;
    case HEARTH_I32:
        for_op(HEARTH_I32, op, x, loop);
        break;
    case HEARTH_I64:
        for_op(HEARTH_I64, op, x, loop);
        break;
    case HEARTH_U8:
        for_op(HEARTH_U8, op, x, loop);
        break;
    case HEARTH_U32:
        for_op(HEARTH_U32, op, x, loop);
        break;
    case HEARTH_U64:
        for_op(HEARTH_U64, op, x, loop);
        break;
    }
}
