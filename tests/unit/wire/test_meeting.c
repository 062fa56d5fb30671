/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the rendezvous: golden bytes decode for ever, damage and wrong fields are refused. */
#include "core/bytes.h"
#include "support/golden.h"
#include "support/suite.h"
#include "wire/meeting.h"
#include "wire/record.h"

#define WHOLE_MAX 1024
#define COUNTING  0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15

static const struct peer_info member_full = {
    .id = {{{COUNTING, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}},
           UINT64_C(0x1122334455667788)},
    .host_id = 0xabcdef,
    .features = PEER_SHM,
    .process = 4711,
    .name = "oak",
    .addr_count = 2,
    .addrs = {{4, 0xccc0, 0, {10, 0, 0, 7}}, {6, 0xccc0, 0, {0xfd, [15] = 1}}},
};
static const struct peer_info member_bare = {.id.instance = 2};

static struct meeting_register register_full(void)
{
    return (struct meeting_register){
        1,          1, 3, 8, 54000, UINT64_C(0x5e771465), {COUNTING}, "train", "chunk_bytes=262144 algo=auto",
        member_full};
}

static uint8_t bytes[WHOLE_MAX];

/* Puts the message into `bytes` that tests/golden/message_v2.hex holds under this name. */
static size_t message(const char *name)
{
    uint8_t *payload = bytes + MESSAGE_HEADER_LEN;
    size_t room = sizeof bytes - MESSAGE_HEADER_LEN, len = 0;
    uint8_t kind = 0;

    if (strcmp(name, "register") == 0) {
        struct meeting_register r = register_full();
        kind = MEETING_REGISTER;
        len = meeting_register_encode(&r, payload, room);
    } else if (strcmp(name, "welcome") == 0) {
        kind = MEETING_WELCOME;
        len = meeting_welcome_encode(&(struct meeting_welcome){2, 8, false, {0}}, payload, room);
    } else if (strcmp(name, "welcome_secret") == 0) {
        struct meeting_welcome w = {2, 8, true, {0}};
        memcpy(w.secret, member_full.id.node.bytes, sizeof w.secret);
        kind = MEETING_WELCOME;
        len = meeting_welcome_encode(&w, payload, room);
    } else if (strcmp(name, "roster") == 0) {
        kind = MEETING_ROSTER;
        len = meeting_place_encode(&(struct meeting_place){0xc1, 1, 2}, payload, room);
        struct writer w = writer_of(payload + len, room - len);
        peer_put(&w, &member_bare);
        peer_put(&w, &member_full);
        assert_false(w.bad);
        len = (size_t)(w.at - payload);
    } else if (strcmp(name, "ready") == 0 || strcmp(name, "go") == 0) {
        kind = name[0] == 'r' ? MEETING_READY : MEETING_GO;
        len = meeting_cluster_encode(0xc1, payload, room);
    } else {
        struct error e;
        assert_string_equal(name, "refuse");
        error_set(&e, HEARTH_TIMEOUT, 1, "missing: rank 1");
        kind = MEETING_REFUSE;
        len = error_encode(&e, payload, room);
    }
    message_seal(kind, payload, len, NULL, 0, bytes);
    return MESSAGE_HEADER_LEN + len;
}

static const struct message_kinds *heard_by(uint8_t kind)
{
    return kind == MEETING_REGISTER || kind == MEETING_READY ? &meeting_to_rendezvous : &meeting_to_member;
}

/* HEARTH_OK if the payload of a whole message is accepted. */
static int payload_decode(uint8_t kind, const uint8_t *payload, size_t len)
{
    struct meeting_register r;
    struct meeting_welcome w;
    struct meeting_place place;
    struct peer_info members[2];
    struct error e;
    uint64_t cluster;

    switch (kind) {
    case MEETING_REGISTER:
        return meeting_register_decode(&r, payload, len);
    case MEETING_WELCOME:
        return meeting_welcome_decode(&w, payload, len);
    case MEETING_ROSTER:
        return meeting_roster_decode(&place, members, 2, payload, len);
    case MEETING_REFUSE:
        return error_decode(&e, payload, len);
    default:
        return meeting_cluster_decode(&cluster, payload, len);
    }
}

