/* SPDX-License-Identifier: Apache-2.0 */
/* hearth-trainer: a member of a home cluster that trains as examples/elastic.c does, for tests. Gradients are
 * small whole numbers that every member can compute for every other one, so each checks every result: it is
 * the weighted mean over the members that the result itself names. What is committed is a line of JSON each.
 *
 *     hearth-trainer HOST MIN PACE_MS STOP [redo]
 *
 * HOST: its number, 0 to 31, and its weight less one. It trains until a member finds the file STOP, pausing
 * PACE_MS in each step. redo: it does not take what a reform has committed, but makes the step again. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <hearth.h>

enum { HOSTS = 32, META_STOP = 32, META_STEP = 33, META_COUNT = 64, TENSORS = 6, COUNT_MAX = 280000 };

static const struct shape {
    const char *name;
    size_t count;
    const char *codec; /* NULL: none */
    float off;         /* how much a result may be off the mean; negative: it is not looked at */
} shapes[TENSORS] = {
    {"meta", META_COUNT, NULL, -1}, /* looked at by itself */
    {"small", 1000, NULL, 1e-4f},        {"middle", 3001, NULL, 1e-4f},
    {"large", COUNT_MAX, NULL, 1e-4f}, /* over 1 MiB: goes by itself */
    {"layer.int8", 20000, "int8", 1.0f}, {"layer.topk", 20000, "topk:0.02", -1},
};

static float params[TENSORS][COUNT_MAX], gradients[TENSORS][COUNT_MAX];
static int self;
static bool redo, stopping;
static int64_t step;
static const char *stop_file;

static void complain(const char *what)
{
    printf("{\"what\": \"error\", \"step\": %" PRId64 ", \"text\": \"%s\"}\n", step, what);
    fflush(stdout);
}

static int check(int status)
{
    if (status >= 0)
        return status;
    fprintf(stderr, "trainer: step %" PRId64 ": %s: %s\n", step, hearth_status_name(status),
            hearth_error_text());
    complain(hearth_status_name(status));
    exit(1);
}

/* ---- the model ---- */

/* The same again after so many elements. */
#define PERIOD 17

static float gradient_of(int host, size_t i, int64_t at)
{
    return (float)((int64_t)(i * 7 + (size_t)host * 31 + (size_t)at * 13) % PERIOD - 8);
}

static void compute(void)
{
    for (int t = 1; t < TENSORS; t++)
        for (size_t i = 0; i < shapes[t].count; i++)
            gradients[t][i] = i < PERIOD ? gradient_of(self, i, step) : gradients[t][i - PERIOD];
    memset(gradients[0], 0, sizeof gradients[0]);
    gradients[0][self] = 1;
    gradients[0][META_STOP] = access(stop_file, F_OK) == 0;
    gradients[0][META_STEP] = (float)step;
}

static uint64_t hash_params(void)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < shapes[t].count; i++) {
            uint32_t bits;
            memcpy(&bits, &params[t][i], sizeof bits);
            hash = (hash ^ bits) * UINT64_C(1099511628211);
        }
    return hash;
}

/* Who took part, by the result itself; the sum of their weights. */
static double members_of(bool in[HOSTS])
{
    double total = 0;
    for (int h = 0; h < HOSTS; h++) {
        in[h] = gradients[0][h] > 0;
        total += in[h] ? h + 1 : 0;
    }
    return total;
}

static float mean_of(const bool in[HOSTS], double total, size_t i)
{
    double sum = 0;
    for (int h = 0; h < HOSTS; h++)
        sum += in[h] ? (h + 1) * (double)gradient_of(h, i, step) : 0;
    return (float)(sum / total);
}

static bool near_means(int tensor, const float means[PERIOD])
{
    bool good = true;
    for (size_t i = 0; good && shapes[tensor].off >= 0 && i < shapes[tensor].count; i++)
        good = fabsf(gradients[tensor][i] - means[i % PERIOD]) <= shapes[tensor].off;
    return good;
}

static void check_result(const bool in[HOSTS], double total)
{
    float means[PERIOD];
    for (size_t i = 0; i < PERIOD; i++)
        means[i] = mean_of(in, total, i);
    for (int t = 1; t < TENSORS; t++)
        if (!near_means(t, means))
            complain(shapes[t].name);
    for (int h = 0; h < HOSTS; h++)
        if (!(fabs((double)gradients[0][h] - (in[h] ? (h + 1) / total : 0)) < 1e-5))
            complain("weights");
    if (!in[self])
        complain("the result lacks this member");
    if (!(fabsf(gradients[0][META_STEP] - (float)step) < 1e-3f))
        complain("members were at different steps");
}

/* The step is committed. */
static void apply(void)
{
    bool in[HOSTS];
    double total = members_of(in);
    const char *comma = "";
    check_result(in, total);
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < shapes[t].count; i++)
            params[t][i] -= 0.125f * gradients[t][i];
    stopping = stopping || gradients[0][META_STOP] > 0;
    printf("{\"what\": \"step\", \"step\": %" PRId64 ", \"members\": [", step);
    for (int h = 0; h < HOSTS; h++)
        if (in[h]) {
            printf("%s%d", comma, h);
            comma = ", ";
        }
    printf("], \"hash\": \"%016" PRIx64 "\"}\n", hash_params());
    fflush(stdout);
    step++;
}

