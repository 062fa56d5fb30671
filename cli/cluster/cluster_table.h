/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a home cluster for people: a table that is drawn again and again, or a line for each event.
 */
#ifndef CLI_CLUSTER_TABLE_H
#define CLI_CLUSTER_TABLE_H

#include <stdio.h>
#include <time.h>

#include "cli/cluster/cluster_status.h"

/* Writes the table; the number of its lines. `note` is the last line, NULL: none. */
int cluster_table_draw(FILE *file, const struct cluster_status *status, const char *note);
/* One line without its end: "joined anna k7f3-9d2c-...". */
void cluster_event_text(const struct hearth_event *event, char *text, size_t size);
/* "12:03:04 joined anna ..." with its end. */
void cluster_event_line(FILE *file, const struct hearth_event *event, time_t now);
void cluster_line(FILE *file, const char *text, time_t now); /* any other news, likewise */

#endif
