/* SPDX-License-Identifier: Apache-2.0 */
/* randomk: coordinates drawn by a counter-based generator from (key, position): all members that have the
 * same key draw the same, no state, nothing on the wire. One coordinate from each of `keep` strata of nearly
 * equal length, so they ascend and are distinct. */
#pragma once

#include "compress/coder.h"

/* Number `place` of those that belong to the key: 64 bits that look random, the same on all machines. */
uint64_t draw_bits(uint64_t key, uint64_t place);

struct draw {
    uint64_t key;
    size_t count, keep; /* 1 <= keep <= count */
};

/* Coordinate number `place`, below draw->count. Defined for places below draw->keep. */
size_t draw_at(const struct draw *draw, size_t place);

/* values[p - from] = acc at coordinate p, for places p in [from, to), where acc = gain * x + e; e_new = acc
 * elsewhere and 0 there. The elements between coordinates are passed over in the same run: a call covers the
 * elements from the begin of stratum `from` to the end of stratum `to - 1` (randomk_span), so that calls with
 * neighbouring ranges cover the tensor. feed's pointers are those of the whole tensor.
 * With e == NULL and e_new == x (dtype f32, gain 1) only the coordinates are touched: feedback kept in the
 * gradient's own buffer. HEARTH_POISONED: as coder_encode (in that last case: of the coordinates only). */
int MUST_CHECK randomk_gather(const struct draw *draw, const struct kernels *kernels, const struct feed *feed,
                              size_t from, size_t to, float *values);
struct span {
    size_t from, to; /* elements */
};
struct span randomk_span(const struct draw *draw, size_t from, size_t to);

/* The tensor's elements of the places' span: 0 but at the coordinates, where they are values * factor /
 * divisor (computed in f32, then rounded to the type). */
struct randomk_out {
    void *out; /* of the whole tensor */
    enum hearth_dtype dtype;
    float factor, divisor;
};
void randomk_scatter(const struct draw *draw, const struct kernels *kernels, const float *values, size_t from,
                     size_t to, const struct randomk_out *out);
/* residual[coordinate] += error, for places [from, to); residual f32, or f64 for f64 tensors. */
void randomk_leave(const struct draw *draw, const float *error, size_t from, size_t to,
                   enum hearth_dtype dtype, void *residual);
