/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and checks the server name of a dialler's hello. */
#include <string.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "core/bytes.h"
#include "os/clock.h"
#include "security/base32.h"
#include "security/knock.h"

#define PART_LEN   16 /* bytes of each of the three parts */
#define PART_CHARS (2 * PART_LEN)
#define LABEL      "hearth knock 2"
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

enum { NONCE_MINUTE = 0, NONCE_KIND = 4, NONCE_RANDOM = 5 };
_Static_assert(NONCE_RANDOM + KNOCK_RANDOM_LEN == KNOCK_NONCE_LEN, "length of a nonce");

struct parts {
    uint8_t space[PART_LEN], nonce[PART_LEN], mac[PART_LEN];
};

/* In lower case alone: a knock has one form. */
static bool get_part(const char *text, uint8_t bytes[PART_LEN])
{
    char again[PART_CHARS];

    if (!hex_decode(text, bytes, PART_LEN))
        return false;
    hex_encode(bytes, PART_LEN, again);
    return memcmp(text, again, PART_CHARS) == 0;
}

/* What the MAC is over. Room for the longest: of a node. */
struct message {
    uint8_t bytes[sizeof(LABEL) - 1 + NAMESPACE_LEN + KNOCK_NONCE_LEN + NODE_ID_LEN];
    struct writer w;
};
_Static_assert(NET_ADDR_LEN_MAX <= NODE_ID_LEN, "an address fits where a node's id does");

static void message_begin(struct message *m, const struct secret *secret,
                          const uint8_t nonce[KNOCK_NONCE_LEN])
{
    m->w = writer_of(m->bytes, sizeof m->bytes);
    put_bytes(&m->w, LABEL, sizeof(LABEL) - 1);
    put_bytes(&m->w, secret_namespace(secret), NAMESPACE_LEN);
    put_bytes(&m->w, nonce, KNOCK_NONCE_LEN);
}

/* The listener that it is for. False: there is no such address. */
static bool message_whom(struct message *m, enum knock_kind kind, const struct knock_target *listener)
{
    struct net_addr net;

    if (kind == KNOCK_NODE)
        put_bytes(&m->w, listener->node.bytes, NODE_ID_LEN);
    if (kind != KNOCK_ADDRESS)
        return true;
    if (!sock_addr_to_net(&listener->addr, &net))
        return false;
    net_addr_put(&m->w, &net);
    return true;
}

static bool message_mac(const struct message *m, const struct secret *secret, uint8_t mac[HASH_LEN])
{
    return !m->w.bad &&
           gnutls_hmac_fast(GNUTLS_MAC_SHA256, secret_key(secret, SECRET_KNOCK), SECRET_DERIVED_LEN, m->bytes,
                            (size_t)(m->w.at - m->bytes), mac) == 0;
}

uint32_t knock_minute(void)
{
    return (uint32_t)(clock_calendar_s() / 60);
}

int knock_make(const struct secret *secret, const struct knock_target *target, uint32_t minute,
               const uint8_t random[static KNOCK_RANDOM_LEN], char text[static KNOCK_LEN + 1])
{
    uint8_t nonce[KNOCK_NONCE_LEN], mac[HASH_LEN];
    struct message m;

    store_u32(nonce + NONCE_MINUTE, minute);
    nonce[NONCE_KIND] = (uint8_t)target->kind;
    memcpy(nonce + NONCE_RANDOM, random, KNOCK_RANDOM_LEN);
    message_begin(&m, secret, nonce);
    if (!message_whom(&m, target->kind, target) || !message_mac(&m, secret, mac))
        return HEARTH_SYSTEM;
    hex_encode(secret_namespace(secret), PART_LEN, text + AT_NAMESPACE);
    hex_encode(nonce, PART_LEN, text + AT_NONCE);
    hex_encode(mac, PART_LEN, text + AT_MAC);
    text[AT_NONCE - 1] = '.';
    text[AT_MAC - 1] = '.';
    memcpy(text + AT_END, ENDING, sizeof(ENDING));
    return HEARTH_OK;
}

static bool parts_of(const char *text, size_t len, struct parts *parts)
{
    if (len != KNOCK_LEN || text[AT_NONCE - 1] != '.' || text[AT_MAC - 1] != '.' ||
        memcmp(text + AT_END, ENDING, sizeof(ENDING) - 1) != 0)
        return false;
    return get_part(text + AT_NAMESPACE, parts->space) && get_part(text + AT_NONCE, parts->nonce) &&
           get_part(text + AT_MAC, parts->mac) && parts->nonce[NONCE_KIND] < KNOCK_KINDS;
}

/* Also across the end of the numbers: a clock may say anything. */
static bool timely(uint32_t minute, uint32_t now)
{
    return minute - now <= KNOCK_MINUTES_MAX || now - minute <= KNOCK_MINUTES_MAX;
}

enum knock_verdict knock_check(const struct secret *secret, const struct knock_target *listener,
                               uint32_t minute, const char *text, size_t len)
{
    struct parts parts;
    struct message m;
    uint8_t mac[HASH_LEN];

    if (!parts_of(text, len, &parts))
        return KNOCK_NONE;
    if (memcmp(parts.space, secret_namespace(secret), NAMESPACE_LEN) != 0)
        return KNOCK_FOREIGN;
    enum knock_kind kind = (enum knock_kind)parts.nonce[NONCE_KIND];
    message_begin(&m, secret, parts.nonce);
    if (!message_whom(&m, kind, listener) || !message_mac(&m, secret, mac) ||
        gnutls_memcmp(mac, parts.mac, PART_LEN) != 0)
        return KNOCK_WRONG;
    return kind == KNOCK_OPEN || !timely(load_u32(parts.nonce + NONCE_MINUTE), minute) ? KNOCK_WEAK
                                                                                       : KNOCK_GOOD;
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
