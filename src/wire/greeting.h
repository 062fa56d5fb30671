/* SPDX-License-Identifier: Apache-2.0 */
/* What the two ends of a new socket say before the first frame: control messages of one length.
 * docs/wire.md is the law; this is its C form. */
#pragma once

#include "core/types.h"
#include "wire/message.h"

#define GREETING_PAYLOAD_LEN  44u
#define GREETING_LEN          (MESSAGE_HEADER_LEN + GREETING_PAYLOAD_LEN) /* of every kind */
#define GREETING_CHANNELS_MAX 9u

enum greeting_kind {
    GREETING_GREET = 80,   /* from the dialler: this socket is to be that channel of the pair */
    GREETING_WELCOME = 81, /* the answer; from the lower rank it also means: this socket is the one */
    GREETING_REFUSE = 82,  /* the answer; nothing follows */
    GREETING_CONFIRM = 83  /* from a lower rank that dialled: this socket is the one */
};

enum greeting_reason {
    GREETING_TAKEN = 1,  /* another socket is the channel */
    GREETING_JOINED = 2, /* the member is joined to all, it takes no more */
    GREETING_BUSY = 3,   /* not now; come again */
    GREETING_REASON_MAX = 3
};

struct greeting {
    uint8_t kind;      /* enum greeting_kind */
    uint8_t reason;    /* enum greeting_reason; 0 but in a refusal */
    uint8_t channel;   /* 0: control */
    uint8_t channels;  /* how many this pair has; 0: the lower rank has not said it yet */
    uint32_t from, to; /* ranks: of the sender, of the receiver */
    uint64_t cluster;  /* never 0 */
    uint64_t from_instance, to_instance;
    uint64_t round_trip_ns; /* as the dialler measured it; 0: not known */
};

void greeting_encode(const struct greeting *g, uint8_t target[static GREETING_LEN]);
/* HEARTH_OK or HEARTH_PROTOCOL with a text that says which field is wrong. */
int MUST_CHECK greeting_decode(struct greeting *g, const uint8_t source[static GREETING_LEN],
                               const char **what);
const char *greeting_reason_text(uint8_t reason); /* "?" if unknown */
