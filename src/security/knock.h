/* SPDX-License-Identifier: Apache-2.0 */
/* The knock: a server name in the dialler's hello that shows at the door, for the price of one hash, that the
 * dialler has the secret. docs/wire.md, Handshake. */
#ifndef SECURITY_KNOCK_H
#define SECURITY_KNOCK_H

#include "security/secret.h"

#define KNOCK_NONCE_LEN 16
#define KNOCK_LEN       105 /* "NAMESPACE.NONCE.MAC.hearth", three times 32 digits */

enum knock_verdict {
    KNOCK_GOOD,
    KNOCK_NONE,    /* no knock at all */
    KNOCK_FOREIGN, /* of another namespace */
    KNOCK_WRONG,   /* says our namespace, and does not know the secret */
};

/* text: KNOCK_LEN characters and the final 0. HEARTH_OK or HEARTH_SYSTEM. */
int MUST_CHECK knock_make(const struct secret *secret, const uint8_t nonce[static KNOCK_NONCE_LEN],
                          char text[static KNOCK_LEN + 1]);
enum knock_verdict knock_check(const struct secret *secret, const char *text, size_t len);

/* Knocks that were good, the last of them: a nonce is drawn for one hello, so who comes with it again has
 * heard it. 16 KiB; not for several threads at once. */
#define KNOCKS_MAX 1024u
struct knocks {
    size_t count; /* of all there were */
    uint8_t nonces[KNOCKS_MAX][KNOCK_NONCE_LEN];
};
/* Remembers a knock that knock_check found good. False: it was heard before. */
bool knocks_add(struct knocks *knocks, const char text[static KNOCK_LEN]);

#endif
