/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses that one machine may have for the asking count as one. */
#include "addrs.h"
#include "support/suite.h"

static uint64_t network(const char *text)
{
    struct sock_addr addr = addr_of(text);
    return sock_addr_network(&addr);
}

TEST(one_network)
{
    static const char *const same[][2] = {
        {"192.0.2.7:1", "192.0.2.7:2"},
        {"192.0.2.7:1", "[::ffff:192.0.2.7]:9"},
        {"[2001:db8:1:2::1]:1", "[2001:db8:1:2:ffff:ffff:ffff:ffff]:2"},
        {"[fe80::1]:1", "[fe80::2]:1"},
        {"unix:/tmp/a", "unix:@b"},
    };

    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        assert_true(network(same[i][0]) == network(same[i][1]));
}

TEST(different_networks)
{
    static const char *const all[] = {
        "192.0.2.7:1",         "192.0.2.8:1",         "0.0.0.0:1",   "[::1]:1",     "[2001:db8:1:2::1]:1",
        "[2001:db8:1:3::1]:1", "[2001:db8:2:2::1]:1", "[fe80::1]:1", "unix:/tmp/a",
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (size_t k = 0; k < i; k++)
            assert_false(network(all[i]) == network(all[k]));
}

/* The same prefix is used on every link. */
TEST(links_have_their_own)
{
    assert_false(network("[fe80::1%lo]:1") == network("[fe80::1]:1"));
    assert_true(network("[fe80::1%lo]:1") == network("[fe80::2%lo]:1"));
}
