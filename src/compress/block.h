/* SPDX-License-Identifier: Apache-2.0 */
/* One block of a part: what each kind of part-wise codec implements. Only for the files of this room, and for
 * measuring. */
#pragma once

#include "compress/coder.h"
#include "compress/elias.h"

#define AHEAD_MAX 3

/* What a block is coded for besides its numbers. */
struct block_context {
    const struct codec *codec;
    const struct kernels *kernels;
    struct elias whole; /* topk: of a block that is not short */
    uint64_t key;       /* as in struct feed */
    uint64_t first;     /* index of the block's first element in the tensor */
    uint32_t *level; /* topk: where the chosen of the blocks before ended, 0: not known. Makes it faster and
                        changes nothing; NULL: no such help */
    bool keep;       /* nobody wants what is left: acc may stay as it is */
    struct ahead {
        const void *from;
        size_t len;
    } ahead[AHEAD_MAX]; /* memory that the next block will touch; len 0: none */
};

enum block_mode { BLOCK_SET, BLOCK_ADD }; /* x = decoded, or x += decoded */

struct block_codec {
    /* Bytes of a block of `count` <= coder_block elements. */
    size_t (*len)(const struct codec *codec, size_t count);
    /* All of acc is finite. Writes len bytes; acc[i] becomes acc[i] - decoded[i], rounded once. */
    void (*encode)(const struct block_context *context, float *acc, size_t count, uint8_t *bytes);
    /* `bytes` has len bytes. False: they are malformed (x is undefined, nothing else was touched). */
    bool (*decode)(const struct block_context *context, const uint8_t *bytes, size_t count, float *x,
                   enum block_mode mode);
};

extern const struct block_codec block_none, block_fp16, block_bf16, block_int8, block_onebit; /* dense.c */
extern const struct block_codec block_topk;                                                   /* topk.c */

/* Asks for the share of context->ahead that falls to elements [at, at + count) of a block, so that memory is
 * busy while a block is worked on. Into the second cache: the first is full of this block. */
void block_ahead(const struct block_context *context, size_t at, size_t count);

/* Knows what is the same for all blocks; the rest is 0. */
struct block_context block_context_of(const struct codec *codec, const struct kernels *kernels);

/* Of a part-wise kind. */
const struct block_codec *block_codec_of(const struct codec *codec);
