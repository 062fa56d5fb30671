/* SPDX-License-Identifier: Apache-2.0 */
/* Opens nodes for a measurement: in memory, or by sockets and shared memory as processes would. */
#include "cli/bench/bench_nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/shared/secret_handover.h"
#include "cli/shared/stats.h"
#include "cli/shared/text.h"
#include "node/local.h"

struct openers {
    struct hearth_config config;
    struct bench_nodes *nodes;
};

int bench_line_check(const struct bench_line *line, const struct usage *usage)
{
    static const char *const names[] = {"mem", "quic", "tcp", "shm"};
    size_t at = 0, count = sizeof names / sizeof *names;
    while (at < count && strcmp(line->transport, names[at]) != 0)
        at++;
    if (at == count)
        return args_refuse(usage, "--transport %s is not there; this version has: " BENCH_TRANSPORTS,
                           line->transport);
    if (at > 0 && line->rtt_s > 0)
        return args_refuse(usage, "--rtt is for --transport mem; %s is as fast as it is", line->transport);
    if (at < 2 && line->plain)
        return args_refuse(usage, "--plain is for tcp and shm; %s",
                           at == 0 ? "mem has no connections to encrypt" : "quic is always encrypted");
    return ARGS_GO;
}

static bool is_memory(const struct bench_line *line)
{
    return strcmp(line->transport, "mem") == 0;
}

/* Memory of one process has no connections. */
bool bench_line_secure(const struct bench_line *line)
{
    return !is_memory(line) && !secret_handover_is_plain(line->plain);
}

void bench_line_text(const struct bench_line *line, char *text, size_t size)
{
    int len = snprintf(text, size, ", transport %s%s", line->transport, line->plain ? ", plain" : "");
    if (line->rate > 0)
        len += snprintf(text + len, size - (size_t)len, ", %s a node", text_rate(line->rate).s);
    if (line->rtt_s > 0)
        snprintf(text + len, size - (size_t)len, ", rtt %s", text_time(line->rtt_s).s);
}

void bench_block_make(struct bench_block *block, enum hearth_dtype dtype, int sum_max, int ranks, int rank)
{
    size_t element_len = hearth_dtype_size(dtype);
    for (int i = 0; i < BENCH_PERIOD; i++) {
        int value = 0;
        for (int r = 0; r < ranks; r++)
            value += rank == RANK_NONE || rank == r ? (i * 31 + r * 17) % (sum_max / ranks + 1) : 0;
        pattern_encode(dtype, value, block->bytes + (size_t)i * element_len);
    }
    block->len = BENCH_PERIOD * element_len;
}

size_t bench_largest(const struct arg_list *sizes)
{
    size_t most = 0;
    for (size_t i = 0; i < sizes->count; i++)
        most = sizes->item[i] > most ? sizes->item[i] : most;
    return (most + 63) / 64 * 64;
}

void bench_note_failure(struct bench_node *n, int status)
{
    n->status = status;
    if (status)
        snprintf(n->error, sizeof n->error, "%s", hearth_error_text());
}

static void job_open(void *arg, int index)
{
    struct openers *o = arg;
    struct hearth_config config = o->config;
    struct bench_node *n = &o->nodes->list[index];
    config.rank = index;
    bench_note_failure(n, hearth_node_open(&config, &n->node));
}

/* All at once, since each waits for the others. */
static int open_joined(struct openers *o, const struct bench_line *line)
{
    char rendezvous[64];
    snprintf(rendezvous, sizeof rendezvous, "unix:@hearth-bench-%d", process_id());
    o->config.rendezvous = rendezvous;
    o->config.peers = NULL;
    o->config.world_size = line->ranks;
    o->config.transport = line->transport;
    rank_threads_run(&o->nodes->threads, job_open, o);
    for (int i = 0; i < line->ranks; i++) {
        if (o->nodes->list[i].status)
            return command_fail(line->command, "cannot open node %d: %s", i, o->nodes->list[i].error);
    }
    return EXIT_GOOD;
}

