/* SPDX-License-Identifier: Apache-2.0 */
/* Base32 and hexadecimal digits, to text and back. */
#include "security/base32.h"

#include <string.h>

static const char alphabet[] = "0123456789abcdefghjkmnpqrstvwxyz";

char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static int value_of(char c)
{
    const char *at;

    c = ascii_lower(c);
    if (c == 'i' || c == 'l')
        c = '1';
    if (c == 'o')
        c = '0';
    at = c ? strchr(alphabet, c) : NULL;
    return at ? (int)(at - alphabet) : -1;
}

void base32_encode(const uint8_t *bytes, size_t len, char *text)
{
    uint32_t held = 0;
    int bits = 0;

    for (size_t i = 0; i < len; i++) {
        held = held << 8 | bytes[i];
        for (bits += 8; bits >= 5; bits -= 5)
            *text++ = alphabet[held >> (bits - 5) & 31];
    }
    if (bits > 0)
        *text = alphabet[held << (5 - bits) & 31];
}

bool base32_decode(const char *text, uint8_t *bytes, size_t len)
{
    uint32_t held = 0;
    int bits = 0;

    for (size_t i = 0; i < BASE32_LEN(len); i++) {
        int value = value_of(text[i]);
        if (value < 0)
            return false;
        held = held << 5 | (uint32_t)value;
        bits += 5;
        if (bits >= 8) {
            bits -= 8;
            *bytes++ = (uint8_t)(held >> bits);
        }
    }
    return (held & ((1u << bits) - 1)) == 0;
}

void hex_encode(const uint8_t *bytes, size_t len, char *text)
{
    for (size_t i = 0; i < len; i++) {
        *text++ = alphabet[bytes[i] >> 4];
        *text++ = alphabet[bytes[i] & 15];
    }
}

static int digit_of(char c)
{
    c = ascii_lower(c);
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool hex_decode(const char *text, uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        int high = digit_of(text[2 * i]), low = high < 0 ? -1 : digit_of(text[2 * i + 1]);
        if (low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
