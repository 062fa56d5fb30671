/* SPDX-License-Identifier: Apache-2.0 */
/* hearth demo --local: nodes in one process train a small network together, and prove that they agree. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/demo/demo.h"
#include "cli/shared/args.h"
#include "cli/shared/json.h"
#include "cli/shared/progress.h"
#include "cli/shared/rank_threads.h"
#include "cli/shared/text.h"
#include "core/hash.h"
#include "os/clock.h"
#include "os/thread.h"

/* Largest difference to the single-node run that rounding may explain, relative to the largest weight.
 * Sums of 256 products in another order differ by about 1e-7; measured after six epochs: 1e-6. */
#define SAME_BOUND 1e-4

/* One node with its thread. */
struct demo_member {
    struct demo *demo;
    hearth_node *node;
    struct trainer trainer;
    int rank, status;
    char error[512];
    struct hash128 hash;
    int same;          /* what hearth_group_same says */
    int differs;       /* whom it names */
    uint64_t sent_len; /* in the steps of training */
    double all_reduce_s;
};

/* ---- the nodes ---- */

static void show_epoch(struct demo *demo, int epoch, const struct train_epoch *e)
{
    if (demo->json) {
        json_t *row = doc_row(demo->doc);
        row_text(row, "name", "demo.epoch");
        row_count(row, "epoch", (uint64_t)epoch + 1);
        row_count(row, "ranks", (uint64_t)demo->ranks);
        row_real(row, "loss", e->loss);
        row_real(row, "accuracy", e->accuracy);
        row_real(row, "seconds", e->seconds);
        return;
    }
    printf("%8d   %8.4f   %8.2f %%   %7.2f s\n", epoch + 1, e->loss, e->accuracy * 100, e->seconds);
    fflush(stdout);
}

static int run_epochs(struct demo_member *m)
{
    struct demo *demo = m->demo;
    struct progress progress;
    struct train_epoch result;
    progress_start(&progress, "training");
    bool shown = m->rank == 0 && (progress.terminal || demo->json); /* else the table says it all */
    for (int epoch = 0; epoch < demo->job.epochs; epoch++) {
        int status = trainer_epoch(&m->trainer, epoch, shown ? &progress : NULL, &result);
        if (status)
            return status;
        if (m->rank != 0)
            continue;
        progress_hide(&progress);
        show_epoch(demo, epoch, &result);
        demo->last = result;
    }
    return HEARTH_OK;
}

static int run_member(struct demo_member *m)
{
    struct trainer *t = &m->trainer;
    uint64_t before = 0, received;
    int status = trainer_start(t);
    if (!status)
        status = hearth_group_traffic(t->group, &before, &received);
    if (!status)
        status = run_epochs(m);
    if (!status)
        status = hearth_group_traffic(t->group, &m->sent_len, &received);
    if (status)
        return status;
    m->sent_len -= before;
    m->hash = hash128(t->params, t->count * sizeof *t->params);
    m->same = hearth_group_same(t->group, t->params, t->count * sizeof *t->params, NULL, &m->differs);
    if (m->same && m->same != HEARTH_DIFFERS)
        return m->same;
    return trainer_probe(t, &m->all_reduce_s);
}

/* A member that fails closes its node at once, so that the others do not wait for it. */
static void member_main(void *arg, int index)
{
    struct demo_member *m = (struct demo_member *)arg + index;
    m->status = run_member(m);
    if (m->status) {
        snprintf(m->error, sizeof m->error, "%s", hearth_error_text());
        hearth_node_close(m->node);
        m->node = NULL;
    }
}

static int say_failed_open(const char *what)
{
    return command_fail("demo", "%s: %s", what, hearth_error_text());
}

static int open_members(struct demo *demo, struct demo_member *members)
{
    hearth_node *nodes[DEMO_RANKS_MAX];
    struct hearth_config config;
    hearth_config_init(&config);
    if (hearth_config_env(&config))
        return say_failed_open("the environment is not acceptable");
    if (hearth_node_open_local(&config, demo->ranks, nodes))
        return say_failed_open("cannot open the nodes");
    bool enough = true;
    for (int r = 0; r < demo->ranks; r++) {
        members[r] = (struct demo_member){.demo = demo, .node = nodes[r], .rank = r, .differs = RANK_NONE};
        enough = trainer_init(&members[r].trainer, &demo->job, hearth_node_world(nodes[r])) && enough;
    }
    if (enough)
        return EXIT_GOOD;
    return command_fail("demo", "no memory for %d replicas; try fewer --ranks", demo->ranks);
}

