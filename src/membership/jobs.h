/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: members that asked for the same job become a formation, in an order, all of them the same. A
 * machine beside the consensus: no I/O, no clock.
 *
 *  - Every member tells the leader what it requests and what it takes part in (REPORT), when that changes and
 *    once a second: a new leader knows all after the first reports.
 *  - The leader forms a job when at least `min` (the largest that any of them gave) request for it, nobody in
 *    the view still holds an earlier formation of it, and nobody has come or gone for the settle time
 *    (300 ms) or all members but guests have come. It waits for the first report of everybody in the view
 *    (2 s at most). It sends FORM to each until each reports to take part.
 *  - A formation ends for a member when somebody of it is not in the view any more, when somebody of it
 *    reports that it has ended, or when the member itself ends it. All others end it then, too. A member
 * holds a formation that is over until jobs_end or its next jobs_request for the job: survivors wait for each
 * other.
 *  - Who requests for a job that runs waits until it forms again; its members are told. Of two formations of
 *    one job, which may come with instances that become one, the younger one ends; if neither has lasted,
 *    both.
 *  - A job that ran in another instance, as one of those who request for it remembers, is formed only when
 * too few can still run it there (membership/job_record.h).
 *  - Of two that say they cannot be joined with each other a formation has only one: as few as can be are
 *    left out, and all are told who and why.
 *  - Requests with other settings than the first one's are refused; the text names what differs. */
#pragma once

#include "core/log.h"
#include "membership/job_record.h"
#include "membership/outbox.h"
#include "membership/topology.h"

#define JOB_SETTINGS_MAX  256 /* likewise */
#define JOB_PLACE_MAX     384 /* bytes: how the others reach it (a peer as in docs/wire.md) */
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
    int min;                         /* members, ourselves included; 1..VIEW_MEMBERS_MAX */
    char settings[JOB_SETTINGS_MAX]; /* "name=value name=value": what all must have in common */
    uint8_t place[JOB_PLACE_MAX];
    size_t place_len;
};

/* What was formed. */
struct group_spec {
    uint64_t id; /* never 0, never twice */
    char job[JOB_NAME_MAX];
    int rank, size;
    struct identity members[VIEW_MEMBERS_MAX]; /* by rank */
    uint8_t place[VIEW_MEMBERS_MAX][JOB_PLACE_MAX];
    uint16_t place_len[VIEW_MEMBERS_MAX];
    uint64_t
        done[VIEW_MEMBERS_MAX]; /* operations that each had completed in the formation before; 0 if none */
    uint8_t site[VIEW_MEMBERS_MAX];
    uint8_t sites;
    uint32_t inside_mbit_x10, across_mbit_x10, inside_us, across_us; /* as in struct ring_order */
    uint64_t instance, epoch, term;                                  /* of the view it was formed in */
};

/* What its members were arranged as: the order is that of ranks. */
void group_spec_ring_order(const struct group_spec *spec, struct ring_order *out);

/* ---- what happens ---- */

/* The view as it is now, whether we lead it, and whether a quorum is heard (without one nothing is formed).
 */
void jobs_view(struct jobs *jobs, const struct view *view, bool leads, bool quorum, uint64_t now_ns);
/* Too few of the view are heard: what runs on this side may be formed on the other, too, and ends here. */
void jobs_stranded(struct jobs *jobs, uint64_t now_ns);
/* For the order, if we lead; copied. One of another view is not taken; the last one follows the view. */
void jobs_links(struct jobs *jobs, const struct topology *links);
/* Leader: it is not known yet who is near to whom, but soon will be. A formation waits for that, two seconds
 * at most, where it matters: with three hosts or more. */
void jobs_measuring(struct jobs *jobs, bool measuring);
/* HEARTH_INVALID: we request for it already, or take part in one that is not over. HEARTH_LIMIT. `done`:
 * completed operations of the formation of this job that we were in before. Messages go out with the next
 * jobs_tick, which is due at once: a jobs_end just before is told together with this. */
