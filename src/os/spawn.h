/* SPDX-License-Identifier: Apache-2.0 */
/* Programs and processes: where our own code is, programs that we start, ties between parent and child. */
#pragma once

#include "core/error.h"

/* Where the code that runs was loaded from. False: unknown. */
bool self_program_folder(char *path, size_t size); /* of the running program */
bool self_library_folder(char *path, size_t size); /* of the file that this code came from */
bool self_can_run(const char *path);               /* a file that we may execute */

/* A program that we start and talk with: one connection that is its standard input and output. It gets no
 * other descriptor of ours, no signal mask, and of the environment only where programs and libraries are. */
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

/* Ties, where the system has them; elsewhere they do nothing, so nobody may rely on them alone. In a child
 * after fork: it is killed when `parent` (its process id, taken before the fork) ends. Outlives exec. false:
 * the parent has ended already. */
bool leash_tie(int parent);
/* The same by SIGTERM, which lets it say goodbye: for programs that heed it. */
bool leash_tie_gently(int parent);
/* Descendants whose parent ended become our children instead of the first process's. */
void leash_inherit(void);