static void close_members(struct demo *demo, struct demo_member *members)
{
    for (int r = 0; r < demo->ranks; r++) {
        hearth_node_close(members[r].node);
        trainer_fini(&members[r].trainer);
    }
}

static int report_failures(const struct demo *demo, const struct demo_member *members)
{
    int failed = 0;
    for (int r = 0; r < demo->ranks; r++) {
        if (members[r].status)
            fprintf(stderr, "hearth demo: node %d: %s: %s\n", r, hearth_status_name(members[r].status),
                    members[r].error);
        failed += members[r].status != 0;
    }
    return failed ? EXIT_FAILED_CHECK : EXIT_GOOD;
}

static int train_together(struct demo *demo, struct demo_member *members)
{
    struct rank_threads threads;
    uint64_t start = clock_real();
    if (!rank_threads_open(&threads, demo->ranks))
        return command_fail("demo", "no threads for %d nodes; try fewer --ranks", demo->ranks);
    rank_threads_run(&threads, member_main, members);
    rank_threads_close(&threads);
    demo->nodes_s = (double)(clock_real() - start) / (double)NS_PER_S;
    return report_failures(demo, members);
}

/* ---- what they prove ---- */

static int check_same(struct demo *demo, const struct demo_member *members)
{
    const struct demo_member *first = &members[0];
    bool same = first->same == HEARTH_OK;
    for (int r = 0; r < demo->ranks; r++)
        same = same && members[r].hash.low == first->hash.low && members[r].hash.high == first->hash.high;
    if (!demo->json)
        printf("\n%s%s%s\n", paint(stdout, same ? PAINT_GOOD : PAINT_BAD),
               same ? "All replicas are identical, bit for bit:" : "The replicas DIFFER:",
               paint(stdout, PAINT_NONE));
    for (int r = 0; r < demo->ranks; r++) {
        char hash[40];
        snprintf(hash, sizeof hash, "%016llx%016llx", (unsigned long long)members[r].hash.high,
                 (unsigned long long)members[r].hash.low);
        if (demo->json) {
            json_t *row = doc_row(demo->doc);
            row_text(row, "name", "demo.same");
            row_count(row, "rank", (uint64_t)r);
            row_text(row, "hash", hash);
            row_bool(row, "ok", same);
        } else {
            printf("  node %-2d  %s\n", r, hash);
        }
    }
    if (!same)
        fprintf(
            stderr,
            "hearth demo: node %d holds other weights than most; this is a bug in Hearth, please report it\n",
            first->differs);
    return same ? EXIT_GOOD : EXIT_FAILED_CHECK;
}

static double largest_difference(const float *a, const float *b, size_t count)
{
    double difference = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        double d = fabs((double)a[i] - (double)b[i]), size = fabs((double)b[i]);
        if (!(d <= difference)) /* NaN too */
            difference = d;
        if (size > largest)
            largest = size;
    }
    return largest > 0 ? difference / largest : difference;
}

static int run_single(struct demo *demo, struct trainer *t, struct train_epoch *result)
{
    struct progress progress;
    uint64_t start = clock_real();
    if (!trainer_init(t, &demo->job, NULL))
        return command_fail("demo", "no memory for the single-node run");
    progress_start(&progress, "one node alone");
    int status = trainer_start(t);
    for (int epoch = 0; epoch < demo->job.epochs && !status; epoch++)
        status = trainer_epoch(t, epoch, &progress, result);
    progress_hide(&progress);
    demo->single_s = (double)(clock_real() - start) / (double)NS_PER_S;
    return status ? EXIT_FAILED_CHECK : EXIT_GOOD;
}

static int check_single(struct demo *demo, const struct demo_member *members)
{
    struct trainer alone;
    struct train_epoch result = {.loss = 0};
    int code = run_single(demo, &alone, &result);
    if (code)
        return code;
    double difference = largest_difference(members[0].trainer.params, alone.params, alone.count);
    bool ok = difference <= SAME_BOUND;
    trainer_fini(&alone);
    if (demo->json) {
        json_t *row = doc_row(demo->doc);
        row_text(row, "name", "demo.single");
        row_count(row, "steps", demo->steps);
        row_real(row, "difference", difference);
        row_real(row, "bound", SAME_BOUND);
        row_real(row, "accuracy", result.accuracy);
        row_real(row, "seconds", demo->single_s);
        row_bool(row, "ok", ok);
    } else {
        printf("\n%sOne node alone on the joined batches %s%s\n", paint(stdout, ok ? PAINT_GOOD : PAINT_BAD),
               ok ? "ends with the same weights within rounding:"
                  : "ends with OTHER weights than rounding explains:",
               paint(stdout, PAINT_NONE));
        printf("  largest difference %.1e of the largest weight after %s steps (bound %.0e)\n", difference,
               text_count(demo->steps).s, SAME_BOUND);
        printf("  test accuracy %.2f %% alone, %.2f %% together\n", result.accuracy * 100,
               demo->last.accuracy * 100);
    }
    if (!ok)
        fprintf(stderr,
                "hearth demo: a large learning rate amplifies rounding until runs part; try --lr 0.05\n");
    return ok ? EXIT_GOOD : EXIT_FAILED_CHECK;
}

