/* SPDX-License-Identifier: Apache-2.0 */
/* Finds nodes: by mDNS through the helper `hearth-mdns`, which it spawns, restarts and listens to, and by
 * seeds, addresses that the user gave. Its results are sightings: announcements that are not proven. The
 * owner drives it from one thread, which the helper's life hangs on: finder_waits, then finder_pump. Nothing
 * blocks; names of seeds are looked up by threads of os/resolve.h. */
#pragma once

#include "core/heap.h"
#include "core/log.h"
#include "discovery/mdns_line.h"

#define SIGHTINGS_MAX    1024 /* further ones push out others, fairly: discovery/sightings.h */
#define FINDER_SEEDS_MAX 64
#define FINDER_WAITS_MAX 4
#define FINDER_OFF       "mdns is switched off" /* as finder_text says it: the user wants it so */

struct finder;

struct finder_setup {
    struct heap *heap;
    struct log log;
    const char *helper; /* path of the program; NULL: beside this program, beside this library, where it was
                           installed; "" : no mDNS */
    const char *seeds;  /* "host[:port],host[:port]" or NULL; looked up anew now and then */
    uint16_t seed_port; /* where none is given: HEARTH_PORT */
    const char *bind;   /* only this interface or address; NULL: all usable ones */
    uint64_t now_ns;
};
int MUST_CHECK finder_open(const struct finder_setup *setup, struct finder **out, struct error *error);
void finder_close(struct finder *finder); /* ends the helper, which says goodbye; at most half a second */

/* What to publish; again: it has changed. Before the first call nothing is published, but found it is. NULL:
 * nothing any more. */
void finder_announce(struct finder *finder, const struct sighting *self, uint64_t now_ns);
void finder_pump(struct finder *finder, uint64_t now_ns);
/* What to wait for: how many items; *deadline_ns becomes earlier where it must. */
size_t finder_waits(const struct finder *finder, struct sock_wait *items, size_t max, uint64_t *deadline_ns);

/* All sightings now, ours left out, one for each (id, address); seeds are not among them. Valid until
 * finder_pump. `changed` counts every change of the list. */
const struct sighting *finder_sightings(const struct finder *finder, int *count, uint64_t *changed);
/* Addresses of seeds, as they were looked up last. */
const struct sock_addr *finder_seeds(const struct finder *finder, int *count);
/* The state of mDNS as text: "mdns works (helper 4711, 3 interfaces)", "mdns does not work: ..., next try
 * in 4 s". True: it works. */
bool finder_text(const struct finder *finder, char *text, size_t size);
