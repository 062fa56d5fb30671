/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer of a home cluster as a user writes it, from hearth.h and docs/training.md alone: it checks every
 * step that is committed. Gradients are whole numbers that each member can compute for all others. Two syncs
 * take turns: one gives the exact sum over the members that the result itself names; the other is compressed,
 * and lacks at most what the members' residuals hold. tests/process/test_client.py starts several.
 *
 *     elastic_client ID PEERS STOP
 *
 * ID: its number, 0 to 15. It begins when PEERS others are there, and trains until a member finds the file
 * STOP. It prints a line of JSON for each step and for each result that is wrong. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <hearth.h>

enum { ROWS = 64, COLUMNS = 128, COUNT = ROWS * COLUMNS, IDS = 16, MIN_MEMBERS = 2, NUMBERS = 3 };
enum { COMPRESSED, EXACT, PARTS };
static const char job[] = "client";

/* One sync: a gradient, and facts about the members, a vector: those are not compressed. */
static struct part {
    const char *codec;
    float tolerance; /* for each member: how much an element of the sum may be off */
    hearth_sync *sync;
    int gradient_index, facts_index;
    bool ready; /* this step's gradient is computed */
    float gradient[COUNT];
    struct facts {
        float present[IDS]; /* 1: this member is in the sum */
        float norm[IDS];    /* of its residual */
        float stop;
    } facts;
} parts[PARTS] = {[COMPRESSED] = {.codec = "int8", .tolerance = 1}, [EXACT] = {.codec = "none"}};

/* What all members have in common; a newcomer takes it from another one. */
static struct model {
    double done; /* committed steps of both syncs */
    double stop;
    double norm[IDS];                  /* of the residuals, as last heard */
    double lost;                       /* at most: the norm of the residuals that members took with them */
    double given[COUNT], taken[COUNT]; /* into and out of the compressed sync, over all steps */
} model;

static int self, wrong;
static bool fresh = true; /* it has made no step with the others yet */
static const char *stop_file;
static hearth_node *node;
static hearth_group *group;

static int check(int status)
{
    if (status >= 0)
        return status;
    fprintf(stderr, "member %d, step %g: %s: %s\n", self, model.done, hearth_status_name(status),
            hearth_error_text());
    exit(1);
}

static void expect(bool right, const char *what, double value)
{
    if (right)
        return;
    wrong++;
    printf("{\"what\": \"wrong\", \"step\": %g, \"text\": \"%s: %g\"}\n", model.done, what, value);
    fflush(stdout);
}

static void log_line(void *arg, enum hearth_log_level level, const char *id, const char *text)
{
    (void)arg;
    fprintf(stderr, "%d %s %s\n", (int)level, id, text);
}

/* ---- the steps ---- */

static struct part *next_part(void)
{
    return &parts[(int)model.done % PARTS];
}

static float gradient_of(int id, int step, int i)
{
    return (float)((id * 31 + step * 17 + i * 7) % 129 - 64);
}

static double residual_norm(void)
{
    struct hearth_compressor_stats stats = {.size = sizeof stats};
    int status = hearth_compressor_stats(hearth_sync_compressor(parts[COMPRESSED].sync), "gradient", &stats);

    return status ? 0 : stats.residual_norm; /* a newcomer has none yet */
}

static void compute(struct part *part)
{
    for (int i = 0; i < COUNT; i++)
        part->gradient[i] = gradient_of(self, (int)model.done, i);
    part->facts = (struct facts){.stop = access(stop_file, F_OK) == 0};
    part->facts.present[self] = 1;
    part->facts.norm[self] = (float)residual_norm();
    check(hearth_sync_ready(part->sync, part->facts_index));
    check(hearth_sync_ready(part->sync, part->gradient_index));
    part->ready = true;
}

/* The sum is that of the members that it names; returns how many they are. */
static int check_sum(const struct part *part)
{
    double worst = 0;
    int members = 0;

    for (int id = 0; id < IDS; id++) {
        expect(part->facts.present[id] == 0 || part->facts.present[id] == 1,
               "times that a member is in the sum", (double)part->facts.present[id]);
        members += part->facts.present[id] == 1;
    }
    expect(part->facts.present[self] == 1, "times that this member is in the sum",
           (double)part->facts.present[self]);
    for (int i = 0; i < COUNT; i++) {
        double sum = 0;
        for (int id = 0; id < IDS; id++)
            sum += (double)(part->facts.present[id] * gradient_of(id, (int)model.done, i));
        worst = fmax(worst, fabs(sum - (double)part->gradient[i]));
        if (part == &parts[COMPRESSED]) {
            model.given[i] += sum;
            model.taken[i] += (double)part->gradient[i];
        }
    }
    expect(worst <= (double)part->tolerance * members, "error of a sum", worst);
    return members;
}

/* The residual of a member that is gone is lost; it may have made one more step since its norm was heard. */
static void lose_residual(int id)
{
    model.lost += 2 * model.norm[id];
    model.norm[id] = 0;
}

