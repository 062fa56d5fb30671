/* SPDX-License-Identifier: Apache-2.0 */
/* The definition of every kernel: plain loops. The other sets give the same bits. */
#include <float.h>

#include "kernel/element.h"
#include "kernel/quant.h"
#include "kernel/sift.h"

/* Results would depend on the compiler if intermediate values could have more bits. 16: only _Float16 has. */
_Static_assert(FLT_EVAL_METHOD == 0 || FLT_EVAL_METHOD == 16, "float and double must be computed as such");

/* ---- reduce -------------------------------------------------------------------------------------------- */

static void sum_f32(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f32(target, i, load_f32(a, i) + load_f32(b, i));
}

static void prod_f32(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f32(target, i, load_f32(a, i) * load_f32(b, i));
}

static void min_f32(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f32(target, i, f32_min(load_f32(a, i), load_f32(b, i)));
}

static void max_f32(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f32(target, i, f32_max(load_f32(a, i), load_f32(b, i)));
}

static void sum_f64(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f64(target, i, load_f64(a, i) + load_f64(b, i));
}

static void prod_f64(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f64(target, i, load_f64(a, i) * load_f64(b, i));
}

static void min_f64(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f64(target, i, f64_min(load_f64(a, i), load_f64(b, i)));
}

static void max_f64(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f64(target, i, f64_max(load_f64(a, i), load_f64(b, i)));
}

static void sum_f16(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u16(target, i, f16_from_f32(f16_to_f32(load_u16(a, i)) + f16_to_f32(load_u16(b, i))));
}

static void prod_f16(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u16(target, i, f16_from_f32(f16_to_f32(load_u16(a, i)) * f16_to_f32(load_u16(b, i))));
}

static void min_f16(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u16(target, i, f16_from_f32(f32_min(f16_to_f32(load_u16(a, i)), f16_to_f32(load_u16(b, i)))));
}

static void max_f16(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u16(target, i, f16_from_f32(f32_max(f16_to_f32(load_u16(a, i)), f16_to_f32(load_u16(b, i)))));
}

static void sum_bf16(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u16(target, i, bf16_from_f32(bf16_to_f32(load_u16(a, i)) + bf16_to_f32(load_u16(b, i))));
}

static void prod_bf16(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u16(target, i, bf16_from_f32(bf16_to_f32(load_u16(a, i)) * bf16_to_f32(load_u16(b, i))));
}

static void min_bf16(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u16(target, i,
                  bf16_from_f32(f32_min(bf16_to_f32(load_u16(a, i)), bf16_to_f32(load_u16(b, i)))));
}

static void max_bf16(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u16(target, i,
                  bf16_from_f32(f32_max(bf16_to_f32(load_u16(a, i)), bf16_to_f32(load_u16(b, i)))));
}

/* Sums and products that wrap have the same bits with a sign as without, and in C only the latter may. */
static void sum_u8(void *target, const void *a, const void *b, size_t count)
{
    uint8_t *t = target;
    const uint8_t *x = a, *y = b;
    for (size_t i = 0; i < count; i++)
        t[i] = (uint8_t)(x[i] + y[i]);
}

static void prod_u8(void *target, const void *a, const void *b, size_t count)
{
    uint8_t *t = target;
    const uint8_t *x = a, *y = b;
    for (size_t i = 0; i < count; i++)
        t[i] = (uint8_t)(x[i] * y[i]);
}

static void sum_u32(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u32(target, i, load_u32(a, i) + load_u32(b, i));
}

static void prod_u32(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u32(target, i, load_u32(a, i) * load_u32(b, i));
}

static void sum_u64(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u64(target, i, load_u64(a, i) + load_u64(b, i));
}

static void prod_u64(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u64(target, i, load_u64(a, i) * load_u64(b, i));
}

static void min_i8(void *target, const void *a, const void *b, size_t count)
{
    int8_t *t = target;
    const int8_t *x = a, *y = b;
    for (size_t i = 0; i < count; i++)
        t[i] = y[i] < x[i] ? y[i] : x[i];
}

static void max_i8(void *target, const void *a, const void *b, size_t count)
{
    int8_t *t = target;
    const int8_t *x = a, *y = b;
    for (size_t i = 0; i < count; i++)
        t[i] = y[i] > x[i] ? y[i] : x[i];
}

