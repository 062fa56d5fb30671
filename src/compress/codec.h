/* SPDX-License-Identifier: Apache-2.0 */
/* What a codec is: a name with its numbers, written as text everywhere ("topk:0.01,values=int8").
 *
 *   none                      identity
 *   fp16 | bf16               half precision, fp16 with one power of two for each block of 256
 *   int8[,stochastic]         one scale for each block of 256
 *   onebit                    sign, and the mean magnitude of each block of 256
 *   topk:RATIO[,chunk=COUNT][,values=f32|bf16|int8]      the largest of the tensor, or of each chunk
 *   randomk:RATIO[,values=f32|bf16|int8]                 coordinates that all members draw alike
 *   powersgd:RANK[,rows=COUNT][,alternate]               low-rank factors
 *   NAME[:PARAMETERS]         of a user (user_codec.h)
 *   auto:CODEC[,CODEC...]     whichever of these, or none, is fastest (an item with '=' and the words
 *                             stochastic and alternate belong to the codec before them)
 * and for each of them ",feedback=off": what is not sent is lost. */
#pragma once

#include "core/error.h"
#include "core/types.h"

enum codec_kind {
    CODEC_NONE = 0, /* numbers travel and are saved: docs/payloads.md */
    CODEC_FP16 = 1,
    CODEC_BF16 = 2,
    CODEC_INT8 = 3,
    CODEC_ONEBIT = 4,
    CODEC_TOPK = 5,
    CODEC_RANDOMK = 6,
    CODEC_POWERSGD = 7,
    CODEC_USER = 8,
    CODEC_KIND_COUNT
};

enum codec_values { VALUES_F32 = 0, VALUES_BF16 = 1, VALUES_INT8 = 2, CODEC_VALUES_COUNT };

struct user_codec;

#define CODEC_PARAMETERS_MAX 63

struct codec {
    enum codec_kind kind;
    enum codec_values values;      /* topk, randomk: how the chosen ones travel */
    double ratio;                  /* topk, randomk: above 0, at most 1 */
    uint32_t chunk;                /* topk: elements, a power of two 64..65536; 0: the whole tensor */
    uint32_t rank;                 /* powersgd: 1..32 */
    uint64_t rows;                 /* powersgd: of the matrix; 0: known from the tensor's shape */
    bool alternate;                /* powersgd: one factor a step */
    bool stochastic;               /* int8: rounds at random, without bias; needs feedback off */
    bool feedback;                 /* true unless feedback=off */
    const struct user_codec *user; /* of a user: its functions */
    char parameters[CODEC_PARAMETERS_MAX + 1];
};

#define CODEC_LIST_MAX 8
#define CODEC_TEXT_MAX 256 /* of a list, with its final 0 */

/* What the user wrote: one codec, or those that may be chosen from. */
struct codec_list {
    bool automatic;
    int count; /* 1 unless automatic */
    struct codec codec[CODEC_LIST_MAX];
};

/* NULL means "none". HEARTH_INVALID: the text shows what was given, what is wrong with it, the grammar. */
int MUST_CHECK codec_parse(const char *text, struct codec_list *list, struct error *error);
/* Whether a text that is no codec names one that nobody has registered. */
bool codec_names_unknown(const char *text);
/* Whether a built-in codec or an option has the name. */
bool codec_name_taken(const char *name);
/* The canonical text, into text[CODEC_TEXT_MAX]: parses to the same list. Of a list: its length. */
void codec_text(const struct codec *codec, char *text, size_t size);
size_t codec_list_text(const struct codec_list *list, char *text, size_t size);

/* How many elements topk and randomk keep of `count`: min(count, max(1, ceil(count * ratio))), 0 of 0. */
size_t codec_keeps(const struct codec *codec, size_t count);

/* How the chosen values of topk and randomk travel, as a codec of its own for arrays of values. */
struct codec codec_of_values(enum codec_values values);

/* Whether it codes each part of a tensor by itself, with a length known beforehand (coder.h). */
bool codec_is_blockwise(const struct codec *codec);
