/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of hosts, and which rank goes where. */
#include "cli/run/job.h"
#include "os/host.h"
#include "support/suite.h"

static struct hosts hosts;
static char why[512];

TEST(test_parse)
{
    assert_true(hosts_parse("a,b:2,user@c,[fe80::1]:4,fe80::2", &hosts, why, sizeof why));
    assert_int_equal(hosts.count, 5);
    assert_int_equal(hosts.ranks, 9);
    assert_string_equal(hosts.list[1].name, "b");
    assert_int_equal(hosts.list[1].count, 2);
    assert_string_equal(hosts.list[2].name, "user@c");
    assert_string_equal(host_address(&hosts.list[2]), "c");
    assert_string_equal(hosts.list[3].name, "fe80::1");
    assert_int_equal(hosts.list[3].count, 4);
    assert_string_equal(hosts.list[4].name, "fe80::2");
    assert_int_equal(hosts.list[4].count, 1);
}

TEST(test_local)
{
    char own[HOST_NAME_LEN], list[HOST_NAME_LEN + 64];
    host_name(own, sizeof own);
    snprintf(list, sizeof list, "localhost,127.0.0.1,nobody@localhost,elsewhere.invalid,%s", own);
    assert_true(hosts_parse(list, &hosts, why, sizeof why));
    assert_true(hosts.list[0].local && hosts.list[1].local && hosts.list[4].local);
    assert_false(hosts.list[2].local || hosts.list[3].local);
    assert_int_equal(hosts.list[0].machine, hosts.list[4].machine);
    assert_int_not_equal(hosts.list[0].machine, hosts.list[3].machine);
}

TEST(test_refusals)
{
    static const char *const bad[] = {"",      ",",   "a,",   ",a",   "a,,b", "a:0",    "a:x", "a:", "a:1025",
                                      "-oX=y", "a b", "a;b",  "$(x)", "[::1", "[::1]x", "@a",  "u@", "u@-a",
                                      "u@v@w", "a'b", "a:-1", "a/b",  "a\nb", "[]:2",   "a\\b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        why[0] = 0;
        if (hosts_parse(bad[i], &hosts, why, sizeof why))
            fail_msg("'%s' is taken", bad[i]);
        assert_true(strlen(why) > 0);
    }
    assert_false(hosts_parse("good,b;ad,good", &hosts, why, sizeof why));
    assert_non_null(strstr(why, "'b;ad'"));
    assert_false(hosts_parse("a:1000,b:1000", &hosts, why, sizeof why));
    assert_non_null(strstr(why, "1024 ranks"));
}

TEST(test_limits)
{
    static char list[4 * HOST_NAME_LEN + 8];
    memset(list, 'a', HOST_NAME_LEN);
    list[HOST_NAME_LEN] = 0;
    assert_false(hosts_parse(list, &hosts, why, sizeof why));
    list[HOST_NAME_LEN - 1] = 0;
    assert_true(hosts_parse(list, &hosts, why, sizeof why));
    for (int i = 0; i <= HOSTS_MAX; i++)
        memcpy(list + 2 * i, "a,", 2);
    list[2 * HOSTS_MAX + 1] = 0;
    assert_false(hosts_parse(list, &hosts, why, sizeof why));
    assert_non_null(strstr(why, "256 hosts"));
}

TEST(test_fill)
{
    static const char *const expected[] = {"a", "a", "b", "b", "b"};
    assert_true(hosts_parse("a,b:2", &hosts, why, sizeof why));
    assert_true(hosts_fill(&hosts, 0, why, sizeof why) && hosts.ranks == 3);
    assert_true(hosts_fill(&hosts, 3, why, sizeof why) && hosts.ranks == 3);
    assert_false(hosts_fill(&hosts, 2, why, sizeof why));
    assert_non_null(strstr(why, "-n 2"));
    assert_true(hosts_fill(&hosts, 5, why, sizeof why) && hosts.ranks == 5);
    for (int r = 0; r < 5; r++)
        assert_string_equal(hosts_find(&hosts, r)->name, expected[r]);
}
