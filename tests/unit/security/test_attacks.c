/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever has no secret, another one, the wrong key, or somebody else's proof: refused, and told why. */
#include "security/proof.h"

#include "members.h"
#include "support/suite.h"

#define OTHER 2

static const char other_cluster[] = "it has another secret, or belongs to another cluster";
static const char wrong_proof[] = "its proof of the secret is wrong";
static const char our_wrong_proof[] = "it says that our proof of the secret is wrong";
static const char forged[] = "it sends a record that is forged, damaged or repeated";

/* ---- strangers ---- */

TEST_WITH(test_other_secret, members_set_up, members_tear_down)
{
    third = ends_node(&(struct node_options){.secret = OTHER, .instance = 0xe});
    char expected[ERROR_TEXT_MAX], id[NAMESPACE_TEXT];
    int signatures = ends_signatures;

    namespace_text(secret_namespace(credentials_secret(third)), id);
    (void)snprintf(expected, sizeof expected, "it has another secret (its namespace is %.8s...)", id);
    end_open(&dialler, third, CHANNEL_DIALS);
    end_open(&listener, bob, CHANNEL_LISTENS);
    ends_carry(&dialler, &listener, 0);
    end_refused(&listener, HEARTH_PROTOCOL, expected);
    end_refused(&dialler, HEARTH_PEER_LOST, other_cluster);
    assert_int_equal(ends_signatures, signatures);
    assert_null(channel_peer(listener.channel));
}

static void knocks_with(const char *name, const char *text, gnutls_alert_description_t alert)
{
    struct rogue rogue;
    int signatures = ends_signatures;

    end_open(&listener, bob, CHANNEL_LISTENS);
    rogue_open(&rogue, &(struct rogue_options){.knock = name});
    rogue_shake(&rogue, &listener);
    end_refused(&listener, HEARTH_PROTOCOL, text);
    assert_int_equal(rogue.code, GNUTLS_E_FATAL_ALERT_RECEIVED);
    assert_int_equal(gnutls_alert_get(rogue.session), alert);
    assert_int_equal(rogue.in.len, 7); /* one alert, and nothing that would have cost anything */
    assert_int_equal(ends_signatures, signatures);
    end_close(&listener);
}

TEST_WITH(test_no_knock, members_set_up, members_tear_down)
{
    static const char none[] = "it does not know the secret (no knock)";
    static const char wrong[] = "its knock is wrong: it does not know the secret, or means another "
                                "listener";
    char changed[sizeof knock];

    knocks_with(NULL, none, GNUTLS_A_UNRECOGNIZED_NAME);
    knocks_with("example.org", none, GNUTLS_A_UNRECOGNIZED_NAME);
    memcpy(changed, knock, sizeof knock);
    changed[40] ^= 1; /* in the nonce */
    knocks_with(changed, wrong, GNUTLS_A_UNKNOWN_PSK_IDENTITY);
    memcpy(changed, knock, sizeof knock);
    changed[70] = changed[70] == '0' ? '1' : '0'; /* in the mac */
    knocks_with(changed, wrong, GNUTLS_A_UNKNOWN_PSK_IDENTITY);
    memcpy(changed, knock, sizeof knock);
    changed[104] = 'x'; /* .heartx */
    knocks_with(changed, none, GNUTLS_A_UNRECOGNIZED_NAME);
    changed[104] = 'h';
    changed[105] = 'a';
    knocks_with(changed, none, GNUTLS_A_UNRECOGNIZED_NAME); /* longer than a knock */
    changed[33] = '\0';
    knocks_with(changed, none, GNUTLS_A_UNRECOGNIZED_NAME);
}

/* ---- members whose key is not wanted ---- */

static void assert_rogue_refused(struct rogue *rogue, enum proof_reason reason)
{
    uint8_t said[PROOF_LEN], expected[PROOF_LEN];

    proof_refuse(reason, expected);
    assert_int_equal(rogue_hear(rogue, said, PROOF_LEN), PROOF_LEN);
    assert_memory_equal(said, expected, PROOF_LEN);
}

/* A list in which one id is revoked, or is the only one allowed. */
static struct trust_list *list_with(const struct node_id *id, bool revoked)
{
    struct trust_entry entry = {.id = *id, .revoked = revoked, .name = "somebody"};
    struct trust_list *list = NULL;
    struct error error;

    if (trust_list_open(&ends_heap, folder_path("trust"), &list, &error) ||
        trust_list_set(list, id, &entry, &error))
        fail_msg("%s", error.text);
    return list;
}

static struct credentials *trusting(const struct node_id *id, bool revoked)
{
    return ends_node(
        &(struct node_options){.secret = CLUSTER, .instance = 0xc, .trust = list_with(id, revoked)});
}

