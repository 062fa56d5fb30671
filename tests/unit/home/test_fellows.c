/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes find each other by what they are told, are joined by one connection each pair, and tell letters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bootstrap/tunnel.h"
#include "os/clock.h"
#include "village.h"

static struct village village;

static bool letters_came(struct village *v, void *count)
{
    for (int i = 0; i < v->size; i++)
        if (v->all[i].letters < *(const uint64_t *)count)
            return false;
    return true;
}

static void six_are_joined_to_each_other(void **state)
{
    struct village *v = &village;
    uint64_t each = 5;
    uint8_t payload[100];

    (void)state;
    village_open(v, 6, 1);
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++)
            if (a != b)
                villager_meet(v, a, b);
    village_until(v, village_whole, NULL);
    letter_fill(payload, sizeof(payload), 1);
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++)
            if (a != b)
                assert_true(fellows_send(v->all[a].fellows, villager_id(v, b), LETTER_BEAT, payload, 100));
    village_until(v, letters_came, &each);
    for (int a = 0; a < 6; a++) {
        assert_int_equal(v->all[a].damaged, 0);
        assert_int_equal(v->all[a].lost, 0);
        assert_int_equal(v->all[a].linked, 5);
    }
    village_close(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(six_are_joined_to_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
