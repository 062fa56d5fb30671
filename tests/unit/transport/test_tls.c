/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes over sockets in records: whole, in order, never in clear; how many records and reads they take; what
 * is held; forged and cut streams. */
#include <fcntl.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/sock.h"
#include "support/sealed.h"
#include "support/suite.h"
#include "transport/tls.h"

#define PATIENCE_NS (30 * NS_PER_S) /* against hangs only */
#define BIG         (3u << 20)
#define HEADER      96u

/* End a is a connection; end b too, or a bare socket with its records. */
struct ends {
    struct heap heap;
    struct conn *a, *b;
    int fd_a, fd_b;
    struct records *records; /* of the bare end */
};

/* With buffers that it alone uses. */
static struct conn *conn_over(struct heap *heap, int fd, struct records *records)
{
    struct tls_buffers *buffers = tls_buffers_open(heap);
    assert_non_null(buffers);
    struct conn *conn = tls_conn(buffers, fd, records);
    tls_buffers_close(buffers);
    return conn;
}

static void open_sockets(struct ends *e, bool loopback)
{
    struct sock_wait item = {.want_recv = true};
    struct sock_addr addr, bound;
    int fds[2];
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

static void open_ends(struct ends *e, bool loopback)
{
    struct records *records[2];
    *e = (struct ends){0};
    open_sockets(e, loopback);
    sealed_pair(&e->heap, false, records);
    e->a = conn_over(&e->heap, e->fd_a, records[0]);
    e->b = conn_over(&e->heap, e->fd_b, records[1]);
    assert_non_null(e->a);
    assert_non_null(e->b);
    assert_string_equal(e->a->transport->scheme, "tls");
    assert_int_equal(e->a->transport->descriptor(e->a), e->fd_a);
}

static void open_bare(struct ends *e)
{
    struct records *records[2];
    *e = (struct ends){0};
    open_sockets(e, false);
    sealed_pair(&e->heap, false, records);
    e->a = conn_over(&e->heap, e->fd_a, records[0]);
    assert_non_null(e->a);
    e->records = records[1];
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
    if (e->records)
        sock_close(e->fd_b);
    records_close(e->records);
    close_conn(&e->b);
    assert_int_equal(atomic_load(&e->heap.blocks), 0);
    assert_int_equal(fcntl(e->fd_a, F_GETFD), -1);
    assert_int_equal(fcntl(e->fd_b, F_GETFD), -1);
}

/* ---- moving ---- */

static void wait_for(const struct conn *conn, bool to_send)
{
    struct sock_wait item = {.want_recv = !to_send, .want_send = to_send};
    item.fd = conn->transport->descriptor(conn);
    assert_int_equal(sock_wait(&item, 1, clock_real() + PATIENCE_NS), 1);
}

static ssize_t send_one(struct conn *conn, const void *bytes, size_t len)
{
    struct iovec piece = {(void *)(uintptr_t)bytes, len};
    return conn->transport->send(conn, &piece, 1);
}

static void send_all(struct conn *conn, const uint8_t *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t took = send_one(conn, bytes + done, len - done);
        assert_true(took >= 0);
        if (took == 0)
            wait_for(conn, true);
        done += (size_t)took;
    }
}

/* Exactly len bytes, however often one must ask. */
static void recv_all(struct conn *conn, uint8_t *bytes, size_t len)
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

static ssize_t recv_end(struct conn *conn)
{
    uint8_t byte;
    ssize_t end;
    while ((end = conn->transport->recv(conn, &byte, 1)) == 0)
        wait_for(conn, false);
    return end;
}

static void fill(uint8_t *bytes, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)((i * 2654435761u + seed) >> 7);
}

/* What has come to the bare end, as it is on the wire. */
static size_t bare_read(const struct ends *e, uint8_t *bytes, size_t len_max)
{
    struct iovec place = {bytes, len_max};
    ssize_t got = sock_recv(e->fd_b, &place, 1);
    assert_true(got >= 0);
    return (size_t)got;
}

