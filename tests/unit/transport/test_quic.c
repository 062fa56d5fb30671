/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes through QUIC: whole and in order, over bad networks too; streams do not hold each other up; a peer
 * that goes is noticed; what was sent before a close arrives. */
#include "os/clock.h"

#include "quic_pair.h"
#include "support/suite.h"

#if !defined(HEARTH_QUIC)

int main(void)
{
    return 77;
}

#else

#define SOME (3u << 20) /* more than any window here */

static struct quic_pair pair;
static struct relay relay;

/* Traffic on every stream of both sides. Gives how many. */
static int all_streams(struct traffic *list, size_t bytes, size_t piece)
{
    int count = 0;
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < pair.sides[side].peer.count; i++)
            list[count++] = (struct traffic){.conn = pair.sides[side].peer.conns[i],
                                             .seed_out = (uint64_t)(2 * i + side),
                                             .seed_in = (uint64_t)(2 * i + 1 - side),
                                             .out = bytes,
                                             .in = bytes,
                                             .piece = piece};
    return count;
}

static void assert_all_moved(const struct traffic *list, int count)
{
    for (int i = 0; i < count; i++) {
        assert_int_equal(list[i].lost, 0);
        assert_int_equal(list[i].sent, list[i].out);
        assert_int_equal(list[i].got, list[i].in);
    }
}

/* ---- bytes ---- */

static void carries(const struct pair_options *options, size_t bytes, size_t piece)
{
    struct traffic list[2 * LINK_PIPES_MAX];
    pair_open_joined(&pair, options);
    assert_string_equal(pair.sides[0].peer.conns[0]->transport->scheme, "quic");
    int count = all_streams(list, bytes, piece);
    traffic_run(&pair, list, count);
    assert_all_moved(list, count);
    quic_pair_close(&pair);
}

TEST(carries_large_datagrams)
{
    carries(&(struct pair_options){0}, SOME, 0);
}

TEST(carries_usual_datagrams)
{
    carries(&(struct pair_options){.datagram_size = 1452}, SOME, 0);
}

TEST(carries_small_datagrams_in_many_streams)
{
    carries(&(struct pair_options){.datagram_size = 1200, .streams = LINK_PIPES_MAX}, 300000, 0);
}

TEST(carries_one_stream)
{
    carries(&(struct pair_options){.streams = 1}, 100000, 0);
}

TEST(carries_small_pieces)
{
    carries(&(struct pair_options){.streams = 3}, 20000, 7);
}

/* ---- bad networks ---- */

static void survives(const struct relay_habits *habits, size_t datagram_size, size_t bytes)
{
    relay_begin(&relay, habits, 42);
    carries(&(struct pair_options){.relay = &relay, .datagram_size = datagram_size}, bytes, 0);
    assert_true(relay.passed > 0);
    relay_end(&relay);
}

TEST(survives_loss)
{
    survives(&(struct relay_habits){.drops = 50}, 1452, 400000);
}

TEST(survives_disorder_and_doubles)
{
    survives(&(struct relay_habits){.delays = 100, .doubles = 100}, 1452, 1000000);
}

/* Copies with one byte changed come before the true ones. */
TEST(survives_forgeries)
{
    survives(&(struct relay_habits){.spoils = 300, .doubles = 50}, 1452, 400000);
}

TEST(finds_the_size_of_a_narrow_way)
{
    survives(&(struct relay_habits){.larger_than = 1300}, 8000, 100000);
}

/* Anything at all, from a stranger, at both ends and all the time. */
TEST(survives_garbage)
{
    struct traffic list[4];
    struct datagram_port port;
    struct prng prng;
    uint8_t bytes[1500];
    prng_init(&prng, 7);
    pair_open_joined(&pair, &(struct pair_options){0});
    port_open(&port, NULL);
    int count = all_streams(list, 500000, 0);
    uint64_t blocks = pair.sides[0].heap.bytes;
    for (int i = 0; i < 3000; i++) {
        size_t len = 1 + prng_below(&prng, sizeof bytes);
        fill_bytes(bytes, len, prng_u64(&prng));
        const struct quic *quic = pair.sides[i % 2].quic;
        for (int slot = 0; slot < quic->capacity && i % 3 == 0 && len > QUIC_ID_LEN; slot++)
            if (quic->lines[slot]) { /* worst of all: one that knows an id */
                bytes[0] = (uint8_t)(0x40 | (bytes[0] & 0x3f));
                memcpy(bytes + 1, quic->lines[slot]->tag, QUIC_TAG_LEN);
            }
        struct sock_addr to = quic_addr(quic);
        assert_int_equal(datagram_send(&port, &to, bytes, len, len), HEARTH_OK);
        for (int k = 0; k < count; k++)
            traffic_move(&list[k]);
    }
    traffic_run(&pair, list, count);
    assert_all_moved(list, count);
    assert_true(pair.sides[0].heap.bytes < blocks + (1u << 20));
    datagram_close(&port);
    quic_pair_close(&pair);
}

/* ---- streams ---- */

