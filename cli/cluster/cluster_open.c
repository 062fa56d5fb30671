/* SPDX-License-Identifier: Apache-2.0 */
/* A command's node in the home cluster: opened, and brought together with the machines that are up. */
#include "cli/cluster/cluster_open.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hearth.h>

#include "cli/shared/progress.h"
#include "cli/shared/signals.h"
#include "core/types.h"
#include "os/clock.h"
#include "os/thread.h"
#include "security/vault.h"

/* ---- Ctrl-C ---- */

#define LOOK_MS 20

static const int heard[] = {SIGINT, SIGTERM, SIGHUP};

/* A command that waits for other machines is left in good order: it says goodbye to the cluster. */
struct interrupt {
    hearth_node *node;
    int heard;
    struct thread thread;
    _Atomic(bool) over;
    _Atomic(int) number; /* of the signal that came; 0: none */
};

static void listen_main(void *arg)
{
    struct interrupt *l = arg;
    while (!atomic_load(&l->over)) {
        struct pollfd item = {.fd = l->heard, .events = POLLIN};
        (void)poll(&item, 1, LOOK_MS);
        int number = signals_next();
        if (number)
            atomic_store(&l->number, number);
        if (atomic_load(&l->number))
            hearth_node_interrupt(l->node); /* again and again: the other thread may not wait yet */
    }
}

/* From now on SIGINT, SIGTERM and SIGHUP interrupt what waits at the node. False: no thread or descriptor. */
static bool interrupt_begin(struct interrupt *l, hearth_node *node)
{
    *l = (struct interrupt){.node = node};
    l->heard = signals_open(heard, sizeof heard / sizeof *heard);
    if (l->heard >= 0 && thread_start(&l->thread, "hearth-leave", listen_main, l) == HEARTH_OK)
        return true;
    signals_close(heard, sizeof heard / sizeof *heard);
    return false;
}

static bool interrupt_asked(struct interrupt *l)
{
    return atomic_load(&l->number) != 0;
}

/* From now on they end the process again. The signal that came; 0: none. */
static int interrupt_end(struct interrupt *l)
{
    atomic_store(&l->over, true);
    thread_join(&l->thread);
    signals_close(heard, sizeof heard / sizeof *heard);
    int late = signals_next(); /* came while the thread ended */
    return late ? late : atomic_load(&l->number);
}

#define SLICE_MS  100
#define SETTLE_NS (NS_PER_S) /* nobody has come for so long: all are there */

const char *cluster_health_name(int index)
{
    static const char *const names[] = {"default", "low-latency", "high-latency"};
    return index >= 0 && index < 3 ? names[index] : NULL;
}

/* ---- opening ---- */

static void fill_config(struct hearth_config *config, const struct cluster_options *o)
{
    config->peers = config->rendezvous = NULL;
    config->rank = -1;
    config->world_size = 0;
    config->discover = "mdns";
    config->roles = o->roles;
    if (o->seeds)
        config->seeds = o->seeds;
    if (o->bind)
        config->bind = o->bind;
    if (o->port > 0)
        config->port = (uint16_t)o->port;
    if (o->health >= 0)
        config->health = cluster_health_name(o->health);
    if (o->form_timeout_ms > 0)
        config->form_timeout_ms = o->form_timeout_ms;
    config->log = o->log;
    config->log_arg = o->log_arg;
}

int cluster_enter(const struct usage *usage, const struct cluster_options *options,
                  struct cluster_session *cluster)
{
    struct hearth_config config;
    char token[SECRET_TOKEN_MAX];
    *cluster = (struct cluster_session){.node = NULL};
    int code = secret_handover_of_cluster(usage, &cluster->handover);
    if (code != ARGS_GO) {
        cluster_leave(cluster);
        return code;
    }
    hearth_config_init(&config);
    int status = hearth_config_env(&config);
    fill_config(&config, options);
    secret_token(cluster->handover.secret, token);
    if (cluster->handover.file[0])
        config.secret_file = cluster->handover.file; /* and the trust list beside it */
    else
        config.secret = token;
    if (!status)
        status = hearth_node_open(&config, &cluster->node);
    wipe(token, sizeof token);
    if (!status)
        return ARGS_GO;
    command_fail(usage->name, "%s", hearth_error_text());
    cluster_leave(cluster);
    return EXIT_FAILED_CHECK;
}

