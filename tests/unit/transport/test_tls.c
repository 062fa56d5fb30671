/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes over sockets in records: whole, in order, never in clear; how many records and reads they take; what
 * is held; forged and cut streams. */
#include <fcntl.h>

#include "sock_ends.h"
#include "support/sealed.h"
#include "support/suite.h"
#include "transport/tls.h"

#define HEADER 96u

static struct ends e;
static struct records *bare_records; /* of an end that is a bare socket */

/* With buffers that it alone uses. */
static struct conn *conn_over(struct heap *heap, int fd, struct records *records)
{
    struct tls_buffers *buffers = tls_buffers_open(heap);
    assert_non_null(buffers);
    struct conn *conn = tls_conn(buffers, fd, records);
    tls_buffers_close(buffers);
    return conn;
}

static void open_ends(struct ends *both, bool loopback)
{
    struct records *records[2];
    sockets_open(both, loopback);
    sealed_pair(&both->heap, false, records);
    both->a = conn_over(&both->heap, both->fd_a, records[0]);
    both->b = conn_over(&both->heap, both->fd_b, records[1]);
    assert_non_null(both->a);
    assert_non_null(both->b);
    assert_string_equal(both->a->transport->scheme, "tls");
    assert_int_equal(both->a->transport->descriptor(both->a), both->fd_a);
}

static int open_bare(void **state)
{
    struct records *records[2];
    (void)state;
    sockets_open(&e, false);
    sealed_pair(&e.heap, false, records);
    e.a = conn_over(&e.heap, e.fd_a, records[0]);
    assert_non_null(e.a);
    bare_records = records[1];
    return 0;
}

static int close_bare(void **state)
{
    (void)state;
    sock_close(e.fd_b);
    records_close(bare_records);
    ends_close(&e);
    return 0;
}

/* What has come to the bare end, as it is on the wire. */
static size_t bare_read(uint8_t *bytes, size_t len_max)
{
    struct iovec place = {bytes, len_max};
    ssize_t got = sock_recv(e.fd_b, &place, 1);
    assert_true(got >= 0);
    return (size_t)got;
}

static void bare_write(const uint8_t *bytes, size_t len)
{
    struct iovec piece = {(void *)(uintptr_t)bytes, len};
    assert_int_equal(sock_send(e.fd_b, &piece, 1), len);
}

static size_t bare_seal(const void *bytes, size_t len, uint8_t *record)
{
    struct iovec piece = {(void *)(uintptr_t)bytes, len};
    return records_seal(bare_records, &piece, 1, len, record);
}

/* ---- what goes over the wire ---- */

TEST_WITH(a_short_frame_is_one_record, open_bare, close_bare)
{
    uint8_t header[HEADER] = {0}, wire[1000], plain[1000];
    struct iovec pieces[3] = {{header, HEADER}, {"", 0}, {"payload", 7}};

    assert_int_equal(e.a->transport->send(e.a, pieces, 3), HEADER + 7);
    assert_false(e.a->transport->holding->holds(e.a));
    assert_int_equal(bare_read(wire, sizeof wire), HEADER + 7 + RECORD_EXTRA);
    assert_int_equal(records_open_one(bare_records, wire, HEADER + 7 + RECORD_EXTRA, plain), HEADER + 7);
    assert_memory_equal(plain + HEADER, "payload", 7);
}

/* The header alone, then the payload in records as long as they may be: each can go straight to its place. */
TEST_WITH(a_long_frame_is_cut_at_its_payload, open_bare, close_bare)
{
    static const size_t lens[] = {HEADER, 16384, 16384, 232};
    static uint8_t payload[33000], wire[40000], plain[RECORD_DATA_MAX];
    uint8_t header[HEADER] = {0};
    struct iovec pieces[2] = {{header, HEADER}, {payload, sizeof payload}};

    fill(payload, sizeof payload, 1);
    assert_int_equal(e.a->transport->send(e.a, pieces, 2), HEADER + sizeof payload);
    size_t got = bare_read(wire, sizeof wire), at = 0, done = 0;
    assert_int_equal(got, HEADER + sizeof payload + 4 * RECORD_EXTRA);
    for (size_t i = 0; i < 4; i++) {
        size_t len = records_length(wire + at);
        assert_int_equal(len, lens[i] + RECORD_EXTRA);
        assert_int_equal(records_open_one(bare_records, wire + at, len, plain), lens[i]);
        if (i > 0)
            assert_memory_equal(plain, payload + done - HEADER, lens[i]);
        at += len;
        done += lens[i];
    }
}

TEST_WITH(nothing_is_in_clear, open_bare, close_bare)
{
    static uint8_t wire[100000], plain[60000];

    memset(plain, 'S', sizeof plain);
    send_all(e.a, plain, sizeof plain);
    size_t got = bare_read(wire, sizeof wire);
    assert_true(got > sizeof plain);
    for (size_t i = 0; i + 8 <= got; i++)
        assert_memory_not_equal(wire + i, "SSSSSSSS", 8);
}

