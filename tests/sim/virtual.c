/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster on virtual time: one thread, seeded, the same bytes and the same log every time. */
#include "virtual.h"

#include "core/hash.h"
#include "support/suite.h"
#include "support/watchdog.h"

static void sim_log(void *arg, enum hearth_log_level level, const char *id, const char *text)
{
    struct sim *sim = arg;
    sim->log_hash = hash_mix(sim->log_hash, sim->now_ns);
    sim->log_hash = hash64(sim->log_hash, id, strlen(id));
    sim->log_hash = hash64(sim->log_hash, text, strlen(text));
    sim->log_hash = hash_mix(sim->log_hash, (uint64_t)level);
    sim->log_lines++;
}

void sim_init(struct sim *sim, int size, uint64_t seed)
{
    memset(sim, 0, sizeof *sim);
    sim->size = size;
    sim->now_ns = NS_PER_S;
    prng_init(&sim->prng, seed);
    hearth_config_init(&sim->config);
    hearth_tuning_init(&sim->tuning);
    sim->config.log_level = HEARTH_LOG_DEBUG;
    sim->config.log = sim_log;
    sim->config.log_arg = sim;
    sim->mem = (struct mem_setup){.latency_ns = 10000, .bytes_per_s = 1e9, .seed = seed};
}

/* A number between two powers of two, each magnitude as likely as the others. */
static uint64_t draw_magnitude(struct prng *p, unsigned low, unsigned high)
{
    uint64_t base = UINT64_C(1) << (low + prng_below(p, high - low));
    return base + prng_below(p, base);
}

void sim_draw(struct sim *sim, int size, uint64_t seed)
{
    sim_init(sim, size, seed);
    struct prng *p = &sim->prng;
    sim->mem.bytes_per_s = prng_below(p, 8) == 0 ? 0 : (double)draw_magnitude(p, 17, 34);
    sim->mem.latency_ns = prng_below(p, 8) == 0 ? 0 : draw_magnitude(p, 8, 26);
    sim->mem.jitter_ns = prng_below(p, 2) == 0 ? 0 : prng_below(p, 2 * sim->mem.latency_ns + 1);
    sim->mem.ring_bytes = prng_below(p, 4) == 0 ? 0 : draw_magnitude(p, 8, 19);
    sim->tuning.chunk_bytes = draw_magnitude(p, 8, 17);
    sim->tuning.window_bytes = draw_magnitude(p, 8, 21);
    sim->tuning.eager_bytes = draw_magnitude(p, 12, 18);
    for (int i = 0; i < size; i++)
        sim->host[i] = (int)prng_below(p, 3);
    struct prng own; /* does not change what the others draw */
    prng_init(&own, seed + 1);
    sim->config.rate = prng_below(&own, 4) == 0 ? draw_magnitude(&own, 21, 36) : 0;
}

void sim_draw_quick(struct sim *sim, int size, uint64_t seed)
{
    sim_draw(sim, size, seed);
    sim->mem.bytes_per_s = 1e9;
    sim->config.rate = sim->config.rate > 0 ? UINT64_C(8000000000) : 0;
    sim->mem.latency_ns = 1000 + sim->mem.latency_ns % (5 * NS_PER_MS);
    sim->mem.jitter_ns %= NS_PER_MS;
    sim->mem.ring_bytes = sim->mem.ring_bytes > 0 ? sim->mem.ring_bytes | 65536 : 0;
}

void sim_start(struct sim *sim)
{
    struct error error;
    sim->mem.now_ns = &sim->now_ns;
    sim->config.tuning = &sim->tuning;
    struct local_setup setup = {.config = &sim->config,
                                .count = sim->size,
                                .mem = sim->mem,
                                .host = sim->host,
                                .id = 0x1234,
                                .loss = sim->loss};
    int status = local_open(&setup, sim->nodes, &error);
    if (status != HEARTH_OK)
        fail_msg("open: %s", error.text);
    sim->net = sim->nodes[0]->net;
}

