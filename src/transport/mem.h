/* SPDX-License-Identifier: Apache-2.0 */
/* The transport inside one process: every member joined to every other by two rings of bytes, on real time
 * (any thread; latency, if wanted, by a thread of the net) or on virtual time (one thread, seeded bandwidth,
 * latency, jitter and loss of connection). */
#pragma once

#include "core/heap.h"
#include "os/bell.h"
#include "transport/transport.h"

struct mem_net;

struct mem_setup {
    int size;               /* members */
    size_t ring_bytes;      /* of each direction of each pair; 0 = by the number of members */
    const uint64_t *now_ns; /* NULL: real time; else virtual time, advanced by the owner */
    double bytes_per_s;     /* virtual, of each direction of each pair; 0 = no limit */
    uint64_t latency_ns;    /* one way */
    uint64_t jitter_ns;     /* virtual: uniform in 0..jitter_ns; order is kept */
    uint64_t seed;
};

/* The net belongs to all its members: it is freed when the last of them has put it. */
int MUST_CHECK mem_net_open(const struct mem_setup *setup,
                            struct mem_net **net); /* counted once per member */
void mem_net_put(struct mem_net *net);
void mem_net_forget(struct mem_net *net); /* as put, in a forked child: the bells are the parent's */

/* This end of the pair, to be closed once through its transport. */
struct conn *mem_net_conn(struct mem_net *net, int rank, int peer);
/* Rings when something has come for this member or room was made. */
struct bell *mem_net_bell(struct mem_net *net, int rank);

/* Virtual: the connection breaks now. What has not arrived is lost; both ends see HEARTH_PEER_LOST. */
void mem_net_cut(struct mem_net *net, int rank, int peer);
/* Virtual: when the next bytes arrive anywhere, NEVER_NS if none are under way. */
uint64_t mem_net_next(const struct mem_net *net);
