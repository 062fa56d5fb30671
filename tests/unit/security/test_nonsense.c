/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that are no handshake, or none of a sane peer: refused at the first sign of it, in bounded memory. */
#include "core/prng.h"
#include "security/records.h"

#include "members.h"
#include "support/suite.h"

#define HEADER   RECORD_HEADER_LEN
#define HELLO    0x01
#define ANSWER   0x02
#define MEMORY   8192u /* all that one stranger may hold of our heap */
#define SOME_LEN 100

static const char no_tls[] = "it speaks no TLS (are both ends plain, or neither?)";
static const char no_record[] = "it sends what is no TLS record";
static const char forged[] = "it sends a record that is forged, damaged or repeated";

/* The bytes to a new listener and to a new dialler: how many were read. */
static size_t both_refuse(const void *bytes, size_t len, int status, const char *text)
{
    size_t read;

    end_open(&listener, bob, CHANNEL_LISTENS);
    end_open(&dialler, ann, CHANNEL_DIALS);
    read = end_feed(&listener, bytes, len, 0);
    end_refused(&listener, status, text);
    assert_int_equal(end_feed(&dialler, bytes, len, 0), read);
    end_refused(&dialler, status, text);
    assert_int_equal(ends_signatures, 0);
    members_part();
    return read;
}

TEST_WITH(test_no_tls, members_set_up, members_tear_down)
{
    static const char *const others[] = {
        "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HG\x01\x01\x01\x01\x01", /* a greeting of a plain member */
        "HM\x01\x01\x01\x01\x01",
        "HF\x01\x01\x01\x01\x01",
        "\x14\x03\x03\x01\x01\x01", /* change_cipher_spec */
        "\x17\x03\x03\x01\x01\x01", /* data before any handshake */
        "\x18\x03\x03\x01\x01\x01", /* heartbeat */
        "\x16\x02\x01\x01\x01\x01",
        "\x16\x03\x05\x01\x01\x01",
        "\x80\x2e\x01\x03\x01\x01", /* SSL 2 */
    };
    static const uint8_t zeros[SOME_LEN], empty[] = {22, 3, 3, 0, 0};

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_equal(both_refuse(others[i], strlen(others[i]), HEARTH_PROTOCOL, no_tls), HEADER);
    assert_int_equal(both_refuse(zeros, sizeof zeros, HEARTH_PROTOCOL, no_tls), HEADER);
    assert_int_equal(both_refuse(empty, sizeof empty, HEARTH_PROTOCOL, no_tls), HEADER);
}

TEST_WITH(test_random_bytes, members_set_up, members_tear_down)
{
    uint8_t bytes[SOME_LEN];
    struct prng prng;

    prng_init(&prng, 3);
    for (int i = 0; i < 200; i++) {
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (uint8_t)prng_u64(&prng);
        bytes[0] |= 0x80;
        assert_int_equal(both_refuse(bytes, sizeof bytes, HEARTH_PROTOCOL, no_tls), HEADER);
    }
}

TEST_WITH(test_long_record, members_set_up, members_tear_down)
{
    static const uint8_t header[] = {22, 3, 1, 0x10, 0x01};

    assert_int_equal(both_refuse(header, sizeof header, HEARTH_PROTOCOL,
                                 "it sends a record of 4097 bytes before it is proven"),
                     HEADER);
}

/* A hello, or an answer to one, that never ends: in many records, or longer than it may be. */
static void endless(struct end *end, size_t record, uint32_t message_len, const char *text)
{
    bool listens = end == &listener;
    static uint8_t bytes[2 * CHANNEL_HANDSHAKE_MAX];
    size_t len = 0, read;
    uint64_t before;

    while (len + HEADER + record <= sizeof bytes) {
        uint8_t header[HEADER] = {22, 3, 1, (uint8_t)(record >> 8), (uint8_t)record};

        memcpy(bytes + len, header, HEADER);
        memset(bytes + len + HEADER, 0, record);
        len += HEADER + record;
    }
    for (size_t i = 0; i < 4; i++) { /* the message's type and length, over as many records as it takes */
        size_t at = i / record * (HEADER + record) + HEADER + i % record;
        const uint8_t head[4] = {listens ? HELLO : ANSWER, (uint8_t)(message_len >> 16),
                                 (uint8_t)(message_len >> 8), (uint8_t)message_len};
        bytes[at] = head[i];
    }
    before = ends_heap.bytes;
    ends_heap.bytes_peak = before;
    end_open(end, listens ? bob : ann, listens ? CHANNEL_LISTENS : CHANNEL_DIALS);
    read = end_feed(end, bytes, len, 1);
    end_refused(end, HEARTH_PROTOCOL, text);
    assert_true(read <= CHANNEL_HANDSHAKE_MAX + 1);
    assert_true(ends_heap.bytes_peak - before <= MEMORY);
    assert_int_equal(ends_signatures, 0);
    end_close(end);
}

