/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes over sockets: whole and in order however they are cut, read ahead, heard after the peer closed. */
#include <fcntl.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/sock.h"
#include "support/suite.h"
#include "transport/tcp.h"

#define PATIENCE_NS (30 * NS_PER_S) /* against hangs only */
#define BIG         (3u << 20)

struct ends {
    struct heap heap;
    struct conn *a, *b;
    int fd_a, fd_b;
};

static void wait_for(const struct conn *conn, bool to_send)
{
    struct sock_wait item = {.want_recv = !to_send, .want_send = to_send};
    item.fd = conn->transport->descriptor(conn);
    assert_int_equal(sock_wait(&item, 1, clock_real() + PATIENCE_NS), 1);
}

static void open_pair(struct ends *e)
{
    int fds[2];
    assert_int_equal(sock_pair(fds), HEARTH_OK);
    e->fd_a = fds[0];
    e->fd_b = fds[1];
}

static void open_loopback(struct ends *e)
{
    struct sock_wait item = {.want_recv = true};
    struct sock_addr addr, bound;

    assert_int_equal(sock_addr_parse("127.0.0.1:0", 0, &addr), HEARTH_OK);
    assert_int_equal(sock_listen(&addr, 1, &item.fd, &bound, NULL), HEARTH_OK);
    assert_int_equal(sock_dial(&bound, NULL, &e->fd_a, NULL), HEARTH_OK);
    assert_int_equal(sock_wait(&item, 1, clock_real() + PATIENCE_NS), 1);
    assert_int_equal(sock_accept(item.fd, &e->fd_b, NULL), HEARTH_OK);
    sock_unlisten(item.fd);
}

static void open_ends(struct ends *e, bool loopback)
{
    heap_init(&e->heap, 0);
    if (loopback)
        open_loopback(e);
    else
        open_pair(e);
    e->a = tcp_conn(&e->heap, e->fd_a);
    e->b = tcp_conn(&e->heap, e->fd_b);
    assert_non_null(e->a);
    assert_non_null(e->b);
    assert_string_equal(e->a->transport->scheme, "tcp");
    assert_int_equal(e->a->transport->descriptor(e->a), e->fd_a);
}

static void close_conn(struct conn **conn)
{
    if (*conn)
        (*conn)->transport->close(*conn);
    *conn = NULL;
}

static void close_ends(struct ends *e)
{
    close_conn(&e->a);
    close_conn(&e->b);
    assert_int_equal(atomic_load(&e->heap.blocks), 0);
    assert_int_equal(fcntl(e->fd_a, F_GETFD), -1);
    assert_int_equal(fcntl(e->fd_b, F_GETFD), -1);
}

static void send_all(struct conn *conn, const uint8_t *bytes, size_t len)
{
    size_t done = 0;
    while (done < len) {
        struct iovec piece = {(void *)(uintptr_t)(bytes + done), len - done};
        ssize_t took = conn->transport->send(conn, &piece, 1);
        assert_true(took >= 0);
        if (took == 0)
            wait_for(conn, true);
        done += (size_t)took;
    }
}

/* Exactly len bytes, however often one must ask. */
static void recv_all(struct conn *conn, uint8_t *bytes, size_t len)
{
    size_t done = 0;
    int idle = 0;
    while (done < len) {
        ssize_t got = conn->transport->recv(conn, bytes + done, len - done);
        assert_true(got >= 0 && (size_t)got <= len - done);
        done += (size_t)got;
        idle = got == 0 ? idle + 1 : 0;
        if (idle > 1)
            wait_for(conn, false);
    }
}

static void fill(uint8_t *bytes, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)((i * 2654435761u + seed) >> 7);
}

/* ---- cuts ---- */

/* Frames of 40 + 4 bytes as a link reads them: header, payload, header. The cut goes to every place. */
TEST(cut_at_every_byte)
{
    uint8_t sent[132], got[132];
    struct ends e;

    fill(sent, sizeof sent, 1);
    for (int loopback = 0; loopback < 2; loopback++) {
        open_ends(&e, loopback);
        for (size_t cut = 0; cut <= sizeof sent; cut++) {
            memset(got, 0, sizeof got);
            send_all(e.a, sent, cut);
            size_t at = 0; /* the receiver's reads stop where its frames do */
            for (int frame = 0; frame < 3; frame++) {
                if (at + 44 > cut)
                    break;
                recv_all(e.b, got + at, 40);
                recv_all(e.b, got + at + 40, 4);
                at += 44;
            }
            recv_all(e.b, got + at, cut - at);
            send_all(e.a, sent + cut, sizeof sent - cut);
            recv_all(e.b, got + cut, sizeof sent - cut);
            assert_memory_equal(got, sent, sizeof sent);
        }
        close_ends(&e);
    }
}

TEST(pieces_of_one_frame_stay_together)
{
    struct iovec pieces[3] = {{"head", 4}, {"", 0}, {"payload", 7}};
    struct ends e;
    uint8_t got[11];

    open_ends(&e, true);
    assert_int_equal(e.a->transport->send(e.a, pieces, 3), 11);
    recv_all(e.b, got, 11);
    assert_memory_equal(got, "headpayload", 11);
    close_ends(&e);
}

/* ---- readahead ---- */

