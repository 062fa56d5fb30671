/* SPDX-License-Identifier: Apache-2.0 */
/* A member is killed or frozen in a stream of compressed all-reduces: every other one gets an error that
 * names it, in time, finds buffers, residuals and what a compressor keeps as they were before the step that
 * failed, and can close. */
#include <signal.h>
#include <unistd.h>

#include "conform/gradients.h"
#include "process/death.h"
#include "support/watchdog.h"

#define ROWS          64
#define COLUMNS_MAX   2048
#define COUNT_MAX     ((size_t)ROWS * COLUMNS_MAX)
#define IN_FLIGHT     3
#define STRIKE_US_MAX 20000

static const char *const codecs[] = {
    "int8",
    "topk:0.01",
    "randomk:0.05",
    "powersgd:2,rows=64",
    "topk:0.02,chunk=4096,values=int8",
    "topk:0.05,values=bf16",
    "bf16",
    "randomk:0.02,values=int8",
    "fp16",
    "onebit",
    "topk:0.1,values=int8",
    "none",
    "powersgd:2,alternate", /* this one only with a compressor */
};

#define CODEC_COUNT (sizeof codecs / sizeof *codecs)

/* ---- a member's tensors ---- */

struct tensor {
    const char *codec;
    enum hearth_dtype dtype;
    enum hearth_algo algo;
    size_t columns;
    void *x, *x_before;
    float *e, *e_before;
};

struct worker {
    struct team *team;
    const struct death *death;
    hearth_group *world;
    hearth_compressor *compressor;
    uint64_t seed, own_seed; /* of what all draw alike, and of what only this member draws */
    struct tensor tensors[IN_FLIGHT];
    const char *kept_codec[IN_FLIGHT]; /* of the compressor's tensors */
};

static size_t tensor_count(const struct tensor *t)
{
    return ROWS * t->columns;
}

static size_t tensor_len(const struct tensor *t)
{
    return tensor_count(t) * hearth_dtype_size(t->dtype);
}

/* What is summed: the same on all members. Where it may be chosen, by which way it goes. */
static void tensor_draw(struct worker *w, struct tensor *t)
{
    static const enum hearth_algo algos[] = {HEARTH_ALGO_AUTO, HEARTH_ALGO_DIRECT, HEARTH_ALGO_EXCHANGE};
    t->codec = codecs[draw_below(&w->seed, CODEC_COUNT - 1)];
    t->dtype = draw_below(&w->seed, 3) == 0 ? HEARTH_BF16 : HEARTH_F32;
    t->columns = (size_t)1 << draw_below(&w->seed, 12);
    uint64_t which = draw_below(&w->seed, 3);
    bool shared = strncmp(t->codec, "randomk", 7) == 0 || strncmp(t->codec, "powersgd", 8) == 0;
    t->algo = shared || strcmp(t->codec, "none") == 0 ? HEARTH_ALGO_AUTO : algos[which];
}

static void tensor_fill(struct worker *w, struct tensor *t)
{
    for (size_t i = 0; i < tensor_count(t); i++) {
        float x = (float)(int32_t)draw(&w->own_seed) / 2147483648.0F;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (t->dtype == HEARTH_F32)
            ((float *)t->x)[i] = x * x * x;
        else
            ((uint16_t *)t->x)[i] = (uint16_t)(bits >> 16);
    }
    memcpy(t->x_before, t->x, tensor_len(t));
    memcpy(t->e_before, t->e, tensor_count(t) * sizeof *t->e);
}