TEST_WITH(test_endless_handshake, members_set_up, members_tear_down)
{
    endless(&listener, 1, 4000, "its hello is not in one record");
    endless(&listener, 4095, 4095, "its hello is not in one record");
    endless(&listener, 4096, 4097, "its hello is not in one record");
    endless(&dialler, 1000, 4097, "its TLS is wrong: The handshake data size is too large.");
    endless(&dialler, 1, 4000, "it sends more than 16384 bytes before it is proven");
    endless(&dialler, 1000, 0xffffff, "it sends more than 16384 bytes before it is proven");
}

/* Silence, a byte, half a record: what an idle stranger holds. */
TEST_WITH(test_half_open, members_set_up, members_tear_down)
{
    static const uint8_t header[] = {22, 3, 1, 0x10, 0x00};
    static uint8_t body[4095];
    uint64_t before = ends_heap.bytes;

    end_open(&listener, bob, CHANNEL_LISTENS);
    assert_true(ends_heap.bytes - before <= MEMORY / 2);
    (void)end_feed(&listener, header, sizeof header, 0);
    (void)end_feed(&listener, body, sizeof body, 1);
    assert_int_equal(listener.status, HEARTH_PENDING);
    assert_int_equal(channel_wants(listener.channel), 1);
    assert_true(ends_heap.bytes - before <= MEMORY);
}

TEST_WITH(test_alerts, members_set_up, members_tear_down)
{
    static const struct {
        uint8_t bytes[7];
        int status;
        const char *text;
    } cases[] = {
        {{21, 3, 3, 0, 2, 2, 112}, HEARTH_PEER_LOST, "it has another secret, or belongs to another cluster"},
        {{21, 3, 3, 0, 2, 2, 80}, HEARTH_PEER_LOST, "it is busy: come again later"},
        {{21, 3, 3, 0, 2, 2, 47}, HEARTH_PEER_LOST, "it refuses us (TLS alert 47, Illegal parameter)"},
        {{21, 3, 3, 0, 2, 1, 90}, HEARTH_PEER_LOST, "it refuses us (TLS alert 90, User canceled)"},
        {{21, 3, 3, 0, 2, 1, 0}, HEARTH_PEER_LOST, "it closed the connection"},
        {{21, 3, 3, 0, 2, 2, 250}, HEARTH_PEER_LOST, "it refuses us (TLS alert 250, unknown)"},
        {{21, 3, 3, 0, 1, 2, 0},
         HEARTH_PROTOCOL,
         "its TLS is wrong: An unexpected TLS packet was received."}, /* half an alert */
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        end_open(&dialler, ann, CHANNEL_DIALS);
        (void)end_feed(&dialler, cases[i].bytes, sizeof cases[i].bytes, 0);
        end_refused(&dialler, cases[i].status, cases[i].text);
        end_close(&dialler);
        end_open(&listener, bob, CHANNEL_LISTENS); /* which has said nothing that could be refused */
        (void)end_feed(&listener, cases[i].bytes, sizeof cases[i].bytes, 0);
        end_refused(&listener, HEARTH_PROTOCOL, "its TLS is wrong: An unexpected TLS packet was received.");
        end_close(&listener);
    }
}

/* Any byte of a handshake changed on its way, but the version of the first record, which means nothing: it
 * fails at one end or both, and never is anybody taken for somebody else. */
