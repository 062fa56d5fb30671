/* SPDX-License-Identifier: Apache-2.0 */
/* A node's place in its home cluster: one thread that finds the others, is joined to them, agrees with them
 * who is in, watches their health, measures the ways between them and forms groups. All functions may be
 * called by any thread. */
#ifndef HOME_HOME_H
#define HOME_HOME_H

#include "core/list.h"
#include "core/paper.h"
#include "membership/assembly.h"
#include "membership/jobs.h"
#include "os/event.h"
#include "os/sock.h"
#include "os/stop.h"
#include "security/credentials.h"

struct home;

struct home_setup {
    struct heap *heap; /* lent: it counts memory for the whole node */
    struct log log;
    struct credentials *credentials;               /* lent; its trust list is watched by the owner */
    const char *helper, *seeds, *bind, *advertise; /* as in discovery/finder.h and os/host.h */
    const char *desk;      /* path of the unix socket that answers `hearth status`; NULL: none */
    const char *jobs_file; /* where jobs are remembered (home/job_store.h); NULL: not beyond this process */
    uint16_t port;
    uint32_t flags; /* FELLOW_ */
    const struct health_preset *health;
    const char *cluster;   /* its name, for people */
    const char *transport; /* of groups, as configured, for people */
    /* Called by the home's thread, once a second and under no lock: for home_traffic and the like. */
    void (*sample)(void *arg);
    /* Members of the JSON text that others know of: ', "name": value'. Nothing of the home may be called from
     * it. */
    void (*extra)(void *arg, struct paper *paper);
    void *arg; /* of both */
    uint64_t connect_timeout_ns;
    uint64_t deadline_ns; /* of opening */
};
int MUST_CHECK home_open(const struct home_setup *setup, struct home **out, struct error *error);
void home_close(struct home *home); /* says goodbye; bounded by a second */

/* How long a call may wait: until the time (clock_real) or, after home_wake, until it is asked to stop. */
struct home_patience {
    uint64_t deadline_ns;
    const struct stop *stop; /* NULL: nobody asks */
};
void home_wake(struct home *home); /* all who wait look again */
/* Until at least `others` members beside us are in our census: HEARTH_TIMEOUT or HEARTH_CANCELLED with who is
 * there and why sighted nodes are not. */
int MUST_CHECK home_wait(struct home *home, int others, const struct home_patience *patience,
                         struct error *error);
/* Wishes for a job and waits until it is formed. The text of a failure says what it waited for; the wish is
 * withdrawn then. */
int MUST_CHECK home_form(struct home *home, const struct job_wish *wish, uint64_t done,
                         const struct home_patience *patience, struct formation *out, struct error *error);
/* All are joined, and nobody has made a step: from now on this machine remembers the job. */
int MUST_CHECK home_begun(struct home *home, const struct formation *formation, struct error *error);
/* Our part in it is over. `finished`: and in the job, which is forgotten unless somebody was lost from the
 * formation: then the others may go on with it. */
void home_end(struct home *home, const struct formation *formation, bool finished);
/* We could not be joined with this member: for a while, or until it is linked with us anew, the jobs that we
 * wish for leave out one of us. */
void home_unreached(struct home *home, const struct identity *member);
/* `ended` is called when the formation ends by others, and again when more of them go: from the home's
 * thread, or at once if it has ended already; nothing of the home may be called from it. Bit r of `lost`:
 * nothing new will come from rank r. When home_unwatch returns it is not being called. */
typedef void home_ended_fn(void *arg, uint64_t lost, const char *who, const char *text);
struct home_watch {
    struct list item; /* the home's */
    uint64_t formation;
    home_ended_fn *ended;
    void *arg;
};
void home_watch(struct home *home, struct home_watch *watch);
void home_unwatch(struct home *home, struct home_watch *watch);
/* Operations of a formation moved so many bytes to that member in that time, with the line full; and it
 * lives. */
void home_traffic(struct home *home, const struct identity *peer, uint64_t bytes, uint64_t time_ns);
/* Groups have moved so many bytes more, to and from all of their members. */
void home_moved(struct home *home, uint64_t sent, uint64_t received);
/* How late a member's pieces came, compared with the first that came, on average over the last operations. */
void home_skew(struct home *home, const struct identity *peer, uint64_t late_ns);

/* We are in no group with that member any more. */
void home_apart(struct home *home, const struct identity *peer);

/* The address by which most was measured to leave for that member, if it has several that were tried. */
bool home_best_addr(struct home *home, const struct identity *peer, struct sock_addr *addr);

/* How members of the cluster (a group of some job, by rank) stand best to each other, by the newest table,
 * where they go round in `now` at present; see topology_rearrange. False: nothing is measured of them, or
 * one of them is not in the census. */
bool home_arrange(struct home *home, const struct identity *members, int count, const int *now,
                  struct arrangement *out);

/* ---- news ---- */

enum home_event_kind {
    HOME_MEMBER_JOINED,
    HOME_MEMBER_LEFT,
    HOME_MEMBER_HEALTH,
    HOME_LEADER_CHANGED,
    HOME_VIEW_CHANGED,
    HOME_QUORUM_LOST,
    HOME_QUORUM_BACK,
    HOME_JOB_WANTED,
    HOME_TROUBLE
};
struct home_event {
    enum home_event_kind kind;
    struct identity who;
    char name[FELLOW_NAME_MAX];
    enum health_state health;
    uint64_t epoch, term;
    int size; /* of the census */
    char text[ASSEMBLY_TEXT_MAX];
};
/* The next one that this reader has not seen; false: none. Readers have a place of their own (begin with 0);
 * the last 256 events are kept. */
bool home_next_event(struct home *home, uint64_t *place, struct home_event *event);
/* For every event from now on, from the home's thread; nothing of the home may be called from it. NULL: not
 * any more; when this returns it is not being called. */
typedef void home_event_fn(void *arg, const struct home_event *event);
void home_on_event(struct home *home, home_event_fn *fn, void *arg);
/* Until there is an event behind this place. */
void home_wait_event(struct home *home, uint64_t place, const struct home_patience *patience);

/* ---- what is so ---- */

/* All of it as JSON: {"view": {...}, "links": [...], "nodes": [...], "jobs": [...], "discovery": {...},
 * "topology": [...]}; docs/man/hearth.1 has the fields. As snprintf. */
int64_t home_json(struct home *home, char *text, size_t size);
int64_t home_metrics(struct home *home, char *text, size_t size); /* lines of Prometheus text */

#endif