/* ---- with the others ---- */

struct standing {
    int64_t step, behind, stopping, hash;
};

/* All that have the model have the same one. */
static int root_of(const struct standing *all, int size)
{
    int root = 0;
    for (int i = 1; i < size; i++)
        if (all[i].behind != all[root].behind ? all[i].behind < all[root].behind
                                              : all[i].step > all[root].step)
            root = i;
    for (int i = 0; i < size; i++) {
        bool late = redo && all[i].step + 1 == all[root].step;
        if (!all[i].behind && all[i].step > 0 && !late &&
            (all[i].step != all[root].step || all[i].hash != all[root].hash))
            complain("members have different models after a reform");
        stopping = stopping || all[i].stopping;
    }
    return root;
}

static int catch_up(hearth_group *group, bool behind)
{
    struct standing own = {step, behind, stopping, (int64_t)hash_params()}, all[HOSTS];
    int status = hearth_all_gather(group, &own, all, sizeof own / sizeof(int64_t), HEARTH_I64, NULL);
    int root = status == HEARTH_OK ? root_of(all, hearth_group_size(group)) : 0;
    for (int t = 0; t < TENSORS && status == HEARTH_OK; t++)
        status = hearth_broadcast(group, params[t], shapes[t].count, HEARTH_F32, root, NULL);
    if (status == HEARTH_OK)
        step = all[root].step;
    return status;
}

static int go_on(hearth_group **group, hearth_sync *sync)
{
    int status;
    fprintf(stderr, "trainer: step %" PRId64 ": %s\n", step, hearth_error_text());
    do
        status = hearth_group_reform(group, NULL);
    while (status == HEARTH_TIMEOUT && !stopping && access(stop_file, F_OK) != 0);
    if (status < 0 && (stopping || status == HEARTH_TIMEOUT)) {
        printf("{\"what\": \"%s\"}\n", stopping ? "alone" : "left out");
        fflush(stdout);
        exit(0);
    }
    check(status);
    if (status == HEARTH_BEHIND)
        printf("{\"what\": \"behind\"}\n");
    else if (!redo && hearth_sync_steps(sync) > (uint64_t)step) {
        check(hearth_sync_wait(sync, NULL));
        apply();
    }
    return catch_up(*group, status == HEARTH_BEHIND);
}

static int backward(hearth_sync *sync)
{
    compute();
    for (int t = 0; t < TENSORS; t++)
        check(hearth_sync_ready(sync, (t + self) % TENSORS));
    return hearth_sync_wait(sync, NULL);
}

static void train(hearth_group *group, hearth_sync *sync, long pace_ms)
{
    int status = catch_up(group, false);
    for (;;) {
        if (!status)
            status = stopping ? hearth_barrier(group, NULL) : backward(sync);
        if (status == HEARTH_VIEW_CHANGED) {
            status = go_on(&group, sync);
            continue;
        }
        check(status);
        if (stopping)
            break;
        apply();
        nanosleep(&(struct timespec){.tv_sec = pace_ms / 1000, .tv_nsec = pace_ms % 1000 * 1000000}, NULL);
    }
    printf("{\"what\": \"end\", \"step\": %" PRId64 ", \"hash\": \"%016" PRIx64 "\"}\n", step, hash_params());
}

static hearth_sync *open_sync(hearth_group *group)
{
    struct hearth_compressor_config config;
    hearth_compressor *compressor;
    hearth_sync *sync;
    hearth_compressor_config_init(&config);
    config.codec = "none";
    check(hearth_compressor_open(group, &config, &compressor));
    for (int t = 0; t < TENSORS; t++)
        if (shapes[t].codec)
            check(hearth_compressor_add_rule(compressor, shapes[t].name, shapes[t].codec));
    check(hearth_sync_open_with(compressor, HEARTH_OP_AVG, &sync));
    for (int t = 0; t < TENSORS; t++) {
        struct hearth_tensor tensor = {
            sizeof tensor, shapes[t].name, gradients[t], HEARTH_F32, 1, (size_t[]){shapes[t].count}};
        check(hearth_sync_add(sync, &tensor));
    }
    check(hearth_sync_set_weight(sync, self + 1));
    return sync;
}

int main(int argc, char **argv)
{
    struct hearth_config config;
    hearth_node *node;
    hearth_group *group;
    int status;
    if (argc < 5)
        return 2;
    self = (int)strtol(argv[1], NULL, 10);
    stop_file = argv[4];
    redo = argc > 5 && strcmp(argv[5], "redo") == 0;
    hearth_config_init(&config);
    check(hearth_config_env(&config));
    config.discover = "mdns";
    check(hearth_node_open(&config, &node));
    do
        status = hearth_group_form(node, "training", (int)strtol(argv[2], NULL, 10), NULL, &group);
    while (status == HEARTH_TIMEOUT && access(stop_file, F_OK) != 0);
    if (status == HEARTH_TIMEOUT)
        printf("{\"what\": \"left out\"}\n");
    else
        check(status);
    if (status == HEARTH_OK)
        train(group, open_sync(group), strtol(argv[3], NULL, 10));
    hearth_node_close(node);
    return 0;
}
