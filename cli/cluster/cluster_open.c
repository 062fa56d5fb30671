/* SPDX-License-Identifier: Apache-2.0 */
/* A command's node in the home cluster: opened, and brought together with the machines that are up. */
#include "cli/cluster/cluster_open.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hearth.h>

#include "cli/shared/progress.h"
#include "cli/shared/signals.h"
#include "core/types.h"
#include "discovery/mdns_line.h"
#include "discovery/seeds.h"
#include "os/clock.h"
#include "os/thread.h"
#include "security/vault.h"

#define SLICE_MS     100
#define SETTLE_NS    NS_PER_S       /* no machine has come for so long: all are there */
#define PATIENCE_NS  (4 * NS_PER_S) /* for a call to end */
#define INTERRUPT_MS 10

const char *cluster_health_name(int index)
{
    static const char *const names[] = {"default", "low-latency", "high-latency"};
    return index >= 0 && index < 3 ? names[index] : NULL;
}

/* ---- opening ---- */

static void fill_config(struct hearth_config *config, const struct hearth_config *said)
{
    config->peers = config->rendezvous = NULL;
    config->rank = -1;
    config->world_size = 0;
    config->discover = "mdns";
    config->roles = said->roles;
    config->seeds = said->seeds ? said->seeds : config->seeds;
    config->bind = said->bind ? said->bind : config->bind;
    config->port = said->port > 0 ? said->port : config->port;
    config->health = said->health ? said->health : config->health;
    config->form_timeout_ms = said->form_timeout_ms;
    config->log = said->log;
    config->log_arg = said->log_arg;
}

/* Before the library sees them: it does not know where they come from. */
static int check_seeds(const struct usage *usage, const char *text, const char *source)
{
    const struct log no_log = {.sink = NULL};
    struct seeds *seeds = NULL;
    struct error error;
    struct heap *heap = heap_open(0);
    int status = heap ? seeds_open(heap, &no_log, text, HEARTH_PORT, &seeds, &error) : HEARTH_OK;
    seeds_close(seeds);
    heap_close(heap);
    return status == HEARTH_INVALID ? args_refuse(usage, "%s: %s", source, error.text) : ARGS_GO;
}

