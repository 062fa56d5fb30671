/* SPDX-License-Identifier: Apache-2.0 */
/* The header in front of every frame. docs/wire.md is the law; this is its C form. */
#pragma once

#include "core/types.h"

#define FRAME_HEADER_LEN  96u
#define FRAME_MAGIC       0x4648u /* "HF", little endian */
#define FRAME_VERSION     1u
#define FRAME_LENGTH_MAX  (64u << 20) /* payload bytes; a longer one is refused before memory is taken */
#define FRAME_CONTROL_MAX 512u        /* payload bytes of every kind that is not bulk */

enum frame_kind {
    FRAME_HELLO = 1,   /* first frame of a link, both ways */
    FRAME_DATA = 2,    /* one piece of an operation */
    FRAME_GRANT = 3,   /* the receiver of `total` bytes is posted: frames up to this number may come */
    FRAME_CREDIT = 4,  /* nothing but the header's credit and ack */
    FRAME_ABORT = 5,   /* the operation ends here with an error: payload is a record (wire/record.h) */
    FRAME_DISPUTE = 6, /* to the arbiter (rank 0): members called different things */
    FRAME_ASK = 7,     /* from the arbiter: what did you call? */
    FRAME_ANSWER = 8,  /* to the arbiter: this */
    FRAME_VERDICT = 9, /* from the arbiter: which members differ, and how */
    FRAME_PING = 10,
    FRAME_PONG = 11,
    FRAME_BYE = 12,      /* the sender closes on purpose: payload is a record */
    FRAME_LEAVE = 13,    /* member `lane` of the group took part in `sequence` operations, under all tags */
    FRAME_MESSAGE = 14,  /* a message begins: all of it (FRAME_EAGER), or an announcement */
    FRAME_PIECE = 15,    /* of an announced message; `total` is its offset */
    FRAME_ACCEPT = 16,   /* a receive is posted for the announced message */
    FRAME_TAKEN = 17,    /* the message was received; with a record: it was refused */
    FRAME_WITHDRAW = 18, /* the sender gives the message up: payload is a record */
    FRAME_RELEASE = 19,  /* `total` of the budget for messages is free again, since the link began */
    FRAME_KIND_MAX = 19
};

/* In `step` of FRAME_MESSAGE; bits 8 to 15 are the type of the elements of a coded one. */
#define MESSAGE_SYNC  1u /* its sender waits for FRAME_TAKEN */
#define MESSAGE_CODED 2u /* the bytes are a package of a codec; `fingerprint` is the length of the elements */

#define FEATURE_MESSAGES 1u /* in the hello: kinds 14 to 19 */

enum frame_flags {
    FRAME_EAGER = 1u << 0,    /* data: counts against the eager budget, not against a grant */
    FRAME_REFERENCE = 1u << 1 /* data: a reference follows instead of the payload, which stands in memory that
                                 the receiver can see */
};

struct frame {
    uint8_t kind;    /* enum frame_kind */
    uint16_t flags;  /* enum frame_flags; unknown bits are refused */
    uint32_t length; /* of the payload that follows */
    uint64_t group;  /* 0: the link itself */
    uint32_t epoch;
    uint64_t tag;
    uint64_t sequence;      /* of the operation within its tag */
    uint64_t fingerprint;   /* of the call: differs where members called different things */
    uint32_t lane, step;    /* data: which piece; grant: lane << 32 | step frames are allowed so far */
    uint64_t total;         /* bytes this sender sends to this receiver in this operation (grant: expects);
                               abort with HEARTH_CLOSED: as the sequence of a leave */
    double weight;          /* data of an average: sum of the weights that are in it */
    uint64_t link_sequence; /* counts the frames of this link and direction, from 1 */
    uint64_t ack;           /* the last link_sequence received */
    uint32_t credit;        /* eager bytes released so far on the other direction, modulo 2^32 */
};

/* Data, and messages: payloads of any length, for which the receiver has a place. */
bool frame_is_bulk(uint8_t kind);
bool frame_is_message(uint8_t kind); /* one of the kinds from FRAME_MESSAGE on */

void frame_encode(const struct frame *f, uint8_t target[static FRAME_HEADER_LEN]);
/* HEARTH_OK or HEARTH_PROTOCOL with a text that says which field is wrong. Checks magic, version, CRC, kind,
 * flags, reserved bytes, length against the kind's limit, that weight is finite and not negative. */
int MUST_CHECK frame_decode(struct frame *f, const uint8_t source[static FRAME_HEADER_LEN],
                            const char **what);
