/* SPDX-License-Identifier: Apache-2.0 */
/* The part of bench_kernels that measures codecs. */
#pragma once

#include "cli/shared/json.h"
#include "kernel/kernel.h"

struct codec_bench {
    size_t bytes; /* of the tensor, f32 */
    const struct kernels *kernels;
    const char *match; /* NULL: all */
    int threads;
    json_t *doc; /* NULL: a table for people */
};

/* Whether there is a row that fits `match`. */
bool bench_codecs_fit(const char *match);
/* Gives the number of rows whose bits are wrong; -1 with a message: no memory or no threads. */
int bench_codecs_run(const struct codec_bench *bench);