static void min_u8(void *target, const void *a, const void *b, size_t count)
{
    uint8_t *t = target;
    const uint8_t *x = a, *y = b;
    for (size_t i = 0; i < count; i++)
        t[i] = y[i] < x[i] ? y[i] : x[i];
}

static void max_u8(void *target, const void *a, const void *b, size_t count)
{
    uint8_t *t = target;
    const uint8_t *x = a, *y = b;
    for (size_t i = 0; i < count; i++)
        t[i] = y[i] > x[i] ? y[i] : x[i];
}

static void min_i32(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u32(target, i,
                  (int32_t)load_u32(b, i) < (int32_t)load_u32(a, i) ? load_u32(b, i) : load_u32(a, i));
}

static void max_i32(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u32(target, i,
                  (int32_t)load_u32(b, i) > (int32_t)load_u32(a, i) ? load_u32(b, i) : load_u32(a, i));
}

static void min_u32(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u32(target, i, load_u32(b, i) < load_u32(a, i) ? load_u32(b, i) : load_u32(a, i));
}

static void max_u32(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u32(target, i, load_u32(b, i) > load_u32(a, i) ? load_u32(b, i) : load_u32(a, i));
}

static void min_i64(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u64(target, i,
                  (int64_t)load_u64(b, i) < (int64_t)load_u64(a, i) ? load_u64(b, i) : load_u64(a, i));
}

static void max_i64(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u64(target, i,
                  (int64_t)load_u64(b, i) > (int64_t)load_u64(a, i) ? load_u64(b, i) : load_u64(a, i));
}

static void min_u64(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u64(target, i, load_u64(b, i) < load_u64(a, i) ? load_u64(b, i) : load_u64(a, i));
}

static void max_u64(void *target, const void *a, const void *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u64(target, i, load_u64(b, i) > load_u64(a, i) ? load_u64(b, i) : load_u64(a, i));
}

/* Bits have no sign. */
static void and_u8(void *target, const void *a, const void *b, size_t count)
{
    uint8_t *t = target;
    const uint8_t *x = a, *y = b;
    for (size_t i = 0; i < count; i++)
        t[i] = x[i] & y[i];
}

static void and_u32(void *target, const void *a, const void *b, size_t count)
{
    and_u8(target, a, b, count * sizeof(uint32_t));
}

static void and_u64(void *target, const void *a, const void *b, size_t count)
{
    and_u8(target, a, b, count * sizeof(uint64_t));
}

static void or_u8(void *target, const void *a, const void *b, size_t count)
{
    uint8_t *t = target;
    const uint8_t *x = a, *y = b;
    for (size_t i = 0; i < count; i++)
        t[i] = x[i] | y[i];
}

static void or_u32(void *target, const void *a, const void *b, size_t count)
{
    or_u8(target, a, b, count * sizeof(uint32_t));
}

static void or_u64(void *target, const void *a, const void *b, size_t count)
{
    or_u8(target, a, b, count * sizeof(uint64_t));
}

static void xor_u8(void *target, const void *a, const void *b, size_t count)
{
    uint8_t *t = target;
    const uint8_t *x = a, *y = b;
    for (size_t i = 0; i < count; i++)
        t[i] = x[i] ^ y[i];
}

static void xor_u32(void *target, const void *a, const void *b, size_t count)
{
    xor_u8(target, a, b, count * sizeof(uint32_t));
}

static void xor_u64(void *target, const void *a, const void *b, size_t count)
{
    xor_u8(target, a, b, count * sizeof(uint64_t));
}

/* ---- widen and narrow ---------------------------------------------------------------------------------- */

static void copy_f32(void *target, const void *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f32(target, i, load_f32(source, i));
}

static void copy_f64(void *target, const void *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f64(target, i, load_f64(source, i));
}

static void widen_f16(void *target, const void *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f32(target, i, f16_to_f32(load_u16(source, i)));
}

static void widen_bf16(void *target, const void *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f32(target, i, bf16_to_f32(load_u16(source, i)));
}

static void widen_i8(void *target, const void *source, size_t count)
{
    const int8_t *s = source;
    for (size_t i = 0; i < count; i++)
        store_f64(target, i, s[i]);
}

static void widen_i32(void *target, const void *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f64(target, i, (int32_t)load_u32(source, i));
}

static void widen_i64(void *target, const void *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f64(target, i, (double)(int64_t)load_u64(source, i));
}

