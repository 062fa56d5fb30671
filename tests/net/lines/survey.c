/* SPDX-License-Identifier: Apache-2.0 */
/* hearth-survey: a node that measures its ways to others, for tests: connections and probes as in a home
 * cluster, but a view that is made up: all who are there, the lowest id leads. When all ways are known it
 * prints the table as one line of JSON; it goes on until its standard input ends.
 *
 *     hearth-survey PLACE ADDRESS...    its own place in the list of addresses, of all nodes */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/probes.h"
#include "connect/secure_stream.h"
#include "os/clock.h"
#include "os/host.h"

#define PORT     52499
#define FAIL_S   120
#define STEP_NS  (100 * NS_PER_MS)
#define ITEM_MAX (PEER_SET_WAITS_MAX + PROBES_WAITS_MAX + 1)

static struct heap heap;
static struct peer_set *peer_set;
static struct probes *probes;
static struct outbox outbox;
static struct view view;
static int count; /* of nodes */

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static struct credentials *make_credentials(int place)
{
    struct credentials_setup setup = {.heap = &heap, .instance = (uint64_t)place + 1};
    struct credentials *credentials = NULL;
    uint8_t secret[SECRET_LEN];
    struct error error;

    memset(secret, 0x11, sizeof secret);
    if (node_key_fresh(&setup.key, &error) != HEARTH_OK ||
        secret_from_bytes(secret, "test", &setup.secret, &error) != HEARTH_OK ||
        credentials_open(&setup, &credentials, &error) != HEARTH_OK)
        fail("credentials", error.text);
    return credentials;
}

static void begin(int place, char **addrs)
{
    struct peer_set_setup setup = {.heap = &heap,
                                   .credentials = make_credentials(place),
                                   .connect_timeout_ns = 5 * NS_PER_S,
                                   .seed = (uint64_t)place,
                                   .now_ns = clock_real()};
    struct sock_addr addr;
    struct error error;

    if (sock_addr_parse(addrs[place], PORT, &setup.listen) != HEARTH_OK)
        fail("no address", addrs[place]);
    setup.self.addr_count = sock_addr_to_net(&setup.listen, &setup.self.addrs[0]);
    snprintf(setup.self.name, sizeof setup.self.name, "%d", place);
    snprintf(setup.self.platform, sizeof setup.self.platform, "test");
    setup.self.cores = 1;
    if (host_id(&setup.self.host_id) != HEARTH_OK || peer_set_open(&setup, &peer_set, &error) != HEARTH_OK)
        fail("peers", error.text);
    for (int i = 0; i < count; i++) {
        if (sock_addr_parse(addrs[i], PORT, &addr) != HEARTH_OK)
            fail("no address", addrs[i]);
        if (i != place)
            peer_set_known_addr(peer_set, &addr, NULL, true, clock_real());
    }
    outbox_init(&outbox, &heap);
    struct probes_setup made = {.heap = &heap,
                                .peer_set = peer_set,
                                .outbox = &outbox,
                                .self = peer_set_self(peer_set)->id,
                                .now_ns = clock_real()};
    if (probes_open(&made, &probes) != HEARTH_OK)
        fail("probes", "no memory");
    view = (struct view){.instance = 1, .epoch = 1, .term = 1, .size = 1};
    view.members[0] = *peer_set_self(peer_set);
}

/* Sorted by id, so that all have the same one. When all are there it is agreed. */
static void meet(const struct peer_info *info)
{
    int at = view.size;

    if (view_find(&view, &info->id) >= 0)
        return;
    for (; at > 0 && identity_compare(&view.members[at - 1].id, &info->id) > 0; at--)
        view.members[at] = view.members[at - 1];
    view.members[at] = *info;
    if (++view.size == count)
        probes_view(probes, &view, identity_equal(&view.members[0].id, &peer_set_self(peer_set)->id),
                    clock_real());
}

static void hear(void)
{
    struct peer_news news;
    const char *what = "";

    while (peer_news(peer_set, &news)) {
        if (news.kind == PEER_LINKED)
            meet(&news.info);
        else if (news.kind == PEER_MESSAGE &&
                 probes_input(probes, &(struct received){&news.info.id, news.message, news.payload, news.len},
                              clock_real(), &what) != HEARTH_OK)
            fail("message", what);
        else if (news.kind == PEER_PROBE)
            probes_take(probes, news.stream, &news.info.id, news.dialled, clock_real());
    }
}

/* False: the standard input has ended. */
static bool step(void)
{
    struct sock_wait items[ITEM_MAX] = {{.fd = 0, .want_recv = true}};
    uint64_t deadline_ns = clock_real() + STEP_NS;
    struct outbox_message *message;
    size_t n = 1;

    n += peer_set_waits(peer_set, items + n, PEER_SET_WAITS_MAX, &deadline_ns);
    n += probes_waits(probes, items + n, PROBES_WAITS_MAX, &deadline_ns);
    (void)sock_wait(items, n, deadline_ns);
    peer_set_pump(peer_set, clock_real());
    hear();
    probes_pump(probes, clock_real());
    while ((message = outbox_take(&outbox))) {
        (void)peer_set_send(peer_set, &message->to, message->kind, message->payload, message->len);
        heap_free(message);
    }
    return !items[0].ready;
}

static const struct path_measure *path(int from, int to)
{
    return &probes_links(probes, NULL)->paths[from * VIEW_MEMBERS_MAX + to];
}

static bool all_known(void)
{
    for (int from = 0; from < count; from++)
        for (int to = 0; to < count; to++)
            if (from != to && (view.size < count || path(from, to)->mbit_x10 == 0))
                return false;
    return true;
}

static void print_table(void)
{
    const char *comma = "";

    printf("[");
    for (int from = 0; from < count; from++)
        for (int to = 0; to < count; to++) {
            if (from == to)
                continue;
            printf("%s{\"from\":%s,\"to\":%s,\"mbit\":%.1f,\"kind\":\"%s\"}", comma, view.members[from].name,
                   view.members[to].name, path(from, to)->mbit_x10 / 10.0,
                   path_kind_name((enum path_kind)path(from, to)->kind));
            comma = ",";
        }
    puts("]");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int place = argc > 2 ? (int)strtol(argv[1], NULL, 10) : -1;
    bool told = false;

    count = argc - 2;
    if (place < 0 || place >= count || count > VIEW_MEMBERS_MAX)
        fail("usage", "hearth-survey PLACE ADDRESS...");
    heap_init(&heap, 0);
    begin(place, argv + 2);
    uint64_t deadline_ns = clock_real() + FAIL_S * NS_PER_S;
    while (step()) {
        if (!told && clock_real() > deadline_ns)
            fail("survey", "not all ways became known");
        if (!told && all_known())
            print_table();
        told |= all_known();
    }
    return 0;
}
