/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a home cluster for people: a table that is drawn again and again, a line for each event,
 * and questions about them. */
#pragma once

#include <stdio.h>
#include <time.h>

#include "node/local.h"

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