static void bare_write(const struct ends *e, const uint8_t *bytes, size_t len)
{
    struct iovec piece = {(void *)(uintptr_t)bytes, len};
    assert_int_equal(sock_send(e->fd_b, &piece, 1), len);
}

static size_t bare_seal(const struct ends *e, const void *bytes, size_t len, uint8_t *record)
{
    struct iovec piece = {(void *)(uintptr_t)bytes, len};
    return records_seal(e->records, &piece, 1, len, record);
}

/* ---- what goes over the wire ---- */

TEST(a_short_frame_is_one_record)
{
    uint8_t header[HEADER] = {0}, wire[1000], plain[1000];
    struct iovec pieces[3] = {{header, HEADER}, {"", 0}, {"payload", 7}};
    struct ends e;

    open_bare(&e);
    assert_int_equal(e.a->transport->send(e.a, pieces, 3), HEADER + 7);
    assert_false(e.a->transport->holding->holds(e.a));
    assert_int_equal(bare_read(&e, wire, sizeof wire), HEADER + 7 + RECORD_EXTRA);
    assert_int_equal(records_open_one(e.records, wire, HEADER + 7 + RECORD_EXTRA, plain), HEADER + 7);
    assert_memory_equal(plain + HEADER, "payload", 7);
    close_ends(&e);
}

/* The header alone, then the payload in records as long as they may be: each can go straight to its place. */
TEST(a_long_frame_is_cut_at_its_payload)
{
    static const size_t lens[] = {HEADER, 16384, 16384, 232};
    static uint8_t payload[33000], wire[40000], plain[RECORD_DATA_MAX];
    uint8_t header[HEADER] = {0};
    struct iovec pieces[2] = {{header, HEADER}, {payload, sizeof payload}};
    struct ends e;

    open_bare(&e);
    fill(payload, sizeof payload, 1);
    assert_int_equal(e.a->transport->send(e.a, pieces, 2), HEADER + sizeof payload);
    size_t got = bare_read(&e, wire, sizeof wire), at = 0, done = 0;
    assert_int_equal(got, HEADER + sizeof payload + 4 * RECORD_EXTRA);
    for (size_t i = 0; i < 4; i++) {
        size_t len = records_length(wire + at);
        assert_int_equal(len, lens[i] + RECORD_EXTRA);
        assert_int_equal(records_open_one(e.records, wire + at, len, plain), lens[i]);
        if (i > 0)
            assert_memory_equal(plain, payload + done - HEADER, lens[i]);
        at += len;
        done += lens[i];
    }
    close_ends(&e);
}

TEST(nothing_is_in_clear)
{
    static uint8_t wire[100000], plain[60000];
    struct ends e;

    open_bare(&e);
    memset(plain, 'S', sizeof plain);
    send_all(e.a, plain, sizeof plain);
    size_t got = bare_read(&e, wire, sizeof wire);
    assert_true(got > sizeof plain);
    for (size_t i = 0; i + 8 <= got; i++)
        assert_memory_not_equal(wire + i, "SSSSSSSS", 8);
    close_ends(&e);
}

