/* SPDX-License-Identifier: Apache-2.0 */
/* Between jobs.c (what every member does), job_leader.c (what the leader knows), jobs_form.c (what it forms)
 * and job_text.c (what people read). */
#pragma once

#include "core/list.h"
#include "membership/jobs_messages.h"

#define JOBS_REPORT_NS  NS_PER_S          /* a report, a board, at least so often */
#define JOBS_SETTLE_NS  (300 * NS_PER_MS) /* nobody has come or gone for so long */
#define JOBS_RESEND_NS  (250 * NS_PER_MS) /* of a formation that was not answered */
#define JOBS_BOARD_NS   (20 * NS_PER_MS)  /* between two boards, whatever changes */
#define JOBS_SILENT_NS  (2 * NS_PER_S)    /* so long a job waits for the first report of a member */
#define JOBS_MEASURE_NS (2 * NS_PER_S)    /* so long one waits for a map of those who have just met */
#define JOBS_LASTS_NS   (3 * NS_PER_S) /* a formation that is known for so long is not given up for another */
#define JOBS_RUNS_MAX   256            /* formations that the leader knows */
#define JOBS_LEFT_MAX   8
#define JOBS_LEFT_NS    (600 * NS_PER_S) /* so long its group is not asked to take in who was left out */
#define JOBS_ENDED_MAX  16               /* jobs that have ended, likewise; the oldest is forgotten */

/* A job that this member has to do with. */
enum slot_state {
    SLOT_FREE,
    SLOT_WAITING,
    SLOT_REFUSED, /* until that is told */
    SLOT_RUNNING, /* takes part */
    SLOT_OVER     /* took part, and holds it until jobs_end, or the next request */
};
struct job_slot {
    enum slot_state state;
    struct job_request request;
    uint64_t serial, done;
    int unreached;
    struct identity unreached_id[JOB_UNREACHED_MAX];
    struct view *ran;        /* waiting: where the job ran last; NULL: nothing is remembered */
    struct group_spec *spec; /* running, over */
    bool formed_told, over_told;
    bool broken;               /* somebody was lost from it, or we from the others */
    uint64_t left;             /* bit r: rank r says that it leaves the cluster */
    uint64_t lost, lost_told;  /* bit r: rank r of the formation is gone, or has left it */
    struct identity who;       /* why it is over, or refused */
    enum hearth_reason reason; /* refused */
    char text[JOB_TEXT_MAX];
};

/* ---- What the leader keeps ---- */

struct told_request {
    struct job_request request;
    uint64_t serial, done;
    uint64_t since_ns;
    int unreached;
    struct identity unreached_id[JOB_UNREACHED_MAX];
    struct view *ran;           /* where the job ran last, as this member remembers; or NULL */
    enum hearth_reason refused; /* HEARTH_REASON_NONE: not refused */
    char refusal[JOB_TEXT_MAX]; /* why */
};
struct told_part {
    uint64_t spec;
    bool over;
    char job[JOB_NAME_MAX];
    char settings[JOB_SETTINGS_MAX];
};
/* What a member has reported, by index in the view. */
struct told {
    bool heard;        /* in this term */
    uint64_t since_ns; /* in the view, or the term */
    uint64_t sequence;
    int requests, parts;
    struct told_request *request; /* blocks of the heap */
    struct told_part *part;
};

/* A formation, of ours or of a leader before. */
struct run {
    struct list item;
    uint64_t id;
    char job[JOB_NAME_MAX];
    int size;
    struct identity members[VIEW_MEMBERS_MAX];
    uint64_t serial[VIEW_MEMBERS_MAX]; /* of the requests that it fulfils; only if `ours` */
    bool ours;                         /* formed in this term */
    bool complete;                     /* all of its members have been in it: it could begin */
    bool ended;
    bool doomed;         /* another formation of the job counts more */
    struct identity who; /* why it ended */
    char why[JOB_TEXT_MAX];
    uint64_t since_ns, resend_ns;
    size_t message_len;
    uint8_t *message; /* MESSAGE_FORM; NULL: formed by a leader before */
};

/* Who is not in a formation because it could not be joined with one of its members. */
struct left_out {
    uint64_t since_ns;
    int count; /* those beyond are not noted */
    struct identity id[JOBS_LEFT_MAX];
    char text[160]; /* whom, and why; "": nobody */
};

/* A job that somebody requests for or takes part in. */
struct led_job {
    char job[JOB_NAME_MAX];
    bool settled;                    /* the settings are */
    char settings[JOB_SETTINGS_MAX]; /* of those who run it, or of the first that came */
    uint64_t released_ns;            /* when somebody last let go of a formation of it */
    int ran;                         /* members of its last formation that was complete; 0: none is known */
    struct left_out left;            /* of that, or of what cannot be formed */
    bool wanted;                     /* still, in the count at hand */
};

