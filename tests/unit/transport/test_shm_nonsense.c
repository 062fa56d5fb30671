/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory with a peer that writes anything into it or says anything beside it: an error or a lost peer,
 * never a crash, and nothing stays open. */
#include <unistd.h>

#include "core/bytes.h"
#include "core/prng.h"
#include "os/memory.h"
#include "os/sock.h"
#include "shm_pair.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define SHORT_NS (20 * NS_PER_MS)
#define WAIT_NS  (20 * NS_PER_S)

static struct raw raw; /* side 0: the test */
static struct shm_end end;
static int files; /* open before */

static int setup(void **state)
{
    files = open_files();
    raw_open(&raw, &end);
    return 0;
}

/* Before anything is handed over: gives the real end's socket. */
static int setup_apart(size_t ring_bytes)
{
    int fd;
    files = open_files();
    raw_init(&raw, ring_bytes, &fd);
    end_init(&end);
    return fd;
}

static int teardown(void **state)
{
    end_fini(&end);
    raw_fini(&raw);
    assert_int_equal(open_files(), files);
    return 0;
}

static struct raw_side *side(int number)
{
    return &raw.page->sides[number];
}

/* ---- handing over ---- */

struct offer {
    uint64_t magic, ring_bytes;           /* words */
    uint64_t page_magic, page_ring_bytes; /* in the memory */
    size_t memory_ring;                   /* what the memory is long enough for */
    int status;                           /* expected */
};

TEST(wrong_offers_are_refused)
{
    static const struct offer offers[] = {
        {SHM_MAGIC, SHM_RING, SHM_MAGIC, SHM_RING, SHM_RING, HEARTH_OK},
        {SHM_MAGIC + 1, SHM_RING, SHM_MAGIC, SHM_RING, SHM_RING, HEARTH_PROTOCOL},
        {SHM_MAGIC, SHM_RING, SHM_MAGIC + 1, SHM_RING, SHM_RING, HEARTH_PROTOCOL},
        {SHM_MAGIC, SHM_RING, SHM_MAGIC, 2 * SHM_RING, SHM_RING, HEARTH_PROTOCOL},
        {SHM_MAGIC, 2 * SHM_RING, SHM_MAGIC, 2 * SHM_RING, SHM_RING, HEARTH_NO_MEMORY},
        {SHM_MAGIC, SHM_RING, SHM_MAGIC, SHM_RING, 2 * SHM_RING, HEARTH_NO_MEMORY},
        {SHM_MAGIC, 0, SHM_MAGIC, 0, SHM_RING, HEARTH_PROTOCOL},
        {SHM_MAGIC, 2048, SHM_MAGIC, 2048, SHM_RING, HEARTH_PROTOCOL},
        {SHM_MAGIC, 5000, SHM_MAGIC, 5000, SHM_RING, HEARTH_PROTOCOL},
        {SHM_MAGIC, UINT64_MAX, SHM_MAGIC, UINT64_MAX, SHM_RING, HEARTH_PROTOCOL},
        {SHM_MAGIC, UINT64_C(1) << 63, SHM_MAGIC, UINT64_C(1) << 63, SHM_RING, HEARTH_PROTOCOL},
        {SHM_MAGIC, UINT64_C(1) << 40, SHM_MAGIC, UINT64_C(1) << 40, SHM_RING, HEARTH_PROTOCOL},
    };
    for (size_t i = 0; i < sizeof offers / sizeof *offers; i++) {
        const struct offer *o = &offers[i];
        struct error error = {0};
        int fd = setup_apart(o->memory_ring);
        raw.page->magic = o->page_magic;
        raw.page->ring_bytes = o->page_ring_bytes;
        raw_offer(&raw, o->magic, o->ring_bytes, (int[]){raw.memory_fd, raw.event.write_fd}, 2);
        int status = end_open(&end, fd, false, 0, WAIT_NS, &error);
        bool refused = status == HEARTH_PROTOCOL || status == HEARTH_NO_MEMORY;
        if (o->status == HEARTH_OK ? status != HEARTH_OK : !refused)
            fail_msg("offer %zu: status %d: %s", i, status, error.text);
        assert_true(status == HEARTH_OK || strlen(error.text) > 0);
        teardown(NULL);
    }
}

