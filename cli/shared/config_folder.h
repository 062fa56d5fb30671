/* SPDX-License-Identifier: Apache-2.0 */
/* Where a user's key, cluster secret and trust list lie, unless told otherwise. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cli/shared/args.h"

#define HOME_PATH_MAX 4096
#define HOME_SECRET_ABOUT                                                                                    \
    "(default: HEARTH_SECRET_FILE, else cluster in $XDG_CONFIG_HOME/hearth or ~/.config/hearth)"

/* A variable of the environment that is set, and not to nothing; else NULL. */
char *env_value(const char *name);

/* The folder itself, as an absolute path; a running node is found by it too. False: there is no place for it.
 */
bool home_folder(char path[static HOME_PATH_MAX]);
/* Both write an absolute path: as given by the flag, else by the variable, else the default below
 * $XDG_CONFIG_HOME/hearth or .config/hearth of $HOME or, without it, of the user's home: where the library
 * looks too. ARGS_GO, or the exit code after a message with the fix. */
int home_key_file(const struct usage *usage, const char *given, char path[static HOME_PATH_MAX]);
int home_secret_file(const struct usage *usage, const char *given, char path[static HOME_PATH_MAX]);
/* The list that belongs to a secret file. false: too long. */
bool home_trust_file(const char *secret_file, char path[static HOME_PATH_MAX]);
/* Says, if there is such a list, that a new secret does not change it. */
void home_note_trust(const struct usage *usage, const char *secret_file);
