/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a node's home cluster, and calls into it.
 *
 * There is one lock. The thread holds it while it works and not while it sleeps; a caller takes it, changes
 * state, and wakes the thread. Each waiting call has its own event, which is signalled after each round. */
#include "cluster/cluster.h"

#include <stdio.h>
#include <string.h>

#include "cluster/cluster_state.h"
#include "os/clock.h"
#include "os/random.h"

#define PORT_TRIES 64
#define GOODBYE_NS (300 * NS_PER_MS) /* to send the last messages */
#define SAMPLE_NS  NS_PER_S          /* at most: link traffic must count as often as heartbeats */
#define CLUSTER_WAITS                                                                                        \
    (1 + FINDER_WAITS_MAX + PEER_SET_WAITS_MAX + CONTROL_SOCKET_WAITS_MAX + PROBES_WAITS_MAX)

/* ---- the thread ---- */

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Sleeps until input arrives or a deadline. Releases the lock meanwhile. */
static void cluster_sleep(struct cluster *cluster, struct sock_wait *items, uint64_t now)
{
    uint64_t deadline = sooner(cluster->gossip_ns, sooner(cluster->look_ns, cluster->measure_ns));
    size_t count = 1;

    items[0] = (struct sock_wait){.fd = cluster->wake.read_fd, .want_recv = true};
    count += finder_waits(cluster->finder, items + count, CLUSTER_WAITS - count, &deadline);
    count += peer_set_waits(cluster->peer_set, items + count, CLUSTER_WAITS - count, &deadline);
    count += probes_waits(cluster->probes, items + count, CLUSTER_WAITS - count, &deadline);
    if (cluster->control)
        count += control_socket_waits(cluster->control, items + count, CLUSTER_WAITS - count, &deadline);
    deadline = sooner(deadline, consensus_deadline(cluster->consensus));
    deadline = sooner(deadline, jobs_deadline(cluster->jobs));
    mutex_unlock(&cluster->lock);
    if (deadline > now)
        sock_wait(items, count, deadline);
    mutex_lock(&cluster->lock);
    if (items[0].ready)
        event_clear(&cluster->wake);
}

static void wake_waiters(struct cluster *cluster)
{
    struct list *item, *after;

    LIST_EACH (item, after, &cluster->waiters)
        event_signal(&container_of(item, struct cluster_waiter, item)->event);
}

void cluster_wake(struct cluster *cluster)
{
    mutex_lock(&cluster->lock);
    wake_waiters(cluster);
    mutex_unlock(&cluster->lock);
}

static void take_sample(struct cluster *cluster, uint64_t now)
{
    if (now < cluster->measure_ns)
        return;
    cluster->measure_ns = now + sooner(SAMPLE_NS, cluster->setup.health->beat_ns);
    if (!cluster->setup.sample)
        return;
    mutex_unlock(&cluster->lock);
    cluster->setup.sample(cluster->setup.arg);
    mutex_lock(&cluster->lock);
}

/* So that the others remove this node at once, without a timeout. */
static void say_goodbye(struct cluster *cluster)
{
    uint64_t now = clock_real(), until = now + GOODBYE_NS;

    finder_announce(cluster->finder, NULL, now);
    consensus_leave(cluster->consensus, now);
    cluster_flush(cluster);
    peer_set_pump(cluster->peer_set, now);
    finder_pump(cluster->finder, now);
    for (int i = 0; i < 8 && now < until; i++, now = clock_real()) {
        struct sock_wait items[PEER_SET_WAITS_MAX];
        uint64_t deadline = now + 20 * NS_PER_MS;
        size_t count = peer_set_waits(cluster->peer_set, items, PEER_SET_WAITS_MAX, &deadline);
        sock_wait(items, count, sooner(deadline, now + 20 * NS_PER_MS));
        peer_set_pump(cluster->peer_set, clock_real());
    }
}

