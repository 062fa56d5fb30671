/* SPDX-License-Identifier: Apache-2.0 */
/* This machine's records of jobs (membership/job_record.h): in memory, and in a file beside its key for a
 * restarted process. Thread-safe. */
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
void job_store_close(struct job_store *store); /* writes all first; NULL is allowed */

/* The view in which the job ran last; `some` is false if there is no record. HEARTH_INVALID, HEARTH_SYSTEM:
 * the file cannot be read. */
int MUST_CHECK job_store_recall(struct job_store *store, const char *job, struct view *ran, bool *some,
                                struct error *error);
/* Returns when it is on disk; a failure is logged. */
void job_store_keep(struct job_store *store, const char *job, const struct view *ran);
/* Likewise, but a thread writes it soon: a disk may take seconds. */
void job_store_keep_soon(struct job_store *store, const char *job, const struct view *ran);
void job_store_drop(struct job_store *store, const char *job); /* it has ended for this process */
/* The i-th job of this process, and the instance of its view; false: no more. */
bool job_store_kept(struct job_store *store, int i, char job[static JOB_NAME_MAX], uint64_t *instance);

/* For the command: lists the jobs in a file, and forgets one, of any process. */
typedef void job_file_fn(void *arg, const struct job_memory *memory);
int MUST_CHECK job_file_each(struct heap *heap, const char *path, job_file_fn *fn, void *arg,
                             struct error *error);
int MUST_CHECK job_file_forget(struct heap *heap, const char *path, const char *job, int *forgotten,
                               struct error *error);
