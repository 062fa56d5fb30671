/* SPDX-License-Identifier: Apache-2.0 */
/* Which addresses of a peer are wanted from when on, and which of several sockets becomes a channel.
 * Pure: no sockets, no clock; time is an argument. The dialer dials, and gives up what fails too often.
 *
 * The two ends of a pair cannot see what the other has in flight, so one of them decides: the lower rank. It
 * decides once for each channel, at the moment it says so on that very socket (its WELCOME, or the CONFIRM
 * behind the higher rank's WELCOME). The higher rank only ever obeys. So both keep the same socket, in
 * whatever order things arrive. */
#pragma once

#include "bootstrap/mesh.h"
#include "connect/dialer.h"

#define PAIRING_VIAS  (ROSTER_ADDRS_MAX + 1)
#define PAIRING_LOCAL ROSTER_ADDRS_MAX /* the way through the peer's unix socket; below: its addresses */

#define PAIRING_HEAD_START_NS (50 * NS_PER_MS)  /* of an address before the next */
#define PAIRING_LOWER_NS      NS_PER_S          /* the end that should be dialled waits so long, then dials */
#define PAIRING_BACKOFF_NS    (20 * NS_PER_MS)  /* the first pause; doubled each time */
#define PAIRING_REFUSED_NS    (100 * NS_PER_MS) /* the same after an address that cannot be reached */
#define PAIRING_BACKOFF_MAX   NS_PER_S

struct pairing_setup {
    bool decides;   /* we have the lower rank */
    bool local;     /* through unix sockets, as long as that works */
    bool remote;    /* through TCP: always, or where the local way does not work */
    int addr_count; /* of the peer, to be dialled */
    int channels;   /* TCP; 0: by distance, as in mesh.h */
    double rate_bytes_per_s;
    uint64_t connect_timeout_ns;
    uint32_t connect_retries;
    struct dialer *dialer; /* lent; many pairings may share it */
    uint32_t key;          /* of the first target, then channel by channel, way by way: PAIRING_TARGETS */
};

#define PAIRING_TARGETS (MESH_CHANNELS_MAX * PAIRING_VIAS)

struct pairing_channel {
    bool kept;
    struct dial_target tries[PAIRING_VIAS];
};

struct pairing {
    struct pairing_setup setup;
    int count; /* channels; 0: not known yet */
    int kept;
    bool fallen_back;       /* the local way does not work from here */
    bool kept_local;        /* channel 0 is a unix socket */
    uint64_t round_trip_ns; /* the smallest seen; 0: none */
    uint64_t theirs_ns;     /* until then the peer is to dial; 0: we are */
    uint64_t patience_ns;   /* until then the peer may still come by itself, whatever we tried */
    struct pairing_channel channels[MESH_CHANNELS_MAX];
};

enum pairing_verdict {
    PAIRING_KEEP,  /* this socket is the channel: say so, close the others of the channel */
    PAIRING_OFFER, /* welcome it and wait: the peer decides */
    PAIRING_DROP   /* not this one */
};

/* `p` must not move from then on: the dialer has its targets. */
void pairing_init(struct pairing *p, const struct pairing_setup *setup, uint64_t now_ns);

/* Members still come to us, this peer or others: it may have been too busy to dial so far. What we would dial
 * in its place waits on. */
void pairing_yield(struct pairing *p, uint64_t now_ns);
/* The local way does not work: from now on by TCP. False: there is none, or it was so already. */
bool pairing_fall_back(struct pairing *p, uint64_t now_ns);

/* A socket that the peer dialled has greeted. `channels` as it says; round trip 0: not known. */
enum pairing_verdict pairing_greeted(struct pairing *p, int channel, int channels, bool local,
                                     uint64_t round_trip_ns, uint64_t now_ns);
/* A socket that we dialled was welcomed. */
enum pairing_verdict pairing_welcomed(struct pairing *p, int channel, int channels, int via,
                                      uint64_t round_trip_ns, uint64_t now_ns);
/* A socket that we offered was confirmed. */
enum pairing_verdict pairing_confirmed(struct pairing *p, int channel, int channels, bool local,
                                       uint64_t now_ns);

bool pairing_done(const struct pairing *p);
/* Nothing is left to try, and the peer has had its time to come. */
bool pairing_hopeless(const struct pairing *p, uint64_t now_ns);
/* When to ask pairing_hopeless again. */
uint64_t pairing_due(const struct pairing *p);

/* The rule of mesh.h for TCP. */
int pairing_channels(const struct pairing_setup *setup, uint64_t round_trip_ns);