static const char *about(const struct credentials *whose, const char *rest)
{
    static char text[ERROR_TEXT_MAX];
    char id[NODE_ID_SHORT];

    node_id_short(&credentials_self(whose)->node, id);
    (void)snprintf(text, sizeof text, "its key %s: %s", rest, id);
    return text;
}

TEST_WITH(test_revoked_dialler, members_set_up, members_tear_down)
{
    third = trusting(&credentials_self(ann)->node, true);
    end_open(&dialler, ann, CHANNEL_DIALS);
    end_open(&listener, third, CHANNEL_LISTENS);
    ends_carry(&dialler, &listener, 0);
    end_refused(&listener, HEARTH_PROTOCOL, about(ann, "was revoked (hearth trust)"));
    end_refused(&dialler, HEARTH_PEER_LOST, "it has revoked our key (hearth trust)");
    assert_true(node_id_equal(&channel_peer(listener.channel)->node, &credentials_self(ann)->node));
    members_part();
    ends_join(&dialler, &listener, bob, third); /* others come in as before */
}

TEST_WITH(test_revoked_listener, members_set_up, members_tear_down)
{
    third = trusting(&credentials_self(bob)->node, true);
    end_open(&dialler, third, CHANNEL_DIALS);
    end_open(&listener, bob, CHANNEL_LISTENS);
    ends_carry(&dialler, &listener, 0);
    end_refused(&dialler, HEARTH_PROTOCOL, about(bob, "was revoked (hearth trust)"));
    end_refused(&listener, HEARTH_PEER_LOST, "it has revoked our key (hearth trust)");
}

TEST_WITH(test_unlisted, members_set_up, members_tear_down)
{
    third = trusting(&credentials_self(ann)->node, false);
    ends_join(&dialler, &listener, ann, third);
    members_part();
    end_open(&dialler, bob, CHANNEL_DIALS);
    end_open(&listener, third, CHANNEL_LISTENS);
    ends_carry(&dialler, &listener, 0);
    end_refused(&listener, HEARTH_PROTOCOL,
                about(bob, "is not on the list of those that are allowed (hearth trust)"));
    end_refused(&dialler, HEARTH_PEER_LOST, "our key is not on its list (hearth trust)");
}

/* Who is not listed and does not have the secret either is turned away for the first. */
TEST_WITH(test_unlisted_rogue, members_set_up, members_tear_down)
{
    struct rogue rogue;
    uint8_t nothing[PROOF_LEN] = {0};

    third = trusting(&credentials_self(ann)->node, false);
    end_open(&listener, third, CHANNEL_LISTENS);
    rogue_open(&rogue, &(struct rogue_options){.knock = knock});
    rogue_shake(&rogue, &listener);
    rogue_say(&rogue, &listener, nothing, sizeof nothing);
    assert_int_equal(listener.status, HEARTH_PROTOCOL);
    assert_rogue_refused(&rogue, PROOF_UNLISTED);
}

/* ---- proofs of others ---- */

/* A rogue dialled the listener, with a knock that it has heard: TLS is done, its key is known. */
static void rogue_dials(struct rogue *rogue)
{
    end_open(&listener, bob, CHANNEL_LISTENS);
    rogue_open(rogue, &(struct rogue_options){.knock = knock});
    rogue_shake(rogue, &listener);
    assert_int_equal(rogue->code, 0);
    assert_int_equal(listener.status, HEARTH_PENDING);
}

/* The dialler came to a rogue, who now holds its proof. */
static void rogue_is_dialled(struct rogue *rogue, uint8_t proof[PROOF_LEN])
{
    end_open(&dialler, ann, CHANNEL_DIALS);
    rogue_open(rogue, &(struct rogue_options){.listens = true});
    rogue_shake(rogue, &dialler);
    assert_int_equal(rogue->code, 0);
    rogue_carry(rogue, &dialler);
    assert_int_equal(rogue_hear(rogue, proof, PROOF_LEN), PROOF_LEN);
    assert_int_equal(dialler.status, HEARTH_PENDING);
}

/* The machinery of these tests is right: with secret, key and role as they should be, a rogue is a member. */
TEST_WITH(test_rogue_with_everything, members_set_up, members_tear_down)
{
    struct rogue rogue;
    struct identity identity;

    rogue_joins(&rogue, &(struct rogue_options){.knock = knock}, &listener, bob, ann);
    identity = rogue_identity(&rogue, 0xe);
    assert_true(channel_ready(listener.channel));
    assert_int_equal(channel_peer(listener.channel)->instance, 0xe);
    assert_true(node_id_equal(&channel_peer(listener.channel)->node, &identity.node));
}

