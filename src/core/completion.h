/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of an operation; lives in the caller's request. Written under the node's baton. */
#pragma once

#include "core/error.h"
#include "core/list.h"

struct op;
struct transfer;

struct completion {
    struct list item; /* engine: finished, not yet collected */
    bool ended;
    struct error error;        /* status HEARTH_OK: committed */
    struct op *op;             /* while it runs: a collective, */
    struct transfer *transfer; /* or a message */
    /* NULL: the completion of a request. Else called with the baton when it is collected, instead. */
    void (*hook)(struct completion *completion);
};
