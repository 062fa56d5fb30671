/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of the cluster room that drive it: what a cluster is made of. Everything here is under
 * its lock. */
#pragma once

#include "cluster/cluster.h"
#include "cluster/control_socket.h"
#include "cluster/job_store.h"
#include "cluster/peer_set.h"
#include "cluster/probes.h"
#include "core/list.h"
#include "core/text_buf.h"
#include "discovery/finder.h"
#include "os/thread.h"

#define CLUSTER_TEXT_MAX 200

/* Somebody who sleeps until something has changed. */
struct cluster_waiter {
    struct list item;
    struct event event;
};

/* A request of ours that is not granted yet. */
struct cluster_request {
    struct list item;
    char job[JOB_NAME_MAX];
    struct group_spec *formed;  /* where to write what was formed; NULL: it was */
    enum hearth_reason refused; /* HEARTH_REASON_NONE: not refused */
    char text[JOB_TEXT_MAX];    /* why */
};

/* A member that we could not be joined with. */
struct cluster_unreached {
    struct identity id;
    uint64_t until_ns; /* it counts so long; 0: not at all */
};

struct cluster {
    struct cluster_setup setup; /* strings are copies on the heap */
    struct heap *heap;
    struct log log;
    struct mutex lock;
    struct thread thread;
    bool closing;
    struct event wake; /* for the thread */

    struct finder *finder;
    struct peer_set *peer_set;
    struct outbox outbox;
    struct consensus *consensus;
    struct jobs *jobs;
    struct job_store *store; /* thread-safe: used without the lock where a disk may be waited for */
    struct probes *probes;
    struct control_socket *control;

    uint64_t groups_sent, groups_received; /* bytes of all groups, ever */
    bool gossip_due;
    struct cluster_unreached unreached[JOB_UNREACHED_MAX];

    /* What was told to the machines last. */
    uint64_t told_instance, told_epoch;
    bool told_leads, told_quorum;
    uint64_t sightings_told, links_told;
    uint64_t gossip_ns, look_ns, measure_ns; /* when to do it again */
    uint64_t trust_ns;                       /* when the list of who may come is looked at */
    bool trust_told;                         /* that it cannot be read */
    uint64_t slept_ns;                       /* how long the machine has been asleep, ever */

    struct event_log events;
    uint64_t events_told; /* place of on_event */
    hearth_event_fn *on_event;
    void *on_event_arg;
    struct list waiters, requests, watches;
    uint64_t links_made, links_lost, links_again; /* ever */
};

/* cluster_text.c: what we say of ourselves. */
int MUST_CHECK cluster_describe_self(struct cluster *cluster, struct sock_addr *listen,
                                     struct peer_info *self, struct error *error);
void cluster_announce(struct cluster *cluster, uint64_t now_ns);
/* Interfaces come and go: says so to all if they did. */
void cluster_scan_network(struct cluster *cluster, uint64_t now_ns);

/* paths.c: what comes goes where it belongs. */
void cluster_pump(struct cluster *cluster, uint64_t now_ns);
void cluster_flush(struct cluster *cluster); /* messages that wait */

/* status.c */
void cluster_write_json(struct cluster *cluster, struct text_buf *buf);
void cluster_write_metrics(struct cluster *cluster, struct text_buf *buf);
