/* SPDX-License-Identifier: Apache-2.0 */
/* The race as one HTML file: tables, and charts as SVG; no scripts, nothing from elsewhere. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include <stdio.h>

#include "cli/demo/forecast.h"
#include "cli/demo/race.h"

/* NULL with a message: so that it is known before the race. */
FILE *report_open(const char *path);
/* Closes the file. forecasts[RACE_LANES]. false with a message that names the path. */
bool report_close(FILE *file, const char *path, const struct race *race, const struct forecast *forecasts);

#endif
