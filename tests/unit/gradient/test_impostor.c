/* SPDX-License-Identifier: Apache-2.0 */
/* An honest member against one that speaks the operations of a compressed all-reduce by hand and puts into
 * them what it likes: the honest one ends with an error that names the other, or well, and where it ends with
 * an error its buffer and residual are as they were. The group works afterwards. */
#include "compress/randomk.h"
#include "compress/sparse.h"
#include "core/bytes.h"
#include "core/derived_id.h"
#include "core/prng.h"
#include "gradient/work.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define COUNT      8192u
#define ROWS       64u
#define PART       (COUNT / 2)
#define TIMEOUT_MS 60000
#define VOTE_MAGIC UINT32_C(0x31746f76)
#define CHOSEN_LEN 8u /* before an owner's list */
#define LAST       (SIZE_MAX / 2)

/* What is done to the bytes of one exchange. */
struct damage {
    int exchange; /* 0, 1, ...: of those after the opening; -1: nothing */
    size_t at;    /* LAST: the last `len` bytes */
    size_t len;   /* 0: all are filled with bytes[0] */
    uint8_t bytes[8];
    uint64_t seed; /* not 0: drawn instead */
};

struct setting {
    hearth_node *nodes[2];
    hearth_group *world[2], *hidden;
    struct compound compound; /* the impostor's */
    const char *text;
    struct codec codec;
    enum hearth_algo algo;
    struct damage damage;
    int exchange;
    struct call_opening opening[2];
    hearth_request *request;
    float x[COUNT], x_before[COUNT], e[COUNT], e_before[COUNT];
    float numbers[COUNT]; /* the impostor's */
    uint8_t *out, *in;    /* its payloads, and what it got */
};

#define ROOM ((size_t)16 * COUNT) /* of payloads */

/* ---- the impostor's operations ---- */

static int speak(struct setting *s, hearth_group *group, struct call *call, uint32_t track)
{
    struct hearth_opts opts;
    struct error error;
    hearth_request *request;
    hearth_opts_init(&opts);
    opts.timeout_ms = TIMEOUT_MS;
    opts.weight = 1;
    call->opts = &opts;
    call->part_of = !call->opens ? &s->compound : NULL;
    call->track = track;
    int status = node_start(group, call, CALLER_WAITS, &request, &error);
    if (status != HEARTH_OK)
        return status;
    status = node_wait(request, NEVER_NS);
    node_release(request);
    return status;
}

static void spoil(struct setting *s, uint8_t *bytes, size_t len)
{
    const struct damage *d = &s->damage;
    if (s->exchange++ != d->exchange || len == 0)
        return;
    if (d->seed != 0) {
        struct prng prng;
        prng_init(&prng, d->seed);
        for (uint64_t i = 1 + prng_below(&prng, 4); i > 0; i--)
            bytes[prng_below(&prng, len)] = (uint8_t)prng_below(&prng, 256);
    } else if (d->len == 0) {
        memset(bytes, d->bytes[0], len);
    } else {
        memcpy(bytes + (d->at == LAST ? len - d->len : d->at), d->bytes, d->len);
    }
}

/* Ours stands in s->out; that of both comes to s->in. */
static int gather(struct setting *s, size_t len, uint32_t track)
{
    spoil(s, s->out, len);
    struct call call = {
        .kind = PLAN_ALL_GATHER, .source = s->out, .target = s->in, .count = len, .dtype = HEARTH_U8};
    return speak(s, s->hidden, &call, track);
}

/* ---- honest payloads ---- */

static void encode(struct setting *s, const struct codec *codec, size_t first, size_t count, uint8_t *payload)
{
    struct feed feed = {.dtype = HEARTH_F32, .x = s->numbers + first, .gain = 1};
    assert_int_equal(coder_encode(codec, kernels_best(), &feed, first, count, payload), HEARTH_OK);
}

