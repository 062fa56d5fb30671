/* SPDX-License-Identifier: Apache-2.0 */
/* Unpredictable bytes from the operating system. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/types.h"

int MUST_CHECK random_bytes(void *target, size_t len); /* HEARTH_OK or HEARTH_SYSTEM */
