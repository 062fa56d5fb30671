/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs of users (hearth_codec_register): names that the process knows, and their functions as the rest of
 * the library calls them, with checks of all that they give back. */
#pragma once

#include "compress/coder.h"

#define USER_NAME_MAX   31
#define USER_CODECS_MAX 256 /* registrations of a process */
#define USER_BOUND_MAX  (UINT64_C(1) << 48)
#define USER_GUARD_LEN  64u /* bytes behind a payload that encode must leave alone */

struct user_codec {
    char name[USER_NAME_MAX + 1];
    struct hearth_codec_functions functions;
};

/* The latest registration of a name, which need not be terminated; it lives as long as the process. NULL:
 * there is none. */
const struct user_codec *user_codec_find(const char *name, size_t len);
/* Whether it may be one: its characters and its length. */
bool user_name_good(const char *name, size_t len);

/* ---- of a codec whose kind is CODEC_USER ---- */

/* Whether its functions take its parameters. */
bool user_parameters_good(const struct codec *codec);
/* Bytes of the longest payload of `count` elements; 0: it cannot encode so many. */
size_t user_bound(const struct codec *codec, size_t count);

/* The memory of one encoding. */
struct user_work {
    size_t count;
    size_t bound;            /* user_bound, asked once: another answer would not fit the memory */
    float *values, *decoded; /* [count] */
    uint8_t *bytes;          /* [bound + USER_GUARD_LEN] */
};

/* acc = gain * x + e; its payload to work->bytes, e_new = acc - decoded. HEARTH_POISONED as coder_encode: the
 * payload is then that of zeros. HEARTH_INVALID: it broke its contract; others: as it said. The text says
 * which codec and what. */
int MUST_CHECK user_encode(const struct codec *codec, const struct kernels *kernels, const struct feed *feed,
                           const struct user_work *work, size_t *len, struct error *error);

struct user_payload {
    const uint8_t *bytes;
    size_t len, count;
    uint64_t key; /* that it was encoded by */
};

/* All values are written, and finite. HEARTH_PROTOCOL: malformed; HEARTH_NO_MEMORY. */
int MUST_CHECK user_decode(const struct codec *codec, const struct kernels *kernels,
                           const struct user_payload *payload, float *values, struct error *error);
