/* SPDX-License-Identifier: Apache-2.0 */
/* Knock and proof byte for byte, as docs/wire.md has them. */
#include <gnutls/crypto.h>

#include "security/knock.h"
#include "security/proof.h"

#include "rogue.h"
#include "support/suite.h"

/* Of the secret 01 01 ...; by fuzz/make_proofs.py, which knows the page and not the code. */
#define NAMESPACE "680aad00a9b68f54693cdd5d0015cd00"
#define NONCE     "000102030005060708090a0b0c0d0e0f"
#define MAC       "fed221a756cd01f55d2985c3d9f54427"
#define KNOCK     NAMESPACE "." NONCE "." MAC ".hearth"
#define MINUTE    UINT32_C(0x03020100)

/* Likewise, for the listener with the id 02 02 ... at 192.0.2.1:29500. */
static const char *const knocks_of_kinds[KNOCK_KINDS] = {
    [KNOCK_OPEN] = KNOCK,
    [KNOCK_NODE] = NAMESPACE ".000102030105060708090a0b0c0d0e0f.0da794fbe0d1ced57c6f8577f2c032a6.hearth",
    [KNOCK_ADDRESS] = NAMESPACE ".000102030205060708090a0b0c0d0e0f.f0864753384972c4a704da37e375ca53.hearth",
};

static struct credentials *ann, *bob;

static int set_up(void **state)
{
    heap_init(&ends_heap, 0);
    ann = ends_node(&(struct node_options){.secret = 1, .instance = UINT64_C(0x0807060504030201)});
    bob = ends_node(&(struct node_options){.secret = 1, .instance = 0xb});
    return 0;
}

static int tear_down(void **state)
{
    rogues_close();
    credentials_close(ann);
    credentials_close(bob);
    return ends_heap.blocks == 0 ? 0 : -1;
}

static struct knock_target listener_at(uint8_t id, const char *addr)
{
    struct knock_target listener;

    memset(&listener, 0, sizeof listener);
    memset(&listener.node, id, sizeof listener.node);
    if (addr)
        assert_int_equal(sock_addr_parse(addr, 0, &listener.addr), HEARTH_OK);
    return listener;
}

static enum knock_verdict heard(const struct knock_target *by, uint32_t minute, const char *text)
{
    return knock_check(credentials_secret(ann), by, minute, text, strlen(text));
}

static void make(enum knock_kind kind, const struct knock_target *whom, uint32_t minute,
                 char text[static KNOCK_LEN + 1])
{
    static const uint8_t random[KNOCK_RANDOM_LEN] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct knock_target target = {.kind = kind, .node = whom->node, .addr = whom->addr};

    assert_int_equal(knock_make(credentials_secret(ann), &target, minute, random, text), HEARTH_OK);
}

