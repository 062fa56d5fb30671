/* SPDX-License-Identifier: Apache-2.0 */
/* Slots: sizes by class, reuse without allocation, a bound on what is kept. */
#include "collective/slot.h"
#include "support/suite.h"

static struct heap heap;
static struct slot_pool pool;

static int setup(void **state)
{
    heap_init(&heap, 0);
    slot_pool_init(&pool, &heap);
    return 0;
}

static int teardown(void **state)
{
    slot_pool_fini(&pool);
    assert_int_equal(heap.blocks, 0);
    return 0;
}

TEST_WITH(a_slot_holds_what_was_asked_for, setup, teardown)
{
    static const size_t lens[] = {0, 1, 511, 512, 513, 1023, 1024, 1025, 262144, 262145, 1 << 20};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        uint64_t before = heap.bytes;
        struct slot *slot = slot_get(&pool, lens[i]);
        assert_non_null(slot);
        memset(slot->data, 0xab, lens[i]);
        size_t class = 512;
        while (class < lens[i])
            class *= 2;
        assert_true(heap.bytes - before >= class);
        assert_true(heap.bytes - before < class + 1024); /* no more than its class and its own record */
        assert_false(slot->whole);
        slot_put(slot);
        slot_pool_fini(&pool);
        slot_pool_init(&pool, &heap);
    }
}

TEST_WITH(the_largest_class_is_the_largest_frame, setup, teardown)
{
    struct slot *slot = slot_get(&pool, FRAME_LENGTH_MAX);
    assert_non_null(slot);
    slot_put(slot);
    assert_null(slot_get(&pool, (size_t)FRAME_LENGTH_MAX + 1));
    assert_null(slot_get(&pool, SIZE_MAX));
}

TEST_WITH(equal_needs_share_slots, setup, teardown)
{
    struct slot *a = slot_get(&pool, 600), *b = slot_get(&pool, 600);
    assert_ptr_not_equal(a, b);
    a->whole = true;
    slot_put(b);
    slot_put(a);
    uint64_t calls = heap.calls;
    assert_int_equal(pool.cached, 2048);
    assert_ptr_equal(slot_get(&pool, 1000), a); /* the warmest first */
    assert_false(a->whole);
    assert_ptr_equal(slot_get(&pool, 513), b);
    assert_int_equal(heap.calls, calls);
    assert_int_equal(pool.cached, 0);
    struct slot *other = slot_get(&pool, 512); /* of another class */
    assert_int_not_equal(heap.calls, calls);
    slot_put(a);
    slot_put(b);
    slot_put(other);
    slot_put(NULL);
}

TEST_WITH(putting_takes_it_out_of_its_holders_list, setup, teardown)
{
    struct list held;
    list_init(&held);
    struct slot *a = slot_get(&pool, 1), *b = slot_get(&pool, 1);
    list_push(&held, &a->item);
    list_push(&held, &b->item);
    slot_put(a);
    assert_ptr_equal(held.next, &b->item);
    slot_put(b);
    assert_true(list_empty(&held));
}

TEST_WITH(what_is_kept_is_bounded, setup, teardown)
{
    enum { COUNT = 40 };
    struct slot *slots[COUNT];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) {
            slots[i] = slot_get(&pool, i % 2 ? 4u << 20 : 1u << 20);
            assert_non_null(slots[i]);
        }
        for (int i = 0; i < COUNT; i++)
            slot_put(slots[i]);
        assert_true(pool.cached <= SLOT_CACHED_MAX);
        assert_true(pool.cached > SLOT_CACHED_MAX - (4u << 20));
        assert_true(heap.bytes <= SLOT_CACHED_MAX + (size_t)COUNT * 1024);
    }
}

TEST_WITH(no_memory_gives_no_slot_and_loses_nothing, setup, teardown)
{
    for (int64_t after = 0; after < 2; after++) {
        atomic_store(&heap.fail_after, after);
        assert_null(slot_get(&pool, 100));
        assert_int_equal(heap.blocks, 0);
    }
    atomic_store(&heap.fail_after, -1);
    struct slot *slot = slot_get(&pool, 100);
    assert_non_null(slot);
    slot_put(slot);
    atomic_store(&heap.fail_after, 0);
    assert_ptr_equal(slot_get(&pool, 100), slot); /* what is kept needs no memory */
    slot_put(slot);
}

/* ---- loans ---- */

struct lender {
    struct conn conn;
    int back; /* loans that came back */
    uint64_t token;
};

static void give_back(struct conn *conn, uint64_t token)
{
    struct lender *lender = (struct lender *)conn;
    lender->back++;
    lender->token = token;
}

static const struct sharing sharing = {.give_back = give_back};
static const struct transport transport = {.scheme = "lender", .sharing = &sharing};

TEST_WITH(a_bare_slot_stands_for_a_loan_and_ends_it, setup, teardown)
{
    struct lender lender = {.conn = {&transport}};
    struct slot *slot = slot_get_bare(&pool);
    assert_non_null(slot);
    assert_null(slot->data);
    assert_null(slot_payload(slot));
    slot->loan = (struct loan){"lent", &lender.conn, 42};
    assert_string_equal(slot_payload(slot), "lent");
    slot_put(slot);
    assert_int_equal(lender.back, 1);
    assert_int_equal(lender.token, 42);
    assert_ptr_equal(slot_get_bare(&pool), slot); /* kept, without its loan */
    assert_null(slot_payload(slot));
    slot_put(slot);
    assert_int_equal(lender.back, 1);
    assert_int_equal(pool.cached, 0);
}

TEST_WITH(a_slot_with_memory_has_its_payload_there, setup, teardown)
{
    struct slot *slot = slot_get(&pool, 100);
    assert_non_null(slot);
    assert_ptr_equal(slot_payload(slot), slot->data);
    slot_put(slot);
    atomic_store(&heap.fail_after, 0);
    assert_null(slot_get_bare(&pool)); /* of another kind than the one that is kept */
}
