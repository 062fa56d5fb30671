/* SPDX-License-Identifier: Apache-2.0 */
/* A member as bytes, as it travels in a choice: exactly one, whole, or none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bootstrap/roster.h"

static struct member member_of(const char *name, int addr_count)
{
    static const char *const addrs[ROSTER_ADDRS_MAX] = {"192.168.1.2:52416", "[fd00::2]:52417", "10.0.0.2:1",
                                                        "[2001:db8::2]:65535"};
    struct member m = {.instance = 77, .host_id = 5, .process = 4242, .features = FEATURE_SHM | FEATURE_QUIC};
    memset(m.node.bytes, 0xab, sizeof m.node.bytes);
    snprintf(m.name, sizeof m.name, "%s", name);
    for (int i = 0; i < addr_count; i++)
        assert_int_equal(sock_addr_parse(addrs[i], 0, &m.addrs[i]), HEARTH_OK);
    m.addr_count = addr_count;
    return m;
}

static void assert_same(const struct member *a, const struct member *b)
{
    assert_true(node_id_equal(&a->node, &b->node));
    assert_int_equal(a->instance, b->instance);
    assert_int_equal(a->host_id, b->host_id);
    assert_int_equal(a->process, b->process);
    assert_int_equal(a->features, b->features);
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->addr_count, b->addr_count);
    for (int i = 0; i < a->addr_count; i++)
        assert_true(sock_addr_equal(&a->addrs[i], &b->addrs[i]));
}

static void what_is_encoded_is_decoded(void **state)
{
    char longest[ROSTER_NAME_MAX];
    (void)state;
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const char *const names[] = {"", "desk", longest};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (int addrs = 0; addrs <= ROSTER_ADDRS_MAX; addrs++) {
            struct member m = member_of(names[i], addrs), found;
            uint8_t bytes[512];
            size_t len = member_encode(&m, bytes, sizeof bytes);
            assert_in_range(len, 56 + 2 + strlen(names[i]), sizeof bytes);
            assert_int_equal(member_decode(&found, bytes, len), HEARTH_OK);
            assert_same(&m, &found);
            assert_int_equal(member_encode(&m, bytes, len - 1), 0); /* does not fit */
            assert_int_equal(member_encode(&m, bytes, len), len);
        }
    }
}

static void anything_but_one_whole_member_is_refused(void **state)
{
    struct member m = member_of("desk", 2), found;
    uint8_t bytes[512];
    (void)state;
    size_t len = member_encode(&m, bytes, sizeof bytes);
    assert_in_range(len, 1, 256);
    for (size_t cut = 0; cut < len; cut++)
        assert_int_equal(member_decode(&found, bytes, cut), HEARTH_PROTOCOL);
    bytes[len] = 0;
    assert_int_equal(member_decode(&found, bytes, len + 1), HEARTH_PROTOCOL);
    memcpy(bytes + len, bytes, len);
    assert_int_equal(member_decode(&found, bytes, 2 * len), HEARTH_PROTOCOL);
}

static void bad_fields_are_refused(void **state)
{
    enum { NAME = 56, ADDRS = NAME + 1 + 4, FIRST = ADDRS + 1 }; /* of "desk" */
    static const struct {
        size_t at;
        uint8_t value;
    } changes[] = {
        {NAME, 64}, {NAME + 1, '\n'}, {NAME + 1, 0},  {ADDRS, 5},     {ADDRS, 1},
        {FIRST, 0}, {FIRST, 33},      {FIRST + 1, 5}, {FIRST + 1, 6},
    };
    struct member m = member_of("desk", 2), found;
    uint8_t good[512], bad[512];
    (void)state;
    size_t len = member_encode(&m, good, sizeof good);
    assert_int_equal(good[NAME], 4);
    assert_int_equal(good[ADDRS], 2);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        memcpy(bad, good, len);
        bad[changes[i].at] = changes[i].value;
        assert_int_equal(member_decode(&found, bad, len), HEARTH_PROTOCOL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_encoded_is_decoded),
        cmocka_unit_test(anything_but_one_whole_member_is_refused),
        cmocka_unit_test(bad_fields_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