/* Every third element of an array of `count`. */
static void encode_list(struct setting *s, size_t keep, size_t count, uint8_t *bytes)
{
    static uint32_t index[COUNT];
    static float value[COUNT];
    struct sparse list = {.count = keep, .index = index, .value = value};
    for (size_t i = 0; i < keep; i++) {
        index[i] = (uint32_t)(3 * i);
        value[i] = s->numbers[i];
    }
    sparse_encode(&s->codec, kernels_best(), &list, count, bytes);
}

/* ---- methods ---- */

/* An array of so many elements, by all_gather in one part. */
static int sum_array(struct setting *s, const struct codec *codec, size_t count)
{
    encode(s, codec, 0, count, s->out);
    return gather(s, coder_len(codec, count), SUB_SECOND);
}

static int parts_by_owners(struct setting *s)
{
    size_t len = coder_len(&s->codec, PART);
    encode(s, &s->codec, 0, PART, s->out);
    encode(s, &s->codec, PART, PART, s->out + len);
    spoil(s, s->out, len); /* what the honest one gets */
    struct call call = {
        .kind = PLAN_ALL_TO_ALL, .source = s->out, .target = s->in, .count = len, .dtype = HEARTH_U8};
    int status = speak(s, s->hidden, &call, SUB_FIRST);
    if (status != HEARTH_OK)
        return status;
    encode(s, &s->codec, PART, PART, s->out);
    return gather(s, len, SUB_SECOND);
}

static int list_to_all(struct setting *s)
{
    size_t keep = codec_keeps(&s->codec, COUNT);
    encode_list(s, keep, COUNT, s->out);
    return gather(s, sparse_len(&s->codec, keep, COUNT), SUB_SECOND);
}

static int lists_by_owners(struct setting *s)
{
    size_t keep = codec_keeps(&s->codec, COUNT), own[2] = {keep / 2, keep - keep / 2};
    store_u32(s->out, (uint32_t)own[0]);
    store_u32(s->out + 4, (uint32_t)own[1]);
    int status = gather(s, 2 * sizeof(uint32_t), SUB_FIRST);
    if (status != HEARTH_OK)
        return status;
    size_t send[2] = {sparse_len(&s->codec, own[0], PART), sparse_len(&s->codec, own[1], PART)};
    size_t got[2] = {sparse_len(&s->codec, load_u32(s->in + 4), PART), send[1]};
    encode_list(s, own[0], PART, s->out);
    encode_list(s, own[1], PART, s->out + send[0]);
    spoil(s, s->out, send[0]);
    struct call call = {.kind = PLAN_ALL_TO_ALL,
                        .source = s->out,
                        .target = s->in,
                        .in_counts = send,
                        .out_counts = got,
                        .vector = true,
                        .dtype = HEARTH_U8};
    status = speak(s, s->hidden, &call, SUB_FIRST);
    if (status != HEARTH_OK)
        return status;
    size_t chosen = codec_keeps(&s->codec, PART);
    memset(s->out, 0, CHOSEN_LEN);
    store_u32(s->out, (uint32_t)chosen);
    encode_list(s, chosen, PART, s->out + CHOSEN_LEN);
    return gather(s, CHOSEN_LEN + sparse_len(&s->codec, chosen, PART), SUB_SECOND);
}

/* Lengths first; what it says there it also sends. */
static int user_to_all(struct setting *s)
{
    store_u64(s->out, sizeof s->numbers);
    int status = gather(s, sizeof(uint64_t), SUB_FIRST);
    if (status != HEARTH_OK)
        return status;
    size_t counts[2] = {load_u64(s->in), load_u64(s->in + sizeof(uint64_t))};
    if (counts[1] > ROOM)
        return HEARTH_PROTOCOL; /* nobody will listen */
    memcpy(s->out, s->numbers, sizeof s->numbers);
    spoil(s, s->out, counts[1]);
    struct call call = {
        .kind = PLAN_ALL_GATHER, .source = s->out, .target = s->in, .out_counts = counts, .dtype = HEARTH_U8};
    return speak(s, s->hidden, &call, SUB_SECOND);
}

