/* SPDX-License-Identifier: Apache-2.0 */
/* One compressed all-reduce, from the call to the commit. */
#pragma once

#include "compress/codec.h"
#include "gradient/price.h"
#include "gradient/tensor.h"

struct reduction_call {
    hearth_group *group;
    void *buffer; /* in place */
    size_t count;
    enum hearth_dtype dtype;
    enum hearth_op op;
    struct codec codec;         /* chosen; the same on all members */
    enum reduction_algo algo;   /* likewise */
    size_t rows, columns;       /* powersgd */
    void *residual;             /* the caller's, updated by one copy at the end; NULL: see state */
    struct tensor_state *state; /* swapped at the end; NULL: nothing is kept. Its `busy` is set at the start
                                   and cleared at the end. */
    bool feedback; /* false: what is not sent is lost; residual and state's residual are not touched */
    uint64_t key;  /* what codecs draw by; 0: by the operation's number. state: mixed with its step */
    const struct hearth_opts *opts; /* NULL: the defaults */
};

/* Arguments are checked here (types, operation, options, the guard's limit). A refused call uses no sequence
 * number. Errors go to the thread's last error; _start's request is as every other. */
int reduction_run(const struct reduction_call *call);
int reduction_start(const struct reduction_call *call, hearth_request **request);

/* Memory that the call needs on this member beyond the user's buffers, shadows included. */
size_t reduction_memory(const struct reduction_call *call, int size);
