/* SPDX-License-Identifier: Apache-2.0 */
/* A member is killed or frozen in a stream of compressed all-reduces: every other one gets an error that
 * names it, in time, finds buffers, residuals and what a compressor keeps as they were before the step that
  * failed, and can close. */
#include <signal.h>
#include <unistd.h>

#include "conform/gradients.h"
#include "process/team.h"
#include "support/watchdog.h"

#define PEER_TIMEOUT_MS 2000
#define SILENCE_MS      60000 /* found at once; who else is silent for a while waits for a processor */
#define CLOSED_MS_MAX   5000  /* these only tell a hang from a slow machine */
#define FROZEN_MS_MAX   12000
#define ROWS            64
#define COLUMNS_MAX     2048
#define COUNT_MAX       ((size_t)ROWS * COLUMNS_MAX)
#define IN_FLIGHT       3
#define STRIKE_US_MAX   20000

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

struct death {
    uint64_t seed;
    int victim;
    int signal;
};

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
    set_number_env("HEARTH_PEER_TIMEOUT_MS",
                   d->signal == SIGSTOP ? PEER_TIMEOUT_MS * slow_factor() : SILENCE_MS);
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
    uint64_t begin = now_ns();
    hearth_node_close(node);
    atomic_store(&note->close_ns, now_ns() - begin);
}

/* ---- the test's side ---- */

struct scene {
    struct team team;
    struct death death;
    uint64_t end_ns;
};

static void scene_begin(struct scene *s, int size, const char *transport)
{
    uint64_t seed = s->death.seed;
    s->death.victim = (int)draw_below(&seed, (uint64_t)size);
    team_start(&s->team, size, transport, member, &s->death);
}

static void scene_strike(struct scene *s)
{
    uint64_t seed = s->death.seed ^ 0xdead;
    if (!team_ready(&s->team, 30))
        return;
    usleep((unsigned)draw_below(&seed, STRIKE_US_MAX)); /* anywhere in a step */
    s->end_ns = now_ns();
    team_kill(&s->team, s->death.victim, s->death.signal);
}

/* The frozen one may live on when the others are through: it must see that it is alone. */
static void scene_thaw(struct scene *s)
{
    struct team *team = &s->team;
    uint64_t deadline = now_ns() + (uint64_t)(FROZEN_MS_MAX * slow_factor()) * 1000000u;
    for (int i = 0; i < team->size; i++)
        while (i != s->death.victim && atomic_load(&team->board->notes[i].close_ns) == 0 &&
               now_ns() < deadline)
            sleep_ms(1);
    team_kill(team, s->death.victim, SIGCONT);
}

static void scene_end(struct scene *s)
{
    struct team *team = &s->team;
    double limit = (s->death.signal == SIGSTOP ? FROZEN_MS_MAX : CLOSED_MS_MAX) * slow_factor();
    if (s->death.signal == SIGSTOP)
        scene_thaw(s);
    team_join(team, 30);
    for (int i = 0; i < team->size; i++) {
        const struct note *note = &team->board->notes[i];
        double ms = note->failed_ns > s->end_ns ? (double)(note->failed_ns - s->end_ns) / 1e6 : 0;
        double close_ms = (double)note->close_ns / 1e6;
        if (i != s->death.victim)
            check(ms < limit && close_ms < limit,
                  "seed %llu, %s: rank %d of %d needed %.0f ms to fail, %.0f to close",
                  (unsigned long long)s->death.seed, team->transport, i, team->size, ms, close_ms);
    }
    team_free(team);
}

/* Several teams at a time where this is waiting for the most part. */
static void scenes(const char *what, int number, unsigned long count, unsigned long together)
{
    enum { TOGETHER_MAX = 4 };
    for (unsigned long i = 0; i < count; i += together) {
        struct scene s[TOGETHER_MAX] = {0};
        watchdog(200 * (unsigned)slow_factor(), what);
        for (unsigned long j = 0; j < together; j++) {
            s[j].death = (struct death){.seed = first_seed() + i + j, .signal = number};
            scene_begin(&s[j], 2 + (int)((i + j) / 2 % 3), (i + j) % 2 ? "shm" : "tcp");
            scene_strike(&s[j]);
        }
        for (unsigned long j = 0; j < together; j++)
            scene_end(&s[j]);
        checks_end();
    }
}

TEST(test_killed)
{
    scenes("killed", SIGKILL, repeat_count(soaking() ? 300 : 20), 1);
}

TEST(test_frozen)
{
    scenes("frozen", SIGSTOP, repeat_count(soaking() ? 100 : 12), 4);
}
