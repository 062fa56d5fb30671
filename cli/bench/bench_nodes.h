/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes that `bench allreduce` and `bench messages` measure, and the line between them. */
#pragma once

#include <hearth.h>

#include "cli/shared/args.h"
#include "cli/shared/rank_threads.h"
#include "core/types.h"

#define BENCH_RANKS_MAX     64
#define BENCH_TRANSPORTS    "mem, tcp, quic, shm"
#define BENCH_OP_TIMEOUT_MS (10 * 60 * 1000)

struct bench_line {
    const char *command; /* for messages: "bench allreduce" */
    const char *transport;
    int ranks;
    double rate;  /* bytes a second that a node sends at most; 0: as the environment says */
    double rtt_s; /* mem: there and back; 0: none */
    bool plain;   /* tcp, shm: not encrypted */
};

/* After parsing: ARGS_GO, or an exit code after a message. */
int bench_line_check(const struct bench_line *line, const struct usage *usage);
bool bench_line_secure(const struct bench_line *line);
/* ", transport mem, 100 Mbit/s, rtt 1 ms", into text. */
void bench_line_text(const struct bench_line *line, char *text, size_t size);

/* What buffers hold before and after a sum, repeated. The period is a prime, so that a piece at a wrong place
 * shows. */
#define BENCH_PERIOD 1021 /* elements */
struct bench_block {
    uint8_t bytes[BENCH_PERIOD * 8];
    size_t len;
};
/* The input of a rank, or the sum of all (RANK_NONE), of which no element is above `sum_max`. */
void bench_block_make(struct bench_block *block, enum hearth_dtype dtype, int sum_max, int ranks, int rank);

size_t bench_largest(const struct arg_list *sizes); /* rounded up for aligned_alloc(64) */

/* One of them, with its thread: what a job finds, and what became of it. */
struct bench_node {
    hearth_node *node;
    hearth_group *group;
    uint8_t *buffer, *source; /* of the largest size; `source` where it was asked for */
    uint64_t sent;            /* bytes, at bench_nodes_mark */
    int status;               /* a job's last call, which failed as `error` says */
    char error[512];
};

struct bench_nodes {
    const char *command; /* of the line */
    struct rank_threads threads;
    int ranks;
    struct bench_node list[BENCH_RANKS_MAX];
};

/* Opens the nodes in this process, with a thread and memory for each. EXIT_GOOD, or another code after a
 * message; to be closed in either case. */
int bench_nodes_open(struct bench_nodes *b, const struct bench_line *line, const struct arg_list *sizes,
                     bool sources, hearth_log_fn *log, void *log_arg);
void bench_nodes_close(struct bench_nodes *b);
/* All do the job. EXIT_GOOD, or a message about a call that failed; `bytes` of each. */
int bench_nodes_run(struct bench_nodes *b, rank_threads_job *job, void *arg, size_t bytes);
/* What the busiest node has sent since the mark. */
void bench_nodes_mark(struct bench_nodes *b);
uint64_t bench_nodes_sent(const struct bench_nodes *b);
void bench_note_failure(struct bench_node *n, int status); /* in a job */
