/* SPDX-License-Identifier: Apache-2.0 */
/* What a node brings to every handshake: its key with a certificate for it, the secret, the trust list, and
 * its instance. One per node, lent to all its channels. */
#pragma once

#include "core/heap.h"
#include "core/log.h"
#include "security/knock.h"
#include "security/node_key.h"
#include "security/secret.h"
#include "security/trust_list.h"

struct credentials;

/* Which suite a dialler likes best; the listener follows. */
enum suite_order { SUITES_FOR_CPU, SUITES_AES_FIRST, SUITES_CHACHA_FIRST };

struct credentials_setup {
    struct heap *heap;
    struct node_key *key;     /* taken, also on failure */
    struct secret *secret;    /* taken, also on failure */
    struct trust_list *trust; /* taken, also on failure; NULL: every key is trusted */
    uint64_t instance;
    enum suite_order suites;
};
int MUST_CHECK credentials_open(const struct credentials_setup *setup, struct credentials **out,
                                struct error *error);
/* The same node, for another process or group of it: another instance. Reads its own trust list. */
int MUST_CHECK credentials_copy(const struct credentials *from, struct heap *heap, uint64_t instance,
                                struct credentials **out, struct error *error);
void credentials_close(struct credentials *credentials); /* NULL is allowed */

const struct identity *credentials_self(const struct credentials *credentials);
const struct secret *credentials_secret(const struct credentials *credentials);
struct trust_list *credentials_trust(const struct credentials *credentials); /* NULL: none */

/* ---- for the channels: what TLS needs, on TCP and in QUIC alike ---- */

enum channel_role { CHANNEL_DIALS, CHANNEL_LISTENS };

struct gnutls_session_int;
/* Asked at the listening end when a hello has come that knows the secret, before costly work begins; `weak`:
 * KNOCK_WEAK. */
typedef bool session_admit_fn(void *arg, bool weak);
struct session_setup {
    struct heap *heap; /* of a channel */
    const struct credentials *credentials;
    enum channel_role role;
    struct knock_target to;  /* the node we dial; only where role is CHANNEL_DIALS */
    struct sock_addr at;     /* our end; only where role is CHANNEL_LISTENS */
    bool quic;               /* for use under ngtcp2: no record layer of its own */
    session_admit_fn *admit; /* NULL: all; only where role is CHANNEL_LISTENS */
    void *admit_arg;
    struct error *refusal; /* set to why the peer was refused; may be NULL */
    bool admitted;         /* PRIVATE: `admit` is asked once per session */
};
/* A TLS 1.3 session, set up but for its transport: our certificate, the peer's demanded, the only suites and
 * groups we speak, ALPN, no tickets, the knock in the dialler's hello and its check at the listener, small
 * limits on what is read. To be freed with gnutls_deinit. `setup` is lent until the handshake is over: it is
 * the session's database pointer; the user's pointer is free. */
int MUST_CHECK credentials_session(struct session_setup *setup, struct gnutls_session_int **out,
                                   struct error *error);
/* What a peer's alert means to code and to users ("it has another secret, or ..."); NULL: not known. */
struct alert_meaning {
    int alert;
    enum hearth_reason reason;
    const char *text;
};
const struct alert_meaning *session_alert(int alert);
/* After its handshake: the peer's id, by the key that it has proven to hold. HEARTH_PROTOCOL: no
 * Ed25519 certificate, or not exactly one. */
int MUST_CHECK credentials_peer(struct gnutls_session_int *session, struct node_id *id, const char **what);

/* ---- the proof: one message each way, first the dialler's, right after the handshake. docs/wire.md. ---- */

#define PROOF_LEN 64u /* bytes of the message */

struct proof {
    enum channel_role role;            /* of the speaker */
    struct identity dialler, listener; /* dialler's message: listener.instance is 0, it is not known yet */
};
/* HEARTH_OK, or HEARTH_SYSTEM: the session exports nothing. */
int MUST_CHECK proof_make(const struct credentials *credentials, struct gnutls_session_int *session,
                          const struct proof *proof, uint8_t target[static PROOF_LEN]);
/* `proof` has what is known; the instance of the speaker is filled in. HEARTH_PROTOCOL: it is wrong.
 * HEARTH_PEER_LOST: it is a refusal, and the error says why the peer does not want us. */
int MUST_CHECK proof_check(const struct credentials *credentials, struct gnutls_session_int *session,
                           struct proof *proof, const uint8_t source[static PROOF_LEN], struct error *error);

/* Instead of a proof: why there is none. */
enum proof_reason { PROOF_NO_REFUSAL, PROOF_WRONG, PROOF_REVOKED, PROOF_UNLISTED, PROOF_LATER };
void proof_refuse(enum proof_reason reason, uint8_t target[static PROOF_LEN]);
