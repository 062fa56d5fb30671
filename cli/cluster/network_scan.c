/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for nodes by itself, for as long as somebody waits. */
#include "cli/cluster/network_scan.h"

#include <stdio.h>
#include <string.h>

#include "cli/shared/listing.h"
#include "cli/shared/progress.h"
#include "core/heap.h"
#include "discovery/finder.h"
#include "os/clock.h"

#define STEP_NS (100 * NS_PER_MS) /* between two looks at the bar */

static json_t *node_row(const struct sighting *seen, const uint8_t *space)
{
    char id[NODE_ID_TEXT], brief[NODE_ID_SHORT], address[SOCK_TEXT_MAX], name[NAMESPACE_TEXT];
    bool ours = space && memcmp(seen->space, space, NAMESPACE_LEN) == 0;
    node_id_text(&seen->id.node, id);
    node_id_short(&seen->id.node, brief);
    sock_addr_text(&seen->addr, address, sizeof address);
    namespace_text(seen->space, name);
    return json_pack("{ss ss so ss ss ss sb ss}", "id", id, "short", brief, "name", json_text(seen->name),
                     "address", address, "cluster", ours ? "ours" : "other", "namespace", name, "member", 0,
                     "why", ours ? "no node runs here: hearth up" : "");
}

static json_t *found_json(const struct finder *finder, const uint8_t *space)
{
    int count = 0;
    uint64_t changed;
    char text[256];
    json_t *nodes = json_array(), *seeded = json_array();
    const struct sighting *seen = finder_sightings(finder, &count, &changed);
    for (int i = 0; i < count; i++)
        json_array_append_new(nodes, node_row(&seen[i], space));
    const struct sock_addr *seeds = finder_seeds(finder, &count);
    for (int i = 0; i < count; i++) {
        sock_addr_text(&seeds[i], text, sizeof text);
        json_array_append_new(seeded, json_string(text));
    }
    bool works = finder_text(finder, text, sizeof text);
    return json_pack("{sb so s{sb ss so}}", "running", 0, "nodes", nodes, "discovery", "mdns", works, "text",
                     text, "seeds", seeded);
}

static bool seen_enough(const struct finder *finder, const struct look *look)
{
    int count = 0;
    uint64_t changed;
    char text[256];
    finder_sightings(finder, &count, &changed);
    return look->until_first && count > 0 && finder_text(finder, text, sizeof text);
}

static void watch(struct finder *finder, const struct look *look, uint64_t start_ns)
{
    uint64_t now = start_ns, wait_ns = (uint64_t)(look->wait_s * (double)NS_PER_S), end = start_ns + wait_ns;
    struct progress bar;
    progress_start(&bar, "looking for nodes");
    while (now < end && !seen_enough(finder, look)) {
        struct sock_wait items[FINDER_WAITS_MAX];
        uint64_t deadline = end;
        size_t count = finder_waits(finder, items, FINDER_WAITS_MAX, &deadline);
        uint64_t step = now + STEP_NS;
        deadline = deadline < step ? deadline : step;
        sock_wait(items, count, deadline);
        now = clock_real();
        finder_pump(finder, now);
        if (look->progress)
            progress_show(&bar, (double)(now - start_ns) / (double)wait_ns);
    }
    progress_hide(&bar);
}

int network_scan(const struct look *look, json_t **found, struct error *error)
{
    struct heap heap;
    struct finder *finder = NULL;
    uint64_t now = clock_real();
    heap_init(&heap, 0);
    struct finder_setup setup = {.heap = &heap,
                                 .helper = look->helper,
                                 .seeds = look->seeds,
                                 .seed_port = HEARTH_PORT,
                                 .bind = look->bind,
                                 .now_ns = now};
    int status = finder_open(&setup, &finder, error);
    if (status != HEARTH_OK)
        return status;
    watch(finder, look, now);
    *found = found_json(finder, look->space);
    finder_close(finder);
    return HEARTH_OK;
}