TEST(wrong_descriptors_are_refused)
{
    for (int what = 0; what < 8; what++) {
        struct error error = {0};
        int broken[2], fd = setup_apart(SHM_RING);
        FILE *plain = tmpfile();
        assert_int_equal(pipe(broken), 0);
        assert_non_null(plain);
        int file = fileno(plain);
        assert_int_equal(ftruncate(file, (off_t)raw.len), 0);
        const struct {
            int fds[3], count;
        } cases[] = {
            {{0}, 0},
            {{raw.memory_fd}, 1},
            {{raw.event.write_fd, raw.memory_fd}, 2},
            {{raw.fd, raw.event.write_fd}, 2},
            {{file, raw.event.write_fd}, 2}, /* could be cut short at any time */
            /* Whoever writes there is stopped, or ended by a signal; sockets are events elsewhere. */
            {{raw.memory_fd, broken[1]}, 2},
            {{raw.memory_fd, file}, 2},
            {{raw.memory_fd, raw.memory_fd}, 2},
        };
        if (cases[what].count > 0) {
            raw_offer(&raw, SHM_MAGIC, SHM_RING, cases[what].fds, cases[what].count);
        } else {
            uint8_t words[16] = {0};
            store_u64(words, SHM_MAGIC);
            store_u64(words + 8, SHM_RING);
            assert_int_equal(write(raw.fd, words, sizeof words), sizeof words);
        }
        int status = end_open(&end, fd, false, 0, WAIT_NS, &error);
        if (status != HEARTH_PROTOCOL && status != HEARTH_NO_MEMORY)
            fail_msg("case %d: status %d: %s", what, status, error.text);
        fclose(plain);
        close(broken[0]);
        close(broken[1]);
        teardown(NULL);
    }
}

TEST(peers_that_say_nothing_or_too_little)
{
    for (int what = 0; what < 6; what++) {
        struct error error = {0};
        bool maker = what % 2;
        int fd = setup_apart(SHM_RING);
        if (what / 2 == 1)
            assert_int_equal(write(raw.fd, "four", 4), 4);
        if (what / 2 == 2) {
            sock_close(raw.fd);
            raw.fd = -1;
        }
        static const int expected[] = {HEARTH_TIMEOUT, HEARTH_PROTOCOL, HEARTH_PEER_LOST};
        assert_int_equal(end_open(&end, fd, maker, SHM_RING, SHORT_NS, &error), expected[what / 2]);
        assert_true(strlen(error.text) > 0);
        assert_null(end.conn);
        teardown(NULL);
    }
}

TEST(no_memory_for_a_connection)
{
    struct error error = {0};
    int fd = setup_apart(SHM_RING);
    atomic_store(&end.heap.fail_after, 0);
    assert_int_equal(end_open(&end, fd, false, 0, WAIT_NS, &error), HEARTH_NO_MEMORY);
    teardown(NULL);
}

/* ---- numbers ---- */

TEST(a_head_that_cannot_be_loses_the_peer)
{
    static const uint64_t heads[] = {SHM_RING + 1, UINT64_MAX, UINT64_C(1) << 63, 2 * SHM_RING};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        for (int how = 0; how < 2; how++) {
            uint8_t bytes[100];
            setup(NULL);
            side(0)->head = heads[i];
            ssize_t n = how ? end_recv(&end, bytes, sizeof bytes)
                            : end.conn->transport->sharing->ready(end.conn, 100);
            assert_int_equal(n, HEARTH_PEER_LOST);
            side(0)->head = 10; /* once lost, always lost, but nothing that is not there is read */
            assert_int_equal(end_send(&end, "x", 1), HEARTH_PEER_LOST);
            assert_true(end_recv(&end, bytes, sizeof bytes) != 0);
            teardown(NULL);
        }
    }
}

TEST_WITH(a_head_that_goes_back_loses_the_peer, setup, teardown)
{
    uint8_t bytes[100];
    side(0)->head = 50;
    assert_int_equal(end_recv(&end, bytes, 20), 20);
    side(0)->head = 49;
    assert_int_equal(end_recv(&end, bytes, 20), 20); /* what was there is there */
    ssize_t n = end_recv(&end, bytes, 20);
    assert_true(n == 10 || n == HEARTH_PEER_LOST);
    assert_int_equal(end_recv(&end, bytes, 20), HEARTH_PEER_LOST);
}

TEST(a_tail_that_cannot_be_loses_the_peer)
{
    static const uint64_t tails[] = {SHM_RING + 1, UINT64_MAX, UINT64_C(1) << 63};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        static uint8_t bytes[SHM_RING];
        setup(NULL);
        assert_int_equal(end_send(&end, bytes, SHM_RING), SHM_RING);
        side(0)->tail = tails[i];
        assert_int_equal(end_send(&end, bytes, 1), HEARTH_PEER_LOST);
        assert_int_equal(end_recv(&end, bytes, 1), HEARTH_PEER_LOST);
        teardown(NULL);
    }
}

