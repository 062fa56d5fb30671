/* SPDX-License-Identifier: Apache-2.0 */
/* The machine is known, its networks are told apart, and the right address is chosen. */
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "addrs.h"
#include "os/clock.h"
#include "os/host.h"
#include "os/thread.h"
#include "support/suite.h"

#define SOON_NS (clock_real() + 30 * NS_PER_S)

static struct interface interface_of(const char *name, enum interface_kind kind, bool up, const char *addr)
{
    struct interface i = {.kind = kind, .up = up, .addr = addr_of(addr)};
    snprintf(i.name, sizeof i.name, "%s", name);
    i.link_local = strncmp(addr, "fe80", 4) == 0 || strncmp(addr, "169.254", 7) == 0;
    return i;
}

/* ---- who ---- */

TEST(processes_of_one_user_share_an_id)
{
    uint64_t id = 0, again = 1;
    int code;

    assert_int_equal(host_id(&id), HEARTH_OK);
    assert_int_equal(host_id(&again), HEARTH_OK);
    assert_true(id == again && id != 0);
    assert_int_equal(host_user(), geteuid());
    assert_int_equal(host_parent(), getppid());

    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { /* the same, and as another user not the same */
        int bad = host_id(&again) != HEARTH_OK || again != id || host_parent() != getppid();
        if (geteuid() == 0)
            bad |= seteuid(65534) != 0 || host_id(&again) != HEARTH_OK || again == id;
        _exit(bad);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
}

TEST(the_name_is_printable_and_terminated)
{
    char name[256], cut[4] = "###";

    host_name(name, sizeof name);
    assert_true(name[0] != '\0');
    for (const char *c = name; *c != '\0'; c++)
        assert_true(*c > ' ' && *c <= '~');
    host_name(cut, sizeof cut);
    assert_true(strlen(cut) < sizeof cut);
    assert_memory_equal(cut, name, strlen(cut));
}

TEST(small_files_are_read_whole)
{
    char path[64], text[8];

    snprintf(path, sizeof path, "/tmp/hearth-test-file-%d", (int)getpid());
    assert_false(file_read(path, text, sizeof text));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_false(file_read(path, text, sizeof text));
    fputs("12345678901", file);
    fclose(file);
    assert_true(file_read(path, text, sizeof text));
    assert_string_equal(text, "1234567");
    unlink(path);
}

/* ---- what it has ---- */

TEST(facts_are_those_of_the_system)
{
    struct host_facts facts;
    struct utsname name;
    memset(&facts, 0xff, sizeof facts);
    host_facts(&facts);
    assert_true(facts.machine != 0);
    assert_int_equal(facts.cores, cpu_count());
    assert_in_range(facts.memory_mib, 16, UINT32_MAX - 1);
    assert_int_equal(facts.cpu & ~(HOST_AVX2 | HOST_AVX512 | HOST_NEON | HOST_AES), 0);
    if (facts.cpu & HOST_NEON)
        assert_int_equal(facts.cpu & (HOST_AVX2 | HOST_AVX512), 0);
    assert_int_equal(uname(&name), 0);
    assert_memory_equal(facts.platform, name.sysname, strlen(name.sysname));
    assert_non_null(strstr(facts.platform, name.machine));
}

TEST(platform_is_short_and_printable)
{
    struct host_facts facts;
    host_facts(&facts);
    size_t len = strnlen(facts.platform, sizeof facts.platform);
    assert_in_range(len, 1, sizeof facts.platform - 1);
    for (size_t i = 0; i < len; i++)
        assert_in_range(facts.platform[i], ' ', '~');
}

/* One key on two machines was copied: so it must be the same machine to all processes on it. */
TEST(processes_see_the_same_machine)
{
    struct host_facts mine, theirs;
    int status, ends[2];
    host_facts(&mine);
    host_facts(&theirs);
    assert_memory_equal(&mine, &theirs, sizeof mine);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        host_facts(&theirs);
        _exit(write(ends[1], &theirs, sizeof theirs) != (ssize_t)sizeof theirs);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(ends[0], &theirs, sizeof theirs), sizeof theirs);
    close(ends[0]);
    close(ends[1]);
    assert_memory_equal(&mine, &theirs, sizeof mine);
}

