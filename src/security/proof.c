/* SPDX-License-Identifier: Apache-2.0 */
/* The proof that an end has the secret, bound to one TLS session, its role and both members. */
#include "security/proof.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "core/bytes.h"
#include "security/vault.h"

#define MAGIC          0x5048u
#define VERSION        1u
#define LABEL          "hearth proof 1"
#define EXPORTER_LABEL "EXPORTER-hearth-proof"
#define EXPORTED_LEN   32
#define ROLE_DIALLER   1
#define ROLE_LISTENER  2
#define MAC_TEXT_LEN   (sizeof(LABEL) - 1 + 1 + EXPORTED_LEN + 2 * (NODE_ID_LEN + 8))

enum { KIND_PROOF = 1, KIND_REFUSE = 2 };
enum { AT_KIND = 3, AT_REASON = 4, AT_ZERO = 5, AT_INSTANCE = 8, AT_ZEROES = 16, AT_MAC = 32 };

void proof_encode(const struct proof_message *message, uint8_t target[static PROOF_LEN])
{
    memset(target, 0, PROOF_LEN);
    store_u16(target, MAGIC);
    target[2] = VERSION;
    target[AT_KIND] = message->reason == PROOF_NO_REFUSAL ? KIND_PROOF : KIND_REFUSE;
    target[AT_REASON] = (uint8_t)message->reason;
    store_u64(target + AT_INSTANCE, message->instance);
    memcpy(target + AT_MAC, message->mac, PROOF_MAC_LEN);
}

int proof_decode(struct proof_message *message, const uint8_t source[static PROOF_LEN], const char **what)
{
    uint8_t kind = source[AT_KIND], reason = source[AT_REASON];

    *what = "what it sends is no proof";
    if (load_u16(source) != MAGIC)
        return HEARTH_PROTOCOL;
    *what = "its proof has a version that we do not know";
    if (source[2] != VERSION)
        return HEARTH_PROTOCOL;
    *what = "its proof is malformed";
    if (!bytes_zero(source + AT_ZERO, AT_INSTANCE - AT_ZERO) ||
        !bytes_zero(source + AT_ZEROES, AT_MAC - AT_ZEROES))
        return HEARTH_PROTOCOL;
    message->instance = load_u64(source + AT_INSTANCE);
    memcpy(message->mac, source + AT_MAC, PROOF_MAC_LEN);
    message->reason = PROOF_NO_REFUSAL;
    if (kind == KIND_PROOF)
        return reason == 0 && message->instance != 0 ? HEARTH_OK : HEARTH_PROTOCOL;
    if (kind != KIND_REFUSE || reason < PROOF_WRONG || reason > PROOF_LATER || message->instance != 0 ||
        !bytes_zero(message->mac, PROOF_MAC_LEN))
        return HEARTH_PROTOCOL;
    message->reason = (enum proof_reason)reason;
    return HEARTH_OK;
}

void proof_refuse(enum proof_reason reason, uint8_t target[static PROOF_LEN])
{
    struct proof_message message = {.reason = reason};

    proof_encode(&message, target);
}

static int refused(enum proof_reason reason, struct error *error)
{
    static const struct {
        enum hearth_reason reason;
        const char *text;
    } said[] = {
        [PROOF_WRONG] = {HEARTH_REASON_SECRET_DIFFERS, "it says that our proof of the secret is wrong"},
        [PROOF_REVOKED] = {HEARTH_REASON_KEY_REFUSED, "it has revoked our key (hearth trust)"},
        [PROOF_UNLISTED] = {HEARTH_REASON_KEY_REFUSED, "our key is not on its list (hearth trust)"},
        [PROOF_LATER] = {HEARTH_REASON_BUSY, "it is busy: come again later"},
    };

    return error_because(error, said[reason].reason, HEARTH_PEER_LOST, RANK_NONE, "%s", said[reason].text);
}

/* The mac over all that the proof is bound to. */
static int mac_of(const struct credentials *credentials, gnutls_session_t session, const struct proof *proof,
                  uint8_t mac[PROOF_MAC_LEN])
{
    bool dials = proof->role == CHANNEL_DIALS;
    enum secret_key key = dials ? SECRET_DIALLER : SECRET_LISTENER;
    uint8_t exported[EXPORTED_LEN], text[MAC_TEXT_LEN];
    struct writer w = writer_of(text, sizeof text);
    int done;

    if (gnutls_prf_rfc5705(session, sizeof(EXPORTER_LABEL) - 1, EXPORTER_LABEL, 0, NULL, EXPORTED_LEN,
                           (char *)exported))
        return HEARTH_SYSTEM;
    put_bytes(&w, LABEL, sizeof(LABEL) - 1);
    put_u8(&w, dials ? ROLE_DIALLER : ROLE_LISTENER);
    put_bytes(&w, exported, EXPORTED_LEN);
    put_bytes(&w, proof->dialler.node.bytes, NODE_ID_LEN);
    put_u64(&w, proof->dialler.instance);
    put_bytes(&w, proof->listener.node.bytes, NODE_ID_LEN);
    put_u64(&w, dials ? 0 : proof->listener.instance);
    done = gnutls_hmac_fast(GNUTLS_MAC_SHA256, secret_key(credentials_secret(credentials), key),
                            SECRET_DERIVED_LEN, text, sizeof text, mac);
    wipe(exported, sizeof exported);
    wipe(text, sizeof text);
    return done ? HEARTH_SYSTEM : HEARTH_OK;
}

int proof_make(const struct credentials *credentials, struct gnutls_session_int *session,
               const struct proof *proof, uint8_t target[static PROOF_LEN])
{
    bool dials = proof->role == CHANNEL_DIALS;
    struct proof_message message = {
        .instance = dials ? proof->dialler.instance : proof->listener.instance,
    };
    int status = mac_of(credentials, session, proof, message.mac);

    if (status == HEARTH_OK)
        proof_encode(&message, target);
    return status;
}

int proof_check(const struct credentials *credentials, struct gnutls_session_int *session,
                struct proof *proof, const uint8_t source[static PROOF_LEN], struct error *error)
{
    struct identity *speaker = proof->role == CHANNEL_DIALS ? &proof->dialler : &proof->listener;
    struct proof_message message;
    struct proof said = *proof;
    uint8_t mac[PROOF_MAC_LEN];
    const char *what;
    bool right;

    if (proof_decode(&message, source, &what))
        return error_set(error, HEARTH_PROTOCOL, RANK_NONE, "%s", what);
    if (message.reason != PROOF_NO_REFUSAL)
        return refused(message.reason, error);
    *(proof->role == CHANNEL_DIALS ? &said.dialler.instance : &said.listener.instance) = message.instance;
    if (mac_of(credentials, session, &said, mac))
        return error_set(error, HEARTH_PROTOCOL, RANK_NONE,
                         "this TLS session exports nothing to check a proof with");
    right = gnutls_memcmp(mac, message.mac, PROOF_MAC_LEN) == 0;
    wipe(mac, sizeof mac); /* it is the proof that the peer failed to give */
    if (!right)
        return error_because(error, HEARTH_REASON_SECRET_DIFFERS, HEARTH_PROTOCOL, RANK_NONE,
                             "its proof of the secret is wrong");
    speaker->instance = message.instance;
    return HEARTH_OK;
}
