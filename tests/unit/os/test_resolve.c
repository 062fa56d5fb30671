/* SPDX-License-Identifier: Apache-2.0 */
/* Names become addresses in time, or not at all. The system's look-up is replaced by one that we can hold. */
#define _GNU_SOURCE 1 /* EAI_SYSTEM and friends */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "addrs.h"
#include "os/clock.h"
#include "os/resolve.h"
#include "os/thread.h"
#include "support/suite.h"

#define THREADS 16 /* that may be unanswered */

static _Atomic(bool) held;
static _Atomic(int) asked;

/* ---- the look-up that stands for the system's ---- */

static struct addrinfo *info_make(const char *text, struct addrinfo *next)
{
    struct addrinfo *info = calloc(1, sizeof *info);
    struct sock_addr addr;
    assert_int_equal(sock_addr_parse(text, 0, &addr), HEARTH_OK);
    info->ai_addr = malloc(addr.len);
    memcpy(info->ai_addr, addr.raw, addr.len);
    info->ai_addrlen = addr.len;
    info->ai_next = next;
    return info;
}

int getaddrinfo(const char *restrict host, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict list)
{
    atomic_fetch_add(&asked, 1);
    assert_int_equal(hints->ai_socktype, SOCK_STREAM);
    if (strcmp(host, "slow") == 0)
        while (atomic_load(&held))
            thread_yield();
    if (strcmp(host, "nobody") == 0)
        return EAI_NONAME;
    if (strcmp(host, "broken") == 0) {
        errno = ENFILE;
        return EAI_SYSTEM;
    }
    *list = NULL;
    if (strcmp(host, "empty") == 0)
        return 0;
    if (strcmp(host, "many") == 0)
        for (int i = 9; i > 0; i--) {
            char text[] = "10.0.0.0";
            text[7] = (char)('0' + i);
            *list = info_make(text, *list);
        }
    *list = info_make("[2001:db8::1]:0", *list);
    *list = info_make("10.0.0.1:0", *list);
    *list = info_make("10.0.0.1:0", *list); /* the system may say things twice */
    return 0;
}

void freeaddrinfo(struct addrinfo *list)
{
    while (list) {
        struct addrinfo *next = list->ai_next;
        free(list->ai_addr);
        free(list);
        list = next;
    }
}

/* ---- tests ---- */

static struct sock_addr addrs[RESOLVE_MAX];
static struct error error;
static int count;

static int look_up(const char *text)
{
    return resolve(text, 77, clock_real() + PATIENCE_NS, addrs, &count, &error);
}

TEST(numbers_are_not_looked_up)
{
    int before = atomic_load(&asked);

    assert_int_equal(resolve("10.1.2.3", 77, 0, addrs, &count, NULL), HEARTH_OK);
    assert_int_equal(count, 1);
    assert_addr(&addrs[0], "10.1.2.3:77");
    assert_int_equal(resolve("[::1]:5", 77, 0, addrs, &count, NULL), HEARTH_OK);
    assert_addr(&addrs[0], "[::1]:5");
    assert_int_equal(resolve("unix:@x", 77, 0, addrs, &count, NULL), HEARTH_OK);
    assert_addr(&addrs[0], "unix:@x");
    assert_int_equal(atomic_load(&asked), before);
}

TEST(names_give_addresses_once_each)
{
    assert_int_equal(look_up("node-1.example:52416"), HEARTH_OK);
    assert_int_equal(count, 2);
    assert_addr(&addrs[0], "10.0.0.1:52416");
    assert_addr(&addrs[1], "[2001:db8::1]:52416");
    assert_int_equal(look_up("many"), HEARTH_OK);
    assert_int_equal(count, RESOLVE_MAX);
    assert_addr(&addrs[7], "10.0.0.7:77");
}

