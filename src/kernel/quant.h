/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the dense codecs: f32 to few bits and back. Rules as in kernel.h; quant_scalar.c is their
 * definition. Codes are bytes of docs/payloads.md, little endian, at any address.
 *
 * An encode leaves acc - decoded in acc, rounded once; with `keep` it leaves acc as it is, which is faster.
 * A decode sets x, or adds to it. */
#pragma once

#include "core/types.h"

#define QUANT_BLOCK 256u /* elements that share a scale */

/* Seeds of the numbers that int8_encode adds before it rounds; `index` is that of the first element. */
struct dither {
    uint32_t seed[2];
    uint32_t index;
};

struct quant_kernels {
    /* acc = gain * x + e (e NULL: gain * x); acc may be x. Gives the largest of the magnitudes' bits: more
     * than those of the largest finite number if there is a NaN or Inf, even if acc's NaNs differ. */
    uint32_t (*load)(float *acc, const float *x, const float *e, size_t count, float gain);
    uint32_t (*largest)(const float *x, size_t count); /* of the magnitudes' bits */

    /* 2 bytes each, nearest even; what would become infinite becomes the largest number. */
    void (*bf16_encode)(float *acc, size_t count, uint8_t *codes, bool keep);
    void (*bf16_decode)(const uint8_t *codes, size_t count, float *x, bool add);
    /* 2 bytes each: f16 times 2^exponent, nearest even. The exponent is within QUANT_EXPONENT_..., and no
     * magnitude is 2^(exponent + 15) or more. */
    void (*fp16_encode)(float *acc, size_t count, int exponent, uint8_t *codes, bool keep);
    void (*fp16_decode)(const uint8_t *codes, size_t count, int exponent, float *x, bool add);
    /* 1 byte each: an integer times scale, nearest even, or with `dither` (may be NULL) right on average.
     * scale is a bf16 within QUANT_SCALE_..., and no magnitude is more than 127.5 scale. */
    void (*int8_encode)(float *acc, size_t count, float scale, const struct dither *dither, uint8_t *codes,
                        bool keep);
    void (*int8_decode)(const uint8_t *codes, size_t count, float scale, float *x, bool add);
    /* 1 bit each, set for a minus, lowest first; unused ones are 0. count <= QUANT_BLOCK. Gives the scale:
     * the mean magnitude as the bits of a bf16. */
    uint16_t (*onebit_encode)(float *acc, size_t count, uint8_t *codes, bool keep);
    void (*onebit_decode)(const uint8_t *codes, size_t count, float scale, float *x, bool add);
};

/* From these exponents on an f16 times 2^exponent is an f32, exactly, and may be beyond it from 2^15 on. */
#define QUANT_EXPONENT_LEAST (-125)
#define QUANT_EXPONENT_MOST  113
/* Scales of int8, as the bits of a bf16: its least normal number, and the largest with finite 127 * scale. */
#define QUANT_SCALE_LEAST 0x0080u
#define QUANT_SCALE_MOST  0x7c01u

extern const struct quant_kernels quant_scalar;
