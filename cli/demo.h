/* SPDX-License-Identifier: Apache-2.0 */
/* What the two forms of the demo share: what the user said, and the images. */
#ifndef CLI_DEMO_H
#define CLI_DEMO_H

#include "cli/json.h"
#include "cli/train.h"

#define DEMO_RANKS_MAX 32

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

    /* What demo_local found out. */
    struct train_epoch last; /* of the nodes */
    double nodes_s, single_s;
    size_t steps; /* of each replica */
};

/* Nodes of this process, then one node alone. An exit code. */
int demo_local(struct demo *demo);
/* Processes of their own, one codec after the other. An exit code. */
int demo_race(struct demo *demo);

#endif