TEST(failures_name_the_host)
{
    static const struct {
        const char *text, *word;
    } rows[] = {{"nobody:1", "\"nobody\""}, {"broken", "open files"}, {"empty", "\"empty\""}};
    count = -7;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(look_up(rows[i].text), HEARTH_SYSTEM);
        assert_non_null(strstr(error.text, rows[i].word));
        assert_int_equal(count, -7);
    }
}

TEST(bad_forms_are_refused)
{
    static const char *const bad[] = {
        "",       ":1",        "host:",     "host:x",    "host:65536", "host:1:2", "ho st", "host..x",
        ".host",  "1.2.3",     "300.1.1.1", "a/b",       "[::1",       "[host]:1", "unix:", "unix:rel",
        "host\n", "h\xc3\xa4", "host:+80",  "127.1:123", "0x7f.1:12",  "12345"};
    static const char *const good[] = {"host",    "host:1", "a.b-c_d.e.:9", "1host",
                                       "1.2.3.4", "::1",    "unix:/x"};
    char longer[300];
    int before = atomic_load(&asked);

    count = -7;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        error_clear(&error);
        assert_int_equal(resolve_check(bad[i], &error), HEARTH_INVALID);
        assert_non_null(strstr(error.text, bad[i]));
        assert_int_equal(look_up(bad[i]), HEARTH_INVALID);
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(resolve_check(good[i], &error), HEARTH_OK);
    memset(longer, 'a', sizeof longer);
    longer[254] = '\0';
    assert_int_equal(resolve_check(longer, &error), HEARTH_INVALID);
    longer[253] = '\0';
    assert_int_equal(resolve_check(longer, &error), HEARTH_OK);
    assert_int_equal(count, -7);
    assert_int_equal(atomic_load(&asked), before);
}

/* Those that do not answer are left behind, up to a limit; when they answer there is room again. */
TEST(slow_look_ups_are_left_behind)
{
    int status;

    count = -7;
    atomic_store(&held, true);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(resolve("slow:1", 0, clock_real() + NS_PER_MS, addrs, &count, &error),
                         HEARTH_TIMEOUT);
        assert_non_null(strstr(error.text, "\"slow\""));
    }
    assert_int_equal(look_up("other"), HEARTH_LIMIT);
    assert_int_equal(count, -7);
    assert_int_equal(look_up("10.0.0.1"), HEARTH_OK);
    atomic_store(&held, false);
    uint64_t deadline_ns = clock_real() + PATIENCE_NS;
    while ((status = look_up("other")) == HEARTH_LIMIT) {
        assert_true(clock_real() < deadline_ns);
        thread_yield();
    }
    assert_int_equal(status, HEARTH_OK);
    assert_int_equal(look_up("slow"), HEARTH_OK);
}

TEST(nobody_waits_for_a_lookup)
{
    struct lookup *lookup = NULL;
    int status;

    atomic_store(&held, true);
    assert_int_equal(lookup_begin("slow:5", 77, &lookup, &error), HEARTH_OK);
    assert_int_equal(lookup_ask(lookup, addrs, &count, &error), HEARTH_PENDING);
    atomic_store(&held, false);
    while ((status = lookup_ask(lookup, addrs, &count, &error)) == HEARTH_PENDING)
        thread_yield();
    assert_int_equal(status, HEARTH_OK);
    assert_addr(&addrs[0], "10.0.0.1:5");
    assert_int_equal(lookup_ask(lookup, addrs, &count, &error), HEARTH_OK); /* again and again */
    lookup_close(lookup);
    assert_int_equal(lookup_begin("nobody", 77, &lookup, &error), HEARTH_OK);
    while ((status = lookup_ask(lookup, addrs, &count, &error)) == HEARTH_PENDING)
        thread_yield();
    assert_int_equal(status, HEARTH_SYSTEM);
    lookup_close(lookup);
    assert_int_equal(lookup_begin("ho st", 77, &lookup, &error), HEARTH_INVALID);
    lookup_close(NULL);
}
