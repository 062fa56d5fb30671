/* SPDX-License-Identifier: Apache-2.0 */
/* An imagined cluster for `plan` and `sim`: from flags to a view, to the plans of all ranks and a dry run. */
#pragma once

#include "cli/shared/args.h"
#include "cli/shared/progress.h"
#include "collective/dryrun.h"
#include "collective/select.h"
#include "gradient/price.h"

#define PLAN_SETUP_ARGS      17
#define PLAN_SETUP_RANKS_MAX 100000

struct plan_setup {
    /* What the user says. */
    int ranks, root;
    int kind, dtype; /* enum plan_kind, enum hearth_dtype */
    bool bytes_given;
    size_t bytes;          /* of the whole buffer: where each rank has a part, of all parts together */
    struct arg_list hosts; /* ranks of each host, over and over; empty: all on one */
    double rate, rtt_s, inside_rate, inside_rtt_s; /* bytes/s and s; of one host: without --hosts not used */
    double combine_rate, overhead_s;               /* 0: costs nothing */
    size_t chunk_bytes, window_bytes, memory_max;
    int slots, messages_max;

    /* What follows from it. */
    int *host; /* [ranks] or NULL */
    struct group_view view;
    struct plan_call call; /* of rank 0; algo is HEARTH_ALGO_AUTO */
};

/* What a dry run of one algorithm gave, or why there was none. */
struct rehearsal {
    bool done;
    bool failed; /* the plans cannot be written or do not fit: a bug */
    char why[ERROR_TEXT_MAX];
    double price_s; /* by the cost model */
    struct dry_result result;
};

void plan_setup_init(struct plan_setup *setup);
/* Writes the PLAN_SETUP_ARGS flags that describe a scene. */
void plan_setup_args(struct plan_setup *setup, struct arg *args);
/* After parsing. ARGS_GO or an exit code, with a message. */
int plan_setup_build(struct plan_setup *setup, const struct usage *usage);
void plan_setup_fini(struct plan_setup *setup);

/* The call as one rank makes it. */
struct plan_call plan_setup_call(const struct plan_setup *setup, enum hearth_algo algo, int rank);
/* What auto stands for here, or the algorithm itself. ARGS_GO, or the exit code after a message. */
int plan_setup_choose(const struct plan_setup *setup, const struct usage *usage, enum hearth_algo algo,
                      enum hearth_algo *chosen);
double plan_setup_price(const struct plan_setup *setup, enum hearth_algo algo); /* not finite: none */
/* Bytes on one rank: of the whole buffer, as rounded to elements and parts. */
size_t plan_setup_bytes(const struct plan_setup *setup);
/* Seconds no algorithm can go below: the busiest port at full rate. 0 where there is no such bound. */
double plan_setup_bound(const struct plan_setup *setup);
/* "all_reduce of 1 MiB of f32 on 8 ranks, 1 Gbit/s, rtt 200 us", into text. */
void plan_setup_line(const struct plan_setup *setup, char *text, size_t size);

/* Frames and payload bytes a plan sends, all lanes together. */
uint64_t plan_messages(const struct plan *plan);
uint64_t plan_sent(const struct plan *plan);

/* The plans of `count` ranks from `first` on, for plan_setup_free. */
struct plan_range {
    enum hearth_algo algo;
    int first, count;
    struct progress *progress; /* NULL: not shown */
};
int MUST_CHECK plan_setup_write(const struct plan_setup *setup, const struct plan_range *range,
                                struct heap *heap, struct plan **plans, struct error *error);
void plan_setup_free(struct plan *plans, int count);

/* Writes the plans of all ranks and runs them. What would need too much memory or time is not tried.
 * `label`: how far it is is shown so; NULL: nothing is. */
void plan_setup_rehearse(const struct plan_setup *setup, enum hearth_algo algo, const char *label,
                         struct rehearsal *out);

/* Names by index for ARG_CHOICE. */
const char *plan_setup_kind(int index);
const char *plan_setup_dtype(int index);
const char *plan_setup_algo(int index); /* "auto" first */

#define MODEL_SIDE 4096 /* rows and columns of a layer */
/* What a step of training costs: a model of so many parameters is layers of MODEL_SIDE x MODEL_SIDE, one with
 * fewer rows, and the rest, which goes plain as small tensors do. */
struct model_price {
    struct reduction_choice layer;                    /* what a layer does */
    double bytes, wire_s, kernel_s, total_s, plain_s; /* of all, in flight together */
};
struct model_price model_price(const struct codec_list *list, size_t params, enum hearth_dtype dtype,
                               const struct group_view *view);
