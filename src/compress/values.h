/* SPDX-License-Identifier: Apache-2.0 */
/* The values of chosen elements as bytes, in pieces of VALUES_PIECE: first the scales of all pieces (int8 has
 * one for each, as bf16), then the values. Only for the files of this room. */
#pragma once

#include "compress/codec.h"
#include "kernel/kernel.h"

#define VALUES_PIECE 256u

/* Values of the piece that begins at `from`. */
static inline size_t piece_of(size_t from, size_t count)
{
    return count - from < VALUES_PIECE ? count - from : VALUES_PIECE;
}

struct values {
    enum codec_values kind;
    const struct kernels *kernels;
    size_t count; /* of all pieces */
};

size_t values_len(enum codec_values kind, size_t count);
/* Values [from, from + number) of them, `from` a multiple of VALUES_PIECE, at most one piece. All finite.
 * value[i] becomes what its bytes lack of it. */
void values_encode(const struct values *values, float *value, size_t from, size_t number, uint8_t *bytes);
/* False: there is one that is not finite, or bytes that no encoder writes. */
bool values_decode(const struct values *values, const uint8_t *bytes, size_t from, size_t number,
                   float *value);
