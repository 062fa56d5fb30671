/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory between two ends that keep to the rules: stream, loans, references, waking, the end. */
#include <sys/wait.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/prng.h"
#include "os/clock.h"
#include "os/memory.h"
#include "os/sock.h"
#include "shm_pair.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define WAIT_NS (20 * NS_PER_S)

static struct shm_end ends[2];
static const struct sharing *sharing; /* of all ends */

static int setup(void **state)
{
    pair_open(ends, SHM_RING);
    sharing = ends[0].conn->transport->sharing;
    return 0;
}

static int teardown(void **state)
{
    end_fini(&ends[0]);
    end_fini(&ends[1]);
    return 0;
}

/* What end 1 sees of a reference of end 0. */
static const uint8_t *look_up(const uint8_t *reference, size_t len, uint64_t *token)
{
    const uint8_t *seen = sharing->look_up(ends[1].conn, reference, len, token);
    assert_non_null(seen);
    return seen;
}

static uint8_t byte_at(uint64_t position)
{
    return (uint8_t)(position * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}

/* Sends this many bytes of the known stream from `position` on. */
static void send_stream(struct shm_end *end, uint64_t position, size_t len)
{
    uint8_t bytes[SHM_RING];
    assert_true(len <= sizeof bytes);
    for (size_t i = 0; i < len; i++)
        bytes[i] = byte_at(position + i);
    assert_int_equal(end_send(end, bytes, len), len);
}

static void expect_stream(const uint8_t *bytes, uint64_t position, size_t len)
{
    for (size_t i = 0; i < len; i++)
        assert_int_equal(bytes[i], byte_at(position + i));
}

static void skip_stream(struct shm_end *from, struct shm_end *to, size_t len)
{
    uint8_t bytes[SHM_RING] = {0};
    assert_int_equal(end_send(from, bytes, len), len);
    assert_int_equal(end_recv(to, bytes, len), len);
}

/* ---- the stream ---- */

TEST_WITH(what_goes_in_comes_out_over_many_turns_of_the_ring, setup, teardown)
{
    struct prng prng;
    uint64_t sent[2] = {0}, got[2] = {0};
    prng_init(&prng, 11);
    while (got[0] < 40 * SHM_RING || got[1] < 40 * SHM_RING) {
        size_t side = (size_t)prng_below(&prng, 2);
        uint8_t bytes[SHM_RING + 100];
        size_t len = 1 + (size_t)prng_below(&prng, prng_below(&prng, 4) ? 300 : sizeof bytes);
        if (prng_below(&prng, 2)) {
            for (size_t i = 0; i < len; i++)
                bytes[i] = byte_at(sent[side] + i);
            ssize_t n = end_send(&ends[side], bytes, len);
            assert_true(n >= 0 && (size_t)n <= len);
            sent[side] += (uint64_t)n;
        } else {
            ssize_t n = end_recv(&ends[1 - side], bytes, len);
            assert_true(n >= 0 && (size_t)n <= len);
            expect_stream(bytes, got[side], (size_t)n);
            got[side] += (uint64_t)n;
        }
    }
}

TEST_WITH(a_ring_has_no_seam, setup, teardown)
{
    uint64_t token;
    for (size_t at = SHM_RING - 100; at < SHM_RING; at += 9) {
        struct shm_end fresh[2];
        pair_open(fresh, SHM_RING);
        skip_stream(&fresh[0], &fresh[1], at);
        send_stream(&fresh[0], 0, 200);
        assert_int_equal(sharing->ready(fresh[1].conn, 200), 200);
        const uint8_t *bytes = sharing->borrow(fresh[1].conn, 200, &token);
        expect_stream(bytes, 0, 200);
        sharing->give_back(fresh[1].conn, token);
        end_fini(&fresh[0]);
        end_fini(&fresh[1]);
    }
}

TEST_WITH(a_full_ring_takes_no_more, setup, teardown)
{
    uint8_t bytes[2 * SHM_RING] = {0};
    assert_int_equal(end_send(&ends[0], bytes, sizeof bytes), SHM_RING);
    assert_int_equal(end_send(&ends[0], bytes, 1), 0);
    assert_int_equal(end_recv(&ends[1], bytes, 10), 10);
    assert_int_equal(end_send(&ends[0], bytes, 100), 10);
}

/* ---- loans ---- */

TEST_WITH(half_of_a_ring_may_be_lent, setup, teardown)
{
    struct conn *conn = ends[1].conn;
    uint64_t tokens[2];
    assert_true(sharing->lends(conn, SHM_RING / 2));
    assert_false(sharing->lends(conn, SHM_RING / 2 + 1));
    send_stream(&ends[0], 0, 2000);
    assert_int_equal(sharing->ready(conn, 1500), 1500);
    assert_int_equal(sharing->ready(conn, 2001), 0);
    assert_non_null(sharing->borrow(conn, 1500, &tokens[0]));
    assert_true(sharing->lends(conn, SHM_RING / 2 - 1500));
    assert_false(sharing->lends(conn, SHM_RING / 2 - 1499));
    uint8_t rest[500];
    assert_int_equal(end_recv(&ends[1], rest, sizeof rest), 500); /* what is read behind a loan is held too */
    assert_false(sharing->lends(conn, 49));
    sharing->give_back(conn, tokens[0]);
    assert_true(sharing->lends(conn, SHM_RING / 2));
}

TEST_WITH(there_are_no_more_loans_than_places, setup, teardown)
{
    struct conn *conn = ends[1].conn;
    uint64_t tokens[257];
    int count = 0;
    send_stream(&ends[0], 0, 300);
    while (count < 257 && sharing->lends(conn, 1)) {
        assert_int_equal(sharing->ready(conn, 1), 1);
        const uint8_t *byte = sharing->borrow(conn, 1, &tokens[count]);
        assert_int_equal(*byte, byte_at((uint64_t)count++));
    }
    assert_int_equal(count, 256);
    sharing->give_back(conn, tokens[5]);
    assert_false(sharing->lends(conn, 1)); /* the oldest holds the place */
    sharing->give_back(conn, tokens[0]);
    assert_true(sharing->lends(conn, 1));
    for (int i = 1; i < 256; i++)
        if (i != 5)
            sharing->give_back(conn, tokens[i]);
}

TEST_WITH(loans_come_back_in_any_order, setup, teardown)
{
    struct conn *conn = ends[1].conn;
    struct prng prng;
    uint64_t sent = 0, got = 0;
    struct {
        const uint8_t *bytes;
        uint64_t position, token;
        size_t len;
    } loans[20];
    int count = 0;
    prng_init(&prng, 12);
    for (int turn = 0; turn < 5000; turn++) {
        size_t len = 1 + (size_t)prng_below(&prng, 250);
        if (prng_below(&prng, 2)) {
            uint8_t bytes[250];
            for (size_t i = 0; i < len; i++)
                bytes[i] = byte_at(sent + i);
            ssize_t n = end_send(&ends[0], bytes, len);
            assert_true(n >= 0);
            sent += (uint64_t)n;
        } else if (count < 20 && sharing->lends(conn, len) && sharing->ready(conn, len) > 0) {
            loans[count].bytes = sharing->borrow(conn, len, &loans[count].token);
            loans[count].position = got;
            loans[count++].len = len;
            got += len;
        }
        for (int i = 0; i < count; i++) /* nobody writes over what is lent */
            expect_stream(loans[i].bytes, loans[i].position, loans[i].len);
        if (count > 0 && prng_below(&prng, 3) == 0) {
            int which = (int)prng_below(&prng, (uint64_t)count);
            sharing->give_back(conn, loans[which].token);
            loans[which] = loans[--count];
        }
    }
    assert_true(got > 20 * SHM_RING);
    while (count > 0)
        sharing->give_back(conn, loans[--count].token);
}

TEST_WITH(lent_bytes_are_not_free_until_the_oldest_is_back, setup, teardown)
{
    struct conn *conn = ends[1].conn;
    uint8_t bytes[SHM_RING] = {0};
    uint64_t tokens[2];
    assert_int_equal(end_send(&ends[0], bytes, SHM_RING), SHM_RING);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sharing->ready(conn, 1000), 1000);
        sharing->borrow(conn, 1000, &tokens[i]);
    }
    assert_int_equal(end_recv(&ends[1], bytes, SHM_RING), SHM_RING - 2000);
    assert_int_equal(end_send(&ends[0], bytes, SHM_RING), 0);
    sharing->give_back(conn, tokens[1]);
    assert_int_equal(end_send(&ends[0], bytes, SHM_RING), 0);
    sharing->give_back(conn, tokens[0]);
    assert_int_equal(end_send(&ends[0], bytes, SHM_RING), SHM_RING);
}

