/* SPDX-License-Identifier: Apache-2.0 */
/* The finder and helpers that misbehave: they crash, hang, flood, write rubbish, or do not go. */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "discovery/helper.h"
#include "os/clock.h"
#include "support/suite.h"
#include "unit/discovery/fake.h"

#define PATIENCE_NS (30 * NS_PER_S) /* against hangs only */
/* Of a script: until we say what to publish. */
#define UNTIL_PUBLISH "while read -r line; do case $line in publish*) break ;; esac; done\n"

static struct fake fake; /* big */

/* A script that says ready, then these found lines, then waits for its end. */
static const char *telling(char *script, size_t size, const char *first, const char *second)
{
    snprintf(script, size, "echo ready fake\necho '%s'\necho '%s'\ncat >/dev/null", first, second);
    return script;
}

static bool works(char *text, size_t size)
{
    return finder_text(fake.finder, text, size);
}

static void until_text(const char *expected)
{
    uint64_t end_ns = clock_real() + PATIENCE_NS;
    char text[400] = "";

    while (!strstr(text, expected)) {
        fake_pump(&fake);
        works(text, sizeof text);
        if (clock_real() > end_ns)
            fail_msg("\"%s\" instead of \"%s\"", text, expected);
    }
}

TEST(sightings_come_and_go)
{
    char a[512], b[512], script[2048], text[400];
    uint64_t changed;
    int count;

    fake_found(a, sizeof a, "k1", "127.0.0.1", 1);
    fake_found(b, sizeof b, "k2", "127.0.0.2", 2);
    snprintf(script, sizeof script,
             "echo ready fake\necho '%s'\necho '%s'\n" UNTIL_PUBLISH "echo lost k1\ncat >/dev/null", a, b);
    fake_open(&fake, script, NULL);
    assert_false(works(text, sizeof text));
    fake_until_logged(&fake, "mdns works: helper");
    assert_true(works(text, sizeof text));
    assert_non_null(strstr(text, "mdns works (helper "));
    fake_until_count(&fake, 2);
    struct sighting self = fake_self(99);
    finder_announce(fake.finder, &self, fake.now_ns);
    fake_until_count(&fake, 1);
    const struct sighting *list = finder_sightings(fake.finder, &count, &changed);
    assert_true(list[0].id.instance == 2);
    assert_string_equal(list[0].name, "node 2");
    assert_string_equal(list[0].interface, "lo");
    fake_close(&fake);
}

TEST(the_helper_is_told)
{
    struct sighting self = fake_self(7);

    fake_open(&fake, "echo ready fake\nwhile read -r line; do echo \"warn got $line\"; done", NULL);
    finder_announce(fake.finder, &self, fake.now_ns);
    fake_until_logged(&fake, "got address lo 127.0.0.1");
    fake_until_logged(&fake, "got publish " FAKE_SPACE " " FAKE_NODE " 0000000000000007 52416 0 self");
    self.flags = 3;
    finder_announce(fake.finder, &self, fake.now_ns);
    fake_until_logged(&fake, "0000000000000007 52416 3 self");
    finder_announce(fake.finder, NULL, fake.now_ns);
    fake_until_logged(&fake, "got publish\n");
    fake_close(&fake);
}

/* It ends when its input does, and nothing of it stays. */
TEST(closing_ends_the_helper)
{
    char path[160];

    fake_open(&fake, "echo ready fake\ncat >/dev/null\n>$0.bye", NULL);
    fake_until_logged(&fake, "mdns works");
    int pid = fake_helper_pid(&fake);
    assert_true(pid > 0);
    snprintf(path, sizeof path, "%s.bye", fake.script);
    finder_close(fake.finder);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(kill(pid, 0), -1);
    unlink(path);
    unlink(fake.script);
    assert_int_equal(rmdir(fake.folder), 0);
}

