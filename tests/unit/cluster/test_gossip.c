/* SPDX-License-Identifier: Apache-2.0 */
/* PEERS: what is written is read; anything else is refused before a word of it is believed. */
#include "cluster/gossip.h"
#include "core/bytes.h"
#include "support/suite.h"

#define TOLD_MAX (GOSSIP_MAX * PEER_ADDRS_MAX)

/* What a message told. */
struct told {
    int count;
    struct identity ids[TOLD_MAX];
    struct sock_addr addrs[TOLD_MAX];
};

static void tell(void *arg, const struct identity *id, const struct sock_addr *addr)
{
    struct told *told = arg;
    assert_true(told->count < TOLD_MAX);
    told->ids[told->count] = *id;
    told->addrs[told->count++] = *addr;
}

static struct peer_info peer_info_of(int number, int addr_count, bool ipv6)
{
    struct peer_info f = {.id = {.instance = (uint64_t)number + 1}, .addr_count = addr_count};
    memset(f.id.node.bytes, number, sizeof f.id.node.bytes);
    for (int i = 0; i < addr_count; i++) {
        struct sock_addr addr;
        char text[SOCK_TEXT_MAX];
        snprintf(text, sizeof text, ipv6 ? "[fd00::%x:%x]:52416" : "10.1.%d.%d:52416", number, i + 1);
        assert_int_equal(sock_addr_parse(text, 0, &addr), HEARTH_OK);
        assert_true(sock_addr_to_net(&addr, &f.addrs[i]));
    }
    return f;
}

static void assert_told(const struct told *told, int place, int number, const char *addr)
{
    char text[SOCK_TEXT_MAX];
    assert_true(place < told->count);
    sock_addr_text(&told->addrs[place], text, sizeof text);
    assert_string_equal(text, addr);
    assert_int_equal(told->ids[place].instance, number + 1);
    assert_int_equal(told->ids[place].node.bytes[NODE_ID_LEN - 1], number);
}

TEST(what_is_written_is_read)
{
    static struct told told;
    struct peer_info a = peer_info_of(1, 2, false), b = peer_info_of(2, 0, false),
                     c = peer_info_of(3, 1, true);
    const struct peer_info *peer_set[] = {&a, &b, &c};
    uint8_t bytes[GOSSIP_LEN_MAX];
    size_t len = gossip_encode(peer_set, 3, bytes, sizeof bytes);
    assert_int_equal(len, 2 + 3 * 41 + 2 * 8 + 20);
    assert_int_equal(gossip_decode(bytes, len, tell, &told), HEARTH_OK);
    assert_int_equal(told.count, 3); /* who has no address tells nothing */
    assert_told(&told, 0, 1, "10.1.1.1:52416");
    assert_told(&told, 1, 1, "10.1.1.2:52416");
    assert_told(&told, 2, 3, "[fd00::3:1]:52416");
}

TEST(nobody_and_very_many)
{
    static struct told told;
    static struct peer_info many[GOSSIP_MAX + 1];
    static uint8_t bytes[GOSSIP_LEN_MAX];
    const struct peer_info *peer_set[GOSSIP_MAX + 1];
    assert_int_equal(gossip_encode(NULL, 0, bytes, sizeof bytes), 2);
    assert_int_equal(gossip_decode(bytes, 2, tell, &told), HEARTH_OK);
    assert_int_equal(told.count, 0);
    for (int i = 0; i <= GOSSIP_MAX; i++) {
        many[i] = peer_info_of(i, PEER_ADDRS_MAX, true);
        peer_set[i] = &many[i];
    }
    size_t len = gossip_encode(peer_set, GOSSIP_MAX + 1, bytes, sizeof bytes); /* one too many: left out */
    assert_in_range(len, 1, GOSSIP_LEN_MAX);
    assert_int_equal(gossip_encode(peer_set, GOSSIP_MAX + 1, bytes, len - 1), 0);
    assert_int_equal(gossip_encode(peer_set, GOSSIP_MAX + 1, bytes, len), len);
    assert_int_equal(gossip_decode(bytes, len, tell, &told), HEARTH_OK);
    assert_int_equal(told.count, TOLD_MAX);
    assert_told(&told, TOLD_MAX - 1, GOSSIP_MAX - 1, "[fd00::3f:8]:52416");
}

static void refused(const uint8_t *bytes, size_t len)
{
    static struct told told;
    told.count = 0;
    assert_int_equal(gossip_decode(bytes, len, tell, &told), HEARTH_PROTOCOL);
    assert_int_equal(told.count, 0);
}

TEST(malformed_messages_tell_nothing)
{
    struct peer_info a = peer_info_of(1, 2, false), b = peer_info_of(2, 1, true);
    const struct peer_info *peer_set[] = {&a, &b};
    uint8_t good[512], bad[512];
    size_t len = gossip_encode(peer_set, 2, good, sizeof good);
    good[len] = 0;
    for (size_t cut = 0; cut < len; cut++) /* anywhere, also behind a whole node */
        refused(good, cut);
    refused(good, len + 1);
    static const struct {
        const char *what;
        size_t at;
        uint8_t value;
    } changes[] = {
        {"one node more", 0, 3},       {"one node less", 0, 1},   {"very many", 1, 255},
        {"too many addresses", 42, 9}, {"no length", 43, 0},      {"a wrong length", 43, 8},
        {"too long", 43, 21},          {"another family", 44, 5}, {"IPv6, but short", 44, 6},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        memcpy(bad, good, len);
        bad[changes[i].at] = changes[i].value;
        refused(bad, len);
    }
    memcpy(bad, good, len);
    memset(bad + 2 + NODE_ID_LEN, 0, 8); /* no instance */
    refused(bad, len);
}
