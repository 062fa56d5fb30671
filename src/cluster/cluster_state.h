/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of a cluster, shared by the files that drive it. Its lock protects all of it. */
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

/* A thread that waits for a change. */
struct cluster_waiter {
    struct list item;
    struct event event;
};

/* An open request of this node. */
struct cluster_request {
    struct list item;
    char job[JOB_NAME_MAX];
    struct group_spec *formed;  /* the caller's result; NULL: written */
    enum hearth_reason refused; /* HEARTH_REASON_NONE: not refused */
    char text[JOB_TEXT_MAX];    /* why */
};

/* A member that this node failed to connect to. */
struct cluster_unreached {
    struct identity id;
    uint64_t until_ns; /* valid until then; 0: unused */
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
    struct job_store *store; /* thread-safe: used without the lock where it writes to disk */
    struct probes *probes;
    struct control_socket *control;

    uint64_t groups_sent, groups_received; /* bytes of all groups, in total */
    bool gossip_due;
    struct cluster_unreached unreached[JOB_UNREACHED_MAX];

    /* What the state machines were told last. */
    uint64_t told_instance, told_epoch;
    bool told_leads, told_quorum;
    uint64_t sightings_told, links_told;
    uint64_t gossip_ns, look_ns, measure_ns; /* due times */
    uint64_t trust_ns;                       /* next check of the trust list */
    bool trust_told;                         /* logged: it cannot be read */
    uint64_t slept_ns;                       /* total time that the machine was asleep */

    struct event_log events;
    uint64_t events_told; /* place of on_event */
    hearth_event_fn *on_event;
    void *on_event_arg;
    struct list waiters, requests, watches;
    uint64_t links_made, links_lost, links_again; /* in total */
};

/* cluster_text.c: the description of this node. */
int MUST_CHECK cluster_describe_self(struct cluster *cluster, struct sock_addr *listen,
                                     struct peer_info *self, struct error *error);
void cluster_announce(struct cluster *cluster, uint64_t now_ns);
/* Tells all peers if the addresses of this machine have changed. */
void cluster_scan_network(struct cluster *cluster, uint64_t now_ns);

/* paths.c: one round of the thread. */
void cluster_pump(struct cluster *cluster, uint64_t now_ns);
void cluster_flush(struct cluster *cluster); /* sends queued messages */

/* status.c */
void cluster_write_json(struct cluster *cluster, struct text_buf *buf);
void cluster_write_metrics(struct cluster *cluster, struct text_buf *buf);
