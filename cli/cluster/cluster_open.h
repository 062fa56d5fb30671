/* SPDX-License-Identifier: Apache-2.0 */
/* A command's node in the home cluster: opened, and brought together with the machines that are up. */
#pragma once

#include <stdatomic.h>

#include <hearth.h>

#include "cli/cluster/cluster_plan.h"
#include "cli/cluster/cluster_table.h"
#include "cli/shared/args.h"
#include "cli/shared/secret_handover.h"

/* What the user says. NULL and 0: as the environment does, else the library's own choice. */
struct cluster_options {
    const char *seeds, *bind;
    int port, health; /* index of cluster_health_name; -1: not said */
    unsigned roles;   /* enum hearth_role */
    int64_t form_timeout_ms;
    hearth_log_fn *log;
    void *log_arg;
};

const char *cluster_health_name(int index); /* NULL after the last */

struct cluster_session {
    hearth_node *node;
    struct secret_handover handover;
};

/* ARGS_GO, or the exit code after a message. */
int cluster_enter(const struct usage *usage, const struct cluster_options *options,
                  struct cluster_session *cluster);
void cluster_leave(struct cluster_session *cluster);

/* For a command that starts something on all machines that are up with `role`: waits until they are members
 * and no more come, then forms the job with them. ARGS_GO, or the exit code after a message; `nobody` is said
 * where no machine takes part. Shows how far it is. A signal ends it with 128 + its number; the node is
 * closed as always then. */
struct cluster_gathering {
    const char *job;
    enum hearth_role role;
    double patience_s;
    double measure_s; /* waits so long at most until the ways between them were measured */
    const char *nobody;
};
int cluster_gather(const struct usage *usage, struct cluster_session *cluster,
                   const struct cluster_gathering *what, hearth_group **group);

/* "anna, ben and carl": the members of a group. */
void cluster_names(hearth_group *group, char *text, size_t size);
