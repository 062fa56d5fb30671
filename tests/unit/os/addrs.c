/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses by their text, for tests of os/. */
#include "addrs.h"

#include "os/clock.h"
#include "support/suite.h"

struct sock_addr addr_of(const char *text)
{
    struct sock_addr addr;
    assert_int_equal(sock_addr_parse(text, 0, &addr), HEARTH_OK);
    return addr;
}

void assert_addr(const struct sock_addr *addr, const char *text)
{
    char found[SOCK_TEXT_MAX];
    sock_addr_text(addr, found, sizeof found);
    assert_string_equal(found, text);
}

bool ready(int fd, bool to_send)
{
    struct sock_wait item = {.fd = fd, .want_recv = !to_send, .want_send = to_send};
    return sock_wait(&item, 1, clock_real() + PATIENCE_NS) == 1 && item.ready;
}

int listen_on(const struct sock_addr *addr, struct sock_addr *bound)
{
    struct error error;
    int fd = -1;
    if (sock_listen(addr, 8, &fd, bound, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    return fd;
}

int dial_to(const struct sock_addr *addr, const struct sock_addr *from)
{
    struct error error;
    int fd = -1;
    if (sock_dial(addr, from, &fd, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    return fd;
}