static int method(struct setting *s)
{
    bool owners = s->algo == HEARTH_ALGO_DIRECT;
    struct codec values = codec_of_values(s->codec.values);
    if (codec_is_blockwise(&s->codec))
        return owners ? parts_by_owners(s) : sum_array(s, &s->codec, COUNT);
    if (s->codec.kind == CODEC_TOPK)
        return owners ? lists_by_owners(s) : list_to_all(s);
    if (s->codec.kind == CODEC_USER)
        return user_to_all(s);
    if (s->codec.kind == CODEC_RANDOMK)
        return sum_array(s, &values, codec_keeps(&s->codec, COUNT));
    int status = sum_array(s, &values, ROWS * s->codec.rank);
    return status == HEARTH_OK ? sum_array(s, &values, COUNT / ROWS * s->codec.rank) : status;
}

static void impostor_run(struct setting *s)
{
    const struct group_view *view = group_view(s->world[1]->group);
    struct group_view hidden = *view;
    int members[2] = {group_member(s->world[1]->group, 0), group_member(s->world[1]->group, 1)};
    hidden.group = derived_id(ID_INNER, view->group, 0, 0);
    assert_int_equal(node_make_inner(s->world[1], INNER_ALL, &hidden, members, &s->hidden), HEARTH_OK);
    list_init(&s->compound.item);
    struct call opening = {.kind = PLAN_ALL_GATHER,
                           .source = &s->opening[1],
                           .target = s->opening,
                           .count = sizeof s->opening[0],
                           .dtype = HEARTH_U8,
                           .in_place = true,
                           .opens = &s->compound};
    int status = speak(s, s->world[1], &opening, 0);
    s->exchange = 0;
    if (status == HEARTH_OK)
        status = method(s);
    if (status == HEARTH_OK) {
        store_u32(s->out, VOTE_MAGIC);
        store_u32(s->out + 4, 0);
        status = gather(s, sizeof(struct vote), SUB_CONTROL);
    }
    node_close_compound(s->world[1], &s->compound);
}

/* ---- the honest one ---- */

static void honest_start(struct setting *s)
{
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.algo = s->algo;
    opts.timeout_ms = TIMEOUT_MS;
    for (size_t i = 0; i < COUNT; i++) {
        s->x[i] = (float)((i * 7919) % 1000) / 1000.0F - 0.4F;
        s->e[i] = (float)((i * 104729) % 1000) / 5000.0F;
        s->numbers[i] = (float)((i * 31337) % 1000) / 500.0F - 1;
    }
    memcpy(s->x_before, s->x, sizeof s->x);
    memcpy(s->e_before, s->e, sizeof s->e);
    assert_int_equal(hearth_all_reduce_compressed_nb(s->world[0], s->x, COUNT, HEARTH_F32, HEARTH_OP_SUM,
                                                     s->text, s->e, &opts, &s->request),
                     HEARTH_OK);
}

/* Its status, after what must hold in any case. */
static int honest_end(struct setting *s, char *text, size_t size)
{
    int status = hearth_request_wait(s->request, -1);
    snprintf(text, size, "%s", status != HEARTH_OK ? hearth_request_error(s->request) : "");
    hearth_request_close(s->request);
    if (status != HEARTH_OK) {
        assert_memory_equal(s->x, s->x_before, sizeof s->x);
        assert_memory_equal(s->e, s->e_before, sizeof s->e);
        return status;
    }
    for (size_t i = 0; i < COUNT; i++)
        if (s->x[i] - s->x[i] != 0 || s->e[i] - s->e[i] != 0)
            fail_msg("%s: element %zu is not finite", s->text, i);
    return status;
}

static void group_works(struct setting *s)
{
    hearth_request *request;
    assert_int_equal(hearth_barrier_nb(s->world[0], NULL, &request), HEARTH_OK);
    assert_int_equal(hearth_barrier(s->world[1], NULL), HEARTH_OK);
    assert_int_equal(hearth_request_wait(request, -1), HEARTH_OK);
    hearth_request_close(request);
}

/* ---- a user's codec: numbers as they are ---- */

static size_t raw_bound(void *arg, const struct hearth_codec_call *call)
{
    (void)arg;
    return call->count * sizeof(float);
}

