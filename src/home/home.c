/* SPDX-License-Identifier: Apache-2.0 */
/* One thread for all that a node does in its home cluster, and the calls of others into it.
 *
 * There is one lock. The thread holds it while it works and not while it sleeps; whoever calls takes it,
 * changes what is to change, and wakes the thread. Who waits for something has an event of its own, which is
 * signalled after each round. */
#include "home/home.h"

#include <stdio.h>
#include <string.h>

#include "home/inside.h"
#include "os/clock.h"
#include "os/random.h"

#define PORT_TRIES    64
#define PROBE_SHARE   0.05
#define PROBE_REFRESH (600 * NS_PER_S)
#define GOODBYE_NS    (300 * NS_PER_MS) /* for what we say when we go */
#define SAMPLE_NS     NS_PER_S
#define HOME_WAITS    (1 + FINDER_WAITS_MAX + FELLOWS_WAITS_MAX + DESK_WAITS_MAX + PROBES_WAITS_MAX)

/* ---- the thread ---- */

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Sleeps until something comes or is due. The lock is given away meanwhile. */
static void home_sleep(struct home *home, struct sock_wait *items, uint64_t now)
{
    uint64_t deadline = sooner(home->gossip_ns, sooner(home->look_ns, home->measure_ns));
    size_t count = 1;

    items[0] = (struct sock_wait){.fd = home->wake.read_fd, .want_recv = true};
    count += finder_waits(home->finder, items + count, HOME_WAITS - count, &deadline);
    count += fellows_waits(home->fellows, items + count, HOME_WAITS - count, &deadline);
    count += probes_waits(home->probes, items + count, HOME_WAITS - count, &deadline);
    if (home->desk)
        count += desk_waits(home->desk, items + count, HOME_WAITS - count, &deadline);
    deadline = sooner(deadline, assembly_deadline(home->assembly));
    deadline = sooner(deadline, jobs_deadline(home->jobs));
    mutex_unlock(&home->lock);
    if (deadline > now)
        sock_wait(items, count, deadline);
    mutex_lock(&home->lock);
    if (items[0].ready)
        event_clear(&home->wake);
}

static void wake_waiters(struct home *home)
{
    struct list *item, *after;

    LIST_EACH (item, after, &home->waiters)
        event_signal(&container_of(item, struct home_waiter, item)->event);
}

void home_wake(struct home *home)
{
    mutex_lock(&home->lock);
    wake_waiters(home);
    mutex_unlock(&home->lock);
}

static void take_sample(struct home *home, uint64_t now)
{
    if (now < home->measure_ns)
        return;
    home->measure_ns = now + SAMPLE_NS;
    if (!home->setup.sample)
        return;
    mutex_unlock(&home->lock);
    home->setup.sample(home->setup.arg);
    mutex_lock(&home->lock);
}

/* Whoever hears it takes us out at once instead of waiting for our silence. */
static void say_goodbye(struct home *home)
{
    uint64_t now = clock_real(), until = now + GOODBYE_NS;

    finder_announce(home->finder, NULL, now);
    assembly_leave(home->assembly, now);
    home_flush(home);
    fellows_pump(home->fellows, now);
    finder_pump(home->finder, now);
    for (int i = 0; i < 8 && now < until; i++, now = clock_real()) {
        struct sock_wait items[FELLOWS_WAITS_MAX];
        uint64_t deadline = now + 20 * NS_PER_MS;
        size_t count = fellows_waits(home->fellows, items, FELLOWS_WAITS_MAX, &deadline);
        sock_wait(items, count, sooner(deadline, now + 20 * NS_PER_MS));
        fellows_pump(home->fellows, clock_real());
    }
}

static void home_run(void *arg)
{
    struct home *home = arg;
    struct sock_wait items[HOME_WAITS];

    mutex_lock(&home->lock);
    while (!home->closing) {
        uint64_t now = clock_real();
        home_pump(home, now);
        if (home->desk)
            desk_pump(home->desk, now);
        take_sample(home, now);
        wake_waiters(home);
        home_sleep(home, items, now);
    }
    say_goodbye(home);
    mutex_unlock(&home->lock);
}

/* ---- opening and closing ---- */

static char *desk_answer(void *arg, const char *question)
{
    struct home *home = arg;
    struct paper none = paper_of(NULL, 0);
    void (*write)(struct home *, struct paper *) = NULL;

    if (strcmp(question, "status") == 0)
        write = home_write_json;
    else if (strcmp(question, "metrics") == 0)
        write = home_write_metrics;
    if (!write)
        return NULL;
    write(home, &none); /* how long it is */
    char *text = heap_alloc_raw(home->heap, 1, none.len + 1);
    if (text) {
        struct paper paper = paper_of(text, none.len + 1);
        write(home, &paper);
    }
    return text;
}

static int copy_setup(struct home *home, const struct home_setup *setup)
{
    const char **strings[] = {&home->setup.helper,    &home->setup.seeds,    &home->setup.bind,
                              &home->setup.advertise, &home->setup.desk,     &home->setup.jobs_file,
                              &home->setup.cluster,   &home->setup.transport};

    home->setup = *setup;
    for (size_t i = 0; i < sizeof(strings) / sizeof(*strings); i++) {
        const char *given = *strings[i];
        *strings[i] = given ? heap_strdup(home->heap, given) : NULL;
        if (given && !*strings[i]) {
            while (++i < sizeof(strings) / sizeof(*strings))
                *strings[i] = NULL; /* the caller's */
            return HEARTH_NO_MEMORY;
        }
    }
    return HEARTH_OK;
}

