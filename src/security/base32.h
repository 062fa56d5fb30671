/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as text that people can read aloud: Crockford's base32 in lower case, without i, l, o and u. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BASE32_LEN(bytes) (((bytes)*8u + 4) / 5) /* characters, without a final 0 */

/* Writes BASE32_LEN(len) characters, the highest bits first; the last one is filled up with zeros. */
void base32_encode(const uint8_t *bytes, size_t len, char *text);
/* Reads BASE32_LEN(len) characters: in any case, i and l are taken for 1, o for 0. False: there is another
 * character, or the filling is not zero; `bytes` is undefined then. */
bool base32_decode(const char *text, uint8_t *bytes, size_t len);

/* The same for hexadecimal digits, 2 * len of them. */
void hex_encode(const uint8_t *bytes, size_t len, char *text);
bool hex_decode(const char *text, uint8_t *bytes, size_t len);

char ascii_lower(char c); /* of ASCII, whatever the locale */
