/* SPDX-License-Identifier: Apache-2.0 */
/* Which secret the ranks of a job have, and how it reaches them. */
#pragma once

#include <stdbool.h>

#include "cli/shared/args.h"
#include "cli/shared/config_folder.h"
#include "security/secret.h"

struct secret_handover {
    bool plain;               /* no secret, nothing is encrypted */
    bool fresh_keys;          /* every rank has a key of its own, in memory */
    struct secret *secret;    /* NULL: plain */
    char file[HOME_PATH_MAX]; /* where it is stored, "": nowhere. Ranks of this machine read it there, and the
                                 trust list beside it */
    const char *source;       /* for people */
};

/* The secret of `given` (a file), else of HEARTH_SECRET, HEARTH_SECRET_FILE or HEARTH_SECRET_FD, else a new
 * one for this job only. `plain`, or HEARTH_PLAIN=1: none. Takes the three variables and the descriptor away,
 * so that no process which we start has them. ARGS_GO, or the exit code after a message. */
int secret_handover_settle(const struct usage *usage, const char *given, bool plain,
                           struct secret_handover *handover);
/* The secret of the home cluster: of the three variables, else what `hearth init` or `hearth join` stored. As
 * secret_handover_settle. */
int secret_handover_of_cluster(const struct usage *usage, struct secret_handover *handover);
/* Whether the trust list beside the secret lets the ranks in; `elsewhere`: some run on other machines, where
 * the list is not known. ARGS_GO, or the exit code after a message. */
int secret_handover_check_trust(const struct usage *usage, const struct secret_handover *handover,
                                bool elsewhere);
void secret_handover_close(struct secret_handover *handover);

/* The same for nodes of this very process and of those it forks: a secret of their own, unless the
 * environment has one. It is handed to hearth_config_env by the environment. false after a message. */
bool secret_handover_here(const char *command, bool plain);
bool secret_handover_is_plain(bool plain); /* by the flag, or by HEARTH_PLAIN */