TEST_WITH(a_tail_that_goes_back_loses_the_peer, setup, teardown)
{
    static uint8_t bytes[SHM_RING];
    assert_int_equal(end_send(&end, bytes, SHM_RING), SHM_RING);
    side(0)->tail = 100;
    assert_int_equal(end_send(&end, bytes, 200), 100);
    side(0)->tail = 99;
    assert_int_equal(end_send(&end, bytes, 200), HEARTH_PEER_LOST);
}

/* The link finds out: it knows which of its frames have left. */
TEST_WITH(references_that_were_never_out_are_told, setup, teardown)
{
    const struct sharing *sharing = end.conn->transport->sharing;
    uint8_t *region = shm_region_make(end.regions, 10), reference[REFERENCE_LEN];
    side(1)->returned = UINT64_MAX;
    assert_true(sharing->returned(end.conn) == UINT64_MAX);
    assert_true(sharing->returned(end.conn) == 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sharing->refer(end.conn, region, 10, reference), 0);
        side(1)->returned = 3;
        assert_true(sharing->returned(end.conn) == 3);
    }
}

TEST_WITH(our_own_numbers_are_not_trusted_from_memory, setup, teardown)
{
    uint8_t bytes[100] = {1, 2, 3};
    assert_int_equal(end_send(&end, bytes, 100), 100);
    side(1)->head = UINT64_MAX / 2; /* the peer writes over what is ours */
    side(1)->tail = UINT64_MAX;
    assert_int_equal(end_send(&end, bytes, 100), 100);
    assert_int_equal(side(1)->head, 200);
    side(0)->head = 100;
    assert_int_equal(end_recv(&end, bytes, 100), 100);
    assert_int_equal(side(1)->tail, 100);
}

/* Anything, at any time. */
TEST(any_numbers_at_any_time)
{
    struct prng prng;
    prng_init(&prng, first_seed());
    for (unsigned long round = 0; round < repeat_count(100); round++) {
        setup(NULL);
        struct conn *conn = end.conn;
        const struct sharing *sharing = conn->transport->sharing;
        uint64_t tokens[300];
        int count = 0;
        static uint8_t bytes[2 * SHM_RING];
        for (int turn = 0; turn < 200; turn++) {
            uint64_t *numbers = (uint64_t *)(void *)raw.page;
            size_t len = 1 + (size_t)prng_below(&prng, prng_below(&prng, 2) ? 100 : sizeof bytes);
            uint64_t near =
                side((int)prng_below(&prng, 2))->head + prng_below(&prng, 2 * SHM_RING) - SHM_RING;
            switch (prng_below(&prng, 6)) {
            case 0: /* mostly numbers that might be right */
                side(0)->head = prng_below(&prng, 20) ? side(0)->head + prng_below(&prng, 200) : near;
                side(0)->tail = prng_below(&prng, 20) ? side(1)->head : near;
                break;
            case 1:
                if (prng_below(&prng, 10) == 0)
                    numbers[prng_below(&prng, sizeof(struct raw_page) / 8)] = prng_u64(&prng);
                break;
            case 2:
                (void)end_send(&end, bytes, len);
                break;
            case 3:
                (void)end_recv(&end, bytes, len);
                break;
            case 4:
                if (count < 300 && sharing->lends(conn, len) && sharing->ready(conn, len) == (ssize_t)len)
                    sharing->borrow(conn, len, &tokens[count++]);
                break;
            default:
                (void)sharing->returned(conn);
                if (count > 0)
                    sharing->give_back(conn, tokens[--count]);
            }
        }
        while (count > 0)
            sharing->give_back(conn, tokens[--count]);
        teardown(NULL);
    }
}

/* ---- words about regions ---- */

enum { WORD_REGION = 1, WORD_DROPPED = 2 };

static void say(uint32_t kind, uint32_t id, uint64_t len, int fd)
{
    uint8_t word[16];
    store_u32(word, kind);
    store_u32(word + 4, id);
    store_u64(word + 8, len);
    if (fd >= 0)
        assert_int_equal(sock_send_fds(raw.fd, word, sizeof word, &fd, 1), HEARTH_OK);
    else
        assert_int_equal(write(raw.fd, word, sizeof word), sizeof word);
}

