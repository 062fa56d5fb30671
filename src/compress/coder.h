/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs that code a tensor part by part: none, fp16, bf16, int8, onebit, and topk with chunks. Pure
 * functions; the same bits with every set of kernels. (topk over a whole tensor: sparse.h; randomk.h;
 * powersgd.h.)
 *
 * A part is a run of elements; of topk it begins at a multiple of the chunk. Its payload is a header of 8
 * bytes (PART_... flags, 0) and then its blocks, one after the other; only its last block may be short.
 * Lengths follow from codec and count alone. docs/payloads.md has the bytes.
 *
 * Everything is done a block at a time in a scratch that stays in the nearest cache, so that memory is
 * passed over once: load (acc = gain * x + e), encode, store what the payload lacks. */
#pragma once

#include "compress/codec.h"
#include "kernel/kernel.h"

#define CODER_BLOCK        4096u  /* elements; of topk a block is a chunk */
#define CODER_BLOCK_MAX    65536u /* of a chunk */
#define PART_HEADER_LEN    8u
#define PART_OVERFLOWS     1u /* a sum was beyond f32: the rest of the payload means nothing */
#define CODER_PAYLOADS_MAX 1024

size_t residual_size(enum hearth_dtype dtype); /* bytes of an element of a tensor's residual */
size_t coder_block(const struct codec *codec);
/* Bytes of the payload of a part of `count` elements, header included. */
size_t coder_len(const struct codec *codec, size_t count);

/* The sums of squares that were put in and left behind, of every 16th block, in order: for the share of the
 * energy that a codec captures. */
struct energy {
    double before, after;
};

/* One part of a tensor and of what was left behind of it earlier. Residuals are f64 for f64 tensors, f32 for
 * all others. */
struct feed {
    enum hearth_dtype dtype; /* F32, F64, F16, BF16 */
    const void *x;
    const void *e;         /* residual; NULL: none */
    void *e_new;           /* what this step leaves behind; may be NULL; may be e (then in place) */
    float gain;            /* x counts this many times */
    uint64_t key;          /* int8,stochastic: of tensor, step and member */
    struct energy *energy; /* NULL: not wanted */
};

/* acc = gain * x + e; its payload to `payload` (coder_len bytes), e_new = acc - decoded. `first`: index of
 * the part's first element in the tensor (for the dither only). HEARTH_POISONED: x or acc holds NaN or Inf,
 * or is beyond f32; e_new and payload are then written all the same, but mean nothing. */
int MUST_CHECK coder_encode(const struct codec *codec, const struct kernels *kernels, const struct feed *feed,
                            size_t first, size_t count, uint8_t *payload);

/* Payloads of the same part from several members, in rank order. */
struct payloads {
    int count;                   /* 1..CODER_PAYLOADS_MAX */
    const uint8_t *const *bytes; /* [count], each of coder_len bytes */
};

/* The owner's work: sums the payloads in f32, in their order, encodes the sum to `target`, and adds what that
 * lacks to e_new (of the part; as in struct feed; NULL: it is lost). A sum beyond f32, or a payload that
 * says so, sets PART_OVERFLOWS in the target: HEARTH_OK. HEARTH_PROTOCOL with a text: a payload is malformed;
 * error->rank is its index. In both cases e_new means nothing. */
struct coder_owner {
    const struct feed *feed;
    size_t count;
    uint8_t *target;
};
int MUST_CHECK coder_merge(const struct codec *codec, const struct kernels *kernels,
                           const struct payloads *payloads, const struct coder_owner *owner,
                           struct error *error);

/* out = sum of the payloads / divisor, in the tensor's type, rounded once after the division (f32: the
 * division is the rounding). HEARTH_POISONED: the sum is beyond f32 or a payload says so (out: undefined).
 * HEARTH_PROTOCOL as above. */
struct coder_out {
    void *out;
    enum hearth_dtype dtype;
    float divisor;
};
int MUST_CHECK coder_decode(const struct codec *codec, const struct kernels *kernels,
                            const struct payloads *payloads, const struct coder_out *out, size_t count,
                            struct error *error);
