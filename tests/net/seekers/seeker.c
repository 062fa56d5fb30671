/* SPDX-License-Identifier: Apache-2.0 */
/* hearth-seeker: a finder and nothing else, for tests. Tells what it sees, one line of JSON each, until its
 * standard input ends. The log goes to the standard error.
 *
 *     hearth-seeker HELPER SPACE NODE PORT NAME [SEEDS [BIND]]    "" : none, or as the library chooses
 *
 * SPACE and NODE are one hexadecimal digit, which is repeated. A line `name NAME` renames it. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "discovery/finder.h"
#include "os/clock.h"
#include "os/random.h"

#define TEXT_MAX 400

struct seeker {
    struct finder *finder;
    struct sighting self;
    double started_s;
    char text[TEXT_MAX];
    uint64_t changed;
    int seeds;
};

static double wall_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void log_line(void *arg, enum hearth_log_level level, const char *id, const char *text)
{
    (void)arg;
    fprintf(stderr, "%.3f %d %s %s\n", wall_s(), (int)level, id, text);
}

static void print_sightings(const struct seeker *s)
{
    int count;
    uint64_t changed;
    const struct sighting *list = finder_sightings(s->finder, &count, &changed);
    char addr[SOCK_TEXT_MAX];

    printf("{\"what\":\"sightings\",\"at\":%.3f,\"list\":[", wall_s());
    for (int i = 0; i < count; i++) {
        sock_addr_text(&list[i].addr, addr, sizeof addr);
        printf("%s{\"node\":\"%02x\",\"instance\":\"%llx\",\"space\":\"%02x\",\"interface\":\"%s\","
               "\"address\":\"%s\",\"flags\":%u,\"version\":%u,\"name_length\":%zu}",
               i > 0 ? "," : "", list[i].id.node.bytes[0], (unsigned long long)list[i].id.instance,
               list[i].space[0], list[i].interface, addr, list[i].flags, list[i].version,
               strlen(list[i].name));
    }
    puts("]}");
}

static void print_seeds(const struct seeker *s)
{
    int count;
    const struct sock_addr *seeds = finder_seeds(s->finder, &count);
    char addr[SOCK_TEXT_MAX];

    printf("{\"what\":\"seeds\",\"list\":[");
    for (int i = 0; i < count; i++) {
        sock_addr_text(&seeds[i], addr, sizeof addr);
        printf("%s\"%s\"", i > 0 ? "," : "", addr);
    }
    puts("]}");
}

/* What has changed since the last time. */
static void report(struct seeker *s)
{
    char text[TEXT_MAX];
    int count;
    uint64_t changed;

    (void)finder_sightings(s->finder, &count, &changed);
    if (changed != s->changed)
        print_sightings(s);
    s->changed = changed;
    (void)finder_seeds(s->finder, &count);
    if (count != s->seeds)
        print_seeds(s);
    s->seeds = count;
    bool works = finder_text(s->finder, text, sizeof text);
    if (strcmp(text, s->text) != 0)
        printf("{\"what\":\"state\",\"at\":%.3f,\"works\":%s,\"text\":\"%s\"}\n", wall_s(),
               works ? "true" : "false", text);
    memcpy(s->text, text, sizeof text);
    fflush(stdout);
}

/* False: the end. */
static bool obey(struct seeker *s)
{
    char line[128];
    ssize_t n = read(STDIN_FILENO, line, sizeof line - 1);

    if (n <= 0)
        return false;
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, "name ", 5) == 0) {
        snprintf(s->self.name, sizeof s->self.name, "%.63s", line + 5);
        finder_announce(s->finder, &s->self, clock_real());
    }
    return true;
}

static void run(struct seeker *s)
{
    struct sock_wait items[FINDER_WAITS_MAX + 1];

    for (;;) {
        finder_pump(s->finder, clock_real());
        report(s);
        uint64_t deadline_ns = NEVER_NS;
        size_t count = finder_waits(s->finder, items, FINDER_WAITS_MAX, &deadline_ns);
        items[count] = (struct sock_wait){.fd = STDIN_FILENO, .want_recv = true};
        (void)sock_wait(items, count + 1, deadline_ns);
        if (items[count].ready && !obey(s))
            return;
    }
}

int main(int argc, char **argv)
{
    struct seeker s = {.started_s = wall_s()};
    struct heap heap;
    struct error error;

    if (argc < 6) {
        fprintf(stderr, "usage: %s HELPER SPACE NODE PORT NAME [SEEDS [BIND]]\n", argv[0]);
        return 2;
    }
    heap_init(&heap, 0);
    struct finder_setup setup = {.heap = &heap, .log = {log_line, NULL, HEARTH_LOG_DEBUG}};
    setup.helper = argv[1][0] != '\0' ? argv[1] : NULL;
    setup.seeds = argc > 6 ? argv[6] : NULL;
    setup.seed_port = HEARTH_PORT;
    setup.bind = argc > 7 && argv[7][0] != '\0' ? argv[7] : NULL;
    setup.now_ns = clock_real();
    memset(s.self.space, (int)strtoul(argv[2], NULL, 16) * 17, sizeof s.self.space);
    memset(s.self.id.node.bytes, (int)strtoul(argv[3], NULL, 16) * 17, NODE_ID_LEN);
    if (random_bytes(&s.self.id.instance, sizeof s.self.id.instance) != HEARTH_OK)
        return 1;
    s.self.port = (uint16_t)strtoul(argv[4], NULL, 10);
    snprintf(s.self.name, sizeof s.self.name, "%.63s", argv[5]);
    if (finder_open(&setup, &s.finder, &error) != HEARTH_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    printf("{\"what\":\"start\",\"at\":%.3f}\n", wall_s());
    finder_announce(s.finder, &s.self, clock_real());
    run(&s);
    finder_close(s.finder);
    return atomic_load(&heap.blocks) == 0 ? 0 : 3;
}
