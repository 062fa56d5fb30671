/* SPDX-License-Identifier: Apache-2.0 */
/* Opens nodes for a measurement: in memory, or by sockets and shared memory as processes would. */
#include "cli/bench/bench_nodes.h"

#include <stdio.h>
#include <string.h>

#include "cli/shared/rank_threads.h"
#include "cli/shared/secret_handover.h"
#include "cli/shared/text.h"
#include "node/local.h"

struct openers {
    struct hearth_config config;
    hearth_node **nodes;
    int status[BENCH_RANKS_MAX];
    char error[BENCH_RANKS_MAX][256];
};

int bench_line_check(const struct bench_line *line, const struct usage *usage)
{
    bool mem = strcmp(line->transport, "mem") == 0;
    bool quic = strcmp(line->transport, "quic") == 0;
    if (!mem && !quic && strcmp(line->transport, "tcp") != 0 && strcmp(line->transport, "shm") != 0)
        return args_refuse(usage, "--transport %s is not there; this version has: " BENCH_TRANSPORTS,
                           line->transport);
    if (!mem && line->rtt_s > 0)
        return args_refuse(usage, "--rtt is for --transport mem; %s is as fast as it is", line->transport);
    if (mem && line->plain)
        return args_refuse(usage, "--plain is for tcp and shm; mem has no connections to encrypt");
    if (quic && line->plain)
        return args_refuse(usage, "--plain is for tcp and shm; quic is always encrypted");
    return ARGS_GO;
}

/* Memory of one process has no connections. */
bool bench_line_secure(const struct bench_line *line)
{
    return strcmp(line->transport, "mem") != 0 && !secret_handover_is_plain(line->plain);
}

void bench_line_text(const struct bench_line *line, char *text, size_t size)
{
    int len = snprintf(text, size, ", transport %s%s", line->transport, line->plain ? ", plain" : "");
    if (line->rate > 0)
        len += snprintf(text + len, size - (size_t)len, ", %s a node", text_rate(line->rate).s);
    if (line->rtt_s > 0)
        snprintf(text + len, size - (size_t)len, ", rtt %s", text_time(line->rtt_s).s);
}

static void job_open(void *arg, int index)
{
    struct openers *o = arg;
    struct hearth_config config = o->config;
    config.rank = index;
    o->status[index] = hearth_open(&config, &o->nodes[index]);
    if (o->status[index])
        snprintf(o->error[index], sizeof o->error[index], "%s", hearth_error_text());
}

/* All at once, since each waits for the others. */
static int open_joined(struct openers *o, const struct bench_line *line)
{
    char rendezvous[64];
    struct rank_threads threads;
    int bad = -1;
    snprintf(rendezvous, sizeof rendezvous, "unix:@hearth-bench-%d", process_id());
    o->config.rendezvous = rendezvous;
    o->config.peers = NULL;
    o->config.world_size = line->ranks;
    o->config.transport = line->transport;
    if (!rank_threads_open(&threads, line->ranks))
        return command_fail("bench allreduce", "no threads for %d nodes; try fewer --ranks", line->ranks);
    rank_threads_run(&threads, job_open, o);
    rank_threads_close(&threads);
    for (int i = 0; i < line->ranks; i++)
        bad = o->status[i] ? i : bad;
    for (int i = 0; i < line->ranks && bad >= 0; i++)
        hearth_close(o->nodes[i]);
    if (bad < 0)
        return EXIT_GOOD;
    return command_fail("bench allreduce", "cannot open node %d: %s", bad, o->error[bad]);
}

int bench_nodes_open(const struct bench_line *line, hearth_log_fn *log, void *log_arg, hearth_node *nodes[])
{
    struct openers o = {.nodes = nodes};
    memset(nodes, 0, (size_t)line->ranks * sizeof *nodes);
    if (strcmp(line->transport, "mem") != 0 && !secret_handover_here("bench allreduce", line->plain))
        return EXIT_FAILED_CHECK;
    hearth_config_init(&o.config);
    int status = hearth_config_env(&o.config);
    o.config.op_timeout_ms = BENCH_OP_TIMEOUT_MS;
    o.config.log = log;
    o.config.log_arg = log_arg;
    o.config.log_level = HEARTH_LOG_DEBUG;
    if (line->rate > 0)
        o.config.rate = (uint64_t)(line->rate * 8);
    if (status == HEARTH_OK && strcmp(line->transport, "mem") != 0)
        return open_joined(&o, line);
    if (status == HEARTH_OK)
        status = local_open_far(&o.config, line->ranks, (uint64_t)(line->rtt_s / 2 * 1e9), nodes);
    if (status == HEARTH_OK)
        return EXIT_GOOD;
    return command_fail("bench allreduce", "cannot open %d nodes: %s", line->ranks, hearth_error_text());
}
