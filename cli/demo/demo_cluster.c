/* SPDX-License-Identifier: Apache-2.0 */
/* hearth demo --cluster: the race among the machines of the home cluster that allow it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cluster/cluster_open.h"
#include "cli/demo/cluster_demo.h"
#include "cli/demo/demo.h"
#include "cli/shared/args.h"

#define PATIENCE_S      30.0
#define FORM_TIMEOUT_MS 30000
#define NAMES_MAX       1024

static const struct usage usage = {.name = "demo"};

static void fill_plan(const struct demo *demo, struct demo_plan *plan)
{
    static const char *const codecs[] = {"none", "int8", "topk:0.01"};
    size_t images = demo->test.count < DEMO_TEST_IMAGES ? demo->test.count : DEMO_TEST_IMAGES;
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
        .test_images = (uint32_t)images,
        .rate = demo->job.rate,
        .target = (float)(demo->target / 100),
        .lanes = demo->codec ? 1 : sizeof codecs / sizeof *codecs,
    };
    for (uint32_t i = 0; i < plan->lanes; i++)
        snprintf(plan->codecs[i], sizeof plan->codecs[i], "%s", demo->codec ? demo->codec : codecs[i]);
}

static bool run_lanes(struct race *race, void *arg)
{
    struct cluster_demo *d = arg;
    d->race = race;
    return cluster_demo_run(d) == HEARTH_OK;
}

/* Others began theirs in the same moment: this machine takes part in it, and shows nothing. */
static int follow(struct cluster_demo *d, struct race *race)
{
    fprintf(stderr, "hearth demo: another machine began it at the same time; this one takes part\n");
    cluster_demo_race(&d->plan->demo, hearth_group_size(d->group), race);
    d->race = race;
    d->data = DEMO_DATA_DIR;
    d->train = d->test = (struct dataset){.count = 0};
    int status = cluster_demo_run(d);
    cluster_demo_fini(d);
    return status ? EXIT_FAILED_CHECK : EXIT_GOOD;
}

static int lead(struct demo *demo, struct cluster_demo *d, struct race *race)
{
    char names[NAMES_MAX];
    cluster_names(d->group, names, sizeof names);
    cluster_demo_race(&d->plan->demo, hearth_group_size(d->group), race);
    race->machines = names;
    demo->ranks = hearth_group_size(d->group);
    return demo_show(demo, race, run_lanes, d);
}

static int run(struct demo *demo, hearth_node *node, hearth_group **group, struct race *race)
{
    struct cluster_plan plan = {.kind = CLUSTER_PLAN_DEMO};
    struct cluster_demo d = {
        .node = node, .group = *group, .plan = &plan, .train = demo->train, .test = demo->test};
    fill_plan(demo, &plan.demo);
    int status = cluster_plan_share(*group, true, &plan, &d.starter);
    if (!status && plan.kind != CLUSTER_PLAN_DEMO)
        status = HEARTH_PROTOCOL;
    if (status)
        return command_fail("demo", "%s: %s", hearth_status_name(status), hearth_error_text());
    d.starts = d.starter == hearth_group_rank(*group);
    int code = d.starts ? lead(demo, &d, race) : follow(&d, race);
    *group = d.group;
    return code;
}

int demo_cluster(struct demo *demo)
{
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
    if (code != ARGS_GO) {
        free(race);
        return code;
    }
    code = cluster_gather(&usage, &cluster, &what, &group);
    if (code == ARGS_GO) {
        code = run(demo, cluster.node, &group, race);
        hearth_group_close(group);
    }
    cluster_leave(&cluster);
    free(race);
    return code;
}
