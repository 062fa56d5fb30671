/* SPDX-License-Identifier: Apache-2.0 */
/* The 64 bytes of a proof or refusal, as fields. docs/wire.md, Handshake. */
#pragma once

#include "security/credentials.h"

#define PROOF_MAC_LEN 32

struct proof_message {
    enum proof_reason reason; /* PROOF_NO_REFUSAL: it is a proof */
    uint64_t instance;
    uint8_t mac[PROOF_MAC_LEN];
};

void proof_encode(const struct proof_message *message, uint8_t target[static PROOF_LEN]);
/* Pure: nothing is known of keys here. HEARTH_OK, or HEARTH_PROTOCOL with the reason. */
int MUST_CHECK proof_decode(struct proof_message *message, const uint8_t source[static PROOF_LEN],
                            const char **what);
