/* SPDX-License-Identifier: Apache-2.0 */
/* A server name that a listener takes for a knock must be the one that its nonce makes, for this listener. */
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "security/knock.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define MINUTE UINT32_C(0x03020100)

static struct secret *secret;
static struct knock_target listener;

static void begin(void)
{
    uint8_t key[SECRET_LEN];
    struct error error;

    memset(key, 1, sizeof key);
    memset(&listener.node, 2, sizeof listener.node);
    if (secret_from_bytes(key, "fuzz", &secret, &error) ||
        sock_addr_parse("192.0.2.1:29500", 0, &listener.addr))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    uint8_t nonce[KNOCK_NONCE_LEN];
    char again[KNOCK_LEN + 1];

    if (!secret)
        begin();
    enum knock_verdict verdict = knock_check(secret, &listener, MINUTE, (const char *)bytes, len);
    if (verdict != KNOCK_GOOD && verdict != KNOCK_WEAK)
        return 0;
    for (int i = 0; i < KNOCK_NONCE_LEN; i++) {
        char pair[3] = {(char)bytes[33 + 2 * i], (char)bytes[34 + 2 * i], '\0'};
        nonce[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    struct knock_target target = {
        .kind = (enum knock_kind)nonce[4], .node = listener.node, .addr = listener.addr};
    if (knock_make(secret, &target, load_u32(nonce), nonce + 5, again) || len != KNOCK_LEN ||
        memcmp(again, bytes, KNOCK_LEN) != 0)
        abort();
    return 0;
}
