/* SPDX-License-Identifier: Apache-2.0 */
/* Events come out by time, and in the order they were added where times are equal. */
#include "collective/drystate.h"
#include "core/prng.h"
#include "support/suite.h"

static struct heap heap;

TEST(test_order)
{
    struct agenda agenda;
    struct prng prng;
    struct agenda_event last = {.time = -1};
    uint32_t added = 0, taken = 0;

    prng_init(&prng, 3);
    assert_int_equal(agenda_init(&agenda, &heap), HEARTH_OK);
    while (taken < 5000) { /* never before what has happened already, as in a run */
        if (added < 5000 && (agenda.count == 0 || prng_below(&prng, 3) > 0)) {
            double from = last.time > 0 ? last.time : 0;
            assert_int_equal(agenda_add(&agenda, from + (double)prng_below(&prng, 50), added % 7, added),
                             HEARTH_OK);
            added++;
            continue;
        }
        struct agenda_event event = agenda_take(&agenda);
        assert_true(event.time > last.time || (event.time == last.time && event.id > last.id));
        assert_int_equal(event.kind, event.id % 7);
        last = event;
        taken++;
    }
    assert_int_equal(agenda.count, 0);
    agenda_fini(&agenda);
    assert_int_equal(heap.blocks, 0);
}

TEST(test_no_memory)
{
    struct agenda agenda;

    heap.fail_after = 0;
    assert_int_equal(agenda_init(&agenda, &heap), HEARTH_NO_MEMORY);
    agenda_fini(&agenda);
    heap.fail_after = 1;
    assert_int_equal(agenda_init(&agenda, &heap), HEARTH_OK);
    int status = HEARTH_OK;
    uint32_t added = 0;
    for (; status == HEARTH_OK; added++)
        status = agenda_add(&agenda, 1000 - added, 0, added);
    assert_int_equal(status, HEARTH_NO_MEMORY);
    assert_int_equal(agenda.count, added - 1); /* what is in it is still there */
    assert_int_equal(agenda_take(&agenda).id, added - 2);
    heap.fail_after = -1;
    agenda_fini(&agenda);
    assert_int_equal(heap.blocks, 0);
}

int main(void)
{
    heap_init(&heap, 0);
    return suite_run();
}