void cluster_leave(struct cluster_session *cluster)
{
    hearth_node_close(cluster->node);
    secret_handover_close(&cluster->handover);
    cluster->node = NULL;
}

/* ---- gathering ---- */

struct wait {
    struct progress progress;
    struct interrupt *interrupt;
    uint64_t start_ns, patience_ns;
};

static bool wait_more(struct wait *w)
{
    uint64_t passed = clock_real() - w->start_ns;
    progress_show(&w->progress, (double)passed / (double)w->patience_ns);
    return passed < w->patience_ns && !interrupt_asked(w->interrupt);
}

/* Until somebody else is there. The last error text says why not. */
static int wait_for_company(struct cluster_session *cluster, struct wait *w)
{
    int status;
    do
        status = hearth_node_wait_for_peers(cluster->node, 1, SLICE_MS);
    while (status == HEARTH_TIMEOUT && wait_more(w));
    return status;
}

/* Until no more members with the role come. How many there are; negative: status. */
static int wait_for_all(struct cluster_session *cluster, enum hearth_role role, struct wait *w)
{
    struct cluster_status *status = malloc(sizeof *status);
    uint64_t since = clock_real();
    int count = 0;
    while (status && wait_more(w)) {
        if (node_cluster_status(cluster->node, status))
            break;
        int now = cluster_status_count(status, role);
        if (now != count)
            since = clock_real();
        count = now;
        if (clock_real() - since >= SETTLE_NS)
            break;
        (void)poll(NULL, 0, SLICE_MS);
    }
    free(status);
    return status ? count : HEARTH_NO_MEMORY;
}

/* The cluster measures new members by itself, but not while they run a job. */
static void wait_for_paths(struct cluster_session *cluster, const struct cluster_gathering *what,
                           struct interrupt *interrupt)
{
    struct wait w = {.interrupt = interrupt,
                     .start_ns = clock_real(),
                     .patience_ns = (uint64_t)(what->measure_s * (double)NS_PER_S)};
    struct cluster_status *status = malloc(sizeof *status);
    progress_start(&w.progress, "measuring the ways");
    while (status && wait_more(&w) && node_cluster_status(cluster->node, status) == HEARTH_OK &&
           !cluster_status_measured(status, what->role))
        (void)poll(NULL, 0, SLICE_MS);
    progress_hide(&w.progress);
    free(status);
}

static int fail(const struct usage *usage, struct wait *w)
{
    progress_hide(&w->progress);
    return interrupt_asked(w->interrupt) ? EXIT_FAILED_CHECK
                                         : command_fail(usage->name, "%s", hearth_error_text());
}

static int gather(const struct usage *usage, struct cluster_session *cluster,
                  const struct cluster_gathering *what, struct interrupt *interrupt, hearth_group **group)
{
    struct wait w = {.interrupt = interrupt,
                     .start_ns = clock_real(),
                     .patience_ns = (uint64_t)(what->patience_s * (double)NS_PER_S)};
    progress_start(&w.progress, "finding the others");
    if (wait_for_company(cluster, &w))
        return fail(usage, &w);
    int count = wait_for_all(cluster, what->role, &w);
    if (count < 0 || interrupt_asked(interrupt))
        return fail(usage, &w);
    if (count == 0) {
        progress_hide(&w.progress);
        return command_fail(usage->name, "%s", what->nobody);
    }
    progress_hide(&w.progress);
    if (what->measure_s > 0)
        wait_for_paths(cluster, what, interrupt);
    if (interrupt_asked(interrupt) || hearth_group_form(cluster->node, what->job, count + 1, NULL, group))
        return fail(usage, &w);
    progress_hide(&w.progress);
    return ARGS_GO;
}

int cluster_gather(const struct usage *usage, struct cluster_session *cluster,
                   const struct cluster_gathering *what, hearth_group **group)
{
    struct interrupt interrupt;
    if (!interrupt_begin(&interrupt, cluster->node))
        return command_fail(usage->name, "no thread or descriptor to hear signals");
    int code = gather(usage, cluster, what, &interrupt, group), number = interrupt_end(&interrupt);
    return number ? 128 + number : code;
}

void cluster_names(hearth_group *group, char *text, size_t size)
{
    int count = hearth_group_size(group);
    text[0] = 0;
    for (int rank = 0; rank < count; rank++) {
        struct hearth_member member = {.size = sizeof member};
        if (hearth_group_member(group, rank, &member) == HEARTH_OK)
            name_list_add(text, size, member.name, rank, count);
    }
}
