/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends that have the same secret: however their bytes are cut, they come to know each other and talk. */
#include <unistd.h>

#include "core/prng.h"
#include "security/records.h"

#include "members.h"
#include "support/suite.h"

#define SUITE_AT                                                                                             \
    44 /* in a listener's first flight: behind headers, version, random and an empty session id */
#define AES_SUITE    0x1301
#define CHACHA_SUITE 0x1303
#define SOME_LEN     1000
#define STEPS_MAX    1000

static void assert_identity(const struct identity *a, const struct identity *b)
{
    assert_non_null(a);
    assert_memory_equal(a->node.bytes, b->node.bytes, NODE_ID_LEN);
    assert_int_equal(a->instance, b->instance);
}

static void assert_met(void)
{
    assert_int_equal(dialler.status, HEARTH_OK);
    assert_int_equal(listener.status, HEARTH_OK);
    assert_true(channel_ready(dialler.channel));
    assert_true(channel_ready(listener.channel));
    assert_identity(channel_peer(dialler.channel), credentials_self(bob));
    assert_identity(channel_peer(listener.channel), credentials_self(ann));
}

static void open_both(void)
{
    end_open(&dialler, ann, CHANNEL_DIALS);
    end_open(&listener, bob, CHANNEL_LISTENS);
}

/* GnuTLS writes the secrets of sessions to a file that this variable names, unless it is told not to. */
static int meet_with_key_log(void *path)
{
    if (setenv("SSLKEYLOGFILE", path, 1))
        return 1;
    ann = ends_node(&(struct node_options){.secret = 1, .instance = 1}); /* keys do not survive a fork */
    bob = ends_node(&(struct node_options){.secret = 1, .instance = 2});
    ends_join(&dialler, &listener, ann, bob);
    return access(path, F_OK) == 0 ? 2 : 0;
}

TEST_WITH(test_no_key_log, members_set_up,
          members_tear_down) /* the first test: GnuTLS looks for the variable once */
{
    char path[256];

    (void)snprintf(path, sizeof path, "%s", folder_path("keys"));
    assert_int_equal(child_run(meet_with_key_log, path), 0);
}

TEST_WITH(test_they_meet, members_set_up, members_tear_down)
{
    open_both();
    assert_null(channel_peer(dialler.channel));
    assert_null(channel_peer(listener.channel));
    assert_false(channel_send(dialler.channel, "early", 5)); /* nothing is said before the proof */
    ends_carry(&dialler, &listener, 0);
    assert_met();
    for (size_t len = 1; len <= CHANNEL_MESSAGE_MAX; len = 4 * len) {
        ends_exchange(&dialler, &listener, len);
        ends_exchange(&listener, &dialler, len);
    }
}

TEST_WITH(test_byte_by_byte, members_set_up, members_tear_down)
{
    open_both();
    ends_carry(&dialler, &listener, 1);
    assert_met();
}

TEST_WITH(test_random_pieces, members_set_up, members_tear_down)
{
    struct prng prng;

    prng_init(&prng, 7);
    for (int i = 0; i < 20; i++) {
        open_both();
        while (ends_carry_one_way(&dialler, &listener, 1 + prng_below(&prng, 100), NULL) +
                   ends_carry_one_way(&listener, &dialler, 1 + prng_below(&prng, 100), NULL) >
               0)
            ;
        assert_met();
        ends_exchange(&listener, &dialler, 1 + prng_below(&prng, CHANNEL_MESSAGE_MAX));
        members_part();
    }
}