static void cluster_run(void *arg)
{
    struct cluster *cluster = arg;
    struct sock_wait items[CLUSTER_WAITS];

    mutex_lock(&cluster->lock);
    while (!cluster->closing) {
        uint64_t now = clock_real();
        cluster_pump(cluster, now);
        if (cluster->control)
            control_socket_pump(cluster->control, now);
        take_sample(cluster, now);
        wake_waiters(cluster);
        cluster_sleep(cluster, items, now);
    }
    say_goodbye(cluster);
    mutex_unlock(&cluster->lock);
}

/* ---- opening and closing ---- */

static char *control_socket_answer(void *arg, const char *question)
{
    struct cluster *cluster = arg;
    struct text_buf none = text_buf_of(NULL, 0);
    void (*write)(struct cluster *, struct text_buf *) = NULL;

    if (strcmp(question, "status") == 0)
        write = cluster_write_json;
    else if (strcmp(question, "metrics") == 0)
        write = cluster_write_metrics;
    if (!write)
        return NULL;
    write(cluster, &none); /* its length */
    char *text = heap_alloc_raw(cluster->heap, 1, none.len + 1);
    if (text) {
        struct text_buf buf = text_buf_of(text, none.len + 1);
        write(cluster, &buf);
    }
    return text;
}

static int copy_setup(struct cluster *cluster, const struct cluster_setup *setup)
{
    const char **strings[] = {&cluster->setup.helper,    &cluster->setup.seeds,    &cluster->setup.bind,
                              &cluster->setup.advertise, &cluster->setup.control,  &cluster->setup.jobs_file,
                              &cluster->setup.cluster,   &cluster->setup.transport};

    cluster->setup = *setup;
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        const char *given = *strings[i];
        *strings[i] = given ? heap_strdup(cluster->heap, given) : NULL;
        if (given && !*strings[i]) {
            while (++i < sizeof strings / sizeof *strings)
                *strings[i] = NULL; /* the caller's */
            return HEARTH_NO_MEMORY;
        }
    }
    return HEARTH_OK;
}

static void cluster_free(struct cluster *cluster)
{
    const char *strings[] = {cluster->setup.helper,    cluster->setup.seeds,    cluster->setup.bind,
                             cluster->setup.advertise, cluster->setup.control,  cluster->setup.jobs_file,
                             cluster->setup.cluster,   cluster->setup.transport};

    control_socket_close(cluster->control);
    probes_close(cluster->probes);
    jobs_close(cluster->jobs);
    job_store_close(cluster->store);
    consensus_close(cluster->consensus);
    peer_set_close(cluster->peer_set);
    finder_close(cluster->finder);
    outbox_fini(&cluster->outbox);
    event_close(&cluster->wake);
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
        heap_free((void *)(uintptr_t)strings[i]);
    heap_free(cluster);
}

static int open_connections(struct cluster *cluster, struct error *error)
{
    struct finder_setup finder = {
        .heap = cluster->heap,
        .log = cluster->log,
        .helper = cluster->setup.helper,
        .seeds = cluster->setup.seeds,
        .seed_port = HEARTH_PORT,
        .bind = cluster->setup.bind,
        .now_ns = clock_real(),
    };
    struct peer_set_setup peer_set = {
        .heap = cluster->heap,
        .log = cluster->log,
        .port_tries = PORT_TRIES,
        .credentials = cluster->setup.credentials,
        .connect_timeout_ns = cluster->setup.connect_timeout_ns,
        .now_ns = clock_real(),
    };
    int status =
        random_bytes(&peer_set.seed, sizeof peer_set.seed) == HEARTH_OK
            ? cluster_describe_self(cluster, &peer_set.listen, &peer_set.self, error)
            : error_set(error, HEARTH_SYSTEM, RANK_NONE, "home cluster: no random numbers from the system");
    if (!status)
        status = peer_set_open(&peer_set, &cluster->peer_set, error);
    return status ? status : finder_open(&finder, &cluster->finder, error);
}

