/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the shm transport share about regions. */
#pragma once

#include "core/list.h"
#include "transport/shm.h"

/* One of our own buffers. Ids count up and are never used again. */
struct region {
    uint32_t id; /* 0: this place is free */
    int fd;
    uint8_t *memory;
    size_t len;
};

struct shm_regions {
    struct region regions[SHM_REGIONS_MAX];
    uint32_t last_id;
    int used;          /* places that may be in use: those before it */
    struct list conns; /* struct region_peer */
};

#define SHM_REFERENCES 64

/* What the peer of one conn sees of ours, and we of its. A region that is dropped while references to it
 * are out is taken leave of when the last has come back: until then the reader may be reading. */
struct region_peer {
    struct list item;
    int fd;                              /* the unix socket */
    uint32_t announced[SHM_REGIONS_MAX]; /* by place: the id that the peer has */
    uint32_t out[SHM_REFERENCES];        /* by number of a reference that is out: id of the region; 0: none */
    bool parting[SHM_REFERENCES];        /* likewise: the region was dropped since */
    struct region theirs[SHM_REGIONS_MAX];
    bool left[SHM_REGIONS_MAX]; /* theirs, dropped, but we are still reading */
    uint8_t
        in[SHM_REFERENCES]; /* by number of a reference that we have: place in `theirs`, plus 1; 0: none */
};

void region_peer_init(struct region_peer *peer, struct shm_regions *regions, int fd);
void region_peer_fini(struct region_peer *peer);
/* Writes a reference to these bytes under this number, telling the peer of their region first if it was not
 * told. False: they are in no region, or it cannot be told. */
bool region_refer(struct shm_regions *regions, struct region_peer *peer, const void *memory, size_t len,
                  uint32_t number, uint8_t reference[REFERENCE_LEN]);
void region_returned(struct region_peer *peer, uint32_t number); /* the reference has come back */
/* Reads what the peer says of its regions. False: it is gone or talks nonsense. */
bool region_hear(struct region_peer *peer);
/* The bytes that a reference of the peer stands for; NULL: there are no such, or its number is out
 * already. */
const void *region_find(struct region_peer *peer, const uint8_t reference[REFERENCE_LEN], size_t len,
                        uint32_t *number);
void region_release(struct region_peer *peer, uint32_t number); /* we have read them */
