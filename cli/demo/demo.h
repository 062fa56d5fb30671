/* SPDX-License-Identifier: Apache-2.0 */
/* What the forms of the demo share: what the user said, and the images. */
#pragma once

#include <stdio.h>

#include "cli/demo/race.h"
#include "cli/shared/json.h"
#include "cli/shared/text.h"

#define DEMO_RANKS_MAX 32
#define DEMO_DATA_DIR  "/usr/share/datasets/fashion-mnist"

struct demo {
    const char *data; /* directory */
    int ranks;
    bool json;
    json_t *doc;

    struct dataset train, test;
    struct train_job job; /* as the user said */

    /* The race. */
    double line_rate; /* bytes a second */
    double target;    /* percent */
    int steps_max;
    const char *report; /* file */

    /* The race of machines. */
    const char *codec; /* NULL: several, one after the other */
    const char *seeds, *bind;
};

size_t demo_test_images(const struct demo *demo); /* that a race looks at */

/* Nodes of this process, then one node alone. An exit code. */
int demo_local(struct demo *demo);
/* Processes of their own, one codec after the other. An exit code. */
int demo_race(struct demo *demo);
/* The machines of the home cluster that allow it. An exit code. */
int demo_cluster(struct demo *demo);
/* Shows a race as it goes, writes the report. `run` runs it: false after a message. An exit code. */
typedef bool demo_run(struct race *race, void *arg);
int demo_show(struct demo *demo, struct race *race, demo_run *run, void *arg);

/* ---- the report: the race as one HTML file, without scripts and with nothing from elsewhere ---- */

#define FORECAST_WHAT    "one billion weights between two sites at 1 Gbit/s, 10 ms apart"
#define FORECAST_COMMAND "hearth sim --params 1B --ranks 2 --rate 1gbit --rtt 10ms --compress all"

/* What tables say of a lane; network, compute and sent: a step. */
struct lane_text {
    struct text steps, time, accuracy, network, compute, sent, hash;
    char note[40]; /* "3.2 x" as fast as plain, "not reached", or "" */
    double share;  /* of the longest time */
};
struct lane_text lane_text(const struct race *race, const struct race_track *lane);

struct forecast {
    double bytes;   /* that a member sends in a step */
    double seconds; /* of a step's all-reduce */
};

/* forecasts[RACE_LANES] */
void forecast_all(const struct race *race, struct forecast *forecasts);

/* NULL with a message: so that it is known before the race. */
FILE *report_open(const char *path);
/* Closes the file. forecasts[RACE_LANES]. false with a message that names the path. */
bool report_close(FILE *file, const char *path, const struct race *race, const struct forecast *forecasts);