static int open_machines(struct cluster *cluster)
{
    uint64_t now = clock_real();
    struct consensus_setup consensus = {
        .heap = cluster->heap,
        .log = cluster->log,
        .outbox = &cluster->outbox,
        .events = &cluster->events,
        .self = *peer_set_self(cluster->peer_set),
        .health = cluster->setup.health,
        .now_ns = now,
    };
    struct jobs_setup jobs = {.heap = cluster->heap,
                              .log = cluster->log,
                              .outbox = &cluster->outbox,
                              .self = consensus.self.id,
                              .now_ns = now};
    struct job_store_setup store = {.heap = cluster->heap,
                                    .log = cluster->log,
                                    .path = cluster->setup.jobs_file,
                                    .self = consensus.self.id};
    struct probes_setup probes = {
        .heap = cluster->heap,
        .log = cluster->log,
        .peer_set = cluster->peer_set,
        .outbox = &cluster->outbox,
        .self = consensus.self.id,
        .now_ns = now,
    };
    int status = random_bytes(&consensus.seed, sizeof consensus.seed);
    if (!status)
        status = random_bytes(&jobs.seed, sizeof jobs.seed);
    if (!status)
        status = consensus_open(&consensus, &cluster->consensus);
    if (!status)
        status = jobs_open(&jobs, &cluster->jobs);
    if (!status)
        status = job_store_open(&store, &cluster->store);
    return status ? status : probes_open(&probes, &cluster->probes);
}

/* A node works without its control socket. */
static void open_control_socket(struct cluster *cluster)
{
    struct control_socket_setup setup = {.heap = cluster->heap,
                                         .log = cluster->log,
                                         .path = cluster->setup.control,
                                         .answer = control_socket_answer,
                                         .arg = cluster};
    struct error why;

    if (cluster->setup.control && control_socket_open(&setup, &cluster->control, &why))
        log_write(&cluster->log, HEARTH_LOG_WARN, "HEARTH-CONTROL-SOCKET",
                  "no control socket, so hearth status cannot reach this node: %s", why.text);
}

static int cluster_fill(struct cluster *cluster, struct error *error)
{
    int status = open_connections(cluster, error);
    if (status)
        return status;
    status = open_machines(cluster);
    if (status)
        return error_set(error, status, RANK_NONE, "home cluster: %s", hearth_status_text(status));
    open_control_socket(cluster);
    cluster_announce(cluster, clock_real());
    return HEARTH_OK;
}

int cluster_open(const struct cluster_setup *setup, struct cluster **out, struct error *error)
{
    struct cluster *cluster = heap_alloc(setup->heap, 1, sizeof *cluster);
    if (!cluster)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "home cluster: no memory");
    cluster->heap = setup->heap;
    cluster->log = setup->log;
    cluster->wake = (struct event){-1, -1};
    list_init(&cluster->waiters);
    list_init(&cluster->requests);
    list_init(&cluster->watches);
    outbox_init(&cluster->outbox, cluster->heap);
    int status = copy_setup(cluster, setup);
    if (!status)
        status = event_open(&cluster->wake);
    if (status)
        error_set(error, status, RANK_NONE, "home cluster: %s", hearth_status_text(status));
    else
        status = cluster_fill(cluster, error);
    if (!status && mutex_init(&cluster->lock))
        status = error_set(error, HEARTH_SYSTEM, RANK_NONE, "home cluster: cannot create a lock");
    if (status) {
        cluster_free(cluster);
        return status;
    }
    if (thread_start(&cluster->thread, "hearth-cluster", cluster_run, cluster)) {
        mutex_fini(&cluster->lock);
        cluster_free(cluster);
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "home cluster: cannot start a thread");
    }
    *out = cluster;
    return HEARTH_OK;
}

void cluster_close(struct cluster *cluster)
{
    if (!cluster)
        return;
    mutex_lock(&cluster->lock);
    cluster->closing = true;
    mutex_unlock(&cluster->lock);
    event_signal(&cluster->wake);
    thread_join(&cluster->thread);
    mutex_fini(&cluster->lock);
    cluster_free(cluster);
}
