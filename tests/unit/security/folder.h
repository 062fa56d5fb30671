/* SPDX-License-Identifier: Apache-2.0 */
/* For tests with files: a fresh folder that is removed at the end, and children that try things in it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FOLDER_PATH_MAX 512

int folder_make(void **state);   /* cmocka setup: each test has its own */
int folder_remove(void **state); /* cmocka teardown: with all that is in it */
const char *folder(void);
const char *folder_path(const char *name); /* one of eight buffers in turn */

void file_put(const char *path, const void *bytes, size_t len, mode_t mode); /* replaces it */
size_t file_get(const char *path, void *bytes, size_t len_max);
unsigned file_mode(const char *path); /* 07777 of it */
/* How many names there are in a folder, and one of them that is not `known` if there is any, else NULL. */
int file_count(const char *directory, const char *known, const char **other);

/* Runs `work` in a child and gives what it returned (0..99), or 100 + the signal that ended it. */
int child_run(int (*work)(void *arg), void *arg);
pid_t fork_start(int (*work)(void *arg), void *arg);
int fork_end(pid_t child);

/* In a child: link(2) says from now on that this file system has no links. False: that cannot be done. */
bool links_refused(void);
