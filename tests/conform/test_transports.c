/* SPDX-License-Identifier: Apache-2.0 */
/* What every transport must do: all cases here run over all of them. A new one adds a line to the table in
 * pairs.c. */
#include "conform/pairs.h"
#include "core/prng.h"
#include "os/bell.h"
#include "os/clock.h"
#include "os/sock.h"
#include "os/thread.h"
#include "support/suite.h"
#include "support/watchdog.h"
#include "transport/mem.h"

#define PIECES_MAX   5
#define SETTLE_NS    (20 * NS_PER_MS)
#define SETTLE_LOOKS 5

static void pair_open(struct pair *pair, const struct kind *kind, uint64_t seed)
{
    *pair = (struct pair){.kind = kind};
    kind->open(pair, seed);
}

static void end_close(struct pair *pair, int side)
{
    if (pair->conn[side])
        pair->conn[side]->transport->close(pair->conn[side]);
    pair->conn[side] = NULL;
}

static void pair_close(struct pair *pair)
{
    end_close(pair, 0);
    end_close(pair, 1);
    pair->kind->close(pair);
}

/* Lets some time pass. False: nothing is under way. */
static bool pass(struct pair *pair)
{
    if (pair->kind->rest != REST_VIRTUAL || mem_net_next(pair->owner) == NEVER_NS)
        return false;
    pair->now_ns += 10000;
    return true;
}

/* What was taken leaves, as far as there is room. True: some of it is still held. */
static bool end_flush(struct pair *pair, int side)
{
    const struct conn *conn = pair->conn[side];
    const struct holding *holding = conn ? conn->transport->holding : NULL;
    if (holding)
        (void)holding->flush(pair->conn[side]);
    return holding && holding->holds(conn);
}

static ssize_t end_send(struct pair *pair, int side, const void *bytes, size_t len)
{
    struct iovec piece = {(void *)(uintptr_t)bytes, len};
    return pair->conn[side]->transport->send(pair->conn[side], &piece, 1);
}

static ssize_t end_recv(struct pair *pair, int side, void *target, size_t len)
{
    ssize_t n = pair->conn[side]->transport->recv(pair->conn[side], target, len);
    for (int i = 0; n == 0 && i < 2000 && pass(pair); i++)
        n = pair->conn[side]->transport->recv(pair->conn[side], target, len);
    return n;
}

/* Sleeps at the descriptors, as a node does, and minds the connection's own timers. True: there is something
 * to do. */
static bool end_sleep(struct pair *pair, int side, bool want_room, uint64_t deadline_ns)
{
    struct conn *conn = pair->conn[side];
    const struct holding *holding = conn->transport->holding;
    bool shared = conn->transport->sharing; /* then room is heard of through the event */
    struct sock_wait waits[2] = {
        {.fd = conn->transport->descriptor(conn), .want_recv = true, .want_send = want_room && !shared},
        {.fd = pair->event[side].read_fd, .want_recv = true},
    };
    uint64_t due_ns;
    int ready;
    do {
        due_ns = holding ? holding->due(conn) : NEVER_NS;
        if (pair->kind->keeps)
            waits[0].want_send = holding->holds(conn);
        ready = sock_wait(waits, 2, due_ns < deadline_ns ? due_ns : deadline_ns);
        if (holding && ready == 0 && due_ns > 0)
            (void)holding->flush(conn);
    } while (ready == 0 && due_ns > 0 && clock_real() < deadline_ns);
    conn->transport->doze(conn, false, false);
    if (waits[0].ready)
        conn->transport->attend(conn);
    if (waits[1].ready)
        event_clear(&pair->event[side]);
    return ready > 0 || due_ns == 0;
}

