/* SPDX-License-Identifier: Apache-2.0 */
/* A few bytes that a child process is to read, in a file without a name: unlike arguments and environment
 * they are seen by nobody but those who hold the descriptor. */
#pragma once

#include "core/types.h"

/* The descriptor is above the standard ones, at the beginning of the bytes, and closed by exec until it is
 * handed on. HEARTH_OK or HEARTH_SYSTEM. Where the system allows it nobody can change the bytes any more. */
int MUST_CHECK memory_file_make(const void *bytes, size_t len, int *fd);
/* From now on exec leaves it open. Safe between fork and exec. */
int MUST_CHECK memory_file_hand_on(int fd);
