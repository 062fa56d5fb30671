/* SPDX-License-Identifier: Apache-2.0 */
/* Members of groups that are formed anew train a model: what each step must hold. */
#ifndef CONFORM_TRAINING_H
#define CONFORM_TRAINING_H

#include "conform/formed.h"

#define TRAINING_CODECS 8
extern const char *const training_codecs[TRAINING_CODECS];

/* What is left behind of each tensor. */
struct residuals {
    double *of[TENSORS];
};

struct training {
    struct model model[FORMED_MAX];
    struct residuals before[FORMED_MAX]; /* the step */
    const char *codec;
    int leaver, step;
    uint64_t seed;
    int count, member[FORMED_MAX]; /* whose gradients are in the last step's result */
};

void training_open(struct training *t, struct formed *f, const char *codec, uint64_t seed);
void training_close(struct training *t);
void residuals_read(const struct model *m, struct residuals *r);

/* The member's gradients of this step, and what is left behind before it. */
void training_fill(struct training *t, int member);
void contributors(struct training *t, const int *members, int count);
/* The next step, by fn for each member. */
void run_step(struct formed *f, struct training *t, formed_fn *fn);
formed_fn whole_step, complete; /* complete: the wait alone, of a struct training */
/* All members hold the same, and what they have put in. Where one that took part is gone, what it kept is
 * gone too. */
void check_step(const struct formed *f, const struct training *t);
void train_on(struct formed *f, struct training *t); /* two steps */

#endif
