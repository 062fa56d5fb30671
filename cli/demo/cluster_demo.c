/* SPDX-License-Identifier: Apache-2.0 */
/* The demo among machines: what every member does in `hearth demo --cluster`. */
#include "cli/demo/cluster_demo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"

#define ATTEMPTS 64  /* machines that may be lost, one after the other */
#define GONE_MAX 512 /* their names */

/* ---- the race of a plan ---- */

static void ignore_lane(void *arg, const struct race_track *lane)
{
    (void)arg;
    (void)lane;
}

static void ignore(void *arg)
{
    (void)arg;
}

void cluster_demo_race(const struct demo_plan *plan, int ranks, struct race *race)
{
    *race = (struct race){.ranks = ranks, .target = (double)plan->target, .steps_max = plan->steps_max};
    race->test_images = plan->test_images;
    race->lane_count = (int)plan->lanes;
    for (int i = 0; i < race->lane_count; i++) {
        const char *codec = plan->codecs[i];
        race->lanes[i] = (struct race_track){
            .name = strcmp(codec, "none") == 0 ? "plain" : codec, .codec = codec, .like = -1};
    }
    race->lane_begins = race->point_seen = race->lane_ended = ignore_lane;
    race->trouble = ignore;
}

/* ---- the images ---- */

uint64_t cluster_demo_hash(const struct dataset *train, const struct dataset *test)
{
    const struct dataset *sets[] = {train, test};
    uint64_t hash = 0;
    for (int i = 0; i < 2; i++) {
        size_t pixels = (size_t)sets[i]->width * (size_t)sets[i]->height;
        hash = hash64(hash, sets[i]->images.bytes, sets[i]->count * pixels);
        hash = hash64(hash, sets[i]->labels.bytes, sets[i]->count);
    }
    return hash;
}

/* Are the images that the plan speaks of on this machine? */
static bool read_here(struct cluster_demo *d)
{
    struct error error;
    if (!d->data || dataset_read(d->data, "train", &d->train, &error))
        return false;
    bool same = dataset_read(d->data, "t10k", &d->test, &error) == HEARTH_OK &&
                d->train.count == d->plan->demo.train_count && d->test.count == d->plan->demo.test_count &&
                cluster_demo_hash(&d->train, &d->test) == d->plan->demo.data_hash;
    if (!same) {
        dataset_free(&d->train);
        dataset_free(&d->test);
    }
    return same;
}

static bool make_room(const struct demo_plan *plan, size_t count, struct dataset *set)
{
    size_t pixels = (size_t)plan->width * plan->height;
    *set = (struct dataset){.count = count,
                            .width = (int)plan->width,
                            .height = (int)plan->height,
                            .classes = (int)plan->classes};
    set->images.bytes = malloc(count * pixels);
    set->labels.bytes = malloc(count);
    return set->images.bytes && set->labels.bytes;
}

/* From the starter, who is the first of those in `few`. */
static int send_images(struct cluster_demo *d, hearth_group *few)
{
    size_t pixels = (size_t)d->plan->demo.width * d->plan->demo.height;
    struct dataset *sets[] = {&d->train, &d->test};
    int status = HEARTH_OK;
    for (int i = 0; i < 2 && !status; i++) {
        status = hearth_broadcast(few, sets[i]->images.bytes, sets[i]->count * pixels, HEARTH_U8, 0, NULL);
        if (!status)
            status = hearth_broadcast(few, sets[i]->labels.bytes, sets[i]->count, HEARTH_U8, 0, NULL);
    }
    return status;
}

/* A label beyond the classes would be read beyond an array. */
static bool labels_are_good(const struct dataset *set)
{
    for (size_t i = 0; i < set->count; i++) {
        if (set->labels.bytes[i] >= set->classes)
            return false;
    }
    return true;
}

static bool is_as_told(const struct cluster_demo *d)
{
    return cluster_demo_hash(&d->train, &d->test) == d->plan->demo.data_hash && labels_are_good(&d->train) &&
           labels_are_good(&d->test);
}

/* The largest that any member has. */
static int most(hearth_group *group, int *value)
{
    int32_t mine = *value;
    int status = hearth_all_reduce(group, &mine, &mine, 1, HEARTH_I32, HEARTH_OP_MAX, NULL);
    *value = mine;
    return status;
}

static void free_images(struct cluster_demo *d)
{
    dataset_free(&d->train);
    dataset_free(&d->test);
}

/* `lacks`: this member has none; it has, afterwards, if all went well. */
static int give_images(struct cluster_demo *d, bool lacks)
{
    hearth_group *few = NULL;
    int status = hearth_group_split(d->group, d->starts || lacks ? 0 : -1, d->starts ? 0 : 1, NULL, &few);
    if (!status && few)
        status = send_images(d, few);
    hearth_group_close(few);
    int wrong = lacks && !is_as_told(d);
    if (!status)
        status = most(d->group, &wrong);
    return status ? status : wrong ? HEARTH_PROTOCOL : HEARTH_OK;
}