TEST(a_helper_that_does_not_go_is_killed)
{
    fake_open(&fake, "echo ready fake\nexec sleep 1000", NULL);
    fake_until_logged(&fake, "mdns works");
    int pid = fake_helper_pid(&fake);
    uint64_t before_ns = clock_real();
    fake_close(&fake);
    assert_true(clock_real() - before_ns < 10 * NS_PER_S);
    assert_int_equal(kill(pid, 0), -1);
}

TEST(crashes_are_followed_by_pauses_that_grow)
{
    uint64_t pause_ns = HELPER_FIRST_NS, deadline_ns;
    struct sock_wait items[FINDER_WAITS_MAX];
    char expected[64];

    fake_open(&fake, "exit 3", NULL);
    for (int i = 0; i < 10; i++) {
        snprintf(expected, sizeof expected, "exit status 3; next try in %.2g s",
                 (double)pause_ns / (double)NS_PER_S);
        until_text(expected);
        deadline_ns = NEVER_NS;
        assert_int_equal(finder_waits(fake.finder, items, FINDER_WAITS_MAX, &deadline_ns), 0);
        assert_true(deadline_ns <= fake.now_ns + pause_ns);
        fake.now_ns += pause_ns - 1;
        finder_pump(fake.finder, fake.now_ns);
        assert_int_equal(fake_helper_pid(&fake), 0);
        fake.now_ns++;
        pause_ns = 2 * pause_ns < HELPER_LAST_NS ? 2 * pause_ns : HELPER_LAST_NS;
    }
    assert_true(pause_ns == HELPER_LAST_NS);
    assert_int_equal(fake.log_lines, 1); /* the same reason is told once */
    fake_close(&fake);
}

TEST(a_long_life_makes_pauses_short_again)
{
    fake_open(&fake, "exit 3", NULL);
    for (int i = 0; i < 5; i++) {
        until_text("exit status 3");
        fake.now_ns += HELPER_LAST_NS;
        finder_pump(fake.finder, fake.now_ns); /* begins the next */
    }
    until_text("exit status 3");
    fake_replace(&fake, "echo ready fake\n" UNTIL_PUBLISH "exit 4");
    fake.now_ns += HELPER_LAST_NS;
    fake_until_logged(&fake, "mdns works");
    fake.now_ns += HELPER_HEALTH_NS;
    struct sighting self = fake_self(1);
    finder_announce(fake.finder, &self, fake.now_ns);
    fake_until_logged(&fake, "exit status 4; next try in 0.25 s");
    fake_close(&fake);
}

TEST(sightings_outlive_the_helper_for_a_while)
{
    char a[512], b[512], script[2048];

    fake_found(a, sizeof a, "k1", "127.0.0.1", 1);
    fake_found(b, sizeof b, "k2", "127.0.0.2", 2);
    fake_open(&fake, telling(script, sizeof script, a, b), NULL);
    fake_until_count(&fake, 2);
    fake_replace(&fake, telling(script, sizeof script, fake_found(b, sizeof b, "other", "127.0.0.2", 2), b));
    assert_int_equal(kill(fake_helper_pid(&fake), SIGKILL), 0);
    fake_until_logged(&fake, "signal 9");
    fake_until_count(&fake, 2);
    fake.now_ns += HELPER_FIRST_NS;
    for (const char *again = NULL; !again; again = strstr(strstr(fake.log, "signal 9"), "mdns works:"))
        fake_pump(&fake);
    fake_until_count(&fake, 2);
    fake.now_ns += 74 * NS_PER_S;
    fake_until_count(&fake, 2);
    fake.now_ns += 3 * NS_PER_S;
    fake_until_count(&fake, 1); /* the other one was seen again */
    fake_close(&fake);
}

TEST(helpers_that_say_nothing_are_given_up)
{
    fake_open(&fake, "exec sleep 1000", NULL);
    fake_pump(&fake);
    assert_true(fake_helper_pid(&fake) > 0);
    fake.now_ns += 11 * NS_PER_S;
    fake_until_logged(&fake, "not ready in time");
    fake_close(&fake);
}

