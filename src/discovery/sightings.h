/* SPDX-License-Identifier: Apache-2.0 */
/* The table of sightings: one row for each (id, address), whichever keys tell of it. When it is full, foreign
 * namespaces give way before our own, then the address that claims most. */
#pragma once

#include "core/prng.h"
#include "discovery/finder.h"

#define SIGHTING_KEYS 4 /* that tell of the same address: interfaces, IPv4 and IPv6 */

struct sighting_trace {
    uint64_t keys[SIGHTING_KEYS]; /* hashes of the helper's keys, 0: none */
    uint64_t old_ns;              /* since when the helper that told of it is gone; 0: it is there */
    uint64_t host;                /* hash of the address without its port */
    uint64_t order;               /* counts upwards */
};

struct sightings {
    struct sighting *list; /* [SIGHTINGS_MAX] */
    struct sighting_trace *traces;
    int count;
    uint64_t changed, order;
    struct prng prng;
    bool self_known;
    struct sighting self;
};

int MUST_CHECK sightings_init(struct sightings *sightings, struct heap *heap); /* or HEARTH_NO_MEMORY */
void sightings_fini(struct sightings *sightings);

void sightings_found(struct sightings *sightings, const struct sighting *sighting);
void sightings_lost(struct sightings *sightings, const char *key);
void sightings_age(struct sightings *sightings, uint64_t now_ns); /* the helper has ended */
/* Drops rows that were not seen again since before_ns. */
void sightings_expire(struct sightings *sightings, uint64_t before_ns);
uint64_t sightings_oldest(const struct sightings *sightings); /* old_ns of it; NEVER_NS: none is old */
void sightings_self(struct sightings *sightings, const struct sighting *self); /* NULL: none */