static void change(size_t at, bool of_dialler)
{
    struct end *from = of_dialler ? &dialler : &listener, *to = of_dialler ? &listener : &dialler;
    size_t passed = 0;
    bool more = true;

    end_open(&dialler, ann, CHANNEL_DIALS);
    end_open(&listener, bob, CHANNEL_LISTENS);
    while (more) {
        uint8_t bytes[4096];
        size_t len = end_take(from, bytes, sizeof bytes);

        if (at >= passed && at < passed + len)
            bytes[at - passed] ^= 0x04;
        passed += len;
        (void)end_feed(to, bytes, len, 0);
        more = ends_carry_one_way(to, from, 0, NULL) + len > 0;
    }
    if (at < passed)
        assert_false(channel_ready(dialler.channel) && channel_ready(listener.channel));
    members_part();
}

TEST_WITH(test_changed_on_the_way, members_set_up, members_tear_down)
{
    for (size_t at = 3; at < 780; at += 7) {
        change(at, true);
        change(at, false);
    }
    change(0, true);
    change(0, false);
}

/* ---- after the proof ---- */

static size_t sealed(uint8_t *record, size_t room)
{
    assert_true(channel_send(dialler.channel, "message", 7));
    return end_take(&dialler, record, room);
}

TEST_WITH(test_forged_record, members_set_up, members_tear_down)
{
    uint8_t record[SOME_LEN];
    size_t len = 0;

    for (size_t at = HEADER; at == HEADER || at < len; at += 3) {
        ends_join(&dialler, &listener, ann, bob);
        len = sealed(record, sizeof record);
        record[at] ^= 1;
        (void)end_feed(&listener, record, len, 0);
        end_refused(&listener, HEARTH_PROTOCOL, forged);
        end_close(&dialler);
        end_close(&listener);
    }
}

TEST_WITH(test_repeated_record, members_set_up, members_tear_down)
{
    uint8_t record[SOME_LEN], came[SOME_LEN];
    size_t len;

    ends_join(&dialler, &listener, ann, bob);
    len = sealed(record, sizeof record);
    (void)end_feed(&listener, record, len, 0);
    assert_int_equal(listener.status, HEARTH_OK);
    assert_int_equal(channel_recv(listener.channel, came, sizeof came), 7);
    (void)end_feed(&listener, record, len, 0);
    end_refused(&listener, HEARTH_PROTOCOL, forged);
    assert_int_equal(channel_recv(listener.channel, came, sizeof came), 0);
}

TEST_WITH(test_lost_record, members_set_up, members_tear_down)
{
    uint8_t record[SOME_LEN];
    size_t len;

    ends_join(&dialler, &listener, ann, bob);
    (void)sealed(record, sizeof record);
    len = sealed(record, sizeof record);
    (void)end_feed(&listener, record, len, 0);
    end_refused(&listener, HEARTH_PROTOCOL, forged);
}

TEST_WITH(test_reflected_record, members_set_up, members_tear_down)
{
    uint8_t record[SOME_LEN];
    size_t len;

    ends_join(&dialler, &listener, ann, bob);
    len = sealed(record, sizeof record);
    (void)end_feed(&dialler, record, len, 0);
    end_refused(&dialler, HEARTH_PROTOCOL, forged);
}

TEST_WITH(test_late_nonsense, members_set_up, members_tear_down)
{
    static const struct {
        uint8_t bytes[7];
        const char *text;
    } cases[] = {
        {{21, 3, 3, 0, 2, 1, 0}, no_record}, /* a goodbye that anybody can say */
        {{22, 3, 3, 0, 2, 1, 0}, no_record},
        {{'H', 'F', 1, 1, 0, 0, 0}, no_record},
        {{23, 3, 3, 0, 0, 0, 0}, no_record},
        {{23, 3, 3, 0x41, 0x01, 0, 0}, "it sends a record of 16641 bytes"},
        {{23, 3, 3, 0, 2, 0, 0}, forged},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ends_join(&dialler, &listener, ann, bob);
        (void)end_feed(&listener, cases[i].bytes, sizeof cases[i].bytes, 0);
        end_refused(&listener, HEARTH_PROTOCOL, cases[i].text);
        end_close(&dialler);
        end_close(&listener);
    }
}
