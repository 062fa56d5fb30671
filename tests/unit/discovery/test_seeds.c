/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds: numbers at once, names when the system answers; nothing ever waits for it. The system's look-up is
 * replaced by one that we can hold. */
#define _GNU_SOURCE 1 /* EAI_* */
#include <netdb.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "discovery/finder.h"
#include "discovery/seeds.h"
#include "os/clock.h"
#include "os/thread.h"
#include "support/suite.h"

#define PATIENCE_NS (30 * NS_PER_S) /* against hangs only */

static struct heap heap;
static struct log silent;
static _Atomic(bool) held;
static _Atomic(int) asked, inside;
static _Atomic(const char *) answer; /* NULL: no such host */

int getaddrinfo(const char *restrict host, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict list)
{
    (void)service, (void)hints, (void)host;
    atomic_fetch_add(&asked, 1);
    atomic_fetch_add(&inside, 1);
    while (atomic_load(&held))
        thread_yield();
    atomic_fetch_sub(&inside, 1);
    const char *text = atomic_load(&answer);
    struct sock_addr addr;
    if (!text || sock_addr_parse(text, 0, &addr) != HEARTH_OK)
        return EAI_NONAME;
    struct addrinfo *info = calloc(1, sizeof *info);
    info->ai_addr = malloc(addr.len);
    memcpy(info->ai_addr, addr.raw, addr.len);
    info->ai_addrlen = addr.len;
    *list = info;
    return 0;
}

void freeaddrinfo(struct addrinfo *info)
{
    free(info->ai_addr);
    free(info);
}

static struct seeds *open_seeds(const char *text)
{
    struct seeds *seeds = NULL;
    struct error error;

    heap_init(&heap, 0);
    atomic_store(&held, false);
    atomic_store(&asked, 0);
    assert_int_equal(seeds_open(&heap, &silent, text, 52416, &seeds, &error), HEARTH_OK);
    return seeds;
}

static void close_seeds(struct seeds *seeds)
{
    seeds_close(seeds);
    assert_int_equal(heap.blocks, 0);
}

static void addresses_are(const struct seeds *seeds, const char *expected)
{
    char text[1024] = "", one[SOCK_TEXT_MAX];
    int count;
    const struct sock_addr *addrs = seeds_addrs(seeds, &count);

    for (int i = 0; i < count; i++) {
        sock_addr_text(&addrs[i], one, sizeof one);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i > 0 ? " " : "", one);
    }
    assert_string_equal(text, expected);
}

static void until_count(struct seeds *seeds, uint64_t now_ns, int expected)
{
    uint64_t end_ns = clock_real() + PATIENCE_NS;
    int count;

    while (seeds_addrs(seeds, &count), count != expected) {
        assert_true(clock_real() < end_ns);
        seeds_pump(seeds, now_ns);
        thread_yield();
    }
}

TEST(numbers_are_there_at_once)
{
    struct seeds *seeds = open_seeds(" 10.0.0.1 ,10.0.0.2:99,, [fd00::1]:7 ,fd00::2,10.0.0.1:52416,");
    addresses_are(seeds, "10.0.0.1:52416 10.0.0.2:99 [fd00::1]:7 [fd00::2]:52416");
    seeds_pump(seeds, 1);
    assert_true(seeds_deadline(seeds) == NEVER_NS);
    assert_int_equal(asked, 0);
    close_seeds(seeds);
    seeds = open_seeds(NULL);
    addresses_are(seeds, "");
    close_seeds(seeds);
}

TEST(names_are_looked_up_and_again)
{
    uint64_t now_ns = NS_PER_S;

    struct seeds *seeds = open_seeds("attic:99");
    atomic_store(&answer, "10.0.0.5");
    atomic_store(&held, true);
    seeds_pump(seeds, now_ns);
    seeds_pump(seeds, now_ns);
    assert_true(seeds_deadline(seeds) < now_ns + NS_PER_S);
    addresses_are(seeds, "");
    atomic_store(&held, false);
    until_count(seeds, now_ns, 1);
    addresses_are(seeds, "10.0.0.5:99");
    seeds_pump(seeds, now_ns + 29 * NS_PER_S);
    assert_int_equal(asked, 1);
    atomic_store(&answer, "10.0.0.6");
    uint64_t next_ns = seeds_deadline(seeds);
    assert_true(next_ns <= now_ns + 30 * NS_PER_S);
    for (const char *was = ""; strcmp(was, "10.0.0.6:99") != 0;) {
        static char text[SOCK_TEXT_MAX];
        int count;
        seeds_pump(seeds, next_ns);
        sock_addr_text(seeds_addrs(seeds, &count), text, sizeof text);
        was = text;
    }
    assert_int_equal(asked, 2);
    close_seeds(seeds);
}

TEST(what_was_found_stays_when_the_system_fails)
{
    struct seeds *seeds = open_seeds("attic");
    atomic_store(&answer, "10.0.0.5");
    until_count(seeds, NS_PER_S, 1);
    atomic_store(&answer, NULL);
    uint64_t now_ns = 100 * NS_PER_S;
    for (int i = 2; i < 5; i++, now_ns += 6 * NS_PER_S)
        while (atomic_load(&asked) < i || seeds_deadline(seeds) < now_ns + NS_PER_S)
            seeds_pump(seeds, now_ns);
    addresses_are(seeds, "10.0.0.5:52416");
    close_seeds(seeds);
}

/* A system that does not answer keeps a few threads and nobody else; closing does not wait for it. */
TEST(a_deaf_system_holds_nobody)
{
    char text[512] = "";

    for (int i = 0; i < 20; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "host%d,", i);
    struct seeds *seeds = open_seeds(text);
    atomic_store(&held, true);
    for (int i = 0; i < 100; i++)
        seeds_pump(seeds, NS_PER_S);
    assert_true(atomic_load(&asked) <= 4);
    seeds_pump(seeds, 100 * NS_PER_S); /* patience is over: these are left behind */
    close_seeds(seeds);
    atomic_store(&held, false);
    while (atomic_load(&inside) > 0)
        thread_yield();
}

static void refused(const char *text, const char *expected)
{
    struct seeds *seeds;
    struct error error;

    heap_init(&heap, 0);
    assert_int_equal(seeds_open(&heap, &silent, text, 1, &seeds, &error), HEARTH_INVALID);
    if (!strstr(error.text, expected))
        fail_msg("\"%s\" lacks \"%s\"", error.text, expected);
    assert_int_equal(heap.blocks, 0);
}

TEST(wrong_ones_are_named)
{
    char many[1024] = "", big[400];

    refused("10.0.0.1,ho st", "seed 2: \"ho st\"");
    refused("host:99999", "seed 1");
    refused("unix:/tmp/x", "seed 1");
    for (int i = 0; i <= FINDER_SEEDS_MAX; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "10.0.0.%d,", i + 1);
    refused(many, "more than 64 seeds");
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = '\0';
    refused(big, "characters");
}
