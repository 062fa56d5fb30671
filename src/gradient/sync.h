/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of a model on their way. The public face is in hearth.h; this is what its files share:
 *
 *   sync.c         registers tensors; checks the caller's arguments
 *   sync_agree.c   members compare what they registered, and where they stand, once in each group
 *   sync_step.c    a step: buckets start as their tensors become ready; the wait ends it
 *   sync_vote.c    in formed groups: a step is committed by all members or by none
 *   sync_move.c    goes on with the next group
 *   sync_decide.c  what becomes of a step then
 *
 * A step, as one bucket sees it:
 *
 *   open --all its tensors are ready--> full --members agree--> starting --> flying --wait--> done
 *     ^                                                            |            |              |
 *     |                                                            +--> failed <+              |
 *     +--------------- made ready again ----------------------------------+                    |
 *     +--------------- next step, when all are done -------------------------------------------+
 *
 * In a launched group buckets are reduced in place where they can be. What has ended well stays done when
 * another bucket has failed: its result is in place, its compressor state has moved on, and so it is with
 * all members. Only what failed is sent again.
 *
 * In a formed group a bucket may have ended well for one member and not for another, which lost a third one
 * in the middle of it. There results stand in the buckets' own memory (as much as the tensors have),
 * gradients stay as they were, and a compressor's state of before stands in its shadows, until the step is
 * committed:
 *
 *              +------ a bucket failed, here or elsewhere: aborted <------+---------------+
 *              v                                                          |               |
 *   open --all buckets done, voted--> prepared --all are prepared--> committed            |
 *                                        |                               ^  wait writes   |
 *                                        +--vote not heard--> doubt -----+--- reform -----+
 *
 * The lock is never held while an operation is started, waited for or ended: that may run callbacks of the
 * user, who may make another tensor ready in them. Instead a thread takes a tensor or a bucket for itself by
 * its state. */
#pragma once

#include "gradient/bucket.h"
#include "gradient/sync_decide.h"
#include "gradient/tensors.h"
#include "node/node.h"

#define SYNC_TENSORS_MAX 16384u

enum tensor_progress {
    TENSOR_IDLE,
    TENSOR_COMING, /* a thread is in hearth_sync_ready with it */
    TENSOR_READY,
    TENSOR_DONE, /* reduced, in a step of which something else has failed */
    TENSOR_AGAIN /* was ready in an attempt that was aborted: the wait sends it as it is then */
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
    void *memory;     /* fused: where its tensors stand together; formed group: where the result stands */
    uint32_t missing; /* tensors that are not there yet */
    bool unwritten;   /* done, but its result could not be copied to the device */
    enum bucket_progress progress;
    uint32_t next_full; /* in the list of those that may start, or BUCKET_NOBODY */
    hearth_request *request;
    bool adopt;    /* a member does not have its compressor state: all go on with the step below */
    uint64_t step; /* of the compressor's tensor */
};

/* What a member says of its registration, and where it stands. */
struct registration {
    uint64_t tensors, digest;
    uint64_t joined, steps, lineage, round; /* as in struct sync_record */
};

/* Of a step in a formed group. */
enum sync_stage {
    STAGE_OPEN,
    STAGE_PREPARED, /* it has all results, and votes for the step */
    STAGE_DOUBT,    /* the vote was not heard: the next group decides */
    STAGE_COMMITTED /* it has: the wait need only write the results */
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
    void *memory; /* hearth_mem_alloc: of all fused buckets */

    enum agreement agreement;
    struct registration *registrations; /* [size] */
    struct registration own;
    hearth_request *question; /* NULL: not asked */

