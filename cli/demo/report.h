/* SPDX-License-Identifier: Apache-2.0 */
/* The race as one HTML file: tables, and charts as SVG; no scripts, nothing from elsewhere. And what its
 * codecs would cost for a model of today, from the cost model. */
#pragma once

#include <stdio.h>

#include "cli/demo/race.h"
#include "cli/shared/text.h"

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
