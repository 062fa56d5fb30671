/* SPDX-License-Identifier: Apache-2.0 */
/* What a member that starts a measurement or the demo tells the machines that are up: who starts it, and what
 * is to be done. As bytes, since they may run another version. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hearth.h>

#define CLUSTER_BENCH_JOB "hearth-bench"
#define CLUSTER_DEMO_JOB  "hearth-demo"

#define CLUSTER_PLAN_LEN  1024 /* bytes, always all of them */
#define CLUSTER_CODEC_MAX 64   /* with the final 0 */
#define CLUSTER_SIZES_MAX 32
#define CLUSTER_LANES_MAX 5
#define CLUSTER_BYTES_MAX (UINT64_C(1) << 30) /* of a buffer that a starter may ask others for */

enum cluster_plan_kind { CLUSTER_PLAN_BENCH = 1, CLUSTER_PLAN_DEMO = 2 };

struct bench_plan {
    uint64_t sizes[CLUSTER_SIZES_MAX]; /* bytes; multiples of 4, from 4 to CLUSTER_BYTES_MAX */
    uint32_t size_count;
    uint32_t repeat; /* calls of each size, 1 to 10,000 */
    char codec[CLUSTER_CODEC_MAX];
};

struct demo_plan {
    uint64_t seed;
    uint64_t data_hash;               /* of the images: who has the same need not be sent them */
    uint32_t train_count, test_count; /* images */
    uint32_t width, height, classes;
    uint32_t hidden, batch, steps_max, test_images;
    float rate, target;         /* of learning; share of the test images that are to be right */
    uint32_t lanes, first_lane; /* how many; the first that is not done */
    char codecs[CLUSTER_LANES_MAX][CLUSTER_CODEC_MAX];
};

struct cluster_plan {
    enum cluster_plan_kind kind;
    union {
        struct bench_plan bench;
        struct demo_plan demo;
    };
};

void cluster_plan_encode(const struct cluster_plan *plan, uint8_t bytes[static CLUSTER_PLAN_LEN]);
/* false: `why` says what is wrong with it. Every value is within its limits then. */
bool cluster_plan_decode(struct cluster_plan *plan, const uint8_t bytes[static CLUSTER_PLAN_LEN],
                         const char **why);

/* Collective: who starts something tells it to all others. `plan`: ours, if we start; what is to be done,
 * afterwards. *starter is the rank of who started, of several the lowest. HEARTH_INVALID (starter -1): nobody
 * does; HEARTH_PROTOCOL: the plan is not one. Else the status of the operation. */
int cluster_plan_share(hearth_group *group, bool starts, struct cluster_plan *plan, int *starter);

/* Whether a machine is lost, so that those that are left can go on. */
bool cluster_lost(int status);
/* After that: forms the job again with those that are left, at least two, and says who is gone, like "anna
 * and ben". On failure *group is NULL; hearth_error_text says why. */
int cluster_form_again(hearth_node *node, const char *job, hearth_group **group, char *gone, size_t size);

/* "anna, ben and carl": appends the name that has this index of so many. */
void name_list_add(char *text, size_t size, const char *name, int index, int count);
/* The members of a group, by rank, for free(); the id is empty where it is not known. NULL: no memory. */
struct hearth_member *cluster_members(hearth_group *group, int *count);