TEST(helpers_that_do_not_read_are_given_up)
{
    struct sighting self = fake_self(1);

    fake_open(&fake, "echo ready fake\nexec sleep 1000", NULL);
    fake_until_logged(&fake, "mdns works");
    for (int i = 0; i < 100000 && !strstr(fake.log, "does not read"); i++) {
        self.flags++;
        finder_announce(fake.finder, &self, fake.now_ns);
        finder_pump(fake.finder, fake.now_ns);
        if (i % 10000 == 9999)
            fake.now_ns += 31 * NS_PER_S;
    }
    fake_until_logged(&fake, "does not read");
    fake_close(&fake);
}

TEST(half_lines_wait_for_the_rest)
{
    char line[512], script[2048];

    fake_found(line, sizeof line, "k1", "127.0.0.1", 1);
    snprintf(script, sizeof script,
             "printf 'rea'\nprintf 'dy fake\\nfou'\nread x\nprintf '%s\\nwar' '%s'\nexit 0", "%s", line + 3);
    fake_open(&fake, script, NULL);
    fake_until_count(&fake, 1);
    fake_until_logged(&fake, "exit status 0");
    assert_null(strstr(fake.log, "mdns-line")); /* the half at the end is no line */
    fake_close(&fake);
}

TEST(rubbish_is_told_once_and_then_ends_it)
{
    fake_open(&fake, "echo ready fake\nwhile echo rubbish; do :; done", NULL);
    fake_until_logged(&fake, "writes what are no lines");
    assert_int_equal(fake.log_lines, 3); /* ready, rubbish, the end */
    fake_close(&fake);
}

TEST(endless_lines_are_skipped)
{
    char line[512], script[2048];

    fake_found(line, sizeof line, "k1", "127.0.0.1", 1);
    snprintf(script, sizeof script,
             "echo ready fake\nhead -c 200000 /dev/zero | tr '\\0' x\necho\necho '%s'\ncat >/dev/null", line);
    fake_open(&fake, script, NULL);
    fake_until_count(&fake, 1);
    assert_non_null(strstr(fake.log, "too long"));
    fake_close(&fake);
}

/* However fast it writes, we read a bounded amount a second, and the table is bounded. */
TEST(floods_are_held_back)
{
    uint64_t deadline_ns = NEVER_NS, changed;
    struct sock_wait items[FINDER_WAITS_MAX];
    char text[400];
    int count;

    fake_open(&fake,
              "echo ready fake\ni=1\nwhile :; do\n"
              "printf 'found k%d lo 127.1.1.%d 52416 1 " FAKE_SPACE " " FAKE_NODE
              " %016x 0 n\\n' $i $((i % 250)) $i\ni=$((i + 1)); done",
              NULL);
    while (finder_waits(fake.finder, items, FINDER_WAITS_MAX, &deadline_ns) == 0 || items[0].want_recv) {
        fake_pump(&fake);
        deadline_ns = NEVER_NS;
    }
    assert_true(deadline_ns <= fake.now_ns + NS_PER_S);
    finder_sightings(fake.finder, &count, &changed);
    assert_int_equal(count, SIGHTINGS_MAX);
    uint64_t before = changed;
    finder_pump(fake.finder, fake.now_ns);
    finder_sightings(fake.finder, &count, &changed);
    assert_true(changed == before);
    assert_true(works(text, sizeof text));
    fake_close(&fake);
}

TEST(warnings_are_few)
{
    fake_open(
        &fake,
        "echo ready fake\ni=0\nwhile [ $i -lt 300 ]; do echo warn $i; echo warn same; i=$((i + 1)); done\n"
        "read x\necho lost nothing\nexit 5",
        NULL);
    fake_until_logged(&fake, "exit status 5");
    assert_non_null(strstr(fake.log, "left out"));
    assert_true(fake.log_lines < HELPER_TOLD_MAX + 5);
    fake_close(&fake);
}

