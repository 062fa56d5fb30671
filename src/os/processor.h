/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine's processor can do for encryption. */
#ifndef OS_PROCESSOR_H
#define OS_PROCESSOR_H

#include <stdbool.h>

bool processor_has_aes(void); /* AES-GCM in hardware: both the cipher and its authentication */

#endif
