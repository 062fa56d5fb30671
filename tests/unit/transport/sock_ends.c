/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a connection over sockets, and what holds for every transport that works on them. */
#include "sock_ends.h"

#include <fcntl.h>

#include "os/clock.h"
#include "support/suite.h"

void sockets_open(struct ends *e, bool loopback)
{
    struct sock_wait item = {.want_recv = true};
    struct sock_addr addr, bound;
    int fds[2];

    *e = (struct ends){.fd_a = -1};
    heap_init(&e->heap, 0);
    if (!loopback) {
        assert_int_equal(sock_pair(fds), HEARTH_OK);
        e->fd_a = fds[0];
        e->fd_b = fds[1];
        return;
    }
    assert_int_equal(sock_addr_parse("127.0.0.1:0", 0, &addr), HEARTH_OK);
    assert_int_equal(sock_listen(&addr, 1, &item.fd, &bound, NULL), HEARTH_OK);
    assert_int_equal(sock_dial(&bound, NULL, &e->fd_a, NULL), HEARTH_OK);
    assert_int_equal(sock_wait(&item, 1, clock_real() + PATIENCE_NS), 1);
    assert_int_equal(sock_accept(item.fd, &e->fd_b, NULL), HEARTH_OK);
    sock_unlisten(item.fd);
}

void close_conn(struct conn **conn)
{
    if (*conn)
        (*conn)->transport->close(*conn);
    *conn = NULL;
}

void ends_close(struct ends *e)
{
    close_conn(&e->a);
    close_conn(&e->b);
    assert_int_equal(atomic_load(&e->heap.blocks), 0);
    assert_int_equal(fcntl(e->fd_a, F_GETFD), -1);
    assert_int_equal(fcntl(e->fd_b, F_GETFD), -1);
}

void wait_for(const struct conn *conn, bool to_send)
{
    struct sock_wait item = {.want_recv = !to_send, .want_send = to_send};
    item.fd = conn->transport->descriptor(conn);
    assert_int_equal(sock_wait(&item, 1, clock_real() + PATIENCE_NS), 1);
}

ssize_t send_one(struct conn *conn, const void *bytes, size_t len)
{
    struct iovec piece = {(void *)(uintptr_t)bytes, len};
    return conn->transport->send(conn, &piece, 1);
}

void send_all(struct conn *conn, const void *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t took = send_one(conn, (const uint8_t *)bytes + done, len - done);
        assert_true(took >= 0);
        if (took == 0)
            wait_for(conn, true);
        done += (size_t)took;
    }
}

void recv_all(struct conn *conn, uint8_t *bytes, size_t len)
{
    int idle = 0;
    for (size_t done = 0; done < len;) {
        ssize_t got = conn->transport->recv(conn, bytes + done, len - done);
        assert_true(got >= 0 && (size_t)got <= len - done);
        done += (size_t)got;
        idle = got == 0 ? idle + 1 : 0;
        if (idle > 1)
            wait_for(conn, false);
    }
}

ssize_t recv_end(struct conn *conn)
{
    uint8_t byte;
    ssize_t end;
    while ((end = conn->transport->recv(conn, &byte, 1)) == 0)
        wait_for(conn, false);
    return end;
}

void fill(uint8_t *bytes, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)((i * 2654435761u + seed) >> 7);
}

/* ---- checks ---- */

static uint8_t sent[BIG], got[BIG];