/* Where something must come, now or after a moment. */
static ssize_t end_recv_some(struct pair *pair, int side, void *target, size_t len)
{
    end_flush(pair, 1 - side);
    ssize_t n = end_recv(pair, side, target, len);
    while (n == 0 && pair->kind->rest == REST_DESCRIPTOR) {
        struct conn *conn = pair->conn[side];
        end_flush(pair, 1 - side);
        conn->transport->doze(conn, true, false);
        n = end_recv(pair, side, target, len);
        if (n == 0 && !end_sleep(pair, side, false, clock_real() + PATIENCE_NS))
            return 0;
        if (n == 0)
            n = end_recv(pair, side, target, len);
        else
            conn->transport->doze(conn, false, false);
    }
    return n;
}

static void end_expect_lost(struct pair *pair, int side)
{
    ssize_t n = end_send(pair, side, "lost", 4);
    for (int i = 0; pair->kind->late && n > 0 && i < 1000; i++) {
        sock_wait(NULL, 0, clock_real() + NS_PER_MS);
        n = end_send(pair, side, "lost", 4);
    }
    assert_int_equal(n, HEARTH_PEER_LOST);
}

/* ---- a stream of known bytes ---- */

#define STREAM_BYTES 100000u
#define STREAM_BLOCK 8192u

struct talker {
    struct pair *pair;
    int side;
    struct prng prng;
    uint64_t sent, got;
    size_t block_max;
    bool bad;
};

static uint8_t byte_at(int side, uint64_t position)
{
    return (uint8_t)((position * 0x9e3779b97f4a7c15u >> 32) + (uint64_t)side * 77);
}

static void talker_init(struct talker *t, struct pair *pair, int side, uint64_t seed)
{
    *t = (struct talker){.pair = pair, .side = side};
    prng_init(&t->prng, seed * 2 + (uint64_t)side);
    t->block_max = 1 + prng_below(&t->prng, STREAM_BLOCK);
}

/* In pieces of random length, some of them empty. */
static bool talker_send(struct talker *t)
{
    uint8_t block[STREAM_BLOCK];
    struct iovec pieces[PIECES_MAX];
    size_t left = STREAM_BYTES - t->sent, len = 1 + prng_below(&t->prng, t->block_max), at = 0;
    if (left == 0)
        return false;
    len = len < left ? len : left;
    for (size_t i = 0; i < len; i++)
        block[i] = byte_at(t->side, t->sent + i);
    int count = 1 + (int)prng_below(&t->prng, PIECES_MAX);
    for (int i = 0; i < count; i++) {
        size_t piece = i == count - 1 ? len - at : prng_below(&t->prng, len - at + 1);
        pieces[i] = (struct iovec){block + at, piece};
        at += piece;
    }
    struct conn *conn = t->pair->conn[t->side];
    ssize_t n = conn->transport->send(conn, pieces, count);
    t->bad = t->bad || n < 0 || (size_t)n > len;
    t->sent += n > 0 ? (uint64_t)n : 0;
    return n > 0;
}

static bool talker_recv(struct talker *t)
{
    uint8_t block[STREAM_BLOCK + 8];
    size_t len = 1 + prng_below(&t->prng, t->block_max);
    struct conn *conn = t->pair->conn[t->side];
    if (t->got == STREAM_BYTES)
        return false;
    memset(block, 0xee, sizeof block);
    ssize_t n = conn->transport->recv(conn, block, len);
    t->bad = t->bad || n < 0 || (size_t)n > len || block[len] != 0xee;
    for (ssize_t i = 0; i < n; i++)
        t->bad = t->bad || block[i] != byte_at(1 - t->side, t->got + (uint64_t)i);
    t->got += n > 0 ? (uint64_t)n : 0;
    return n > 0;
}

static bool talker_done(const struct talker *t)
{
    bool held = end_flush(t->pair, t->side);
    return t->bad || (t->sent == STREAM_BYTES && t->got == STREAM_BYTES && !held);
}

