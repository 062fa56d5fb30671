/* SPDX-License-Identifier: Apache-2.0 */
/* hearth demo --local: nodes in one process train a small network together, and prove that they agree. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/demo/demo.h"
#include "cli/shared/args.h"
#include "cli/shared/rank_threads.h"
#include "cli/shared/text.h"
#include "core/hash.h"
#include "os/clock.h"

/* Largest difference to the single-node run that rounding may explain, relative to the largest weight.
 * Sums of 256 products in another order differ by about 1e-7; measured after six epochs: 1e-6. */
#define SAME_BOUND 1e-4

/* One node with its thread. */
struct member {
    hearth_node *node;
    struct trainer trainer;
    int status;
    char error[512];
    struct hash128 hash;
    int same;          /* what hearth_group_same says */
    int differs;       /* the rank that it names */
    uint64_t sent_len; /* in the steps of training */
    double all_reduce_s;
};

struct local_demo {
    struct demo *demo;
    struct member members[DEMO_RANKS_MAX];
    struct train_epoch last; /* of the nodes */
    double nodes_s, single_s;
    size_t steps; /* of each replica */
};

static double since_s(uint64_t start)
{
    return (double)(clock_real() - start) / (double)NS_PER_S;
}

/* ---- the nodes ---- */

static void show_epoch(const struct demo *demo, int epoch, const struct train_epoch *e)
{
    if (demo->json)
        doc_add(demo->doc, "name:s epoch:i ranks:i loss:f accuracy:f seconds:f", "demo.epoch", epoch,
                demo->ranks, e->loss, e->accuracy, e->seconds);
    else
        printf("%8d   %8.4f   %8.2f %%   %7.2f s\n", epoch, e->loss, e->accuracy * 100, e->seconds);
    fflush(stdout);
}

static int run_epochs(struct local_demo *l, struct trainer *t)
{
    struct progress progress;
    struct train_epoch result;
    int status = HEARTH_OK;
    progress_start(&progress, "training");
    bool shown = t->rank == 0 && (progress.terminal || l->demo->json); /* else the table says it all */
    for (int epoch = 0; epoch < l->demo->job.epochs && !status; epoch++) {
        status = trainer_epoch(t, epoch, shown ? &progress : NULL, &result);
        if (status || t->rank != 0)
            continue;
        progress_hide(&progress);
        show_epoch(l->demo, epoch + 1, &result);
        l->last = result;
    }
    return status;
}

static int run_member(struct local_demo *l, struct member *m)
{
    struct trainer *t = &m->trainer;
    uint64_t before = 0, received;
    int status = trainer_start(t);
    if (!status)
        status = hearth_group_traffic(t->group, &before, &received);
    if (!status)
        status = run_epochs(l, t);
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
    struct local_demo *l = arg;
    struct member *m = &l->members[index];
    m->status = run_member(l, m);
    if (m->status) {
        snprintf(m->error, sizeof m->error, "%s", hearth_error_text());
        hearth_node_close(m->node);
        m->node = NULL;
    }
}

static int open_members(struct local_demo *l)
{
    hearth_node *nodes[DEMO_RANKS_MAX];
    struct hearth_config config;
    bool enough = true;
    hearth_config_init(&config);
    if (hearth_config_env(&config)) {
        command_fail("demo", "the environment is not acceptable: %s", hearth_error_text());
        return EXIT_USAGE;
    }
    if (hearth_node_open_local(&config, l->demo->ranks, nodes))
        return command_fail("demo", "cannot open the nodes: %s", hearth_error_text());
    for (int r = 0; r < l->demo->ranks; r++) {
        l->members[r].node = nodes[r];
        enough = trainer_init(&l->members[r].trainer, &l->demo->job, hearth_node_world(nodes[r])) && enough;
    }
    if (enough)
        return EXIT_GOOD;
    return command_fail("demo", "no memory for %d replicas; try fewer --ranks", l->demo->ranks);
}

static int train_together(struct local_demo *l)
{
    struct rank_threads threads;
    uint64_t start = clock_real();
    int code = EXIT_GOOD;
    if (!rank_threads_open(&threads, l->demo->ranks))
        return command_fail("demo", "no threads for %d nodes; try fewer --ranks", l->demo->ranks);
    rank_threads_run(&threads, member_main, l);
    rank_threads_close(&threads);
    l->nodes_s = since_s(start);
    for (int r = 0; r < l->demo->ranks; r++) {
        const struct member *m = &l->members[r];
        if (m->status)
            code = command_fail("demo", "node %d: %s: %s", r, hearth_status_name(m->status), m->error);
    }
    return code;
}

/* ---- what they prove ---- */