static int share_images(struct cluster_demo *d)
{
    const struct demo_plan *plan = &d->plan->demo;
    bool lacks = !d->starts && !d->train.images.bytes && !read_here(d);
    bool room = !lacks || (make_room(plan, plan->train_count, &d->train) &&
                           make_room(plan, plan->test_count, &d->test));
    int need = !room ? 2 : lacks; /* 2: no memory */
    int status = most(d->group, &need);
    if (!status && need > 0)
        status = need == 2 ? HEARTH_NO_MEMORY : give_images(d, lacks);
    if (status && lacks)
        free_images(d);
    return status;
}

/* ---- the lanes ---- */

struct teller {
    struct race *race;
    bool failed;
};

static void take(void *arg, const struct race_note *note)
{
    struct teller *t = arg;
    t->failed = !race_take(t->race, note) || t->failed;
}

static void fill_job(struct cluster_demo *d)
{
    const struct demo_plan *plan = &d->plan->demo;
    d->job = (struct train_job){.train = &d->train, .test = &d->test, .epochs = 1, .batch = plan->batch};
    d->job.mlp = (struct mlp){(size_t)plan->width * plan->height, plan->hidden, plan->classes};
    d->job.rate = plan->rate;
    d->job.seed = plan->seed;
    d->race->job = &d->job;
}

/* Also for the second time. */
static void begin_lane(struct race_track *lane)
{
    *lane = (struct race_track){.name = lane->name, .codec = lane->codec, .like = lane->like};
}

static int run_lanes(struct cluster_demo *d, struct teller *t, struct racer *r)
{
    bool room = trainer_init(&r->trainer, &d->job, d->group);
    int none = !room, status = most(d->group, &none);
    if (!status && none)
        status = racer_fail(r, 0, HEARTH_NO_MEMORY, "no memory for a replica, here or elsewhere");
    for (d->lane = d->plan->demo.first_lane; d->lane < d->plan->demo.lanes && !status; d->lane++) {
        begin_lane(&d->race->lanes[d->lane]);
        status = hearth_group_adapt(d->group,
                                    NULL); /* each lane lasts for minutes: more may be known of the ways */
        if (!status)
            status = racer_lane(r, (int)d->lane);
        if (status)
            break;
    }
    if (status && !t->failed && !cluster_lost(status))
        racer_fail(r, 0, status, hearth_error_text());
    if (room)
        trainer_fini(&r->trainer);
    return status;
}

static int run_once(struct cluster_demo *demo)
{
    struct teller t = {.race = demo->race};
    struct racer r = {.race = demo->race,
                      .rank = hearth_group_rank(demo->group),
                      .speaks = true,
                      .goes_on = true,
                      .syncs = true,
                      .quit = demo->quit,
                      .tell = take,
                      .arg = &t};
    demo->race->ranks = hearth_group_size(demo->group);
    demo->lane = demo->plan->demo.first_lane;
    int status = share_images(demo);
    if (status)
        return cluster_lost(status) ? status : racer_fail(&r, 0, status, "the images could not be shared");
    fill_job(demo);
    status = run_lanes(demo, &t, &r);
    return !status && t.failed ? HEARTH_DIFFERS : status;
}

/* With those that are left. */
static int go_on(struct cluster_demo *demo)
{
    char gone[GONE_MAX];
    demo->plan->demo.first_lane = demo->lane;
    int status = cluster_form_again(demo->node, CLUSTER_DEMO_JOB, &demo->group, gone, sizeof gone);
    if (!status)
        status = cluster_plan_share(demo->group, demo->starts, demo->plan, &demo->starter);
    if (!demo->starts) /* machines that are up say so themselves */
        return status;
    demo->race->trouble(demo->race->arg);
    if (status)
        fprintf(stderr, "hearth demo: a machine is lost, and the others cannot go on: %s: %s\n",
                hearth_status_name(status), hearth_error_text());
    else
        fprintf(stderr, "hearth demo: %s is lost; %s begins again with %d machines\n", gone,
                demo->race->lanes[demo->lane].name, hearth_group_size(demo->group));
    return status;
}

int cluster_demo_run(struct cluster_demo *demo)
{
    int status = run_once(demo);
    for (int i = 0; i < ATTEMPTS && cluster_lost(status); i++) {
        status = go_on(demo);
        if (!status)
            status = run_once(demo);
    }
    return status;
}

void cluster_demo_fini(struct cluster_demo *demo)
{
    if (!demo->starts)
        free_images(demo);
}
