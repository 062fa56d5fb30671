/* SPDX-License-Identifier: Apache-2.0 */
/* Findings are judged by the worst and printed with their fix; rulesets of firewalls are read. */
#include "cli/doctor/doctor.h"
#include "printed.h"
#include "support/suite.h"

TEST(test_findings)
{
    struct doctor d = {.findings = json_array()};
    struct printed out;
    assert_int_equal(doctor_worst(&d), PASS);
    doctor_note(&d, PASS, "key", "%s", "good");
    assert_int_equal(doctor_worst(&d), PASS);
    doctor_note(&d, WARN, "udp-buffers", "small" FIX "sysctl %d", 7);
    assert_int_equal(doctor_worst(&d), WARN);
    doctor_note(&d, FAIL, "port", "a\033[2Jb");
    doctor_note(&d, PASS, "clock", "goes");
    assert_int_equal(doctor_worst(&d), FAIL);
    doctor_print(&d, printed_open(&out));
    assert_string_equal(printed_text(&out), "pass  key          good\n"
                                            "warn  udp-buffers  small\n"
                                            "                   fix: sysctl 7\n"
                                            "fail  port         a?[2Jb\n"
                                            "pass  clock        goes\n"
                                            "\n2 passed, 1 warning, 1 failed\n");
    printed_free(&out);
    for (int i = 0; i < 2 * FINDINGS_MAX; i++)
        doctor_note(&d, PASS, "many", "%d", i);
    assert_int_equal(json_array_size(d.findings), FINDINGS_MAX);
    json_decref(d.findings);
}

#define NFT_HEAD(policy)                                                                                     \
    "table ip nat {\n\tchain PREROUTING {\n\t\ttype nat hook prerouting priority 0; policy "                 \
    "accept;\n\t}\n}\n"                                                                                      \
    "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy " policy       \
    ";\n\t\tct state established accept\n"
#define NFT_TAIL                                                                                             \
    "\t}\n\tchain forward {\n\t\ttype filter hook forward priority 0; policy drop;\n\t\tdrop\n\t}\n}\n"

TEST(test_nft)
{
    static const struct {
        const char *text;
        bool closed, opened;
    } cases[] = {
        {"", false, false},
        {NFT_HEAD("accept") NFT_TAIL, false, false},
        {NFT_HEAD("drop") NFT_TAIL, true, false},
        {NFT_HEAD("accept") "\t\tdrop\n" NFT_TAIL, true, false},
        {NFT_HEAD("accept") "\t\tcounter packets 12 bytes 1234 drop\n" NFT_TAIL, true, false},
        {NFT_HEAD("accept") "\t\treject with icmpx type admin-prohibited\n" NFT_TAIL, true, false},
        {NFT_HEAD("accept") "\t\tip saddr 10.0.0.1 drop\n" NFT_TAIL, false, false},
        {NFT_HEAD("drop") "\t\ttcp dport 52416 accept\n" NFT_TAIL, true, true},
        {NFT_HEAD("drop") "\t\ttcp dport 52415-52431 accept\n" NFT_TAIL, true, true},
        {NFT_HEAD("drop") "\t\ttcp dport 22 accept\n\t\ttcp dport 52416 drop\n" NFT_TAIL, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct firewall_view view = firewall_read_nft(cases[i].text);
        if (view.closed != cases[i].closed || view.opened != cases[i].opened)
            fail_msg("case %zu: closed %d, opened %d", i, view.closed, view.opened);
        assert_string_equal(view.place, view.closed ? "inet filter input" : "");
    }
}

TEST(test_iptables)
{
    static const struct {
        const char *text;
        bool closed, opened;
    } cases[] = {
        {"-P INPUT ACCEPT\n", false, false},
        {"-P INPUT DROP\n", true, false},
        {"-P INPUT ACCEPT\n-A INPUT -i lo -j ACCEPT\n-A INPUT -j REJECT --reject-with icmp-port", true,
         false},
        {"-P INPUT ACCEPT\n-A INPUT -s 10.0.0.1/32 -j DROP\n", false, false},
        {"-P INPUT DROP\n-A INPUT -p tcp -m tcp --dport 52415:52431 -j ACCEPT\n", true, true},
        {"-P INPUT DROP\n-A INPUT -p tcp -m tcp --dport 52416 -j ACCEPT", true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct firewall_view view = firewall_read_iptables(cases[i].text);
        if (view.closed != cases[i].closed || view.opened != cases[i].opened)
            fail_msg("case %zu: closed %d, opened %d", i, view.closed, view.opened);
    }
}
