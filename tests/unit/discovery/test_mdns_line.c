/* SPDX-License-Identifier: Apache-2.0 */
/* Lines between the library and the helper: what is written is read again; whatever else is refused. */
#include "discovery/mdns_line.h"
#include "support/suite.h"

#define SPACE "00112233445566778899aabbccddeeff"
#define NODE  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define WHO   SPACE " " NODE " 00000000deadbeef"
#define LONG  "0123456789012345678901234567890123456789012345678901234567890123" /* 64 */

static int parse(struct mdns_line *line, const char *text)
{
    const char *what = NULL;
    int status = mdns_line_parse(line, text, strlen(text), &what);

    assert_true(status == HEARTH_OK || (status == HEARTH_PROTOCOL && what));
    return status;
}

static int command_parse(struct mdns_command *command, const char *text)
{
    const char *what = NULL;
    int status = mdns_command_parse(command, text, strlen(text), &what);

    assert_true(status == HEARTH_OK || (status == HEARTH_PROTOCOL && what));
    return status;
}

TEST(found_is_read)
{
    struct mdns_line line;
    char text[MDNS_LINE_MAX + 1];
    const char *given = "found 7f eth0 10.77.0.2 52416 1 " WHO " 3 the node in the attic\n";

    memcpy(text, given, strlen(given) - 1);
    text[strlen(given) - 1] = '\0';
    assert_int_equal(parse(&line, text), HEARTH_OK);
    assert_int_equal(line.kind, MDNS_FOUND);
    assert_string_equal(line.sighting.key, "7f");
    assert_string_equal(line.sighting.interface, "eth0");
    assert_int_equal(sock_addr_port(&line.sighting.addr), 52416);
    assert_int_equal(line.sighting.version, 1);
    assert_int_equal(line.sighting.space[1], 0x11);
    assert_int_equal(line.sighting.id.node.bytes[31], 0xef);
    assert_true(line.sighting.id.instance == 0xdeadbeef);
    assert_int_equal(line.sighting.flags, 3);
    assert_string_equal(line.sighting.name, "the node in the attic");
    assert_int_equal(mdns_line_found(&line.sighting, text, sizeof text), strlen(given));
    assert_string_equal(text, given);
}

TEST(addresses_are_read)
{
    static const char *const good[] = {"10.0.0.1", "fd77::1", "fe80::1%lo", "127.0.0.1", "::1"};
    struct mdns_line line;
    char text[MDNS_LINE_MAX], again[SOCK_TEXT_MAX];

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        snprintf(text, sizeof text, "found k lo %s 9 1 " WHO " 0 n", good[i]);
        assert_int_equal(parse(&line, text), HEARTH_OK);
        mdns_addr_text(&line.sighting.addr, again, sizeof again);
        assert_string_equal(again, good[i]);
    }
}

TEST(names_may_be_missing_or_long)
{
    struct mdns_line line;

    assert_int_equal(parse(&line, "found k lo 10.0.0.1 9 1 " WHO " 0"), HEARTH_OK);
    assert_string_equal(line.sighting.name, "");
    assert_int_equal(parse(&line, "found k lo 10.0.0.1 9 1 " WHO " 0 "), HEARTH_OK);
    assert_string_equal(line.sighting.name, "");
    assert_int_equal(parse(&line, "found k lo 10.0.0.1 9 1 " WHO " ffffffff " LONG), HEARTH_PROTOCOL);
    assert_int_equal(parse(&line, &LONG[1]), HEARTH_PROTOCOL);
}

TEST(other_lines_are_read)
{
    struct mdns_line line;

    assert_int_equal(parse(&line, "ready hearth-mdns 1.2.3"), HEARTH_OK);
    assert_int_equal(line.kind, MDNS_READY);
    assert_string_equal(line.text, "hearth-mdns 1.2.3");
    assert_int_equal(parse(&line, "warn two  spaces"), HEARTH_OK);
    assert_int_equal(line.kind, MDNS_WARN);
    assert_string_equal(line.text, "two  spaces");
    assert_int_equal(parse(&line, "ready"), HEARTH_OK);
    assert_int_equal(parse(&line, "lost 7f"), HEARTH_OK);
    assert_int_equal(line.kind, MDNS_LOST);
    assert_string_equal(line.sighting.key, "7f");
}

