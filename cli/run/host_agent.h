/* SPDX-License-Identifier: Apache-2.0 */
/* The host agent of one rank: a process between the launcher and the program, on the program's machine. */
#pragma once

/* Serves the launcher at the other ends of `in` and `up` until the program and all it started are gone. The
 * result is an exit code; the rank's own went up in a message. */
int host_agent_serve(int in, int up);