/* Among the words of a processor's line in /proc/cpuinfo, which may be long. */
static bool kernel_knows(FILE *file, const char *word)
{
    char line[16384];
    size_t len = strlen(word);

    rewind(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "flags", 5) != 0 && strncmp(line, "Features", 8) != 0)
            continue;
        for (const char *at = strstr(line, word); at; at = strstr(at + len, word))
            if (at[-1] == ' ' && (at[len] == ' ' || at[len] == '\n'))
                return true;
        return false;
    }
    return false;
}

TEST(the_processor_has_aes_if_the_kernel_says_so)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    bool knows;

    if (!file)
        skip();
    knows = kernel_knows(file, "aes") && (kernel_knows(file, "pclmulqdq") || kernel_knows(file, "pmull"));
    (void)fclose(file);
    assert_int_equal(processor_has_aes(), knows);
}

/* ---- networks ---- */

TEST(names_tell_kinds)
{
    static const struct {
        const char *name;
        enum interface_kind kind;
    } rows[] = {
        {"eth0", INTERFACE_WIRE},       {"enp3s0", INTERFACE_WIRE},       {"wlan0", INTERFACE_WIRE},
        {"ib0", INTERFACE_WIRE},        {"bond0", INTERFACE_WIRE},        {"docker0", INTERFACE_VIRTUAL},
        {"br-7e1c", INTERFACE_VIRTUAL}, {"br0", INTERFACE_OTHER},         {"veth12ab", INTERFACE_VIRTUAL},
        {"virbr0", INTERFACE_VIRTUAL},  {"cni0", INTERFACE_VIRTUAL},      {"tun0", INTERFACE_TUNNEL},
        {"wg0", INTERFACE_TUNNEL},      {"tailscale0", INTERFACE_TUNNEL}, {"ztabcdef", INTERFACE_TUNNEL},
        {"ppp0", INTERFACE_TUNNEL},     {"tap0", INTERFACE_OTHER},        {"strange", INTERFACE_OTHER}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(interface_kind_of_name(rows[i].name), rows[i].kind);
    assert_false(interface_wireless("lo"));
    assert_false(interface_wireless(""));
    assert_false(interface_wireless("../net/lo"));
}

TEST(interfaces_are_listed_best_first)
{
    struct interface list[INTERFACES_MAX];
    int count = 0, loopbacks = 0;

    assert_int_equal(host_interfaces(list, &count), HEARTH_OK);
    assert_in_range(count, 1, INTERFACES_MAX);
    for (int i = 0; i < count; i++) {
        assert_true(list[i].name[0] != '\0');
        assert_int_equal(sock_addr_port(&list[i].addr), 0);
        assert_true(host_owns(&list[i].addr));
        assert_int_equal(sock_addr_loopback(&list[i].addr) && list[i].kind != INTERFACE_LOOPBACK, 0);
        loopbacks += list[i].kind == INTERFACE_LOOPBACK;
        if (i > 0)
            assert_true(list[i - 1].kind <= list[i].kind);
    }
    assert_true(loopbacks > 0);
}

static bool owns(const char *text)
{
    struct sock_addr addr = addr_of(text);
    return host_owns(&addr);
}

TEST(own_addresses_are_known)
{
    static const char *const ours[] = {"127.0.0.1:9", "127.3.4.5", "[::1]:9", "0.0.0.0", "::", "unix:@x"};
    static const char *const others[] = {"203.0.113.77", "[2001:db8:77::1]:9"};

    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        assert_true(owns(ours[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(owns(others[i]));
}

/* ---- choosing ---- */

TEST(the_best_is_told)
{
    const struct interface list[] = {
        interface_of("eth0", INTERFACE_WIRE, true, "192.168.1.2"),
        interface_of("eth0", INTERFACE_WIRE, true, "2001:db8::2"),
        interface_of("eth0", INTERFACE_WIRE, true, "fe80::2"),
        interface_of("eth1", INTERFACE_WIRE, false, "192.168.9.9"),
        interface_of("br0", INTERFACE_OTHER, true, "10.0.0.1"),
        interface_of("wg0", INTERFACE_TUNNEL, true, "10.8.0.1"),
        interface_of("veth0", INTERFACE_VIRTUAL, true, "10.7.0.1"),
        interface_of("lo", INTERFACE_LOOPBACK, true, "127.0.0.1"),
        interface_of("lo", INTERFACE_LOOPBACK, true, "::1"),
    };
    struct sock_addr addrs[8];

    assert_int_equal(host_best(list, 9, false, addrs, 8), 3);
    assert_addr(&addrs[0], "192.168.1.2:0");
    assert_addr(&addrs[1], "[2001:db8::2]:0");
    assert_addr(&addrs[2], "10.0.0.1:0");
    assert_int_equal(host_best(list, 9, true, addrs, 8), 2);
    assert_addr(&addrs[1], "10.0.0.1:0");
    assert_int_equal(host_best(list, 9, false, addrs, 1), 1);
    /* Without the good ones: the tunnel, then what is virtual, then loopback. */
    assert_int_equal(host_best(list + 5, 4, false, addrs, 8), 1);
    assert_addr(&addrs[0], "10.8.0.1:0");
    assert_int_equal(host_best(list + 6, 3, false, addrs, 8), 1);
    assert_addr(&addrs[0], "10.7.0.1:0");
    assert_int_equal(host_best(list + 7, 2, false, addrs, 8), 2);
    assert_addr(&addrs[0], "127.0.0.1:0");
    /* Nothing is plugged in: better than nothing. */
    assert_int_equal(host_best(list + 3, 1, false, addrs, 8), 1);
    assert_addr(&addrs[0], "192.168.9.9:0");
    assert_int_equal(host_best(list + 2, 1, false, addrs, 8), 0);
}

#define PORT 7

static struct sock_addr listen_at, addrs[4];
static struct error error;
static int count;

static int choose(const char *bind, const char *advertise)
{
    return host_choose(&(struct host_wanted){bind, advertise, PORT, SOON_NS}, &listen_at, addrs, 4, &count,
                       &error);
}

TEST(every_interface_by_default)
{
    assert_int_equal(choose(NULL, NULL), HEARTH_OK);
    assert_true(sock_addr_wildcard(&listen_at));
    assert_int_equal(sock_addr_port(&listen_at), PORT);
    assert_in_range(count, 1, 4);
    for (int i = 0; i < count; i++) {
        assert_int_equal(sock_addr_port(&addrs[i]), 0);
        assert_true(host_owns(&addrs[i]) && !sock_addr_wildcard(&addrs[i]));
    }
}

TEST(bind_by_name_and_by_address)
{
    static const char *const binds[][2] = {
        {"lo", "127.0.0.1:7"}, {"127.0.0.9", "127.0.0.9:7"}, {"::1", "[::1]:7"}};

    for (size_t i = 0; i < sizeof binds / sizeof binds[0]; i++) {
        assert_int_equal(choose(binds[i][0], NULL), HEARTH_OK);
        assert_addr(&listen_at, binds[i][1]);
        assert_int_equal(count, 1);
        sock_addr_set_port(&listen_at, 0);
        assert_true(sock_addr_equal(&listen_at, &addrs[0]));
    }
    assert_int_equal(choose("0.0.0.0", NULL), HEARTH_OK);
    for (int i = 0; i < count; i++)
        assert_int_equal(sock_addr_family(&addrs[i]), SOCK_IPV4);
}

TEST(what_is_advertised_is_told)
{
    assert_int_equal(choose(NULL, "203.0.113.7:99"), HEARTH_OK);
    assert_int_equal(count, 1);
    assert_addr(&addrs[0], "203.0.113.7:99");
    assert_int_equal(choose("lo", "2001:db8::7"), HEARTH_OK);
    assert_addr(&addrs[0], "[2001:db8::7]:0");
    assert_addr(&listen_at, "127.0.0.1:7");
}

TEST(bad_requests_are_explained)
{
    static const char *const bad[][2] = {
        {"no such", NULL}, {"unix:@x", NULL}, {NULL, "a:b:c"}, {NULL, "unix:@x"}, {NULL, "0.0.0.0"}};

    count = -7;
    assert_int_equal(choose("203.0.113.7", NULL), HEARTH_INVALID);
    assert_non_null(strstr(error.text, "\"203.0.113.7\""));
    assert_non_null(strstr(error.text, "lo 127.0.0.1"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(choose(bad[i][0], bad[i][1]), HEARTH_INVALID);
    assert_int_equal(count, -7);
}