static int open_nodes(struct openers *o, const struct bench_line *line)
{
    hearth_node *nodes[BENCH_RANKS_MAX];
    if (hearth_config_env(&o->config)) {
        command_fail(line->command, "%s", hearth_error_text());
        return EXIT_USAGE;
    }
    o->config.op_timeout_ms = BENCH_OP_TIMEOUT_MS;
    o->config.log_level = HEARTH_LOG_DEBUG;
    if (line->rate > 0)
        o->config.rate = (uint64_t)(line->rate * 8);
    if (!is_memory(line))
        return open_joined(o, line);
    if (local_open_far(&o->config, line->ranks, (uint64_t)(line->rtt_s / 2 * 1e9), nodes))
        return command_fail(line->command, "cannot open %d nodes: %s", line->ranks, hearth_error_text());
    for (int r = 0; r < line->ranks; r++)
        o->nodes->list[r].node = nodes[r];
    return EXIT_GOOD;
}

static int take_memory(struct bench_nodes *b, const struct arg_list *sizes, bool sources)
{
    size_t most = bench_largest(sizes);
    bool enough = true;
    for (int r = 0; r < b->ranks && enough; r++) {
        b->list[r].group = hearth_node_world(b->list[r].node);
        enough = (b->list[r].buffer = aligned_alloc(64, most)) &&
                 (!sources || (b->list[r].source = aligned_alloc(64, most)));
    }
    if (enough)
        return EXIT_GOOD;
    return command_fail(b->command, "no memory for %d buffers of %s; try a smaller --bytes",
                        b->ranks * (1 + sources), text_bytes((double)most).s);
}

int bench_nodes_open(struct bench_nodes *b, const struct bench_line *line, const struct arg_list *sizes,
                     bool sources, hearth_log_fn *log, void *log_arg)
{
    struct openers o = {.nodes = b};
    *b = (struct bench_nodes){.command = line->command};
    if (!is_memory(line) && !secret_handover_here(line->command, line->plain))
        return EXIT_FAILED_CHECK;
    if (!rank_threads_open(&b->threads, line->ranks))
        return command_fail(line->command, "no threads for %d nodes; try fewer --ranks", line->ranks);
    b->ranks = line->ranks;
    hearth_config_init(&o.config);
    o.config.log = log;
    o.config.log_arg = log_arg;
    int code = open_nodes(&o, line);
    return code ? code : take_memory(b, sizes, sources);
}

void bench_nodes_close(struct bench_nodes *b)
{
    for (int r = 0; r < b->ranks; r++) {
        hearth_node_close(b->list[r].node);
        free(b->list[r].buffer);
        free(b->list[r].source);
    }
    if (b->ranks > 0)
        rank_threads_close(&b->threads);
    b->ranks = 0;
}

int bench_nodes_run(struct bench_nodes *b, rank_threads_job *job, void *arg, size_t bytes)
{
    rank_threads_run(&b->threads, job, arg);
    for (int r = 0; r < b->ranks; r++) {
        if (b->list[r].status)
            return command_fail(b->command, "node %d, %s: %s: %s", r, text_bytes((double)bytes).s,
                                hearth_status_name(b->list[r].status), b->list[r].error);
    }
    return EXIT_GOOD;
}

static uint64_t sent_by(const struct bench_node *n)
{
    uint64_t sent = 0, received;
    return hearth_group_traffic(n->group, &sent, &received) ? 0 : sent;
}

void bench_nodes_mark(struct bench_nodes *b)
{
    for (int r = 0; r < b->ranks; r++)
        b->list[r].sent = sent_by(&b->list[r]);
}

uint64_t bench_nodes_sent(const struct bench_nodes *b)
{
    uint64_t most = 0;
    for (int r = 0; r < b->ranks; r++) {
        uint64_t sent = sent_by(&b->list[r]) - b->list[r].sent;
        most = sent > most ? sent : most;
    }
    return most;
}