TEST(any_lengths_give_the_same_stream)
{
    static const size_t lens[] = {1, 7, 96, 4095, 4096, 4097, 12288, 16384, 20000, 65536, 262144};
    uint8_t *sent = malloc(BIG), *got = malloc(BIG);
    struct ends e;

    fill(sent, BIG, 2);
    for (int loopback = 0; loopback < 2; loopback++) {
        open_ends(&e, loopback);
        size_t in = 0, out = 0, turn = 0;
        memset(got, 0, BIG);
        while (in < BIG) {
            assert_int_not_equal(e.a->transport->holding->flush(e.a), HEARTH_PEER_LOST);
            if (out < BIG) {
                size_t len = lens[(turn * 5 + 3) % 11];
                ssize_t took = send_one(e.a, sent + out, len < BIG - out ? len : BIG - out);
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

/* Records that come in pieces, cut at every place. */
TEST(cut_at_every_byte)
{
    uint8_t wire[400], got[200];
    struct ends e;

    open_bare(&e);
    for (size_t cut = 0; cut <= 2 * (HEADER + RECORD_EXTRA); cut++) {
        uint8_t sent[2 * HEADER];
        fill(sent, sizeof sent, (unsigned)cut);
        size_t len = bare_seal(&e, sent, HEADER, wire);
        len += bare_seal(&e, sent + HEADER, HEADER, wire + len);
        if (cut > 0)
            bare_write(&e, wire, cut);
        size_t whole = cut / (HEADER + RECORD_EXTRA) * HEADER;
        recv_all(e.a, got, whole);
        assert_int_equal(e.a->transport->recv(e.a, got + whole, sizeof got - whole), 0);
        if (cut < len)
            bare_write(&e, wire + cut, len - cut);
        recv_all(e.a, got + whole, sizeof sent - whole);
        assert_memory_equal(got, sent, sizeof sent);
    }
    close_ends(&e);
}

/* One read brings three frames; the first "nothing" after it costs no look at the socket. */
TEST(small_frames_come_in_one_read)
{
    uint8_t sent[132], got[132];
    struct ends e;

    fill(sent, sizeof sent, 3);
    open_ends(&e, false);
    for (size_t at = 0; at < sizeof sent; at += 44)
        assert_int_equal(send_one(e.a, sent + at, 44), 44);
    assert_int_equal(e.b->transport->recv(e.b, got, 40), 40);
    struct sock_wait item = {.fd = e.fd_b, .want_recv = true};
    assert_int_equal(sock_wait(&item, 1, 0), 0); /* all of it has left the socket */
    for (size_t at = 40; at < sizeof got; at += 4)
        assert_int_equal(e.b->transport->recv(e.b, got + at, 4), 4);
    assert_memory_equal(got, sent, sizeof sent);
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
    close_ends(&e);
}

/* ---- held ---- */

TEST(what_does_not_fit_is_held_and_leaves_later)
{
    uint8_t *sent = malloc(BIG), *got = malloc(BIG);
    struct ends e;

    fill(sent, BIG, 5);
    for (int loopback = 0; loopback < 2; loopback++) {
        open_ends(&e, loopback);
        const struct holding *holding = e.a->transport->holding;
        size_t out = 0, in = 0;
        ssize_t took;
        while ((took = send_one(e.a, sent, BIG)) > 0)
            out += (size_t)took;
        assert_int_equal(took, 0);
        assert_true(holding->holds(e.a));
        assert_int_equal(holding->flush(e.a), HEARTH_PENDING);
        assert_true(holding->due(e.a) == NEVER_NS);
        while (in < out) {
            ssize_t n = e.b->transport->recv(e.b, got, BIG);
            assert_true(n >= 0);
            in += (size_t)n;
            assert_int_not_equal(holding->flush(e.a), HEARTH_PEER_LOST);
        }
        assert_false(holding->holds(e.a));
        assert_int_equal(holding->flush(e.a), HEARTH_OK);
        assert_int_equal(in, out);
        close_ends(&e);
    }
    free(sent);
    free(got);
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
        assert_int_equal(send_one(e.a, sent, 60000), 60000);
        close_conn(&e.a);
        recv_all(e.b, got, 60000);
        assert_memory_equal(got, sent, 60000);
        assert_int_equal(recv_end(e.b), HEARTH_PEER_LOST);
        assert_int_equal(e.b->transport->recv(e.b, got, 1), HEARTH_PEER_LOST);
        close_ends(&e);
    }
    free(sent);
    free(got);
}

TEST(the_last_record_is_a_goodbye)
{
    uint8_t wire[100], plain[100];
    struct ends e;

    open_bare(&e);
    assert_int_equal(send_one(e.a, "words", 5), 5);
    close_conn(&e.a);
    assert_int_equal(bare_read(&e, wire, sizeof wire), 5 + RECORD_EXTRA + 2 + RECORD_EXTRA);
    assert_int_equal(records_open_one(e.records, wire, 5 + RECORD_EXTRA, plain), 5);
    assert_int_equal(records_open_one(e.records, wire + 5 + RECORD_EXTRA, 2 + RECORD_EXTRA, plain),
                     HEARTH_PEER_LOST);
    close_ends(&e);
}

/* After a goodbye nothing counts, and it need not close the socket. */
TEST(a_goodbye_ends_it)
{
    uint8_t wire[200], got[10];
    struct ends e;

    open_bare(&e);
    size_t len = bare_seal(&e, "last", 4, wire);
    len += records_bye(e.records, wire + len);
    len += bare_seal(&e, "more", 4, wire + len);
    bare_write(&e, wire, len);
    recv_all(e.a, got, 4);
    assert_memory_equal(got, "last", 4);
    assert_int_equal(recv_end(e.a), HEARTH_PEER_LOST);
    assert_int_equal(recv_end(e.a), HEARTH_PEER_LOST);
    close_ends(&e);
}

/* Whole records count, the rest does not. */
TEST(a_cut_stream_is_the_end)
{
    uint8_t wire[200], got[10];

    for (size_t cut = 1; cut < 6 + RECORD_EXTRA; cut++) {
        struct ends e;
        open_bare(&e);
        size_t len = bare_seal(&e, "whole", 5, wire);
        bare_seal(&e, "cutoff", 6, wire + len);
        bare_write(&e, wire, len + cut);
        sock_finish(e.fd_b);
        recv_all(e.a, got, 5);
        assert_int_equal(recv_end(e.a), HEARTH_PEER_LOST);
        close_ends(&e);
    }
}

TEST(a_forged_record_gives_nothing)
{
    uint8_t wire[300], got[200];

    for (size_t at = 0; at < 100 + RECORD_EXTRA; at++) {
        struct ends e;
        open_bare(&e);
        size_t len = bare_seal(&e, "good", 4, wire);
        fill(got, 100, 1);
        size_t bad = len;
        len += bare_seal(&e, got, 100, wire + len);
        len += bare_seal(&e, "late", 4, wire + len);
        wire[bad + at] ^= 0x10;
        bare_write(&e, wire, len);
        sock_finish(e.fd_b); /* where it says that it is longer than it is, nothing more will come */
        assert_int_equal(e.a->transport->recv(e.a, got, sizeof got), 4);
        assert_memory_equal(got, "good", 4);
        ssize_t end = recv_end(e.a);
        assert_true(end == HEARTH_PROTOCOL || (end == HEARTH_PEER_LOST && (at == 3 || at == 4)));
        assert_int_equal(recv_end(e.a), end);
        close_ends(&e);
    }
}

TEST(sending_to_nobody_fails)
{
    uint8_t got[5];
    struct ends e;

    for (int loopback = 0; loopback < 2; loopback++) {
        open_ends(&e, loopback);
        send_all(e.a, (const uint8_t *)"final", 5);
        close_conn(&e.a);
        wait_for(e.b, false);
        uint64_t deadline_ns = clock_real() + PATIENCE_NS;
        ssize_t took;
        while ((took = send_one(e.b, "x", 1)) >= 0)
            assert_true(clock_real() < deadline_ns);
        assert_int_equal(took, HEARTH_PEER_LOST);
        assert_int_equal(e.b->transport->holding->flush(e.b), HEARTH_PEER_LOST);
        assert_false(e.b->transport->holding->holds(e.b));
        recv_all(e.b, got, 5);
        assert_memory_equal(got, "final", 5);
        close_ends(&e);
    }
}

TEST(no_memory_closes_everything)
{
    struct records *records[2];
    struct heap heap;
    int fds[2];

    heap_init(&heap, 0);
    assert_int_equal(sock_pair(fds), HEARTH_OK);
    sealed_pair(&heap, false, records);
    struct tls_buffers *buffers = tls_buffers_open(&heap);
    assert_non_null(buffers);
    atomic_store(&heap.fail_after, 0);
    assert_null(tls_conn(buffers, fds[0], records[0]));
    assert_int_equal(fcntl(fds[0], F_GETFD), -1);
    tls_buffers_close(buffers);
    records_close(records[1]);
    sock_close(fds[1]);
    assert_int_equal(heap.blocks, 0);
}