/* The dialler's order counts, so that a slow cipher is used only where one end asks for it. */
TEST_WITH(test_suites, members_set_up, members_tear_down)
{
    static const enum suite_order orders[] = {SUITES_AES_FIRST, SUITES_CHACHA_FIRST};
    static struct caught hello;

    for (int i = 0; i < 4; i++) {
        credentials_close(ann);
        credentials_close(bob);
        ann = ends_node(&(struct node_options){.secret = 1, .instance = 1, .suites = orders[i / 2]});
        bob = ends_node(&(struct node_options){.secret = 1, .instance = 2, .suites = orders[i % 2]});
        open_both();
        hello.len = 0;
        (void)ends_carry_one_way(&dialler, &listener, 0, NULL);
        (void)ends_carry_one_way(&listener, &dialler, 0, &hello);
        assert_int_equal(hello.bytes[SUITE_AT] << 8 | hello.bytes[SUITE_AT + 1],
                         i / 2 == 0 ? AES_SUITE : CHACHA_SUITE);
        ends_carry(&dialler, &listener, 0);
        assert_met();
        ends_exchange(&dialler, &listener, SOME_LEN);
        members_part();
    }
}

TEST_WITH(test_messages_wait, members_set_up, members_tear_down)
{
    uint8_t message[SOME_LEN], came[SOME_LEN];
    size_t queued = 0, taken = 0;

    ends_join(&dialler, &listener, ann, bob);
    memset(message, 5, sizeof message);
    assert_false(channel_send(dialler.channel, message, 0));
    while (channel_send(dialler.channel, message, sizeof message))
        queued++;
    assert_in_range(queued, CHANNEL_MESSAGE_MAX / SOME_LEN, 1000);
    assert_true(channel_ready(dialler.channel)); /* full is no error */
    while (ends_carry_one_way(&dialler, &listener, 10, NULL) > 0)
        assert_int_equal(listener.status, HEARTH_OK);
    while (channel_recv(listener.channel, came, 1) == 1)
        taken++;
    assert_int_equal(taken, queued * SOME_LEN);
    assert_true(channel_send(dialler.channel, message, sizeof message));
}

TEST_WITH(test_messages_not_taken, members_set_up, members_tear_down)
{
    static uint8_t message[CHANNEL_MESSAGE_MAX];
    int sent = 0;

    ends_join(&dialler, &listener, ann, bob);
    for (; sent < STEPS_MAX && listener.status == HEARTH_OK; sent++) {
        assert_true(channel_send(dialler.channel, message, sizeof message));
        (void)ends_carry_one_way(&dialler, &listener, 0, NULL);
    }
    assert_int_equal(listener.status, HEARTH_LIMIT);
    assert_string_equal(listener.error.text, "messages come in and are not taken");
    assert_in_range(sent, 2, 8);
}

static void talk_in_records(struct records *from, struct records *to)
{
    uint8_t record[RECORD_EXTRA + 16];
    struct iovec piece = {(void *)(uintptr_t) "all that follows", 16};

    assert_non_null(from);
    assert_non_null(to);
    assert_int_equal(records_seal(from, &piece, 1, 16, record), sizeof record);
    assert_int_equal(records_open_one(to, record, sizeof record, record), 16);
    assert_memory_equal(record, piece.iov_base, 16);
}

TEST_WITH(test_take_records, members_set_up, members_tear_down)
{
    struct records *a = NULL, *b = NULL;
    uint8_t byte = 1, record[SOME_LEN];
    size_t len;

    open_both();
    assert_int_equal(channel_take_records(dialler.channel, &a), HEARTH_PENDING);
    ends_carry(&dialler, &listener, 0);
    assert_true(channel_send(dialler.channel, &byte, 1));
    assert_int_equal(channel_take_records(dialler.channel, &a), HEARTH_PENDING); /* unsent */
    len = end_take(&dialler, record, sizeof record);
    assert_int_equal(end_feed(&listener, record, 3, 0), 3);
    assert_int_equal(channel_take_records(listener.channel, &b), HEARTH_PENDING); /* half a record */
    assert_int_equal(end_feed(&listener, record + 3, len - 3, 0), len - 3);
    assert_int_equal(channel_take_records(listener.channel, &b), HEARTH_PENDING); /* unread */
    assert_int_equal(channel_recv(listener.channel, &byte, 1), 1);
    assert_int_equal(channel_take_records(dialler.channel, &a), HEARTH_OK);
    assert_int_equal(channel_take_records(listener.channel, &b), HEARTH_OK);
    dialler.channel = listener.channel = NULL;
    talk_in_records(a, b);
    talk_in_records(b, a);
    records_close(a);
    records_close(b);
}

