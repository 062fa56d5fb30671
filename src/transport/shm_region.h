/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the shm transport share about regions. */
#ifndef TRANSPORT_SHM_REGION_H
#define TRANSPORT_SHM_REGION_H

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
    struct heap *heap;
    struct region regions[SHM_REGIONS_MAX];
    uint32_t last_id;
    int used;          /* places that may be in use: those before it */
    struct list conns; /* struct region_peer */
};

/* What the peer of one conn sees of ours, and we of its. */
struct region_peer {
    struct list item;
    int fd;                              /* the unix socket */
    uint32_t announced[SHM_REGIONS_MAX]; /* by place: the id that the peer has */
    struct region theirs[SHM_REGIONS_MAX];
};

void region_peer_init(struct region_peer *peer, struct shm_regions *regions, int fd);
void region_peer_fini(struct region_peer *peer);
/* The region that holds these bytes and that the peer can see, telling it now if it was not told; NULL:
 * none. */
const struct region *region_referred(struct shm_regions *regions, struct region_peer *peer,
                                     const void *memory, size_t len);
/* Reads what the peer says of its regions. False: it is gone or talks nonsense. */
bool region_hear(struct region_peer *peer);
/* Memory of the peer; NULL: there is no such. */
const void *region_find(struct region_peer *peer, uint32_t id, uint64_t offset, size_t len);

#endif
