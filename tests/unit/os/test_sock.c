/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses as text and bytes; sockets listen, dial, move bytes and descriptors, and have manners. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "addrs.h"
#include "os/clock.h"
#include "support/suite.h"

static struct error error;

/* ---- addresses ---- */

TEST(text_and_back)
{
    static const char *const same[] = {"192.168.1.2:52416", "0.0.0.0:0",       "[::1]:80",     "[::]:65535",
                                       "[2001:db8::7]:1",   "unix:/run/x y/z", "unix:@job-7:a"};
    static const char *const others[][2] = {{"10.0.0.1", "10.0.0.1:77"},
                                            {"::1", "[::1]:77"},
                                            {"[::1]", "[::1]:77"},
                                            {"::ffff:10.0.0.1", "10.0.0.1:77"},
                                            {"[fe80::1%lo]:5", "[fe80::1%lo]:5"},
                                            {"[2001:db8::7%lo]:5", "[2001:db8::7]:5"}};
    char text[SOCK_TEXT_MAX], longest[113];
    struct sock_addr addr;

    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        assert_int_equal(sock_addr_parse(same[i], 77, &addr), HEARTH_OK);
        assert_addr(&addr, same[i]);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_int_equal(sock_addr_parse(others[i][0], 77, &addr), HEARTH_OK);
        assert_addr(&addr, others[i][1]);
    }
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "unix:/", 6);
    longest[112] = '\0';
    addr = addr_of(longest);
    assert_addr(&addr, longest);
    addr.len = 0;
    assert_addr(&addr, "none");
    sock_addr_text(&addr, text, 3);
    assert_string_equal(text, "no");
}

