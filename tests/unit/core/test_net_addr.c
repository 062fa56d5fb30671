/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses as bytes: exact, and nothing else is one. */
#include "core/net_addr.h"
#include "support/suite.h"

TEST(bytes_and_back)
{
    static const struct net_addr addrs[] = {{4, 0x1234, 0, {10, 0, 0, 1}},
                                            {6, 0x1234, 3, {0x20, 1, [15] = 7}}};
    static const uint8_t v4[] = {4, 0x34, 0x12, 10, 0, 0, 1};
    struct net_addr back;
    uint8_t bytes[NET_ADDR_LEN_MAX];

    for (int i = 0; i < 2; i++) {
        size_t len = net_addr_len(&addrs[i]);
        struct writer w = writer_of(bytes, len), small = writer_of(bytes, len - 1);
        assert_int_equal(len, i == 0 ? 7 : 19);
        net_addr_put(&small, &addrs[i]);
        assert_true(small.bad);
        net_addr_put(&w, &addrs[i]);
        assert_true(!w.bad && w.at == w.end);
        if (i == 0)
            assert_memory_equal(bytes, v4, sizeof(v4));
        for (size_t cut = 0; cut < len; cut++) {
            struct reader r = reader_of(bytes, cut);
            assert_false(net_addr_get(&r, &back));
            assert_true(r.bad);
        }
        struct reader r = reader_of(bytes, len);
        assert_true(net_addr_get(&r, &back));
        assert_int_equal(back.scope, 0); /* it stays here */
        back.scope = addrs[i].scope;
        assert_memory_equal(&back, &addrs[i], sizeof back);
        bytes[0] = 5;
        r = reader_of(bytes, len);
        assert_false(net_addr_get(&r, &back));
    }
}
