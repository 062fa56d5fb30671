/* SPDX-License-Identifier: Apache-2.0 */
/* Where a job ran last: the view then, and its participants. A member that requests the job sends this record
 * to the leader, so that the job does not start again while others may still run it, nor start twice.
 *
 * A job runs in a view with a quorum, and an instance has one such view at a time. So within one instance the
 * record is not needed. In another one:
 *
 *  - The missing members of the old view may still be a quorum of it and run the job. A member that is here,
 *    as the same process or restarted on the same machine, never votes there again. When the missing ones are
 *    no quorum, the old instance cannot decide any more.
 *  - Two other instances may both see that. So more than half of the participants (or half, with the first)
 *    must be in the new formation: any two such formations share a member, which remembers the first when it
 *    is asked for the second.
 *
 * docs/membership.md explains it for users. */
#pragma once

#include "membership/view.h"

#define JOB_NAME_MAX       64 /* with the final 0 */
#define JOB_FILE_JOBS_MAX  32 /* jobs in the file of a machine */
#define JOB_FILE_ENTRY_MAX (8u + JOB_NAME_MAX + 18u + VIEW_MEMBERS_MAX * (41u + PEER_NAME_MAX))
#define JOB_FILE_MAX       (8u + JOB_FILE_JOBS_MAX * JOB_FILE_ENTRY_MAX + 4u)

/* In the flags of a member, beside PEER_GUEST: it took part, as the first of all. */
#define JOB_TOOK_PART (UINT32_C(1) << 30)
#define JOB_FIRST     (UINT32_C(1) << 31)

/* Marks the participants, by rank. */
void job_record_mark(struct view *ran, const struct identity *members, int count);
/* Copies the marks from the view before. */
void job_record_follow(struct view *ran, const struct view *before);
/* Whether the job must not start in the view `now`; then `missing` flags, by index in `ran`, the members that
 * it waits for. `heard` flags members of `now` that have reported, `asks` those that request the job; NULL:
 * all. */
bool job_record_elsewhere(const struct view *ran, const struct view *now, const bool *heard, const bool *asks,
                          bool missing[static VIEW_MEMBERS_MAX]);

/* As in a report: ids and flags only. */
void job_record_put(struct writer *w, const struct view *ran);
bool job_record_get(struct reader *r, struct view *ran); /* no member twice, leader in it, sizes */

/* ---- the file of a machine: docs/cluster_messages.md specifies it ---- */

struct job_memory {
    char job[JOB_NAME_MAX];
    uint64_t process; /* instance of the process that took part: several may share a machine */
    struct view ran;  /* ids, votes and names */
};

/* Reads the head; false: not such a file, or damaged, as `what` says. */
bool job_file_begin(struct reader *r, const void *bytes, size_t len, int *count, const char **what);
bool job_file_next(struct reader *r,
                   struct job_memory *memory); /* as often as `count` says; false: damaged */
void job_file_put(struct writer *w, const struct job_memory *memory);
/* Completes a file of `count` entries that stand after JOB_FILE_HEAD bytes; returns its length. */
#define JOB_FILE_HEAD 8
size_t job_file_end(uint8_t *bytes, size_t entries_len, int count); /* room for 4 bytes more */

bool job_text_ok(const char *text); /* printable characters only */
bool job_name_ok(const char *name); /* 1 to 63 printable characters */
