/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli, RFC 3720 appendix B.4), portable, eight bytes a step. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* crc32c(0, "123456789", 9) == 0xE3069283. Feed the result back in as `crc` to go on. Thread-safe. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t len);