TEST_WITH(loans_stay_after_both_ends_closed, setup, teardown)
{
    struct conn *conn = ends[1].conn;
    uint8_t reference[REFERENCE_LEN];
    uint64_t tokens[3];
    uint8_t *region = shm_region_make(ends[0].regions, 100);
    memset(region, 0x77, 100);
    send_stream(&ends[0], 0, 1000);
    const uint8_t *lent[3];
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(sharing->ready(conn, 500), 500);
        lent[i] = sharing->borrow(conn, 500, &tokens[i]);
    }
    int number = sharing->refer(ends[0].conn, region, 100, reference);
    assert_true(number >= 0);
    lent[2] = look_up(reference, 100, &tokens[2]);
    end_close(&ends[0]);
    end_close(&ends[1]);
    assert_true(shm_region_drop(ends[0].regions, region));
    expect_stream(lent[0], 0, 500);
    expect_stream(lent[1], 500, 500);
    assert_int_equal(lent[2][99], 0x77);
    sharing->give_back(conn, tokens[1]);
    expect_stream(lent[0], 0, 500);
    sharing->give_back(conn, tokens[2]);
    assert_true(ends[1].heap.blocks > 1);
    sharing->give_back(conn, tokens[0]);
    assert_int_equal(ends[1].heap.blocks, 1); /* the regions */
}

