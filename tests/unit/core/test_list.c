/* SPDX-License-Identifier: Apache-2.0 */
/* The list keeps order, and elements may leave while it is walked. */
#include "core/list.h"
#include "core/types.h"
#include "support/suite.h"

struct item {
    int number;
    struct list link;
};

TEST(items_stand_in_order_and_leave_while_walked)
{
    struct item items[10];
    struct list head, *at, *after;
    int expected = 0;

    list_init(&head);
    assert_true(list_empty(&head));
    for (int i = 0; i < 10; i++) {
        items[i].number = i;
        list_push(&head, &items[i].link);
    }
    LIST_EACH (at, after, &head) {
        struct item *item = container_of(at, struct item, link);
        assert_int_equal(item->number, expected++);
        if (item->number % 2 == 0)
            list_remove(at);
    }
    assert_int_equal(expected, 10);
    expected = 1;
    LIST_EACH (at, after, &head) {
        assert_int_equal(container_of(at, struct item, link)->number, expected);
        expected += 2;
        list_remove(at);
        list_remove(at);
    }
    assert_int_equal(expected, 11);
    assert_true(list_empty(&head));
    LIST_EACH (at, after, &head)
        fail();
}