/* Whatever lengths are asked for, below and above the readahead, the stream is the same. */
TEST(any_lengths_give_the_same_stream)
{
    static const size_t lens[] = {1, 7, 40, 4095, 4096, 4097, 12288, 16384, 20000, 65536, 262144};
    uint8_t *sent = malloc(BIG), *got = malloc(BIG);
    struct ends e;

    fill(sent, BIG, 2);
    for (int loopback = 0; loopback < 2; loopback++) {
        open_ends(&e, loopback);
        size_t in = 0, out = 0, turn = 0;
        memset(got, 0, BIG);
        while (in < BIG) {
            if (out < BIG) {
                size_t len = lens[(turn * 5 + 3) % 11];
                struct iovec piece = {sent + out, len < BIG - out ? len : BIG - out};
                ssize_t took = e.a->transport->send(e.a, &piece, 1);
                assert_true(took >= 0);
                out += (size_t)took;
            }
            size_t len = lens[turn++ % 11];
            ssize_t more = e.b->transport->recv(e.b, got + in, len < BIG - in ? len : BIG - in);
            assert_true(more >= 0);
            in += (size_t)more;
        }
        assert_memory_equal(got, sent, BIG);
        assert_int_equal(e.b->transport->recv(e.b, got, 1), 0);
        close_ends(&e);
    }
    free(sent);
    free(got);
}

/* One read brings three frames; the first "nothing" after it costs no look at the socket. */
TEST(small_frames_come_in_one_read)
{
    uint8_t sent[132], got[132];
    struct ends e;

    fill(sent, sizeof sent, 3);
    open_ends(&e, false);
    send_all(e.a, sent, sizeof sent);
    assert_int_equal(e.b->transport->recv(e.b, got, 40), 40);
    struct sock_wait item = {.fd = e.fd_b, .want_recv = true};
    assert_int_equal(sock_wait(&item, 1, 0), 0); /* all of it has left the socket */
    for (size_t at = 40; at < sizeof got; at += 4)
        assert_int_equal(e.b->transport->recv(e.b, got + at, 4), 4);
    assert_memory_equal(got, sent, sizeof sent);
    send_all(e.a, sent, 1);
    assert_int_equal(e.b->transport->recv(e.b, got, 4), 0);
    assert_int_equal(e.b->transport->recv(e.b, got, 4), 1);
    /* After a look by others, asking is worth while at once. */
    send_all(e.a, sent, 1);
    e.b->transport->attend(e.b);
    assert_int_equal(e.b->transport->recv(e.b, got, 4), 1);
    e.b->transport->doze(e.b, true, true);
    e.b->transport->doze(e.b, false, false);
    assert_int_equal(e.b->transport->recv(e.b, got, 0), 0);
    close_ends(&e);
}

/* ---- endings ---- */

TEST(what_was_sent_is_heard_after_close)
{
    uint8_t *sent = malloc(BIG), *got = malloc(BIG);
    struct ends e;

    fill(sent, BIG, 4);
    for (int loopback = 0; loopback < 2; loopback++) {
        open_ends(&e, loopback);
        /* The one that closes has not read what the other sent: that must not take its own words back. */
        send_all(e.b, sent, 50000);
        uint8_t one;
        recv_all(e.a, &one, 1);
        struct iovec piece = {sent, BIG};
        ssize_t took = e.a->transport->send(e.a, &piece, 1);
        assert_true(took > 0);
        close_conn(&e.a);
        recv_all(e.b, got, (size_t)took);
        assert_memory_equal(got, sent, (size_t)took);
        ssize_t end;
        while ((end = e.b->transport->recv(e.b, got, 1)) == 0)
            wait_for(e.b, false);
        assert_int_equal(end, HEARTH_PEER_LOST);
        assert_int_equal(e.b->transport->recv(e.b, got, 1), HEARTH_PEER_LOST);
        close_ends(&e);
    }
    free(sent);
    free(got);
}

/* Sending to one that is gone fails; what it said before is still there to be heard. */
TEST(sending_to_nobody_fails)
{
    uint8_t got[5];
    struct ends e;

    for (int loopback = 0; loopback < 2; loopback++) {
        open_ends(&e, loopback);
        send_all(e.a, (const uint8_t *)"final", 5);
        close_conn(&e.a);
        wait_for(e.b, false);
        struct iovec piece = {"x", 1};
        uint64_t deadline_ns = clock_real() + PATIENCE_NS;
        ssize_t took;
        while ((took = e.b->transport->send(e.b, &piece, 1)) >= 0)
            assert_true(clock_real() < deadline_ns);
        assert_int_equal(took, HEARTH_PEER_LOST);
        recv_all(e.b, got, 5);
        assert_memory_equal(got, "final", 5);
        close_ends(&e);
    }
}

TEST(a_full_connection_takes_more_later)
{
    uint8_t *sent = malloc(BIG), *got = malloc(BIG);
    struct iovec piece = {sent, BIG};
    struct ends e;
    size_t out = 0;
    ssize_t took;

    fill(sent, BIG, 5);
    for (int loopback = 0; loopback < 2; loopback++, out = 0) {
        open_ends(&e, loopback);
        while ((took = e.a->transport->send(e.a, &piece, 1)) > 0)
            out += (size_t)took;
        assert_int_equal(took, 0);
        for (size_t in = 0; in < out;) {
            size_t len = out - in < BIG ? out - in : BIG;
            recv_all(e.b, got, len);
            in += len;
        }
        wait_for(e.a, true);
        assert_true(e.a->transport->send(e.a, &piece, 1) > 0);
        close_ends(&e);
    }
    free(sent);
    free(got);
}

TEST(no_memory_closes_the_descriptor)
{
    struct heap heap;
    int fds[2];

    heap_init(&heap, 0);
    atomic_store(&heap.fail_after, 0);
    assert_int_equal(sock_pair(fds), HEARTH_OK);
    assert_null(tcp_conn(&heap, fds[0]));
    assert_int_equal(fcntl(fds[0], F_GETFD), -1);
    sock_close(fds[1]);
}
