/* SPDX-License-Identifier: Apache-2.0 */
/* A node's part in its home cluster: one thread that finds other nodes, connects to them, agrees with them on
 * a view, watches their health, measures the paths between them and forms groups. All functions may be called
 * by any thread. */
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
    const char *control;   /* path of the unix socket that answers `hearth status`; NULL: none */
    const char *jobs_file; /* record of jobs (cluster/job_store.h); NULL: only in memory */
    uint16_t port;
    uint32_t flags; /* PEER_INFO_ */
    const struct health_preset *health;
    const char *cluster;   /* its name, for users */
    const char *transport; /* of groups, as configured, for users */
    /* Called by the cluster's thread, once a second or with every heartbeat, under no lock: for
     * cluster_take_samples. */
    void (*sample)(void *arg);
    /* Adds members to the JSON text: ', "name": value'. It must not call the cluster. */
    void (*extra)(void *arg, struct text_buf *buf);
    void *arg; /* of both */
    uint64_t connect_timeout_ns;
    uint64_t deadline_ns; /* of opening */
};
int MUST_CHECK cluster_open(const struct cluster_setup *setup, struct cluster **out, struct error *error);
void cluster_close(struct cluster *cluster); /* tells the peers; takes at most a second */

/* How long a call may wait: until the time (clock_real), or until `stop` is set and cluster_wake called. */
struct cluster_patience {
    uint64_t deadline_ns;
    const struct stop *stop; /* or NULL */
};
void cluster_wake(struct cluster *cluster); /* waiting calls check again */
/* Waits until at least `others` other members are in the view. HEARTH_TIMEOUT or HEARTH_CANCELLED: the text
 * names the members and says why sighted nodes are not. */
int MUST_CHECK cluster_wait(struct cluster *cluster, int others, const struct cluster_patience *patience,
                            struct error *error);
/* Requests a job and waits until it is formed. On failure the request is withdrawn, and the text says what it
 * waited for. */
int MUST_CHECK cluster_form(struct cluster *cluster, const struct job_request *request, uint64_t done,
                            const struct cluster_patience *patience, struct group_spec *out,
                            struct error *error);
/* All members are connected and no operation has begun: from now on this machine keeps a record of the
 * job. */
int MUST_CHECK cluster_begun(struct cluster *cluster, const struct group_spec *spec, struct error *error);
/* This node has ended the formation. `finished`: and the job, whose record is deleted unless a participant
 * was lost: then the others may go on with it. */
void cluster_end(struct cluster *cluster, const struct group_spec *spec, bool finished);
/* No connection to this member: for a while, or until it is linked again, formations of the jobs that this
 * node requests have only one of the two. */
void cluster_unreached(struct cluster *cluster, const struct identity *member);
/* `ended` is called when other members end the formation, and again when more of them go: by the cluster's
 * thread, or at once if it has ended already. It must not call the cluster. Bit r of `lost`: rank r sends
 * nothing new. It does not run after cluster_unwatch returns. */
typedef void cluster_ended_fn(void *arg, uint64_t lost, const char *who, const char *text);
struct cluster_watch {
    struct list item; /* the cluster's */
    uint64_t spec;
    cluster_ended_fn *ended;
    void *arg;
};
void cluster_watch(struct cluster *cluster, struct cluster_watch *watch);
void cluster_unwatch(struct cluster *cluster, struct cluster_watch *watch);
/* Measures of a member by the links of groups, since the last sample. Any byte over a link counts like a
 * heartbeat: health.c is the only failure detector. */
struct cluster_sample {
    struct identity peer;
    bool heard;              /* bytes came from it */
    uint64_t bytes, busy_ns; /* sent to it while the line was full, and for how long it was */
    uint64_t late_ns;        /* how late its pieces are, after the first one's, on average */
};
/* `sent`, `received`: bytes of all groups, to and from all members, since the last call. */
void cluster_take_samples(struct cluster *cluster, const struct cluster_sample *samples, int count,
                          uint64_t sent, uint64_t received);

/* The address of the member with the highest measured rate, if several were tried. */
bool cluster_best_addr(struct cluster *cluster, const struct identity *peer, struct sock_addr *addr);

/* The best ring order of members (a group, by rank) by the newest table; `now` is their current order; see
 * topology_rearrange. False: nothing is measured, or one of them is not in the view. */
bool cluster_arrange(struct cluster *cluster, const struct identity *members, int count, const int *now,
                     struct ring_order *out);

/* ---- events ---- */

/* The next event for a reader; false: none. Each reader keeps its place (begins with 0); the last 256 events
 * are kept. */
bool cluster_next_event(struct cluster *cluster, uint64_t *place, struct hearth_event *event);
/* `fn` is called for every event from now on, by the cluster's thread; it must not call the cluster. NULL: no
 * more calls, and none is running after the return. */
void cluster_on_event(struct cluster *cluster, hearth_event_fn *fn, void *arg);
/* Waits for an event after this place. */
void cluster_wait_event(struct cluster *cluster, uint64_t place, const struct cluster_patience *patience);

/* ---- state ---- */

/* The state as JSON: {"view": {...}, "links": [...], "nodes": [...], "jobs": [...], "discovery": {...},
 * "topology": [...]}; docs/man/hearth.1 has the fields. Returns as snprintf. */
int64_t cluster_json(struct cluster *cluster, char *text, size_t size);
int64_t cluster_metrics(struct cluster *cluster, char *text, size_t size); /* lines of Prometheus text */