    bool formed;     /* its group can be formed anew: a step is committed by all members or by none */
    bool voted;      /* in this attempt at the step */
    bool spoiled;    /* a bucket has failed in it */
    uint32_t landed; /* buckets that are done or have failed in it */
    enum sync_stage stage;
    bool taken;  /* committed: another member of the group has written the result */
    bool joined; /* has begun a step since it was new or fell behind: its model is that of these steps */
    uint64_t attempt, steps, lineage, round; /* as in struct sync_record */
    uint64_t promised;                       /* the last round that it has promised */
    uint64_t *places;                        /* [size][bucket_count] compressor_place, while compared */
    hearth_request *comparison;              /* NULL: there is none */
    struct error objection;                  /* of the comparison, or why there is none */
    uint64_t ballot, *ballots;               /* our own; [size]: 1: a bucket has failed */
    hearth_request *vote;                    /* NULL: there is none */
    struct sync_luggage {                    /* for a group that it will move to */
        struct registration *registrations;
        uint64_t *ballots;
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
uint64_t sync_tag_of(const hearth_sync *sync, uint64_t what); /* of its operations: TAG_ASK ... */
struct hearth_opts sync_opts(hearth_sync *sync, uint64_t what,
                             hearth_done_fn *done); /* called with the sync */
void request_drop(hearth_request **request);        /* closes it; NULL then */

/* ---- sync_agree.c ---- */

/* A number for all that must be the same on all members. With the lock. */
void sync_register(hearth_sync *sync);
/* Asks the others, unless that has been done. Never blocks; what goes wrong shows in sync_agree. */
void sync_ask(hearth_sync *sync);
/* Waits for the answers. HEARTH_MISMATCH: the text names who differs and in which tensor, and it stays so.
 * After other errors it may be called again. */
int MUST_CHECK sync_agree(hearth_sync *sync, uint64_t deadline_ns);
void sync_forget(hearth_sync *sync); /* takes the question back */
/* Goes on from where the members are that have joined before. With the lock; registrations are known. */
void sync_join(hearth_sync *sync);

enum { TAG_ASK = 0, TAG_EXPLAIN = 1, TAG_COMPARE = 2, TAG_VOTE = 3 };

/* ---- sync_vote.c: formed groups ---- */

/* A bucket has ended, well or not; any thread. The last of them begins the vote. */
void sync_landed(hearth_sync *sync, int status);
/* Waits for the vote; what it says against the step becomes its failure. In doubt about it the step stays
 * prepared, and the group has ended. */
void sync_vote_finish(hearth_sync *sync, uint64_t deadline_ns);
/* The step is given up: nobody waits for a vote that we owe. If it was cast, the step ends as it says. */
void sync_vote_drop(hearth_sync *sync, bool owed);
/* The step is committed. With the lock. */
void sync_commit(hearth_sync *sync);
/* The same, and its results go where the gradients are. HEARTH_COPY_FAILED: it is committed, but not written;
 * the next wait tries again. */
int MUST_CHECK sync_commit_write(hearth_sync *sync, struct error *error);
/* Takes back what its buckets have left in the compressor. With the lock. */
void sync_abort(hearth_sync *sync);
/* The next group has committed the step, but its result is not wanted. With the lock. */
void sync_give_up(hearth_sync *sync);

/* ---- sync_move.c ---- */

int sync_move(struct attachment *attachment, const struct group_move *move, struct error *error);
extern const struct reconciler sync_reconciler;
/* Asks at which step each bucket's tensor is; sync_agree waits for it. A completion callback may call it. */
void sync_compare(hearth_sync *sync);

/* ---- sync_step.c ---- */

/* Of several failures the one that breaks most is told, and of those the first. With the lock. `bucket` NULL:
 * of the whole step. */
void sync_failure(hearth_sync *sync, const struct sync_bucket *bucket, const struct error *why);
size_t sync_memory_len(const hearth_sync *sync); /* of all fused buckets */
void sync_spread(hearth_sync *sync);             /* each gets its part of it */
void sync_tag(hearth_sync *sync);                /* the tags of its buckets, after its id */
/* Its memory to its tensors. Fails only where they are in device memory. */
int MUST_CHECK sync_write(hearth_sync *sync, const struct sync_bucket *bucket, struct error *error);
/* Nothing is in flight and nothing done; its tensors become what is given. */
void sync_reopen(hearth_sync *sync, enum tensor_progress progress);
/* Ends what is in flight, lets nothing start. For a move. */
void sync_ground(hearth_sync *sync);

/* Makes the buckets. With the lock; HEARTH_NO_MEMORY or HEARTH_LIMIT leave things as they were. */
int MUST_CHECK sync_freeze(hearth_sync *sync);
void sync_melt(hearth_sync *sync); /* frees what that made */
/* The tensor is the calling thread's (TENSOR_COMING): puts it in its bucket, starts what is full. */
void sync_take(hearth_sync *sync, struct sync_tensor *tensor);
/* Starts the buckets that are full, if members agree. */
void sync_start_full(hearth_sync *sync);
/* Sends again what an aborted attempt has left. All tensors are ready then. */
void sync_resend(hearth_sync *sync);
/* Waits for all buckets, brings home what ended well; all tensors are ready. The worst failure, if any. */
int MUST_CHECK sync_finish(hearth_sync *sync, uint64_t deadline_ns);
/* Takes back what is in flight and lets the others know of what never was; then nothing is ready.
 * `closing`: there will be no next step either. */
void sync_abandon(hearth_sync *sync, bool closing);

/* Milliseconds until then, rounded up. */
int64_t sync_remaining_ms(const hearth_sync *sync, uint64_t deadline_ns);