void sim_open(struct sim *sim, int size)
{
    sim_init(sim, size, 1);
    sim_start(sim);
}

void sim_cut_off(struct sim *sim, int rank)
{
    for (int r = 0; r < sim->size; r++)
        if (r != rank && sim->nodes[r])
            mem_net_cut(sim->net, rank, r);
}

void sim_close_node(struct sim *sim, int rank)
{
    hearth_node_close(sim->nodes[rank]);
    sim->nodes[rank] = NULL;
}

void sim_strike(struct sim *sim, enum fault fault, int rank, uint64_t freeze_ns)
{
    if (fault == FAULT_FREEZE || fault == FAULT_STALL)
        sim->frozen_until[rank] = sim->now_ns + freeze_ns;
    if (fault == FAULT_CUT)
        mem_net_cut(sim->net, rank, (rank + 1) % sim->size);
    if (fault == FAULT_CRASH) {
        sim_cut_off(sim, rank);
        sim->frozen_until[rank] = NEVER_NS;
    }
    if (fault == FAULT_CLOSE)
        sim_close_node(sim, rank);
}

bool fault_loses(enum fault fault)
{
    return fault == FAULT_CUT || fault == FAULT_CRASH || fault == FAULT_CLOSE;
}

const char *fault_name(enum fault fault)
{
    static const char *const names[FAULTS] = {"none",  "cancel", "refuse", "late", "freeze",
                                              "stall", "cut",    "crash",  "close"};
    return names[fault];
}

void sim_stop(struct sim *sim)
{
    for (int i = 0; i < sim->size; i++)
        if (sim->nodes[i])
            sim_close_node(sim, i);
}

hearth_group *sim_world(struct sim *sim, int rank)
{
    return hearth_node_world(sim->nodes[rank]);
}

void sim_settle(struct sim *sim)
{
    bool moved = true;
    int first = (int)prng_below(&sim->prng, (uint64_t)sim->size);
    while (moved) {
        moved = false;
        for (int i = 0; i < sim->size; i++) {
            int rank = (first + i) % sim->size;
            hearth_node *node = sim->frozen_until[rank] <= sim->now_ns ? sim->nodes[rank] : NULL;
            moved = (node && node_progress(node)) || moved;
            sim->turns++;
        }
    }
}

bool sim_step(struct sim *sim, uint64_t until_ns)
{
    sim_settle(sim);
    uint64_t next = mem_net_next(sim->net);
    for (int i = 0; i < sim->size; i++) {
        uint64_t deadline = sim->nodes[i] ? engine_deadline(sim->nodes[i]->engine) : NEVER_NS;
        if (sim->frozen_until[i] > sim->now_ns)
            deadline = sim->frozen_until[i];
        next = deadline < next ? deadline : next;
    }
    if (next == NEVER_NS || next > until_ns)
        return false;
    if (next <= sim->now_ns)
        fail_msg("nothing moves, but something is due: this would hang");
    sim->now_ns = next;
    sim_settle(sim);
    return true;
}

void sim_run_until(struct sim *sim, uint64_t until_ns)
{
    while (sim_step(sim, until_ns))
        continue;
    if (until_ns != NEVER_NS && until_ns > sim->now_ns)
        sim->now_ns = until_ns;
    sim_settle(sim);
}

int sim_status(const hearth_request *request)
{
    return request->settled ? request->completion.error.status : HEARTH_PENDING;
}

/* ---- seeds ---- */

static uint64_t current_seed;

uint64_t run_seeds(unsigned long usual, unsigned again, uint64_t (*run)(uint64_t seed))
{
    uint64_t last = first_seed() + repeat_count(usual), sum = 0;
    for (current_seed = first_seed(); current_seed < last; current_seed++) {
        uint64_t result = run(current_seed);
        if (again > 0 && current_seed % again == 0)
            assert_int_equal(run(current_seed), result); /* same bytes, times and log */
        sum += result;
    }
    return sum;
}

int say_seed(void **state)
{
    printf("seed %llu\n", (unsigned long long)current_seed);
    return 0;
}
