/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine's processor can do for encryption. */
#pragma once

#include <stdbool.h>

bool processor_has_aes(void); /* AES-GCM in hardware: both the cipher and its authentication */