/* Nobody reads the bulk stream of side 0; control goes on both ways, and so does another bulk stream. */
TEST(a_stalled_stream_holds_up_nothing_else)
{
    struct traffic list[6];
    pair_open_joined(&pair, &(struct pair_options){.streams = 3});
    struct traffic stalled = {.conn = pair.sides[1].peer.conns[1], .out = SIZE_MAX, .seed_out = 9};
    for (int idle = 0; idle < 1000;) /* until its window is full */
        idle = traffic_move(&stalled) ? 0 : idle + 1;
    assert_true(stalled.sent > 0);
    int count = all_streams(list, SOME, 0);
    for (int i = 0; i < count; i++)
        if (i % 3 == 1)
            list[i].out = list[i].in = 0;
    list[1].conn = pair.sides[0].peer.conns[0]; /* asks the control stream again instead of the stalled one */
    list[1].in = list[1].out = 0;
    struct traffic going[4] = {list[0], list[2], list[3], list[5]};
    traffic_run(&pair, going, 4);
    assert_all_moved(going, 4);
    /* And when it is read at last, all of it is there. */
    struct traffic reader = {.conn = pair.sides[0].peer.conns[1], .in = stalled.sent, .seed_in = 9};
    stalled.out = stalled.sent;
    struct traffic both[2] = {stalled, reader};
    traffic_run(&pair, both, 2);
    assert_int_equal(both[1].got, stalled.sent);
    quic_pair_close(&pair);
}

/* ---- ends ---- */

static ssize_t read_to_the_end(struct traffic *t)
{
    uint64_t deadline_ns = clock_real() + PATIENCE_NS;
    for (int idle = 0; t->lost == 0;) {
        idle = traffic_move(t) ? 0 : idle + 1;
        assert_true(clock_real() < deadline_ns);
        if (idle > 1)
            pair_rest(&pair);
    }
    return t->lost;
}

/* Side 1 sends as much as it may and goes; all of it arrives, then the end. */
TEST(close_delivers_what_was_sent)
{
    pair_open_joined(&pair, &(struct pair_options){0});
    struct traffic sender = {.conn = pair.sides[1].peer.conns[1], .out = 200000, .seed_out = 3};
    struct traffic reader = {.conn = pair.sides[0].peer.conns[1], .in = 200000, .seed_in = 3};
    while (sender.sent < sender.out)
        if (!traffic_move(&sender))
            traffic_move(&reader);
    struct quic_side *side = &pair.sides[1];
    for (int i = 0; i < side->peer.count; i++)
        side->peer.conns[i]->transport->close(side->peer.conns[i]);
    side->peer.count = 0;
    while (reader.got < reader.in) {
        if (traffic_move(&reader))
            continue;
        quic_hear(side->quic); /* it lingers */
        quic_tick(side->quic, clock_real());
        quic_speak(side->quic);
    }
    pair_close_side(&pair, 1);
    assert_int_equal(read_to_the_end(&reader), HEARTH_PEER_LOST);
    assert_int_equal(reader.got, reader.in);
    quic_pair_close(&pair);
}

/* Only Linux tells of a closed port; elsewhere time must pass. */
#if defined(__linux__) && !defined(HEARTH_POSIX)
#define KILLED_IDLE_NS 0
#else
#define KILLED_IDLE_NS (300 * NS_PER_MS)
#endif

/* Its process is killed: the socket goes without a word. */
TEST(a_killed_peer_is_noticed)
{
    pair_open_joined(&pair, &(struct pair_options){.idle_ns = KILLED_IDLE_NS});
    datagram_close(&pair.sides[1].quic->port);
    struct traffic t = {.conn = pair.sides[0].peer.conns[0], .out = 10, .seed_out = 1};
    assert_int_equal(read_to_the_end(&t), HEARTH_PEER_LOST);
    struct iovec piece = {"x", 1};
    assert_int_equal(t.conn->transport->send(t.conn, &piece, 1), HEARTH_PEER_LOST);
    quic_pair_close(&pair);
}

/* The same, while we have nothing to say to it. */
TEST(a_killed_peer_is_noticed_by_who_waits)
{
    pair_open_joined(&pair, &(struct pair_options){.idle_ns = KILLED_IDLE_NS});
    datagram_close(&pair.sides[1].quic->port);
    struct traffic t = {.conn = pair.sides[0].peer.conns[0]};
    assert_int_equal(read_to_the_end(&t), HEARTH_PEER_LOST);
    quic_pair_close(&pair);
}

/* Nothing comes any more, and nobody says why. */
TEST(a_silent_peer_is_lost_after_the_idle_time)
{
    relay_begin(&relay, &(struct relay_habits){0}, 1);
    pair_open_joined(&pair, &(struct pair_options){.relay = &relay, .idle_ns = 300 * NS_PER_MS});
    relay.dead = true;
    struct traffic t = {.conn = pair.sides[0].peer.conns[0]};
    assert_int_equal(read_to_the_end(&t), HEARTH_PEER_LOST);
    quic_pair_close(&pair);
    relay_end(&relay);
}

/* Idle links stay up: something is said before the time is over. */
TEST(an_idle_link_stays_up)
{
    pair_open_joined(&pair, &(struct pair_options){.idle_ns = 200 * NS_PER_MS});
    struct traffic list[4];
    int count = all_streams(list, 0, 0);
    uint64_t until_ns = clock_real() + 600 * NS_PER_MS;
    while (clock_real() < until_ns) {
        for (int i = 0; i < count; i++)
            traffic_move(&list[i]);
        for (int i = 0; i < count; i++)
            assert_int_equal(list[i].lost, 0);
        struct sock_wait nothing = {.fd = -1};
        sock_wait(&nothing, 1, clock_real() + NS_PER_MS);
    }
    quic_pair_close(&pair);
}

#endif
