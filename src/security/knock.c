/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and checks the server name of a dialler's hello. */
#include <string.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "security/base32.h"
#include "security/knock.h"

#define PART_LEN   16 /* bytes of each of the three parts */
#define PART_CHARS (2 * PART_LEN)
#define LABEL      "hearth knock 1"
#define ENDING     ".hearth"
#define HASH_LEN   32

enum {
    AT_NAMESPACE = 0,
    AT_NONCE = PART_CHARS + 1,
    AT_MAC = 2 * (PART_CHARS + 1),
    AT_END = 3 * PART_CHARS + 2
};
_Static_assert(AT_END + sizeof(ENDING) - 1 == KNOCK_LEN, "length of a knock");
_Static_assert(PART_LEN == NAMESPACE_LEN && PART_LEN == KNOCK_NONCE_LEN, "parts are equal");

/* In lower case alone: a knock has one form. */
static bool get_part(const char *text, uint8_t bytes[PART_LEN])
{
    char again[PART_CHARS];

    if (!hex_decode(text, bytes, PART_LEN))
        return false;
    hex_encode(bytes, PART_LEN, again);
    return memcmp(text, again, PART_CHARS) == 0;
}

static bool mac_of(const struct secret *secret, const uint8_t nonce[KNOCK_NONCE_LEN], uint8_t mac[HASH_LEN])
{
    uint8_t text[sizeof(LABEL) - 1 + NAMESPACE_LEN + KNOCK_NONCE_LEN];

    memcpy(text, LABEL, sizeof(LABEL) - 1);
    memcpy(text + sizeof(LABEL) - 1, secret_namespace(secret), NAMESPACE_LEN);
    memcpy(text + sizeof(LABEL) - 1 + NAMESPACE_LEN, nonce, KNOCK_NONCE_LEN);
    return gnutls_hmac_fast(GNUTLS_MAC_SHA256, secret_key(secret, SECRET_KNOCK), SECRET_DERIVED_LEN, text,
                            sizeof(text), mac) == 0;
}

int knock_make(const struct secret *secret, const uint8_t nonce[static KNOCK_NONCE_LEN],
               char text[static KNOCK_LEN + 1])
{
    uint8_t mac[HASH_LEN];

    if (!mac_of(secret, nonce, mac))
        return HEARTH_SYSTEM;
    hex_encode(secret_namespace(secret), PART_LEN, text + AT_NAMESPACE);
    hex_encode(nonce, PART_LEN, text + AT_NONCE);
    hex_encode(mac, PART_LEN, text + AT_MAC);
    text[AT_NONCE - 1] = '.';
    text[AT_MAC - 1] = '.';
    memcpy(text + AT_END, ENDING, sizeof(ENDING));
    return HEARTH_OK;
}

enum knock_verdict knock_check(const struct secret *secret, const char *text, size_t len)
{
    uint8_t id[PART_LEN], nonce[PART_LEN], said[PART_LEN], mac[HASH_LEN];

    if (len != KNOCK_LEN || text[AT_NONCE - 1] != '.' || text[AT_MAC - 1] != '.' ||
        memcmp(text + AT_END, ENDING, sizeof(ENDING) - 1) != 0)
        return KNOCK_NONE;
    if (!get_part(text + AT_NAMESPACE, id) || !get_part(text + AT_NONCE, nonce) ||
        !get_part(text + AT_MAC, said))
        return KNOCK_NONE;
    if (memcmp(id, secret_namespace(secret), NAMESPACE_LEN) != 0)
        return KNOCK_FOREIGN;
    if (!mac_of(secret, nonce, mac) || gnutls_memcmp(mac, said, PART_LEN) != 0)
        return KNOCK_WRONG;
    return KNOCK_GOOD;
}

bool knocks_add(struct knocks *knocks, const char text[static KNOCK_LEN])
{
    uint8_t nonce[PART_LEN];
    size_t known = knocks->count < KNOCKS_MAX ? knocks->count : KNOCKS_MAX;

    if (!get_part(text + AT_NONCE, nonce))
        return false;
    for (size_t i = 0; i < known; i++)
        if (memcmp(knocks->nonces[i], nonce, PART_LEN) == 0)
            return false;
    memcpy(knocks->nonces[knocks->count++ % KNOCKS_MAX], nonce, PART_LEN);
    return true;
}
