/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in a key file: one line, `hearth-node-key 1 SEED CHECK`. SEED is 64 hexadecimal digits, CHECK
 * 8: the beginning of SHA3-256 over `hearth node key 1` and the seed. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define KEY_SEED_LEN 32u
#define KEY_LINE_LEN 92u /* with the new line at its end */

void key_line_write(const uint8_t seed[static KEY_SEED_LEN], char line[static KEY_LINE_LEN]);
/* NULL: it was a key file, and `seed` is set; the new line may be missing. Else what it is instead, in words
 * that go on after a path. */
const char *key_line_parse(const char *text, size_t len, uint8_t seed[static KEY_SEED_LEN]);