/* ---- references ---- */

TEST_WITH(references_show_the_peers_memory, setup, teardown)
{
    uint8_t reference[REFERENCE_LEN];
    uint64_t token;
    uint8_t *a = shm_region_make(ends[0].regions, 3 * SHM_RING), *b = shm_region_make(ends[0].regions, 1);
    memset(a, 0x11, 3 * SHM_RING);
    memset(b, 0x22, 1);
    for (int round = 0; round < 100; round++) {
        const uint8_t *from = round % 3 == 0 ? b : a + round;
        size_t len = round % 3 == 0 ? 1 : 2 * SHM_RING;
        assert_int_equal(sharing->refer(ends[0].conn, from, len, reference), 0);
        const uint8_t *seen = look_up(reference, len, &token);
        assert_ptr_not_equal(seen, from);
        assert_memory_equal(seen, from, len);
        a[round] = (uint8_t)round; /* it is the same memory */
        if (round % 3 != 0)
            assert_int_equal(seen[0], round);
        assert_int_equal(sharing->returned(ends[0].conn), 0);
        sharing->give_back(ends[1].conn, token);
        assert_int_equal(sharing->returned(ends[0].conn), 1);
        assert_int_equal(sharing->returned(ends[0].conn), 0);
    }
}

TEST_WITH(only_memory_of_regions_is_referred_to, setup, teardown)
{
    uint8_t reference[REFERENCE_LEN], elsewhere[100];
    size_t page = memory_page();
    uint8_t *region = shm_region_make(ends[0].regions, page);
    assert_int_equal(sharing->refer(ends[0].conn, elsewhere, 100, reference), -1);
    assert_int_equal(sharing->refer(ends[0].conn, region - 1, 2, reference), -1);
    assert_int_equal(sharing->refer(ends[0].conn, region, page + 1, reference), -1);
    assert_int_equal(sharing->refer(ends[0].conn, region + page - 1, 2, reference), -1);
    assert_int_equal(sharing->refer(ends[0].conn, region + 1, SIZE_MAX, reference), -1);
    assert_int_equal(sharing->refer(ends[0].conn, region, page, reference), 0);
    assert_int_equal(sharing->refer(ends[0].conn, region + page - 1, 1, reference), 1);
    assert_int_equal(sharing->refer(ends[1].conn, region, page, reference), -1); /* not its own */
}