static void widen_u8(void *target, const void *source, size_t count)
{
    const uint8_t *s = source;
    for (size_t i = 0; i < count; i++)
        store_f64(target, i, s[i]);
}

static void widen_u32(void *target, const void *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f64(target, i, load_u32(source, i));
}

static void widen_u64(void *target, const void *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_f64(target, i, (double)load_u64(source, i));
}

static void narrow_f16(void *target, const void *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u16(target, i, f16_from_f32(load_f32(source, i)));
}

static void narrow_bf16(void *target, const void *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u16(target, i, bf16_from_f32(load_f32(source, i)));
}

static void narrow_i8(void *target, const void *source, size_t count)
{
    int8_t *t = target;
    for (size_t i = 0; i < count; i++)
        t[i] = (int8_t)f64_to_integer(load_f64(source, i), INT8_MIN, INT8_MAX);
}

static void narrow_i32(void *target, const void *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u32(target, i, (uint32_t)f64_to_integer(load_f64(source, i), INT32_MIN, INT32_MAX));
}

static void narrow_i64(void *target, const void *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u64(target, i, (uint64_t)f64_to_i64(load_f64(source, i)));
}

static void narrow_u8(void *target, const void *source, size_t count)
{
    uint8_t *t = target;
    for (size_t i = 0; i < count; i++)
        t[i] = (uint8_t)f64_to_integer(load_f64(source, i), 0, UINT8_MAX);
}

static void narrow_u32(void *target, const void *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u32(target, i, (uint32_t)f64_to_integer(load_f64(source, i), 0, UINT32_MAX));
}

static void narrow_u64(void *target, const void *source, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_u64(target, i, f64_to_u64(load_f64(source, i)));
}

/* ---- scale --------------------------------------------------------------------------------------------- */

static void multiply_f32(void *x, size_t count, double factor)
{
    float f = (float)factor;
    for (size_t i = 0; i < count; i++)
        store_f32(x, i, load_f32(x, i) * f);
}

static void multiply_f64(void *x, size_t count, double factor)
{
    for (size_t i = 0; i < count; i++)
        store_f64(x, i, load_f64(x, i) * factor);
}

static void divide_f32(void *x, size_t count, double factor)
{
    float f = (float)factor;
    for (size_t i = 0; i < count; i++)
        store_f32(x, i, load_f32(x, i) / f);
}

static void divide_f64(void *x, size_t count, double factor)
{
    for (size_t i = 0; i < count; i++)
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
    .reduce =
        {
            [HEARTH_F32] = {sum_f32, prod_f32, min_f32, max_f32},
            [HEARTH_F64] = {sum_f64, prod_f64, min_f64, max_f64},
            [HEARTH_F16] = {sum_f16, prod_f16, min_f16, max_f16},
            [HEARTH_BF16] = {sum_bf16, prod_bf16, min_bf16, max_bf16},
            [HEARTH_I8] = {sum_u8, prod_u8, min_i8, max_i8, and_u8, or_u8, xor_u8},
            [HEARTH_I32] = {sum_u32, prod_u32, min_i32, max_i32, and_u32, or_u32, xor_u32},
            [HEARTH_I64] = {sum_u64, prod_u64, min_i64, max_i64, and_u64, or_u64, xor_u64},
            [HEARTH_U8] = {sum_u8, prod_u8, min_u8, max_u8, and_u8, or_u8, xor_u8},
            [HEARTH_U32] = {sum_u32, prod_u32, min_u32, max_u32, and_u32, or_u32, xor_u32},
            [HEARTH_U64] = {sum_u64, prod_u64, min_u64, max_u64, and_u64, or_u64, xor_u64},
        },
    .widen = {copy_f32, copy_f64, widen_f16, widen_bf16, widen_i8, widen_i32, widen_i64, widen_u8, widen_u32,
              widen_u64},
    .narrow = {copy_f32, copy_f64, narrow_f16, narrow_bf16, narrow_i8, narrow_i32, narrow_i64, narrow_u8,
               narrow_u32, narrow_u64},
    .multiply_f32 = multiply_f32,
    .multiply_f64 = multiply_f64,
    .divide_f32 = divide_f32,
    .divide_f64 = divide_f64,
    .copy_far = copy_far,
    .stream = copy_far,
    .stream_end = stream_end,
    .quant = &quant_scalar,
    .sift = &sift_scalar,
    .matrix = &matrix_scalar,
};