TEST(wrong_lines_are_refused)
{
    static const char *const wrong[] = {
        "",
        " ",
        "foun",
        "FOUND",
        "found",
        (" found k lo 10.0.0.1 9 1 " WHO " 0 n"),
        ("found  k lo 10.0.0.1 9 1 " WHO " 0 n"),
        ("found k lo 10.0.0.1 9 1 " WHO),
        ("found k lo 10.0.0.1 9 1 " WHO "  0 n"),
        ("found k lo 10.0.0.1 0 1 " WHO " 0 n"),
        ("found k lo 10.0.0.1 65536 1 " WHO " 0 n"),
        ("found k lo 10.0.0.1 -1 1 " WHO " 0 n"),
        ("found k lo 10.0.0.1 9x 1 " WHO " 0 n"),
        ("found k lo 10.0.0.1 4294967305 1 " WHO " 0 n"),
        ("found k lo 10.0.0.1 9 0 " WHO " 0 n"),
        ("found k lo 10.0.0.1 9 v " WHO " 0 n"),
        ("found k lo 10.0.0.1 9 1 " WHO " 123456789 n"),
        ("found k lo 10.0.0.1 9 1 " WHO " g n"),
        ("found k lo 10.0.0.1:9 9 1 " WHO " 0 n"),
        ("found k lo [::1] 9 1 " WHO " 0 n"),
        ("found k lo [::1]:9 9 1 " WHO " 0 n"),
        ("found k lo fe80::1%nosuchdevice 9 1 " WHO " 0 n"),
        ("found k lo localhost 9 1 " WHO " 0 n"),
        ("found k lo unix:@x 9 1 " WHO " 0 n"),
        ("found k lo unix:/tmp/x 9 1 " WHO " 0 n"),
        ("found k lo 0.0.0.0 9 1 " WHO " 0 n"),
        ("found k lo :: 9 1 " WHO " 0 n"),
        ("found k lo 224.0.0.251 9 1 " WHO " 0 n"),
        ("found k lo 255.255.255.255 9 1 " WHO " 0 n"),
        ("found k lo ff02::fb 9 1 " WHO " 0 n"),
        ("found k lo 10.0.0.1 9 1 " SPACE "0 " NODE " 00000000deadbeef 0 n"),
        ("found k lo 10.0.0.1 9 1 0011 " NODE " 00000000deadbeef 0 n"),
        ("found k lo 10.0.0.1 9 1 " SPACE " 01 00000000deadbeef 0 n"),
        ("found k lo 10.0.0.1 9 1 " SPACE " " NODE " deadbeef 0 n"),
        ("found k lo 10.0.0.1 9 1 " SPACE " " NODE " 0000000000000000 0 n"),
        ("found k lo 10.0.0.1 9 1 " SPACE " " NODE " 00000000DEADBEEF 0 n"),
        ("found k 012345678901234567890123456789012 10.0.0.1 9 1 " WHO " 0 n"),
        ("found " LONG LONG " lo 10.0.0.1 9 1 " WHO " 0 n"),
        ("found k lo 10.0.0.1 9 1 " WHO " 0 a\tb"),
        ("found k lo 10.0.0.1 9 1 " WHO " 0 \x7f"),
        ("found k lo 10.0.0.1 9 1 " WHO " 0 \xc3\xa9"),
        "lost",
        "lost ",
        "lost a b",
        ("lost " LONG LONG),
        ("ready " LONG LONG LONG LONG),
        ("warn " LONG LONG LONG LONG),
        ("warn " LONG LONG LONG LONG LONG LONG LONG LONG),
        "quit",
    };
    struct mdns_line line;

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (parse(&line, wrong[i]) != HEARTH_PROTOCOL)
            fail_msg("taken: %s", wrong[i]);
}

TEST(a_zero_byte_is_refused)
{
    struct mdns_line line;
    const char *what = NULL;

    assert_int_equal(mdns_line_parse(&line, "lost a\0b", 8, &what), HEARTH_PROTOCOL);
    assert_int_equal(mdns_line_parse(&line, NULL, 0, &what), HEARTH_PROTOCOL);
}

/* ---- to the helper ---- */

static struct sighting somebody(void)
{
    struct sighting a = {.id = {.instance = 0x1234}, .port = 52417, .flags = 0x1f, .name = "attic"};

    memset(a.space, 0xab, sizeof a.space);
    memset(a.id.node.bytes, 0xcd, sizeof a.id.node.bytes);
    return a;
}

TEST(publish_is_read)
{
    struct sighting a = somebody();
    struct mdns_command command;
    char text[MDNS_LINE_MAX + 1];

    size_t len = mdns_line_publish(&a, text, sizeof text);
    assert_true(len > 0 && text[len - 1] == '\n');
    text[len - 1] = '\0';
    assert_int_equal(command_parse(&command, text), HEARTH_OK);
    assert_int_equal(command.kind, MDNS_PUBLISH);
    assert_memory_equal(&command.self.space, &a.space, sizeof a.space);
    assert_memory_equal(&command.self.id, &a.id, sizeof a.id);
    assert_int_equal(command.self.port, a.port);
    assert_int_equal(command.self.flags, a.flags);
    assert_string_equal(command.self.name, a.name);
    assert_int_equal(mdns_line_publish(&a, text, 20), 0);
    assert_int_equal(mdns_line_publish(NULL, text, sizeof text), strlen("publish\n"));
    assert_int_equal(command_parse(&command, "publish"), HEARTH_OK);
    assert_int_equal(command.self.port, 0);
}

TEST(strange_names_become_printable)
{
    struct sighting a = somebody();
    struct mdns_command command;
    char text[MDNS_LINE_MAX + 1];

    snprintf(a.name, sizeof a.name, "a\nquit\n\x1b[2J\xc3\xa9");
    size_t len = mdns_line_publish(&a, text, sizeof text);
    assert_ptr_equal(strchr(text, '\n'), text + len - 1);
    text[len - 1] = '\0';
    assert_int_equal(command_parse(&command, text), HEARTH_OK);
    assert_string_equal(command.self.name, "a?quit??[2J??");
    memset(a.name, 'x', sizeof a.name); /* without an end */
    assert_true(mdns_line_publish(&a, text, sizeof text) > 0);
}