int cluster_enter(const struct usage *usage, const struct hearth_config *said,
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
    code = hearth_config_env(&config) ? args_refuse(usage, "%s", hearth_error_text()) : ARGS_GO;
    fill_config(&config, said);
    if (code == ARGS_GO)
        code = check_seeds(usage, config.seeds, said->seeds ? "--seeds" : "HEARTH_SEEDS");
    if (code != ARGS_GO) {
        cluster_leave(cluster);
        return code;
    }
    secret_token(cluster->handover.secret, token);
    if (cluster->handover.file[0])
        config.secret_file = cluster->handover.file; /* and the trust list beside it */
    else
        config.secret = token;
    int status = hearth_node_open(&config, &cluster->node);
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

/* ---- a call that waits ---- */

enum { CALL_IDLE, CALL_BUSY, CALL_DONE };

static void call_main(void *arg)
{
    struct node_call *call = arg;
    call->work(call->arg);
    atomic_store(&call->state, CALL_DONE);
    if (call->ring)
        call->ring(call->ring_arg);
}

bool node_call_start(struct node_call *call)
{
    if (atomic_load(&call->state) != CALL_IDLE || atomic_load(&call->quit))
        return true;
    atomic_store(&call->state, CALL_BUSY);
    if (thread_start(&call->thread, "hearth-call", call_main, call) == HEARTH_OK)
        return true;
    atomic_store(&call->state, CALL_IDLE);
    return false;
}

bool node_call_take(struct node_call *call)
{
    if (atomic_load(&call->state) != CALL_DONE)
        return false;
    thread_join(&call->thread);
    atomic_store(&call->state, CALL_IDLE);
    return true;
}

bool node_call_end(struct node_call *call)
{
    uint64_t end = clock_real() + PATIENCE_NS;
    atomic_store(&call->quit, true);
    while (atomic_load(&call->state) == CALL_BUSY && clock_real() < end) {
        hearth_node_interrupt(call->node);
        (void)poll(NULL, 0, INTERRUPT_MS);
    }
    node_call_take(call);
    return atomic_load(&call->state) == CALL_IDLE;
}

/* ---- gathering ---- */

struct gather_call {
    const struct usage *usage;
    const struct cluster_gathering *what;
    struct node_call call;
    struct cluster_status *status;
    struct progress progress;
    uint64_t start_ns;
    hearth_group *group;
    int code;
};

/* Whether to wait another slice, of so many seconds in all. */
static bool wait_more(struct gather_call *g, double patience_s)
{
    double passed_s = (double)(clock_real() - g->start_ns) / (double)NS_PER_S;
    progress_show(&g->progress, passed_s / patience_s);
    return passed_s < patience_s && !atomic_load(&g->call.quit) &&
           node_cluster_status(g->call.node, g->status) == HEARTH_OK;
}

/* Until no more members with the role come. How many there are. */
static int wait_for_all(struct gather_call *g)
{
    uint64_t since = clock_real();
    int count = 0;
    while (wait_more(g, g->what->patience_s)) {
        int now = cluster_status_count(g->status, g->what->role);
        if (now != count)
            since = clock_real();
        count = now;
        if (clock_real() - since >= SETTLE_NS)
            break;
        (void)poll(NULL, 0, SLICE_MS);
    }
    return count;
}

/* The cluster measures new members by itself, but not while they run a job. */
static void wait_for_paths(struct gather_call *g)
{
    progress_start(&g->progress, "measuring the paths");
    g->start_ns = clock_real();
    while (wait_more(g, g->what->measure_s) && !cluster_status_measured(g->status, g->what->role))
        (void)poll(NULL, 0, SLICE_MS);
    progress_hide(&g->progress);
}

/* The others, then the job. The last error text says why not. */
static int gather(struct gather_call *g)
{
    int status, count;
    g->start_ns = clock_real();
    progress_start(&g->progress, "finding the others");
    do
        status = hearth_node_wait_for_peers(g->call.node, 1, SLICE_MS);
    while (status == HEARTH_TIMEOUT && wait_more(g, g->what->patience_s));
    count = status ? 0 : wait_for_all(g);
    progress_hide(&g->progress);
    if (!status && count == 0 && !atomic_load(&g->call.quit))
        return command_fail(g->usage->name, "%s", g->what->nobody);
    if (!status && g->what->measure_s > 0)
        wait_for_paths(g);
    if (!status && !atomic_load(&g->call.quit))
        status = hearth_group_form(g->call.node, g->what->job, count + 1, NULL, &g->group);
    if (!status && g->group)
        return ARGS_GO;
    return atomic_load(&g->call.quit) ? EXIT_FAILED_CHECK
                                      : command_fail(g->usage->name, "%s", hearth_error_text());
}

static void gather_main(void *arg)
{
    struct gather_call *g = arg;
    g->code = gather(g);
}

/* A command that waits for other machines is left in good order: it says goodbye to the cluster. */
int cluster_gather(const struct usage *usage, struct cluster_session *cluster,
                   const struct cluster_gathering *what, hearth_group **group)
{
    static const int list[] = {SIGINT, SIGTERM, SIGHUP};
    size_t count = sizeof list / sizeof *list;
    struct gather_call g = {.usage = usage, .what = what, .status = malloc(sizeof *g.status)};
    int number = 0, heard = signals_open(list, count);
    g.call = (struct node_call){.node = cluster->node, .work = gather_main, .arg = &g};
    if (!g.status || heard < 0 || !node_call_start(&g.call)) {
        signals_close(list, count);
        free(g.status);
        return command_fail(usage->name, "no memory, thread or descriptor to wait for other machines");
    }
    while (!node_call_take(&g.call)) {
        struct pollfd item = {.fd = heard, .events = POLLIN};
        (void)poll(&item, 1, INTERRUPT_MS);
        int next = signals_next();
        number = next ? next : number;
        if (number) { /* again and again: the thread may not wait yet */
            atomic_store(&g.call.quit, true);
            hearth_node_interrupt(cluster->node);
        }
    }
    signals_close(list, count);
    int late = signals_next(); /* came while the thread ended */
    free(g.status);
    *group = g.group;
    number = late ? late : number;
    if (number && g.code == ARGS_GO)
        hearth_group_close(g.group);
    return number ? 128 + number : g.code;
}

void cluster_names(hearth_group *group, char *text, size_t size)
{
    int count;
    struct hearth_member *members = cluster_members(group, &count);
    text[0] = 0;
    for (int rank = 0; members && rank < count; rank++)
        name_list_add(text, size, members[rank].name, rank, count);
    free(members);
}
