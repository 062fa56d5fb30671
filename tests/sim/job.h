/* SPDX-License-Identifier: Apache-2.0 */
/* One collective as all members call it: buffers, what must come out, and what did. */
#pragma once

#include "collective/plan.h"
#include "virtual.h"

struct job_member {
    void *input;                /* what it gave, untouched */
    void *buffer;               /* source and target in place, else both one after the other */
    void *source, *target;      /* NULL: none */
    size_t in_count, out_count; /* elements */
    size_t given[SIM_MAX];      /* v-variants: elements to each */
    size_t taken[SIM_MAX];      /* and from each */
    double weight;
    hearth_request *request;
    int status;         /* of the post; then of the request */
    struct error error; /* why, where it ended badly */
    uint64_t ended_ns;
};

struct job {
    enum plan_kind kind;
    bool vector; /* counts are given by lists */
    bool exact;  /* small whole numbers: every order of combination gives the same */
    bool in_place;
    int size, root;
    size_t count;
    size_t counts[SIM_MAX]; /* of each member's part (gather, scatter, reduce_scatter: of the lists) */
    enum hearth_dtype dtype;
    enum hearth_op op;
    struct hearth_opts opts;
    struct job_member member[SIM_MAX];
};

/* Draws everything but the tag; `count_max` bounds the elements of a member's largest buffer. */
void job_draw(struct job *job, struct prng *prng, int size, size_t count_max);
/* The same but for one thing, drawn from the seed, that all members must agree on. */
void job_vary(struct job *job, const struct job *like, struct prng *prng);
/* An all_reduce of f32, in place, filled: for what is not about collectives. */
void job_plain(struct job *job, int size, size_t count);
void job_free(struct job *job);

/* Calls it on one member. The status goes to member[rank] too. */
int job_post(struct job *job, hearth_group *group, int rank);
/* On all members' worlds but that of `except` (RANK_NONE: on all); it must be accepted. */
void job_post_all(struct job *job, struct sim *sim, int except);
/* Notes what has ended; true if all that were posted have. */
bool job_collect(struct job *job, uint64_t now_ns);
/* Compares the member's buffers with what must be there after its status. Fails the test with a text. */
void job_check(const struct job *job, int rank);
/* And across members: where all get the same, all have the same bits. */
void job_check_all(const struct job *job);
uint64_t job_hash(const struct job *job, uint64_t hash); /* of all results, statuses, times */
const char *job_name(const struct job *job);             /* static memory */
