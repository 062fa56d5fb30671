/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of the home room that drive it: what a home is made of. Everything here is under its
 * lock. */
#ifndef HOME_INSIDE_H
#define HOME_INSIDE_H

#include "core/list.h"
#include "core/paper.h"
#include "discovery/finder.h"
#include "home/desk.h"
#include "home/fellows.h"
#include "home/home.h"
#include "home/job_store.h"
#include "home/probes.h"
#include "os/thread.h"

#define HOME_EVENTS_MAX 256
#define HOME_TEXT_MAX   200

/* Somebody who sleeps until something has changed. */
struct home_waiter {
    struct list item;
    struct event event;
};

/* A wish of ours that is not granted yet. */
struct home_wish {
    struct list item;
    char job[JOB_NAME_MAX];
    struct formation *formed; /* where to write what was formed; NULL: it was */
    bool refused;
    char text[JOB_TEXT_MAX]; /* why */
};

/* A node that we are joined to. */
struct home_linked {
    struct fellow fellow;
    bool works_with_us; /* it is in a group with us */
    uint64_t late_ns;   /* home_skew */
};

/* A member that we could not be joined with. */
struct home_unreached {
    struct identity id;
    uint64_t until_ns; /* it counts so long; 0: not at all */
};

struct home {
    struct home_setup setup; /* strings are copies on the heap */
    struct heap *heap;
    struct log log;
    struct mutex lock;
    struct thread thread;
    bool closing;
    struct event wake; /* for the thread */

    struct finder *finder;
    struct fellows *fellows;
    struct outbox outbox;
    struct assembly *assembly;
    struct jobs *jobs;
    struct job_store *store; /* thread-safe: used without the lock where a disk may be waited for */
    struct probes *probes;
    struct desk *desk;

    uint64_t groups_sent, groups_received; /* home_moved */
    struct home_linked linked[FELLOWS_MAX];
    int linked_count;
    bool gossip_due;
    struct home_unreached unreached[JOB_UNREACHED_MAX];

    /* What was told to the machines last. */
    uint64_t told_instance, told_epoch;
    bool told_leads, told_quorum;
    uint64_t sightings_told, links_told;
    uint64_t gossip_ns, look_ns, measure_ns; /* when to do it again */
    uint64_t trust_ns;                       /* when the list of who may come is looked at */
    bool trust_told;                         /* that it cannot be read */
    uint64_t slept_ns;                       /* how long the machine has been asleep, ever */

    struct home_event events[HOME_EVENTS_MAX];
    uint64_t event_count; /* ever */
    home_event_fn *on_event;
    void *on_event_arg;
    struct list waiters, wishes, watches;
    uint64_t links_made, links_lost, links_again; /* ever */
};

/* describe.c: what we say of ourselves. */
int MUST_CHECK home_describe_self(struct home *home, struct sock_addr *listen, struct fellow *self,
                                  struct error *error);
void home_announce(struct home *home, uint64_t now_ns);
/* Interfaces come and go: says so to all if they did. */
void home_look_around(struct home *home, uint64_t now_ns);

/* routes.c: what comes goes where it belongs. */
void home_pump(struct home *home, uint64_t now_ns);
void home_flush(struct home *home); /* letters that wait */
/* NULL: we are not joined to it. */
struct home_linked *home_find_linked(struct home *home, const struct identity *id);
void home_tell(struct home *home, const struct home_event *event);

/* status.c */
void home_write_json(struct home *home, struct paper *paper);
void home_write_metrics(struct home *home, struct paper *paper);

#endif