/* The first six in the order of their kinds. */
static const char *const names[] = {"register", "welcome", "roster",        "ready",
                                    "go",       "refuse",  "welcome_secret"};

#define NAMES (sizeof(names) / sizeof(names[0]))

TEST(golden_messages_decode_and_encode_for_ever)
{
    struct golden items[GOLDEN_MAX];
    struct message_header h;
    const char *what;

    assert_int_equal(golden_read("message_v2.hex", items), NAMES);
    for (size_t i = 0; i < NAMES; i++) {
        assert_string_equal(items[i].name, names[i]);
        assert_int_equal(message_header_decode(&h, items[i].bytes, heard_by(items[i].bytes[3]), &what),
                         HEARTH_OK);
        assert_int_equal(h.len, items[i].len - MESSAGE_HEADER_LEN);
        assert_true(message_intact(&h, items[i].bytes + MESSAGE_HEADER_LEN));
        assert_int_equal(payload_decode(h.kind, items[i].bytes + MESSAGE_HEADER_LEN, h.len), HEARTH_OK);
        assert_int_equal(message(names[i]), items[i].len);
        assert_memory_equal(bytes, items[i].bytes, items[i].len);
    }
}

/* What was decoded is encoded again: that these bytes hold every field, the golden ones show. */
TEST(fields_come_back)
{
    uint8_t again[WHOLE_MAX];
    const uint8_t *payload = bytes + MESSAGE_HEADER_LEN;
    struct meeting_register r;
    struct meeting_place place;
    struct peer_info members[2];

    size_t len = message("register") - MESSAGE_HEADER_LEN;
    assert_int_equal(meeting_register_decode(&r, payload, len), HEARTH_OK);
    assert_int_equal(meeting_register_encode(&r, again, sizeof again), len);
    assert_memory_equal(again, payload, len);

    struct meeting_welcome w = {0};
    len = message("welcome_secret") - MESSAGE_HEADER_LEN;
    assert_int_equal(len, MEETING_WELCOME_MAX);
    assert_int_equal(meeting_welcome_decode(&w, payload, len), HEARTH_OK);
    assert_true(w.has_secret);
    assert_memory_equal(w.secret, member_full.id.node.bytes, sizeof w.secret);
    len = message("welcome") - MESSAGE_HEADER_LEN;
    assert_int_equal(meeting_welcome_decode(&w, payload, len), HEARTH_OK);
    assert_false(w.has_secret);

    len = message("roster") - MESSAGE_HEADER_LEN;
    assert_int_equal(meeting_roster_decode(&place, members, 2, payload, len), HEARTH_OK);
    struct writer w_again = writer_of(again, sizeof again);
    w_again.at += meeting_place_encode(&place, again, sizeof again);
    peer_put(&w_again, &members[0]);
    peer_put(&w_again, &members[1]);
    assert_int_equal(writer_len(&w_again), len);
    assert_memory_equal(again, payload, len);
    assert_int_equal(meeting_roster_decode(&place, members, 1, payload, len), HEARTH_PROTOCOL);
}

/* No payload is accepted with its end missing; only a registration may be longer than this version knows. A
 * welcome may have a secret behind it, whole or not at all. */
TEST(lengths_are_exact)
{
    for (uint8_t kind = MEETING_REGISTER; kind < MEETING_REFUSE; kind++) {
        size_t len = message(names[kind - MEETING_REGISTER]) - MESSAGE_HEADER_LEN;
        for (size_t cut = 0; cut <= len + 33; cut++) {
            uint8_t *exact = calloc(1, cut ? cut : 1); /* on the heap, where sanitizers watch its end */
            assert_non_null(exact);
            memcpy(exact, bytes + MESSAGE_HEADER_LEN, cut < len ? cut : len);
            bool good = cut == len || (kind == MEETING_WELCOME && cut == MEETING_WELCOME_MAX) ||
                        (kind == MEETING_REGISTER && cut > len);
            assert_int_equal(payload_decode(kind, exact, cut), good ? HEARTH_OK : HEARTH_PROTOCOL);
            free(exact);
        }
    }
}