/* What a member that knows the secret may not do: say that it is somebody else, or turn the roles around. */
TEST_WITH(test_member_claims_to_be_another, members_set_up, members_tear_down)
{
    for (int lie = 0; lie < 5; lie++) {
        uint8_t message[PROOF_LEN];
        struct rogue rogue;
        struct proof proof = {.role = CHANNEL_DIALS, .listener.node = credentials_self(bob)->node};

        rogue_dials(&rogue);
        proof.dialler = rogue_identity(&rogue, 0xe);
        if (lie == 0)
            proof.dialler.node = credentials_self(ann)->node;
        if (lie == 1)
            proof.listener.node = credentials_self(ann)->node;
        if (lie == 2)
            proof.role = CHANNEL_LISTENS;
        assert_int_equal(proof_make(ann, rogue.session, &proof, message), HEARTH_OK);
        if (lie == 2)
            message[8] = 0xe; /* an instance, as the other role has none yet */
        if (lie == 3)
            message[8] ^= 1; /* of another instance */
        if (lie == 4)
            message[PROOF_LEN - 1] ^= 1;
        rogue_say(&rogue, &listener, message, PROOF_LEN);
        end_refused(&listener, HEARTH_PROTOCOL, wrong_proof);
        assert_rogue_refused(&rogue, PROOF_WRONG);
        end_close(&listener);
    }
}

/* A proof was given to a rogue; it shows it elsewhere, later. */
TEST_WITH(test_repeated_proof, members_set_up, members_tear_down)
{
    uint8_t proof[PROOF_LEN];
    struct rogue first, second;

    rogue_is_dialled(&first, proof);
    rogue_dials(&second);
    rogue_say(&second, &listener, proof, PROOF_LEN);
    end_refused(&listener, HEARTH_PROTOCOL, wrong_proof);
    assert_rogue_refused(&second, PROOF_WRONG);
}

/* The same two members, and the proof of their last session. */
TEST_WITH(test_proof_of_last_session, members_set_up, members_tear_down)
{
    struct proof proof = {.role = CHANNEL_DIALS, .listener.node = credentials_self(bob)->node};
    uint8_t message[PROOF_LEN];
    struct rogue first, second;

    rogue_dials(&first);
    proof.dialler = rogue_identity(&first, 0xe);
    assert_int_equal(proof_make(ann, first.session, &proof, message), HEARTH_OK);
    rogue_say(&first, &listener, message, PROOF_LEN);
    assert_int_equal(listener.status, HEARTH_OK);
    end_close(&listener);
    end_open(&listener, bob, CHANNEL_LISTENS);
    rogue_open(&second, &(struct rogue_options){.knock = knock, .like = &first});
    rogue_shake(&second, &listener);
    rogue_say(&second, &listener, message, PROOF_LEN);
    end_refused(&listener, HEARTH_PROTOCOL, wrong_proof);
}

TEST_WITH(test_reflected_proof, members_set_up, members_tear_down)
{
    uint8_t proof[PROOF_LEN];
    struct rogue rogue;

    rogue_is_dialled(&rogue, proof);
    rogue_say(&rogue, &dialler, proof, PROOF_LEN);
    end_refused(&dialler, HEARTH_PROTOCOL, wrong_proof);
    assert_rogue_refused(&rogue, PROOF_WRONG);
}

/* The same node at both ends: what its dialling channel says is shown to its listening one. */
TEST_WITH(test_proof_back_to_its_node, members_set_up, members_tear_down)
{
    uint8_t proof[PROOF_LEN];
    struct rogue there, back;

    rogue_is_dialled(&there, proof);
    end_open(&listener, ann, CHANNEL_LISTENS);
    rogue_open(&back, &(struct rogue_options){.knock = knock});
    rogue_shake(&back, &listener);
    rogue_say(&back, &listener, proof, PROOF_LEN);
    end_refused(&listener, HEARTH_PROTOCOL, wrong_proof);
}

/* Between two members, with his own certificate, and all that they say carried on. */
TEST_WITH(test_man_in_the_middle, members_set_up, members_tear_down)
{
    uint8_t message[PROOF_LEN];
    struct rogue to_ann, to_bob;

    rogue_is_dialled(&to_ann, message);
    rogue_dials(&to_bob);
    rogue_say(&to_bob, &listener, message, PROOF_LEN);
    end_refused(&listener, HEARTH_PROTOCOL, wrong_proof);
    assert_int_equal(rogue_hear(&to_bob, message, PROOF_LEN), PROOF_LEN);
    rogue_say(&to_ann, &dialler, message, PROOF_LEN);
    end_refused(&dialler, HEARTH_PEER_LOST, our_wrong_proof);
}

