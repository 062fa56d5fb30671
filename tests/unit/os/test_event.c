/* SPDX-License-Identifier: Apache-2.0 */
/* An event becomes readable when it is signalled, and stays so until it is cleared. */
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "os/event.h"
#include "support/suite.h"

static int readable(const struct event *e)
{
    struct pollfd p = {.fd = e->read_fd, .events = POLLIN};
    return poll(&p, 1, 0);
}

TEST(readable_after_the_signal)
{
    struct event e;

    assert_int_equal(event_open(&e), HEARTH_OK);
    assert_int_equal(readable(&e), 0);
    event_signal(&e);
    assert_int_equal(readable(&e), 1);
    assert_int_equal(readable(&e), 1);
    event_close(&e);
    assert_int_equal(e.read_fd, -1);
    assert_int_equal(e.write_fd, -1);
    event_close(&e);
}

TEST(a_cleared_event_can_be_signalled_again)
{
    static const int signals[] = {0, 1, 2, 31, 32, 33, 64, 1000, 20000};
    struct event e;

    assert_int_equal(event_open(&e), HEARTH_OK);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        for (int n = 0; n < signals[i]; n++)
            event_signal(&e);
        event_clear(&e);
        assert_int_equal(readable(&e), 0);
        event_clear(&e); /* nothing to clear: it does not block */
        assert_int_equal(readable(&e), 0);
        event_signal(&e);
        assert_int_equal(readable(&e), 1);
    }
    event_close(&e);
}

/* More than a pipe holds. */
TEST(signals_never_block)
{
    struct event e;

    assert_int_equal(event_open(&e), HEARTH_OK);
    for (int i = 0; i < 20000; i++)
        event_signal(&e);
    assert_int_equal(readable(&e), 1);
    event_close(&e);
}

TEST(descriptors_have_manners)
{
    struct event e;

    assert_int_equal(event_open(&e), HEARTH_OK);
    const int fds[2] = {e.read_fd, e.write_fd};
    for (int i = 0; i < 2; i++) {
        assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
        assert_true(fcntl(fds[i], F_GETFL) & O_NONBLOCK);
    }
    event_close(&e);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fcntl(fds[i], F_GETFD), -1);
}

TEST(no_descriptor_left_is_an_error)
{
    struct rlimit before, none;
    struct event e = {-7, -7};

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int status = event_open(&e);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, HEARTH_SYSTEM);
    assert_int_equal(e.read_fd, -7);
}
