/* SPDX-License-Identifier: Apache-2.0 */
/* Peers as bytes: every field comes back, every wrong one is refused, whatever is wrong with it. */
#include "support/suite.h"
#include "wire/peer_codec.h"

static const struct peer_info oak = {
    .id = {{{1, 2, 3, [31] = 32}}, UINT64_C(0x1122334455667788)},
    .machine = 0x77,
    .host_id = 0xabcdef,
    .features = PEER_BENCH | PEER_QUIC,
    .process = 4711,
    .memory_mib = 16000,
    .cores = 8,
    .cpu = 9,
    .name = "oak",
    .platform = "Linux 6.1 x86_64",
    .addr_count = 2,
    .addrs = {{4, 52416, 0, {10, 0, 0, 7}}, {6, 52416, 0, {0xfd, [15] = 1}}},
};

static uint8_t bytes[PEER_LEN_MAX + 8];
static struct peer_info got;

static size_t encode(const struct peer_info *peer, uint8_t *target, size_t size)
{
    struct writer w = writer_of(target, size);

    peer_put(&w, peer);
    return writer_len(&w);
}

/* From a copy on the heap, where sanitizers watch its end. */
static bool decode(size_t len)
{
    uint8_t *exact = malloc(len ? len : 1);

    assert_non_null(exact);
    memcpy(exact, bytes, len);
    struct reader r = reader_of(exact, len);
    bool good = peer_get(&r, &got) && reader_left(&r) == 0;
    assert_true(good || r.bad || reader_left(&r) > 0);
    free(exact);
    return good;
}

/* By their bytes, which hold all but scopes: the layout is checked where fields come back. */
static void assert_peers_equal(const struct peer_info *a, const struct peer_info *b)
{
    uint8_t one[PEER_LEN_MAX], other[PEER_LEN_MAX];
    size_t len = encode(a, one, sizeof one);

    assert_int_equal(encode(b, other, sizeof other), len);
    assert_memory_equal(one, other, len);
}

TEST(fields_come_back)
{
    static const struct peer_info bare = {.id.instance = 2};

    size_t len = encode(&oak, bytes, PEER_LEN_MAX);
    assert_int_equal(len, 2 + 72 + 4 + 17 + 1 + 8 + 20);
    assert_true(decode(len));
    assert_peers_equal(&got, &oak);
    len = encode(&bare, bytes, PEER_LEN_MAX);
    assert_int_equal(len, 2 + 72 + 1 + 1 + 1);
    assert_true(decode(len));
    assert_peers_equal(&got, &bare);
}

TEST(the_largest_fits_and_less_room_is_noticed)
{
    struct peer_info big = oak;

    memset(big.name, 'n', PEER_NAME_MAX - 1);
    memset(big.platform, 'p', PEER_PLATFORM_MAX - 1);
    big.addr_count = PEER_ADDRS_MAX;
    for (int i = 0; i < PEER_ADDRS_MAX; i++)
        big.addrs[i] = oak.addrs[1];
    size_t len = encode(&big, bytes, PEER_LEN_MAX);
    assert_int_equal(len, 331);
    assert_true(decode(len));
    assert_peers_equal(&got, &big);
    for (size_t size = 0; size < len; size++)
        assert_int_equal(encode(&big, bytes, size), 0);
}

/* Where an interface is does not travel, and neither does what a terminal would obey. */
TEST(scopes_and_control_characters_stay_here)
{
    struct peer_info peer = oak;

    peer.addrs[1].scope = 3;
    memcpy(peer.name, "a\x1b\xc3z", 4);
    assert_true(decode(encode(&peer, bytes, PEER_LEN_MAX)));
    assert_int_equal(got.addrs[1].scope, 0);
    assert_string_equal(got.name, "a??z");
}

TEST(every_cut_is_refused)
{
    size_t len = encode(&oak, bytes, PEER_LEN_MAX);

    for (size_t cut = 0; cut < len; cut++) {
        assert_false(decode(cut)); /* its end is missing */
        store_u16(bytes, (uint16_t)(cut - 2));
        assert_false(cut >= 2 && decode(cut)); /* it says that it has none */
        store_u16(bytes, (uint16_t)(len - 2));
    }
}

TEST(later_fields_are_skipped)
{
    struct writer w = writer_of(bytes, sizeof bytes);

    peer_put(&w, &oak);
    put_u64(&w, 0x0102030405060708);
    store_u16(bytes, (uint16_t)(load_u16(bytes) + 8));
    assert_true(decode(writer_len(&w)));
    assert_peers_equal(&got, &oak);
    memset(bytes, 1, sizeof bytes);
    store_u16(bytes, PEER_LEN_MAX - 1);
    assert_false(decode(sizeof bytes));
}

/* One byte of a good peer is another. */
TEST(wrong_fields_are_refused)
{
    static const struct {
        size_t at;
        uint8_t value;
    } bad[] = {
        {74, 64},  {74, 255},          /* a long name */
        {75, 31},  {75, 127},          /* a name that is not printable */
        {78, 32},                      /* a long platform */
        {79, 200},                     /* one that is not printable */
        {95, 9},   {95, 3},   {95, 1}, /* more addresses than may be, than there are */
        {96, 8},   {96, 0},            /* an address that is too long, empty */
        {97, 6},   {97, 5},            /* another family */
        {105, 4},  {104, 7},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        size_t len = encode(&oak, bytes, PEER_LEN_MAX);
        bool less = bad[i].at == 95 && bad[i].value == 1; /* the rest is a later version's */
        bytes[bad[i].at] = bad[i].value;
        assert_int_equal(decode(len), less);
    }
    struct peer_info nobody = oak;
    nobody.id.instance = 0;
    assert_false(decode(encode(&nobody, bytes, PEER_LEN_MAX)));
}