/* In a collective a node also waits for those that still compute (with more nodes than cores they take
 * turns); what moving the gradient costs by itself was measured afterwards. */
static void report_time(struct demo *demo, const struct demo_member *members)
{
    double compute = 0, call = 0, sent = 0, steps = (double)demo->steps,
           move = members[0].all_reduce_s * steps;
    for (int r = 0; r < demo->ranks; r++) {
        compute += (double)members[r].trainer.compute_ns / (double)NS_PER_S / demo->ranks;
        call += (double)members[r].trainer.call_ns / (double)NS_PER_S / demo->ranks;
        sent += (double)members[r].sent_len / demo->ranks / steps;
    }
    move = move < call ? move : call;
    double total = compute + call;
    if (demo->json) {
        json_t *row = doc_row(demo->doc);
        row_text(row, "name", "demo.time");
        row_text(row, "transport", "mem");
        row_count(row, "ranks", (uint64_t)demo->ranks);
        row_count(row, "bytes", members[0].trainer.count * sizeof(float));
        row_count(row, "steps", demo->steps);
        row_real(row, "compute_share", compute / total);
        row_real(row, "move_share", move / total);
        row_real(row, "wait_share", (call - move) / total);
        row_real(row, "all_reduce_us", members[0].all_reduce_s * 1e6);
        row_real(row, "bytes_sent", sent);
        row_real(row, "seconds", demo->nodes_s);
        return;
    }
    printf("\nWhere the time of a step went (%s, mean of the nodes):\n", text_time(total / steps).s);
    printf("  computing %s, moving gradients %s, waiting for the others %s\n", text_share(compute / total).s,
           text_share(move / total).s, text_share((call - move) / total).s);
    printf("  a gradient of %s is averaged in %s; each node sends %s for it\n",
           text_bytes((double)members[0].trainer.count * sizeof(float)).s,
           text_time(members[0].all_reduce_s).s, text_bytes(sent).s);
    printf("  %d nodes took %s, one node alone %s, on %d core%s\n", demo->ranks, text_time(demo->nodes_s).s,
           text_time(demo->single_s).s, cpu_count(), cpu_count() == 1 ? "" : "s");
}

/* ---- the run ---- */

static void show_head(const struct demo *demo)
{
    char machine[256];
    machine_line(machine, sizeof machine);
    printf("%s%d node%s in this process train%s a %zu-%zu-%zu perceptron%s (%s weights)\n",
           paint(stdout, PAINT_BOLD), demo->ranks, demo->ranks == 1 ? "" : "s", demo->ranks == 1 ? "s" : "",
           demo->job.mlp.in, demo->job.mlp.hidden, demo->job.mlp.out, paint(stdout, PAINT_NONE),
           text_count(mlp_param_count(&demo->job.mlp)).s);
    printf("  data     %s: %s images to train, %s to test\n", demo->data, text_count(demo->train.count).s,
           text_count(demo->test.count).s);
    printf("  batch    %zu images a step, split among the nodes; %zu steps an epoch; rate %g, seed %llu\n",
           demo->job.batch, train_steps(&demo->job), (double)demo->job.rate,
           (unsigned long long)demo->job.seed);
    printf("  machine  %s\n\n", machine);
    printf("   epoch       loss     accuracy        time\n");
}

int demo_local(struct demo *demo)
{
    struct demo_member *members = calloc((size_t)demo->ranks, sizeof *members);
    demo->steps = train_steps(&demo->job) * (size_t)demo->job.epochs;
    if (!members)
        return command_fail("demo", "no memory");
    int code = open_members(demo, members);
    if (!code) {
        if (!demo->json)
            show_head(demo);
        code = train_together(demo, members);
    }
    if (!code) {
        int same = check_same(demo, members), single = check_single(demo, members);
        report_time(demo, members);
        code = same ? same : single;
    }
    close_members(demo, members);
    free(members);
    return code;
}
