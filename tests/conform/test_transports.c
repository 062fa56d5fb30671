/* SPDX-License-Identifier: Apache-2.0 */
/* What every transport must do: all cases here run over all of them. A new one adds a line to the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/prng.h"
#include "os/bell.h"
#include "support/watchdog.h"
#include "transport/mem.h"

#define PIECES_MAX 5

/* Two joined ends. */
struct pair {
    const struct kind *kind;
    struct conn *conn[2];
    struct bell *bell[2];
    void *owner;     /* of the transport */
    uint64_t now_ns; /* virtual */
};

/* A transport in one of its ways. */
struct kind {
    const char *name;
    bool is_virtual; /* time passes only in pass() */
    void (*open)(struct pair *pair, uint64_t seed);
    void (*close)(struct pair *pair); /* the ends are closed already */
};

/* ---- the transports ---- */

static void mem_open(struct pair *pair, const struct mem_setup *setup)
{
    struct mem_net *net;
    assert_int_equal(mem_net_open(setup, &net), HEARTH_OK);
    pair->owner = net;
    for (int i = 0; i < 2; i++) {
        pair->conn[i] = mem_net_conn(net, i, 1 - i);
        pair->bell[i] = mem_net_bell(net, i);
    }
}

static void mem_done(struct pair *pair)
{
    mem_net_put(pair->owner);
    mem_net_put(pair->owner);
}

static void mem_real_open(struct pair *pair, uint64_t seed)
{
    mem_open(pair, &(struct mem_setup){.size = 2, .ring_bytes = 1000 + seed % 5000});
}

static void mem_default_open(struct pair *pair, uint64_t seed)
{
    (void)seed;
    mem_open(pair, &(struct mem_setup){.size = 2});
}

static void mem_virtual_open(struct pair *pair, uint64_t seed)
{
    struct mem_setup setup = {
        .size = 2,
        .ring_bytes = 1000 + seed % 5000,
        .now_ns = &pair->now_ns,
        .bytes_per_s = 1e6,
        .latency_ns = 10000,
        .jitter_ns = 20000,
        .seed = seed,
    };
    mem_open(pair, &setup);
}

static const struct kind kinds[] = {
    {"mem", false, mem_real_open, mem_done},
    {"mem, default ring", false, mem_default_open, mem_done},
    {"mem, virtual time", true, mem_virtual_open, mem_done},
};

static void pair_open(struct pair *pair, const struct kind *kind, uint64_t seed)
{
    *pair = (struct pair){.kind = kind};
    kind->open(pair, seed);
}

static void end_close(struct pair *pair, int side)
{
    if (pair->conn[side] != NULL)
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
    if (!pair->kind->is_virtual || mem_net_next(pair->owner) == NEVER_NS)
        return false;
    pair->now_ns += 10000;
    return true;
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
    return t->bad || (t->sent == STREAM_BYTES && t->got == STREAM_BYTES);
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

static void talker_run(void *arg)
{
    struct talker *t = arg;
    struct bell *bell = t->pair->bell[t->side];
    while (!talker_done(t)) {
        uint32_t heard = bell_heard(bell);
        bool moved = talker_send(t);
        moved = talker_recv(t) || moved;
        if (!moved && !talker_done(t))
            bell_wait(bell, BELL_CALLER, heard, 1000, NEVER_NS);
    }
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
        assert_int_equal(thread_start(&thread, "talker", talker_run, &t[1]), HEARTH_OK);
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
        size_t len = send_until_full(&pair, side, sent, sizeof sent), done = 0;
        assert_true(len > 0);
        assert_int_equal(end_send(&pair, side, sent, 1), 0);    /* still */
        assert_int_equal(end_send(&pair, 1 - side, "x", 1), 1); /* the other direction has its own room */
        while (done < len) {
            ssize_t n = end_recv(&pair, 1 - side, got + done, sizeof got - done);
            assert_true(n > 0);
            done += (size_t)n;
        }
        assert_int_equal(done, len);
        assert_memory_equal(sent, got, len);
        assert_int_equal(end_recv(&pair, 1 - side, got, 10), 0);
        assert_int_equal(end_recv(&pair, side, got, 10), 1);
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
        while ((n = end_recv(&pair, 1, got + done, sizeof got - done)) > 0)
            done += (size_t)n;
        assert_int_equal(n, HEARTH_PEER_LOST);
        assert_int_equal(done, lens[i]);
        assert_memory_equal(got, sent, done);
        assert_int_equal(end_recv(&pair, 1, got, 10), HEARTH_PEER_LOST);
        assert_int_equal(end_send(&pair, 1, sent, 10), HEARTH_PEER_LOST);
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

/* ---- all cases over all kinds ---- */

typedef void case_fn(void **state);

static const struct {
    const char *name;
    case_fn *run;
    bool real_only; /* on virtual time there is one thread, and nobody waits at a bell */
} cases[] = {
    {"bytes_arrive_in_order_both_ways", bytes_arrive_in_order_both_ways, false},
    {"full_and_empty", full_and_empty, false},
    {"what_was_sent_before_the_close_arrives", what_was_sent_before_the_close_arrives, false},
    {"two_threads_talk_and_no_ring_is_missing", two_threads_talk_and_no_ring_is_missing, true},
    {"the_bell_rings_when_there_is_something_to_do", the_bell_rings_when_there_is_something_to_do, true},
};

#define KINDS (sizeof kinds / sizeof *kinds)
#define CASES (sizeof cases / sizeof *cases)

int main(void)
{
    int failed = 0;
    watchdog(300, "a transport");
    for (size_t k = 0; k < KINDS; k++) {
        struct CMUnitTest tests[CASES];
        size_t count = 0;
        for (size_t i = 0; i < CASES; i++)
            if (!cases[i].real_only || !kinds[k].is_virtual)
                tests[count++] = (struct CMUnitTest){.name = cases[i].name,
                                                     .test_func = cases[i].run,
                                                     .initial_state = (void *)(uintptr_t)&kinds[k]};
        failed += _cmocka_run_group_tests(kinds[k].name, tests, count, NULL, NULL);
    }
    return failed;
}
