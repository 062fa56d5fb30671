/* SPDX-License-Identifier: Apache-2.0 */
/* A certificate is a wrapping for an Ed25519 key, since TLS wants one: nothing else in it means anything. */
#pragma once

#include <gnutls/gnutls.h>

#include "security/node_key.h"

/* Signs one for the key, valid for ever, and lets `target` show it; 0, or a code of GnuTLS. The key is lent
 * for good: the private part stays in its vault, GnuTLS asks it for signatures. */
int MUST_CHECK certificate_make(struct node_key *key, gnutls_certificate_credentials_t target);
/* The key in a peer's certificate. HEARTH_PROTOCOL: it is none, or not of this kind. */
int MUST_CHECK certificate_key(const void *der, size_t len, uint8_t public_key[static PUBLIC_KEY_LEN]);