TEST(bad_text_is_refused)
{
    static const char *const bad[][9] = {
        {"", "host", "host:1", "1.2.3", "1.2.3.4.5", "127.1", "256.1.1.1", "01.2.3.4.5", "0x7f000001:8080"},
        {"1.2.3.4:", "1.2.3.4:x", "1.2.3.4:65536", "1.2.3.4:123456", "1.2.3.4:-1", "1.2.3.4 :1",
         "1.2.3.4:+80"},
        {"[::1", "[::1]x", "[::1]:", "[::1]:99999", "[1.2.3.4]:1", "::1:zz", "[::g]:1", "[]:1", ":1"},
        {"[fe80::1%]:1", "[::1%none0]:1", "\xff", "1.2.3.4\n"},
        {"unix:", "unix:relative", "unix:@", "unix:@a/b", "unix:@.hidden", "unix:@a b", "unix:@a\x01b"},
    };
    char longer[256];
    struct sock_addr addr = {.len = 7};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (size_t k = 0; k < 9 && bad[i][k]; k++)
            assert_int_equal(sock_addr_parse(bad[i][k], 1, &addr), HEARTH_INVALID);
    memset(longer, '1', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(sock_addr_parse(longer, 1, &addr), HEARTH_INVALID);
    memcpy(longer, "unix:/", 6);
    assert_int_equal(sock_addr_parse(longer, 1, &addr), HEARTH_INVALID);
    memcpy(longer, "unix:@", 6);
    assert_int_equal(sock_addr_parse(longer, 1, &addr), HEARTH_INVALID);
    longer[5 + SOCK_PATH_MAX + 1] = '\0'; /* one more than fits */
    memcpy(longer, "unix:/", 6);
    assert_int_equal(sock_addr_parse(longer, 1, &addr), HEARTH_INVALID);
    longer[6 + SOCK_NAME_MAX + 1] = '\0';
    memcpy(longer, "unix:@", 6);
    assert_int_equal(sock_addr_parse(longer, 1, &addr), HEARTH_INVALID);
    assert_int_equal(addr.len, 7);
    longer[6 + SOCK_NAME_MAX] = '\0';
    assert_int_equal(sock_addr_parse(longer, 1, &addr), HEARTH_OK);
}

TEST(addresses_know_what_they_are)
{
    static const struct {
        const char *text;
        enum sock_family family;
        uint16_t port;
        bool loopback, wildcard;
    } rows[] = {
        {"127.0.0.1:5", SOCK_IPV4, 5, true, false},  {"127.9.9.9:5", SOCK_IPV4, 5, true, false},
        {"128.0.0.1:5", SOCK_IPV4, 5, false, false}, {"0.0.0.0:5", SOCK_IPV4, 5, false, true},
        {"[::1]:9", SOCK_IPV6, 9, true, false},      {"[::2]:9", SOCK_IPV6, 9, false, false},
        {"[::]:9", SOCK_IPV6, 9, false, true},       {"unix:/x", SOCK_UNIX, 0, true, false},
        {"unix:@x", SOCK_UNIX, 0, true, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sock_addr addr = addr_of(rows[i].text), other = addr;
        assert_int_equal(sock_addr_family(&addr), rows[i].family);
        assert_int_equal(sock_addr_port(&addr), rows[i].port);
        assert_int_equal(sock_addr_loopback(&addr), rows[i].loopback);
        assert_int_equal(sock_addr_wildcard(&addr), rows[i].wildcard);
        assert_true(sock_addr_equal(&addr, &other));
        sock_addr_set_port(&other, 999);
        assert_int_equal(sock_addr_equal(&addr, &other), rows[i].family == SOCK_UNIX);
        for (size_t j = 0; j < sizeof rows / sizeof rows[0]; j++) {
            other = addr_of(rows[j].text);
            assert_int_equal(sock_addr_equal(&addr, &other), i == j);
        }
    }
    struct sock_addr none = {.len = 0};
    assert_int_equal(sock_addr_family(&none), SOCK_NONE);
    assert_false(sock_addr_loopback(&none));
}

static void assert_travels(const char *text, const struct net_addr *expected)
{
    struct sock_addr addr = addr_of(text), back;
    struct net_addr net;

    assert_true(sock_addr_to_net(&addr, &net));
    if (expected)
        assert_memory_equal(&net, expected, sizeof net);
    else
        assert_true(net.scope > 0);
    back = sock_addr_of(&net);
    assert_true(sock_addr_equal(&addr, &back));
}

TEST(as_they_travel_and_back)
{
    struct net_addr mapped = {6, 5, 0, {[10] = 0xff, 0xff, 10, 0, 0, 1}}, net; /* IPv4 in IPv6 */
    struct sock_addr path = addr_of("unix:/x"), back = sock_addr_of(&mapped);

    assert_travels("10.0.0.1:4660", &(struct net_addr){4, 4660, 0, {10, 0, 0, 1}});
    assert_travels("[2001:db8::7]:4660", &(struct net_addr){6, 4660, 0, {0x20, 1, 0xd, 0xb8, [15] = 7}});
    assert_travels("[fe80::1%lo]:5", NULL);
    assert_addr(&back, "10.0.0.1:5");
    assert_false(sock_addr_to_net(&path, &net));
}

/* ---- addresses that one machine may have for the asking count as one ---- */

static uint64_t network(const char *text)
{
    struct sock_addr addr = addr_of(text);
    return sock_addr_network(&addr);
}

TEST(one_network)
{
    static const char *const same[][2] = {
        {"192.0.2.7:1", "192.0.2.7:2"},
        {"192.0.2.7:1", "[::ffff:192.0.2.7]:9"},
        {"[2001:db8:1:2::1]:1", "[2001:db8:1:2:ffff:ffff:ffff:ffff]:2"},
        {"[fe80::1]:1", "[fe80::2]:1"},
        {"unix:/tmp/a", "unix:@b"},
    };

    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        assert_true(network(same[i][0]) == network(same[i][1]));
}

TEST(different_networks)
{
    static const char *const all[] = {
        "192.0.2.7:1",         "192.0.2.8:1",         "0.0.0.0:1",   "[::1]:1",     "[2001:db8:1:2::1]:1",
        "[2001:db8:1:3::1]:1", "[2001:db8:2:2::1]:1", "[fe80::1]:1", "unix:/tmp/a",
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (size_t k = 0; k < i; k++)
            assert_false(network(all[i]) == network(all[k]));
}

/* The same prefix is used on every link. */
TEST(links_have_their_own)
{
    assert_false(network("[fe80::1%lo]:1") == network("[fe80::1]:1"));
    assert_true(network("[fe80::1%lo]:1") == network("[fe80::2%lo]:1"));
}

/* ---- connections ---- */

static void assert_manners(int fd)
{
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

/* Both ends of a connection to an address, the listener beside them. */
static void join(const char *text, int ends[2], int *listener)
{
    struct sock_addr bound, from, addr = addr_of(text);

    *listener = listen_on(&addr, &bound);
    assert_int_equal(sock_accept(*listener, &ends[1], &from), HEARTH_PENDING);
    ends[0] = dial_to(&bound, NULL);
    assert_true(ready(ends[0], true));
    assert_int_equal(sock_dialled(ends[0], &bound, &error), HEARTH_OK);
    assert_true(ready(*listener, false));
    assert_int_equal(sock_accept(*listener, &ends[1], &from), HEARTH_OK);
    assert_manners(*listener);
    assert_manners(ends[0]);
    assert_manners(ends[1]);
    if (sock_addr_family(&addr) == SOCK_UNIX) {
        assert_true(sock_same_user(ends[0]));
        assert_true(sock_same_user(ends[1]));
    } else {
        struct sock_addr here;
        assert_true(sock_addr_port(&bound) != 0);
        assert_int_equal(sock_local(ends[0], &here), HEARTH_OK);
        assert_true(sock_addr_equal(&here, &from));
    }
}

static void part(const int ends[2], int listener)
{
    sock_close(ends[0]);
    sock_close(ends[1]);
    sock_unlisten(listener);
}

static void exchange(const int ends[2])
{
    char got[4][4] = {"", "", "", ""};
    struct iovec out[3] = {{"ab", 2}, {"", 0}, {"cde", 3}};
    struct iovec in[2] = {{got[0], 2}, {got[1], 4}};

    assert_int_equal(sock_recv(ends[1], in, 2), 0);
    assert_int_equal(sock_send(ends[0], out, 3), 5);
    assert_true(ready(ends[1], false));
    assert_int_equal(sock_recv(ends[1], in, 2), 5);
    assert_memory_equal(got[0], "ab", 2);
    assert_memory_equal(got[1], "cde", 3);
    assert_int_equal(sock_recv(ends[1], in, 1), 0);
    in[0].iov_len = 0;
    assert_int_equal(sock_recv(ends[1], in, 1), 0);
    in[0].iov_len = 2;

    sock_finish(ends[0]);
    assert_true(ready(ends[1], false));
    assert_int_equal(sock_recv(ends[1], in, 1), HEARTH_PEER_LOST);
    assert_int_equal(sock_send(ends[1], &(struct iovec){"late", 4}, 1), 4);
    assert_true(ready(ends[0], false));
    assert_int_equal(sock_recv(ends[0], &(struct iovec){got, 16}, 1), 4);
    assert_memory_equal(got, "late", 4);
    assert_int_equal(sock_send(ends[0], out, 3), HEARTH_PEER_LOST);
    assert_int_equal(sock_send(ends[0], out, 1), HEARTH_PEER_LOST);
}

TEST(every_family_connects)
{
    char file[64];
    snprintf(file, sizeof file, "unix:/tmp/hearth-test-sock-%d", (int)getpid());
    const char *const where[] = {"127.0.0.1:0", "[::1]:0", "[::]:0", file, "unix:@hearth-test-sock"};

    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        int ends[2], listener;
        join(where[i], ends, &listener);
        exchange(ends);
        part(ends, listener);
    }
    assert_int_equal(access(file + 5, F_OK), -1);
}

/* "::" hears IPv4, and says so in plain IPv4. */
TEST(every_interface_means_both_families)
{
    struct sock_addr any = addr_of("[::]:0"), bound, from, to = addr_of("127.0.0.1:0");
    int listener = listen_on(&any, &bound), fds[2];

    sock_addr_set_port(&to, sock_addr_port(&bound));
    struct sock_addr here = addr_of("127.0.0.2:0");
    fds[0] = dial_to(&to, &here);
    assert_true(ready(listener, false));
    assert_int_equal(sock_accept(listener, &fds[1], &from), HEARTH_OK);
    sock_addr_set_port(&from, 0);
    assert_true(sock_addr_equal(&from, &here));
    assert_int_equal(sock_local(fds[1], &from), HEARTH_OK);
    assert_true(sock_addr_equal(&from, &to));
    part(fds, listener);
}

TEST(an_address_in_use_is_a_limit)
{
    static const char *const where[] = {"127.0.0.1:0", "unix:@hearth-test-twice",
                                        "unix:/tmp/hearth-test-twice"};

    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        struct sock_addr addr = addr_of(where[i]), bound;
        char text[SOCK_TEXT_MAX];
        int first = listen_on(&addr, &bound), second = -7;
        assert_int_equal(sock_listen(&bound, 8, &second, NULL, &error), HEARTH_LIMIT);
        assert_int_equal(error.reason, HEARTH_REASON_ADDRESS_IN_USE);
        assert_int_equal(second, -7);
        sock_addr_text(&bound, text, sizeof text);
        assert_non_null(strstr(error.text, text));
        sock_unlisten(first);
        second = listen_on(&bound, NULL);
        sock_unlisten(second);
    }
}

TEST(a_file_nobody_listens_on_is_replaced)
{
    struct sock_addr addr = addr_of("unix:/tmp/hearth-test-stale");
    struct stat s;
    int fd = listen_on(&addr, NULL);

    assert_int_equal(stat("/tmp/hearth-test-stale", &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    sock_close(fd); /* as a process does that is killed */
    assert_int_equal(access("/tmp/hearth-test-stale", F_OK), 0);
    assert_int_equal(sock_dial(&addr, NULL, &fd, &error), HEARTH_PEER_LOST);
    fd = listen_on(&addr, NULL);
    sock_unlisten(fd);
    assert_int_equal(sock_dial(&addr, NULL, &fd, &error), HEARTH_PEER_LOST);

    /* Anything but a socket stays. */
    int file = open("/tmp/hearth-test-stale", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(sock_listen(&addr, 8, &fd, NULL, &error), HEARTH_LIMIT);
    assert_int_equal(access("/tmp/hearth-test-stale", F_OK), 0);
    unlink("/tmp/hearth-test-stale");
}

/* Somebody has just stopped listening there. */
static struct sock_addr deserted(void)
{
    struct sock_addr addr = addr_of("127.0.0.1:0"), bound;
    sock_unlisten(listen_on(&addr, &bound));
    return bound;
}

TEST(nobody_there_is_a_lost_peer)
{
    struct sock_addr bound = deserted();
    char text[SOCK_TEXT_MAX];
    int fd;

    sock_addr_text(&bound, text, sizeof text);
    int status = sock_dial(&bound, NULL, &fd, &error);
    if (status == HEARTH_OK) {
        assert_true(ready(fd, true));
        assert_int_equal(sock_dialled(fd, &bound, &error), HEARTH_PEER_LOST);
        assert_int_equal(error.reason, HEARTH_REASON_UNREACHABLE);
        assert_int_equal(sock_dialled(fd, &bound, NULL), HEARTH_PEER_LOST); /* and stays so */
        sock_close(fd);
    } else {
        assert_int_equal(status, HEARTH_PEER_LOST);
    }
    assert_non_null(strstr(error.text, text));
    assert_non_null(strstr(error.text, strerror(ECONNREFUSED)));
}

/* The kernel lets a socket dial itself: both ends are one. Such a connection is none. */
TEST(nobody_meets_itself)
{
    struct sock_addr bound = deserted();
    int fd = dial_to(&bound, &bound);

    assert_true(ready(fd, true));
    assert_int_equal(sock_dialled(fd, &bound, &error), HEARTH_PEER_LOST);
    sock_close(fd);
}

TEST(an_address_of_others_cannot_be_listened_on)
{
    struct sock_addr addr = addr_of("192.0.2.77:1"), from = addr_of("127.0.0.1:0");
    int fd = -7;

    assert_int_equal(sock_listen(&addr, 8, &fd, NULL, &error), HEARTH_SYSTEM);
    assert_non_null(strstr(error.text, "192.0.2.77:1"));
    assert_int_equal(sock_dial(&from, &addr, &fd, &error), HEARTH_SYSTEM);
    assert_non_null(strstr(error.text, "192.0.2.77:1"));
    assert_int_equal(fd, -7);
    addr = addr_of("unix:/nowhere/at/all");
    assert_int_equal(sock_listen(&addr, 8, &fd, NULL, &error), HEARTH_SYSTEM);
    sock_close(-1);
    sock_unlisten(-1);
}

TEST(no_descriptor_left)
{
    struct sock_addr addr = addr_of("127.0.0.1:0"), bound;
    struct rlimit before, none;
    int listener = listen_on(&addr, &bound), fd = dial_to(&bound, NULL), other = -7, pair[2];

    assert_true(ready(listener, false));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int accepted = sock_accept(listener, &other, NULL);
    int listened = sock_listen(&addr, 8, &other, NULL, &error);
    int dialled = sock_dial(&bound, NULL, &other, &error);
    int paired = sock_pair(pair);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(accepted, HEARTH_LIMIT);
    assert_int_equal(listened, HEARTH_SYSTEM);
    assert_int_equal(dialled, HEARTH_SYSTEM);
    assert_int_equal(paired, HEARTH_SYSTEM);
    assert_int_equal(other, -7);
    assert_int_equal(sock_accept(listener, &other, NULL), HEARTH_OK);
    sock_close(other);
    sock_close(fd);
    sock_unlisten(listener);
    assert_int_equal(sock_accept(listener, &other, NULL), HEARTH_SYSTEM);
}

TEST(a_full_socket_takes_no_more)
{
    static char bytes[1 << 16];
    struct iovec piece = {bytes, sizeof bytes};
    int fds[2];
    ssize_t done;
    size_t sent = 0, got = 0;

    assert_int_equal(sock_pair(fds), HEARTH_OK);
    assert_manners(fds[0]);
    while ((done = sock_send(fds[0], &piece, 1)) > 0)
        sent += (size_t)done;
    assert_int_equal(done, 0);
    struct sock_wait items[3] = {
        {.fd = fds[0], .want_send = true}, {.fd = -1, .want_recv = true}, {.fd = fds[1]}};
    assert_int_equal(sock_wait(items, 3, 0), 0);
    items[2].want_recv = true;
    assert_int_equal(sock_wait(items, 3, NEVER_NS), 1);
    assert_true(items[2].ready && !items[0].ready && !items[1].ready);
    while ((done = sock_recv(fds[1], &piece, 1)) > 0)
        got += (size_t)done;
    assert_int_equal(got, sent);
    assert_int_equal(sock_wait(items, 3, NEVER_NS), 1);
    assert_true(items[0].ready && !items[2].ready);
    sock_close(fds[1]);
    items[0].want_send = false; /* broken is told unasked */
    assert_int_equal(sock_wait(items, 1, NEVER_NS), 1);
    assert_int_equal(sock_send(fds[0], &piece, 1), HEARTH_PEER_LOST);
    assert_int_equal(sock_recv(fds[0], &piece, 1), HEARTH_PEER_LOST);
    sock_close(fds[0]);
}

TEST(waiting_ends_at_its_deadline)
{
    struct sock_wait item = {.want_recv = true};
    int fds[2];

    assert_int_equal(sock_pair(fds), HEARTH_OK);
    item.fd = fds[0];
    uint64_t deadline_ns = clock_real() + 2 * NS_PER_MS;
    assert_int_equal(sock_wait(&item, 1, deadline_ns), 0);
    assert_true(clock_real() >= deadline_ns);
    assert_int_equal(sock_wait(&item, 1, 1), 0);
    assert_int_equal(sock_wait(NULL, 0, 1), 0);
    part(fds, -1);
}

#define FILES 32
#define ITEMS 100 /* a list that is longer than the process may have files open */

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
    part(fds, -1);
}

TEST(no_signal_is_raised)
{
    int fds[2];

    assert_ptr_equal(signal(SIGPIPE, SIG_DFL), SIG_DFL);
    assert_int_equal(sock_pair(fds), HEARTH_OK);
    sock_close(fds[1]);
    struct iovec two[2] = {{"a", 1}, {"b", 1}};
    assert_int_equal(sock_send(fds[0], two, 1), HEARTH_PEER_LOST);
    assert_int_equal(sock_send(fds[0], two, 2), HEARTH_PEER_LOST);
    assert_int_equal(sock_send_fds(fds[0], "m", 1, fds, 1), HEARTH_PEER_LOST);
    sock_close(fds[0]);
}

TEST(tuning)
{
    struct sock_tuning options = {.congestion = true, .send_bytes = 100000, .recv_bytes = 120000};
    int ends[2], listener, value;
    socklen_t len = sizeof value;

    join("127.0.0.1:0", ends, &listener);
    for (int i = 0; i < 2; i++) {
        sock_tune(ends[i], &options);
        assert_int_equal(getsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &value, &len), 0);
        assert_int_not_equal(value, 0);
        assert_int_equal(getsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &value, &len), 0);
        assert_true(value >= 100000);
#if defined(TCP_CONGESTION)
        char name[16] = "";
        len = sizeof name;
        assert_int_equal(getsockopt(ends[i], IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
        assert_string_not_equal(name, "bbr");
        len = sizeof value;
#endif
    }
    exchange(ends);
    part(ends, listener);
    assert_int_equal(sock_pair(ends), HEARTH_OK);
    sock_tune(ends[0], &options); /* what does not apply is left alone */
    exchange(ends);
    part(ends, -1);
}

/* ---- what the system says of TCP ---- */

#define HELD_BYTES 16384

/* How much goes into a connection that nobody reads. */
static size_t fill(int fd)
{
    static char bytes[4096];
    struct iovec piece = {bytes, sizeof bytes};
    size_t all = 0;

    for (ssize_t len; (len = sock_send(fd, &piece, 1)) > 0;)
        all += (size_t)len;
    return all;
}

TEST(a_round_trip_is_known_where_the_system_tells)
{
    int ends[2], listener;

    join("127.0.0.1:0", ends, &listener);
#if defined(__linux__) && !defined(HEARTH_POSIX)
    assert_in_range(tcp_least_round_trip(ends[0]), 1, 10 * NS_PER_S);
#else
    assert_int_equal(tcp_least_round_trip(ends[0]), 0);
#endif
    part(ends, listener);
}

TEST(of_other_things_none_is_known)
{
    int pair[2];

    assert_int_equal(sock_pair(pair), HEARTH_OK);
    assert_int_equal(tcp_least_round_trip(pair[0]), 0);
    tcp_hold_back(pair[0], HELD_BYTES);
    part(pair, -1);
    assert_int_equal(tcp_least_round_trip(-1), 0);
}

TEST(less_waits_when_it_is_held_back)
{
    int ends[2], listener;

    join("127.0.0.1:0", ends, &listener);
    tcp_hold_back(ends[0], HELD_BYTES);
    assert_true(fill(ends[0]) > 0);
#if defined(__linux__) && !defined(HEARTH_POSIX)
    tcp_hold_back(ends[0], 0);
    assert_true(fill(ends[0]) > HELD_BYTES);
#endif
    part(ends, listener);
}

/* ---- descriptors ---- */

TEST(descriptors_travel)
{
    int pair[2], pipes[2][2], got[SOCK_FDS_MAX], count = 7;
    char text[8] = "";

    assert_int_equal(sock_pair(pair), HEARTH_OK);
    assert_int_equal(pipe(pipes[0]), 0);
    assert_int_equal(pipe(pipes[1]), 0);
    assert_int_equal(sock_recv_fds(pair[1], text, sizeof text, got, SOCK_FDS_MAX, &count), 0);
    assert_int_equal(count, 0);
    int both[2] = {pipes[0][1], pipes[1][1]};
    assert_int_equal(sock_send_fds(pair[0], "two", 3, both, 2), HEARTH_OK);
    assert_int_equal(sock_recv_fds(pair[1], text, sizeof text, got, SOCK_FDS_MAX, &count), 3);
    assert_memory_equal(text, "two", 3);
    assert_int_equal(count, 2);
    for (int i = 0; i < 2; i++) {
        char c = 0;
        assert_true(fcntl(got[i], F_GETFD) & FD_CLOEXEC);
        assert_int_equal(write(got[i], "x", 1), 1);
        assert_int_equal(read(pipes[i][0], &c, 1), 1);
        assert_int_equal(c, 'x');
        close(got[i]);
    }

    /* More than was asked for are closed: then nobody holds the write ends but we. */
    assert_int_equal(sock_send_fds(pair[0], "m", 1, both, 2), HEARTH_OK);
    assert_int_equal(sock_recv_fds(pair[1], text, sizeof text, got, 1, &count), 1);
    assert_int_equal(count, 1);
    close(got[0]);
    close(both[0]);
    close(both[1]);
    assert_int_equal(read(pipes[0][0], text, 1), 0);
    assert_int_equal(read(pipes[1][0], text, 1), 0);

    assert_int_equal(sock_send_fds(pair[0], "none", 4, NULL, 0), HEARTH_OK);
    assert_int_equal(sock_recv_fds(pair[1], text, 2, got, SOCK_FDS_MAX, &count), 2);
    assert_int_equal(sock_recv_fds(pair[1], text + 2, 6, got, SOCK_FDS_MAX, &count), 2);
    assert_memory_equal(text, "none", 4);
    sock_close(pair[0]);
    assert_int_equal(sock_recv_fds(pair[1], text, 2, got, SOCK_FDS_MAX, &count), HEARTH_PEER_LOST);
    sock_close(pair[1]);
    close(pipes[0][0]);
    close(pipes[1][0]);
}

TEST(descriptors_wait_for_room)
{
    static char bytes[1 << 16];
    int pair[2], status;

    assert_int_equal(sock_pair(pair), HEARTH_OK);
    while (sock_send(pair[0], &(struct iovec){bytes, sizeof bytes}, 1) > 0) {
    }
    int tries = 0;
    while ((status = sock_send_fds(pair[0], bytes, 256, pair, 1)) == HEARTH_OK && tries < 100000)
        tries++;
    assert_int_equal(status, HEARTH_PENDING);
    part(pair, -1);
}

/* A process that became another user is not us: only root can play both. */
TEST(another_user_is_seen)
{
    int ends[2], listener;

    if (geteuid() != 0)
        skip();
    join("unix:@hearth-test-user", ends, &listener);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(seteuid(65534) == 0 && !sock_same_user(ends[1]) ? 0 : 1);
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    part(ends, listener);
}