TEST_WITH(there_are_64_references_at_a_time, setup, teardown)
{
    uint8_t reference[64][REFERENCE_LEN], more[REFERENCE_LEN];
    uint64_t tokens[64];
    uint8_t *region = shm_region_make(ends[0].regions, 64);
    for (int i = 0; i < 64; i++) {
        region[i] = (uint8_t)i;
        assert_int_equal(sharing->refer(ends[0].conn, region + i, 1, reference[i]), i);
    }
    assert_int_equal(sharing->refer(ends[0].conn, region, 1, more), -1);
    for (int i = 63; i >= 0; i--) {
        const uint8_t *seen = look_up(reference[i], 1, &tokens[i]);
        assert_int_equal(*seen, i);
    }
    sharing->give_back(ends[1].conn, tokens[63]);
    sharing->give_back(ends[1].conn, tokens[7]);
    assert_int_equal(sharing->refer(ends[0].conn, region, 1, more), -1); /* not before it has looked */
    assert_true(sharing->returned(ends[0].conn) == (UINT64_C(1) << 63 | 1 << 7));
    assert_int_equal(sharing->refer(ends[0].conn, region, 1, more), 7);
    for (int i = 0; i < 64; i++)
        if (i != 7 && i != 63)
            sharing->give_back(ends[1].conn, tokens[i]);
}

