/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes a node. */
#include <stdio.h>

#include "node/cluster_groups.h"
#include "node/copier.h"
#include "node/path_costs.h"
#include "node/poll_set.h"
#include "transport/quic.h"

#define PART_NS (10 * NS_PER_S) /* for peers to read the last data when a node closes */

static int path_costs_fill(hearth_node *node, const struct group_view *view)
{
    struct path_costs *f = &node->costs;
    *f = (struct path_costs){
        .inside = view->inside, .across = view->across, .window_bytes = node->tuning.window_bytes};
    f->host = heap_alloc(node->heap, (size_t)view->size, sizeof *f->host);
    f->room = heap_alloc(node->heap, (size_t)view->size, sizeof *f->room);
    for (int i = 0; f->host && view->host && i < view->size; i++)
        f->host[i] = view->host[i];
    return f->host && f->room ? HEARTH_OK : HEARTH_NO_MEMORY;
}

static int world_open(hearth_node *node, const struct node_setup *setup)
{
    struct group_view view = *setup->world;
    int *members = heap_alloc(node->heap, (size_t)view.size, sizeof *members);
    if (!members)
        return HEARTH_NO_MEMORY;
    view.chunk_bytes = node->tuning.chunk_bytes;
    view.window_bytes = node->tuning.window_bytes;
    view.eager_bytes = node->tuning.eager_bytes;
    view.algo = node->tuning.algo;
    for (int i = 0; i < view.size; i++)
        members[i] = i;
    int status = path_costs_fill(node, &view);
    node->world.node = node;
    node->world.memory = memory_host;
    list_init(&node->world.item);
    if (status == HEARTH_OK)
        status = group_open(node->engine, &view, members, &node->world.group);
    heap_free(members);
    return status;
}

static int join_all(hearth_node *node, const struct node_setup *setup)
{
    for (int i = 0; i < setup->world->size; i++) {
        if (i == setup->rank)
            continue;
        struct node_conns in_memory = {.count = 1};
        const struct node_conns *joined = &in_memory;
        if (setup->net)
            in_memory.conns[0] = mem_net_conn(setup->net, setup->rank, i);
        else
            joined = &setup->conns[i];
        int status = engine_join(node->engine, i, joined->conns, joined->count);
        if (status != HEARTH_OK)
            return status;
    }
    return HEARTH_OK;
}

struct log node_log(const hearth_node *node)
{
    const struct hearth_config *c = &node->config;
    return (struct log){.sink = c->log, .arg = c->log_arg, .level = c->log_level};
}

static int node_fill(hearth_node *node, const struct node_setup *setup)
{
    int status = metrics_init(&node->metrics, setup->world->size, node->heap);
    if (status != HEARTH_OK)
        return status;
    struct engine_setup engine = {
        .heap = node->heap,
        .metrics = &node->metrics,
        .log = node_log(node),
        .clock = &node->clock,
        .rank = setup->rank,
        .size = setup->world->size,
        .ops_max = node->tuning.ops_max,
        .eager_bytes = (uint32_t)node->tuning.eager_bytes,
        .chunk_bytes = node->tuning.chunk_bytes,
        .rate = node->config.rate,
        .instance = setup->instance,
        .loss = node->loss,
        .peer_timeout_ns = !setup->net ? (uint64_t)node->config.peer_timeout_ms * NS_PER_MS : 0,
        .opening_ns = setup->opening_ns,
    };
    status = engine_open(&engine, &node->engine);
    if (status == HEARTH_OK) {
        node_set_sinks(node);
        status = world_open(node, setup);
    }
    if (status == HEARTH_OK)
        status = join_all(node, setup);
    if (status == HEARTH_OK && !setup->now_ns) {
        char name[16];
        snprintf(name, sizeof name, "hearth-%d", setup->rank);
        status = thread_start(&node->progress_thread, name, node_keep, node);
        node->progress_runs = status == HEARTH_OK;
    }
    return status;
}

static void node_free(hearth_node *node, bool with_heap)
{
    struct list *item, *after;
    LIST_EACH (item, after, &node->requests) {
        hearth_request *request = container_of(item, hearth_request, item);
        event_close(&request->event);
        heap_free(request);
    }
    LIST_EACH (item, after, &node->free_requests)
        heap_free(container_of(item, hearth_request, item));
    LIST_EACH (item, after, &node->groups)
        heap_free(container_of(item, hearth_group, item));
    metrics_fini(&node->metrics);
    path_costs_fini(&node->costs);
    struct heap *heap = node->heap;
    heap_free(node->links);
    heap_free(node);
    if (with_heap)
        heap_close(heap);
}

/* What the node sleeps on. */
static int bell_choose(hearth_node *node, const struct node_setup *setup)
{
    if (setup->net) {
        node->bell = mem_net_bell(setup->net, setup->rank);
        return HEARTH_OK;
    }
    node->rest = poll_set_open(node->heap, setup->event, setup->world->size);
    if (!node->rest)
        return HEARTH_NO_MEMORY;
    int status = bell_init(&node->own_bell);
    if (status == HEARTH_OK)
        node->bell = &node->own_bell;
    return status;
}

