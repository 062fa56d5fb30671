/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the listener, connects, looks. */
#include "listening.h"

#include "os/clock.h"
#include "os/random.h"
#include "support/suite.h"

struct heap heap;
struct listener *listener;
uint64_t now_ns;
struct listener_self self = {.instance = 0x11, .rank = 1};
struct greeting good = {
    .kind = GREETING_GREET,
    .from = 3,
    .to = 1,
    .from_instance = 0x33,
    .to_instance = 0x11,
};
struct greeting greeted;
struct notes notes;

int listening_open(void)
{
    struct half_open_setup setup = {.heap = &heap, .patience_ns = GREETING_NS};
    struct error error;

    heap_init(&heap, 0);
    setup.log = notes_log(&notes, "HEARTH-STRANGER");
    now_ns = clock_real();
    if (random_bytes(&self.cluster, sizeof self.cluster))
        return -1;
    self.cluster |= 1;
    good.cluster = self.cluster;
    if (sock_addr_parse("127.0.0.1:0", 0, &setup.listen))
        return -1;
    return listener_open(&setup, &listener, &error) == HEARTH_OK ? 0 : -1;
}

int come_from(const char *text)
{
    struct sock_addr to = half_open_addr(listener->half_open), from;
    struct error error;
    int fd = -1, status = HEARTH_PENDING;

    assert_int_equal(sock_addr_parse(text, 0, &from), HEARTH_OK);
    assert_int_equal(sock_dial(&to, &from, &fd, &error), HEARTH_OK);
    for (int i = 0; i < LOOKS_MAX && status == HEARTH_PENDING; i++) {
        struct sock_wait wait = {.fd = fd, .want_send = true};
        (void)sock_wait(&wait, 1, clock_real() + 50 * NS_PER_MS);
        status = sock_dialled(fd, &to, &error);
    }
    assert_int_equal(status, HEARTH_OK);
    return fd;
}

int come(void)
{
    return come_from("127.0.0.1:0");
}

void say(int fd, const void *bytes, size_t len)
{
    struct iovec piece = {(void *)(uintptr_t)bytes, len};

    assert_int_equal(sock_send(fd, &piece, 1), (int)len);
}

void greet(int fd, const struct greeting *g)
{
    uint8_t bytes[GREETING_LEN];

    greeting_encode(g, bytes);
    say(fd, bytes, sizeof bytes);
}

int closed_after(int fd)
{
    uint8_t bytes[256];
    struct iovec piece = {bytes, sizeof bytes};
    int count = 0;

    for (int i = 0; i < LOOKS_MAX; i++) {
        struct sock_wait wait = {.fd = fd, .want_recv = true};
        half_open_pump(listener->half_open, now_ns);
        (void)sock_wait(&wait, 1, clock_real() + 50 * NS_PER_MS);
        ssize_t len = sock_recv(fd, &piece, 1);
        if (len < 0)
            return count;
        count += (int)len;
    }
    return -1;
}

static bool is_taken(void *incoming)
{
    half_open_pump(listener->half_open, now_ns);
    return listener_take(listener, incoming, &greeted);
}

bool taken(struct half_open_incoming *incoming)
{
    return look(is_taken, incoming, -1);
}

static bool so_many_stand(void *count)
{
    half_open_pump(listener->half_open, now_ns);
    return half_open_strangers(listener->half_open) == *(int *)count;
}

void assert_standing(int count)
{
    (void)look(so_many_stand, &count, -1);
    assert_int_equal(half_open_strangers(listener->half_open), count);
}

void close_all(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        sock_close(fds[i]);
}
