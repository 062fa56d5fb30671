/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that can be formed anew: a member leaves in the middle of all kinds of calls, and every survivor
 * gets HEARTH_VIEW_CHANGED, once and for all, with its inputs as promised. */
#include <stdatomic.h>

#include "conform/model.h"
#include "node/node.h"
#include "support/watchdog.h"

#define SIZE_MAX_HERE 5
#define COUNT         20000
#define FLYING        4
#define CALLS_MAX     100000 /* after so many that went well something is wrong */

enum call_kind { BLOCKING, FLOCK, COMPRESSED, COMPRESSED_FLOCK, COMPRESSOR, SYNC, SAME, SPLIT, KINDS };
static const char *const names[KINDS] = {"all_reduce", "all_reduce_nb", "compressed", "compressed_nb",
                                         "compressor", "sync",          "same",       "split"};
static const char *const codecs[] = {"int8", "topk:0.01", "randomk:0.05", "powersgd:2", "bf16"};

struct leaving {
    enum call_kind kind;
    const char *codec;
    int who;
    int calls; /* that go well before */
    bool told; /* nobody leaves: all are told that the view is another */
    uint64_t seed;
};

/* What a member calls again and again. */
struct caller {
    struct fixture *c;
    const struct leaving *l;
    int rank;
    float *x, *before;
    struct model model;
    hearth_compressor *compressor;
    int number;
    atomic_int done_status[FLYING]; /* what callbacks heard */
};

static void caller_open(struct caller *k, struct fixture *c, const struct leaving *l, int rank)
{
    *k = (struct caller){.c = c, .l = l, .rank = rank};
    k->x = must_alloc(FLYING * COUNT * sizeof *k->x);
    k->before = must_alloc(FLYING * COUNT * sizeof *k->x);
    struct hearth_compressor_config config;
    hearth_compressor_config_init(&config);
    config.codec = l->codec;
    if (l->kind == SYNC)
        model_open(&k->model, c->world[rank], l->codec, HEARTH_OP_SUM);
    if (l->kind == COMPRESSOR)
        check_ok(hearth_compressor_open(c->world[rank], &config, &k->compressor));
}

static void caller_close(struct caller *k, bool with_node)
{
    if (with_node)
        k->model.sync = NULL;
    if (k->l->kind == SYNC)
        model_close(&k->model);
    if (!with_node)
        hearth_compressor_close(k->compressor);
    free(k->x);
    free(k->before);
}

static void fill(struct caller *k)
{
    uint64_t seed = k->l->seed + (uint64_t)(k->rank * 1000 + k->number++);
    for (int i = 0; i < FLYING * COUNT; i++)
        k->x[i] = (float)draw_below(&seed, 2000) - 1000;
    memcpy(k->before, k->x, FLYING * COUNT * sizeof *k->x);
}

static void heard(void *arg, int status)
{
    atomic_store((atomic_int *)arg, status);
}

static int start(struct caller *k, int i, hearth_request **request)
{
    struct hearth_opts opts = opts_default();
    opts.flags = HEARTH_FLAG_RESTORE;
    opts.tag = (uint64_t)i;
    opts.done = heard;
    opts.done_arg = &k->done_status[i];
    atomic_store(&k->done_status[i], 1);
    float *x = k->x + i * COUNT;
    if (k->l->kind == FLOCK)
        return hearth_all_reduce_nb(k->c->world[k->rank], x, x, COUNT, HEARTH_F32, HEARTH_OP_SUM, &opts,
                                    request);
    opts.flags = 0;
    return hearth_all_reduce_compressed_nb(k->c->world[k->rank], x, COUNT, HEARTH_F32, HEARTH_OP_SUM,
                                           k->l->codec, NULL, &opts, request);
}

static void untouched(const struct caller *k, int i)
{
    check(memcmp(k->x + i * COUNT, k->before + i * COUNT, COUNT * sizeof *k->x) == 0,
          "%s %s: rank %d: input %d has changed", names[k->l->kind], k->l->codec, k->rank, i);
}

/* Several at once: whatever fails among them must fail alike. */
static int flock(struct caller *k)
{
    hearth_request *requests[FLYING];
    int started[FLYING], worst = HEARTH_OK;
    for (int i = 0; i < FLYING; i++)
        started[i] = start(k, i, &requests[i]);
    for (int i = 0; i < FLYING; i++) {
        int status = started[i] == HEARTH_OK ? hearth_request_wait(requests[i], -1) : started[i];
        if (started[i] == HEARTH_OK) {
            check(atomic_load(&k->done_status[i]) == status, "the callback heard %d, not %d",
                  atomic_load(&k->done_status[i]), status);
            hearth_request_close(requests[i]);
        }
        check(status == HEARTH_OK || status == HEARTH_VIEW_CHANGED, "%s %s: rank %d: %s: %s",
              names[k->l->kind], k->l->codec, k->rank, hearth_status_name(status), hearth_error_text());
        if (status != HEARTH_OK)
            untouched(k, i);
        worst = status != HEARTH_OK ? status : worst;
    }
    if (worst != HEARTH_OK) /* the last that was waited for may have been one that ended well */
        worst = hearth_barrier(k->c->world[k->rank], NULL);
    return worst;
}

static int step(struct caller *k)
{
    model_fill(&k->model, k->rank, k->number);
    model_ready(&k->model, (uint64_t)k->rank);
    int status = hearth_sync_wait(k->model.sync, NULL);
    hearth_sync_drop(k->model.sync);
    return status;
}

