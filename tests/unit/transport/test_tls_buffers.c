/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that encrypted connections use in turns: who has one, how many stay, and no memory for more. */
#include "sock_ends.h"
#include "support/sealed.h"
#include "support/suite.h"
#include "transport/tls.h"

#define RUSH    (3 * TLS_KEPT)
#define TRIES   1000
#define MEMBERS 2 /* connections that share the buffers */

TEST(one_of_each_is_there_without_memory)
{
    struct heap heap;
    heap_init(&heap, 0);
    struct tls_buffers *buffers = tls_buffers_open(&heap);
    assert_non_null(buffers);
    atomic_store(&heap.fail_after, 0);
    for (int direction = TLS_OUT; direction <= TLS_IN; direction++) {
        uint8_t *one = tls_buffers_take(buffers, (enum tls_direction)direction);
        assert_non_null(one);
        assert_null(tls_buffers_take(buffers, (enum tls_direction)direction));
        memset(one, 1, direction == TLS_IN ? TLS_IN_BYTES : TLS_OUT_BYTES + TLS_BYE_BYTES);
        tls_buffers_give(buffers, (enum tls_direction)direction, one);
        assert_ptr_equal(tls_buffers_take(buffers, (enum tls_direction)direction), one);
        tls_buffers_give(buffers, (enum tls_direction)direction, one);
    }
    tls_buffers_close(buffers);
    assert_int_equal(heap.blocks, 0);
}

TEST(no_memory_to_open)
{
    for (int after = 0; after < 3; after++) {
        struct heap heap;
        heap_init(&heap, 0);
        atomic_store(&heap.fail_after, after);
        assert_null(tls_buffers_open(&heap));
        assert_int_equal(heap.blocks, 0);
    }
}

/* What a rush needed is kept for the next one, and freed at rest, when nobody is amid something. */
TEST(a_rush_is_forgotten_at_rest)
{
    struct heap heap;
    uint8_t *taken[RUSH];
    heap_init(&heap, 0);
    struct tls_buffers *buffers = tls_buffers_open(&heap);
    assert_non_null(buffers);
    for (int i = 0; i < RUSH; i++)
        assert_non_null(taken[i] = tls_buffers_take(buffers, TLS_IN));
    uint64_t blocks = heap.blocks, calls = heap.calls;
    for (int i = 1; i < RUSH; i++)
        tls_buffers_give(buffers, TLS_IN, taken[i]);
    tls_buffers_rest(buffers);
    assert_int_equal(heap.blocks, blocks);
    for (int i = 1; i < RUSH; i++)
        assert_non_null(taken[i] = tls_buffers_take(buffers, TLS_IN));
    assert_int_equal(heap.calls, calls);
    for (int i = 0; i < RUSH; i++)
        tls_buffers_give(buffers, TLS_IN, taken[i]);
    tls_buffers_rest(buffers);
    assert_int_equal(heap.blocks, blocks - (RUSH - TLS_KEPT));
    tls_buffers_close(buffers);
    assert_int_equal(heap.blocks, 0);
}

/* ---- connections ---- */

struct members {
    struct heap heap, peers;
    struct conn *own[MEMBERS], *peer[MEMBERS];
    uint64_t bytes; /* of the heap, at rest */
};

static struct conn *conn_over(struct heap *heap, struct tls_buffers *shared, int fd, struct records *records)
{
    struct tls_buffers *buffers = shared ? tls_buffers_share(shared) : tls_buffers_open(heap);
    assert_non_null(buffers);
    struct conn *conn = tls_conn(buffers, fd, records);
    assert_non_null(conn);
    tls_buffers_close(buffers);
    return conn;
}

static void members_open(struct members *e)
{
    heap_init(&e->heap, 0);
    heap_init(&e->peers, 0);
    struct tls_buffers *buffers = tls_buffers_open(&e->heap);
    assert_non_null(buffers);
    for (int i = 0; i < MEMBERS; i++) {
        struct records *records[2];
        int fds[2];
        assert_int_equal(sock_pair(fds), HEARTH_OK);
        sealed_pair(&e->peers, false, records);
        e->own[i] = conn_over(&e->heap, buffers, fds[0], records[0]);
        e->peer[i] = conn_over(&e->peers, NULL, fds[1], records[1]);
    }
    tls_buffers_close(buffers);
    e->bytes = e->heap.bytes;
}

