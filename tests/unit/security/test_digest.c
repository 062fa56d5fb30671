/* SPDX-License-Identifier: Apache-2.0 */
/* Digests are the beginning of SHA3-256. */
#include "security/digest.h"
#include "support/suite.h"

TEST(known_answers)
{
    static const uint8_t empty[DIGEST_LEN] = {0xa7, 0xff, 0xc6, 0xf8, 0xbf, 0x1e, 0xd7, 0x66,
                                              0x51, 0xc1, 0x47, 0x56, 0xa0, 0x61, 0xd6, 0x62};
    static const uint8_t abc[DIGEST_LEN] = {0x3a, 0x98, 0x5d, 0xa7, 0x4f, 0xe2, 0x25, 0xb2,
                                            0x04, 0x5c, 0x17, 0x2d, 0x6b, 0xd3, 0x90, 0xbd};
    struct digest a = digest_of("", 0), b = digest_of("abc", 3), again = digest_of("abc", 3);
    assert_memory_equal(a.bytes, empty, DIGEST_LEN);
    assert_memory_equal(b.bytes, abc, DIGEST_LEN);
    assert_true(digest_equal(&b, &again));
    assert_false(digest_equal(&a, &b));
}