/* The end that reads takes not a byte that belongs to whoever comes after it. */
TEST_WITH(test_wants, members_set_up, members_tear_down)
{
    static const uint8_t too_much[0x103];
    struct error error;

    ends_join(&dialler, &listener, ann, bob);
    assert_int_equal(channel_wants(dialler.channel), RECORD_HEADER_LEN);
    assert_int_equal(channel_input(dialler.channel, "\x17\x03", 2, &error), HEARTH_OK);
    assert_int_equal(channel_wants(dialler.channel), 3);
    assert_int_equal(channel_input(dialler.channel, "\x03\x01\x02", 3, &error), HEARTH_OK);
    assert_int_equal(channel_wants(dialler.channel), 0x102);
    assert_int_equal(channel_input(dialler.channel, "", 0, &error), HEARTH_OK);
    assert_int_equal(channel_wants(dialler.channel), 0x102);
    assert_int_equal(channel_input(dialler.channel, too_much, sizeof too_much, &error), HEARTH_INVALID);
    assert_false(channel_ready(dialler.channel));
}

/* Ranks that share a home share its key: they are told apart by their instances. */
TEST_WITH(test_one_key_for_two, members_set_up, members_tear_down)
{
    struct node_key *keys[2];
    struct error error;

    for (int i = 0; i < 2; i++)
        if (node_key_load(folder_path("node.key"), &keys[i], &error))
            fail_msg("%s", error.text);
    credentials_close(ann);
    credentials_close(bob);
    ann = ends_node(&(struct node_options){.secret = 1, .instance = 1, .key = keys[0]});
    bob = ends_node(&(struct node_options){.secret = 1, .instance = 2, .key = keys[1]});
    open_both();
    ends_carry(&dialler, &listener, 0);
    assert_met();
    assert_true(node_id_equal(&channel_peer(dialler.channel)->node, &channel_peer(listener.channel)->node));
}

struct doorman {
    bool lets_in;
    int asked, weak;
};

static bool admit(void *arg, bool weak)
{
    struct doorman *doorman = arg;

    doorman->asked++;
    doorman->weak += weak;
    return doorman->lets_in;
}

static void open_with(struct doorman *doorman)
{
    struct session_setup setup = {.heap = &ends_heap,
                                  .credentials = bob,
                                  .role = CHANNEL_LISTENS,
                                  .admit = admit,
                                  .admit_arg = doorman};

    end_open(&dialler, ann, CHANNEL_DIALS);
    listener = (struct end){.status = HEARTH_PENDING};
    assert_int_equal(channel_open(&setup, &listener.channel, &listener.error), HEARTH_OK);
}

TEST_WITH(test_admitted, members_set_up, members_tear_down)
{
    struct doorman doorman = {.lets_in = true};

    open_with(&doorman);
    ends_carry(&dialler, &listener, 1);
    assert_met();
    assert_int_equal(doorman.asked, 1);
    assert_int_equal(doorman.weak, 1); /* it was open */
}

