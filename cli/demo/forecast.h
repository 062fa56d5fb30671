/* SPDX-License-Identifier: Apache-2.0 */
/* What the race's codecs would cost for a model of today, from the cost model. */
#ifndef CLI_FORECAST_H
#define CLI_FORECAST_H

#include "cli/demo/race.h"

#define FORECAST_WHAT    "one billion weights between two sites at 1 Gbit/s, 10 ms apart"
#define FORECAST_COMMAND "hearth sim --params 1B --ranks 2 --rate 1gbit --rtt 10ms --compress all"

struct forecast {
    double bytes;   /* that a member sends in a step */
    double seconds; /* of a step's all-reduce */
};

/* forecasts[RACE_LANES] */
void forecast_all(const struct race *race, struct forecast *forecasts);

#endif
