/* SPDX-License-Identifier: Apache-2.0 */
/* What hearth_config_env finds that is no setting of the program's: it travels to hearth_node_open behind a
 * pointer in the config. */
#pragma once

#include "core/error.h"
#include "node/launch.h"

#define ENVIRONMENT_FOLDER_MAX 320

struct hearth_environment {
    /* An open file with the secret, that a launcher left us; -1: none. `secret` and `secret_file` come first.
     * The first open reads and closes it, so that programs started later do not inherit it; later opens use
     * what was read. */
    int secret_fd;
    char folder[ENVIRONMENT_FOLDER_MAX]; /* where key and secret are kept; "": .config/hearth at home */
    /* Where the launcher's ranks meet. Used while the config has world_size, and neither peers nor
     * rendezvous. */
    char rendezvous[LAUNCH_TEXT_MAX];
};

/* That of a config; where it has none, one in which nothing was found. */
const struct hearth_environment *environment_of(const struct hearth_config *config);

/* The bytes, for as long as the process lives: a config has no end at which they could be freed. Equal ones
 * share a place, so that asking again takes no memory. NULL: there is none. Any thread. */
const void *kept_forever(const void *bytes, size_t len);
