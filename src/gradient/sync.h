/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of a model on their way. The public face is in hearth.h; this is what its files share:
 *
 *   sync.c        registers tensors; checks the caller's arguments
 *   sync_agree.c  members compare what they registered, once
 *   sync_step.c   a step: buckets start as their tensors become ready; the wait ends it
 *
 * A step, as one bucket sees it:
 *
 *   open --all its tensors are ready--> full --members agree--> starting --> flying --wait--> done
 *     ^                                                            |            |              |
 *     |                                                            +--> failed <+              |
 *     +--------------- made ready again ----------------------------------+                    |
 *     +--------------- next step, when all are done -------------------------------------------+
 *
 * What has ended well stays done when another bucket has failed: its result is in place, its compressor state
 * has moved on, and so it is with all members. Only what failed is sent again.
 *
 * The lock is never held while an operation is started, waited for or ended: that may run callbacks of the
 * user, who may make another tensor ready in them. Instead a thread takes a tensor or a bucket for itself by
 * its state. */
#ifndef GRADIENT_SYNC_H
#define GRADIENT_SYNC_H

#include "gradient/bucket.h"
#include "gradient/tensors.h"
#include "node/node.h"

#define SYNC_TENSORS_MAX 16384u

enum tensor_progress {
    TENSOR_IDLE,
    TENSOR_COMING, /* a thread is in hearth_sync_ready with it */
    TENSOR_READY,
    TENSOR_DONE /* reduced, in a step of which something else has failed */
};

struct sync_tensor {
    char *name;
    uint64_t name_hash;
    uint64_t codec_hash; /* of the codecs it goes by */
    void *data;
    struct tensor_form form;
    struct bucket_item item;
    enum tensor_progress progress;
};

enum bucket_progress { BUCKET_OPEN, BUCKET_FULL, BUCKET_STARTING, BUCKET_FLYING, BUCKET_DONE, BUCKET_FAILED };

struct sync_bucket {
    struct bucket plan;
    uint64_t tag;
    void *memory;     /* fused: where its tensors stand together */
    uint32_t missing; /* tensors that are not there yet */
    enum bucket_progress progress;
    uint32_t next_full; /* in the list of those that may start, or BUCKET_NOBODY */
    hearth_request *request;
};

/* What a member says of its registration. */
struct registration {
    uint64_t tensors, digest;
};

enum agreement { AGREE_UNKNOWN, AGREE_ASKING, AGREE_SAME, AGREE_DIFFERS, AGREE_FAILED };

struct hearth_sync {
    struct attachment attachment; /* to the node */
    hearth_node *node;            /* between steps it may be closed after its group */
    hearth_group *group;
    struct heap *heap;
    hearth_compressor *compressor;
    bool owner; /* of the compressor */
    enum hearth_op op;
    uint64_t id; /* the same on all members: of its tags */
    double weight;

    struct mutex lock;
    struct sync_tensor *tensors;
    uint32_t tensor_count, tensor_capacity;
    bool frozen; /* buckets are made, tensors are no longer added */
    struct sync_bucket *buckets;
    uint32_t bucket_count;
    void *memory; /* hearth_alloc: of all fused buckets */

    enum agreement agreement;
    struct registration *registrations; /* [size] */
    struct registration own;
    hearth_request *question; /* NULL: not asked */

    bool begun;           /* a tensor became ready since the last wait that ended well, failed, or a drop */
    bool waiting;         /* a thread is in hearth_sync_wait */
    uint32_t first_full;  /* of the list, or BUCKET_NOBODY */
    struct error failure; /* the worst since the last wait; HEARTH_OK: none */
    struct error broken;  /* why there will be no step; HEARTH_OK: there may */
};

/* ---- sync_agree.c ---- */

/* A number for all that must be the same on all members. With the lock. */
void sync_register(hearth_sync *sync);
/* Asks the others, unless that has been done. Never blocks; what goes wrong shows in sync_agree. */
void sync_ask(hearth_sync *sync);
/* Waits for the answers. HEARTH_MISMATCH: the text names who differs and in which tensor, and it stays so.
 * After other errors it may be called again. */
int MUST_CHECK sync_agree(hearth_sync *sync, uint64_t deadline_ns);
void sync_forget(hearth_sync *sync); /* takes the question back */

/* ---- sync_step.c ---- */

/* Makes the buckets. With the lock; HEARTH_NO_MEMORY or HEARTH_LIMIT leave things as they were. */
int MUST_CHECK sync_freeze(hearth_sync *sync);
void sync_melt(hearth_sync *sync); /* frees what that made */
/* The tensor is the calling thread's (TENSOR_COMING): puts it in its bucket, starts what is full. */
void sync_take(hearth_sync *sync, struct sync_tensor *tensor);
/* Starts the buckets that are full, if members agree. */
void sync_start_full(hearth_sync *sync);
/* Waits for all buckets, brings home what ended well; all tensors are ready. The worst failure, if any. */
int MUST_CHECK sync_finish(hearth_sync *sync, uint64_t deadline_ns);
/* Takes back what is in flight and lets the others know of what never was; then nothing is ready. */
void sync_abandon(hearth_sync *sync);

/* Milliseconds until then, rounded up. */
int64_t sync_remaining_ms(uint64_t deadline_ns);

#endif
