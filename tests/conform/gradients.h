/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors with gradients that all tests draw alike, and compressors for them. */
#pragma once

#include "conform/fixture.h"

struct kind {
    const char *name, *codec; /* codec NULL: the compressor's */
    enum hearth_dtype dtype;
    int ndim;
    size_t dims[3];
};

size_t kind_count(const struct kind *kind);
/* Numbers from -1 to 1 (f16: 1 to 2), the larger the rarer, other ones for each member, step and tensor. */
void fill(const struct kind *kind, void *data, int rank, int step);
struct hearth_tensor tensor_of(const struct kind *kind, void *data);

hearth_compressor *open_compressor(hearth_group *group, const char *codec, uint64_t warmup, uint64_t ramp);
/* The saved state, to be freed. */
void *save(hearth_compressor *compressor, size_t *len);
struct hearth_compressor_stats stats_of(hearth_compressor *compressor, const char *name);