static void bytes_arrive_in_order_both_ways(void **state)
{
    const struct kind *kind = *state;
    for (uint64_t seed = 1; seed <= repeat_count(10); seed++) {
        struct pair pair;
        struct talker t[2];
        struct prng prng;
        pair_open(&pair, kind, seed);
        prng_init(&prng, seed);
        talker_init(&t[0], &pair, 0, seed);
        talker_init(&t[1], &pair, 1, seed);
        while (!talker_done(&t[0]) || !talker_done(&t[1])) {
            struct talker *who = &t[prng_below(&prng, 2)];
            bool moved = prng_below(&prng, 2) ? talker_send(who) : talker_recv(who);
            if (!moved && prng_below(&prng, 4) == 0)
                pass(&pair);
        }
        assert_false(t[0].bad || t[1].bad);
        pair_close(&pair);
    }
}

static bool talker_move(struct talker *t)
{
    bool moved = talker_send(t);
    return talker_recv(t) || moved;
}

static void talker_run_bell(struct talker *t)
{
    struct bell *bell = t->pair->bell[t->side];
    while (!talker_done(t)) {
        uint32_t heard = bell_heard(bell);
        if (!talker_move(t) && !talker_done(t))
            bell_wait(bell, BELL_CALLER, heard, 1000, NEVER_NS);
    }
}

static void talker_run_descriptor(struct talker *t)
{
    struct conn *conn = t->pair->conn[t->side];
    while (!talker_done(t)) {
        bool want_room = t->sent < STREAM_BYTES || end_flush(t->pair, t->side);
        if (talker_move(t) || talker_done(t))
            continue;
        conn->transport->doze(conn, true, want_room);
        if (talker_move(t)) /* the peer may have missed that we sleep */
            conn->transport->doze(conn, false, false);
        else if (!end_sleep(t->pair, t->side, want_room, clock_real() + PATIENCE_NS))
            t->bad = true;
    }
}

static void talker_run(void *arg)
{
    struct talker *t = arg;
    if (t->pair->kind->rest == REST_DESCRIPTOR)
        talker_run_descriptor(t);
    else
        talker_run_bell(t);
}

/* Each side sleeps when it can do nothing: a ring that is missing would make it sleep for ever. */
static void two_threads_talk_and_no_ring_is_missing(void **state)
{
    const struct kind *kind = *state;
    for (uint64_t seed = 1; seed <= repeat_count(10); seed++) {
        struct pair pair;
        struct talker t[2];
        struct thread thread;
        pair_open(&pair, kind, seed);
        talker_init(&t[0], &pair, 0, seed);
        talker_init(&t[1], &pair, 1, seed);
        assert_ok(thread_start(&thread, "talker", talker_run, &t[1]));
        talker_run(&t[0]);
        thread_join(&thread);
        assert_false(t[0].bad || t[1].bad);
        pair_close(&pair);
    }
}

/* ---- full and empty ---- */

/* Sends until no more fits; how much did. */
static size_t send_until_full(struct pair *pair, int side, const uint8_t *bytes, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = end_send(pair, side, bytes + done, len - done < 777 ? len - done : 777);
        assert_true(n >= 0);
        if (n == 0)
            return done;
        done += (size_t)n;
    }
    fail_msg("%zu bytes fit without being read: this has no bound", len);
    return 0;
}

/* The same, and it stays full: what is on its way somewhere inside the system has come to rest. */
static size_t fill(struct pair *pair, int side, const uint8_t *bytes, size_t len)
{
    size_t done = send_until_full(pair, side, bytes, len);
    for (int quiet = pair->kind->late ? 0 : SETTLE_LOOKS; quiet < SETTLE_LOOKS; quiet++) {
        sock_wait(NULL, 0, clock_real() + SETTLE_NS);
        size_t more = send_until_full(pair, side, bytes + done, len - done);
        done += more;
        quiet = more > 0 ? 0 : quiet;
    }
    return done;
}

