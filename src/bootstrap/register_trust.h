/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a member that registers is who it says, and of our cluster. */
#pragma once

#include "bootstrap/rendezvous.h"
#include "wire/meeting.h"

/* `peer`: whom its handshake has proven, NULL: there was none. HEARTH_OK, or a refusal with what to do. */
int MUST_CHECK register_trust(const struct rendezvous_setup *s, const struct identity *peer,
                              const struct meeting_register *in, struct error *error);