void check_any_lengths(ends_open *open)
{
    static const size_t lens[] = {1, 7, 40, 96, 4095, 4096, 4097, 12288, 16384, 20000, 65536, 262144};
    enum { LENS = sizeof lens / sizeof lens[0] };
    struct ends e;

    fill(sent, BIG, 2);
    for (int loopback = 0; loopback < 2; loopback++) {
        open(&e, loopback);
        const struct holding *holding = e.a->transport->holding;
        size_t in = 0, out = 0, turn = 0;
        memset(got, 0, BIG);
        while (in < BIG) {
            if (holding)
                assert_int_not_equal(holding->flush(e.a), HEARTH_PEER_LOST);
            if (out < BIG) {
                size_t len = lens[(turn * 5 + 3) % LENS];
                ssize_t took = send_one(e.a, sent + out, len < BIG - out ? len : BIG - out);
                assert_true(took >= 0);
                out += (size_t)took;
            }
            size_t len = lens[turn++ % LENS];
            ssize_t more = e.b->transport->recv(e.b, got + in, len < BIG - in ? len : BIG - in);
            assert_true(more >= 0);
            in += (size_t)more;
        }
        assert_memory_equal(got, sent, BIG);
        assert_int_equal(e.b->transport->recv(e.b, got, 1), 0);
        ends_close(&e);
    }
}

void check_small_frames(ends_open *open)
{
    enum { LEN = 132 };
    struct ends e;

    fill(sent, LEN, 3);
    open(&e, false);
    for (size_t at = 0; at < LEN; at += 44)
        assert_int_equal(send_one(e.a, sent + at, 44), 44);
    assert_int_equal(e.b->transport->recv(e.b, got, 40), 40);
    struct sock_wait item = {.fd = e.fd_b, .want_recv = true};
    assert_int_equal(sock_wait(&item, 1, 0), 0); /* all of it has left the socket */
    for (size_t at = 40; at < LEN; at += 4)
        assert_int_equal(e.b->transport->recv(e.b, got + at, 4), 4);
    assert_memory_equal(got, sent, LEN);
    assert_int_equal(send_one(e.a, sent, 1), 1);
    assert_int_equal(e.b->transport->recv(e.b, got, 4), 0);
    assert_int_equal(e.b->transport->recv(e.b, got, 4), 1);
    /* After a look by others, asking is worth while at once. */
    assert_int_equal(send_one(e.a, sent, 1), 1);
    e.b->transport->attend(e.b);
    assert_int_equal(e.b->transport->recv(e.b, got, 4), 1);
    e.b->transport->doze(e.b, true, true);
    e.b->transport->doze(e.b, false, false);
    assert_int_equal(e.b->transport->recv(e.b, got, 0), 0);
    assert_int_equal(send_one(e.a, sent, 0), 0);
    ends_close(&e);
}

void check_heard_after_close(ends_open *open)
{
    struct ends e;

    fill(sent, BIG, 4);
    for (int loopback = 0; loopback < 2; loopback++) {
        open(&e, loopback);
        send_all(e.b, sent, 50000);
        uint8_t one;
        recv_all(e.a, &one, 1);
        /* What is held is not sure to arrive. */
        ssize_t took = send_one(e.a, sent, e.a->transport->holding ? 60000 : BIG);
        assert_true(e.a->transport->holding ? took == 60000 : took > 0);
        close_conn(&e.a);
        recv_all(e.b, got, (size_t)took);
        assert_memory_equal(got, sent, (size_t)took);
        assert_int_equal(recv_end(e.b), HEARTH_PEER_LOST);
        assert_int_equal(e.b->transport->recv(e.b, got, 1), HEARTH_PEER_LOST);
        ends_close(&e);
    }
}

void check_sending_to_nobody(ends_open *open)
{
    struct ends e;

    for (int loopback = 0; loopback < 2; loopback++) {
        open(&e, loopback);
        const struct holding *holding = e.b->transport->holding;
        send_all(e.a, "final", 5);
        close_conn(&e.a);
        wait_for(e.b, false);
        uint64_t deadline_ns = clock_real() + PATIENCE_NS;
        ssize_t took;
        while ((took = send_one(e.b, "x", 1)) >= 0)
            assert_true(clock_real() < deadline_ns);
        assert_int_equal(took, HEARTH_PEER_LOST);
        if (holding) {
            assert_int_equal(holding->flush(e.b), HEARTH_PEER_LOST);
            assert_false(holding->holds(e.b));
        }
        recv_all(e.b, got, 5);
        assert_memory_equal(got, "final", 5);
        ends_close(&e);
    }
}
