/* SPDX-License-Identifier: Apache-2.0 */
/* What the system says of a TCP connection over loopback; of other things it says nothing. */
#include <sys/uio.h>

#include "os/clock.h"
#include "os/sock.h"
#include "support/suite.h"

#define HELD_BYTES 16384

static int listener, near, far;

static int connect_both(void **state)
{
    struct sock_addr addr, bound, from;
    struct error error;

    (void)state;
    assert_int_equal(sock_addr_parse("127.0.0.1", 0, &addr), HEARTH_OK);
    assert_int_equal(sock_listen(&addr, 1, &listener, &bound, &error), HEARTH_OK);
    assert_int_equal(sock_dial(&bound, NULL, &near, &error), HEARTH_OK);
    struct sock_wait wait = {.fd = listener, .want_recv = true};
    sock_wait(&wait, 1, clock_real() + 10 * NS_PER_S);
    assert_int_equal(sock_accept(listener, &far, &from), HEARTH_OK);
    assert_int_equal(sock_dialled(near, &bound, &error), HEARTH_OK);
    return 0;
}

static int close_both(void **state)
{
    (void)state;
    sock_close(near);
    sock_close(far);
    sock_close(listener);
    return 0;
}

/* How much goes into a connection that nobody reads. */
static size_t fill(void)
{
    static char bytes[4096];
    struct iovec piece = {bytes, sizeof bytes};
    size_t all = 0;

    for (ssize_t len; (len = sock_send(near, &piece, 1)) > 0;)
        all += (size_t)len;
    return all;
}

TEST_WITH(a_round_trip_is_known_where_the_system_tells, connect_both, close_both)
{
#if defined(__linux__) && !defined(HEARTH_POSIX)
    assert_in_range(tcp_least_round_trip(near), 1, 10 * NS_PER_S);
#else
    assert_int_equal(tcp_least_round_trip(near), 0);
#endif
}

TEST(of_other_things_none_is_known)
{
    int pair[2];

    assert_int_equal(sock_pair(pair), HEARTH_OK);
    assert_int_equal(tcp_least_round_trip(pair[0]), 0);
    tcp_hold_back(pair[0], HELD_BYTES);
    sock_close(pair[0]);
    sock_close(pair[1]);
    assert_int_equal(tcp_least_round_trip(-1), 0);
}

TEST_WITH(less_waits_when_it_is_held_back, connect_both, close_both)
{
    tcp_hold_back(near, HELD_BYTES);
    size_t held = fill();
    assert_true(held > 0);
#if defined(__linux__) && !defined(HEARTH_POSIX)
    tcp_hold_back(near, 0);
    assert_true(fill() > HELD_BYTES);
#endif
}
