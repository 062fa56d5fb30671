/* SPDX-License-Identifier: Apache-2.0 */
/* The demo among machines: what every member does in `hearth demo --cluster`, and what its starter does. */
#include "cli/demo/cluster_demo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cluster/cluster_open.h"
#include "cli/demo/demo.h"
#include "cli/shared/args.h"
#include "core/hash.h"

#define ATTEMPTS        64  /* machines that may be lost, one after the other */
#define GONE_MAX        512 /* their names */
#define PATIENCE_S      30.0
#define FORM_TIMEOUT_MS 30000
#define NAMES_MAX       1024

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

static void free_images(struct cluster_demo *d)
{
    dataset_free(&d->train);
    dataset_free(&d->test);
}

/* Are the images that the plan speaks of on this machine? */
static bool read_here(struct cluster_demo *d)
{
    struct error error;
    if (d->data && !dataset_read(d->data, "train", &d->train, &error) &&
        !dataset_read(d->data, "t10k", &d->test, &error) && d->train.count == d->plan->demo.train_count &&
        d->test.count == d->plan->demo.test_count &&
        cluster_demo_hash(&d->train, &d->test) == d->plan->demo.data_hash)
        return true;
    free_images(d);
    return false;
}

static bool make_room(const struct demo_plan *plan, size_t count, struct dataset *set)
{
    *set = (struct dataset){.count = count,
                            .width = (int)plan->width,
                            .height = (int)plan->height,
                            .classes = (int)plan->classes};
    set->images.bytes = malloc(count * plan->width * plan->height);
    set->labels.bytes = malloc(count);
    return set->images.bytes && set->labels.bytes;
}

/* From the starter, which is the first in `few`. */
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

/* The largest that any member has. */
static int most(hearth_group *group, int *value)
{
    int32_t mine = *value;
    int status = hearth_all_reduce(group, &mine, &mine, 1, HEARTH_I32, HEARTH_OP_MAX, NULL);
    *value = mine;
    return status;
}

