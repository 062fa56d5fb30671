/* SPDX-License-Identifier: Apache-2.0 */
/* TAP devices in network namespaces. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Makes a TAP device in a namespace (a name of `ip netns`, or a path); returns its non-blocking descriptor.
   The device is gone when that is closed. With offload its host may hand over 64 KiB of TCP at once.
   -1: why (of size bytes) says what failed. */
int tap_open(const char *space, const char *device, bool offload, char *why, size_t size);
