/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of the demo's race: trains with one codec after the other, and tells what it sees. */
#pragma once

#include <stdatomic.h>

#include "cli/demo/race.h"

#define NOTE_TEXT_LEN 400

enum note_kind { NOTE_BEGIN, NOTE_POINT, NOTE_END, NOTE_FAILED };

struct race_note {
    enum note_kind kind;
    int rank, lane;
    struct race_point point;     /* NOTE_POINT */
    double network_s, compute_s; /* NOTE_END, as all ranks have agreed: of the one that was least in calls */
    size_t steps, checks;
    bool reached, same; /* the target; hashes of all ranks */
    uint64_t hash;
    char text[NOTE_TEXT_LEN]; /* NOTE_FAILED */
};

struct racer {
    struct race *race;
    int rank;
    bool speaks;             /* of what all see alike: all but failures */
    bool goes_on;            /* the caller does, when a member is lost: that is no failure to tell of */
    bool syncs;              /* gradients meet by a hearth_sync, as in a trainer of one's own */
    const atomic_bool *quit; /* NULL, or: ends with HEARTH_CANCELLED between two steps */
    void (*tell)(void *arg, const struct race_note *note);
    void *arg;
    struct trainer trainer; /* with the group; the caller's to free */
};

/* Collective: all ranks of the group run the same lane. A status; what went wrong was told. */
int racer_lane(struct racer *r, int lane);
/* Tells what went wrong; the status. */
int racer_fail(const struct racer *r, int lane, int status, const char *text);