static int codec_copy(hearth_node *node)
{
    struct codec_list list;
    struct error why;
    int status = codec_parse(node->config.codec, &list, &why);
    if (status == HEARTH_OK)
        codec_list_text(&list, node->codec, sizeof node->codec);
    node->config.codec = node->codec;
    return status;
}

static void bell_drop(hearth_node *node)
{
    poll_set_close(node->rest);
    if (node->bell == &node->own_bell)
        bell_fini(&node->own_bell);
}

int node_open(const struct node_setup *setup, hearth_node **out, struct error *error)
{
    struct heap *given = setup->lent_heap ? setup->lent_heap : setup->heap;
    struct heap *heap = given ? given : heap_open(setup->config->memory_max);
    hearth_node *node = heap ? heap_alloc(heap, 1, sizeof *node) : NULL;
    if (!node) {
        heap_close(given ? NULL : heap);
        return error_set(error, HEARTH_NO_MEMORY, setup->rank, "open: no memory for node %d", setup->rank);
    }
    node->heap = heap;
    node->heap_lent = setup->lent_heap;
    node->outer = setup->outer ? setup->outer : node;
    node->loss = setup->loss != 0 ? setup->loss : HEARTH_PEER_LOST;
    node->process = process_id();
    node->config = *setup->config;
    node->tuning = *tuning_of(setup->config);
    node->config.tuning = &node->tuning;
    node->clock.virtual_ns = setup->now_ns;
    node->opened_ns = clock_now(&node->clock);
    node->net = setup->net;
    node->crowded = setup->crowded;
    node->listener = setup->listener; /* before the progress thread runs */
    node->regions = setup->regions;
    node->quic = setup->quic;
    node->credentials = setup->credentials;
    node->members = setup->members;
    node->spin_ns = node->tuning.spin_us * NS_PER_US;
    atomic_init(&node->progress_until, NEVER_NS);
    list_init(&node->groups);
    list_init(&node->requests);
    list_init(&node->free_requests);
    list_init(&node->buffers);
    list_init(&node->attached);
    int status = mutex_init(&node->baton);
    bool has_baton = status == HEARTH_OK;
    if (status == HEARTH_OK)
        status = codec_copy(node);
    if (status == HEARTH_OK)
        status = bell_choose(node, setup);
    if (status == HEARTH_OK)
        status = node_fill(node, setup);
    if (status == HEARTH_OK) {
        *out = node;
        return HEARTH_OK;
    }
    error_set(error, status, setup->rank, "open: node %d: %s", setup->rank, hearth_status_text(status));
    if (node->engine)
        engine_close(node->engine);
    bell_drop(node);
    if (has_baton)
        mutex_fini(&node->baton);
    node_free(node, !given);
    return status;
}

/* Drives until the peers have all data and know that this node closes, or the time is over. No other thread
 * drives. */
static void part_wait(hearth_node *node)
{
    uint64_t silence_ns = (uint64_t)node->config.peer_timeout_ms * NS_PER_MS;
    uint64_t deadline = clock_real() + (silence_ns < PART_NS ? silence_ns : PART_NS);
    for (;;) {
        uint32_t heard = bell_heard(node->bell);
        bool moved = node_progress(node), parted = engine_parted(node->engine);
        uint64_t until = engine_deadline(node->engine);
        bool alone = node->clock.virtual_ns; /* no peer runs meanwhile */
        if (parted || clock_real() >= deadline || (alone && !moved))
            return;
        if (!moved)
            node_sleep(node, heard, until < deadline ? until : deadline);
    }
}

void hearth_node_close(hearth_node *node)
{
    if (!node)
        return;
    if (node_forked(node)) {
        /* Threads and peers belong to the parent. Any of its threads may have held a lock at the fork, so
         * nothing is touched. */
        struct heap *heap = node->heap_lent ? NULL : node->heap;
        if (node->net)
            mem_net_forget(node->net);
        if (heap)
            heap_drop(heap);
        heap_close(heap);
        return;
    }
    cluster_groups_close(node->cluster_groups);
    mutex_lock(&node->baton);
    node->closing = true;
    mutex_unlock(&node->baton);
    struct node_worker *worker = atomic_load(&node->worker);
    if (worker)
        worker->stop(worker);
    struct node_server *server = atomic_load(&node->outer->server);
    if (server)
        server->stop(server, node);
    poll_set_ring_all(node);
    if (node->progress_runs)
        thread_join(&node->progress_thread);
    mutex_lock(&node->baton);
    engine_part(node->engine);
    mutex_unlock(&node->baton);
    node_progress(node); /* all operations have ended: staged ones hear of it */
    copier_stop(atomic_load(&node->copier));
    part_wait(node);
    engine_close(node->engine);
    attachments_drop(node);
    copier_free(atomic_load(&node->copier));
    if (node->net)
        mem_net_put(node->net);
    if (node->listener)
        listener_close(node->listener);
    buffers_free(node);
    shm_regions_close(node->regions);
    quic_close(node->quic);
    credentials_close(node->credentials);
    heap_free(node->members);
    heap_free(node->roll);
    bell_drop(node);
    mutex_fini(&node->baton);
    node_free(node, !node->heap_lent);
}