int MUST_CHECK jobs_request(struct jobs *jobs, const struct job_request *request, uint64_t done,
                            uint64_t now_ns, struct error *error);
/* Where a job that we request for ran last, as far as this member remembers (membership/job_record.h);
 * copied. NULL: it remembers nothing. HEARTH_NO_MEMORY: as before. */
int MUST_CHECK jobs_remember(struct jobs *jobs, const char *job, const struct view *ran, uint64_t now_ns);
/* Members that could not be joined with us lately, JOB_UNREACHED_MAX at most: a formation of the job that we
 * request for shall not have both. */
void jobs_unreached(struct jobs *jobs, const char *job, const struct identity *ids, int count,
                    uint64_t now_ns);
/* Also ends a formation of the job that jobs_news has not shown yet. */
void jobs_withdraw(struct jobs *jobs, const char *job, uint64_t now_ns);
void jobs_end(struct jobs *jobs, uint64_t spec, uint64_t now_ns); /* our part in it is over */
/* It says that it leaves the cluster on purpose. */
void jobs_left(struct jobs *jobs, const struct identity *who);
int MUST_CHECK jobs_input(struct jobs *jobs, const struct received *message, uint64_t now_ns,
                          const char **what);
void jobs_tick(struct jobs *jobs, uint64_t now_ns);
uint64_t jobs_deadline(const struct jobs *jobs);

/* ---- what is so ---- */

/* We take part in a formation that runs; or, at the leader: somebody does, or is called to one. */
bool jobs_running(const struct jobs *jobs);
/* Leader: likewise, and it has lasted for a while. Who has just begun gives way to others that work. */
bool jobs_busy(const struct jobs *jobs, uint64_t now_ns);
bool jobs_takes_part(struct jobs *jobs, uint64_t spec); /* we do, and it has not ended */
bool jobs_runs(struct jobs *jobs, const char *job);     /* likewise, in any formation of it */
/* We hold it, and nobody was lost from it: who is not in it any more has left it on purpose. */
bool jobs_whole(struct jobs *jobs, uint64_t spec);
uint64_t jobs_lost(struct jobs *jobs, uint64_t spec); /* as in news, all of them */
/* Those who take part in any, or are called to; their number. Who does not lead knows only of itself. */
int jobs_taking_part(const struct jobs *jobs, struct identity members[static VIEW_MEMBERS_MAX]);
/* What a request waits for, one sentence with names: "2 of 3 are there: anna, bert", "it runs with 4 members
 * and takes new ones when it forms again", "waiting for nodes that still hold the old group: anna". The same
 * as long as nothing has changed. "" if it runs. */
void jobs_why_not(struct jobs *jobs, const char *job, char *text, size_t size);

/* A line of the board: what the leader told all. */
struct job_line {
    char job[JOB_NAME_MAX];
    int min, waiting, running; /* members */
};
int jobs_board(const struct jobs *jobs, struct job_line lines[BOARD_MAX]);

enum job_news_kind {
    JOB_FORMED,  /* `formation`, valid until the next jobs_news */
    JOB_ENDED,   /* formation `id` is over; `who` is why, `text`; again when others of it go later */
    JOB_REFUSED, /* the request for `job` was refused: `text` */
    JOB_WANTED   /* somebody requests for a job that we do not request for, or that runs with us: once, and
                    again   only after nobody did for a while */
};
#define JOB_TEXT_MAX 256
struct job_news {
    enum job_news_kind kind;
    char job[JOB_NAME_MAX];
    const struct group_spec *spec;
    uint64_t id;
    struct identity who;
    uint64_t lost;             /* JOB_ENDED: bit r: rank r is gone or has left it, and that is new */
    enum hearth_reason reason; /* JOB_REFUSED */
    char text[JOB_TEXT_MAX];
};
bool jobs_news(struct jobs *jobs, struct job_news *news); /* false: none */
