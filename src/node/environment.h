/* SPDX-License-Identifier: Apache-2.0 */
/* What hearth_config_env finds beside the public settings: a pointer in the config passes it to
 * hearth_node_open. */
#pragma once

#include "core/error.h"
#include "node/launch.h"

#define ENVIRONMENT_FOLDER_MAX 320

struct hearth_environment {
    /* The launcher's open file with the secret; -1: none. `secret` and `secret_file` come first. The first
     * open reads and closes it, so that later children do not inherit it; later opens use the copy. */
    int secret_fd;
    char folder[ENVIRONMENT_FOLDER_MAX]; /* of key and secret; "": .config/hearth at home */
    /* The launcher's meeting place. Used if the config has world_size, and neither peers nor rendezvous. */
    char rendezvous[LAUNCH_TEXT_MAX];
};

/* The environment of a config, or an empty one. */
const struct hearth_environment *environment_of(const struct hearth_config *config);

/* Keeps the bytes until the process ends: a config has no destructor. Equal values share memory, so repeated
 * calls take none. NULL: no memory. Any thread. */
const void *kept_forever(const void *bytes, size_t len);
