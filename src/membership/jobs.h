/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: members that request the same job become a formation with one agreed order. A state machine beside
 * the consensus: no I/O, no clock.
 *
 *  - Every member reports its requests and its formations to the leader (REPORT), on a change and once a
 *    second: a new leader knows all after the first reports.
 *  - The leader forms a job when at least `min` members request it (the largest `min` counts), no member
 *    holds an earlier formation of it, and either the requests have not changed for the settle time (300 ms)
 *    or all members but guests have asked. It waits up to 2 s for the first report of each member. It sends
 *    FORM to each participant until that one reports the formation.
 *  - A formation ends for a member when a participant leaves the view, when one reports that it has ended, or
 *    when the member itself ends it. Then all others end it, too. A member holds an ended formation until
 *    jobs_end or its next jobs_request for the job: survivors wait for each other.
 *  - A request for a running job waits until the job forms again; its members are told. Of two formations of
 *    one job, as merged instances may have, the younger one ends; if neither has lasted, both end.
 *  - A job that ran in another instance, by the record of a requesting member, is formed only when too few
 *    can still run it there (membership/job_record.h).
 *  - Of two members that report no connection to each other a formation has only one: as few as possible are
 *    left out, and all are told which and why.
 *  - Requests with other settings than the first one's are refused; the text names the difference. */
#pragma once

#include "core/log.h"
#include "membership/job_record.h"
#include "membership/outbox.h"
#include "membership/topology.h"

#define JOB_SETTINGS_MAX  256 /* with the final 0 */
#define JOB_PLACE_MAX     384 /* bytes: how others reach the member (a peer as in docs/wire.md) */
#define JOB_UNREACHED_MAX 8   /* members that a request names as not reached */
#define JOBS_MAX          16  /* requests and formations of one member */
#define BOARD_MAX         64  /* jobs of an instance that the leader knows */

struct jobs;

struct jobs_setup {
    struct heap *heap;
    struct log log;
    struct outbox *outbox;
    struct identity self;
    uint64_t seed; /* numbers of formations */
    uint64_t now_ns;
};
int MUST_CHECK jobs_open(const struct jobs_setup *setup, struct jobs **out);
void jobs_close(struct jobs *jobs);

struct job_request {
    char job[JOB_NAME_MAX];
    int min;                         /* members, with this one; 1..VIEW_MEMBERS_MAX */
    char settings[JOB_SETTINGS_MAX]; /* "name=value name=value": must be equal for all */
    uint8_t place[JOB_PLACE_MAX];
    size_t place_len;
};

/* A formation. */
struct group_spec {
    uint64_t id; /* unique, never 0 */
    char job[JOB_NAME_MAX];
    int rank, size;
    struct identity members[VIEW_MEMBERS_MAX]; /* by rank */
    uint8_t place[VIEW_MEMBERS_MAX][JOB_PLACE_MAX];
    uint16_t place_len[VIEW_MEMBERS_MAX];
    uint64_t done[VIEW_MEMBERS_MAX]; /* operations completed in the formation before; 0 if none */
    uint8_t site[VIEW_MEMBERS_MAX];
    uint8_t sites;
    uint32_t inside_mbit_x10, across_mbit_x10, inside_us, across_us; /* as in struct ring_order */
    uint64_t instance, epoch, term;                                  /* of the view it was formed in */
};

/* The ring order of its members: that of ranks. */
void group_spec_ring_order(const struct group_spec *spec, struct ring_order *out);

/* ---- input ---- */

/* The current view, whether this node leads it, and whether it hears a quorum (else nothing is formed). */
void jobs_view(struct jobs *jobs, const struct view *view, bool leads, bool quorum, uint64_t now_ns);
/* No quorum: the other side may form what runs here, so it ends here. */
void jobs_stranded(struct jobs *jobs, uint64_t now_ns);
/* The leader's table for ring orders; copied. A table of another view is ignored; the last one follows the
 * view. */