static int raw_encode(void *arg, const struct hearth_codec_call *call, const float *values, void *bytes,
                      size_t size, size_t *len)
{
    (void)arg;
    *len = size;
    memcpy(bytes, values, call->count * sizeof *values);
    return 0;
}

static int raw_decode(void *arg, const struct hearth_codec_call *call, const void *bytes, size_t len,
                      float *values)
{
    if (len != raw_bound(arg, call))
        return -1;
    memcpy(values, bytes, len);
    return 0;
}

/* ---- scenes ---- */

static struct setting *setting_open(void)
{
    struct setting *s = calloc(1, sizeof *s);
    struct hearth_codec_functions raw;
    hearth_codec_functions_init(&raw);
    raw.bound = raw_bound;
    raw.encode = raw_encode;
    raw.decode = raw_decode;
    assert_int_equal(hearth_codec_register("raw", &raw), HEARTH_OK);
    assert_non_null(s);
    s->out = malloc(2 * ROOM);
    assert_non_null(s->out);
    s->in = s->out + ROOM;
    assert_int_equal(hearth_node_open_local(NULL, 2, s->nodes), HEARTH_OK);
    for (int i = 0; i < 2; i++)
        s->world[i] = hearth_node_world(s->nodes[i]);
    return s;
}

static void setting_close(struct setting *s)
{
    hearth_node_close(s->nodes[0]);
    hearth_node_close(s->nodes[1]);
    free(s->out);
    free(s);
}

static int setting_run(struct setting *s, const struct damage *damage, char *text, size_t size)
{
    s->damage = *damage;
    honest_start(s);
    impostor_run(s);
    int status = honest_end(s, text, size);
    group_works(s);
    return status;
}

/* What it must say to be let in, it learns from the honest one, which refuses it the first time. */
static void setting_codec(struct setting *s, const char *codec, enum hearth_algo algo)
{
    static const struct damage none = {.exchange = -1};
    struct codec_list list;
    struct error error;
    char text[512];
    assert_int_equal(codec_parse(codec, &list, &error), HEARTH_OK);
    s->text = codec;
    s->codec = list.codec[0];
    s->algo = algo;
    memset(s->opening, 0, sizeof s->opening);
    assert_int_equal(setting_run(s, &none, text, sizeof text), HEARTH_MISMATCH);
    s->opening[1] = s->opening[0];
    int status = setting_run(s, &none, text, sizeof text);
    if (status != HEARTH_OK)
        fail_msg("%s: the impostor cannot even be honest: %s: %s", codec, hearth_status_name(status), text);
}

struct trial {
    const char *codec;
    enum hearth_algo algo;
    struct damage damage;
    int status;
};