/* What came out of the compressed sync is what went in, but for the residuals. */
static void check_residuals(const struct facts *facts)
{
    double missing = 0, held = 0;

    for (int id = 0; id < IDS; id++) {
        if (facts->present[id] == 0)
            lose_residual(id);
        else
            held += model.norm[id] = (double)facts->norm[id];
    }
    for (int i = 0; i < COUNT; i++)
        missing += (model.given[i] - model.taken[i]) * (model.given[i] - model.taken[i]);
    missing = sqrt(missing);
    expect(missing <= held + model.lost + 1e-2, "more is missing than the residuals hold",
           missing - held - model.lost);
}

/* A step is committed: its result is in the buffers. */
static void take(struct part *part)
{
    int members = check_sum(part);

    if (part == &parts[EXACT]) {
        check_residuals(&part->facts);
        model.stop = (double)part->facts.stop;
    }
    printf("{\"what\": \"step\", \"step\": %g, \"members\": %d, \"ids\": [", model.done, members);
    for (int id = 0, told = 0; id < IDS; id++)
        if (part->facts.present[id] == 1)
            printf("%s%d", told++ > 0 ? ", " : "", id);
    printf("]}\n");
    fflush(stdout);
    model.done++;
    part->ready = fresh = false;
}

/* Steps of this sync that this member has taken. */
static uint64_t steps_of(const struct part *part)
{
    return (uint64_t)(model.done + (part == &parts[COMPRESSED])) / PARTS;
}

static int train(void)
{
    struct part *part = next_part();

    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); /* stands for computation */
    if (!part->ready)
        compute(part);
    int status = hearth_sync_wait(part->sync, NULL);
    if (status)
        return status;
    take(part);
    expect(hearth_sync_steps(part->sync) == steps_of(part), "steps that the sync counts",
           (double)hearth_sync_steps(part->sync));
    return HEARTH_OK;
}

/* ---- the members ---- */

/* Brings all members to the model of the one with the most steps. An error changes nothing. */
static int catch_up(void)
{
    static struct model newest;
    double mine[NUMBERS] = {model.done, self, fresh}, all[IDS][NUMBERS];
    int best = 0, status = hearth_all_gather(group, mine, all, NUMBERS, HEARTH_F64, NULL);

    for (int r = 1; !status && r < hearth_group_size(group); r++)
        best = all[r][0] > all[best][0] ? r : best;
    newest = model;
    if (!status)
        status = hearth_broadcast(group, &newest, sizeof newest, HEARTH_U8, best, NULL);
    if (status)
        return status;
    expect(fresh || model.done == newest.done, "steps that a survivor has", model.done);
    model = newest;
    for (int r = 0; r < hearth_group_size(group); r++)
        if (all[r][2] != 0)
            lose_residual((int)all[r][1]);
    return HEARTH_OK;
}

/* Fetches all events; whether a node asks for the job. */
static bool newcomer_waits(void)
{
    struct hearth_event event = {.size = sizeof event};
    bool waits = false;

    while (check(hearth_node_next_event(node, &event, 0)) == HEARTH_OK)
        waits |= event.kind == HEARTH_EVENT_JOB_WANTED && strcmp(event.text, job) == 0;
    return waits;
}

static int reform(void)
{
    struct part *part = next_part();

    (void)newcomer_waits(); /* a node that waits by now will be in the next group */
    if (check(hearth_group_reform(&group, NULL)) == HEARTH_BEHIND) {
        memset(&model, 0, sizeof model);
        parts[COMPRESSED].ready = parts[EXACT].ready = false;
        fresh = true;
    } else if (part->ready && hearth_sync_steps(part->sync) > steps_of(part)) {
        int status = hearth_sync_wait(part->sync, NULL); /* the others have committed the step, too */
        if (status)
            return status;
        take(part);
    }
    return catch_up();
}

static void open_all(int peers)
{
    struct hearth_config config;

    hearth_config_init(&config);
    check(hearth_config_env(&config));
    config.discover = "mdns";
    config.mdns = ""; /* seeds only */
    config.log = log_line;
    check(hearth_node_open(&config, &node));
    check(hearth_node_wait_for_peers(node, peers, -1));
    check(hearth_group_form(node, job, MIN_MEMBERS, NULL, &group));
    for (struct part *part = parts; part < parts + PARTS; part++) {
        struct hearth_tensor gradient = {sizeof gradient, "gradient", part->gradient,
                                         HEARTH_F32,      2,          (size_t[]){ROWS, COLUMNS}};
        struct hearth_tensor facts = {sizeof facts, "facts", &part->facts,
                                      HEARTH_F32,   1,       (size_t[]){sizeof part->facts / sizeof(float)}};
        check(hearth_sync_open(group, part->codec, HEARTH_OP_SUM, &part->sync));
        part->gradient_index = check(hearth_sync_add(part->sync, &gradient));
        part->facts_index = check(hearth_sync_add(part->sync, &facts));
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    self = (int)strtol(argv[1], NULL, 10);
    stop_file = argv[3];
    open_all((int)strtol(argv[2], NULL, 10));
    int status = catch_up();
    while (status || model.stop == 0) {
        if (status == HEARTH_VIEW_CHANGED || (!status && !next_part()->ready && newcomer_waits())) {
            status = reform();
            continue;
        }
        check(status);
        status = train();
    }
    check(hearth_group_same(group, &model, sizeof model, NULL, NULL));
    hearth_node_close(node);
    return wrong > 0;
}
