/* SPDX-License-Identifier: Apache-2.0 */
/* hearth demo: what the user says, and the images; then the race, or the nodes of one process. */
#include <stdio.h>
#include <string.h>

#include "cli/cluster/cluster_plan.h"
#include "cli/commands.h"
#include "cli/demo/demo.h"
#include "cli/shared/args.h"
#include "cli/shared/route.h"
#include "cli/shared/text.h"

#define EPOCHS_MAX  1000
#define STEPS_MAX   2500
#define REPORT_FILE "hearth-demo.html"
#define HIDDEN_RACE                                                                                          \
    512 /* 1.55 MiB of gradient: at 100 Mbit/s the network takes 20 times what computing does */
#define HIDDEN_LOCAL   256
#define RATE_RACE      0.3 /* without momentum: what is held back for a while must not be pushed twice */
#define RATE_LOCAL     0.05
#define MOMENTUM_LOCAL 0.9f
#define LINE_MIN       125e3 /* bytes a second: slower, and the end is too far away */
#define LINE_MAX       125e9
#define LEARNING_MAX   10.0

static int read_data(struct demo *demo)
{
    struct error error;
    int status = dataset_read(demo->data, "train", &demo->train, &error);
    if (!status)
        status = dataset_read(demo->data, "t10k", &demo->test, &error);
    if (status)
        return command_fail("demo",
                            "%s\nTry: apt-get install dataset-fashion-mnist, or --data DIR with an IDX set "
                            "(MNIST, ...)",
                            error.text);
    if (demo->train.width != demo->test.width || demo->train.height != demo->test.height)
        return command_fail("demo", "%s: images to train have %d x %d pixels, images to test %d x %d",
                            demo->data, demo->train.width, demo->train.height, demo->test.width,
                            demo->test.height);
    int classes = demo->train.classes > demo->test.classes ? demo->train.classes : demo->test.classes;
    demo->job.train = &demo->train;
    demo->job.test = &demo->test;
    demo->job.mlp.in = (size_t)demo->train.width * (size_t)demo->train.height;
    demo->job.mlp.out = (size_t)classes;
    if (train_steps(&demo->job) > 0)
        return EXIT_GOOD;
    return command_fail("demo", "%s has %zu images, fewer than one --batch of %zu", demo->data,
                        demo->train.count, demo->job.batch);
}

enum demo_form { FORM_RACE, FORM_LOCAL, FORM_CLUSTER, FORM_COUNT };

static int run(struct demo *demo, enum demo_form form, int argc, char **argv)
{
    static int (*const forms[FORM_COUNT])(struct demo *) = {demo_race, demo_local, demo_cluster};
    int code = read_data(demo);
    if (!code && demo->json && !(demo->doc = doc_open(argc, argv)))
        code = EXIT_FAILED_CHECK;
    if (!code)
        code = forms[form](demo);
    if (demo->doc && !doc_close(demo->doc))
        code = EXIT_FAILED_CHECK;
    dataset_free(&demo->train);
    dataset_free(&demo->test);
    return code;
}

/* Flags that mean something to some forms of the demo only. */
static const struct {
    const char *name, *forms;
} limited[] = {
    {"ranks", "the race or --local"},
    {"rate", "the race"},
    {"target", "the race or --cluster"},
    {"steps", "the race or --cluster"},
    {"codec", "--cluster"},
    {"report", "the race or --cluster"},
    {"epochs", "--local"},
    {"seeds", "--cluster"},
    {"bind", "--cluster"},
};
#define LIMITED (sizeof limited / sizeof *limited)

static int check_given(const struct usage *usage, const bool *given, enum demo_form form)
{
    static const char *const names[FORM_COUNT] = {"the race", "--local", "--cluster"};
    for (size_t i = 0; i < LIMITED; i++) {
        if (given[i] && !strstr(limited[i].forms, names[form]))
            return args_refuse(usage, "--%s means nothing to %s; it goes with %s", limited[i].name,
                               names[form], limited[i].forms);
    }
    return ARGS_GO;
}

static int check(const struct demo *demo, const struct usage *usage, enum demo_form form, int batch,
                 double rate)
{
    if (demo->codec && (hearth_codec_check(demo->codec) || strlen(demo->codec) >= CLUSTER_CODEC_MAX))
        return args_refuse(usage, "--codec: %s", hearth_error_text());
    if (batch < demo->ranks)
        return args_refuse(usage, "--batch %d is smaller than --ranks %d; each node needs at least one image",
                           batch, demo->ranks);
    if (form != FORM_LOCAL && demo->ranks < 2)
        return args_refuse(usage, "--ranks 1 has no peer to send to; a race needs two (--local does not)");
    if (demo->target > 100)
        return args_refuse(usage, "--target %g is more than 100 percent of the images", demo->target);
    if (demo->line_rate < LINE_MIN || demo->line_rate > LINE_MAX)
        return args_refuse(usage, "--rate is %s; a line of the demo has 1 Mbit/s to 1 Tbit/s",
                           text_rate(demo->line_rate).s);
    if (rate > LEARNING_MAX)
        return args_refuse(usage, "--lr %g is above %g: training would not converge", rate, LEARNING_MAX);
    return route_check_bind(usage, demo->bind);
}