/* `lacks`: this member has none; it has, afterwards, if all went well. */
static int give_images(struct cluster_demo *d, bool lacks)
{
    hearth_group *few = NULL;
    int status = hearth_group_split(d->group, d->starts || lacks ? 0 : -1, d->starts ? 0 : 1, NULL, &few);
    if (!status && few)
        status = send_images(d, few);
    hearth_group_close(few);
    int wrong = lacks && (cluster_demo_hash(&d->train, &d->test) != d->plan->demo.data_hash ||
                          !labels_are_good(&d->train) || !labels_are_good(&d->test));
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

static void fill_job(struct cluster_demo *d)
{
    const struct demo_plan *plan = &d->plan->demo;
    d->job = (struct train_job){.train = &d->train, .test = &d->test, .epochs = 1, .batch = plan->batch};
    d->job.mlp = (struct mlp){(size_t)plan->width * plan->height, plan->hidden, plan->classes};
    d->job.rate = plan->rate;
    d->job.seed = plan->seed;
    d->race->job = &d->job;
}

static int run_lanes(struct cluster_demo *d, struct racer *r)
{
    bool room = trainer_init(&r->trainer, &d->job, d->group);
    int none = !room, status = most(d->group, &none);
    if (!status && none)
        status = racer_fail(r, 0, HEARTH_NO_MEMORY, "no memory for a replica, here or elsewhere");
    while (!status && d->lane < d->plan->demo.lanes) {
        struct race_track *lane = &d->race->lanes[d->lane];
        *lane = (struct race_track){.name = lane->name, .codec = lane->codec, .like = lane->like};
        status =
            hearth_group_adapt(d->group, NULL); /* a lane lasts for minutes: more may be known of the ways */
        if (!status)
            status = racer_lane(r, (int)d->lane);
        d->lane += !status;
    }
    if (status && !d->race->failed && !cluster_lost(status))
        racer_fail(r, 0, status, hearth_error_text());
    if (room)
        trainer_fini(&r->trainer);
    return status;
}

static int run_once(struct cluster_demo *demo)
{
    struct racer r = {
        .race = demo->race, .rank = hearth_group_rank(demo->group), .pipe = -1, .quit = demo->quit};
    demo->race->ranks = hearth_group_size(demo->group);
    demo->lane = demo->plan->demo.first_lane;
    int status = share_images(demo);
    if (status)
        return cluster_lost(status) ? status : racer_fail(&r, 0, status, "the images could not be shared");
    fill_job(demo);
    status = run_lanes(demo, &r);
    return !status && demo->race->failed ? HEARTH_DIFFERS : status;
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
    race_see(demo->race, RACE_TROUBLE, &demo->race->lanes[demo->lane]);
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

/* ---- the starter ---- */

static void fill_plan(const struct demo *demo, struct demo_plan *plan)
{
    static const char *const codecs[] = {"none", "int8", "topk:0.01"};
    *plan = (struct demo_plan){
        .seed = demo->job.seed,
        .data_hash = cluster_demo_hash(&demo->train, &demo->test),
        .train_count = (uint32_t)demo->train.count,
        .test_count = (uint32_t)demo->test.count,
        .width = (uint32_t)demo->train.width,
        .height = (uint32_t)demo->train.height,
        .classes = (uint32_t)demo->job.mlp.out,
        .hidden = (uint32_t)demo->job.mlp.hidden,
        .batch = (uint32_t)demo->job.batch,
        .steps_max = (uint32_t)demo->steps_max,
        .test_images = (uint32_t)demo_test_images(demo),
        .rate = demo->job.rate,
        .target = (float)(demo->target / 100),
        .lanes = demo->codec ? 1 : sizeof codecs / sizeof *codecs,
    };
    for (uint32_t i = 0; i < plan->lanes; i++)
        snprintf(plan->codecs[i], sizeof plan->codecs[i], "%s", demo->codec ? demo->codec : codecs[i]);
}

static bool run_lanes_shown(struct race *race, void *arg)
{
    (void)race;
    return cluster_demo_run(arg) == HEARTH_OK;
}

static int lead(struct demo *demo, struct cluster_demo *d)
{
    char names[NAMES_MAX];
    cluster_names(d->group, names, sizeof names);
    d->race->machines = names;
    d->train = demo->train;
    d->test = demo->test;
    demo->ranks = hearth_group_size(d->group);
    return demo_show(demo, d->race, run_lanes_shown, d);
}

/* Others began theirs in the same moment: this machine takes part in it, and shows nothing. */
static int follow(struct cluster_demo *d)
{
    fprintf(stderr, "hearth demo: another machine began it at the same time; this one takes part\n");
    d->data = DEMO_DATA_DIR;
    int status = cluster_demo_run(d);
    cluster_demo_fini(d);
    return status ? EXIT_FAILED_CHECK : EXIT_GOOD;
}

static int take_part(struct demo *demo, hearth_node *node, hearth_group **group, struct race *race)
{
    struct cluster_plan plan = {.kind = CLUSTER_PLAN_DEMO};
    struct cluster_demo d = {.node = node, .group = *group, .plan = &plan, .race = race};
    fill_plan(demo, &plan.demo);
    int status = cluster_plan_share(*group, true, &plan, &d.starter);
    if (!status && plan.kind != CLUSTER_PLAN_DEMO)
        status = HEARTH_PROTOCOL;
    if (status)
        return command_fail("demo", "%s: %s", hearth_status_name(status), hearth_error_text());
    cluster_demo_race(&plan.demo, hearth_group_size(*group), race);
    d.starts = d.starter == hearth_group_rank(*group);
    int code = d.starts ? lead(demo, &d) : follow(&d);
    *group = d.group;
    return code;
}

int demo_cluster(struct demo *demo)
{
    static const struct usage usage = {.name = "demo"};
    const struct hearth_config said = {.seeds = demo->seeds,
                                       .bind = demo->bind,
                                       .roles = HEARTH_ROLE_GUEST,
                                       .form_timeout_ms = FORM_TIMEOUT_MS};
    const struct cluster_gathering what = {
        .job = CLUSTER_DEMO_JOB,
        .role = HEARTH_ROLE_DEMO,
        .patience_s = PATIENCE_S,
        .nobody = "there are members, but none allows it; type on those that are to train: hearth up "
                  "--allow-demo"};
    struct cluster_session cluster;
    hearth_group *group;
    struct race *race = malloc(sizeof *race);
    int code = race ? cluster_enter(&usage, &said, &cluster) : EXIT_FAILED_CHECK;
    if (code == ARGS_GO) {
        code = cluster_gather(&usage, &cluster, &what, &group);
        if (code == ARGS_GO) {
            code = take_part(demo, cluster.node, &group, race);
            hearth_group_close(group);
        }
        cluster_leave(&cluster);
    }
    free(race);
    return code;
}
