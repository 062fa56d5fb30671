/* SPDX-License-Identifier: Apache-2.0 */
/* The copier of a node: one thread that copies between device and host memory, so that no caller and no
 * holder of the baton waits for a device. Jobs in and jobs out take turns, piece by piece. It keeps the host
 * memory of staged buffers between calls. */
#pragma once

#include "node/node.h"

/* Whether there is an adapter: without one it is host memory. */
static inline bool memory_is_device(const struct hearth_memory *memory)
{
    return memory->copy_in;
}
/* Reads an adapter of any version. HEARTH_INVALID: the text names `call` and the missing function. */
int MUST_CHECK memory_read(const char *call, const struct hearth_memory *given, struct hearth_memory *own);
/* The memory of a call's buffers: that of its options, else of its group. `given` may be NULL. */
int MUST_CHECK memory_choose(const char *call, const hearth_group *group, const struct hearth_memory *given,
                             struct hearth_memory *own);
extern const struct hearth_memory memory_host; /* for options of the library's own operations */

/* Device memory and its place in host memory. */
struct copy_range {
    void *device, *host;
    size_t len;
};

/* The owner fills it in and keeps it, with its ranges, until `done`. */
struct copy_job {
    struct hearth_memory memory;
    const struct copy_range *ranges;
    size_t count;
    bool out;
    /* Called by the copier without locks. `moved` (NULL: none): so many bytes are copied, but not yet all.
     * `done`: the job is the owner's again. HEARTH_COPY_FAILED, or HEARTH_CANCELLED after `stop` was set. */
    void (*moved)(struct copy_job *job, size_t len);
    void (*done)(struct copy_job *job, const struct error *error);
    _Atomic(bool) stop; /* set by any thread: ends at the next piece */
    struct list item;   /* from here on the copier's */
    size_t range, offset, passed;
};

/* Opened by the first who needs it; stopped when the node closes. NULL: no memory, no thread. */
struct copier *copier_of(hearth_node *node);
void copier_submit(struct copier *copier, struct copy_job *job);
bool copier_step(struct copier *copier); /* on virtual time: copies once; true: progress */
void copier_stop(struct copier *copier); /* when nothing is submitted any more but by jobs; NULL is allowed */
void copier_free(struct copier *copier); /* NULL is allowed */

/* On the calling thread, all at once. */
int MUST_CHECK copy_now(const struct hearth_memory *memory, bool out, const struct copy_range *ranges,
                        size_t count, struct error *error);

/* Host memory, content undefined; NULL: no memory. copier_give: NULL is allowed. */
void *copier_take(struct copier *copier, size_t len);
void copier_give(struct copier *copier, void *block);
