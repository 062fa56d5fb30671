/* SPDX-License-Identifier: Apache-2.0 */
/* What a member that starts a measurement or the demo tells the machines that are up.
 *
 * The bytes, little endian: "HPLN", version (4), kind (4), then the fields in the order of the structure;
 * texts have their whole length, zero at the end. */
#include "cli/cluster/cluster_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"

#define PLAN_MAGIC   0x4e4c5048u
#define PLAN_VERSION 2u

/* ---- bytes ---- */

/* One walk through the fields writes them or reads them. */
struct plan_walk {
    struct writer *to; /* NULL: reads */
    struct reader *from;
};

static void walk_u64(const struct plan_walk *k, uint64_t *value)
{
    if (k->to)
        put_u64(k->to, *value);
    else
        *value = get_u64(k->from);
}

static void walk_u32(const struct plan_walk *k, uint32_t *value)
{
    if (k->to)
        put_u32(k->to, *value);
    else
        *value = get_u32(k->from);
}

static void walk_real(const struct plan_walk *k, float *value)
{
    uint32_t bits;
    memcpy(&bits, value, sizeof bits);
    walk_u32(k, &bits);
    memcpy(value, &bits, sizeof bits);
}

static void walk_text(const struct plan_walk *k, char text[static CLUSTER_CODEC_MAX])
{
    if (k->to)
        put_bytes(k->to, text, CLUSTER_CODEC_MAX);
    else
        get_bytes(k->from, text, CLUSTER_CODEC_MAX);
}

static void walk_bench(const struct plan_walk *k, struct bench_plan *plan)
{
    for (int i = 0; i < CLUSTER_SIZES_MAX; i++)
        walk_u64(k, &plan->sizes[i]);
    walk_u32(k, &plan->size_count);
    walk_u32(k, &plan->repeat);
    walk_text(k, plan->codec);
}

static void walk_demo(const struct plan_walk *k, struct demo_plan *plan)
{
    uint32_t *numbers[] = {&plan->train_count, &plan->test_count, &plan->width,     &plan->height,
                           &plan->classes,     &plan->hidden,     &plan->batch,     &plan->steps_max,
                           &plan->test_images, &plan->lanes,      &plan->first_lane};
    walk_u64(k, &plan->seed);
    walk_u64(k, &plan->data_hash);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        walk_u32(k, numbers[i]);
    walk_real(k, &plan->rate);
    walk_real(k, &plan->target);
    for (int i = 0; i < CLUSTER_LANES_MAX; i++)
        walk_text(k, plan->codecs[i]);
}

void cluster_plan_encode(const struct cluster_plan *plan, uint8_t bytes[static CLUSTER_PLAN_LEN])
{
    struct cluster_plan copy = *plan;
    struct writer w = writer_of(bytes, CLUSTER_PLAN_LEN);
    memset(bytes, 0, CLUSTER_PLAN_LEN);
    put_u32(&w, PLAN_MAGIC);
    put_u32(&w, PLAN_VERSION);
    put_u32(&w, (uint32_t)plan->kind);
    if (plan->kind == CLUSTER_PLAN_BENCH)
        walk_bench(&(struct plan_walk){.to = &w}, &copy.bench);
    else
        walk_demo(&(struct plan_walk){.to = &w}, &copy.demo);
}

/* ---- limits ---- */

static bool codec_is_good(const char *codec)
{
    return memchr(codec, 0, CLUSTER_CODEC_MAX) && hearth_codec_check(codec) == HEARTH_OK;
}

static const char *judge_bench(const struct bench_plan *plan)
{
    if (plan->size_count < 1 || plan->size_count > CLUSTER_SIZES_MAX)
        return "the number of sizes";
    for (uint32_t i = 0; i < plan->size_count; i++) {
        if (plan->sizes[i] < 4 || plan->sizes[i] % 4 || plan->sizes[i] > CLUSTER_BYTES_MAX)
            return "a size";
    }
    if (plan->repeat < 1 || plan->repeat > 10000)
        return "the number of calls";
    return codec_is_good(plan->codec) ? NULL : "the codec";
}

static bool is_within(uint32_t value, uint32_t low, uint32_t high)
{
    return value >= low && value <= high;
}