TEST_WITH(test_knock, set_up, tear_down)
{
    static const struct {
        const char *text;
        enum knock_verdict verdict;
    } cases[] = {
        {KNOCK, KNOCK_WEAK},
        {NAMESPACE "." NONCE "." NONCE ".hearth", KNOCK_WRONG},
        {NONCE "." NONCE "." MAC ".hearth", KNOCK_FOREIGN},
        {NAMESPACE "." NONCE "." MAC ".HEARTH", KNOCK_NONE},
        {"G80aad00a9b68f54693cdd5d0015cd00." NONCE "." MAC ".hearth", KNOCK_NONE},
        {"680AAD00a9b68f54693cdd5d0015cd00." NONCE "." MAC ".hearth", KNOCK_NONE}, /* names are lower case */
        {NAMESPACE "-" NONCE "." MAC ".hearth", KNOCK_NONE},
        {NAMESPACE "." NONCE "-" MAC ".hearth", KNOCK_NONE},
        {NAMESPACE "." NONCE "." MAC ".heart", KNOCK_NONE},
        {NAMESPACE ".000102030305060708090a0b0c0d0e0f." MAC ".hearth", KNOCK_NONE}, /* no such kind */
        {KNOCK ".", KNOCK_NONE},
        {"", KNOCK_NONE},
    };
    struct knock_target listener = listener_at(2, "192.0.2.1:29500");
    char text[KNOCK_LEN + 1];

    for (int kind = 0; kind < KNOCK_KINDS; kind++) {
        make((enum knock_kind)kind, &listener, MINUTE, text);
        assert_string_equal(text, knocks_of_kinds[kind]);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(heard(&listener, MINUTE, cases[i].text), cases[i].verdict);
}

/* What was said to one listener is worth nothing at another, unless it was said to all. */
TEST_WITH(test_knock_elsewhere, set_up, tear_down)
{
    const struct {
        struct knock_target by;
        enum knock_verdict node, address;
    } cases[] = {
        {listener_at(2, "192.0.2.1:29500"), KNOCK_GOOD, KNOCK_GOOD},
        {listener_at(2, "198.51.100.9:1"), KNOCK_GOOD, KNOCK_WRONG}, /* behind a translator */
        {listener_at(3, "192.0.2.1:29500"), KNOCK_WRONG, KNOCK_GOOD},
        {listener_at(3, "192.0.2.1:29501"), KNOCK_WRONG, KNOCK_WRONG},
        {listener_at(3, "192.0.2.2:29500"), KNOCK_WRONG, KNOCK_WRONG},
        {listener_at(3, "[2001:db8::1]:29500"), KNOCK_WRONG, KNOCK_WRONG},
        {listener_at(3, "[::ffff:192.0.2.1]:29500"), KNOCK_WRONG, KNOCK_GOOD}, /* the same */
        {listener_at(3, "unix:/tmp/x"), KNOCK_WRONG, KNOCK_WRONG},
        {listener_at(3, NULL), KNOCK_WRONG, KNOCK_WRONG},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(heard(&cases[i].by, MINUTE, knocks_of_kinds[KNOCK_NODE]), cases[i].node);
        assert_int_equal(heard(&cases[i].by, MINUTE, knocks_of_kinds[KNOCK_ADDRESS]), cases[i].address);
        assert_int_equal(heard(&cases[i].by, MINUTE, knocks_of_kinds[KNOCK_OPEN]), KNOCK_WEAK);
    }
    struct knock_target nowhere = {.kind = KNOCK_ADDRESS};
    char text[KNOCK_LEN + 1];
    assert_int_equal(
        knock_make(credentials_secret(ann), &nowhere, MINUTE, (const uint8_t[KNOCK_RANDOM_LEN]){0}, text),
        HEARTH_SYSTEM);
}

/* Where one clock or the other is wrong, a knock is still right. */
TEST_WITH(test_knock_late, set_up, tear_down)
{
    struct knock_target listener = listener_at(2, "192.0.2.1:29500");
    static const uint32_t clocks[] = {0, 5, MINUTE, UINT32_MAX - 3};
    char text[KNOCK_LEN + 1];

    for (size_t i = 0; i < sizeof clocks / sizeof clocks[0]; i++)
        for (uint32_t late = 0; late < 3 * KNOCK_MINUTES_MAX; late++) {
            enum knock_verdict right = late <= KNOCK_MINUTES_MAX ? KNOCK_GOOD : KNOCK_WEAK;
            make(KNOCK_NODE, &listener, clocks[i], text);
            assert_int_equal(heard(&listener, clocks[i] + late, text), right);
            assert_int_equal(heard(&listener, clocks[i] - late, text), right);
        }
    make(KNOCK_ADDRESS, &listener, 0, text); /* a board without a clock */
    assert_int_equal(heard(&listener, MINUTE, text), KNOCK_WEAK);
}

/* Each is taken once, until so many others have come that it is forgotten. */
TEST_WITH(test_knocks, set_up, tear_down)
{
    static struct knocks knocks;
    struct knock_target listener = listener_at(2, NULL);
    char text[KNOCK_LEN + 1];

    for (uint32_t i = 0; i <= KNOCKS_MAX; i++) {
        make(KNOCK_NODE, &listener, i, text);
        assert_true(knocks_add(&knocks, text));
        assert_false(knocks_add(&knocks, text));
    }
    make(KNOCK_NODE, &listener, 1, text); /* the second, which is still known; the first is forgotten */
    assert_false(knocks_add(&knocks, text));
    make(KNOCK_NODE, &listener, 0, text);
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
                                      SECRET_DERIVED_LEN, text, sizeof text, mac),
                     0);
}

TEST_WITH(test_proof, set_up, tear_down)
{
    static const uint8_t head[] = {'H', 'P', 1, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, zeros[16];
    uint8_t proof[PROOF_LEN], mac[32];
    struct identity listener;
    struct rogue rogue;
    struct end dialler;

    end_open(&dialler, ann, CHANNEL_DIALS);
    rogue_open(&rogue, &(struct rogue_options){.listens = true});
    rogue_shake(&rogue, &dialler);
    rogue_carry(&rogue, &dialler);
    assert_int_equal(rogue_hear(&rogue, proof, PROOF_LEN), PROOF_LEN);
    listener = rogue_identity(&rogue, 1);
    expect_mac(rogue.session, &listener.node, mac);
    assert_memory_equal(proof, head, sizeof head);
    assert_memory_equal(proof + 16, zeros, sizeof zeros);
    assert_memory_equal(proof + 32, mac, sizeof mac);
    end_close(&dialler);
}

TEST_WITH(test_refusal, set_up, tear_down)
{
    uint8_t message[PROOF_LEN], expected[PROOF_LEN] = {'H', 'P', 1, 2, 3};

    proof_refuse(PROOF_UNLISTED, message);
    assert_memory_equal(message, expected, PROOF_LEN);
}