static const struct trial trials[] = {
    /* flags and reserved bytes of a part, scales, exponents, values */
    {"int8", HEARTH_ALGO_EXCHANGE, {0, 0, 1, {2}, 0}, HEARTH_PROTOCOL},
    {"int8", HEARTH_ALGO_EXCHANGE, {0, 0, 1, {1}, 0}, HEARTH_POISONED},
    {"int8", HEARTH_ALGO_EXCHANGE, {0, 3, 1, {1}, 0}, HEARTH_PROTOCOL},
    {"int8", HEARTH_ALGO_EXCHANGE, {0, 8, 2, {0xff, 0xff}, 0}, HEARTH_PROTOCOL},
    {"int8", HEARTH_ALGO_DIRECT, {0, 8, 2, {0x02, 0x7c}, 0}, HEARTH_PROTOCOL},
    {"int8", HEARTH_ALGO_DIRECT, {0, 0, 1, {1}, 0}, HEARTH_POISONED},
    {"int8", HEARTH_ALGO_DIRECT, {1, 8, 2, {0x02, 0x7c}, 0}, HEARTH_PROTOCOL},
    {"int8", HEARTH_ALGO_DIRECT, {1, 0, 1, {0x80}, 0}, HEARTH_PROTOCOL},
    {"fp16", HEARTH_ALGO_EXCHANGE, {0, 8, 1, {0x7f}, 0}, HEARTH_PROTOCOL},
    {"fp16", HEARTH_ALGO_DIRECT, {0, LAST, 2, {0x00, 0x7e}, 0}, HEARTH_POISONED},
    {"bf16", HEARTH_ALGO_EXCHANGE, {0, 8, 2, {0xff, 0x7f}, 0}, HEARTH_POISONED},
    {"bf16", HEARTH_ALGO_DIRECT, {1, LAST, 2, {0x80, 0xff}, 0}, HEARTH_POISONED},
    {"onebit", HEARTH_ALGO_EXCHANGE, {0, 8, 2, {0x80, 0x7f}, 0}, HEARTH_PROTOCOL},
    {"onebit", HEARTH_ALGO_DIRECT, {1, 8, 2, {0x00, 0x80}, 0}, HEARTH_PROTOCOL},
    /* lists: too many ones, none, values that are no numbers */
    {"topk:0.02,chunk=4096", HEARTH_ALGO_EXCHANGE, {0, 0, 0, {0}, 0}, HEARTH_PROTOCOL},
    {"topk:0.02,chunk=4096", HEARTH_ALGO_DIRECT, {1, LAST, 4, {0, 0, 0xc0, 0x7f}, 0}, HEARTH_PROTOCOL},
    {"topk:0.02,chunk=4096,values=int8", HEARTH_ALGO_DIRECT, {0, LAST, 1, {0x80}, 0}, HEARTH_PROTOCOL},
    {"topk:0.01", HEARTH_ALGO_EXCHANGE, {0, 0, 0, {0xff}, 0}, HEARTH_PROTOCOL},
    {"topk:0.01", HEARTH_ALGO_EXCHANGE, {0, 0, 0, {0}, 0}, HEARTH_PROTOCOL},
    {"topk:0.01", HEARTH_ALGO_EXCHANGE, {0, LAST, 4, {0, 0, 0x80, 0xff}, 0}, HEARTH_PROTOCOL},
    {"topk:0.01,values=int8", HEARTH_ALGO_EXCHANGE, {0, LAST, 1, {0x80}, 0}, HEARTH_PROTOCOL},
    /* how many lie in which part, the lists, what the owner chose */
    {"topk:0.01", HEARTH_ALGO_DIRECT, {0, 0, 4, {0xff, 0xff, 0xff, 0xff}, 0}, HEARTH_PROTOCOL},
    {"topk:0.01", HEARTH_ALGO_DIRECT, {0, 4, 4, {0, 0, 0, 0}, 0}, HEARTH_PROTOCOL},
    {"topk:0.01", HEARTH_ALGO_DIRECT, {1, 0, 0, {0xff}, 0}, HEARTH_PROTOCOL},
    {"topk:0.01", HEARTH_ALGO_DIRECT, {1, LAST, 4, {0, 0, 0xc0, 0x7f}, 0}, HEARTH_PROTOCOL},
    {"topk:0.01", HEARTH_ALGO_DIRECT, {2, 0, 4, {0xff, 0xff, 0xff, 0xff}, 0}, HEARTH_PROTOCOL},
    {"topk:0.01", HEARTH_ALGO_DIRECT, {2, 4, 1, {2}, 0}, HEARTH_PROTOCOL},
    {"topk:0.01", HEARTH_ALGO_DIRECT, {2, 4, 1, {1}, 0}, HEARTH_POISONED},
    {"topk:0.01",
     HEARTH_ALGO_DIRECT,
     {2, 8, 8, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 0},
     HEARTH_PROTOCOL},
    {"topk:0.01", HEARTH_ALGO_DIRECT, {2, LAST, 4, {0, 0, 0x80, 0x7f}, 0}, HEARTH_PROTOCOL},
    /* arrays that all have alike */
    {"randomk:0.1", HEARTH_ALGO_AUTO, {0, 8, 4, {0, 0, 0xc0, 0x7f}, 0}, HEARTH_POISONED},
    {"randomk:0.1", HEARTH_ALGO_AUTO, {0, 7, 1, {1}, 0}, HEARTH_PROTOCOL},
    {"randomk:0.1,values=int8", HEARTH_ALGO_AUTO, {0, 8, 2, {0xff, 0x7f}, 0}, HEARTH_PROTOCOL},
    {"powersgd:2,rows=64", HEARTH_ALGO_AUTO, {0, 8, 4, {0, 0, 0xc0, 0x7f}, 0}, HEARTH_POISONED},
    {"powersgd:2,rows=64", HEARTH_ALGO_AUTO, {0, LAST, 4, {0xff, 0xff, 0x7f, 0x7f}, 0}, HEARTH_POISONED},
    {"powersgd:2,rows=64", HEARTH_ALGO_AUTO, {1, 8, 4, {0, 0, 0x80, 0xff}, 0}, HEARTH_POISONED},
    /* of a user: lengths, bytes that its decode refuses, values that are no numbers */
    {"raw",
     HEARTH_ALGO_AUTO,
     {0, 0, 8, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 0},
     HEARTH_PROTOCOL},
    {"raw", HEARTH_ALGO_AUTO, {0, 0, 1, {1}, 0}, HEARTH_PROTOCOL},
    {"raw", HEARTH_ALGO_AUTO, {0, 1, 1, {0x7f}, 0}, HEARTH_PROTOCOL},
    {"raw", HEARTH_ALGO_AUTO, {1, LAST, 4, {0, 0, 0xc0, 0x7f}, 0}, HEARTH_PROTOCOL},
    {"raw", HEARTH_ALGO_AUTO, {2, 4, 1, {1}, 0}, HEARTH_POISONED},
    /* votes */
    {"int8", HEARTH_ALGO_EXCHANGE, {1, 0, 1, {0}, 0}, HEARTH_PROTOCOL},
    {"int8", HEARTH_ALGO_EXCHANGE, {1, 4, 1, {1}, 0}, HEARTH_POISONED},
    {"topk:0.01", HEARTH_ALGO_DIRECT, {3, 0, 1, {0}, 0}, HEARTH_PROTOCOL},
    {"powersgd:2,rows=64", HEARTH_ALGO_AUTO, {2, 4, 1, {1}, 0}, HEARTH_POISONED},
};

