/* SPDX-License-Identifier: Apache-2.0 */
/* The definition of every kernel: plain loops. The other sets give the same bits. */
#include <float.h>

#include "kernel/element.h"
#include "kernel/quant.h"
#include "kernel/sift.h"
#include "kernel/typed.h"

/* Results would depend on the compiler if intermediate values could have more bits. 16: only _Float16 has. */
_Static_assert(FLT_EVAL_METHOD == 0 || FLT_EVAL_METHOD == 16, "float and double must be computed as such");

/* ---- integers: computed with 64 bits, stored with their own -------------------------------------------- */

ALWAYS_INLINE uint64_t load_integer(enum hearth_dtype dtype, const void *base, size_t index)
{
    switch (dtype) {
    case HEARTH_I8:
        return (uint64_t)(int64_t)((const int8_t *)base)[index];
    case HEARTH_U8:
        return ((const uint8_t *)base)[index];
    case HEARTH_I32:
        return (uint64_t)(int64_t)(int32_t)load_u32(base, index);
    case HEARTH_U32:
        return load_u32(base, index);
    default:
        return load_u64(base, index);
    }
}

ALWAYS_INLINE void store_integer(enum hearth_dtype dtype, void *base, size_t index, uint64_t x)
{
    if (dtype == HEARTH_I8 || dtype == HEARTH_U8)
        ((uint8_t *)base)[index] = (uint8_t)x;
    else if (dtype == HEARTH_I32 || dtype == HEARTH_U32)
        store_u32(base, index, (uint32_t)x);
    else
        store_u64(base, index, x);
}

ALWAYS_INLINE bool is_signed(enum hearth_dtype dtype)
{
    return dtype == HEARTH_I8 || dtype == HEARTH_I32 || dtype == HEARTH_I64;
}

/* ---- reduce -------------------------------------------------------------------------------------------- */

ALWAYS_INLINE float f32_op(int op, float a, float b)
{
    if (op == KERNEL_SUM)
        return a + b;
    if (op == KERNEL_PROD)
        return a * b;
    return f32_extreme(a, b, op == KERNEL_MIN);
}

ALWAYS_INLINE double f64_op(int op, double a, double b)
{
    if (op == KERNEL_SUM)
        return a + b;
    if (op == KERNEL_PROD)
        return a * b;
    return f64_extreme(a, b, op == KERNEL_MIN);
}

/* Sums and products that wrap have the same bits with a sign as without, and in C only the latter may. */
ALWAYS_INLINE uint64_t integer_op(enum hearth_dtype dtype, int op, uint64_t a, uint64_t b)
{
    bool less = is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case KERNEL_SUM:
        return a + b;
    case KERNEL_PROD:
        return a * b;
    case KERNEL_MIN:
        return less ? a : b;
    case KERNEL_MAX:
        return less ? b : a;
    case KERNEL_AND:
        return a & b;
    case KERNEL_OR:
        return a | b;
    default:
        return a ^ b;
    }
}

ALWAYS_INLINE void reduce_one(enum hearth_dtype dtype, int op, const struct operands *x, size_t i)
{
    switch (dtype) {
    case HEARTH_F32:
        store_f32(x->target, i, f32_op(op, load_f32(x->a, i), load_f32(x->b, i)));
        break;
    case HEARTH_F64:
        store_f64(x->target, i, f64_op(op, load_f64(x->a, i), load_f64(x->b, i)));
        break;
    case HEARTH_F16:
        store_u16(x->target, i,
                  f16_from_f32(f32_op(op, f16_to_f32(load_u16(x->a, i)), f16_to_f32(load_u16(x->b, i)))));
        break;
    case HEARTH_BF16:
        store_u16(x->target, i,
                  bf16_from_f32(f32_op(op, bf16_to_f32(load_u16(x->a, i)), bf16_to_f32(load_u16(x->b, i)))));
        break;
    default:
        store_integer(dtype, x->target, i,
                      integer_op(dtype, op, load_integer(dtype, x->a, i), load_integer(dtype, x->b, i)));
    }
}

ALWAYS_INLINE void reduce_loop(enum hearth_dtype dtype, int op, const struct operands *x)
{
    for (size_t i = 0; i < x->count; i++)
        reduce_one(dtype, op, x, i);
}

static void reduce(enum hearth_dtype dtype, int op, void *target, const void *a, const void *b, size_t count)
{
    for_type(dtype, op, &(struct operands){target, a, b, count}, reduce_loop);
}

/* ---- widen and narrow ---------------------------------------------------------------------------------- */