void jobs_links(struct jobs *jobs, const struct topology *links);
/* Leader: the paths are being measured. A formation with three hosts or more waits for that, up to 2 s. */
void jobs_measuring(struct jobs *jobs, bool measuring);
/* HEARTH_INVALID: this node requests the job already, or takes part in it. HEARTH_LIMIT. `done`: completed
 * operations of its previous formation of the job. The next jobs_tick, due at once, sends the request
 * together with a preceding jobs_end. */
int MUST_CHECK jobs_request(struct jobs *jobs, const struct job_request *request, uint64_t done,
                            uint64_t now_ns, struct error *error);
/* Where a requested job ran last, by this member's record (membership/job_record.h); copied. NULL: no record.
 * HEARTH_NO_MEMORY: unchanged. */
int MUST_CHECK jobs_remember(struct jobs *jobs, const char *job, const struct view *ran, uint64_t now_ns);
/* Members that this node failed to connect to, JOB_UNREACHED_MAX at most: a formation of the job must not
 * have both. */
void jobs_unreached(struct jobs *jobs, const char *job, const struct identity *ids, int count,
                    uint64_t now_ns);
/* Also ends a formation of the job that jobs_news has not reported yet. */
void jobs_withdraw(struct jobs *jobs, const char *job, uint64_t now_ns);
void jobs_end(struct jobs *jobs, uint64_t spec, uint64_t now_ns); /* this node has ended it */
/* The member announced that it leaves the cluster. */
void jobs_left(struct jobs *jobs, const struct identity *member);
int MUST_CHECK jobs_input(struct jobs *jobs, const struct received *message, uint64_t now_ns,
                          const char **what);
void jobs_tick(struct jobs *jobs, uint64_t now_ns);
uint64_t jobs_deadline(const struct jobs *jobs);

/* ---- state ---- */

/* This node takes part in a running formation; at the leader: any member does, or is called to one. */
bool jobs_running(const struct jobs *jobs);
/* Leader: likewise, and it has lasted for a while. A new formation gives way to a lasting one. */
bool jobs_busy(const struct jobs *jobs, uint64_t now_ns);
bool jobs_takes_part(struct jobs *jobs, uint64_t spec); /* and it has not ended */
bool jobs_runs(struct jobs *jobs, const char *job);     /* likewise, in any formation of it */
/* This node holds it, and no participant was lost: all that are gone left on purpose. */
bool jobs_whole(struct jobs *jobs, uint64_t spec);
uint64_t jobs_lost(struct jobs *jobs, uint64_t spec); /* as in news, in total */
/* The members that take part in any formation, or are called to one; returns their number. A node that does
 * not lead knows only of itself. */
int jobs_taking_part(const struct jobs *jobs, struct identity members[static VIEW_MEMBERS_MAX]);
/* What a request waits for, one sentence with names: "2 of 3 are there: anna, bert", "waiting for nodes that
 * still hold the old group: anna". The same text until something changes. "" if it runs. */
void jobs_why_not(struct jobs *jobs, const char *job, char *text, size_t size);

/* A line of the leader's board. */
struct job_line {
    char job[JOB_NAME_MAX];
    int min, waiting, running; /* members */
};
int jobs_board(const struct jobs *jobs, struct job_line lines[BOARD_MAX]);

enum job_news_kind {
    JOB_FORMED,  /* `spec`, valid until the next jobs_news */
    JOB_ENDED,   /* formation `id` is over because of `who`: `text`; again when more participants go */
    JOB_REFUSED, /* the request for `job` was refused: `text` */
    JOB_WANTED   /* other members request a job that runs here or is not requested here: once per demand */
};
#define JOB_TEXT_MAX 256
struct job_news {
    enum job_news_kind kind;
    char job[JOB_NAME_MAX];
    const struct group_spec *spec;
    uint64_t id;
    struct identity who;
    uint64_t lost;             /* JOB_ENDED: bit r: rank r is newly gone or has left it */
    enum hearth_reason reason; /* JOB_REFUSED */
    char text[JOB_TEXT_MAX];
};
bool jobs_news(struct jobs *jobs, struct job_news *news); /* false: none */