/* After a failure. */
static void tensor_check(const struct worker *w, const struct tensor *t, int status, const char *text)
{
    unsigned long long seed = w->death->seed;
    int victim = w->death->victim;
    enum hearth_scope scope = hearth_status_scope(status);
    check(status == HEARTH_PEER_LOST || status == HEARTH_ABORTED || scope == HEARTH_SCOPE_GROUP,
          "seed %llu, %s: %s: %s", seed, t->codec, hearth_status_name(status), text);
    check(hearth_group_rank(w->world) == victim || names_rank(text, victim),
          "seed %llu, %s: rank %d is not named: %s", seed, t->codec, victim, text);
    /* "none" is the plain all_reduce in place: no transaction. */
    check(strcmp(t->codec, "none") == 0 || memcmp(t->x, t->x_before, tensor_len(t)) == 0,
          "seed %llu, %s: the buffer has changed: %s", seed, t->codec, text);
    check(memcmp(t->e, t->e_before, tensor_count(t) * sizeof *t->e) == 0,
          "seed %llu, %s: the residual has changed: %s", seed, t->codec, text);
}

/* ---- ways to call ---- */

static int step_blocking(struct worker *w)
{
    struct tensor *t = &w->tensors[0];
    struct hearth_opts opts = opts_default();
    tensor_draw(w, t);
    tensor_fill(w, t);
    opts.algo = t->algo;
    int status = hearth_all_reduce_compressed(w->world, t->x, tensor_count(t), t->dtype, HEARTH_OP_AVG,
                                              t->codec, t->e, &opts);
    if (status != HEARTH_OK)
        tensor_check(w, t, status, hearth_error_text());
    return status;
}

/* Several at once; each ends by itself. A call that is refused at once is an end as well. */
static int step_several(struct worker *w)
{
    hearth_request *requests[IN_FLIGHT] = {NULL};
    int worst = HEARTH_OK;
    for (int i = 0; i < IN_FLIGHT; i++) {
        struct tensor *t = &w->tensors[i];
        struct hearth_opts opts = opts_default();
        tensor_draw(w, t);
        tensor_fill(w, t);
        opts.algo = t->algo;
        opts.tag = (uint64_t)i;
        int status = hearth_all_reduce_compressed_nb(w->world, t->x, tensor_count(t), t->dtype, HEARTH_OP_SUM,
                                                     t->codec, t->e, &opts, &requests[i]);
        if (status == HEARTH_OK)
            continue;
        requests[i] = NULL;
        worst = status;
        tensor_check(w, t, status, hearth_error_text());
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        int status = requests[i] ? hearth_request_wait(requests[i], -1) : HEARTH_OK;
        if (status != HEARTH_OK) {
            worst = status;
            tensor_check(w, &w->tensors[i], status, hearth_request_error(requests[i]));
        }
        hearth_request_close(requests[i]);
    }
    return worst;
}

static int step_kept(struct worker *w)
{
    static const char *const names[IN_FLIGHT] = {"a", "b", "c"};
    int which = (int)draw_below(&w->seed, IN_FLIGHT);
    struct tensor *t = &w->tensors[which];
    t->codec = w->kept_codec[which];
    t->dtype = HEARTH_F32;
    t->columns = (size_t)ROWS << which;
    tensor_fill(w, t);
    size_t dims[2] = {ROWS, t->columns}, len = 0, len_after = 0;
    struct hearth_tensor tensor = {sizeof tensor, names[which], t->x, t->dtype, 2, dims};
    uint8_t *before = save(w->compressor, &len);
    int status = hearth_compressor_all_reduce(w->compressor, &tensor, HEARTH_OP_AVG, NULL);
    if (status != HEARTH_OK) {
        char text[TEXT_MAX];
        snprintf(text, sizeof text, "%s", hearth_error_text());
        tensor_check(w, t, status, text);
        uint8_t *after = save(w->compressor, &len_after);
        /* A tensor whose first step fails is known all the same. */
        check(len_after > len || (len_after == len && memcmp(before, after, len) == 0),
              "seed %llu, %s: what the compressor keeps has changed: %s", (unsigned long long)w->death->seed,
              t->codec, text);
        free(after);
    }
    free(before);
    return status;
}

/* ---- the life of a member ---- */

