/* SPDX-License-Identifier: Apache-2.0 */
/* One collective with the buffers of all its members: filled, called, compared with the reference. */
#pragma once

#include "conform/fixture.h"
#include "support/fake_device.h"

enum kind {
    ALL_REDUCE,
    REDUCE_SCATTER,
    REDUCE_SCATTERV,
    ALL_GATHER,
    ALL_GATHERV,
    BROADCAST,
    REDUCE,
    GATHER,
    GATHERV,
    SCATTER,
    SCATTERV,
    ALL_TO_ALL,
    ALL_TO_ALLV,
    SCAN,
    EXCLUSIVE_SCAN,
    BARRIER,
    KIND_COUNT
};

enum { DTYPES = 10, OPS = 8, ALGOS = 8 };

/* WHOLE: small whole numbers, so that every sum and product is exact in every type. ANY: floats of mixed
 * size, integers of all sizes (64 bits: below 2^48 for averages, which are exact then). */
enum values { WHOLE, ANY };

struct job {
    enum kind kind;
    int size;
    size_t count; /* elements per part */
    /* v-variants: [i] what member i gives or gets; ALL_TO_ALLV: [i * size + j] what i sends to j. */
    size_t counts[MEMBERS_MAX * MEMBERS_MAX];
    enum hearth_dtype dtype;
    enum hearth_op op;
    int root;
    bool in_place, nonblocking;
    bool null_target; /* members that get nothing pass NULL */
    size_t offset;    /* bytes by which the buffers stand off an aligned address */
    enum values values;
    uint64_t seed;
    double weight[MEMBERS_MAX];
    struct fake_device *device; /* where the buffers are; NULL: host memory */
    struct hearth_opts opts;

    /* filled by job_prepare */
    void *memory[MEMBERS_MAX][2]; /* what malloc gave */
    void *input[MEMBERS_MAX];     /* a copy of what the source holds */
    void *source[MEMBERS_MAX], *target[MEMBERS_MAX];
    int status[MEMBERS_MAX];
    char text[MEMBERS_MAX][TEXT_MAX];
};

const char *kind_name(enum kind kind);
bool kind_has_op(enum kind kind);
bool kind_has_root(enum kind kind);
bool kind_is_vector(enum kind kind);
/* Every member has the same result. */
bool kind_is_same(enum kind kind);
/* Whether the algorithm can do it, for 2 or 4 members (HEARTH_ALGO_HALVING: few elements, but of all_reduce);
 * the v-variants are left to HEARTH_ALGO_AUTO. */
bool kind_is_done_by(enum kind kind, enum hearth_algo algo);

/* A job with default options and weight 1. */
void job_init(struct job *job, enum kind kind, int size, size_t count);
/* Uneven counts for a v-variant, drawn from the seed: about `count` each, some zero. */
void job_draw_counts(struct job *job);
size_t job_source_count(const struct job *job, int rank);
size_t job_target_count(const struct job *job, int rank);
/* Counts as the call takes them, for one member of ALL_TO_ALLV. */
void job_to_counts(const struct job *job, int rank, size_t *to);
void job_from_counts(const struct job *job, int rank, size_t *from);
/* Where the own part stands in the buffer of all parts, in elements. */
size_t job_own_offset(const struct job *job, int rank);

void job_prepare(struct job *job);
void job_free(struct job *job);
/* The call of one member; NULL for the request: it blocks. */
int job_call(const struct job *job, hearth_group *group, int rank);
int job_start(const struct job *job, hearth_group *group, int rank, hearth_request **request);
/* Prepares, calls on all members' worlds. Status and text of each are in the job then. */
void job_run(struct job *job, struct fixture *c);
/* All returned HEARTH_OK, and the results are right, and the same bits where they must be. */
void job_check(const struct job *job);
/* All three, and frees. */
void job_do(struct job *job, struct fixture *c);
/* "all_reduce of 5 f32 sum by ring on 4 ...", static memory of the thread. */
const char *job_name(const struct job *job);
