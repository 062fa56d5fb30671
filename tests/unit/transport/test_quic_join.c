/* SPDX-License-Identifier: Apache-2.0 */
/* Who may join by QUIC: those with the secret, and of them only who is awaited. Strangers cost little, and
 * keep nobody out. */
#include <unistd.h>

#include "os/clock.h"

#include "quic_pair.h"
#include "support/suite.h"

#if !defined(HEARTH_QUIC)

int main(void)
{
    return 77;
}

#else

#define SHORT_NS (400 * NS_PER_MS) /* for what does not come */

static struct quic_pair pair;

/* ---- refused ---- */

static void refused(const struct pair_options *options, enum hearth_reason reason, const char *because)
{
    quic_pair_open(&pair, options);
    pair_join(&pair, options);
    assert_int_equal(pair.sides[1].status, HEARTH_PEER_LOST);
    assert_int_equal(pair.sides[1].peer.count, 0);
    assert_int_equal(pair.sides[1].peer.why.status, HEARTH_PEER_LOST);
    assert_int_equal(pair.sides[1].peer.why.reason, reason);
    if (!strstr(pair.sides[1].peer.why.text, because))
        fail_msg("\"%s\" does not say \"%s\"", pair.sides[1].peer.why.text, because);
    quic_pair_close(&pair);
}

TEST(another_secret_is_refused)
{
    refused(&(struct pair_options){.secrets = {1, 2}, .join_ns = SHORT_NS}, HEARTH_REASON_SECRET_DIFFERS,
            "another secret");
}

TEST(another_key_is_refused)
{
    refused(&(struct pair_options){.stranger = true, .join_ns = SHORT_NS}, HEARTH_REASON_NOT_HEARTH,
            "another node");
}

/* The listener has no fault to find. */
TEST(another_process_of_the_node_is_refused)
{
    refused(&(struct pair_options){.other_instance = true, .join_ns = SHORT_NS}, HEARTH_REASON_NOT_HEARTH,
            "another process");
}

/* The listener waits for somebody else: who comes knows the secret, and is told to come again. */
TEST(who_is_not_awaited_does_not_get_in)
{
    struct pair_options options = {.join_ns = SHORT_NS};
    quic_pair_open(&pair, &options);
    pair.sides[0].peer.identity.instance += 5;
    pair_join(&pair, &options);
    assert_int_equal(pair.sides[0].peer.count, 0);
    assert_int_equal(pair.sides[1].peer.count, 0);
    quic_pair_close(&pair);
}

TEST(nobody_there)
{
    struct pair_options options = {.join_ns = SHORT_NS};
    quic_pair_open(&pair, &options);
    pair_close_side(&pair, 0);
    struct quic_side *side = &pair.sides[1];
    side->status = quic_join(side->quic, &side->peer, 1, clock_real() + SHORT_NS, NULL, &side->error);
    assert_int_equal(side->status, HEARTH_PEER_LOST);
    assert_int_equal(side->peer.why.reason, HEARTH_REASON_UNREACHABLE);
    assert_non_null(strstr(side->peer.why.text, "127.0.0.1"));
    quic_pair_close(&pair);
}

/* ---- later ---- */