ALWAYS_INLINE void widen_one(enum hearth_dtype dtype, const struct operands *x, size_t i)
{
    switch (dtype) {
    case HEARTH_F32:
        store_f32(x->target, i, load_f32(x->a, i));
        break;
    case HEARTH_F64:
        store_f64(x->target, i, load_f64(x->a, i));
        break;
    case HEARTH_F16:
        store_f32(x->target, i, f16_to_f32(load_u16(x->a, i)));
        break;
    case HEARTH_BF16:
        store_f32(x->target, i, bf16_to_f32(load_u16(x->a, i)));
        break;
    case HEARTH_I8:
    case HEARTH_I32:
    case HEARTH_I64:
        store_f64(x->target, i, (double)(int64_t)load_integer(dtype, x->a, i));
        break;
    default:
        store_f64(x->target, i, (double)load_integer(dtype, x->a, i));
    }
}

/* NaN becomes 0. */
ALWAYS_INLINE uint64_t integer_of(enum hearth_dtype dtype, double x)
{
    switch (dtype) {
    case HEARTH_I8:
        return (uint64_t)f64_to_integer(x, INT8_MIN, INT8_MAX);
    case HEARTH_U8:
        return (uint64_t)f64_to_integer(x, 0, UINT8_MAX);
    case HEARTH_I32:
        return (uint64_t)f64_to_integer(x, INT32_MIN, INT32_MAX);
    case HEARTH_U32:
        return (uint64_t)f64_to_integer(x, 0, UINT32_MAX);
    case HEARTH_I64:
        return (uint64_t)f64_to_i64(x);
    default:
        return f64_to_u64(x);
    }
}

ALWAYS_INLINE void narrow_one(enum hearth_dtype dtype, const struct operands *x, size_t i)
{
    switch (dtype) {
    case HEARTH_F32:
    case HEARTH_F64:
        widen_one(dtype, x, i);
        break;
    case HEARTH_F16:
        store_u16(x->target, i, f16_from_f32(load_f32(x->a, i)));
        break;
    case HEARTH_BF16:
        store_u16(x->target, i, bf16_from_f32(load_f32(x->a, i)));
        break;
    default:
        store_integer(dtype, x->target, i, integer_of(dtype, load_f64(x->a, i)));
    }
}

ALWAYS_INLINE void widen_loop(enum hearth_dtype dtype, int op, const struct operands *x)
{
    (void)op;
    for (size_t i = 0; i < x->count; i++)
        widen_one(dtype, x, i);
}

ALWAYS_INLINE void narrow_loop(enum hearth_dtype dtype, int op, const struct operands *x)
{
    (void)op;
    for (size_t i = 0; i < x->count; i++)
        narrow_one(dtype, x, i);
}

static void widen(enum hearth_dtype dtype, void *target, const void *source, size_t count)
{
    for_type(dtype, 0, &(struct operands){target, source, NULL, count}, widen_loop);
}

static void narrow(enum hearth_dtype dtype, void *target, const void *source, size_t count)
{
    for_type(dtype, 0, &(struct operands){target, source, NULL, count}, narrow_loop);
}

/* ---- scale --------------------------------------------------------------------------------------------- */

static void multiply(enum hearth_dtype dtype, void *x, size_t count, double factor)
{
    assert(dtype == HEARTH_F32 || dtype == HEARTH_F64);
    for (size_t i = 0; i < count; i++)
        if (dtype == HEARTH_F32)
            store_f32(x, i, load_f32(x, i) * (float)factor);
        else
            store_f64(x, i, load_f64(x, i) * factor);
}

static void divide(enum hearth_dtype dtype, void *x, size_t count, double factor)
{
    assert(dtype == HEARTH_F32 || dtype == HEARTH_F64);
    for (size_t i = 0; i < count; i++)
        if (dtype == HEARTH_F32)
            store_f32(x, i, load_f32(x, i) / (float)factor);
        else
            store_f64(x, i, load_f64(x, i) / factor);
}

static void copy_far(void *target, const void *source, size_t len)
{
    memcpy(target, source, len);
}

static void stream_end(void)
{
}

const struct kernels kernels_scalar = {
    .name = "scalar",
    .reduce = reduce,
    .widen = widen,
    .narrow = narrow,
    .multiply = multiply,
    .divide = divide,
    .copy_far = copy_far,
    .stream = copy_far,
    .stream_end = stream_end,
    .quant = &quant_scalar,
    .sift = &sift_scalar,
    .matrix = &matrix_scalar,
};
