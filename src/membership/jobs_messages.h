/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of jobs: report, form, board. docs/cluster_messages.md specifies their bytes. */
#pragma once

#include "membership/jobs.h"

struct report_request {
    uint64_t serial, done;
    int min;
    char job[JOB_NAME_MAX];
    char settings[JOB_SETTINGS_MAX];
    const uint8_t *place; /* decoded: in the message */
    size_t place_len;
    const struct view *ran; /* to be encoded; NULL: none */
    const uint8_t *record;  /* decoded: in the message, checked; NULL: none */
    size_t record_len;
    int unreached;
    struct identity unreached_id[JOB_UNREACHED_MAX];
};

struct report_part {
    uint64_t spec;
    bool over;
    int size;
    char job[JOB_NAME_MAX];
    char settings[JOB_SETTINGS_MAX];
    const struct identity *members; /* decoded: in `pool` */
};

struct report {
    uint64_t instance, term, sequence;
    int requests, parts;
    struct report_request request[JOBS_MAX];
    struct report_part part[JOBS_MAX];
    struct identity pool[JOBS_MAX][VIEW_MEMBERS_MAX];
};

struct form {
    uint64_t serial[VIEW_MEMBERS_MAX];
    struct group_spec spec; /* rank is not in the message */
};

struct board_line {
    struct job_line line;
    char why[JOB_TEXT_MAX];
};

struct board_end {
    uint64_t spec;
    struct identity who;
    char why[JOB_TEXT_MAX];
};

struct board_refusal {
    uint64_t serial;
    enum hearth_reason reason; /* not HEARTH_REASON_NONE */
    char why[JOB_TEXT_MAX];
};

struct board {
    uint64_t instance, term, sequence, heard;
    int lines, ended, refused;
    struct board_line line[BOARD_MAX];
    struct board_end end[JOBS_MAX];
    struct board_refusal refusal[JOBS_MAX];
};

/* Bytes written; 0: does not fit. */
size_t report_encode(const struct report *report, void *target, size_t size);
size_t form_encode(const struct form *form, void *target, size_t size);
size_t board_encode(const struct board *board, void *target, size_t size);
/* HEARTH_PROTOCOL: malformed, `what` says how. */
int MUST_CHECK report_decode(struct report *report, const void *source, size_t len, const char **what);
int MUST_CHECK form_decode(struct form *form, const void *source, size_t len, const char **what);
int MUST_CHECK board_decode(struct board *board, const void *source, size_t len, const char **what);
