/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads of control frames. Decoding is checked: bytes that do not fit are HEARTH_PROTOCOL. */
#pragma once

#include "core/error.h"
#include "core/types.h"

/* FRAME_HELLO: the sender and what it supports. */
struct hello_record {
    uint16_t version_min, version_max; /* protocol versions spoken */
    uint32_t features;                 /* bits; none defined yet */
    uint32_t rank, size;               /* in the cluster */
    uint64_t instance;                 /* drawn once per node */
};

/* FRAME_ANSWER: what a member called. */
enum call_state {
    CALL_UNKNOWN = 0, /* not called yet */
    CALL_POSTED = 1,  /* called, not ended */
    CALL_ENDED = 2,   /* called and ended */
    CALL_PASSED = 3   /* ended so long ago that only the number is known */
};
#define CALL_KIND_COUNT 11                  /* numbers of collectives in docs/wire.md */
#define CALL_LISTED     (UINT32_C(1) << 31) /* in the flags: a v-variant, `count` counts no elements */
#define CALL_OPENING    (UINT32_C(1) << 30) /* in the flags: begins a compressed all_reduce */

struct call_record {
    uint8_t state; /* enum call_state; the rest travels for POSTED and ENDED only */
    uint8_t kind;  /* enum plan_kind's number, as agreed in docs/wire.md */
    uint8_t dtype, op, algo;
    uint32_t flags;       /* the call's enum hearth_flag that must agree */
    int32_t root;         /* RANK_NONE where there is none */
    uint64_t count;       /* elements; v-variants: a hash of the counts all members know, else 0 */
    uint64_t plan;        /* plan_hash */
    uint64_t fingerprint; /* what the frames carry */
};

/* FRAME_ABORT, FRAME_VERDICT, FRAME_BYE and a refusal of the rendezvous carry a struct error, all of it. */

/* The encoders give the length in bytes, 0 if the target is too small. */
size_t hello_encode(const struct hello_record *r, void *target, size_t size);
int MUST_CHECK hello_decode(struct hello_record *r, const void *source, size_t len);
size_t call_encode(const struct call_record *r, void *target, size_t size);
int MUST_CHECK call_decode(struct call_record *r, const void *source, size_t len);
/* Characters of the text that are not printable ASCII travel as '?'. */
size_t error_encode(const struct error *e, void *target, size_t size);
/* The status must be an error that we know (a waiting caller would take HEARTH_OK for success, and
 * HEARTH_PENDING for no end), and so must the reason; the ranks are below 2^31 or RANK_NONE; the text is
 * printable ASCII: it may be shown on a terminal. */
int MUST_CHECK error_decode(struct error *e, const void *source, size_t len);
