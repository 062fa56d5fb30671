/* SPDX-License-Identifier: Apache-2.0 */
/* A command's node in the home cluster: opened, and brought together with the machines that are up. */
#pragma once

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include <hearth.h>

#include "cli/cluster/cluster_plan.h"
#include "cli/shared/args.h"
#include "cli/shared/secret_handover.h"
#include "node/local.h"
#include "os/thread.h"

const char *cluster_health_name(int index); /* NULL after the last */

struct cluster_session {
    hearth_node *node;
    struct secret_handover handover;
};

/* `said`: what goes before the environment, if it is not NULL or 0: seeds, bind, port, health, roles, log and
 * how long to form. ARGS_GO, or the exit code after a message. */
int cluster_enter(const struct usage *usage, const struct hearth_config *said,
                  struct cluster_session *cluster);
void cluster_leave(struct cluster_session *cluster);

/* A call that waits, in a thread of its own. */
struct node_call {
    /* What the caller says. */
    hearth_node *node;
    void (*work)(void *arg); /* in the thread; ends soon after `quit` and an interrupt of the node */
    void (*ring)(void *arg); /* from the thread: it is done; NULL: nobody is told */
    void *arg, *ring_arg;

    atomic_bool quit;
    atomic_int state;
    struct thread thread;
};

/* No effect while it is busy, or after `quit`. false: there is no thread for it. */
bool node_call_start(struct node_call *call);
/* True once after it is done; then it may start again. */
bool node_call_take(struct node_call *call);
/* Asks it to end, and waits for that some seconds. false: it is stuck, and the node must not be closed. */
bool node_call_end(struct node_call *call);

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

/* ---- the members for people, and questions about them ---- */

/* Writes the table; the number of its lines. `note` is the last line, NULL: none. */
int cluster_table_draw(FILE *file, const struct cluster_status *status, const char *note);
/* One line without its end: "joined anna k7f3-9d2c-...". */
void cluster_event_text(const struct hearth_event *event, char *text, size_t size);
/* "12:03:04 joined anna ...", with its end: an event, or other news. */
void cluster_line(FILE *file, const char *text, time_t now);

/* Members other than this one that have the role. */
int cluster_status_count(const struct cluster_status *status, enum hearth_role role);
/* Whether every way between this one and those with the role was measured, or is inside of a machine. */
bool cluster_status_measured(const struct cluster_status *status, enum hearth_role role);
/* Whether a member asks for the job just now. */
bool cluster_status_wanted(const struct cluster_status *status, const char *job);
/* What the way from one machine to another carries, bytes a second, by their ids: a machine may have several
 * members, and its ways are the same for all. 0: not measured; negative: it is inside of a machine. */
double cluster_status_path(const struct cluster_status *status, const char *from, const char *to);
