/* SPDX-License-Identifier: Apache-2.0 */
/* Knock and proof byte for byte, as docs/wire.md has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <gnutls/crypto.h>

#include "security/knock.h"
#include "security/proof.h"

#include "rogue.h"

/* Of the secret 01 01 ...; by fuzz/make_proofs.py, which knows the page and not the code. */
#define NAMESPACE "680aad00a9b68f54693cdd5d0015cd00"
#define NONCE     "000102030405060708090a0b0c0d0e0f"
#define MAC       "3b955905eb744e6509454251d5e2a8d2"
#define KNOCK     NAMESPACE "." NONCE "." MAC ".hearth"

static struct credentials *ann, *bob;

static int set_up(void **state)
{
    (void)state;
    heap_init(&ends_heap, 0);
    ann = ends_node(&(struct node_wish){.secret = 1, .instance = UINT64_C(0x0807060504030201)});
    bob = ends_node(&(struct node_wish){.secret = 1, .instance = 0xb});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    credentials_close(ann);
    credentials_close(bob);
    return ends_heap.blocks == 0 ? 0 : -1;
}

static void test_knock(void **state)
{
    static const struct {
        const char *text;
        enum knock_verdict verdict;
    } cases[] = {
        {KNOCK, KNOCK_GOOD},
        {NAMESPACE "." NONCE "." NONCE ".hearth", KNOCK_WRONG},
        {NONCE "." NONCE "." MAC ".hearth", KNOCK_FOREIGN},
        {NAMESPACE "." NONCE "." MAC ".HEARTH", KNOCK_NONE},
        {"G80aad00a9b68f54693cdd5d0015cd00." NONCE "." MAC ".hearth", KNOCK_NONE},
        {"680AAD00a9b68f54693cdd5d0015cd00." NONCE "." MAC ".hearth", KNOCK_NONE}, /* names are lower case */
        {NAMESPACE "-" NONCE "." MAC ".hearth", KNOCK_NONE},
        {NAMESPACE "." NONCE "-" MAC ".hearth", KNOCK_NONE},
        {NAMESPACE "." NONCE "." MAC ".heart", KNOCK_NONE},
        {KNOCK ".", KNOCK_NONE},
        {"", KNOCK_NONE},
    };
    const struct secret *secret = credentials_secret(ann);
    uint8_t nonce[KNOCK_NONCE_LEN];
    char text[KNOCK_LEN + 1];

    (void)state;
    for (uint8_t i = 0; i < sizeof(nonce); i++)
        nonce[i] = i;
    assert_int_equal(knock_make(secret, nonce, text), HEARTH_OK);
    assert_string_equal(text, KNOCK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(knock_check(secret, cases[i].text, strlen(cases[i].text)), cases[i].verdict);
}

/* Each is taken once, until so many others have come that it is forgotten. */
static void test_knocks(void **state)
{
    static struct knocks knocks;
    uint8_t nonce[KNOCK_NONCE_LEN] = {0};
    char text[KNOCK_LEN + 1];

    (void)state;
    for (size_t i = 0; i <= KNOCKS_MAX; i++) {
        nonce[0] = (uint8_t)i;
        nonce[15] = (uint8_t)(i >> 8);
        assert_int_equal(knock_make(credentials_secret(ann), nonce, text), HEARTH_OK);
        assert_true(knocks_add(&knocks, text));
        assert_false(knocks_add(&knocks, text));
    }
    nonce[0] = 1;
    nonce[15] = 0; /* the second, which is still known; the first is forgotten */
    assert_int_equal(knock_make(credentials_secret(ann), nonce, text), HEARTH_OK);
    assert_false(knocks_add(&knocks, text));
    nonce[0] = 0;
    assert_int_equal(knock_make(credentials_secret(ann), nonce, text), HEARTH_OK);
    assert_true(knocks_add(&knocks, text));
}

/* What the mac of a dialler's proof is over, put together by hand. */
static void expect_mac(gnutls_session_t session, const struct node_id *listener, uint8_t mac[32])
{
    static const uint8_t instances[2][8] = {{1, 2, 3, 4, 5, 6, 7, 8}, {0}};
    uint8_t text[14 + 1 + 32 + 40 + 40];
    static const char label[] = "EXPORTER-hearth-proof";

    memcpy(text, "hearth proof 1", 14);
    text[14] = 1;
    assert_int_equal(gnutls_prf_rfc5705(session, strlen(label), label, 0, NULL, 32, (char *)text + 15), 0);
    memcpy(text + 47, credentials_self(ann)->node.bytes, 32);
    memcpy(text + 79, instances[0], 8);
    memcpy(text + 87, listener->bytes, 32);
    memcpy(text + 119, instances[1], 8);
    assert_int_equal(gnutls_hmac_fast(GNUTLS_MAC_SHA256, secret_key(credentials_secret(ann), SECRET_DIALLER),
                                      SECRET_DERIVED_LEN, text, sizeof(text), mac),
                     0);
}

static void test_proof(void **state)
{
    static const uint8_t head[] = {'H', 'P', 1, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, zeros[16];
    uint8_t proof[PROOF_LEN], mac[32];
    struct identity listener;
    struct rogue rogue;
    struct end dialler;

    (void)state;
    end_open(&dialler, ann, CHANNEL_DIALS);
    rogue_open(&rogue, &(struct rogue_wish){.listens = true});
    rogue_shake(&rogue, &dialler);
    rogue_carry(&rogue, &dialler);
    assert_int_equal(rogue_hear(&rogue, proof, PROOF_LEN), PROOF_LEN);
    listener = rogue_identity(&rogue, 1);
    expect_mac(rogue.session, &listener.node, mac);
    assert_memory_equal(proof, head, sizeof(head));
    assert_memory_equal(proof + 16, zeros, sizeof(zeros));
    assert_memory_equal(proof + 32, mac, sizeof(mac));
    rogue_close(&rogue);
    end_close(&dialler);
}

static void test_refusal(void **state)
{
    uint8_t message[PROOF_LEN], expected[PROOF_LEN] = {'H', 'P', 1, 2, 3};

    (void)state;
    proof_refuse(PROOF_UNLISTED, message);
    assert_memory_equal(message, expected, PROOF_LEN);
}

#define with_members(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_members(test_knock),
        with_members(test_knocks),
        with_members(test_proof),
        with_members(test_refusal),
    };
    return cmocka_run_group_tests_name("proof", tests, NULL, NULL);
}
