/* SPDX-License-Identifier: Apache-2.0 */
/* Where a job ran last: the view of its members then. Who asks for the job tells it to the leader, so that
 * nobody begins it anew while others may still run it.
 *
 * A job runs inside of a view that has a quorum, and of one instance there is only one such view at a time.
 * So in the same instance nothing has to be asked. In another one, those of the old view that are not here
 * may still be a view with a quorum, and run the job. Who is here now, as the same process or started again
 * on the same machine, is not there. When those that are missing can be no quorum, the old instance can
 * decide nothing any more, and the job may begin. docs/membership.md says it for people. */
#ifndef MEMBERSHIP_JOB_RECORD_H
#define MEMBERSHIP_JOB_RECORD_H

#include "membership/census.h"

#define JOB_NAME_MAX       64 /* with the final 0 */
#define JOB_FILE_JOBS_MAX  32 /* jobs that a machine remembers */
#define JOB_FILE_ENTRY_MAX (8u + JOB_NAME_MAX + 18u + CENSUS_MEMBERS_MAX * (41u + FELLOW_NAME_MAX))
#define JOB_FILE_MAX       (8u + JOB_FILE_JOBS_MAX * JOB_FILE_ENTRY_MAX + 4u)

/* Those of `ran` that may be together elsewhere, as flags by index; true: they can be a quorum of it. `heard`
 * has a flag for each member of `now` that surely belongs to it; NULL: all do. */
bool job_record_elsewhere(const struct census *ran, const struct census *now, const bool *heard,
                          bool missing[static CENSUS_MEMBERS_MAX]);

/* As in a report: ids and votes only. */
void job_record_put(struct writer *w, const struct census *ran);
bool job_record_get(struct reader *r, struct census *ran); /* no member twice, leader in it, sizes */

/* ---- the file of a machine: docs/letters.md is the law of its bytes ---- */

struct job_memory {
    char job[JOB_NAME_MAX];
    uint64_t process;  /* instance of the process that took part: several may share a machine */
    struct census ran; /* ids, votes and names */
};

/* Before the first entry; false: it is no such file, or damaged, as `what` says. */
bool job_file_begin(struct reader *r, const void *bytes, size_t len, int *count, const char **what);
bool job_file_next(struct reader *r,
                   struct job_memory *memory); /* as often as `count` says; false: damaged */
void job_file_put(struct writer *w, const struct job_memory *memory);
/* Makes a file of `count` entries that stand behind the first JOB_FILE_HEAD bytes; gives its length. */
#define JOB_FILE_HEAD 8
size_t job_file_end(uint8_t *bytes, size_t entries_len, int count); /* room for 4 bytes more */

bool job_text_ok(const char *text); /* printable letters only */
bool job_name_ok(const char *name); /* 1 to 63 printable letters */

#endif
