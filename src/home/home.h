/* SPDX-License-Identifier: Apache-2.0 */
/* A node's place in its home cluster: one thread that finds the others, is joined to them, agrees with them
 * who is in, watches their health, measures the ways between them and forms groups. All functions may be
 * called by any thread. */
#ifndef HOME_HOME_H
#define HOME_HOME_H

#include "membership/assembly.h"
#include "membership/jobs.h"
#include "os/event.h"
#include "os/sock.h"
#include "security/credentials.h"

struct home;

struct home_setup {
    struct heap *heap; /* lent: it counts memory for the whole node */
    struct log log;
    struct credentials *credentials;               /* lent; its trust list is watched by the owner */
    const char *helper, *seeds, *bind, *advertise; /* as in discovery/finder.h and os/host.h */
    const char *desk; /* path of the unix socket that answers `hearth status`; NULL: none */
    uint16_t port;
    uint32_t flags; /* FELLOW_ */
    const struct health_preset *health;
    uint64_t connect_timeout_ns;
    uint64_t deadline_ns; /* of opening */
};
int MUST_CHECK home_open(const struct home_setup *setup, struct home **out, struct error *error);
void home_close(struct home *home); /* says goodbye; bounded by a second */

/* Until at least `others` members beside us are in our census, or the time (clock_real): HEARTH_TIMEOUT with
 * who is there and why sighted nodes are not. */
int MUST_CHECK home_wait(struct home *home, int others, uint64_t deadline_ns, struct error *error);
/* Wishes for a job and waits until it is formed. The text of a failure says what it waited for. */
int MUST_CHECK home_form(struct home *home, const struct job_wish *wish, uint64_t done, uint64_t deadline_ns,
                         struct formation *out, struct error *error);
void home_end(struct home *home, uint64_t formation); /* our part in it is over */
/* Calls `ended` (from the home's thread, nothing of the home may be called from it) when the formation ends
 * by others. NULL: not any more; when this returns it is not being called. At once, if it has ended already.
 */
typedef void home_ended_fn(void *arg, const char *who, const char *text);
void home_watch(struct home *home, uint64_t formation, home_ended_fn *ended, void *arg);
/* Operations of a formation moved so many bytes to that member in that time, with the line full; and it
 * lives. */
void home_traffic(struct home *home, const struct identity *peer, uint64_t bytes, uint64_t time_ns);
/* How late a member's pieces came, compared with the first that came, on average over the last operations. */
void home_skew(struct home *home, const struct identity *peer, uint64_t late_ns);
void home_drop(struct home *home, const struct identity *peer, const char *why); /* it is revoked */
void home_set_flags(struct home *home, uint32_t flags);

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
int home_event_fd(const struct home *home); /* readable when there may be news; do not read it */
void home_event_seen(struct home *home);    /* not readable any more, until there are more */

/* ---- what is so ---- */

/* All of it as JSON: {"view": {...}, "links": [...], "nodes": [...], "jobs": [...], "discovery": {...},
 * "topology":
 * [...]}; docs/man/hearth.1 has the fields. As snprintf. */
int64_t home_json(struct home *home, char *text, size_t size);
int64_t home_metrics(struct home *home, char *text, size_t size); /* lines of Prometheus text */
int home_members(struct home *home, struct census *out);          /* a copy; its size */

#endif
