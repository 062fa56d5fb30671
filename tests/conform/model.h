/* SPDX-License-Identifier: Apache-2.0 */
/* A model's gradients, of many shapes and types, on one member: for tests of hearth_sync. */
#pragma once

#include "conform/reference.h"

enum { TENSORS = 24 };

struct shape {
    enum hearth_dtype dtype;
    int ndim;
    size_t dims[3];
};
extern const struct shape model_shapes[TENSORS];

size_t model_count(int index); /* elements */
size_t model_len(int index);

/* One member's model: gradients, what they were before the step, what plain all-reduces make of them. */
struct model {
    hearth_sync *sync;
    void *data[TENSORS], *before[TENSORS], *wanted[TENSORS];
};

/* Registers a tensor of the shape: its index or status. */
int model_add(hearth_sync *sync, int index, const char *name, void *data);
/* Opens a sync and registers all as "layerI.weight". */
void model_open(struct model *m, hearth_group *group, const char *codec, enum hearth_op op);
void model_close(struct model *m);
/* Small whole numbers: every order of summing them gives the same bits, in all types. */
void model_fill(struct model *m, int rank, int step);
/* Fills in `wanted`; all members call it. */
void model_reduce(struct model *m, hearth_group *group, enum hearth_op op, double weight);
bool model_holds(const struct model *m, int index, void *const *what);
void model_check(const struct model *m, void *const *what, const char *text);
/* All tensors on all members alike. */
void model_same(const struct model *m, hearth_group *group);

void model_order(int order[TENSORS], uint64_t seed);
void model_ready(struct model *m, uint64_t seed); /* in an order of its own */
