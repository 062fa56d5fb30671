/* SPDX-License-Identifier: Apache-2.0 */
/* The demo's race: processes behind slow lines train the same model to the same accuracy, once for each
 * codec. */
#pragma once

#include "cli/demo/train.h"

#define RACE_LANES      5
#define RACE_RANKS_MAX  32
#define RACE_POINTS_MAX 512
#define RACE_EVERY      5 /* steps between two looks at the accuracy and at the replicas */
#define RACE_STEPS_MAX  (RACE_POINTS_MAX * RACE_EVERY)

/* What was seen at one look. Looking takes no time of the race. */
struct race_point {
    size_t step;
    double seconds; /* in the steps so far */
    double bytes;   /* that rank 0 sent in them */
    struct train_score score;
};

/* One way to make gradients meet. */
struct race_track {
    const char *name, *codec;
    int like;      /* runs twice as many steps as that lane needed; -1: until the target or steps_max */
    size_t steps;  /* done */
    bool done;     /* it ran to its end */
    bool reached;  /* the target */
    bool same;     /* all replicas ended with the same hash */
    size_t checks; /* how often all replicas were compared and found identical */
    uint64_t hash; /* of the last weights, rank 0's */
    double
        network_s; /* of all steps, in the calls that make gradients meet: the rank's that was least there */
    double compute_s; /* the rest of its steps */
    struct race_point points[RACE_POINTS_MAX];
    size_t point_count;
};

struct race {
    /* What the caller says. */
    const struct train_job *job;
    int ranks;
    double rate;          /* bytes a second that each process sends at most */
    const char *machines; /* their names, where each rank is a machine of its own; NULL: all on this one */
    double target;        /* share of the test images that are to be right */
    size_t test_images;   /* how many of them are looked at */
    size_t steps_max;     /* at most RACE_STEPS_MAX */
    void (*lane_begins)(void *arg, const struct race_track *lane);
    void (*point_seen)(void *arg, const struct race_track *lane); /* its last point is new */
    void (*lane_ended)(void *arg, const struct race_track *lane);
    void (*trouble)(void *arg); /* a message follows */
    void *arg;

    /* What came out. */
    int lane_count; /* at most RACE_LANES */
    struct race_track lanes[RACE_LANES];
};

/* plain, int8, topk, powersgd, topk without feedback. Keeps what the caller said. */
void race_init(struct race *race);
/* Runs all lanes. false with a message: a process failed, or replicas differ. */
bool race_run(struct race *race);

/* What a rank tells (cli/demo/racer.h), into the race, and shows it. false after a message: it failed. */
struct race_note;
bool race_take(struct race *race, const struct race_note *note);
/* At most so many steps. */
size_t race_limit(const struct race *race, const struct race_track *lane);
/* Steps a lane is expected to need, from what is known: for progress. */
double race_share(const struct race *race, const struct race_track *lane);
/* The point at or before a step; NULL: none. */
const struct race_point *race_at(const struct race_track *lane, size_t step);
/* The last one; all zero before the first. */
struct race_point race_last(const struct race_track *lane);
