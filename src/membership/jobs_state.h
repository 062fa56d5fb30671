/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of jobs, shared by jobs.c (every member), job_leader.c (the leader), jobs_form.c (formations) and
 * job_text.c (texts for users). */
#pragma once

#include "core/list.h"
#include "membership/jobs_messages.h"

#define JOBS_REPORT_NS  NS_PER_S          /* longest interval of reports and boards */
#define JOBS_SETTLE_NS  (300 * NS_PER_MS) /* requests must be stable this long */
#define JOBS_RESEND_NS  (250 * NS_PER_MS) /* of an unanswered formation */
#define JOBS_BOARD_NS   (20 * NS_PER_MS)  /* shortest interval of boards */
#define JOBS_SILENT_NS  (2 * NS_PER_S)    /* longest wait for the first report of a member */
#define JOBS_MEASURE_NS (2 * NS_PER_S)    /* longest wait for the measured paths */
#define JOBS_LASTS_NS   (3 * NS_PER_S)    /* a formation known this long does not end for another */
#define JOBS_RUNS_MAX   256               /* formations that the leader knows */
#define JOBS_LEFT_MAX   8
#define JOBS_LEFT_NS    (600 * NS_PER_S) /* a member that was left out does not count as waiting this long */
#define JOBS_ENDED_MAX  16               /* ended jobs that the leader knows; the oldest goes */

/* A job of this member. */
enum slot_state {
    SLOT_FREE,
    SLOT_WAITING,
    SLOT_REFUSED, /* until that is reported */
    SLOT_RUNNING, /* takes part */
    SLOT_OVER     /* took part, and holds it until jobs_end or the next request */
};
struct job_slot {
    enum slot_state state;
    struct job_request request;
    uint64_t serial, done;
    int unreached;
    struct identity unreached_id[JOB_UNREACHED_MAX];
    struct view *ran;        /* waiting: where the job ran last; NULL: no record */
    struct group_spec *spec; /* running, over */
    bool formed_told, over_told;
    bool broken;               /* a participant was lost, or this node from the others */
    uint64_t left;             /* bit r: rank r announced that it leaves the cluster */
    uint64_t lost, lost_told;  /* bit r: rank r is gone, or has left the formation */
    struct identity who;       /* the member that ended it */
    enum hearth_reason reason; /* refused */
    char text[JOB_TEXT_MAX];
};

/* ---- State of the leader ---- */

struct told_request {
    struct job_request request;
    uint64_t serial, done;
    uint64_t since_ns;
    int unreached;
    struct identity unreached_id[JOB_UNREACHED_MAX];
    struct view *ran;           /* where the job ran last, by the member's record; or NULL */
    enum hearth_reason refused; /* HEARTH_REASON_NONE: not refused */
    char refusal[JOB_TEXT_MAX]; /* why */
};
struct told_part {
    uint64_t spec;
    bool over;
    char job[JOB_NAME_MAX];
    char settings[JOB_SETTINGS_MAX];
};
/* The last report of a member, by index in the view. */
struct told {
    bool heard;        /* in this term */
    uint64_t since_ns; /* begin of its membership, or of the term */
    uint64_t sequence;
    int requests, parts;
    struct told_request *request; /* blocks of the heap */
    struct told_part *part;
};

/* A formation, of this leader or of an earlier one. */
struct run {
    struct list item;
    uint64_t id;
    char job[JOB_NAME_MAX];
    int size;
    struct identity members[VIEW_MEMBERS_MAX];
    uint64_t serial[VIEW_MEMBERS_MAX]; /* of the requests that it fulfils; only if `ours` */
    bool ours;                         /* formed in this term */
    bool complete;                     /* all of its members have reported it */
    bool ended;
    bool doomed;         /* ends for another formation of the job */
    struct identity who; /* the member that ended it */
    char why[JOB_TEXT_MAX];
    uint64_t since_ns, resend_ns;
    size_t message_len;
    uint8_t *message; /* MESSAGE_FORM; NULL: formed by an earlier leader */
};

/* Members that are not in a formation because they have no connection to one of its members. */
struct left_out {
    uint64_t since_ns;
    int count; /* at most JOBS_LEFT_MAX are noted */
    struct identity id[JOBS_LEFT_MAX];
    char text[160]; /* which and why; "": none */
};

/* A job that a member requests or takes part in. */
struct led_job {
    char job[JOB_NAME_MAX];
    bool settled;                    /* `settings` is valid */
    char settings[JOB_SETTINGS_MAX]; /* of its participants, or of the first request */
    uint64_t released_ns;            /* when a member last released a formation of it */
    int ran;                         /* size of its last complete formation; 0: none is known */
    struct left_out left;            /* of that, or of a formation that is not possible */
    bool wanted;                     /* found by the current list_jobs */
};

