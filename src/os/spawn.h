/* SPDX-License-Identifier: Apache-2.0 */
/* A program that we start and talk with: one connection that is its standard input and output. It gets no
 * other descriptor of ours, no signal mask, and of the environment only where programs and libraries are. */
#pragma once

#include "core/error.h"

struct child {
    int pid; /* 0: none */
    int fd;  /* our end: a socket as os/sock.h makes them; -1: none */
};

/* HEARTH_INVALID: there is no such program, or it may not be run; HEARTH_SYSTEM: anything else. Its standard
 * error goes nowhere. It has a process group of its own, so that Ctrl-C is ours to hear. */
int MUST_CHECK child_start(struct child *child, const char *path, struct error *error);
/* Whether it has ended; then it is reaped, and `how` says why ("exit status 1", "signal 9"). Only this
 * process is ever asked for: other children are their makers'. */
bool child_ended(struct child *child, char *how, size_t size);
/* Kills it if it has not ended, reaps it, closes our end. Harmless when there is none. */
void child_end(struct child *child);