TEST(test_damage)
{
    watchdog(300, "damage");
    struct setting *s = setting_open();
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        const struct trial *t = &trials[i];
        char text[512];
        setting_codec(s, t->codec, t->algo);
        int status = setting_run(s, &t->damage, text, sizeof text);
        if (status != t->status)
            fail_msg("trial %zu, %s: %s, not %s: %s", i, t->codec, hearth_status_name(status),
                     hearth_status_name(t->status), text);
        if (status == HEARTH_PROTOCOL && !strstr(text, "rank 1"))
            fail_msg("trial %zu, %s: rank 1 is not named: %s", i, t->codec, text);
    }
    setting_close(s);
}

/* Bytes changed at random: it may go unseen, but never worse. */
TEST(test_random_damage)
{
    struct setting *s = setting_open();
    unsigned long count = repeat_count(getenv("HEARTH_TEST_SOAK") ? 3000 : 40);
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        const struct trial *t = &trials[i];
        if (i > 0 && strcmp(t->codec, trials[i - 1].codec) == 0 && t->algo == trials[i - 1].algo)
            continue;
        watchdog(300, t->codec);
        setting_codec(s, t->codec, t->algo);
        int exchanges = s->exchange;
        for (unsigned long k = 0; k < count; k++) {
            struct damage damage = {.exchange = (int)(k % (unsigned long)exchanges),
                                    .seed = first_seed() + k};
            char text[512];
            int status = setting_run(s, &damage, text, sizeof text);
            if (status != HEARTH_OK && status != HEARTH_PROTOCOL && status != HEARTH_POISONED)
                fail_msg("seed %lu, %s: %s: %s", first_seed() + k, t->codec, hearth_status_name(status),
                         text);
        }
    }
    setting_close(s);
}
