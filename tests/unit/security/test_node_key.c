/* SPDX-License-Identifier: Apache-2.0 */
/* Node keys in memory: ids and signatures. test_node_key_file.c has the file. */
#include <nettle/eddsa.h>

#include "security/node_key.h"
#include "support/suite.h"

/* The public key of the second example in RFC 8032, and its digest. */
static const uint8_t public_key[PUBLIC_KEY_LEN] = {
    0x3d, 0x40, 0x17, 0xc3, 0xe8, 0x43, 0x89, 0x5a, 0x92, 0xb7, 0x0a, 0xa7, 0x4d, 0x1b, 0x7e, 0xbc,
    0x9c, 0x98, 0x2c, 0xcf, 0x2e, 0xc4, 0x96, 0x8c, 0xc0, 0xcd, 0x55, 0xf1, 0x2a, 0xf4, 0x66, 0x0c};
#define ID "b4f403514003c9ce67e0c3552e21ebfde117f88a550a03f1a387bfb495c0a35d"

TEST(ids_are_digests_with_two_spellings)
{
    struct node_id id, again;
    char text[NODE_ID_TEXT], brief[NODE_ID_SHORT];

    node_id_of(public_key, &id);
    node_id_text(&id, text);
    assert_string_equal(text, ID);
    node_id_short(&id, brief);
    assert_string_equal(brief, "pkt0-6ma0-0f4w");
    assert_int_equal(node_id_parse(text, &again), HEARTH_OK);
    assert_true(node_id_equal(&id, &again));
    again.bytes[NODE_ID_LEN - 1] ^= 1;
    assert_false(node_id_equal(&id, &again));
}

TEST(other_texts_are_no_ids)
{
    static const char *const bad[] = {"", "pkt0-6ma0-0f4w", (ID "0"), (ID " "), ("x4" ID)};
    char text[NODE_ID_TEXT] = ID;
    struct node_id id = {{7}};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(node_id_parse(bad[i], &id), HEARTH_INVALID);
    for (size_t i = 0; i < NODE_ID_TEXT - 1; i++) {
        char was = text[i];
        text[i] = 'g';
        assert_int_equal(node_id_parse(text, &id), HEARTH_INVALID);
        text[i] = was;
    }
    assert_int_equal(id.bytes[0], 7); /* set only on success */
}

TEST(fresh_keys_differ_and_sign)
{
    struct node_key *a = NULL, *b = NULL;
    struct error error;
    struct node_id id;
    uint8_t signature[SIGNATURE_LEN];
    const uint8_t message[] = "the quick brown fox";

    assert_int_equal(node_key_fresh(&a, &error), HEARTH_OK);
    assert_int_equal(node_key_fresh(&b, &error), HEARTH_OK);
    assert_memory_not_equal(node_key_public(a), node_key_public(b), PUBLIC_KEY_LEN);
    node_id_of(node_key_public(a), &id);
    assert_true(node_id_equal(&id, node_key_id(a)));
    assert_false(node_id_equal(&id, node_key_id(b)));

    node_key_sign(a, message, sizeof message, signature);
    assert_true(ed25519_sha512_verify(node_key_public(a), sizeof message, message, signature));
    assert_false(ed25519_sha512_verify(node_key_public(b), sizeof message, message, signature));
    assert_false(ed25519_sha512_verify(node_key_public(a), sizeof message - 1, message, signature));
    node_key_close(a);
    node_key_close(b);
    node_key_close(NULL);
}

TEST(a_copy_signs_alike_and_lives_longer)
{
    struct node_key *key = NULL, *copy = NULL;
    struct error error;
    struct node_id id;
    uint8_t first[SIGNATURE_LEN], second[SIGNATURE_LEN];

    assert_int_equal(node_key_fresh(&key, &error), HEARTH_OK);
    assert_int_equal(node_key_copy(key, &copy, &error), HEARTH_OK);
    id = *node_key_id(key);
    node_key_sign(key, "text", 4, first);
    node_key_close(key);
    assert_true(node_id_equal(node_key_id(copy), &id));
    node_key_sign(copy, "text", 4, second);
    assert_memory_equal(first, second, SIGNATURE_LEN);
    node_key_close(copy);
}
