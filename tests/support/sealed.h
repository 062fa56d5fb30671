/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of encrypted records without a handshake: what one seals, the other opens. */
#pragma once

#include "security/records.h"

void sealed_pair(struct heap *heap, bool chacha, struct records *ends[2]);
