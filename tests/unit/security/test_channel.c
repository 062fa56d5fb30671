/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends that have the same secret: however their bytes are cut, they come to know each other and talk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ends.h"

static struct credentials *ann, *bob;
static struct end dialler, listener;

static int set_up(void **state)
{
    (void)state;
    heap_init(&ends_heap, 0);
    ann = ends_node(1, 0xa);
    bob = ends_node(1, 0xb);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    end_close(&dialler);
    end_close(&listener);
    credentials_close(ann);
    credentials_close(bob);
    return ends_heap.blocks == 0 ? 0 : -1;
}

static void assert_identity(const struct identity *a, const struct identity *b)
{
    assert_non_null(a);
    assert_memory_equal(a->node.bytes, b->node.bytes, NODE_ID_LEN);
    assert_int_equal(a->instance, b->instance);
}

static void assert_met(void)
{
    assert_true(channel_ready(dialler.channel));
    assert_true(channel_ready(listener.channel));
    assert_identity(channel_peer(dialler.channel), credentials_self(bob));
    assert_identity(channel_peer(listener.channel), credentials_self(ann));
}

static void test_they_meet(void **state)
{
    (void)state;
    ends_join(&dialler, &listener, ann, bob);
    assert_met();
    ends_exchange(&dialler, &listener, 64);
    ends_exchange(&listener, &dialler, 1);
    ends_exchange(&listener, &dialler, CHANNEL_MESSAGE_MAX);
    ends_exchange(&dialler, &listener, CHANNEL_MESSAGE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_they_meet, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("channel", tests, NULL, NULL);
}