TEST_WITH(references_to_nothing_are_refused, setup, teardown)
{
    size_t page = memory_page();
    uint8_t good[REFERENCE_LEN], bad[REFERENCE_LEN];
    uint64_t token;
    uint8_t *region = shm_region_make(ends[0].regions, page);
    assert_int_equal(sharing->refer(ends[0].conn, region, page, good), 0);
    static const struct {
        uint32_t number, id;
        uint64_t offset;
        size_t len;
    } cases[] = {
        {64, 1, 0, 1}, {UINT32_MAX, 1, 0, 1}, {0, 0, 0, 1},          {0, 2, 0, 1},
        {0, 1, 1, 0},  {0, 1, UINT64_MAX, 1}, {0, 1, UINT64_MAX, 0}, {0, UINT32_MAX, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t len = i == 4 ? page : cases[i].len; /* one byte beyond the end */
        store_u32(bad, cases[i].number);
        store_u32(bad + 4, cases[i].id);
        store_u64(bad + 8, cases[i].offset);
        assert_null(sharing->look_up(ends[1].conn, bad, len, &token));
    }
    assert_null(sharing->look_up(ends[1].conn, good, page + 1, &token));
    assert_null(sharing->look_up(ends[1].conn, good, SIZE_MAX, &token));
    assert_non_null(sharing->look_up(ends[1].conn, good, page, &token));
    assert_null(sharing->look_up(ends[1].conn, good, page, &(uint64_t){0})); /* the same number twice */
    sharing->give_back(ends[1].conn, token);
    assert_non_null(sharing->look_up(ends[1].conn, good, page, &token));
    sharing->give_back(ends[1].conn, token);
}

/* ---- regions ---- */

TEST_WITH(regions_are_zero_pages_and_bounded, setup, teardown)
{
    struct shm_regions *regions = ends[0].regions;
    void *made[SHM_REGIONS_MAX];
    int before = open_files();
    for (int i = 0; i < SHM_REGIONS_MAX; i++) {
        size_t len = (size_t)i * 1000;
        made[i] = shm_region_make(regions, len);
        assert_non_null(made[i]);
        assert_int_equal((uintptr_t)made[i] % memory_page(), 0);
        for (size_t at = 0; at < len; at++)
            assert_int_equal(((uint8_t *)made[i])[at], 0);
        memset(made[i], 0xff, len);
    }
    assert_null(shm_region_make(regions, 1));
    assert_true(shm_region_drop(regions, made[30]));
    assert_false(shm_region_drop(regions, made[30]));
    assert_false(shm_region_drop(regions, (uint8_t *)made[31] + 1));
    assert_false(shm_region_drop(regions, NULL));
    made[30] = shm_region_make(regions, 5000);
    assert_non_null(made[30]);
    assert_int_equal(((uint8_t *)made[30])[4999], 0);
    for (int i = 0; i < SHM_REGIONS_MAX; i++)
        assert_true(shm_region_drop(regions, made[i]));
    assert_int_equal(open_files(), before);
    assert_null(shm_region_make(regions, SIZE_MAX));
    assert_null(shm_region_make(regions, SIZE_MAX / 2));
}

TEST_WITH(a_dropped_region_is_gone_for_the_peer, setup, teardown)
{
    uint8_t reference[REFERENCE_LEN];
    uint64_t token;
    for (int round = 0; round < 3 * SHM_REGIONS_MAX; round++) { /* places are used again, ids are not */
        uint8_t *region = shm_region_make(ends[0].regions, 100);
        assert_non_null(region);
        region[0] = (uint8_t)round;
        assert_int_equal(sharing->refer(ends[0].conn, region, 1, reference), 0);
        const uint8_t *seen = look_up(reference, 1, &token);
        assert_int_equal(*seen, (uint8_t)round);
        sharing->give_back(ends[1].conn, token);
        assert_int_equal(sharing->returned(ends[0].conn), 1);
        assert_true(shm_region_drop(ends[0].regions, region));
        ends[1].conn->transport->attend(ends[1].conn);
        assert_null(sharing->look_up(ends[1].conn, reference, 1, &token));
    }
    assert_int_equal(end_send(&ends[1], "x", 1), 1); /* it is still a peer */
}

/* An operation that was cancelled is over for its user, who may free the buffer; the reference is still on
 * its way to the peer. */
TEST_WITH(a_reference_on_its_way_holds_a_dropped_region, setup, teardown)
{
    uint8_t references[2][REFERENCE_LEN];
    uint64_t token;
    uint8_t *region = shm_region_make(ends[0].regions, 100);
    region[0] = 88;
    for (int i = 0; i < 2; i++)
        assert_int_equal(sharing->refer(ends[0].conn, region, 100, references[i]), i);
    assert_true(shm_region_drop(ends[0].regions, region));
    for (int i = 0; i < 2; i++) {
        ends[1].conn->transport->attend(ends[1].conn);
        const uint8_t *seen = look_up(references[i], 100, &token);
        assert_int_equal(seen[0], 88);
        sharing->give_back(ends[1].conn, token);
        assert_int_equal(sharing->returned(ends[0].conn), 1 << i);
    }
    ends[1].conn->transport->attend(ends[1].conn);
    assert_null(sharing->look_up(ends[1].conn, references[0], 100, &token)); /* now it is gone */
}

/* A region is told to every peer of the node that hears of it, and only to those. */
TEST_WITH(a_region_is_seen_through_two_connections, setup, teardown)
{
    struct shm_end other[2];
    uint8_t references[2][REFERENCE_LEN];
    uint64_t tokens[2];
    pair_open(other, SHM_RING);
    end_close(&other[0]);
    end_close(&other[1]);
    int fds[2];
    struct error error;
    assert_int_equal(sock_pair(fds), HEARTH_OK);
    /* The words of the taker stand ready, so that the maker does not wait. */
    struct raw raw = {.fd = fds[1]};
    raw_offer(&raw, SHM_MAGIC, SHM_RING, &other[1].event.write_fd, 1);
    struct shm_regions *own = other[0].regions;
    other[0].regions = ends[0].regions;
    assert_int_equal(end_open(&other[0], fds[0], true, SHM_RING, WAIT_NS, &error), HEARTH_OK);
    other[0].regions = own;
    assert_int_equal(end_open(&other[1], fds[1], false, 0, WAIT_NS, &error), HEARTH_OK);

    uint8_t *region = shm_region_make(ends[0].regions, 10);
    region[0] = 42;
    struct shm_end *from[2] = {&ends[0], &other[0]}, *to[2] = {&ends[1], &other[1]};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sharing->refer(from[i]->conn, region, 10, references[i]), 0);
        const uint8_t *seen = sharing->look_up(to[i]->conn, references[i], 10, &tokens[i]);
        assert_non_null(seen);
        assert_int_equal(seen[0], 42);
        sharing->give_back(to[i]->conn, tokens[i]);
    }
    end_close(&other[0]);
    assert_true(shm_region_drop(ends[0].regions, region)); /* the closed one is not told */
    end_fini(&other[0]);
    end_fini(&other[1]);
}

