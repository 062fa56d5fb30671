/* SPDX-License-Identifier: Apache-2.0 */
/* What another program prints, within a time. */
#ifndef CLI_CAPTURE_H
#define CLI_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

/* Runs argv[0], found by PATH, without input, and keeps what it prints on standard output, as far as there is
 * room, terminated. Its exit code; -1: it could not be started, was ended by a signal, or had not ended by
 * the deadline (then it is killed). */
int capture(const char *const *argv, char *text, size_t size, uint64_t deadline_ns);

#endif