TEST(small_targets_are_noticed)
{
    struct meeting_register r = register_full();
    size_t len = meeting_register_encode(&r, bytes, sizeof bytes);

    assert_true(len > 0);
    for (size_t size = 0; size < len; size++) {
        uint8_t *exact = malloc(size ? size : 1);
        assert_non_null(exact);
        assert_int_equal(meeting_register_encode(&r, exact, size), 0);
        free(exact);
    }
}

/* Nobody sends a rendezvous what it says itself, and small messages stay small. */
TEST(each_side_takes_its_kinds)
{
    static const struct {
        uint8_t kind;
        uint32_t to_rendezvous, to_member; /* longest that is taken; 0: none */
    } all[] = {
        {MEETING_REGISTER - 1, 0, 0},
        {MEETING_REGISTER, MEETING_SMALL_MAX, 0},
        {MEETING_WELCOME, 0, MEETING_SMALL_MAX},
        {MEETING_ROSTER, 0, MEETING_ROSTER_MAX},
        {MEETING_READY, MEETING_SMALL_MAX, 0},
        {MEETING_GO, 0, MEETING_SMALL_MAX},
        {MEETING_REFUSE, MEETING_SMALL_MAX, MEETING_SMALL_MAX},
        {MEETING_REFUSE + 1, 0, 0},
    };
    struct message_header h;
    const char *what;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int side = 0; side < 2; side++) {
            const struct message_kinds *kinds = side ? &meeting_to_member : &meeting_to_rendezvous;
            uint32_t max = side ? all[i].to_member : all[i].to_rendezvous;
            message_seal(all[i].kind, NULL, 0, NULL, 0, bytes);
            store_u32(bytes + 4, max);
            assert_int_equal(message_header_decode(&h, bytes, kinds, &what),
                             max > 0 ? HEARTH_OK : HEARTH_PROTOCOL);
            store_u32(bytes + 4, max + 1);
            assert_int_equal(message_header_decode(&h, bytes, kinds, &what), HEARTH_PROTOCOL);
        }
}

/* Offsets in the payload of the golden registration, and values that may not stand there. */
TEST(wrong_registrations_are_refused)
{
    static const struct {
        size_t at;
        uint32_t value;
    } bad[] = {
        {0, 0x00010000},  /* version_min 0 */
        {0, 0x00010002},  /* version_min above version_max */
        {4, 8},           /* rank = size */
        {4, 0xfffffffe},  /* rank -2 */
        {8, 0},           /* size 0 */
        {8, 1025},        /* too many */
        {40, 0x6572747f}, /* job too long for its bytes */
        {41, 0x0a617274}, /* not printable */
    };
    struct meeting_register r;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        size_t len = message("register") - MESSAGE_HEADER_LEN;
        store_u32(bytes + MESSAGE_HEADER_LEN + bad[i].at, bad[i].value);
        assert_int_equal(meeting_register_decode(&r, bytes + MESSAGE_HEADER_LEN, len), HEARTH_PROTOCOL);
    }
}

/* The largest that may be said fits what a message may carry. */
TEST(the_largest_fit)
{
    static struct meeting_register r;
    static uint8_t small[MEETING_SMALL_MAX];
    uint8_t peer[PEER_LEN_MAX];
    struct writer w = writer_of(peer, sizeof peer);

    memset(r.job, 'j', sizeof r.job - 1);
    memset(r.settings_text, 's', sizeof r.settings_text - 1);
    r.member.id.instance = 1;
    memset(r.member.name, 'n', sizeof r.member.name - 1);
    memset(r.member.platform, 'p', sizeof r.member.platform - 1);
    r.member.addr_count = PEER_ADDRS_MAX;
    assert_true(meeting_register_encode(&r, small, sizeof small) > 0);
    peer_put(&w, &r.member);
    assert_false(w.bad);
    assert_true(MEETING_PLACE_LEN + MEETING_MEMBERS_MAX * (size_t)(w.at - peer) <= MEETING_ROSTER_MAX);
}