/* ---- waking ---- */

static void doze(struct shm_end *end, bool asleep, bool want_room)
{
    end->conn->transport->doze(end->conn, asleep, want_room);
}

TEST_WITH(who_dozes_is_signalled_once, setup, teardown)
{
    uint8_t bytes[10] = {0};
    end_send(&ends[0], bytes, 10);
    assert_false(end_signalled(&ends[1])); /* awake */
    doze(&ends[1], true, false);
    end_send(&ends[0], bytes, 10);
    assert_true(end_signalled(&ends[1]));
    end_send(&ends[0], bytes, 10);
    assert_false(end_signalled(&ends[1])); /* it knows */
    doze(&ends[1], true, false);
    doze(&ends[1], false, false);
    end_send(&ends[0], bytes, 10);
    assert_false(end_signalled(&ends[1]));
    assert_false(end_signalled(&ends[0]));
}

TEST_WITH(room_wakes_who_wants_it, setup, teardown)
{
    uint8_t bytes[SHM_RING] = {0};
    end_send(&ends[0], bytes, SHM_RING);
    doze(&ends[0], true, false);
    end_recv(&ends[1], bytes, 100);
    assert_false(end_signalled(&ends[0]));
    doze(&ends[0], true, true);
    end_recv(&ends[1], bytes, 100);
    assert_true(end_signalled(&ends[0]));
    end_recv(&ends[1], bytes, 100);
    assert_false(end_signalled(&ends[0]));
}

TEST_WITH(loans_and_references_that_come_back_wake, setup, teardown)
{
    uint8_t *region = shm_region_make(ends[0].regions, 10), reference[REFERENCE_LEN];
    uint64_t tokens[2];
    send_stream(&ends[0], 0, 1000);
    assert_int_equal(sharing->ready(ends[1].conn, 1000), 1000);
    sharing->borrow(ends[1].conn, 1000, &tokens[0]);
    assert_int_equal(sharing->refer(ends[0].conn, region, 10, reference), 0);
    assert_non_null(sharing->look_up(ends[1].conn, reference, 10, &tokens[1]));
    doze(&ends[0], true, true);
    sharing->give_back(ends[1].conn, tokens[0]);
    assert_true(end_signalled(&ends[0]));
    doze(&ends[0], true, false);
    sharing->give_back(ends[1].conn, tokens[1]);
    assert_true(end_signalled(&ends[0]));
}

/* ---- the end ---- */