int cmd_demo(int argc, char **argv)
{
    struct demo demo = {.data = DEMO_DATA_DIR,
                        .ranks = 4,
                        .line_rate = 100e6 / 8,
                        .target = 80,
                        .steps_max = 300,
                        .report = REPORT_FILE};
    int epochs = 6, batch = 256, seed = 1;
    double rate = 0;
    bool local = false, cluster = false;
    bool given[LIMITED] = {false};
    struct arg args[] = {
        {"data", ARG_TEXT, &demo.data,
         .about = "directory with the images, as IDX files (default " DEMO_DATA_DIR ")", .value_name = "DIR"},
        {"ranks", ARG_INT, &demo.ranks, .about = "processes, or nodes (default 4)", .min = 1,
         .max = DEMO_RANKS_MAX},
        {"rate", ARG_RATE, &demo.line_rate, .about = "how fast each process may send (default 100mbit)"},
        {"target", ARG_REAL, &demo.target, .value_name = "PERCENT",
         .about = "percent of the test images to classify correctly (default 80)"},
        {"steps", ARG_INT, &demo.steps_max, .about = "at most so many steps for each codec (default 300)",
         .min = 5, .max = STEPS_MAX},
        {"batch", ARG_INT, &batch, .about = "images per step, all nodes together (default 256)", .min = 1,
         .max = 8192},
        {"lr", ARG_REAL, &rate, .about = "learning rate (default 0.3; with --local 0.05)"},
        {"seed", ARG_INT, &seed, .about = "seed of the first weights and of the order of images (default 1)",
         .max = INT32_MAX},
        {"report", ARG_TEXT, &demo.report, .value_name = "FILE",
         .about = "HTML file for charts and tables (default " REPORT_FILE ")"},
        {"local", ARG_FLAG, &local,
         .about = "instead of the race: nodes in this process, compared with a single node"},
        {"epochs", ARG_INT, &epochs, .about = "with --local: passes over the training images (default 6)",
         .min = 1, .max = EPOCHS_MAX},
        {"cluster", ARG_FLAG, &cluster,
         .about = "instead of processes: this machine and all where `hearth up --allow-demo` runs"},
        {"codec", ARG_TEXT, &demo.codec, .value_name = "CODEC",
         .about =
             "with --cluster: only this codec (default: plain, int8 and topk:0.01, one after the other)"},
        {"seeds", ARG_TEXT, &demo.seeds, .value_name = "LIST",
         .about = "with --cluster: host[:port],...: nodes to ask besides those that are found"},
        {"bind", ARG_TEXT, &demo.bind, .value_name = "IFACE|ADDR",
         .about = "with --cluster: network to use (default: all)"},
        {"json", ARG_FLAG, &demo.json, .about = "print one JSON object instead of text"},
    };
    for (size_t i = 0; i < sizeof args / sizeof *args; i++)
        for (size_t k = 0; k < LIMITED; k++)
            args[i].given = strcmp(args[i].name, limited[k].name) == 0 ? &given[k] : args[i].given;
    struct usage usage = {
        "demo",
        "A race: four processes, each behind a slow line, train a small network on Fashion-MNIST to the same "
        "accuracy, once with plain gradients and once with each codec. Shows time, bytes and speed-up, and "
        "that all replicas stay identical; exit code 1 if not. Under two minutes.",
        "hearth demo --rate 50mbit", USAGE_ARGS(args)};
    int code = args_parse(&usage, argc, argv);
    enum demo_form form = local ? FORM_LOCAL : cluster ? FORM_CLUSTER : FORM_RACE;
    if (code == ARGS_GO && local && cluster)
        code = args_refuse(&usage, "--local and --cluster are two forms of the demo; take one of them");
    if (code == ARGS_GO)
        code = check_given(&usage, given, form);
    if (code == ARGS_GO)
        code = check(&demo, &usage, form, batch, rate);
    if (code != ARGS_GO)
        return code;
    demo.job = (struct train_job){.epochs = epochs, .batch = (size_t)batch, .seed = (uint64_t)seed};
    demo.job.rate = (float)(rate > 0 ? rate : local ? RATE_LOCAL : RATE_RACE);
    demo.job.momentum = local ? MOMENTUM_LOCAL : 0;
    demo.job.mlp.hidden = local ? HIDDEN_LOCAL : HIDDEN_RACE;
    return run(&demo, form, argc, argv);
}
