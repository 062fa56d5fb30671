/* SPDX-License-Identifier: Apache-2.0 */
/* A probe ends by its deadline, and says what it found. Only loopback is used: other networks stay quiet. */
#include "addrs.h"
#include "os/clock.h"
#include "os/multicast_probe.h"
#include "support/suite.h"

/* Loopback carries multicast of IPv4 wherever there is any; that of IPv6 not everywhere. */
TEST(test_loopback)
{
    struct interface at = {"lo", INTERFACE_LOOPBACK, true, false, addr_of("127.0.0.1")};
    struct error error;
    if (!host_owns(&at.addr))
        skip();
    int status = multicast_probe(&at, clock_real() + PATIENCE_NS, &error);
    if (status != HEARTH_OK)
        fail_msg("%s", error.text);
}

TEST(test_all_end)
{
    struct interface list[INTERFACES_MAX];
    int count = 0;
    assert_int_equal(host_interfaces(list, &count), HEARTH_OK);
    for (int i = 0; i < count; i++) {
        struct error error;
        if (list[i].kind != INTERFACE_LOOPBACK)
            continue;
        error_clear(&error);
        int status = multicast_probe(&list[i], clock_real() + NS_PER_MS, &error);
        assert_true(status == HEARTH_OK || status == HEARTH_TIMEOUT || status == HEARTH_SYSTEM);
        if (status != HEARTH_OK)
            assert_non_null(strstr(error.text, list[i].name));
    }
}

TEST(test_nobodys_address)
{
    struct interface at = {.name = "nothing0", .up = true, .addr = addr_of("203.0.113.77")};
    struct error error;
    assert_int_equal(multicast_probe(&at, clock_real() + NS_PER_MS, &error), HEARTH_SYSTEM);
    assert_non_null(strstr(error.text, "nothing0"));
}
