/* SPDX-License-Identifier: Apache-2.0 */
/* A helper made of a shell script, and a finder that listens to it. */
#include "unit/discovery/fake.h"

#include <sys/stat.h>
#include <unistd.h>

#include "os/clock.h"
#include "support/suite.h"

#define PATIENCE_NS (30 * NS_PER_S) /* against hangs only */

static void log_line(void *arg, enum hearth_log_level level, const char *id, const char *text)
{
    struct fake *fake = arg;
    size_t room = sizeof fake->log - fake->log_len;

    if (level > HEARTH_LOG_INFO)
        return;
    int len = snprintf(fake->log + fake->log_len, room, "%s %s\n", id, text);
    if (len > 0 && (size_t)len < room)
        fake->log_len += (size_t)len;
    fake->log_lines++;
}

/* A new file each time: one that runs cannot be written to. */
void fake_replace(struct fake *fake, const char *lines)
{
    unlink(fake->script);
    FILE *file = fopen(fake->script, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", lines);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(fake->script, 0700), 0);
}

void fake_open(struct fake *fake, const char *lines, const char *seeds)
{
    struct error error;

    memset(fake, 0, sizeof *fake);
    snprintf(fake->folder, sizeof fake->folder, "/tmp/hearth-fake-XXXXXX");
    assert_non_null(mkdtemp(fake->folder));
    snprintf(fake->script, sizeof fake->script, "%s/helper", fake->folder);
    if (lines)
        fake_replace(fake, lines);
    heap_init(&fake->heap, 0);
    fake->now_ns = 1000 * NS_PER_S;
    struct finder_setup setup = {.heap = &fake->heap,
                                 .log = {log_line, fake, HEARTH_LOG_DEBUG},
                                 .helper = fake->script,
                                 .seeds = seeds,
                                 .seed_port = HEARTH_PORT,
                                 .now_ns = fake->now_ns};
    assert_int_equal(finder_open(&setup, &fake->finder, &error), HEARTH_OK);
}

void fake_close(struct fake *fake)
{
    finder_close(fake->finder);
    assert_int_equal(fake->heap.blocks, 0);
    unlink(fake->script);
    assert_int_equal(rmdir(fake->folder), 0);
}

void fake_pump(struct fake *fake)
{
    struct sock_wait items[FINDER_WAITS_MAX];
    uint64_t deadline_ns = NEVER_NS; /* in our time, which stands still */

    finder_pump(fake->finder, fake->now_ns);
    size_t count = finder_waits(fake->finder, items, FINDER_WAITS_MAX, &deadline_ns);
    (void)sock_wait(items, count, clock_real() + 2 * NS_PER_MS);
    finder_pump(fake->finder, fake->now_ns);
}

void fake_until_logged(struct fake *fake, const char *text)
{
    uint64_t end_ns = clock_real() + PATIENCE_NS;

    while (!strstr(fake->log, text)) {
        if (clock_real() > end_ns)
            fail_msg("the log lacks \"%s\":\n%s", text, fake->log);
        fake_pump(fake);
    }
}

void fake_until_count(struct fake *fake, int sightings)
{
    uint64_t end_ns = clock_real() + PATIENCE_NS, changed;
    int count;

    while (finder_sightings(fake->finder, &count, &changed), count != sightings) {
        if (clock_real() > end_ns)
            fail_msg("%d sightings instead of %d:\n%s", count, sightings, fake->log);
        fake_pump(fake);
    }
}

int fake_helper_pid(const struct fake *fake)
{
    char text[400];

    finder_text(fake->finder, text, sizeof text);
    const char *at = strstr(text, "(helper ");
    return at ? (int)strtol(at + strlen("(helper "), NULL, 10) : 0;
}

const char *fake_found(char *line, size_t size, const char *key, const char *addr, unsigned instance)
{
    snprintf(line, size, "found %s lo %s 52416 1 " FAKE_SPACE " " FAKE_NODE " %016x 0 node %u", key, addr,
             instance, instance);
    return line;
}

struct sighting fake_self(unsigned instance)
{
    struct sighting self = {.id = {.instance = instance}, .port = 52416, .name = "self"};

    for (size_t i = 0; i < NAMESPACE_LEN; i++)
        self.space[i] = (uint8_t)(17 * i);
    static const uint8_t eight[] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef};
    for (size_t i = 0; i < NODE_ID_LEN; i++)
        self.id.node.bytes[i] = eight[i % 8];
    return self;
}