static void full_and_empty(void **state)
{
    const struct kind *kind = *state;
    static uint8_t sent[16 << 20], got[16 << 20];
    struct prng prng;
    prng_init(&prng, 9);
    for (size_t i = 0; i < sizeof sent; i += 8)
        memcpy(sent + i, &(uint64_t){prng_u64(&prng)}, 8);
    struct pair pair;
    pair_open(&pair, kind, 3);
    assert_int_equal(end_recv(&pair, 0, got, 10), 0);
    for (int round = 0; round < 5; round++) {
        int side = round % 2;
        size_t len = fill(&pair, side, sent, sizeof sent), done = 0;
        assert_true(len > 0);
        assert_int_equal(end_send(&pair, side, sent, 1), 0);    /* still */
        assert_int_equal(end_send(&pair, 1 - side, "x", 1), 1); /* the other direction has its own room */
        while (done < len) {
            ssize_t n = end_recv_some(&pair, 1 - side, got + done, sizeof got - done);
            assert_true(n > 0);
            done += (size_t)n;
        }
        assert_int_equal(done, len);
        assert_memory_equal(sent, got, len);
        assert_int_equal(end_recv(&pair, 1 - side, got, 10), 0);
        assert_int_equal(end_recv_some(&pair, side, got, 10), 1);
        assert_int_equal(end_recv(&pair, side, got, 10), 0);
    }
    pair_close(&pair);
}

/* ---- the end ---- */

static void what_was_sent_before_the_close_arrives(void **state)
{
    const struct kind *kind = *state;
    static const size_t lens[] = {0, 1, 100, 900};
    uint8_t sent[900], got[1000];
    memset(sent, 0x5a, sizeof sent);
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        struct pair pair;
        pair_open(&pair, kind, 1);
        if (lens[i] > 0)
            assert_int_equal(end_send(&pair, 0, sent, lens[i]), lens[i]);
        assert_int_equal(end_send(&pair, 1, sent, 50), 50); /* nobody will read it */
        end_close(&pair, 0);
        size_t done = 0;
        ssize_t n;
        while ((n = end_recv_some(&pair, 1, got + done, sizeof got - done)) > 0)
            done += (size_t)n;
        assert_int_equal(n, HEARTH_PEER_LOST);
        assert_int_equal(done, lens[i]);
        assert_memory_equal(got, sent, done);
        assert_int_equal(end_recv_some(&pair, 1, got, 10), HEARTH_PEER_LOST);
        end_expect_lost(&pair, 1);
        pair_close(&pair);
    }
}

/* ---- bells ---- */

static void the_bell_rings_when_there_is_something_to_do(void **state)
{
    const struct kind *kind = *state;
    static uint8_t bytes[16 << 20];
    struct pair pair;
    pair_open(&pair, kind, 2);
    uint32_t heard = bell_heard(pair.bell[1]);
    assert_int_equal(end_send(&pair, 0, bytes, 10), 10);
    assert_int_not_equal(bell_heard(pair.bell[1]), heard);

    send_until_full(&pair, 0, bytes, sizeof bytes);
    heard = bell_heard(pair.bell[0]);
    assert_true(end_recv(&pair, 1, bytes, 500) > 0);
    assert_int_not_equal(bell_heard(pair.bell[0]), heard); /* room */
    assert_true(end_send(&pair, 0, bytes, 1) == 1);

    heard = bell_heard(pair.bell[1]);
    end_close(&pair, 0);
    assert_int_not_equal(bell_heard(pair.bell[1]), heard); /* the end */
    pair_close(&pair);
}

/* ---- descriptors ---- */

static void doze(struct pair *pair, int side, bool want_room)
{
    pair->conn[side]->transport->doze(pair->conn[side], true, want_room);
}

