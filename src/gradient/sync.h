/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of a model on their way. The public face is in hearth.h; this is what its files share:
 *
 *   sync.c        registers tensors; checks the caller's arguments
 *   sync_agree.c  members compare what they registered, once
 *   sync_step.c   a step: buckets start as their tensors become ready; the wait ends it
 *   sync_vote.c   in formed groups: a step has ended only when it has for all
 *   sync_move.c   goes on with the next group: what was done of the step, and by whom
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
 * In a formed group that is not so: a bucket may have ended well for one member and not for another, which
 * lost a third one in the middle of it. There a step ends with a vote. Until that has gone well every bucket
 * can be taken back: what was copied together goes home only then, of the others a copy is kept
 * (sync_bucket.kept: as much memory as these tensors have, one copy of them per step), and a compressor's
 * state of before stands in its shadows. In the next group members say what they have done (standing):
 *
 *   - nobody has voted that the step is over: what all have done stays, everything else is made again
 *   - somebody has: then everybody had all buckets, and who has not heard of it ends the step by itself
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
    hearth_sync *sync;
    uint64_t tag;
    void *memory;     /* fused: where its tensors stand together */
    void *kept;       /* formed group, not fused: the gradient as it was, while the step lasts */
    uint32_t missing; /* tensors that are not there yet */
    enum bucket_progress progress;
    uint32_t next_full; /* in the list of those that may start, or BUCKET_NOBODY */
    hearth_request *request;
    bool held;     /* it was done in a group before this one */
    bool redo;     /* but not by all: it is made again */
    bool adopt;    /* somebody came who does not have its compressor state: all go on with the step below */
    uint64_t step; /* of the compressor's tensor */
};

/* What a member says of its registration. */
struct registration {
    uint64_t tensors, digest;
    uint64_t moved; /* 1: it was in a group before this one */
    uint64_t steps; /* and has ended so many there and here */
};

/* What a member says of a bucket when the group is another. */
struct standing {
    uint64_t held; /* 1: it has done it, in the step that had not ended */
    struct tensor_place place;
};

/* What a member says when its buckets have ended. */
struct ballot {
    uint64_t steps, failed;
};

enum agreement { AGREE_UNKNOWN, AGREE_ASKING, AGREE_COMPARING, AGREE_SAME, AGREE_DIFFERS, AGREE_FAILED };

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

    bool formed;                /* its group can be formed anew: a step ends for all members or for none */
    bool moved;                 /* out of another group, and members have not compared yet */
    bool over;                  /* the step has ended elsewhere, so it does here */
    bool voted;                 /* in this attempt at the step */
    bool spoiled;               /* a bucket has failed in it */
    uint32_t landed;            /* buckets that are done or have failed in it */
    uint64_t steps;             /* that have ended well */
    struct standing *standings; /* [size][bucket_count], while they are compared */
    hearth_request *comparison; /* NULL: there is none */
    struct error objection;     /* of the comparison, or why there is none */
    struct ballot ballot, *ballots; /* our own; [size] */
    hearth_request *vote;           /* NULL: there is none */
    struct sync_luggage {           /* for a group that it will move to */
        struct registration *registrations;
        struct ballot *ballots;
        void *memory;
    } luggage;

    bool begun;           /* a tensor became ready since the last wait that ended well, failed, or a drop */
    bool waiting;         /* a thread is in hearth_sync_wait */
    uint32_t first_full;  /* of the list, or BUCKET_NOBODY */
    struct error failure; /* the worst since the last wait; HEARTH_OK: none */
    struct error broken;  /* why there will be no step; HEARTH_OK: there may */
};

/* ---- sync.c ---- */

uint64_t sync_next_id(hearth_group *group); /* the n-th sync of a group is the same one on all members */

/* ---- sync_agree.c ---- */

/* A number for all that must be the same on all members. With the lock. */
void sync_register(hearth_sync *sync);
/* Asks the others, unless that has been done. Never blocks; what goes wrong shows in sync_agree. */
void sync_ask(hearth_sync *sync);
/* Waits for the answers. HEARTH_MISMATCH: the text names who differs and in which tensor, and it stays so.
 * After other errors it may be called again. */
int MUST_CHECK sync_agree(hearth_sync *sync, uint64_t deadline_ns);
void sync_forget(hearth_sync *sync); /* takes the question back */

enum { TAG_ASK = 0, TAG_EXPLAIN = 1, TAG_COMPARE = 2, TAG_VOTE = 3 };

/* ---- sync_vote.c: formed groups ---- */

/* A bucket has ended, well or not; any thread. The last of them begins the vote. */
void sync_landed(hearth_sync *sync, int status);
/* Waits for the vote; what it says against the step becomes its failure. */
void sync_vote_finish(hearth_sync *sync, uint64_t deadline_ns);
/* The step is given up: nobody waits for our vote. */
void sync_vote_drop(hearth_sync *sync, bool flying);
/* The next attempt begins with so many buckets that are done. */
void sync_vote_reset(hearth_sync *sync);

/* ---- sync_move.c ---- */

int sync_move(struct attachment *attachment, const struct passage *way, struct error *error);
/* Asks who has done what; sync_agree waits for it. A completion callback may call it. */
void sync_compare(hearth_sync *sync);
/* The bucket is full. HEARTH_OK: its gradients are as they were, and it may be sent; HEARTH_PENDING: it was
 * done before, and stays so. */
int MUST_CHECK sync_resume(hearth_sync *sync, struct sync_bucket *bucket);
/* The step is given up: so is what the bucket's tensor left in the compressor. */
void sync_undo(hearth_sync *sync, struct sync_bucket *bucket);

/* ---- sync_step.c ---- */

/* Of several failures the one that breaks most is told, and of those the first. With the lock. `bucket` NULL:
 * of the whole step. */
void sync_failure(hearth_sync *sync, const struct sync_bucket *bucket, const struct error *why);
size_t sync_memory_len(const hearth_sync *sync); /* of all fused buckets */
void sync_spread(hearth_sync *sync);             /* each gets its part of it */
void sync_tag(hearth_sync *sync);                /* the tags of its buckets, after its id */
/* Between the bucket's memory and the tensors'. */
void sync_copy(hearth_sync *sync, struct sync_bucket *bucket, bool home);
/* Ends what is in flight, lets nothing start; what is done stays so. For a move. */
void sync_ground(hearth_sync *sync);

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
