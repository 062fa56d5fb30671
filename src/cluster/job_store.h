/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine remembers of jobs (membership/job_record.h): in memory while the process lives, and in a
 * file beside its key, so that a process that is started again knows of them. Thread-safe. */
#pragma once

#include "core/heap.h"
#include "core/log.h"
#include "membership/job_record.h"

#define JOB_STORE_TAIL ".jobs" /* of the file: the key's path and this */

struct job_store;

struct job_store_setup {
    struct heap *heap;
    struct log log;
    const char *path;     /* NULL: only in memory; copied */
    struct identity self; /* node and process */
};
int MUST_CHECK job_store_open(const struct job_store_setup *setup, struct job_store **out);
void job_store_close(struct job_store *store); /* when all is written; NULL is allowed */

/* The view in which the job ran last; `some` is false if nothing is remembered of it. HEARTH_INVALID,
 * HEARTH_SYSTEM: there is a file that cannot be read. */
int MUST_CHECK job_store_recall(struct job_store *store, const char *job, struct view *ran, bool *some,
                                struct error *error);
/* Returns when it is on the disk; if that is impossible the log says so. */
void job_store_keep(struct job_store *store, const char *job, const struct view *ran);
/* Likewise, but soon, by a thread of its own: a disk may take seconds. */
void job_store_keep_soon(struct job_store *store, const char *job, const struct view *ran);
void job_store_drop(struct job_store *store, const char *job); /* it has ended for this process */
/* The i-th job that this process keeps, and the instance of its view; false: there are no more. */
bool job_store_kept(struct job_store *store, int i, char job[static JOB_NAME_MAX], uint64_t *instance);

/* For the command: every job in a file, and forgetting one, whichever process it was of. */
typedef void job_file_fn(void *arg, const struct job_memory *memory);
int MUST_CHECK job_file_each(struct heap *heap, const char *path, job_file_fn *fn, void *arg,
                             struct error *error);
int MUST_CHECK job_file_forget(struct heap *heap, const char *path, const char *job, int *forgotten,
                               struct error *error);
