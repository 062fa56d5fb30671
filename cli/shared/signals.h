/* SPDX-License-Identifier: Apache-2.0 */
/* Signals as bytes of a pipe, so that a loop around poll hears them like anything else; and pipes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Catches the signals of the list from now on; SIGINT and SIGHUP stay ignored if they were. Gives the
 * descriptor to poll, -1: no descriptors left. A second call begins anew, as the child of a fork must. */
int signals_open(const int *list, size_t count);
/* The next signal that came, 0: none. */
int signals_next(void);
/* They end the process again, but for those that stayed ignored. */
void signals_close(const int *list, size_t count);
/* All dispositions as a new program expects them; nothing is blocked. */
void signals_reset(void);

/* A pipe whose ends are not handed on by exec. */
bool pipe_open(int ends[2]);
