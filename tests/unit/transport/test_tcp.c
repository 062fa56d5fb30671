/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes over sockets: whole and in order however they are cut, read ahead, heard after the peer closed. */
#include <fcntl.h>

#include "sock_ends.h"
#include "support/suite.h"
#include "transport/tcp.h"

static void open_ends(struct ends *e, bool loopback)
{
    sockets_open(e, loopback);
    e->a = tcp_conn(&e->heap, e->fd_a);
    e->b = tcp_conn(&e->heap, e->fd_b);
    assert_non_null(e->a);
    assert_non_null(e->b);
    assert_string_equal(e->a->transport->scheme, "tcp");
    assert_int_equal(e->a->transport->descriptor(e->a), e->fd_a);
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
        ends_close(&e);
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
    ends_close(&e);
}

/* ---- readahead ---- */

TEST(any_lengths_give_the_same_stream)
{
    check_any_lengths(open_ends);
}

TEST(small_frames_come_in_one_read)
{
    check_small_frames(open_ends);
}

/* ---- endings ---- */

TEST(what_was_sent_is_heard_after_close)
{
    check_heard_after_close(open_ends);
}

TEST(sending_to_nobody_fails)
{
    check_sending_to_nobody(open_ends);
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
        ends_close(&e);
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
