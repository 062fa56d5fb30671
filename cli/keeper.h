/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper of one rank: a process between the launcher and the program, on the program's machine. */
#ifndef CLI_KEEPER_H
#define CLI_KEEPER_H

/* Serves the launcher at the other ends of `in` and `up` until the program and all it started are gone. The
 * result is an exit code; the rank's own went up in a letter. */
int keeper_serve(int in, int up);

#endif