static bool lost(void)
{
    uint8_t byte;
    end.conn->transport->attend(end.conn);
    return end_recv(&end, &byte, 1) == HEARTH_PEER_LOST;
}

TEST(wrong_words_lose_the_peer)
{
    size_t page = memory_page();
    int good, short_one;
    assert_int_equal(shared_make(2 * page, &good), HEARTH_OK);
    assert_int_equal(shared_make(page, &short_one), HEARTH_OK);
    FILE *plain = tmpfile();
    assert_non_null(plain);
    assert_int_equal(ftruncate(fileno(plain), (off_t)(2 * page)), 0);
    const struct {
        uint32_t kind, id;
        uint64_t len;
        int fd;
        bool lost;
    } cases[] = {
        {WORD_REGION, 1, 2 * page, good, false},
        {WORD_REGION, UINT32_MAX, 2 * page, good, false},
        {WORD_DROPPED, 7, 2 * page, -1, false}, /* never heard of: nothing to do */
        {WORD_REGION, 0, 2 * page, good, true},
        {WORD_REGION, 1, 2 * page, -1, true},
        {WORD_REGION, 1, 2 * page, short_one, true},
        {WORD_REGION, 1, page, good, true},
        {WORD_REGION, 1, 0, good, true},
        {WORD_REGION, 1, UINT64_MAX, good, true},
        {0, 1, 2 * page, good, true},
        {3, 1, 2 * page, -1, true},
        {UINT32_MAX, 1, 2 * page, good, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setup(NULL);
        say(cases[i].kind, cases[i].id, cases[i].len, cases[i].fd);
        if (lost() != cases[i].lost)
            fail_msg("case %zu", i);
        teardown(NULL);
    }
    setup(NULL);
    say(WORD_REGION, 1, 2 * page, fileno(plain));
#if defined(__linux__) && !defined(HEARTH_POSIX)
    assert_true(lost()); /* it could be cut short under us */
#endif
    teardown(NULL);
    fclose(plain);
    shared_close(good);
    shared_close(short_one);
}

TEST_WITH(half_a_word_loses_the_peer, setup, teardown)
{
    assert_int_equal(write(raw.fd, "half", 4), 4);
    assert_true(lost());
}

TEST_WITH(more_regions_than_places_lose_the_peer, setup, teardown)
{
    size_t page = memory_page();
    int fd;
    assert_int_equal(shared_make(page, &fd), HEARTH_OK);
    for (uint32_t i = 1; i <= SHM_REGIONS_MAX; i++)
        say(WORD_REGION, i, page, fd);
    assert_false(lost());
    say(WORD_DROPPED, 5, page, -1);
    say(WORD_REGION, 100, page, fd);
    assert_false(lost());
    say(WORD_REGION, 101, page, fd);
    assert_true(lost());
    shared_close(fd);
}

/* The peer may say so before we have given it back. */
TEST_WITH(a_dropped_region_stays_while_it_is_read, setup, teardown)
{
    const struct sharing *sharing = end.conn->transport->sharing;
    size_t page = memory_page();
    uint8_t reference[REFERENCE_LEN] = {0};
    uint64_t tokens[2];
    const uint8_t *seen[2];
    int fd, other;
    assert_int_equal(shared_make(page, &fd), HEARTH_OK);
    assert_int_equal(shared_make(page, &other), HEARTH_OK);
    uint8_t *memory = shared_map(fd, page, true);
    memset(memory, 0x66, page);
    say(WORD_REGION, 9, page, fd);
    store_u32(reference + 4, 9);
    for (uint32_t i = 0; i < 2; i++) {
        store_u32(reference, i);
        seen[i] = sharing->look_up(end.conn, reference, page, &tokens[i]);
        assert_non_null(seen[i]);
    }
    say(WORD_DROPPED, 9, page, -1);
    for (uint32_t i = 10; i < 10 + SHM_REGIONS_MAX - 1; i++) /* and its place is not given away */
        say(WORD_REGION, i, page, other);
    assert_false(lost());
    for (int i = 0; i < 2; i++) {
        assert_int_equal(seen[1][0], 0x66);
        assert_int_equal(seen[1][page - 1], 0x66);
        sharing->give_back(end.conn, tokens[i]);
    }
    store_u32(reference, 0);
    assert_null(sharing->look_up(end.conn, reference, 1, &tokens[0]));
    shared_unmap(memory, page);
    shared_close(fd);
    shared_close(other);
}

int main(void)
{
    watchdog(100, "shared memory with a broken peer");
    return suite_run();
}
