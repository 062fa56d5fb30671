/* SPDX-License-Identifier: Apache-2.0 */
/* Censuses: their bytes are for ever, wrong ones are refused, any two quorums have a member in common. */
#include "people.h"
#include "support/golden.h"
#include "support/suite.h"

#define ROOM 4096

static size_t encode(const struct view *c, uint8_t *bytes, size_t size)
{
    struct writer w = writer_of(bytes, size);
    view_put(&w, c);
    assert_false(w.bad);
    return (size_t)(w.at - bytes);
}

static bool decode(const uint8_t *bytes, size_t len, struct view *c)
{
    struct reader r = reader_of(bytes, len);
    bool good = view_get(&r, c);
    assert_int_equal(good, !r.bad);
    return good && reader_left(&r) == 0;
}

TEST(golden_bytes_decode_and_encode_for_ever)
{
    struct golden items[GOLDEN_MAX];
    struct view want = people(2, 1), got;
    uint8_t bytes[ROOM];

    assert_int_equal(golden_read("view_v1.hex", items), 1);
    assert_string_equal(items[0].name, "view");
    size_t len = encode(&want, bytes, sizeof bytes);
    assert_int_equal(len, items[0].len);
    assert_memory_equal(bytes, items[0].bytes, len);
    assert_true(decode(items[0].bytes, items[0].len, &got));
    assert_int_equal(got.size, 2);
    assert_int_equal(got.leader, 1);
    assert_memory_equal(&got.members, &want.members, 2 * sizeof got.members[0]);
}

TEST(the_largest_view_fits)
{
    static struct view big, again;
    static uint8_t bytes[VIEW_LEN_MAX];
    big = people(VIEW_MEMBERS_MAX, 63);
    for (int i = 0; i < big.size; i++) {
        struct peer_info *f = &big.members[i];
        memset(f->name, 'n', PEER_NAME_MAX - 1);
        memset(f->platform, 's', PEER_PLATFORM_MAX - 1);
        f->addr_count = PEER_ADDRS_MAX;
        for (int a = 0; a < PEER_ADDRS_MAX; a++)
            f->addrs[a] = (struct net_addr){.family = 6};
    }
    assert_true(decode(bytes, encode(&big, bytes, sizeof bytes), &again));
    assert_memory_equal(&again.members, &big.members, sizeof big.members);
}

TEST(every_cut_is_refused)
{
    struct view c = people(3, 0), got;
    uint8_t bytes[ROOM];
    size_t len = encode(&c, bytes, sizeof bytes);
    for (size_t cut = 0; cut < len; cut++)
        assert_false(decode(bytes, cut, &got));
}

/* One wrong field each. */
static void spoil(struct view *c, int what)
{
    switch (what) {
    case 0:
        c->instance = 0;
        break;
    case 1:
        c->epoch = 0;
        break;
    case 2:
        c->term = 0;
        break;
    case 3:
        c->leader = 3;
        break;
    case 4:
        c->members[2] = c->members[0];
        break;
    case 5:
        c->members[1].id.instance = 0;
        break;
    case 6:
        c->epoch = UINT64_MAX;
        break;
    case 7:
        c->term = UINT64_MAX;
        break;
    default:
        c->size = 0;
        break;
    }
}

TEST(every_wrong_field_is_refused)
{
    uint8_t bytes[ROOM];
    struct view got;
    for (int what = 0; what <= 8; what++) {
        struct view c = people(3, 1);
        spoil(&c, what);
        if (decode(bytes, encode(&c, bytes, sizeof bytes), &got))
            fail_msg("wrong field %d was taken", what);
    }
}

TEST(too_many_members_or_addresses_are_refused)
{
    struct view c = people(1, 0), got;
    uint8_t bytes[ROOM];
    size_t len = encode(&c, bytes, sizeof bytes);
    bytes[26] = VIEW_MEMBERS_MAX + 1;
    assert_false(decode(bytes, len, &got));
    bytes[26] = 1;
    assert_true(decode(bytes, len, &got));
    size_t addr_count = len - 1 - 7 - 1 - 19 - 1;
    assert_int_equal(bytes[addr_count], 2);
    bytes[addr_count] = PEER_ADDRS_MAX + 1;
    assert_false(decode(bytes, len, &got));
}

static bool set_quorum(const struct view *c, unsigned set)
{
    bool present[VIEW_MEMBERS_MAX];
    for (int i = 0; i < c->size; i++)
        present[i] = set >> i & 1;
    return view_quorum(c, present);
}

TEST(any_two_quorums_meet)
{
    for (int size = 1; size <= 6; size++) {
        for (int leader = 0; leader < size; leader++) {
            struct view c = people(size, leader);
            unsigned all = (1u << size) - 1;
            for (unsigned set = 0; set <= all; set++)
                assert_false(set_quorum(&c, set) && set_quorum(&c, all & ~set));
            assert_true(set_quorum(&c, all));
            assert_int_equal(set_quorum(&c, 1u << leader), size <= 2); /* two machines: where the leader is */
        }
    }
}

/* Whoever is a guest: a quorum of the others is one, with guests or without them. */
TEST(guests_are_not_counted)
{
    for (unsigned guests = 0; guests < 1u << 5; guests++) {
        for (int leader = 0; leader < 5; leader++) {
            struct view c = people(5, leader);
            unsigned all = (1u << 5) - 1, voters = all & ~guests;
            int size = __builtin_popcount(voters);
            for (int i = 0; i < 5; i++) {
                c.members[i].features = guests >> i & 1 ? PEER_GUEST : 0;
                assert_int_equal(view_votes(&c, i), voters >> i & 1);
            }
            for (unsigned set = 0; set <= all; set++) {
                int count = __builtin_popcount(set & voters);
                bool half = 2 * count == size && (set & voters) >> leader & 1;
                assert_int_equal(set_quorum(&c, set), 2 * count > size || half);
                assert_false(set_quorum(&c, set) && set_quorum(&c, all & ~set));
            }
        }
    }
}

TEST(identities_have_one_order_and_a_short_text)
{
    struct identity a = person(1).id, b = person(2).id, c = a;
    char text[32], again[32];
    c.instance++;
    assert_true(identity_equal(&a, &a) && !identity_equal(&a, &b) && !identity_equal(&a, &c));
    assert_true(identity_compare(&a, &b) < 0 && identity_compare(&b, &a) > 0);
    assert_true(identity_compare(&a, &c) < 0 && identity_compare(&c, &a) > 0);
    assert_int_equal(identity_compare(&a, &a), 0);
    identity_text(&a, text, sizeof text);
    identity_text(&c, again, sizeof again);
    assert_string_not_equal(text, again);
    assert_int_equal(strlen(text), 19);
    struct view three = people(3, 0);
    assert_int_equal(view_find(&three, &b), 2);
    assert_int_equal(view_find(&three, &c), -1);
}
