/* SPDX-License-Identifier: Apache-2.0 */
/* HELLO as bytes: every field comes back, every wrong one is named. */
#include "cluster/peer_hello.h"
#include "support/suite.h"

static struct message_hello good_hello(void)
{
    struct message_hello hello = {.version_min = 1, .version_max = 3, .purpose = 1, .serial = 0xfffffffe};

    hello.info.id.instance = 9;
    hello.info.id.node.bytes[7] = 1;
    snprintf(hello.info.name, sizeof hello.info.name, "a name");
    return hello;
}

TEST(a_hello_is_what_it_was)
{
    struct message_hello hello = good_hello(), again;
    uint8_t bytes[MESSAGE_HELLO_MAX];
    const char *what;
    size_t len = message_hello_encode(&hello, bytes);

    assert_int_equal(message_hello_decode(&again, bytes, len, &what), HEARTH_OK);
    assert_int_equal(again.serial, hello.serial);
    assert_int_equal(again.version_max, 3);
    assert_true(identity_equal(&again.info.id, &hello.info.id));
    assert_string_equal(again.info.name, "a name");
    for (size_t cut = 0; cut < len; cut++) {
        what = NULL;
        assert_int_equal(message_hello_decode(&again, bytes, cut, &what), HEARTH_PROTOCOL);
        assert_non_null(what);
    }
    assert_int_equal(message_hello_decode(&again, bytes, len + 1, &what), HEARTH_PROTOCOL);
}

static void assert_hello_refused(size_t at, uint8_t value, const char *why)
{
    struct message_hello hello = good_hello();
    uint8_t bytes[MESSAGE_HELLO_MAX];
    size_t len = message_hello_encode(&hello, bytes);
    const char *what = "";

    bytes[at] = value;
    assert_int_equal(message_hello_decode(&hello, bytes, len, &what), HEARTH_PROTOCOL);
    assert_string_equal(what, why);
}

TEST(hellos_that_may_not_be)
{
    assert_hello_refused(0, 0, "its hello is malformed");
    assert_hello_refused(0, 4, "its hello is malformed");
    assert_hello_refused(0, 3, "it speaks only newer versions of control messages: update this node");
    assert_hello_refused(4, 0, "its hello has an unknown purpose");
    assert_hello_refused(4, 3, "its hello has an unknown purpose");
    assert_hello_refused(5, 1, "its hello is malformed");
    assert_hello_refused(7, 1, "its hello is malformed");
    assert_hello_refused(12, 0, "its hello does not describe a node");
}