TEST(addresses_are_commanded)
{
    static const char *const texts[] = {"10.0.0.1", "fd77::1", "fe80::1%lo"};
    struct sock_addr addrs[3];
    struct mdns_command command;
    char text[MDNS_LINE_MAX + 1];

    for (int i = 0; i < 3; i++)
        assert_int_equal(sock_addr_parse(texts[i], 0, &addrs[i]), HEARTH_OK);
    size_t len = mdns_line_address("eth0", addrs, 3, text, sizeof text);
    assert_string_equal(text, "address eth0 10.0.0.1 fd77::1 fe80::1%lo\n");
    text[len - 1] = '\0';
    assert_int_equal(command_parse(&command, text), HEARTH_OK);
    assert_int_equal(command.kind, MDNS_ADDRESS);
    assert_string_equal(command.interface, "eth0");
    assert_int_equal(command.count, 3);
    assert_int_equal(mdns_line_address("eth0", NULL, 0, text, sizeof text), strlen("address eth0\n"));
    assert_int_equal(command_parse(&command, "address eth0"), HEARTH_OK);
    assert_int_equal(command.count, 0);
    assert_int_equal(mdns_line_address("eth0", addrs, 3, text, 20), 0);
    assert_int_equal(command_parse(&command, "quit"), HEARTH_OK);
    assert_int_equal(command.kind, MDNS_QUIT);
}

TEST(wrong_commands_are_refused)
{
    static const char *const wrong[] = {
        "",
        "quit now",
        "leave",
        "address",
        "address ",
        "address eth0 ",
        "address eth0 10.0.0.1:1",
        "address eth0 10.0.0.1  10.0.0.2",
        "address eth0 0.0.0.0",
        "address eth0 name",
        "address 01234567890123456789012345678901",
        "address e 1.0.0.1 1.0.0.2 1.0.0.3 1.0.0.4 1.0.0.5 1.0.0.6 1.0.0.7 1.0.0.8 1.0.0.9",
        "publish ",
        ("publish " SPACE),
        ("publish " WHO),
        ("publish " WHO " 0 0 n"),
        ("publish " WHO " 9 n"),
        ("publish " WHO " 9 0 " LONG),
        ("publish " WHO " 9 0 \n"),
        ("found k lo 10.0.0.1 9 1 " WHO " 0 n"),
    };
    struct mdns_command command;

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (command_parse(&command, wrong[i]) != HEARTH_PROTOCOL)
            fail_msg("taken: %s", wrong[i]);
}

/* ---- the TXT record ---- */

static int read_item(struct sighting *s, unsigned *seen, const char *item)
{
    const char *what = NULL;
    int status = mdns_txt_read(s, seen, item, strlen(item), &what);

    assert_true(status == HEARTH_OK || (status == HEARTH_PROTOCOL && what));
    return status;
}

TEST(txt_is_read)
{
    struct sighting a = somebody();
    char items[MDNS_TXT_ITEMS][MDNS_TXT_ITEM_MAX];
    struct sighting s;
    unsigned seen = 0;

    memset(&s, 0, sizeof s);
    mdns_txt_write(&a, items);
    assert_string_equal(items[0], "v=1");
    for (int i = MDNS_TXT_ITEMS - 1; i >= 0; i--) {
        assert_false(mdns_txt_whole(seen));
        assert_int_equal(read_item(&s, &seen, items[i]), HEARTH_OK);
    }
    assert_true(mdns_txt_whole(seen));
    assert_int_equal(s.version, MDNS_VERSION);
    assert_memory_equal(s.space, a.space, sizeof a.space);
    assert_memory_equal(&s.id, &a.id, sizeof a.id);
    assert_int_equal(s.flags, a.flags);
    assert_string_equal(s.name, a.name);
    assert_int_equal(read_item(&s, &seen, "later=unknown"), HEARTH_OK);
    assert_int_equal(read_item(&s, &seen, ""), HEARTH_OK);
    assert_int_equal(read_item(&s, &seen, "v=1"), HEARTH_PROTOCOL); /* twice */
}

TEST(wrong_txt_is_refused)
{
    static const char *const wrong[] = {
        "v=",
        "v=0",
        "v=x",
        "v=1234567890",
        "ns=",
        "ns=00",
        ("ns=" SPACE "0"),
        ("id=" SPACE),
        ("id=" NODE "0"),
        "in=1",
        "in=0000000000000000",
        "in=000000000000000g",
        "fl=",
        "fl=123456789",
        "fl=-1",
        ("name=" LONG),
    };

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct sighting s;
        unsigned seen = 0;
        memset(&s, 0, sizeof s);
        if (read_item(&s, &seen, wrong[i]) != HEARTH_PROTOCOL)
            fail_msg("taken: %s", wrong[i]);
    }
}
