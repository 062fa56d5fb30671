/* SPDX-License-Identifier: Apache-2.0 */
/* The transport between processes of one user on one host: a ring of bytes each way in shared memory,
 * payloads read where they stand, and buffers from hearth_mem_alloc read out of the neighbour's memory. The
 * unix socket that the memory was handed over on stays: when it closes, the peer is gone, however it
 * ended. */
#pragma once

#include "core/error.h"
#include "core/heap.h"
#include "os/event.h"
#include "os/stop.h"
#include "transport/transport.h"

#define SHM_REGIONS_MAX 64 /* buffers of a node that its neighbours can read; more are copied */

/* ---- buffers that neighbours can read ---- */

struct shm_regions;

struct shm_regions *shm_regions_open(struct heap *heap); /* NULL: no memory */
void shm_regions_close(struct shm_regions *regions);     /* after its conns; unmaps what is left */
/* Memory of at least len bytes, zero, aligned to a page; NULL: none left. */
void *shm_region_make(struct shm_regions *regions, size_t len);
/* True: it was one of ours and is gone. */
bool shm_region_drop(struct shm_regions *regions, void *memory);

/* ---- connections ---- */

struct shm_setup {
    struct heap *heap;
    int fd;                      /* connected unix socket; taken, also on failure */
    bool maker;                  /* this side makes the memory; the other gets it. One of each */
    size_t ring_bytes;           /* maker: of each direction, a power of two and at least a page */
    struct event *event;         /* wakes our node: the peer gets a way to signal it */
    struct shm_regions *regions; /* NULL: none */
    uint64_t deadline_ns;        /* for handing over */
    const struct stop *stop;     /* likewise: ends it before; NULL: nobody asks */
};
int MUST_CHECK shm_conn_open(const struct shm_setup *setup, struct conn **out, struct error *error);
