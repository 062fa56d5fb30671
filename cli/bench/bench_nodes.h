/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes that `bench allreduce` measures, and the line between them. */
#ifndef CLI_BENCH_NODES_H
#define CLI_BENCH_NODES_H

#include <hearth.h>

#include "cli/shared/args.h"

#define BENCH_RANKS_MAX     64
#define BENCH_TRANSPORTS    "mem, tcp, quic, shm"
#define BENCH_OP_TIMEOUT_MS (10 * 60 * 1000)

struct bench_line {
    const char *transport;
    int ranks;
    double rate;  /* bytes a second that a node sends at most; 0: as the environment says */
    double rtt_s; /* mem: there and back; 0: none */
    bool plain;   /* tcp, shm: not encrypted */
};

/* After parsing: ARGS_GO, or an exit code after a message. */
int bench_line_check(const struct bench_line *line, const struct usage *usage);
/* Opens nodes[line->ranks] in this process. EXIT_GOOD, or another code after a message. */
int bench_nodes_open(const struct bench_line *line, hearth_log_fn *log, void *log_arg, hearth_node *nodes[]);
bool bench_line_secure(const struct bench_line *line);
/* ", transport mem, 100 Mbit/s, rtt 1 ms", into text. */
void bench_line_text(const struct bench_line *line, char *text, size_t size);

#endif
