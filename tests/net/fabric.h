/* SPDX-License-Identifier: Apache-2.0 */
/* The switch itself: ports, the lines between them, and the frames under way. The time is an argument.

      host a --> uplink of a --> line a>b --------------------------> downlink of b --> host b
                 rate            rate, queue, delay, loss, ...         rate, queue

   An uplink is booked when a frame is read; the host's own queue stands before it. Frames of several lines
   meet at a downlink in the order of their arrival there. */
#pragma once

#include <stdio.h>

#include "net/pool.h"
#include "net/segment.h"

#define PORTS_MAX     32
#define MACS_MAX      1024 /* a power of two */
#define QUEUE_DEFAULT (1024 * 1024)
#define GROUP_ANY     (-1)

struct port {
    int fd;
    char name[64];
    struct stage up, down;
    struct frame *head, *tail; /* on the downlink, by time */
    int group;                 /* ports of different groups do not hear each other; GROUP_ANY hears all */
    bool frozen;
    uint64_t frozen_drops, host_drops, bad_frames;
};

struct line {
    struct stage stage;
    struct effects effects;
    struct chance chance,
        flood_chance; /* broadcasts have their own, so they do not shift the others' fates */
    uint64_t lost, doubled, held, cut_off;
};

struct mac {
    uint8_t address[6];
    uint8_t used;
    uint8_t port;
};

struct fabric {
    int count;
    struct port ports[PORTS_MAX];
    struct line lines[PORTS_MAX][PORTS_MAX];
    struct mac macs[MACS_MAX];
    size_t mac_count;
    struct pool pool;
    struct heap heap; /* frames that are on a line */
    uint64_t pool_drops;
    uint64_t seed, start_ns;
};

/* Ports are the caller's descriptors. False: no memory. */
bool fabric_init(struct fabric *fabric, int count, uint64_t seed, uint64_t now);
void fabric_fini(struct fabric *fabric);

/* All chance begins anew. */
void fabric_seed(struct fabric *fabric, uint64_t seed, uint64_t now);

/* All ports hear each other and none is frozen. */
void fabric_heal(struct fabric *fabric);

/* A frame that was read from a port, with its virtio header. */
void fabric_accept(struct fabric *fabric, int port, const uint8_t *data, size_t len, uint64_t now);

/* Moves frames that are due, and writes those that have arrived. */
void fabric_run(struct fabric *fabric, uint64_t now);

/* When fabric_run has something to do, UINT64_MAX for never. */
uint64_t fabric_next(const struct fabric *fabric);

/* Counters as JSON on one line. */
void fabric_stats(const struct fabric *fabric, FILE *out);
