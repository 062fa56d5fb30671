/* SPDX-License-Identifier: Apache-2.0 */
/* What a line does to frames: it takes time to send them, delays, loses, doubles and holds some back. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define NS_PER_S 1000000000ull
#define RATE_MAX 400000000000ull /* bit/s */

/* Preamble, checksum and the gap between frames: bytes that a frame costs on the wire and no host sees. */
#define WIRE_OVERHEAD 24
#define WIRE_MIN      84 /* a frame is padded to 60 bytes */

/* A frame, or several segments of one flow that travel as one, on its way. Times are CLOCK_MONOTONIC. */
struct group_move {
    uint64_t first_ns; /* the first segment is here */
    uint64_t last_ns;  /* all segments are here */
    uint32_t wire;     /* bytes on the wire, all segments together */
    uint32_t segment;  /* and of the largest segment */
};

/* A serialiser with the queue before it. */
struct stage {
    uint64_t rate;      /* bit/s; 0: takes no time */
    uint64_t queue_len; /* bytes that may wait; 0: see queue_ns */
    uint64_t queue_ns;  /* time that they may wait; 0: any */
    uint64_t free_ns;
    uint64_t frames, bytes, dropped;
};

/* Time of `wire` bytes at a rate. */
uint64_t stage_time(const struct stage *stage, uint64_t wire);

/* Sends a move through. False, and counted: the queue is full. */
bool stage_pass(struct stage *stage, struct group_move *group_move);

/* What happens to frames of one directed pair of ports, apart from rates. Shares are 0..1. */
struct effects {
    uint64_t delay_ns, jitter_ns;
    double loss;
    double bad_enter, bad_leave, bad_loss; /* Gilbert: a bad state in which bad_loss of the frames are lost */
    double reorder;
    uint64_t reorder_ns; /* how much longer the held-back share takes */
    double duplicate;
};

/* Single frames matter: segments may not travel together. */
bool effects_single(const struct effects *effects);

/* What chance decides for one frame. */
struct fate {
    bool lost, doubled, held;
};

/* Decisions are a function of (key, number of the frame), so equal sequences have equal fates. */
struct chance {
    uint64_t key;
    uint64_t count;
    bool bad;
};

void chance_init(struct chance *chance, uint64_t seed, uint64_t stream);
struct fate chance_fate(struct chance *chance, const struct effects *effects);

/* The delay of the line at a time. Jitter wanders within +-jitter_ns; no frame overtakes another by it. */
uint64_t chance_delay(const struct chance *chance, const struct effects *effects, uint64_t since_ns);