TEST(any_lengths_give_the_same_stream)
{
    check_any_lengths(open_ends);
}

/* Records that come in pieces, cut at every place. */
TEST_WITH(cut_at_every_byte, open_bare, close_bare)
{
    uint8_t wire[400], got[200];

    for (size_t cut = 0; cut <= 2 * (HEADER + RECORD_EXTRA); cut++) {
        uint8_t sent[2 * HEADER];
        fill(sent, sizeof sent, (unsigned)cut);
        size_t len = bare_seal(sent, HEADER, wire);
        len += bare_seal(sent + HEADER, HEADER, wire + len);
        if (cut > 0)
            bare_write(wire, cut);
        size_t whole = cut / (HEADER + RECORD_EXTRA) * HEADER;
        recv_all(e.a, got, whole);
        assert_int_equal(e.a->transport->recv(e.a, got + whole, sizeof got - whole), 0);
        if (cut < len)
            bare_write(wire + cut, len - cut);
        recv_all(e.a, got + whole, sizeof sent - whole);
        assert_memory_equal(got, sent, sizeof sent);
    }
}

TEST(small_frames_come_in_one_read)
{
    check_small_frames(open_ends);
}

/* ---- held ---- */

TEST(what_does_not_fit_is_held_and_leaves_later)
{
    uint8_t *sent = malloc(BIG), *got = malloc(BIG);

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
        ends_close(&e);
    }
    free(sent);
    free(got);
}

/* ---- endings ---- */

TEST(what_was_sent_is_heard_after_close)
{
    check_heard_after_close(open_ends);
}

TEST_WITH(the_last_record_is_a_goodbye, open_bare, close_bare)
{
    uint8_t wire[100], plain[100];

    assert_int_equal(send_one(e.a, "words", 5), 5);
    close_conn(&e.a);
    assert_int_equal(bare_read(wire, sizeof wire), 5 + RECORD_EXTRA + 2 + RECORD_EXTRA);
    assert_int_equal(records_open_one(bare_records, wire, 5 + RECORD_EXTRA, plain), 5);
    assert_int_equal(records_open_one(bare_records, wire + 5 + RECORD_EXTRA, 2 + RECORD_EXTRA, plain),
                     HEARTH_PEER_LOST);
}

/* After a goodbye nothing counts, and it need not close the socket. */
TEST_WITH(a_goodbye_ends_it, open_bare, close_bare)
{
    uint8_t wire[200], got[10];

    size_t len = bare_seal("last", 4, wire);
    len += records_bye(bare_records, wire + len);
    len += bare_seal("more", 4, wire + len);
    bare_write(wire, len);
    recv_all(e.a, got, 4);
    assert_memory_equal(got, "last", 4);
    assert_int_equal(recv_end(e.a), HEARTH_PEER_LOST);
    assert_int_equal(recv_end(e.a), HEARTH_PEER_LOST);
}

/* Whole records count, the rest does not. */
TEST(a_cut_stream_is_the_end)
{
    uint8_t wire[200], got[10];

    for (size_t cut = 1; cut < 6 + RECORD_EXTRA; cut++) {
        open_bare(NULL);
        size_t len = bare_seal("whole", 5, wire);
        bare_seal("cutoff", 6, wire + len);
        bare_write(wire, len + cut);
        sock_finish(e.fd_b);
        recv_all(e.a, got, 5);
        assert_int_equal(recv_end(e.a), HEARTH_PEER_LOST);
        close_bare(NULL);
    }
}

TEST(a_forged_record_gives_nothing)
{
    uint8_t wire[300], got[200];

    for (size_t at = 0; at < 100 + RECORD_EXTRA; at++) {
        open_bare(NULL);
        size_t len = bare_seal("good", 4, wire);
        fill(got, 100, 1);
        size_t bad = len;
        len += bare_seal(got, 100, wire + len);
        len += bare_seal("late", 4, wire + len);
        wire[bad + at] ^= 0x10;
        bare_write(wire, len);
        sock_finish(e.fd_b); /* where it says that it is longer than it is, nothing more will come */
        assert_int_equal(e.a->transport->recv(e.a, got, sizeof got), 4);
        assert_memory_equal(got, "good", 4);
        ssize_t end = recv_end(e.a);
        assert_true(end == HEARTH_PROTOCOL || (end == HEARTH_PEER_LOST && (at == 3 || at == 4)));
        assert_int_equal(recv_end(e.a), end);
        close_bare(NULL);
    }
}

TEST(sending_to_nobody_fails)
{
    check_sending_to_nobody(open_ends);
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
