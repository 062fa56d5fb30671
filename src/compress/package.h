/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor compressed by itself, as bytes that say what they are (hearth_codec_compress): header with codec,
 * type, count and checksum, then the codec's payload. docs/payloads.md has the bytes. */
#pragma once

#include "compress/codec.h"
#include "core/heap.h"

struct package {
    const struct codec *codec;
    enum hearth_dtype dtype;
    size_t count;
    uint64_t key; /* randomk, powersgd, int8,stochastic: travels in the header */
};

/* No package of this codec and tensor is longer. 0: the codec cannot code it (see package_check). */
size_t package_bound(const struct package *package);
/* HEARTH_UNSUPPORTED: dtype, or a count the codec cannot take; the text says which. */
int MUST_CHECK package_check(const struct package *package, struct error *error);
/* residual: as in struct feed, updated only on success; NULL: no feedback. *len <= size. HEARTH_LIMIT: size
 * is too small; HEARTH_POISONED; HEARTH_NO_MEMORY. */
struct package_io {
    const void *source;
    void *residual;
    uint8_t *bytes;
    size_t size;
};
int MUST_CHECK package_encode(const struct package *package, struct heap *heap, const struct package_io *io,
                              size_t *len, struct error *error);
/* Checked. `count` and `dtype` must be those of the package: HEARTH_INVALID says what it holds. Malformed:
 * HEARTH_PROTOCOL. The target is written only on success. */
struct package_out {
    void *target;
    size_t count;
    enum hearth_dtype dtype;
};
int MUST_CHECK package_decode(struct heap *heap, const uint8_t *bytes, size_t len,
                              const struct package_out *out, struct error *error);