static void members_close(struct members *e)
{
    for (int i = 0; i < MEMBERS; i++) {
        e->own[i]->transport->close(e->own[i]);
        e->peer[i]->transport->close(e->peer[i]);
    }
    assert_int_equal(e->heap.blocks, 0);
    assert_int_equal(e->peers.blocks, 0);
}

/* Sends until the way is full: how much that was. */
static size_t stuff(struct conn *conn, const uint8_t *bytes)
{
    size_t all = 0;
    for (ssize_t took; (took = send_one(conn, bytes, BIG)) != 0; all += (size_t)took)
        assert_true(took > 0);
    return all;
}

/* Takes `len` bytes out of one end, while the other goes on to send what it holds. */
static void empty(struct conn *from, struct conn *to, size_t len, uint8_t *bytes)
{
    for (size_t done = 0; done < len;) {
        ssize_t got = to->transport->recv(to, bytes, BIG);
        assert_true(got >= 0);
        done += (size_t)got;
        assert_true(from->transport->holding->flush(from) != HEARTH_PEER_LOST);
    }
}

TEST(at_rest_a_connection_holds_nothing)
{
    uint8_t *bytes = calloc(1, BIG);
    struct members e;
    members_open(&e);
    assert_true(e.bytes < TLS_IN_BYTES + TLS_OUT_BYTES + MEMBERS * 4096);
    for (int i = 0; i < MEMBERS; i++) { /* one after the other they use the same two */
        empty(e.own[i], e.peer[i], stuff(e.own[i], bytes), bytes);
        empty(e.peer[i], e.own[i], stuff(e.peer[i], bytes), bytes);
        assert_int_equal(e.heap.bytes, e.bytes);
    }
    stuff(e.own[0], bytes);
    stuff(e.own[1], bytes);
    assert_true(e.heap.bytes > e.bytes);
    members_close(&e);
    free(bytes);
}

/* Nothing is lost, and whoever waits hears of it where he waits for room. */
TEST(without_a_buffer_one_waits_for_another)
{
    uint8_t *bytes = calloc(1, BIG);
    struct members e;
    members_open(&e);
    const struct holding *holding = e.own[0]->transport->holding;
    atomic_store(&e.heap.fail_after, 0);
    size_t all = stuff(e.own[0], bytes);
    assert_int_equal(send_one(e.own[1], "later", 5), 0);
    assert_true(holding->holds(e.own[1]));
    assert_int_equal(holding->flush(e.own[1]), HEARTH_OK);
    assert_int_equal(send_one(e.own[1], "later", 5), 0);
    empty(e.own[0], e.peer[0], all, bytes);
    assert_int_equal(send_one(e.own[1], "later", 5), 5);
    assert_false(holding->holds(e.own[1]));
    empty(e.own[1], e.peer[1], 5, bytes);
    assert_memory_equal(bytes, "later", 5);
    members_close(&e);
    free(bytes);
}

/* The only buffer for what comes is held for the rest of a record that was read. */
TEST(without_a_buffer_nothing_is_read)
{
    uint8_t byte;
    struct members e;
    members_open(&e);
    atomic_store(&e.heap.fail_after, 0);
    assert_int_equal(send_one(e.peer[0], "ab", 2), 2);
    assert_int_equal(send_one(e.peer[1], "c", 1), 1);
    assert_int_equal(e.own[0]->transport->recv(e.own[0], &byte, 1), 1);
    for (int i = 0; i < TRIES; i++)
        assert_int_equal(e.own[1]->transport->recv(e.own[1], &byte, 1), 0);
    assert_int_equal(e.own[0]->transport->recv(e.own[0], &byte, 1), 1);
    assert_int_equal(byte, 'b');
    assert_int_equal(e.own[1]->transport->recv(e.own[1], &byte, 1), 1);
    assert_int_equal(byte, 'c');
    members_close(&e);
}