/* A job that nobody has to do with any more. */
struct ended_job {
    char job[JOB_NAME_MAX];
    int ran; /* as above; 0: none is here */
};

struct job_leader {
    bool taken; /* the view says that we lead */
    uint64_t instance, term;
    bool changed;        /* the board is not what was told last */
    uint64_t board_ns;   /* of the last one */
    uint64_t next_ns;    /* when something is due */
    uint64_t sequence;   /* of boards */
    uint64_t formations; /* counts ours */
    int jobs;
    struct led_job job[BOARD_MAX];
    unsigned ended; /* ever, in this term */
    struct ended_job ended_job[JOBS_ENDED_MAX];
    struct told told[VIEW_MEMBERS_MAX];
    struct list runs;
    int run_count;
};

/* ---- The machine ---- */

struct wanted {
    char job[JOB_NAME_MAX];
    bool told;
};

struct jobs {
    struct jobs_setup setup;
    struct view view; /* size 0: none yet */
    bool leads, quorum, measuring;
    bool changed; /* the report is not what was told last */
    uint64_t touched_ns, report_ns;
    uint64_t serials, sequence; /* of requests, of reports */
    struct job_slot slots[JOBS_MAX];
    uint64_t board_sequence; /* of the leader's */
    int lines;
    struct board_line line[BOARD_MAX];
    int wanteds; /* jobs of others, as long as they are on the board */
    struct wanted wanted[BOARD_MAX];
    struct topology links;
    struct job_leader leader;
    struct group_spec shown; /* what jobs_news gave last */
    union {
        struct report report;
        struct form form;
        struct board board;
    } scratch; /* one message at a time, made or read */
    uint8_t bytes[MESSAGE_PAYLOAD_MAX];
};

/* jobs.c */
struct job_slot *jobs_slot(struct jobs *jobs,
                           const char *job); /* NULL: this member has nothing to do with it */
/* To another node, or straight to ourselves. */
void jobs_send(struct jobs *jobs, const struct identity *to, uint8_t kind, const void *payload, size_t len,
               uint64_t now_ns);

/* job_leader.c */
void job_leader_init(struct job_leader *leader);
void job_leader_fini(struct jobs *jobs);
/* Before the view is replaced by `view`. */
void job_leader_view(struct jobs *jobs, const struct view *view, uint64_t now_ns);
int MUST_CHECK job_leader_report(struct jobs *jobs, int from, const struct report *report, uint64_t now_ns);
void job_leader_tick(struct jobs *jobs, uint64_t now_ns);

/* job_leader.c, for the others */
void job_leader_sooner(uint64_t *deadline_ns, uint64_t at_ns);
struct run *job_leader_add_run(struct jobs *jobs, uint64_t id, const char *job,
                               uint64_t now_ns); /* or NULL */
/* A formation of ours fulfils this request already. */
bool job_leader_called(const struct jobs *jobs, int member, const struct told_request *request);
const struct told_request *led_request(const struct jobs *jobs, int member,
                                       const char *job);                    /* open, or NULL */
struct run *job_leader_run(const struct job_leader *leader, uint64_t spec); /* or NULL */
int job_leader_ended(const struct job_leader *leader,
                     const char *job); /* members it ran with; 0: has not ended */
bool job_leader_silent(const struct jobs *jobs, int member,
                       uint64_t now_ns); /* its first report is waited for */

/* jobs_form.c: forms what can be formed. */
void job_leader_form(struct jobs *jobs, uint64_t now_ns);
/* Where the job may still run without those who request for it; NULL: nowhere. */
const struct view *job_leader_elsewhere(const struct jobs *jobs, const char *job,
                                        bool missing[static VIEW_MEMBERS_MAX]);

/* jobs_apart.c: those of `members` that can be joined with each other stay, in their order; gives their
 * number, and who is left out. */
int job_leader_together(const struct jobs *jobs, const char *job, int *members, int count, uint64_t now_ns,
                        struct left_out *left);
bool job_leader_left_out(const struct left_out *left, const struct identity *id, uint64_t now_ns);

/* job_conflict.c: a job runs once. */
void job_leader_end_twins(struct jobs *jobs, uint64_t now_ns);

/* job_text.c: for people. */
void job_name_of(const struct view *view, const struct identity *id, char *text, size_t size);
/* The first "name=value" of theirs that is not in ours. */
void job_differ(const char *theirs, const char *ours, char *text, size_t size);
/* Of a job that may still run elsewhere: who is waited for. */
void job_elsewhere(const struct view *ran, const bool *missing, const char *job, char *text, size_t size);
/* What requests for the job wait for, and the numbers. */
void job_waits_for(const struct jobs *jobs, const struct led_job *job, uint64_t now_ns,
                   struct board_line *line);
