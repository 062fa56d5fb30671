/* SPDX-License-Identifier: Apache-2.0 */
/* hearth bench allreduce --compress: a compressed all_reduce in turns with the plain one. */
#pragma once

#include "cli/bench/bench_nodes.h"
#include "cli/shared/json.h"

struct compressed_bench {
    struct bench_line line;
    const char *codec;
    enum hearth_algo algo; /* of the plain one */
    int iters;             /* rounds; 0: by the time they take */
    const struct arg_list *sizes;
};

/* An exit code. Prints a table, or rows into `doc` if it is not NULL. */
int bench_compressed(const struct compressed_bench *setup, json_t *doc);
