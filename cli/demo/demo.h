/* SPDX-License-Identifier: Apache-2.0 */
/* What the forms of the demo share: what the user said, and the images. */
#pragma once

#include "cli/demo/race.h"
#include "cli/demo/train.h"
#include "cli/shared/json.h"

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
