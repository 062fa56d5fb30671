/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams arrive as they were cut, in batches or not; a port that nobody has is told of. */
#include <fcntl.h>

#include "addrs.h"
#include "os/datagram.h"
#include "support/suite.h"

#define BUFFER (1 << 21)

static uint8_t memory[DATAGRAM_LIST_MAX][DATAGRAM_BATCH];

static struct sock_addr open_port(struct datagram_port *port, const char *text)
{
    struct sock_addr local = addr_of(text), bound;
    struct error error;
    if (datagram_open(&local, BUFFER, port, &bound, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    assert_true(sock_addr_port(&bound) != 0);
    assert_int_equal(fcntl(port->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fcntl(port->fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    return bound;
}

static void fill(uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(i * 31 + i / 251);
}

/* Takes datagrams until `len` bytes have come; each has `size`, but the last. Gives how many there were. */
static int take(struct datagram_port *port, const struct sock_addr *from, const uint8_t *right, size_t len,
                size_t size)
{
    struct datagrams list[DATAGRAM_LIST_MAX];
    int count = 0;
    for (int i = 0; i < DATAGRAM_LIST_MAX; i++)
        list[i].bytes = memory[i];
    for (size_t done = 0; done < len;) {
        assert_true(ready(port->fd, false));
        int got = datagram_recv(port, list, DATAGRAM_LIST_MAX);
        for (int i = 0; i < got; i++) {
            assert_true(sock_addr_equal(&list[i].from, from));
            for (size_t at = 0; at < list[i].len; at += list[i].size) {
                size_t left = list[i].len - at, one = left < list[i].size ? left : list[i].size;
                assert_int_equal(one, len - done < size ? len - done : size);
                assert_memory_equal(list[i].bytes + at, right + done, one);
                done += one;
                count++;
            }
        }
    }
    assert_int_equal(datagram_recv(port, list, DATAGRAM_LIST_MAX), 0);
    return count;
}

static void sent_and_taken(const char *local_a, const char *local_b, size_t len, size_t size, bool segments)
{
    struct datagram_port a, b;
    uint8_t *bytes = malloc(len);
    struct sock_addr from = open_port(&a, local_a), to = open_port(&b, local_b);
    assert_non_null(bytes);
    fill(bytes, len);
    a.segments = a.segments && segments;
    assert_int_equal(datagram_send(&a, &to, bytes, len, size), HEARTH_OK);
    assert_int_equal(take(&b, &from, bytes, len, size), (len + size - 1) / size);
    assert_int_equal(datagram_send(&b, &from, bytes, 1, size), HEARTH_OK); /* and back */
    assert_int_equal(take(&a, &to, bytes, 1, size), 1);
    datagram_close(&a);
    datagram_close(&b);
    assert_int_equal(a.fd, -1);
    free(bytes);
}

TEST(one_datagram)
{
    sent_and_taken("127.0.0.1", "127.0.0.1", 1, 1200, true);
    sent_and_taken("127.0.0.1", "127.0.0.1", 1200, 1200, true);
    sent_and_taken("127.0.0.1", "127.0.0.1", DATAGRAM_BATCH, DATAGRAM_BATCH, true);
}

TEST(batches)
{
    sent_and_taken("127.0.0.1", "127.0.0.1", 2400, 1200, true);
    sent_and_taken("127.0.0.1", "127.0.0.1", 45 * 1452, 1452, true);
    sent_and_taken("127.0.0.1", "127.0.0.1", 44 * 1452 + 1, 1452, true);
    sent_and_taken("127.0.0.1", "127.0.0.1", 8 * 8000, 8000, true);
    sent_and_taken("127.0.0.1", "127.0.0.1", 100 * 64, 64, true); /* more than the system cuts at once */
}

TEST(batches_where_the_system_does_not_cut)
{
    sent_and_taken("127.0.0.1", "127.0.0.1", 44 * 1452 + 1, 1452, false);
}

TEST(both_families)
{
    sent_and_taken("[::1]", "[::1]", 20 * 1452, 1452, true);
}

/* A socket for every address talks to IPv4 and IPv6. */
TEST(a_wildcard_reaches_both_families)
{
    struct datagram_port all, v4;
    uint8_t bytes[3000];
    struct sock_addr here = open_port(&all, "[::]"), there = open_port(&v4, "127.0.0.1");
    struct sock_addr from = addr_of("127.0.0.1");
    sock_addr_set_port(&from, sock_addr_port(&here));
    fill(bytes, sizeof bytes);
    assert_int_equal(datagram_send(&all, &there, bytes, sizeof bytes, 1000), HEARTH_OK);
    assert_int_equal(take(&v4, &from, bytes, sizeof bytes, 1000), 3);
    assert_int_equal(datagram_send(&v4, &from, bytes, sizeof bytes, 1000), HEARTH_OK);
    assert_int_equal(take(&all, &there, bytes, sizeof bytes, 1000), 3);
    datagram_close(&all);
    datagram_close(&v4);
}

TEST(a_port_in_use_is_refused)
{
    struct datagram_port a, b;
    struct error error;
    char text[SOCK_TEXT_MAX];
    struct sock_addr bound = open_port(&a, "127.0.0.1");
    assert_int_equal(datagram_open(&bound, BUFFER, &b, NULL, &error), HEARTH_LIMIT);
    assert_int_equal(error.reason, HEARTH_REASON_ADDRESS_IN_USE);
    sock_addr_text(&bound, text, sizeof text);
    assert_non_null(strstr(error.text, text));
    struct sock_addr other = addr_of("unix:@nothing");
    assert_int_equal(datagram_open(&other, BUFFER, &b, NULL, &error), HEARTH_SYSTEM);
    datagram_close(&a);
}

TEST(sizes_come_from_the_interface)
{
    struct sock_addr v4 = addr_of("127.0.0.1:9"), v6 = addr_of("[::1]:9");
    assert_in_range(datagram_size(&v4), 1453, DATAGRAM_BATCH);
    assert_in_range(datagram_size(&v6), 1453, DATAGRAM_BATCH);
    struct sock_addr far = addr_of("192.0.2.1:9"); /* an example's: perhaps there is no way there */
    assert_in_range(datagram_size(&far), DATAGRAM_SIZE_SAFE, DATAGRAM_BATCH);
}

#if defined(__linux__) && !defined(HEARTH_POSIX)

/* Nobody has the port any more: the next look tells so, and quotes what was sent. Other peers are not
 * disturbed. */
TEST(a_closed_port_is_told_of)
{
    struct datagram_port a, gone, other;
    struct datagram_refusal refusal;
    struct datagrams one = {.bytes = memory[0]};
    uint8_t bytes[3000];
    struct sock_addr from = open_port(&a, "127.0.0.1"), to = open_port(&gone, "127.0.0.1");
    struct sock_addr alive = open_port(&other, "127.0.0.1");
    datagram_close(&gone);
    fill(bytes, sizeof bytes);
    assert_int_equal(datagram_send(&a, &to, bytes, sizeof bytes, 1000), HEARTH_OK);
    assert_true(ready(a.fd, false));
    assert_int_equal(datagram_send(&a, &alive, bytes, 100, 1000), HEARTH_OK);
    assert_int_equal(take(&other, &from, bytes, 100, 1000), 1);
    assert_int_equal(datagram_recv(&a, &one, 1), 0);
    assert_true(a.mishaps);
    assert_true(datagram_refused(&a, &refusal));
    assert_true(sock_addr_equal(&refusal.to, &to));
    assert_true(refusal.len >= 20);
    assert_memory_equal(refusal.quote, bytes, refusal.len);
    while (datagram_refused(&a, &refusal)) /* perhaps one for each datagram */
        assert_true(sock_addr_equal(&refusal.to, &to));
    assert_false(a.mishaps);
    struct sock_wait item = {.fd = a.fd, .want_recv = true};
    assert_int_equal(sock_wait(&item, 1, 0), 0); /* and the descriptor is quiet again */
    datagram_close(&a);
    datagram_close(&other);
}

#endif
