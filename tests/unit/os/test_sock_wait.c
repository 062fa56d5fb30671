/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for descriptors in a list that is longer than the process may have files open. */
#include <sys/resource.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/sock.h"
#include "support/suite.h"

#define FILES 32
#define ITEMS 100

TEST(empty_places_cost_nothing)
{
    struct rlimit before, few;
    struct sock_wait items[ITEMS];
    int fds[2];

    assert_int_equal(sock_pair(fds), HEARTH_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){.rlim_cur = FILES, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i < ITEMS; i++)
        items[i] = (struct sock_wait){.fd = -1, .want_recv = true, .ready = true};
    items[7] = (struct sock_wait){.fd = fds[0], .want_recv = true};
    items[ITEMS - 1] = (struct sock_wait){.fd = fds[1], .want_recv = true, .want_send = true};
    assert_int_equal(sock_wait(items, ITEMS, clock_real() + 10 * NS_PER_S), 1);
    for (int i = 0; i < ITEMS; i++)
        assert_int_equal(items[i].ready, i == ITEMS - 1);
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_int_equal(sock_wait(items, ITEMS, clock_real() + 10 * NS_PER_S), 2);
    assert_true(items[7].ready && items[ITEMS - 1].ready);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    sock_close(fds[0]);
    sock_close(fds[1]);
}
