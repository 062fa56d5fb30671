/* SPDX-License-Identifier: Apache-2.0 */
/* Chosen values as the codecs none, bf16 and int8 code blocks, but checked: what is decoded is finite. */
#include "compress/values.h"

#include <assert.h>

#include "compress/load.h"
#include "compress/scale.h"

#define FINITE_TOP UINT16_C(0x7f7f) /* the largest finite bf16 */
#define NO_CODE    0x80             /* -128, which no int8 encoder writes */

static size_t scales_len(enum codec_values kind, size_t count)
{
    return kind == VALUES_INT8 ? (count + VALUES_PIECE - 1) / VALUES_PIECE * 2 : 0;
}

static size_t value_len(enum codec_values kind)
{
    static const size_t len[CODEC_VALUES_COUNT] = {[VALUES_F32] = 4, [VALUES_BF16] = 2, [VALUES_INT8] = 1};
    return len[kind];
}

size_t values_len(enum codec_values kind, size_t count)
{
    return scales_len(kind, count) + count * value_len(kind);
}

void values_encode(const struct values *values, float *value, size_t from, size_t number, uint8_t *bytes)
{
    const struct quant_kernels *quant = values->kernels->quant;
    uint8_t *to = bytes + scales_len(values->kind, values->count) + from * value_len(values->kind);
    assert(from % VALUES_PIECE == 0 && number <= VALUES_PIECE && from + number <= values->count);
    if (values->kind == VALUES_F32) {
        store_f32s(to, value, number);
        memset(value, 0, number * sizeof *value);
    } else if (values->kind == VALUES_BF16) {
        quant->bf16_encode(value, number, to, false);
    } else {
        uint16_t scale = scale_of(quant->largest(value, number));
        store_u16(bytes + from / VALUES_PIECE * 2, scale);
        quant->int8_encode(value, number, scale_value(scale), NULL, to, false);
    }
}

static bool bf16_are_finite(const uint8_t *bytes, size_t number)
{
    bool good = true;
    for (size_t i = 0; i < number; i++)
        good &= (load_u16(bytes + 2 * i) & 0x7fff) <= FINITE_TOP;
    return good;
}

bool values_decode(const struct values *values, const uint8_t *bytes, size_t from, size_t number,
                   float *value)
{
    const struct quant_kernels *quant = values->kernels->quant;
    const uint8_t *at = bytes + scales_len(values->kind, values->count) + from * value_len(values->kind);
    if (values->kind == VALUES_F32) {
        load_f32s(value, at, number);
        return quant->largest(value, number) <= FINITE_MAX;
    }
    if (values->kind == VALUES_BF16) {
        quant->bf16_decode(at, number, value, false);
        return bf16_are_finite(at, number);
    }
    uint16_t scale = load_u16(bytes + from / VALUES_PIECE * 2);
    quant->int8_decode(at, number, scale_value(scale), value, false);
    return scale <= QUANT_SCALE_MOST && !memchr(at, NO_CODE, number);
}