static int call(struct caller *k)
{
    hearth_group *group = k->c->world[k->rank], *child = NULL;
    struct hearth_opts opts = opts_default();
    const size_t dims[] = {COUNT / 100, 100};
    struct hearth_tensor tensor = {
        .size = sizeof tensor, .name = "w", .data = k->x, .dtype = HEARTH_F32, .ndim = 2, .dims = dims};
    int status;
    fill(k);
    opts.flags = HEARTH_FLAG_RESTORE;
    switch (k->l->kind) {
    case BLOCKING:
        status = hearth_all_reduce(group, k->x, k->x, COUNT, HEARTH_F32, HEARTH_OP_SUM, &opts);
        break;
    case COMPRESSED:
        status = hearth_all_reduce_compressed(group, k->x, COUNT, HEARTH_F32, HEARTH_OP_SUM, k->l->codec,
                                              NULL, NULL);
        break;
    case COMPRESSOR:
        status = hearth_compressor_all_reduce(k->compressor, &tensor, HEARTH_OP_SUM, NULL);
        break;
    case SYNC:
        return step(k);
    case SAME:
        return hearth_group_same(group, "the same", 8, NULL, NULL);
    case SPLIT:
        status = hearth_group_split(group, 0, 0, NULL, &child);
        hearth_group_close(child);
        return status;
    default:
        return flock(k);
    }
    if (status != HEARTH_OK)
        untouched(k, 0);
    return status;
}

static void check_end(const struct caller *k, int status)
{
    static const char advice[] = "; hearth_group_reform gives the next group";
    const char *text = hearth_error_text();
    size_t len = strlen(text);
    check(status == HEARTH_VIEW_CHANGED, "%s %s of %d, %d leaves: rank %d: %s: %s", names[k->l->kind],
          k->l->codec, k->c->size, k->l->who, k->rank, hearth_status_name(status), text);
    check(len >= sizeof advice - 1 && strcmp(text + len - (sizeof advice - 1), advice) == 0,
          "%s %s: rank %d: no way on: %s", names[k->l->kind], k->l->codec, k->rank, text);
}

static void stay(struct caller *k)
{
    int status = HEARTH_OK;
    for (int i = 0; i < CALLS_MAX && status == HEARTH_OK; i++)
        status = call(k);
    check_end(k, status);
    check_end(k, call(k));
}

static void member(struct fixture *c, int rank, void *arg)
{
    const struct leaving *l = arg;
    struct caller k;
    caller_open(&k, c, l, rank);
    for (int i = 0; i < l->calls; i++)
        check_ok(call(&k));
    if (l->told)
        fixture_meet(c);
    for (int i = 0; l->told && rank == l->who && i < c->size; i++)
        node_view_changed(c->nodes[i], "another view");
    bool leaves = !l->told && rank == l->who;
    if (leaves) {
        hearth_request *request = NULL;
        if (l->kind == SYNC)
            check_ok(hearth_sync_ready(k.model.sync, (int)(l->seed % TENSORS)));
        else if (l->kind == COMPRESSED_FLOCK || l->kind == FLOCK)
            check_ok(start(&k, 0, &request));
        for (uint64_t i = 0; request && i < l->seed % 50; i++)
            hearth_request_test(request);
        hearth_node_close(c->nodes[rank]);
        c->nodes[rank] = NULL;
    } else {
        stay(&k);
    }
    caller_close(&k, leaves);
}

static void changing_open(struct fixture *c, int size, uint64_t seed)
{
    struct error error;
    struct hearth_config config;
    hearth_config_init(&config);
    const int host[SIZE_MAX_HERE] = {0, 1, 0, 1, 2};
    struct local_setup setup = {.config = &config,
                                .count = size,
                                .host = seed % 2 ? host : NULL,
                                .id = 77,
                                .loss = HEARTH_VIEW_CHANGED};
    fixture_open(c, size, NULL); /* for its meeting place and guard */
    for (int i = 0; i < size; i++)
        hearth_node_close(c->nodes[i]);
    assert_ok(local_open(&setup, c->nodes, &error));
    for (int i = 0; i < size; i++)
        c->world[i] = hearth_node_world(c->nodes[i]);
}

static void run(enum call_kind kind, bool told, uint64_t seed)
{
    struct fixture c;
    int size = 2 + (int)draw_below(&seed, SIZE_MAX_HERE - 1);
    struct leaving l = {.kind = kind,
                        .codec = codecs[draw_below(&seed, sizeof codecs / sizeof *codecs)],
                        .who = (int)draw_below(&seed, (uint64_t)size),
                        .calls = (int)draw_below(&seed, 3),
                        .told = told,
                        .seed = draw(&seed)};
    changing_open(&c, size, seed);
    if (strncmp(l.codec, "powersgd", 8) == 0 && kind != COMPRESSOR && kind != SYNC)
        l.codec = "powersgd:2,rows=100";
    fixture_run(&c, member, &l);
    fixture_close(&c);
}

TEST(test_one_leaves)
{
    for (unsigned long i = 0; i < repeat_count(8); i++)
        for (int kind = 0; kind < KINDS; kind++)
            run((enum call_kind)kind, false, first_seed() + i * KINDS + (unsigned long)kind);
}

TEST(test_all_are_told)
{
    for (unsigned long i = 0; i < repeat_count(2); i++)
        for (int kind = 0; kind < KINDS; kind++)
            run((enum call_kind)kind, true, first_seed() + 5000 + i * KINDS + (unsigned long)kind);
}
