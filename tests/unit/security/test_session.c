/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions without a channel, as QUIC has them, and members that do what TLS allows and members never do. */
#include "security/records.h"

#include "members.h"
#include "support/suite.h"

static struct rogue rogue, other;

/* ---- sessions for QUIC, here over memory: what is ours in them works without the other pointer ---- */

static struct error refusal;

static gnutls_session_t session_of(const struct credentials *credentials, struct session_setup *setup)
{
    gnutls_session_t session = NULL;
    struct error error;

    setup->credentials = credentials;
    setup->quic = true;
    setup->refusal = &refusal;
    error_clear(&refusal);
    if (credentials_session(setup, &session, &error))
        fail_msg("%s", error.text);
    gnutls_session_set_ptr(session, (void *)(uintptr_t)1); /* somebody else's */
    return session;
}

TEST_WITH(test_quic_proofs, members_set_up, members_tear_down)
{
    struct session_setup dials = {.role = CHANNEL_DIALS}, listens = {.role = CHANNEL_LISTENS};
    struct proof said = {.role = CHANNEL_DIALS}, heard = {.role = CHANNEL_DIALS};
    uint8_t message[PROOF_LEN];
    const char *what = NULL;

    rogue_adopt(&rogue, session_of(ann, &dials));
    rogue_adopt(&other, session_of(bob, &listens));
    rogues_shake(&rogue, &other);
    assert_int_equal(rogue.code, 0);
    assert_int_equal(other.code, 0);
    assert_int_equal(credentials_peer(rogue.session, &said.listener.node, &what), HEARTH_OK);
    assert_int_equal(credentials_peer(other.session, &heard.dialler.node, &what), HEARTH_OK);
    assert_true(node_id_equal(&said.listener.node, &credentials_self(bob)->node));
    assert_true(node_id_equal(&heard.dialler.node, &credentials_self(ann)->node));
    said.dialler = *credentials_self(ann);
    heard.listener = *credentials_self(bob);
    assert_int_equal(proof_make(ann, rogue.session, &said, message), HEARTH_OK);
    assert_int_equal(proof_check(bob, other.session, &heard, message, &refusal), HEARTH_OK);
    assert_int_equal(heard.dialler.instance, 0xa);
}

TEST_WITH(test_quic_stranger, members_set_up, members_tear_down)
{
    struct session_setup dials = {.role = CHANNEL_DIALS}, listens = {.role = CHANNEL_LISTENS};
    third = ends_node(&(struct node_options){.secret = 2, .instance = 0xe});

    rogue_adopt(&rogue, session_of(third, &dials));
    rogue_adopt(&other, session_of(bob, &listens));
    rogues_shake(&rogue, &other);
    assert_int_equal(other.code, GNUTLS_E_UNRECOGNIZED_NAME);
    assert_int_equal(refusal.reason, HEARTH_REASON_SECRET_DIFFERS);
    assert_non_null(strstr(refusal.text, "it has another secret (its namespace is "));
    assert_int_equal(rogue.code, GNUTLS_E_FATAL_ALERT_RECEIVED);
    assert_int_equal(gnutls_alert_get(rogue.session), GNUTLS_A_UNRECOGNIZED_NAME);
}

TEST_WITH(test_quic_certificates, members_set_up, members_tear_down)
{
    struct session_setup listens = {.role = CHANNEL_LISTENS};

    rogue_open(&rogue, &(struct rogue_options){.knock = knock, .certificates = 2});
    rogue_adopt(&other, session_of(bob, &listens));
    rogues_shake(&rogue, &other);
    assert_int_equal(other.code, GNUTLS_E_CERTIFICATE_ERROR);
    assert_string_equal(refusal.text, "it shows more than one certificate");
}

/* Key and secret are taken even when there is no memory for more: nothing leaks, nothing is closed twice. */
TEST_WITH(test_no_memory_for_credentials, members_set_up, members_tear_down)
{
    struct credentials_setup setup = {.heap = &ends_heap, .instance = 1};
    struct credentials *credentials = NULL;
    struct error error;

    assert_int_equal(node_key_fresh(&setup.key, &error), HEARTH_OK);
    assert_int_equal(secret_draw(NULL, &setup.secret, &error), HEARTH_OK);
    ends_heap.fail_after = 0;
    assert_int_equal(credentials_open(&setup, &credentials, &error), HEARTH_NO_MEMORY);
    ends_heap.fail_after = -1;
    assert_null(credentials);
    credentials_close(NULL);
}

/* ---- odd members ---- */

static const struct rogue_options knocks = {.knock = knock};

TEST_WITH(test_goodbye, members_set_up, members_tear_down)
{
    uint8_t came[16];

    rogue_joins(&rogue, &knocks, &listener, bob, ann);
    rogue_say(&rogue, &listener, "last words", 10);
    assert_int_equal(gnutls_bye(rogue.session, GNUTLS_SHUT_WR), 0);
    rogue_carry(&rogue, &listener);
    end_refused(&listener, HEARTH_PEER_LOST, "it closed the connection");
    assert_int_equal(channel_recv(listener.channel, came, sizeof came), 10); /* what came before it counts */
}

TEST_WITH(test_goodbye_before_the_proof, members_set_up, members_tear_down)
{
    end_open(&listener, bob, CHANNEL_LISTENS);
    rogue_open(&rogue, &knocks);
    rogue_shake(&rogue, &listener);
    assert_int_equal(gnutls_bye(rogue.session, GNUTLS_SHUT_WR), 0);
    rogue_carry(&rogue, &listener);
    end_refused(&listener, HEARTH_PEER_LOST, "it closed the connection before its proof");
}

TEST_WITH(test_new_keys, members_set_up, members_tear_down)
{
    struct records *records = NULL;
    uint8_t came[16];

    rogue_joins(&rogue, &knocks, &listener, bob, ann);
    assert_int_equal(gnutls_session_key_update(rogue.session, GNUTLS_KU_PEER), 0);
    rogue_say(&rogue, &listener, "with new keys", 13);
    assert_int_equal(listener.status, HEARTH_OK);
    assert_int_equal(channel_recv(listener.channel, came, sizeof came), 13);
    assert_true(channel_send(listener.channel, "ours too", 8));
    rogue_carry(&rogue, &listener);
    assert_int_equal(rogue_hear(&rogue, came, sizeof came), GNUTLS_E_AGAIN); /* our change of keys */
    assert_int_equal(rogue_hear(&rogue, came, sizeof came), 8);
    assert_int_equal(channel_take_records(listener.channel, &records), HEARTH_NO_MEMORY);
    assert_null(records);
    listener.channel = NULL;
}

TEST_WITH(test_small_records, members_set_up, members_tear_down)
{
    static uint8_t message[CHANNEL_MESSAGE_MAX], came[CHANNEL_MESSAGE_MAX];
    struct rogue_options options = {.knock = knock, .limit = 512};
    size_t len = 0;
    int part;

    for (size_t i = 0; i < sizeof message; i++)
        message[i] = (uint8_t)(i % 251);
    rogue_joins(&rogue, &options, &listener, bob, ann);
    assert_true(channel_send(listener.channel, message, sizeof message));
    rogue_carry(&rogue, &listener);
    while (len < sizeof came && (part = rogue_hear(&rogue, came + len, sizeof came - len)) > 0)
        len += (size_t)part;
    assert_int_equal(len, sizeof message);
    assert_memory_equal(came, message, len);
}