/* Another peer joins an endpoint that has one already; the first link goes on. */
TEST(more_may_join_later)
{
    struct pair_options options = {0};
    struct quic_side third = {0};
    struct traffic list[4];
    pair_open_joined(&pair, &options);

    struct quic_pair second = {.sides = {pair.sides[0], third}};
    struct quic_side *old = &second.sides[0], *new = &second.sides[1];
    struct quic_setup setup = {.heap = &pair.sides[1].heap};
    setup.credentials = new->credentials = pair_node(&pair.sides[1].heap, 0, 300);
    assert_int_equal(sock_addr_parse("127.0.0.1", 0, &setup.local), HEARTH_OK);
    assert_int_equal(quic_open(&setup, &new->quic, &new->error), HEARTH_OK);
    old->peer = (struct quic_peer){.identity = *credentials_self(new->credentials), .streams = 1};
    new->peer = (struct quic_peer){.identity = *credentials_self(old->credentials),
                                   .addr = quic_addr(old->quic),
                                   .dials = true,
                                   .streams = 1};
    pair_join(&second, &options);
    assert_int_equal(old->status, HEARTH_OK);
    assert_int_equal(new->status, HEARTH_OK);
    for (int i = 0; i < 2; i++) {
        list[i] = (struct traffic){.conn = pair.sides[i].peer.conns[1],
                                   .seed_out = (uint64_t)i,
                                   .seed_in = (uint64_t)(1 - i),
                                   .in = 100000,
                                   .out = 100000};
        list[2 + i] = list[i];
        list[2 + i].conn = second.sides[i].peer.conns[0];
    }
    traffic_run(&pair, list, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(list[i].got, 100000);
    for (int i = 0; i < 2; i++)
        second.sides[i].peer.conns[0]->transport->close(second.sides[i].peer.conns[0]);
    quic_close(new->quic);
    credentials_close(new->credentials);
    quic_pair_close(&pair);
}

/* ---- strangers ---- */

/* Whoever comes when many are half open must show first that it receives where it says it is. */
TEST(under_load_an_address_must_be_proven)
{
    struct pair_options options = {0};
    quic_pair_open(&pair, &options);
    pair.sides[0].quic->half_open = QUIC_HALF_OPEN_FREE;
    double retries = pair.sides[0].quic->retries.left;
    pair_join(&pair, &options);
    assert_int_equal(pair.sides[0].status, HEARTH_OK);
    assert_int_equal(pair.sides[1].status, HEARTH_OK);
    assert_true(pair.sides[0].quic->retries.left < retries);
    pair.sides[0].quic->half_open -= QUIC_HALF_OPEN_FREE;
    assert_int_equal(pair.sides[0].quic->half_open, 0);
    quic_pair_close(&pair);
}

/* The first packet of one that has the secret, as an eavesdropper has it. */
static size_t overhear_hello(uint8_t *bytes)
{
    struct quic_pair other;
    struct datagram_port port;
    struct sock_addr bound;
    struct error error;
    struct datagrams one = {.bytes = bytes};
    quic_pair_open(&other, &(struct pair_options){0});
    port_open(&port, &bound);
    other.sides[1].peer.addr = bound;
    int status =
        quic_join(other.sides[1].quic, &other.sides[1].peer, 1, clock_real() + 20 * NS_PER_MS, NULL, &error);
    assert_int_equal(status, HEARTH_PEER_LOST);
    assert_int_equal(datagram_recv(&port, &one, 1), 1);
    datagram_close(&port);
    quic_pair_close(&other);
    return one.size;
}

struct flood {
    struct quic *quic;
    const uint8_t *hello;
    size_t len;
    _Atomic(bool) stop;
    struct thread thread;
};

/* The same hello, and others with another id in it, from many ports. Their own machine would not take time
 * from ours, so this thread comes last where processors are few. */
static void flood_run(void *arg)
{
    (void)!nice(19);
    struct flood *f = arg;
    struct sock_addr local, to = quic_addr(f->quic);
    uint8_t copy[DATAGRAM_SIZE_SAFE + 300];
    struct prng prng;
    prng_init(&prng, 3);
    assert_true(f->len <= sizeof copy);
    while (!f->stop) {
        struct datagram_port port;
        if (sock_addr_parse("127.0.0.1", 0, &local) != HEARTH_OK ||
            datagram_open(&local, 1 << 16, &port, NULL, NULL) != HEARTH_OK)
            return;
        for (int i = 0; i < 10; i++) {
            memcpy(copy, f->hello, f->len);
            if (i % 2 == 1)
                copy[6 + prng_below(&prng, 16)] ^= (uint8_t)(1 + prng_below(&prng, 255));
            if (datagram_send(&port, &to, copy, f->len, f->len) != HEARTH_OK)
                break;
        }
        datagram_close(&port);
        struct sock_wait nothing = {.fd = -1};
        sock_wait(&nothing, 1, clock_real() + NS_PER_MS / 4);
    }
}

/* Packets that were overheard come again from many addresses: they are few at any time, and the member whom
 * we wait for joins. */
TEST(a_flood_keeps_nobody_out)
{
    uint8_t hello[DATAGRAM_BATCH];
    struct pair_options options = {0};
    struct flood flood = {.hello = hello};
    flood.len = overhear_hello(hello);
    quic_pair_open(&pair, &options);
    flood.quic = pair.sides[0].quic;
    assert_int_equal(thread_start(&flood.thread, "flood", flood_run, &flood), HEARTH_OK);
    struct quic_peer absent = pair.sides[0].peer;
    absent.identity.instance += 7;
    uint64_t deadline_ns = clock_real() + PATIENCE_NS;
    do {
        assert_true(clock_real() < deadline_ns);
        int status =
            quic_join(pair.sides[0].quic, &absent, 1, clock_real() + SHORT_NS, NULL, &pair.sides[0].error);
        assert_int_equal(status, HEARTH_PEER_LOST);
        assert_int_equal(pair.sides[0].quic->half_open, 0);
    } while (pair.sides[0].heap.bytes_peak <= (1u << 20)); /* until it was heard */
    assert_true(pair.sides[0].heap.bytes_peak < (64u << 20));
    pair_join(&pair, &options);
    flood.stop = true;
    thread_join(&flood.thread);
    if (pair.sides[0].status != HEARTH_OK || pair.sides[1].status != HEARTH_OK)
        fail_msg("%s / %s", pair.sides[0].error.text, pair.sides[1].error.text);
    quic_pair_close(&pair);
}

/* ---- memory ---- */

/* Wherever memory ends, joining fails or succeeds, and leaves nothing behind. */
TEST(without_memory_nothing_is_left)
{
    struct pair_options options = {.join_ns = 30 * NS_PER_MS};
    int coarse = getenv("HEARTH_TEST_SOAK") ? 20 : 4; /* who closes first waits 2 s for the other */
    for (int after = 0; after < 200; after += 1 + after / coarse) {
        quic_pair_open(&pair, &options);
        atomic_store(&pair.sides[after % 2].heap.fail_after, after);
        pair_join(&pair, &options);
        quic_pair_close(&pair);
    }
}

#endif