TEST_WITH(the_close_wakes_and_what_was_sent_still_comes, setup, teardown)
{
    uint8_t bytes[SHM_RING];
    send_stream(&ends[0], 0, 500);
    doze(&ends[1], true, false);
    end_close(&ends[0]);
    assert_true(end_signalled(&ends[1]));
    ends[1].conn->transport->attend(ends[1].conn);
    assert_int_equal(end_send(&ends[1], "x", 1), HEARTH_PEER_LOST);
    assert_int_equal(end_recv(&ends[1], bytes, 300), 300);
    assert_int_equal(sharing->ready(ends[1].conn, 200), 200);
    assert_int_equal(sharing->ready(ends[1].conn, 201), HEARTH_PEER_LOST);
    assert_int_equal(end_recv(&ends[1], bytes + 300, sizeof bytes - 300), 200);
    expect_stream(bytes, 0, 500);
    assert_int_equal(end_recv(&ends[1], bytes, 1), HEARTH_PEER_LOST);
}

TEST_WITH(a_reference_that_was_sent_before_the_close_can_be_read, setup, teardown)
{
    uint8_t *region = shm_region_make(ends[0].regions, 10), reference[REFERENCE_LEN];
    uint64_t token;
    region[9] = 99;
    assert_int_equal(sharing->refer(ends[0].conn, region, 10, reference), 0);
    end_close(&ends[0]);
    const uint8_t *seen = look_up(reference, 10, &token);
    assert_int_equal(seen[9], 99);
    sharing->give_back(ends[1].conn, token);
}

/* In a child: takes part, then ends without a word while it says that it sleeps. */
static void child_runs(int fd, uint8_t wait_for)
{
    struct shm_end end;
    struct error error;
    uint8_t byte;
    end_init(&end);
    if (end_open(&end, fd, false, 0, WAIT_NS, &error) != HEARTH_OK)
        _exit(1);
    while (end_recv(&end, &byte, 1) == 0)
        usleep(1000);
    if (byte != wait_for || end_send(&end, "last words", 10) != 10)
        _exit(2);
    end.conn->transport->doze(end.conn, true, true);
    _exit(0);
}

TEST(a_peer_that_ends_without_goodbye_is_noticed)
{
    struct shm_end end;
    struct error error;
    int fds[2], status;
    uint8_t bytes[20];
    end_init(&end);
    assert_int_equal(sock_pair(fds), HEARTH_OK);
    pid_t child = fork();
    if (child == 0) {
        sock_close(fds[0]);
        child_runs(fds[1], 'g');
    }
    assert_true(child > 0);
    sock_close(fds[1]);
    assert_int_equal(end_open(&end, fds[0], true, SHM_RING, WAIT_NS, &error), HEARTH_OK);
    assert_int_equal(end_send(&end, "g", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(end_send(&end, "?", 1), 1); /* nobody knows yet; waking the dead is no crime */

    struct sock_wait wait = {.fd = end.conn->transport->descriptor(end.conn), .want_recv = true};
    assert_int_equal(sock_wait(&wait, 1, clock_real() + WAIT_NS), 1);
    end.conn->transport->attend(end.conn);
    assert_int_equal(end_recv(&end, bytes, sizeof bytes), 10);
    assert_memory_equal(bytes, "last words", 10);
    assert_int_equal(end_recv(&end, bytes, sizeof bytes), HEARTH_PEER_LOST);
    assert_int_equal(end_send(&end, "?", 1), HEARTH_PEER_LOST);
    end_fini(&end);
}

TEST(no_descriptor_and_no_memory_stay_behind)
{
    int before = open_files();
    for (int i = 0; i < 20; i++) {
        pair_open(ends, SHM_RING << i % 4);
        end_fini(&ends[i % 2]);
        end_fini(&ends[1 - i % 2]);
    }
    assert_int_equal(open_files(), before);
}

int main(void)
{
    watchdog(100, "shared memory");
    return suite_run();
}
