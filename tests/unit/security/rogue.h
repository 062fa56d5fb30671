/* SPDX-License-Identifier: Apache-2.0 */
/* A peer made of bare GnuTLS, that can do everything wrong that a member never does. */
#pragma once

#include <gnutls/gnutls.h>

#include "ends.h"

#define ROGUE_COMPAT "NONE:+VERS-TLS1.3:+AEAD:+GROUP-X25519:+SIGN-ALL:+AES-128-GCM:+CTYPE-X509"
#define ROGUE_TLS13  ROGUE_COMPAT ":%DISABLE_TLS13_COMPAT_MODE"
#define ROGUE_TLS12  "NORMAL:-VERS-ALL:+VERS-TLS1.2"

enum rogue_key { ROGUE_ED25519, ROGUE_ECDSA, ROGUE_RSA, ROGUE_NO_KEY };

#define ROGUE_CERTIFICATES_MAX 4
#define ROGUES_MAX             64 /* in one test */

struct rogue_options {
    bool listens;
    const char *priority; /* NULL: ROGUE_TLS13 */
    const char *alpn;     /* NULL: hearth/1; "": none */
    const char *knock;    /* server name; NULL: none */
    enum rogue_key key;
    const struct rogue *like; /* shows the same certificate */
    int certificates;         /* how many of the same key; 0: one */
    int limit;                /* max size of records it takes; 0: any */
};

struct rogue {
    gnutls_session_t session;
    gnutls_certificate_credentials_t credentials;
    struct caught in, out;
    size_t in_taken;
    int code; /* of the last gnutls_handshake */
};

void rogue_open(struct rogue *rogue, const struct rogue_options *options);
/* A session that credentials_session made, over memory; NULL credentials. */
void rogue_adopt(struct rogue *rogue, gnutls_session_t session);
void rogues_close(void); /* all of them, at the end of a test */
/* A knock that is right for this secret, at any listener. */
void rogue_knock(uint8_t secret, char knock[static 128]);
/* Who it is by its key. */
struct identity rogue_identity(struct rogue *rogue, uint64_t instance);
/* Handshakes with the end until neither has anything more to say. */
void rogue_shake(struct rogue *rogue, struct end *end);
/* Carries what is there, once each way, without a handshake step. */
void rogue_carry(struct rogue *rogue, struct end *end);
/* The same with another rogue. */
void rogues_shake(struct rogue *a, struct rogue *b);
/* One record with these bytes; then carries. */
void rogue_say(struct rogue *rogue, struct end *end, const void *bytes, size_t len);
/* Dials the listener and proves the secret: a member that may do odd things from now on. */
void rogue_joins(struct rogue *rogue, const struct rogue_options *options, struct end *end,
                 const struct credentials *listener, const struct credentials *secret);
/* What the end said inside TLS: bytes, or a negative code of GnuTLS. */
int rogue_hear(struct rogue *rogue, void *target, size_t len_max);
