/* SPDX-License-Identifier: Apache-2.0 */
/* Members of groups that are formed anew train a model: what each step must hold. */
#pragma once

#include "conform/cluster_group.h"

#define TRAINING_CODECS 8
extern const char *const training_codecs[TRAINING_CODECS];

/* What is left behind of each tensor. */
struct residuals {
    double *of[TENSORS];
};

struct training {
    struct model model[CLUSTER_GROUP_MAX];
    struct residuals before[CLUSTER_GROUP_MAX]; /* the step */
    const char *codec;
    int leaver, step;
    uint64_t seed;
    int count, member[CLUSTER_GROUP_MAX]; /* whose gradients are in the last step's result */
};

void training_open(struct training *t, struct cluster_group *f, const char *codec, uint64_t seed);
void training_close(struct training *t);
void residuals_read(const struct model *m, struct residuals *r);

/* The member's gradients of this step, and what is left behind before it. */
void training_fill(struct training *t, int member);
void contributors(struct training *t, const int *members, int count);
/* The next step, by fn for each member. */
void run_step(struct cluster_group *f, struct training *t, cluster_group_fn *fn);
cluster_group_fn whole_step, complete; /* complete: the wait alone, of a struct training */
/* All members hold the same, and what they have put in. Where one that took part is gone, what it kept is
 * gone too. */
void check_step(const struct cluster_group *f, const struct training *t);
void train_on(struct cluster_group *f, struct training *t); /* two steps */
