/* SPDX-License-Identifier: Apache-2.0 */
/* Where a job ran last: the view of its members then, and who of it took part. Who asks for the job tells it
 * to the leader, so that nobody begins it anew while others may still run it, and so that it is not begun
 * anew twice.
 *
 * A job runs inside of a view that has a quorum, and of one instance there is only one such view at a time.
 * So in the same instance nothing has to be asked. In another one:
 *
 *  - Those of the old view that are not here may still be a view with a quorum, and run the job. Who is here,
 *    as the same process or started again on the same machine, will never vote there again. When those that
 *    are missing can be no quorum, the old instance decides nothing any more.
 *  - Two other instances may both see that. So of those who took part more than half (or half, with the first
 *    of them) must be in the new formation: any two such have a member in common, which remembers the first
 *    when it is asked for the second.
 *
 * docs/membership.md says it for people. */
#pragma once

#include "membership/view.h"

#define JOB_NAME_MAX       64 /* with the final 0 */
#define JOB_FILE_JOBS_MAX  32 /* jobs that a machine remembers */
#define JOB_FILE_ENTRY_MAX (8u + JOB_NAME_MAX + 18u + VIEW_MEMBERS_MAX * (41u + PEER_NAME_MAX))
#define JOB_FILE_MAX       (8u + JOB_FILE_JOBS_MAX * JOB_FILE_ENTRY_MAX + 4u)

/* In the flags of a member, beside PEER_GUEST: it took part, as the first of all. */
#define JOB_TOOK_PART (UINT32_C(1) << 30)
#define JOB_FIRST     (UINT32_C(1) << 31)

/* These took part, by rank. */
void job_record_mark(struct view *ran, const struct identity *members, int count);
/* Those that took part in the view before did so in this one. */
void job_record_follow(struct view *ran, const struct view *before);
/* Whether the job may not begin in the view `now`; then `missing` has flags by index in `ran`: for whom it
 * waits. `heard` has a flag for each member of `now` that surely belongs to it, `asks` for each that asks for
 * the job; NULL: all do. */
bool job_record_elsewhere(const struct view *ran, const struct view *now, const bool *heard, const bool *asks,
                          bool missing[static VIEW_MEMBERS_MAX]);

/* As in a report: ids and flags only. */
void job_record_put(struct writer *w, const struct view *ran);
bool job_record_get(struct reader *r, struct view *ran); /* no member twice, leader in it, sizes */

/* ---- the file of a machine: docs/messages.md is the law of its bytes ---- */

struct job_memory {
    char job[JOB_NAME_MAX];
    uint64_t process; /* instance of the process that took part: several may share a machine */
    struct view ran;  /* ids, votes and names */
};

/* Before the first entry; false: it is no such file, or damaged, as `what` says. */
bool job_file_begin(struct reader *r, const void *bytes, size_t len, int *count, const char **what);
bool job_file_next(struct reader *r,
                   struct job_memory *memory); /* as often as `count` says; false: damaged */
void job_file_put(struct writer *w, const struct job_memory *memory);
/* Makes a file of `count` entries that stand behind the first JOB_FILE_HEAD bytes; gives its length. */
#define JOB_FILE_HEAD 8
size_t job_file_end(uint8_t *bytes, size_t entries_len, int count); /* room for 4 bytes more */

bool job_text_ok(const char *text); /* printable characters only */
bool job_name_ok(const char *name); /* 1 to 63 printable characters */
