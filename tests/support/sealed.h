/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of encrypted records without a handshake: what one seals, the other opens. */
#ifndef TESTS_SUPPORT_SEALED_H
#define TESTS_SUPPORT_SEALED_H

#include "security/records.h"

void sealed_pair(struct heap *heap, bool chacha, struct records *ends[2]);

#endif