static const char *judge_demo(const struct demo_plan *plan)
{
    if (!is_within(plan->train_count, 1, 1u << 20) || !is_within(plan->test_count, 1, 1u << 20) ||
        !is_within(plan->width, 1, 1024) || !is_within(plan->height, 1, 1024) ||
        !is_within(plan->classes, 1, 256))
        return "the images";
    if ((uint64_t)(plan->train_count + plan->test_count) * plan->width * plan->height > CLUSTER_BYTES_MAX)
        return "the size of the images";
    if (!is_within(plan->hidden, 256, 4096) || plan->hidden % 256)
        return "the hidden layer";
    if (!is_within(plan->batch, 1, 8192) || plan->batch > plan->train_count)
        return "the batch";
    if (!is_within(plan->steps_max, 1, 2500) || !is_within(plan->test_images, 1, plan->test_count))
        return "the number of steps";
    if (!isfinite(plan->rate) || !(plan->rate > 0) || !(plan->target > 0) || !isfinite(plan->target))
        return "the rates";
    if (!is_within(plan->lanes, 1, CLUSTER_LANES_MAX) || plan->first_lane >= plan->lanes)
        return "the number of codecs";
    for (uint32_t i = 0; i < plan->lanes; i++) {
        if (!codec_is_good(plan->codecs[i]))
            return "a codec";
    }
    return NULL;
}

bool cluster_plan_decode(struct cluster_plan *plan, const uint8_t bytes[static CLUSTER_PLAN_LEN],
                         const char **why)
{
    struct reader r = reader_of(bytes, CLUSTER_PLAN_LEN);
    const struct plan_walk walk = {.from = &r};
    uint32_t magic = get_u32(&r), version = get_u32(&r), kind = get_u32(&r);
    *plan = (struct cluster_plan){.kind = (enum cluster_plan_kind)kind};
    *why = NULL;
    if (magic != PLAN_MAGIC || version != PLAN_VERSION) {
        *why = "its version";
    } else if (kind == CLUSTER_PLAN_BENCH) {
        walk_bench(&walk, &plan->bench);
        *why = judge_bench(&plan->bench);
    } else if (kind == CLUSTER_PLAN_DEMO) {
        walk_demo(&walk, &plan->demo);
        *why = judge_demo(&plan->demo);
    } else {
        *why = "its kind";
    }
    return !*why;
}

/* ---- telling it ---- */

/* The lowest rank that starts something, -1: none. */
static int find_starter(hearth_group *group, bool starts, int *starter)
{
    int32_t mine = starts ? hearth_group_rank(group) : INT32_MAX;
    int status = hearth_all_reduce(group, &mine, &mine, 1, HEARTH_I32, HEARTH_OP_MIN, NULL);
    *starter = status || mine == INT32_MAX ? -1 : mine;
    return status ? status : *starter < 0 ? HEARTH_INVALID : HEARTH_OK;
}

int cluster_plan_share(hearth_group *group, bool starts, struct cluster_plan *plan, int *starter)
{
    uint8_t bytes[CLUSTER_PLAN_LEN] = {0};
    const char *why;
    int status = find_starter(group, starts, starter);
    if (status)
        return status;
    if (*starter == hearth_group_rank(group))
        cluster_plan_encode(plan, bytes);
    status = hearth_broadcast(group, bytes, sizeof bytes, HEARTH_U8, *starter, NULL);
    if (!status && !cluster_plan_decode(plan, bytes, &why))
        return HEARTH_PROTOCOL;
    return status;
}

/* ---- going on ---- */

bool cluster_lost(int status)
{
    return status == HEARTH_VIEW_CHANGED || status == HEARTH_PEER_LOST || status == HEARTH_ABORTED ||
           status == HEARTH_GROUP_BROKEN;
}

struct hearth_member *cluster_members(hearth_group *group, int *count)
{
    *count = hearth_group_size(group);
    struct hearth_member *list = calloc((size_t)*count, sizeof *list);
    for (int rank = 0; list && rank < *count; rank++) {
        list[rank].size = sizeof *list;
        if (hearth_group_member(group, rank, &list[rank]))
            list[rank].id[0] = 0;
    }
    return list;
}

/* Takes out of the list one that is still there. */
static void cross_out(struct hearth_member *list, int *count, const char *id)
{
    for (int i = 0; i < *count; i++) {
        if (strcmp(list[i].id, id) != 0)
            continue;
        memmove(&list[i], &list[i + 1], (size_t)(--*count - i) * sizeof *list);
        return;
    }
}

void name_list_add(char *text, size_t size, const char *name, int index, int count)
{
    size_t at = strlen(text);
    snprintf(text + at, size - at, "%s%s", index == 0 ? "" : index == count - 1 ? " and " : ", ", name);
}

int cluster_form_again(hearth_node *node, const char *job, hearth_group **group, char *gone, size_t size)
{
    int before = 0, now = 0;
    struct hearth_member *old = cluster_members(*group, &before), *next = NULL;
    hearth_group_close(*group);
    *group = NULL;
    int status = hearth_group_form(node, job, 2, NULL, group);
    if (!status)
        next = cluster_members(*group, &now);
    for (int i = 0; old && next && i < now; i++)
        cross_out(old, &before, next[i].id);
    snprintf(gone, size, "%s", old && next && before > 0 ? "" : "a member");
    for (int i = 0; old && next && i < before; i++)
        name_list_add(gone, size, old[i].name[0] ? old[i].name : "a member", i, before);
    free(old);
    free(next);
    return status;
}