/* A job without requests and participants. */
struct ended_job {
    char job[JOB_NAME_MAX];
    int ran; /* as above; 0: unused */
};

struct job_leader {
    bool taken; /* the view says that we lead */
    uint64_t instance, term;
    bool changed;        /* since the last board */
    uint64_t board_ns;   /* of the last board */
    uint64_t next_ns;    /* of the next tick */
    uint64_t sequence;   /* of boards */
    uint64_t formations; /* number of ours */
    int jobs;
    struct led_job job[BOARD_MAX];
    unsigned ended; /* in this term */
    struct ended_job ended_job[JOBS_ENDED_MAX];
    struct told told[VIEW_MEMBERS_MAX];
    struct list runs;
    int run_count;
};

/* ---- The state machine ---- */

struct wanted {
    char job[JOB_NAME_MAX];
    bool told;
};

struct jobs {
    struct jobs_setup setup;
    struct view view; /* size 0: none yet */
    bool leads, quorum, measuring;
    bool changed; /* since the last report */
    uint64_t touched_ns, report_ns;
    uint64_t serials, sequence; /* of requests, of reports */
    struct job_slot slots[JOBS_MAX];
    uint64_t board_sequence; /* of the leader's last board */
    int lines;
    struct board_line line[BOARD_MAX];
    int wanteds; /* jobs on the board with open requests */
    struct wanted wanted[BOARD_MAX];
    struct topology links;
    struct job_leader leader;
    struct group_spec shown; /* the last result of jobs_news */
    union {
        struct report report;
        struct form form;
        struct board board;
    } scratch; /* the message being encoded or decoded */
    uint8_t bytes[MESSAGE_PAYLOAD_MAX];
};

/* jobs.c */
struct job_slot *jobs_slot(struct jobs *jobs, const char *job); /* or NULL */
/* To another node, or directly to this one. */
void jobs_send(struct jobs *jobs, const struct identity *to, uint8_t kind, const void *payload, size_t len,
               uint64_t now_ns);

/* job_leader.c */
void job_leader_fini(struct jobs *jobs);
/* Before the view is replaced by `view`. */
void job_leader_view(struct jobs *jobs, const struct view *view, uint64_t now_ns);
int MUST_CHECK job_leader_report(struct jobs *jobs, int from, const struct report *report, uint64_t now_ns);
void job_leader_tick(struct jobs *jobs, uint64_t now_ns);

/* job_leader.c, for the others */
void job_leader_sooner(uint64_t *deadline_ns, uint64_t at_ns);
struct run *job_leader_add_run(struct jobs *jobs, uint64_t id, const char *job,
                               uint64_t now_ns); /* or NULL */
/* A formation of this leader fulfils the request already. */
bool job_leader_called(const struct jobs *jobs, int member, const struct told_request *request);
const struct told_request *led_request(const struct jobs *jobs, int member,
                                       const char *job);                    /* open, or NULL */
struct run *job_leader_run(const struct job_leader *leader, uint64_t spec); /* or NULL */
/* The size of the job's last formation; 0: it has not ended. */
int job_leader_ended(const struct job_leader *leader, const char *job);
/* The leader still waits for the member's first report. */
bool job_leader_silent(const struct jobs *jobs, int member, uint64_t now_ns);

/* jobs_form.c: forms every job that can start. */
void job_leader_form(struct jobs *jobs, uint64_t now_ns);
/* The view in which the job may still run without the requesting members; NULL: none. */
const struct view *job_leader_elsewhere(const struct jobs *jobs, const char *job,
                                        bool missing[static VIEW_MEMBERS_MAX]);

/* jobs_apart.c: keeps those of `members` that reach each other, in their order; returns their number and the
 * members left out. */
int job_leader_together(const struct jobs *jobs, const char *job, int *members, int count, uint64_t now_ns,
                        struct left_out *left);
bool job_leader_left_out(const struct left_out *left, const struct identity *id, uint64_t now_ns);

/* job_conflict.c: a job runs once. */
void job_leader_end_twins(struct jobs *jobs, uint64_t now_ns);

/* job_text.c: for users. */
void job_name_of(const struct view *view, const struct identity *id, char *text, size_t size);
/* Text of the first difference between two lists of "name=value". */
void job_differ(const char *theirs, const char *ours, char *text, size_t size);
/* Text for a job that may still run elsewhere: the members it waits for. */
void job_elsewhere(const struct view *ran, const bool *missing, const char *job, char *text, size_t size);
/* The board line of a job: what its requests wait for, and the counts. */
void job_waits_for(const struct jobs *jobs, const struct led_job *job, uint64_t now_ns,
                   struct board_line *line);