static void worker_open(struct worker *w)
{
    struct hearth_compressor_config config;
    hearth_compressor_config_init(&config);
    config.min_count = 1;
    check_ok(hearth_compressor_open(w->world, &config, &w->compressor));
    for (int i = 0; i < IN_FLIGHT; i++) {
        static const char *const names[IN_FLIGHT] = {"a", "b", "c"};
        struct tensor *t = &w->tensors[i];
        t->x = must_alloc(COUNT_MAX * sizeof(float));
        t->x_before = must_alloc(COUNT_MAX * sizeof(float));
        t->e = calloc(COUNT_MAX, sizeof *t->e);
        t->e_before = must_alloc(COUNT_MAX * sizeof *t->e_before);
        w->kept_codec[i] = codecs[(3 * w->death->seed + (uint64_t)i) % CODEC_COUNT];
        check_ok(hearth_compressor_add_rule(w->compressor, names[i], w->kept_codec[i]));
    }
}

static void worker_close(struct worker *w)
{
    hearth_compressor_close(w->compressor);
    for (int i = 0; i < IN_FLIGHT; i++) {
        free(w->tensors[i].x);
        free(w->tensors[i].x_before);
        free(w->tensors[i].e);
        free(w->tensors[i].e_before);
    }
}

/* From now on every call says so. Who heard of the loss from another member may yet find it by itself. */
static void calls_after(struct worker *w)
{
    for (int i = 0; i < 3; i++) {
        float x[ROWS] = {1};
        int status =
            hearth_all_reduce_compressed(w->world, x, ROWS, HEARTH_F32, HEARTH_OP_SUM, codecs[i], NULL, NULL);
        bool first = status == HEARTH_PEER_LOST || status == HEARTH_ABORTED;
        check((hearth_status_scope(status) == HEARTH_SCOPE_GROUP || (first && i < 2)) &&
                  names_rank(hearth_error_text(), w->death->victim) && x[0] == 1,
              "seed %llu: call %d after the end of rank %d: %s: %s", (unsigned long long)w->death->seed, i,
              w->death->victim, hearth_status_name(status), hearth_error_text());
    }
}

static int work(struct worker *w, struct note *note)
{
    int status = HEARTH_OK;
    while (status == HEARTH_OK) {
        uint64_t way = draw_below(&w->seed, 4);
        status = way == 0 ? step_kept(w) : way == 1 ? step_blocking(w) : step_several(w);
        if (status == HEARTH_OK && atomic_fetch_add(&note->rounds, 1) == 2)
            atomic_store(&note->ready, true);
    }
    return status;
}

static void member(struct team *team, int rank, void *arg)
{
    const struct death *d = arg;
    struct note *note = &team->board->notes[rank];
    death_expect(d);
    set_number_env("HEARTH_COMPRESS_THREADS", 1 + (long)(d->seed / 2 % 2));
    if (d->seed / 4 % 2) {
        setenv("HEARTH_CHUNK_BYTES", "16K", 1);
        setenv("HEARTH_WINDOW_BYTES", "16K", 1);
        setenv("HEARTH_EAGER_BYTES", "16K", 1);
    }
    hearth_node *node = member_open();
    if (!node)
        return;
    struct worker w = {.team = team,
                       .death = d,
                       .world = hearth_node_world(node),
                       .seed = d->seed,
                       .own_seed = d->seed * 100 + (uint64_t)rank};
    worker_open(&w);
    note_failed(note, work(&w, note));
    if (rank != d->victim)
        calls_after(&w);
    worker_close(&w);
    death_close(node, note);
}

static void play(const char *what, int number, unsigned long count, unsigned long together)
{
    static const char *const transports[] = {"tcp", "shm"};
    struct trial_plan plan = {.what = what,
                              .member = member,
                              .transports = transports,
                              .transport_count = 2,
                              .size_max = 4,
                              .strike_us_max = STRIKE_US_MAX,
                              .count = count,
                              .together = together};
    scenes_play(&plan, (struct death){.signal = number});
}

TEST(test_killed)
{
    play("killed", SIGKILL, repeat_count(soaking() ? 300 : 20), 1);
}

TEST(test_frozen)
{
    play("frozen", SIGSTOP, repeat_count(soaking() ? 100 : 12), 4);
}