static void home_free(struct home *home)
{
    const char *strings[] = {home->setup.helper,    home->setup.seeds,    home->setup.bind,
                             home->setup.advertise, home->setup.desk,     home->setup.jobs_file,
                             home->setup.cluster,   home->setup.transport};

    desk_close(home->desk);
    probes_close(home->probes);
    jobs_close(home->jobs);
    job_store_close(home->store);
    assembly_close(home->assembly);
    fellows_close(home->fellows);
    finder_close(home->finder);
    outbox_fini(&home->outbox);
    event_close(&home->wake);
    for (size_t i = 0; i < sizeof(strings) / sizeof(*strings); i++)
        heap_free((void *)(uintptr_t)strings[i]);
    heap_free(home);
}

static int open_connections(struct home *home, struct error *error)
{
    struct finder_setup finder = {
        .heap = home->heap,
        .log = home->log,
        .helper = home->setup.helper,
        .seeds = home->setup.seeds,
        .seed_port = HEARTH_PORT,
        .bind = home->setup.bind,
        .now_ns = clock_real(),
    };
    struct fellows_setup fellows = {
        .heap = home->heap,
        .log = home->log,
        .port_tries = PORT_TRIES,
        .credentials = home->setup.credentials,
        .connect_timeout_ns = home->setup.connect_timeout_ns,
        .now_ns = clock_real(),
    };
    int status = random_bytes(&fellows.seed, sizeof(fellows.seed)) == HEARTH_OK
                     ? home_describe_self(home, &fellows.listen, &fellows.self, error)
                     : error_set(error, HEARTH_SYSTEM, RANK_NONE, "the system gives no random numbers");
    if (!status)
        status = fellows_open(&fellows, &home->fellows, error);
    return status ? status : finder_open(&finder, &home->finder, error);
}

static int open_machines(struct home *home)
{
    uint64_t now = clock_real();
    struct assembly_setup assembly = {
        .heap = home->heap,
        .log = home->log,
        .outbox = &home->outbox,
        .self = *fellows_self(home->fellows),
        .health = home->setup.health,
        .now_ns = now,
    };
    struct jobs_setup jobs = {.heap = home->heap,
                              .log = home->log,
                              .outbox = &home->outbox,
                              .self = assembly.self.id,
                              .now_ns = now};
    struct job_store_setup store = {
        .heap = home->heap, .log = home->log, .path = home->setup.jobs_file, .self = assembly.self.id};
    struct probes_setup probes = {
        .heap = home->heap,
        .log = home->log,
        .fellows = home->fellows,
        .outbox = &home->outbox,
        .self = assembly.self.id,
        .share = PROBE_SHARE,
        .refresh_ns = PROBE_REFRESH,
        .now_ns = now,
    };
    int status = random_bytes(&assembly.seed, sizeof(assembly.seed));
    if (!status)
        status = random_bytes(&jobs.seed, sizeof(jobs.seed));
    if (!status)
        status = assembly_open(&assembly, &home->assembly);
    if (!status)
        status = jobs_open(&jobs, &home->jobs);
    if (!status)
        status = job_store_open(&store, &home->store);
    return status ? status : probes_open(&probes, &home->probes);
}

/* A node that cannot be asked is still a node. */
static void open_desk(struct home *home)
{
    struct desk_setup setup = {
        .heap = home->heap, .log = home->log, .path = home->setup.desk, .answer = desk_answer, .arg = home};
    struct error why;

    if (home->setup.desk && desk_open(&setup, &home->desk, &why))
        log_write(&home->log, HEARTH_LOG_WARN, "HEARTH-DESK", "hearth status will not reach this node: %s",
                  why.text);
}

static int home_fill(struct home *home, struct error *error)
{
    int status = open_connections(home, error);
    if (status)
        return status;
    status = open_machines(home);
    if (status)
        return error_set(error, status, RANK_NONE, "home cluster: %s", hearth_strerror(status));
    open_desk(home);
    home_announce(home, clock_real());
    return HEARTH_OK;
}

int home_open(const struct home_setup *setup, struct home **out, struct error *error)
{
    struct home *home = heap_alloc(setup->heap, 1, sizeof(*home));
    if (!home)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "home cluster: no memory");
    home->heap = setup->heap;
    home->log = setup->log;
    home->wake = (struct event){-1, -1};
    list_init(&home->waiters);
    list_init(&home->wishes);
    list_init(&home->watches);
    outbox_init(&home->outbox, home->heap);
    int status = copy_setup(home, setup);
    if (!status)
        status = event_open(&home->wake);
    if (status)
        error_set(error, status, RANK_NONE, "home cluster: %s", hearth_strerror(status));
    else
        status = home_fill(home, error);
    if (!status && mutex_init(&home->lock))
        status = error_set(error, HEARTH_SYSTEM, RANK_NONE, "home cluster: no lock");
    if (status) {
        home_free(home);
        return status;
    }
    if (thread_start(&home->thread, "hearth-home", home_run, home)) {
        mutex_fini(&home->lock);
        home_free(home);
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "home cluster: the system gives no thread");
    }
    *out = home;
    return HEARTH_OK;
}

void home_close(struct home *home)
{
    if (!home)
        return;
    mutex_lock(&home->lock);
    home->closing = true;
    mutex_unlock(&home->lock);
    event_signal(&home->wake);
    thread_join(&home->thread);
    mutex_fini(&home->lock);
    home_free(home);
}