/* A knock for this node or its end of the connection, and one for another. */
TEST_WITH(test_knocks_for_whom, members_set_up, members_tear_down)
{
    struct doorman doorman = {.lets_in = true};
    struct knock_target targets[4] = {
        {.kind = KNOCK_NODE, .node = credentials_self(bob)->node},
        {.kind = KNOCK_ADDRESS},
        {.kind = KNOCK_NODE, .node = credentials_self(ann)->node},
        {.kind = KNOCK_ADDRESS},
    };
    struct session_setup listens = {.heap = &ends_heap,
                                    .credentials = bob,
                                    .role = CHANNEL_LISTENS,
                                    .admit = admit,
                                    .admit_arg = &doorman};

    assert_int_equal(sock_addr_parse("192.0.2.1:29500", 0, &listens.at), HEARTH_OK);
    targets[1].addr = targets[3].addr = listens.at;
    sock_addr_set_port(&targets[3].addr, 29501);
    for (int i = 0; i < 4; i++) {
        struct session_setup dials = {
            .heap = &ends_heap, .credentials = ann, .role = CHANNEL_DIALS, .to = targets[i]};
        dialler = (struct end){.status = HEARTH_PENDING};
        listener = (struct end){.status = HEARTH_PENDING};
        assert_int_equal(channel_open(&dials, &dialler.channel, &dialler.error), HEARTH_OK);
        assert_int_equal(channel_open(&listens, &listener.channel, &listener.error), HEARTH_OK);
        ends_carry(&dialler, &listener, 0);
        assert_int_equal(listener.status, i < 2 ? HEARTH_OK : HEARTH_PROTOCOL);
        assert_int_equal(dialler.status, i < 2 ? HEARTH_OK : HEARTH_PEER_LOST);
        assert_int_equal(doorman.asked, i < 2 ? i + 1 : 2);
        end_close(&dialler);
        end_close(&listener);
    }
    assert_int_equal(doorman.weak, 0);
}

TEST_WITH(test_not_admitted, members_set_up, members_tear_down)
{
    struct doorman doorman = {.lets_in = false};

    open_with(&doorman);
    ends_carry(&dialler, &listener, 0);
    assert_int_equal(doorman.asked, 1);
    assert_int_equal(listener.status, HEARTH_PROTOCOL);
    assert_string_equal(listener.error.text, "too many come at once");
    assert_int_equal(dialler.status, HEARTH_PEER_LOST);
    assert_int_equal(dialler.error.reason, HEARTH_REASON_BUSY);
    assert_int_equal(listener.error.reason, HEARTH_REASON_BUSY);
}

/* What has failed stays so, and says the same again. */
TEST_WITH(test_over_is_over, members_set_up, members_tear_down)
{
    struct error error;

    end_open(&listener, bob, CHANNEL_LISTENS);
    (void)end_feed(&listener, "GET / HTTP/1.1\r\n", 16, 0);
    assert_int_equal(listener.status, HEARTH_PROTOCOL);
    assert_int_equal(channel_wants(listener.channel), 1);
    assert_int_equal(channel_input(listener.channel, "x", 1, &error), HEARTH_PROTOCOL);
    assert_string_equal(error.text, listener.error.text);
    assert_false(channel_ready(listener.channel));
    assert_false(channel_send(listener.channel, "x", 1));
}

/* Memory ends at each allocation once: an error, no leak, and the other end is left alone. */
TEST_WITH(test_no_memory, members_set_up, members_tear_down)
{
    int64_t after = 0;
    bool met = false;

    for (; after < STEPS_MAX && !met; after++) {
        struct session_setup setup = {.heap = &ends_heap, .credentials = bob, .role = CHANNEL_LISTENS};

        end_open(&dialler, ann, CHANNEL_DIALS);
        listener = (struct end){.status = HEARTH_PENDING};
        ends_heap.fail_after = after;
        if (channel_open(&setup, &listener.channel, &listener.error)) {
            assert_int_equal(listener.error.status, HEARTH_NO_MEMORY);
            assert_null(listener.channel);
        } else {
            ends_carry(&dialler, &listener, 0);
            met = listener.status == HEARTH_OK && channel_ready(dialler.channel);
            if (!met)
                assert_true(listener.status == HEARTH_NO_MEMORY || dialler.status == HEARTH_NO_MEMORY);
        }
        ends_heap.fail_after = -1;
        members_part();
    }
    assert_true(met);
    assert_in_range(after, 3, 20);
}