static void a_sleeper_is_woken_when_there_is_something_to_do(void **state)
{
    const struct kind *kind = *state;
    static uint8_t bytes[16 << 20];
    struct pair pair;
    pair_open(&pair, kind, 2);
    uint64_t patience = clock_real() + PATIENCE_NS;
    doze(&pair, 1, false);
    assert_int_equal(end_send(&pair, 0, bytes, 10), 10);
    assert_true(end_sleep(&pair, 1, false, patience));
    assert_int_equal(end_recv(&pair, 1, bytes, 10), 10);

    size_t len = fill(&pair, 0, bytes, sizeof bytes);
    doze(&pair, 0, true);
    for (size_t done = 0; done < len;) {
        ssize_t n = end_recv_some(&pair, 1, bytes, sizeof bytes);
        assert_true(n > 0);
        done += (size_t)n;
    }
    ssize_t sent = 0;
    do { /* room; where packets are exchanged the first may bring less than that */
        assert_true(end_sleep(&pair, 0, true, patience));
        sent = end_send(&pair, 0, bytes, 1);
    } while (sent == 0 && kind->keeps);
    assert_int_equal(sent, 1);
    assert_int_equal(end_recv_some(&pair, 1, bytes, 2), 1);

    while (end_recv(&pair, 1, bytes, 1) != 0)
        continue;
    doze(&pair, 1, false);
    end_close(&pair, 0);
    assert_true(end_sleep(&pair, 1, false, patience)); /* the end */
    assert_int_equal(end_recv_some(&pair, 1, bytes, 1), HEARTH_PEER_LOST);
    pair_close(&pair);
}

/* One that is ready all the time would make its owner spin. */
static void who_waits_sleeps(void **state)
{
    const struct kind *kind = *state;
    static uint8_t bytes[16 << 20];
    struct pair pair;
    pair_open(&pair, kind, 2);
    bool awake = true; /* for bytes; acknowledgements of the handshake may still be on their way */
    for (int i = 0; awake && i < 20; i++) {
        doze(&pair, 0, false);
        awake = end_sleep(&pair, 0, false, clock_real() + SETTLE_NS);
    }
    assert_false(awake);
    awake = true; /* for room; the system may find some more now and then */
    for (int i = 0; awake && i < 20; i++) {
        send_until_full(&pair, 0, bytes, sizeof bytes);
        doze(&pair, 0, true);
        awake = end_sleep(&pair, 0, true, clock_real() + SETTLE_NS);
    }
    assert_false(awake);
    pair_close(&pair);
}

/* ---- all cases over all kinds ---- */

typedef void case_fn(void **state);

#define ANY (1u << REST_BELL | 1u << REST_VIRTUAL | 1u << REST_DESCRIPTOR)

static const struct {
    const char *name;
    case_fn *run;
    unsigned rests; /* those it is for: on virtual time there is one thread, and nobody waits */
} cases[] = {
    {"bytes_arrive_in_order_both_ways", bytes_arrive_in_order_both_ways, ANY},
    {"full_and_empty", full_and_empty, ANY},
    {"what_was_sent_before_the_close_arrives", what_was_sent_before_the_close_arrives, ANY},
    {"two_threads_talk_and_no_ring_is_missing", two_threads_talk_and_no_ring_is_missing,
     1u << REST_BELL | 1u << REST_DESCRIPTOR},
    {"the_bell_rings_when_there_is_something_to_do", the_bell_rings_when_there_is_something_to_do,
     1u << REST_BELL},
    {"a_sleeper_is_woken_when_there_is_something_to_do", a_sleeper_is_woken_when_there_is_something_to_do,
     1u << REST_DESCRIPTOR},
    {"who_waits_sleeps", who_waits_sleeps, 1u << REST_DESCRIPTOR},
};

#define CASES (sizeof cases / sizeof *cases)

int main(void)
{
    int failed = 0;
    watchdog(300, "a transport");
    for (size_t k = 0; k < pair_kind_count; k++) {
        struct CMUnitTest tests[CASES];
        size_t count = 0;
        for (size_t i = 0; i < CASES; i++)
            if (cases[i].rests & 1u << pair_kinds[k].rest)
                tests[count++] = (struct CMUnitTest){.name = cases[i].name,
                                                     .test_func = cases[i].run,
                                                     .initial_state = (void *)(uintptr_t)&pair_kinds[k]};
        failed += _cmocka_run_group_tests(pair_kinds[k].name, tests, count, NULL, NULL);
    }
    return failed;
}
