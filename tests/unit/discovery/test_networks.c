/* SPDX-License-Identifier: Apache-2.0 */
/* Which interfaces mDNS uses: real networks before VPNs before bridges of containers, and loopback always. */
#include "discovery/networks.h"
#include "support/suite.h"

static struct interface list[INTERFACES_MAX];
static int count;

static int begin(void **state)
{
    count = 0;
    return 0;
}

/* In the order of host_interfaces, which is the caller's business here. */
static void have(const char *name, enum interface_kind kind, const char *addr, bool up)
{
    struct interface *i = &list[count++];

    memset(i, 0, sizeof *i);
    snprintf(i->name, sizeof i->name, "%s", name);
    i->kind = kind;
    i->up = up;
    assert_int_equal(sock_addr_parse(addr, 0, &i->addr), HEARTH_OK);
}

static void chosen_are(const char *bind, const char *expected)
{
    struct networks n;
    char text[4096] = "";

    networks_choose(&n, list, count, bind);
    for (int i = 0; i < n.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s", n.list[i].line);
    assert_string_equal(text, expected);
}

TEST_WITH(all_of_a_real_network, begin, NULL)
{
    have("eth0", INTERFACE_WIRE, "192.168.1.2", true);
    have("eth0", INTERFACE_WIRE, "fd00::2", true);
    have("wlan0", INTERFACE_WIRE, "192.168.7.2", true);
    have("eth0", INTERFACE_WIRE, "fe80::1", true);
    have("br0", INTERFACE_OTHER, "10.5.0.1", true);
    have("eth9", INTERFACE_WIRE, "192.168.9.2", false);
    have("wg0", INTERFACE_TUNNEL, "10.8.0.1", true);
    have("docker0", INTERFACE_VIRTUAL, "172.17.0.1", true);
    have("lo", INTERFACE_LOOPBACK, "127.0.0.1", true);
    have("lo", INTERFACE_LOOPBACK, "::1", true);
    chosen_are(NULL, "address eth0 192.168.1.2 fd00::2 fe80::1\naddress wlan0 192.168.7.2\n"
                     "address br0 10.5.0.1\naddress lo 127.0.0.1 ::1\n");
}

TEST_WITH(worse_ones_only_without_better_ones, begin, NULL)
{
    have("eth0", INTERFACE_WIRE, "192.168.1.2", false);
    have("wg0", INTERFACE_TUNNEL, "10.8.0.1", true);
    have("docker0", INTERFACE_VIRTUAL, "172.17.0.1", true);
    have("lo", INTERFACE_LOOPBACK, "127.0.0.1", true);
    chosen_are(NULL, "address wg0 10.8.0.1\naddress lo 127.0.0.1\n");
    list[1].up = false;
    chosen_are(NULL, "address docker0 172.17.0.1\naddress lo 127.0.0.1\n");
    list[2].up = false;
    chosen_are(NULL, "address lo 127.0.0.1\n");
    count = 0;
    chosen_are(NULL, "");
}

TEST_WITH(bound_to_one, begin, NULL)
{
    have("eth0", INTERFACE_WIRE, "192.168.1.2", true);
    have("eth0", INTERFACE_WIRE, "192.168.1.3", true);
    have("wlan0", INTERFACE_WIRE, "192.168.7.2", true);
    have("docker0", INTERFACE_VIRTUAL, "172.17.0.1", true);
    have("lo", INTERFACE_LOOPBACK, "127.0.0.1", true);
    have("lo", INTERFACE_LOOPBACK, "::1", true);
    chosen_are("wlan0", "address wlan0 192.168.7.2\n");
    chosen_are("docker0", "address docker0 172.17.0.1\n");
    chosen_are("192.168.1.3", "address eth0 192.168.1.3\n");
    chosen_are("127.0.0.1", "address lo 127.0.0.1\n");
    chosen_are("10.0.0.1", "");
    chosen_are("nosuch", "");
    chosen_are("0.0.0.0",
               "address eth0 192.168.1.2 192.168.1.3\naddress wlan0 192.168.7.2\naddress lo 127.0.0.1\n");
    chosen_are("::", "address eth0 192.168.1.2 192.168.1.3\naddress wlan0 192.168.7.2\n"
                     "address lo 127.0.0.1 ::1\n");
}

TEST_WITH(many_addresses_are_cut, begin, NULL)
{
    struct networks n;
    struct mdns_command command;
    const char *what = NULL;
    char addr[32];

    for (int i = 0; i < 3 * MDNS_ADDRESSES; i++) {
        snprintf(addr, sizeof addr, "10.0.0.%d", i + 1);
        have("eth0", INTERFACE_WIRE, addr, true);
    }
    networks_choose(&n, list, count, NULL);
    assert_int_equal(n.count, 1);
    assert_int_equal(mdns_command_parse(&command, n.list[0].line, strlen(n.list[0].line) - 1, &what),
                     HEARTH_OK);
    assert_int_equal(command.count, MDNS_ADDRESSES);
    assert_int_equal(sock_addr_parse("10.0.0.1", 0, &list[0].addr), HEARTH_OK);
    assert_true(sock_addr_equal(&command.addrs[0], &list[0].addr));
}

TEST_WITH(many_interfaces_are_cut, begin, NULL)
{
    struct networks n;
    char name[16], addr[32];

    for (int i = 0; i < 2 * NETWORKS_MAX; i++) {
        snprintf(name, sizeof name, "eth%d", i);
        snprintf(addr, sizeof addr, "10.0.%d.1", i);
        have(name, INTERFACE_WIRE, addr, true);
    }
    have("lo", INTERFACE_LOOPBACK, "127.0.0.1", true);
    networks_choose(&n, list, count, NULL);
    assert_int_equal(n.count, NETWORKS_MAX);
    assert_non_null(networks_find(&n, "eth0"));
    assert_null(networks_find(&n, "eth31"));
}

TEST_WITH(equal_or_not, begin, NULL)
{
    struct networks a, b;

    have("eth0", INTERFACE_WIRE, "10.0.0.1", true);
    networks_choose(&a, list, count, NULL);
    networks_choose(&b, list, count, NULL);
    assert_true(networks_equal(&a, &b));
    have("lo", INTERFACE_LOOPBACK, "127.0.0.1", true);
    networks_choose(&b, list, count, NULL);
    assert_false(networks_equal(&a, &b));
    assert_true(networks_find(&b, "lo")->loopback);
    assert_false(networks_find(&b, "eth0")->loopback);
    networks_look(&a, NULL);
    networks_look(&b, NULL);
    assert_true(networks_equal(&a, &b));
}
