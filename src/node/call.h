/* SPDX-License-Identifier: Apache-2.0 */
/* From the user's arguments to a checked call, and functions to run it. */
#pragma once

#include "node/staging.h"

/* Checks what can be checked without the other members, fills in in_place and the options, starts. `call`
 * holds the user's arguments; `opts` may be NULL. Errors go to the thread's last error. */
int call_start(hearth_group *group, struct call *call, const struct hearth_opts *opts,
               hearth_request **request);
/* The same for buffers in host memory whose source comes from device memory. */
int call_start_staged(hearth_group *group, struct call *call, const struct hearth_opts *opts,
                      const struct staged_ranges *staged, hearth_request **request);
/* Reads the options of any version (NULL: the defaults) with the checks common to all calls; `name` for the
 * error text. */
int MUST_CHECK call_opts_read(const char *name, const struct hearth_opts *given, struct hearth_opts *own);
/* Starts, waits for the end, frees. */
int call_run(hearth_group *group, struct call *call, const struct hearth_opts *opts);
/* The same, but cancels it (HEARTH_CANCELLED) when asked to stop. */
int call_run_unless(hearth_group *group, struct call *call, const struct hearth_opts *opts,
                    const struct stop *stop);