static int check_same(const struct local_demo *l)
{
    const struct member *first = &l->members[0], *end = l->members + l->demo->ranks;
    bool same = first->same == HEARTH_OK;
    for (const struct member *m = first; m < end; m++)
        same = same && m->hash.low == first->hash.low && m->hash.high == first->hash.high;
    if (!l->demo->json)
        print_title(same ? PAINT_GOOD : PAINT_BAD, "%s",
                    same ? "All replicas are identical, bit for bit:" : "The replicas DIFFER:");
    for (const struct member *m = first; m < end; m++) {
        char hash[40];
        snprintf(hash, sizeof hash, "%016llx%016llx", (unsigned long long)m->hash.high,
                 (unsigned long long)m->hash.low);
        if (l->demo->json)
            doc_add(l->demo->doc, "name:s rank:i hash:s ok:b", "demo.same", (int)(m - first), hash, same);
        else
            printf("  node %-2d  %s\n", (int)(m - first), hash);
    }
    if (same)
        return EXIT_GOOD;
    return command_fail("demo",
                        "node %d holds other weights than most; this is a bug in Hearth, please report it",
                        first->differs);
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

/* All of it, on the joined batches. */
static int run_single(struct local_demo *l, struct trainer *t, struct train_epoch *result)
{
    struct progress progress;
    uint64_t start = clock_real();
    if (!trainer_init(t, &l->demo->job, NULL))
        return command_fail("demo", "no memory for the single-node run");
    progress_start(&progress, "one node alone");
    int status = trainer_start(t);
    for (int epoch = 0; epoch < l->demo->job.epochs && !status; epoch++)
        status = trainer_epoch(t, epoch, &progress, result);
    progress_hide(&progress);
    l->single_s = since_s(start);
    return status ? EXIT_FAILED_CHECK : EXIT_GOOD;
}

static int check_single(struct local_demo *l)
{
    struct trainer alone;
    struct train_epoch result = {.loss = 0};
    int code = run_single(l, &alone, &result);
    if (code)
        return code;
    double difference = largest_difference(l->members[0].trainer.params, alone.params, alone.count);
    bool ok = difference <= SAME_BOUND;
    trainer_fini(&alone);
    if (l->demo->json) {
        doc_add(l->demo->doc, "name:s steps:z difference:f bound:f accuracy:f seconds:f ok:b", "demo.single",
                l->steps, difference, SAME_BOUND, result.accuracy, l->single_s, ok);
    } else {
        print_title(ok ? PAINT_GOOD : PAINT_BAD, "One node alone on the joined batches ends with %s",
                    ok ? "the same weights within rounding:" : "OTHER weights than rounding explains:");
        printf("  largest difference %.1e of the largest weight after %s steps (bound %.0e)\n", difference,
               text_count(l->steps).s, SAME_BOUND);
        printf("  test accuracy %.2f %% alone, %.2f %% together\n", result.accuracy * 100,
               l->last.accuracy * 100);
    }
    if (ok)
        return EXIT_GOOD;
    return command_fail("demo", "a large learning rate amplifies rounding until runs part; try --lr 0.05");
}

/* In a collective a node also waits for those that still compute (with more nodes than cores they take
 * turns); what moving the gradient costs by itself was measured afterwards. */
static void report_time(const struct local_demo *l)
{
    const struct member *first = &l->members[0];
    int ranks = l->demo->ranks, cores = cpu_count();
    double compute = 0, call = 0, sent = 0, steps = (double)l->steps;
    double bytes = (double)first->trainer.count * sizeof(float);
    for (const struct member *m = first; m < first + ranks; m++) {
        compute += (double)m->trainer.compute_ns / (double)NS_PER_S / ranks;
        call += (double)m->trainer.call_ns / (double)NS_PER_S / ranks;
        sent += (double)m->sent_len / ranks / steps;
    }
    double total = compute + call, move = fmin(first->all_reduce_s * steps, call);
    if (l->demo->json) {
        doc_add(l->demo->doc,
                "name:s transport:s ranks:i bytes:z steps:z compute_share:f move_share:f wait_share:f "
                "all_reduce_us:f bytes_sent:f seconds:f",
                "demo.time", "mem", ranks, (size_t)bytes, l->steps, compute / total, move / total,
                (call - move) / total, first->all_reduce_s * 1e6, sent, l->nodes_s);
        return;
    }
    printf("\nWhere the time of a step went (%s, mean of the nodes):\n", text_time(total / steps).s);
    printf("  computing %s, moving gradients %s, waiting for the others %s\n", text_share(compute / total).s,
           text_share(move / total).s, text_share((call - move) / total).s);
    printf("  a gradient of %s is averaged in %s; each node sends %s for it\n", text_bytes(bytes).s,
           text_time(first->all_reduce_s).s, text_bytes(sent).s);
    printf("  %d nodes took %s, one node alone %s, on %d core%s\n", ranks, text_time(l->nodes_s).s,
           text_time(l->single_s).s, cores, cores == 1 ? "" : "s");
}

/* ---- the run ---- */

static void show_head(const struct demo *demo)
{
    const struct train_job *job = &demo->job;
    char machine[256];
    bool one = demo->ranks == 1;
    machine_line(machine, sizeof machine);
    printf("%s%d node%s in this process train%s a %zu-%zu-%zu perceptron%s (%s weights)\n",
           paint(stdout, PAINT_BOLD), demo->ranks, one ? "" : "s", one ? "s" : "", job->mlp.in,
           job->mlp.hidden, job->mlp.out, paint(stdout, PAINT_NONE),
           text_count(mlp_param_count(&job->mlp)).s);
    printf("  data     %s: %s images to train, %s to test\n", demo->data, text_count(demo->train.count).s,
           text_count(demo->test.count).s);
    printf("  batch    %zu images a step, split among the nodes; %zu steps an epoch; rate %g, seed %llu\n",
           job->batch, train_steps(job), (double)job->rate, (unsigned long long)job->seed);
    printf("  machine  %s\n\n", machine);
    printf("   epoch       loss     accuracy        time\n");
}

int demo_local(struct demo *demo)
{
    struct local_demo l = {.demo = demo, .steps = train_steps(&demo->job) * (size_t)demo->job.epochs};
    int code = open_members(&l);
    if (!code && !demo->json)
        show_head(demo);
    if (!code)
        code = train_together(&l);
    if (!code) {
        int same = check_same(&l), single = check_single(&l);
        report_time(&l);
        code = same ? same : single;
    }
    for (int r = 0; r < demo->ranks; r++) {
        hearth_node_close(l.members[r].node);
        trainer_fini(&l.members[r].trainer);
    }
    return code;
}
