/* SPDX-License-Identifier: Apache-2.0 */
/* The demo's race: ranks train the same model to the same accuracy, once for each codec. They are processes
 * behind slow lines (demo_race.c) or the machines of a cluster (cluster_demo.h). All ranks see the same
 * scores, so each decides by itself when a lane ends, and all decide alike. */
#pragma once

#include <stdatomic.h>

#include "cli/demo/train.h"

#define RACE_LANES      5
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

struct race_result {
    size_t steps;  /* done */
    size_t checks; /* how often all replicas were compared and found identical */
    bool reached;  /* the target */
    bool same;     /* all replicas ended with the same hash */
    uint64_t hash; /* of the last weights, rank 0's */
    double
        network_s; /* of all steps, in the calls that make gradients meet: the rank's that was least there */
    double compute_s; /* the rest of its steps */
};

/* One way to make gradients meet. */
struct race_track {
    const char *name, *codec;
    int like;  /* runs twice as many steps as that lane needed; -1: until the target or steps_max */
    bool done; /* it ran to its end */
    struct race_result result;
    struct race_point points[RACE_POINTS_MAX];
    size_t point_count;
};

enum race_event { RACE_BEGIN, RACE_POINT, RACE_END, RACE_TROUBLE };

struct race {
    /* What the caller says. */
    const struct train_job *job;
    int ranks;
    double rate;          /* bytes a second that each process sends at most */
    const char *machines; /* their names, where each rank is a machine of its own; NULL: all on this one */
    double target;        /* share of the test images that are to be right */
    size_t test_images;   /* how many of them are looked at */
    size_t steps_max;     /* at most RACE_STEPS_MAX */
    /* NULL, or told of a lane: begun, its last point is new, ended; of trouble: a message follows. */
    void (*seen)(void *arg, enum race_event event, const struct race_track *lane);
    void *arg;

    /* What came out. */
    bool failed;    /* after a message */
    int lane_count; /* at most RACE_LANES */
    struct race_track lanes[RACE_LANES];
};

/* plain, int8, topk, powersgd, topk without feedback. Keeps what the caller said. */
void race_init(struct race *race);
void race_see(const struct race *race, enum race_event event, const struct race_track *lane);
/* Steps of a lane as a share of those it is expected to need, from what is known: for progress. */
double race_share(const struct race *race, const struct race_track *lane);
/* The point at or before a step; NULL: none. */
const struct race_point *race_at(const struct race_track *lane, size_t step);
/* The last one; all zero before the first. */
struct race_point race_last(const struct race_track *lane);

/* ---- what a rank does, and tells ---- */

struct race_note {
    enum race_event event;
    int rank, lane;
    struct race_point point;   /* RACE_POINT */
    struct race_result result; /* RACE_END */
    char text[400];            /* RACE_TROUBLE */
};

/* Into the race, and shows it. */
void race_take(struct race *race, const struct race_note *note);

struct racer {
    struct race *race;
    int rank;
    int pipe; /* where notes go, from rank 0 only, but for failures; -1: into our own race, which is one of
                 machines: gradients meet by a hearth_sync, and a lost member is no failure to tell of */
    const atomic_bool *quit; /* NULL, or: ends with HEARTH_CANCELLED between two steps */
    struct trainer trainer;  /* with the group; the caller's to free */
};

/* Collective: all ranks of the group run the same lane. A status; what went wrong was told. */
int racer_lane(struct racer *r, int lane);
/* Tells what went wrong; the status. */
int racer_fail(const struct racer *r, int lane, int status, const char *text);
