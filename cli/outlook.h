/* SPDX-License-Identifier: Apache-2.0 */
/* What the race's codecs would cost for a model of today, from the cost model. */
#ifndef CLI_OUTLOOK_H
#define CLI_OUTLOOK_H

#include "cli/race.h"

#define OUTLOOK_WHAT    "one billion weights between two sites at 1 Gbit/s, 10 ms apart"
#define OUTLOOK_COMMAND "hearth sim --params 1B --ranks 2 --rate 1gbit --rtt 10ms --compress all"

struct outlook {
    double bytes;   /* that a member sends in a step */
    double seconds; /* of a step's all-reduce */
};

/* outlooks[RACE_LANES] */
void outlook_all(const struct race *race, struct outlook *outlooks);

#endif
