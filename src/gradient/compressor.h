/* SPDX-License-Identifier: Apache-2.0 */
/* A compressor, for the files of this room (hearth.h has the rest). */
#pragma once

#include "gradient/policy.h"
#include "gradient/tensors.h"
#include "node/node.h"

struct hearth_compressor {
    struct attachment attachment; /* to the group's node */
    hearth_node *node;            /* so that it can be closed after its group */
    hearth_group *group;
    struct mutex lock; /* of all below; not held while an operation starts or runs */
    bool closing;
    uint64_t operations; /* started so far */
    uint64_t seed;       /* that codecs draw by, with name and step: the same on all members, kept by save */
    struct policy policy;
    struct tensors tensors;
};

/* HEARTH_OK, or why nothing can be done with it: NULL, or in a forked child. */
int MUST_CHECK node_check(const char *call, hearth_node *node);
int MUST_CHECK compressor_check(const char *call, const hearth_compressor *compressor);
/* Under the lock: the step that runs or comes next, and how the tensor goes then. */
struct policy_question compressor_question(const struct tensor *tensor);
void compressor_choose(const hearth_compressor *compressor, const struct policy_question *question,
                       const struct tensor *tensor, struct policy_answer *answer,
                       struct reduction_choice *choice);

/* ---- for syncs ---- */

/* hearth_compressor_all_reduce_nb; `staged` as in struct reduction_call. */
int compressor_start(hearth_compressor *compressor, const struct hearth_tensor *tensor, enum hearth_op op,
                     const struct hearth_opts *opts, void *staged, hearth_request **request);
/* Twice the tensor's step, and 1 if it has factors; 0: it is new. */
uint64_t compressor_place(hearth_compressor *compressor, const char *name);
/* Takes the tensor's last operation back. False: it was reset, loaded or used since. */
bool compressor_undo(hearth_compressor *compressor, const char *name);
void compressor_forget(hearth_compressor *compressor, const char *name); /* as if it were new */
/* The tensor, which need not be known yet, goes on with the others' step. powersgd begins anew: who comes to
 * them does not have its factors. */
int MUST_CHECK compressor_adopt(hearth_compressor *compressor, const char *name,
                                const struct tensor_form *form, uint64_t step);
