/* SPDX-License-Identifier: Apache-2.0 */
/* A node's place in its home cluster: one thread that finds the others, is joined to them, agrees with them
 * who is in, watches their health, measures the ways between them and forms groups. All functions may be
 * called by any thread. */
#pragma once

#include "core/list.h"
#include "core/text_buf.h"
#include "membership/consensus.h"
#include "membership/jobs.h"
#include "os/event.h"
#include "os/sock.h"
#include "os/stop.h"
#include "security/credentials.h"

struct cluster;

struct cluster_setup {
    struct heap *heap; /* lent: it counts memory for the whole node */
    struct log log;
    struct credentials *credentials;               /* lent; its trust list is watched by the owner */
    const char *helper, *seeds, *bind, *advertise; /* as in discovery/finder.h and os/host.h */
    const char *control; /* path of the unix socket that answers `hearth status`; NULL: none */
    const char
        *jobs_file; /* where jobs are remembered (cluster/job_store.h); NULL: not beyond this process */
    uint16_t port;
    uint32_t flags; /* PEER_INFO_ */
    const struct health_preset *health;
    const char *cluster;   /* its name, for people */
    const char *transport; /* of groups, as configured, for people */
    /* Called by the cluster's thread, once a second or with every heartbeat, under no lock: for
     * cluster_take_samples. */
    void (*sample)(void *arg);
    /* Members of the JSON text that others know of: ', "name": value'. Nothing of the cluster may be called
     * from it. */
    void (*extra)(void *arg, struct text_buf *buf);
    void *arg; /* of both */
    uint64_t connect_timeout_ns;
    uint64_t deadline_ns; /* of opening */
};
int MUST_CHECK cluster_open(const struct cluster_setup *setup, struct cluster **out, struct error *error);
void cluster_close(struct cluster *cluster); /* says goodbye; bounded by a second */

/* How long a call may wait: until the time (clock_real) or, after cluster_wake, until it is asked to stop. */
struct cluster_patience {
    uint64_t deadline_ns;
    const struct stop *stop; /* NULL: nobody asks */
};
void cluster_wake(struct cluster *cluster); /* all who wait look again */
/* Until at least `others` members beside us are in our view: HEARTH_TIMEOUT or HEARTH_CANCELLED with who is
 * there and why sighted nodes are not. */
int MUST_CHECK cluster_wait(struct cluster *cluster, int others, const struct cluster_patience *patience,
                            struct error *error);
/* Requests for a job and waits until it is formed. The text of a failure says what it waited for; the request
 * is withdrawn then. */
int MUST_CHECK cluster_form(struct cluster *cluster, const struct job_request *request, uint64_t done,
                            const struct cluster_patience *patience, struct group_spec *out,
                            struct error *error);
/* All are joined, and nobody has made a step: from now on this machine remembers the job. */
int MUST_CHECK cluster_begun(struct cluster *cluster, const struct group_spec *spec, struct error *error);
/* Our part in it is over. `finished`: and in the job, which is forgotten unless somebody was lost from the
 * formation: then the others may go on with it. */
void cluster_end(struct cluster *cluster, const struct group_spec *spec, bool finished);
/* We could not be joined with this member: for a while, or until it is linked with us anew, the jobs that we
 * request for leave out one of us. */
void cluster_unreached(struct cluster *cluster, const struct identity *member);
/* `ended` is called when the formation ends by others, and again when more of them go: from the cluster's
 * thread, or at once if it has ended already; nothing of the cluster may be called from it. Bit r of `lost`:
 * nothing new will come from rank r. When cluster_unwatch returns it is not being called. */
typedef void cluster_ended_fn(void *arg, uint64_t lost, const char *who, const char *text);
struct cluster_watch {
    struct list item; /* the cluster's */
    uint64_t spec;
    cluster_ended_fn *ended;
    void *arg;
};
void cluster_watch(struct cluster *cluster, struct cluster_watch *watch);
void cluster_unwatch(struct cluster *cluster, struct cluster_watch *watch);
/* What the links of our groups tell of a member, since the last sample. A byte that came over a link is a
 * sign of life like a heartbeat: health.c is the one failure detector of the pair. */
struct cluster_sample {
    struct identity peer;
    bool heard;              /* something came from it */
    uint64_t bytes, busy_ns; /* sent to it while the line was full, and for how long it was */
    uint64_t late_ns;        /* how late its pieces come, after the first one's, on average */
};
/* `sent`, `received`: bytes of all groups, to and from all members, since the last call. */
void cluster_take_samples(struct cluster *cluster, const struct cluster_sample *samples, int count,
                          uint64_t sent, uint64_t received);

/* The address by which most was measured to leave for that member, if it has several that were tried. */
bool cluster_best_addr(struct cluster *cluster, const struct identity *peer, struct sock_addr *addr);

/* How members of the cluster (a group of some job, by rank) stand best to each other, by the newest table,
 * where they go round in `now` at present; see topology_rearrange. False: nothing is measured of them, or
 * one of them is not in the view. */
bool cluster_arrange(struct cluster *cluster, const struct identity *members, int count, const int *now,
                     struct ring_order *out);

/* ---- news ---- */

/* The next one that this reader has not seen; false: none. Readers have a place of their own (begin with 0);
 * the last 256 events are kept. */
bool cluster_next_event(struct cluster *cluster, uint64_t *place, struct hearth_event *event);
/* For every event from now on, from the cluster's thread; nothing of the cluster may be called from it. NULL:
 * not any more; when this returns it is not being called. */
void cluster_on_event(struct cluster *cluster, hearth_event_fn *fn, void *arg);
/* Until there is an event behind this place. */
void cluster_wait_event(struct cluster *cluster, uint64_t place, const struct cluster_patience *patience);

/* ---- what is so ---- */

/* All of it as JSON: {"view": {...}, "links": [...], "nodes": [...], "jobs": [...], "discovery": {...},
 * "topology": [...]}; docs/man/hearth.1 has the fields. As snprintf. */
int64_t cluster_json(struct cluster *cluster, char *text, size_t size);
int64_t cluster_metrics(struct cluster *cluster, char *text, size_t size); /* lines of Prometheus text */
