/* SPDX-License-Identifier: Apache-2.0 */
/* Several nodes in one process, connected in memory. */
#include <assert.h>
#include <math.h>

#include "node/local.h"
#include "node/node.h"
#include "node/path_costs.h"
#include "os/random.h"

/* Costs of the mem transport between threads of one machine; measured by `hearth bench allreduce`. All nodes
 * of a process have the same view, so the numbers need not be exact. */
static const struct link_cost mem_cost = {
    .alpha_s = 3e-6,
    .bytes_per_s = 4e9,
    .gamma_s = 1e-10,
    .overhead_s = 0.5e-6,
};

static void close_all(hearth_node *nodes[], int count, struct mem_net *net, int size)
{
    for (int i = 0; i < count; i++)
        hearth_node_close(nodes[i]);
    for (int i = count; i < size; i++)
        mem_net_put(net);
}

int local_open(const struct local_setup *setup, hearth_node *nodes[], struct error *error)
{
    struct mem_setup mem = setup->mem;
    struct mem_net *net;
    hearth_node *opened[HEARTH_LOCAL_MAX];
    assert(setup->count >= 1 && setup->count <= HEARTH_LOCAL_MAX);
    mem.size = setup->count;
    int status = mem_net_open(&mem, &net);
    if (status != HEARTH_OK)
        return error_set(error, status, RANK_NONE, "open: %s", hearth_status_text(status));
    struct group_view world = {
        .group = setup->id,
        .epoch = 1,
        .size = setup->count,
        .host = setup->host,
        .inside = mem_cost,
        .across = mem_cost,
    };
    if (!mem.now_ns) {
        world.inside.alpha_s += (double)mem.latency_ns * 1e-9;
        world.across.alpha_s = world.inside.alpha_s;
    } else {
        world.inside.alpha_s = world.across.alpha_s = (double)mem.latency_ns * 1e-9;
        world.inside.bytes_per_s = world.across.bytes_per_s = mem.bytes_per_s > 0 ? mem.bytes_per_s : 1e12;
    }
    if (setup->config->rate > 0) {
        double rate = (double)setup->config->rate / 8;
        world.inside.bytes_per_s = fmin(world.inside.bytes_per_s, rate);
        world.across.bytes_per_s = fmin(world.across.bytes_per_s, rate);
    }
    struct hearth_config config = *setup->config;
    struct hearth_tuning tuning = *tuning_of(setup->config);
    config.tuning = &tuning; /* each node takes a copy */
    if (!mem.now_ns && mem.latency_ns > 0)
        tuning.window_bytes = window_for(&world.across, tuning.window_bytes);
    for (int i = 0; i < setup->count; i++) {
        struct node_setup node = {
            .config = &config,
            .net = net,
            .rank = i,
            .world = &world,
            .now_ns = mem.now_ns,
            .instance = setup->id + (uint64_t)i,
            .loss = setup->loss,
            .lent_heap = setup->lent_heaps ? setup->lent_heaps[i] : NULL,
        };
        status = node_open(&node, &opened[i], error);
        if (status != HEARTH_OK) {
            close_all(opened, i, net, setup->count);
            return status;
        }
    }
    for (int i = 0; i < setup->count; i++)
        nodes[i] = opened[i];
    return HEARTH_OK;
}

int local_open_far(const struct hearth_config *config, int count, uint64_t latency_ns, hearth_node *nodes[])
{
    struct error *error = error_last();
    struct hearth_config own;
    struct hearth_tuning tuning;
    if (!nodes)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "open_local: nodes is NULL");
    if (count < 1 || count > HEARTH_LOCAL_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "open_local: count is %d; it must be from 1 to %d",
                         count, HEARTH_LOCAL_MAX);
    int status = config_read(&own, &tuning, config, error);
    if (status == HEARTH_OK)
        status = config_check(&own, error);
    if (status != HEARTH_OK)
        return status;
    struct local_setup setup = {.config = &own, .count = count, .mem = {.latency_ns = latency_ns}};
    do {
        status = random_bytes(&setup.id, sizeof setup.id);
        if (status != HEARTH_OK)
            return error_set(error, status, RANK_NONE, "open_local: no random numbers from the system");
    } while (setup.id == 0);
    return local_open(&setup, nodes, error);
}

int hearth_node_open_local(const struct hearth_config *config, int count, hearth_node *nodes[])
{
    return local_open_far(config, count, 0, nodes);
}