/* As above, but he says yes to the dialler with what he has. */
TEST_WITH(test_listener_without_secret, members_set_up, members_tear_down)
{
    static const struct {
        size_t len;
        uint8_t head[8];
        const char *text;
    } cases[] = {
        {PROOF_LEN, {0x48, 0x50, 1, 1, 0, 0, 0, 0}, "its proof is malformed"}, /* instance 0 */
        {PROOF_LEN, {0x48, 0x50, 1, 1, 1, 0, 0, 0}, "its proof is malformed"},
        {PROOF_LEN, {0x48, 0x50, 1, 2, 0, 0, 0, 0}, "its proof is malformed"},
        {PROOF_LEN, {0x48, 0x50, 1, 2, 5, 0, 0, 0}, "its proof is malformed"},
        {PROOF_LEN, {0x48, 0x50, 1, 3, 0, 0, 0, 0}, "its proof is malformed"},
        {PROOF_LEN, {0x48, 0x50, 2, 1, 0, 0, 0, 0}, "its proof has a version that we do not know"},
        {PROOF_LEN, {0x48, 0x47, 1, 1, 0, 0, 0, 0}, "what it sends is no proof"},
        {PROOF_LEN - 1, {0x48, 0x50, 1, 1, 0, 0, 0, 0}, "its proof has not 64 bytes"},
        {PROOF_LEN + 1, {0x48, 0x50, 1, 1, 0, 0, 0, 0}, "its proof has not 64 bytes"},
        {4000, {0x48, 0x50, 1, 1, 0, 0, 0, 0}, "its proof has not 64 bytes"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t message[4000] = {0}, proof[PROOF_LEN];
        struct rogue rogue;

        rogue_is_dialled(&rogue, proof);
        memcpy(message, cases[i].head, sizeof cases[i].head);
        rogue_say(&rogue, &dialler, message, cases[i].len);
        end_refused(&dialler, HEARTH_PROTOCOL, cases[i].text);
        end_close(&dialler);
    }
}

TEST_WITH(test_refusals, members_set_up, members_tear_down)
{
    static const struct {
        enum proof_reason reason;
        const char *text;
    } cases[] = {
        {PROOF_WRONG, our_wrong_proof},
        {PROOF_REVOKED, "it has revoked our key (hearth trust)"},
        {PROOF_UNLISTED, "our key is not on its list (hearth trust)"},
        {PROOF_LATER, "it is busy: come again later"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t message[PROOF_LEN];
        struct rogue rogue;

        rogue_is_dialled(&rogue, message);
        proof_refuse(cases[i].reason, message);
        rogue_say(&rogue, &dialler, message, PROOF_LEN);
        end_refused(&dialler, HEARTH_PEER_LOST, cases[i].text);
        end_close(&dialler);
    }
}

/* ---- whole handshakes again ---- */

TEST_WITH(test_repeated_handshake, members_set_up, members_tear_down)
{
    static struct caught said;
    int signatures;

    said.len = 0;
    end_open(&dialler, ann, CHANNEL_DIALS);
    end_open(&listener, bob, CHANNEL_LISTENS);
    while (ends_carry_one_way(&dialler, &listener, 0, &said) +
               ends_carry_one_way(&listener, &dialler, 0, NULL) >
           0)
        ;
    assert_true(channel_ready(listener.channel));
    end_close(&listener);
    end_open(&listener, bob, CHANNEL_LISTENS);
    signatures = ends_signatures;
    (void)end_feed(&listener, said.bytes, said.len, 0);
    end_refused(&listener, HEARTH_PROTOCOL, forged);
    assert_null(channel_peer(listener.channel));
    assert_int_equal(ends_signatures,
                     signatures + 1); /* a repeated knock costs one: it is counted at the listener */
}

/* The listener's side of an earlier session does not fool a dialler. */
TEST_WITH(test_repeated_answer, members_set_up, members_tear_down)
{
    static struct caught said;

    said.len = 0;
    ends_join(&dialler, &listener, ann, bob);
    members_part();
    end_open(&dialler, ann, CHANNEL_DIALS);
    end_open(&listener, bob, CHANNEL_LISTENS);
    while (ends_carry_one_way(&dialler, &listener, 0, NULL) +
               ends_carry_one_way(&listener, &dialler, 0, &said) >
           0)
        ;
    end_close(&dialler);
    end_open(&dialler, ann, CHANNEL_DIALS);
    (void)end_feed(&dialler, said.bytes, said.len, 0);
    end_refused(&dialler, HEARTH_PROTOCOL, forged);
    assert_null(channel_peer(dialler.channel));
}

/* A dialler that hears itself. */
TEST_WITH(test_mirror, members_set_up, members_tear_down)
{
    uint8_t bytes[4096];
    size_t len;

    end_open(&dialler, ann, CHANNEL_DIALS);
    len = end_take(&dialler, bytes, sizeof bytes);
    (void)end_feed(&dialler, bytes, len, 0);
    end_refused(&dialler, HEARTH_PROTOCOL,
                "its TLS is wrong: An unexpected TLS handshake packet was received.");
}