TEST(its_last_words_are_told)
{
    fake_open(&fake, "echo warn cannot speak mDNS: no network\nexit 1", NULL);
    until_text("the helper ended: exit status 1 (it said: cannot speak mDNS: no network); next try in");
    fake_close(&fake);
}

TEST(a_missing_helper_is_no_error)
{
    char text[400];
    int count;

    fake_open(&fake, NULL, "10.1.2.3,10.1.2.4:99");
    fake_pump(&fake);
    assert_false(works(text, sizeof text));
    assert_non_null(strstr(text, fake.script));
    assert_non_null(strstr(text, "next try in"));
    const struct sock_addr *seeds = finder_seeds(fake.finder, &count);
    assert_int_equal(count, 2);
    assert_int_equal(sock_addr_port(&seeds[0]), HEARTH_PORT);
    assert_int_equal(sock_addr_port(&seeds[1]), 99);
    fake_close(&fake);
}

TEST(without_mdns_nothing_is_started)
{
    struct sock_wait items[FINDER_WAITS_MAX];
    struct finder_setup setup = {.helper = ""};
    struct finder *finder;
    struct heap heap;
    struct error error;
    uint64_t deadline_ns = NEVER_NS;
    char text[400];

    heap_init(&heap, 0);
    setup.heap = &heap;
    assert_int_equal(finder_open(&setup, &finder, &error), HEARTH_OK);
    finder_pump(finder, 1);
    assert_int_equal(finder_waits(finder, items, FINDER_WAITS_MAX, &deadline_ns), 0);
    assert_true(deadline_ns == NEVER_NS);
    assert_false(finder_text(finder, text, sizeof text));
    finder_close(finder);
    assert_int_equal(heap.blocks, 0);
}

/* Nobody is told to dial himself: loopback counts on loopback only, and only where we look. */
TEST(misleading_addresses_are_passed_over)
{
    char a[512], b[512], c[512], script[2048];
    uint64_t changed;
    int count;

    fake_found(a, sizeof a, "k1", "10.9.8.7", 1);
    snprintf(b, sizeof b,
             "found k2 nosuchdevice 10.9.8.7 1 1 " FAKE_SPACE " " FAKE_NODE " 0000000000000002 0 n");
    fake_found(c, sizeof c, "k3", "127.0.0.1", 3);
    snprintf(script, sizeof script, "echo ready fake\necho '%s'\necho '%s'\necho '%s'\ncat >/dev/null", a, b,
             c);
    fake_open(&fake, script, NULL);
    fake_until_count(&fake, 1);
    assert_true(finder_sightings(fake.finder, &count, &changed)[0].id.instance == 3);
    fake_close(&fake);
}

/* Neither our descriptors nor our environment, which may hold the secret. */
TEST(the_helper_inherits_nothing)
{
    int low = open("/dev/null", O_RDONLY), high = fcntl(low, F_DUPFD, 200); /* without close-on-exec */
    assert_true(low >= 0 && high >= 200);
    setenv("HEARTH_SECRET", "hush", 1);
    fake_open(&fake,
              "echo ready fake\necho warn fds $(ls /proc/$$/fd | tr '\\n' ' ')\necho warn env $(env | cut "
              "-d= -f1)\n"
              "cat >/dev/null",
              NULL);
    fake_until_logged(&fake, "mdns: env");
    assert_null(strstr(fake.log, "HEARTH_SECRET"));
    char *fds = strstr(fake.log, "mdns: fds");
    assert_non_null(fds);
    fds[strcspn(fds, "\n")] = '\0';
    for (char *word = strchr(fds + strlen("mdns: "), ' '); word; word = strchr(word + 1, ' '))
        assert_true(strtol(word, NULL, 10) < 200); /* the shell has some of its own */
    unsetenv("HEARTH_SECRET");
    close(low);
    close(high);
    fake_close(&fake);
}
