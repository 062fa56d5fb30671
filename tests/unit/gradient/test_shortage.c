/* SPDX-License-Identifier: Apache-2.0 */
/* Memory runs out at every place of a compressor, one after the other: nobody hangs or leaks, nothing is
 * changed, and it goes on when memory is back. */
#include <pthread.h>

#include "node/node.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define SECONDS    60u
#define PLACES_MAX 400 /* where memory may run out in one call */
#define COUNT      (96 * 80)

struct pair {
    hearth_node *nodes[2];
    hearth_compressor *compressors[2];
    const char *name;
    int64_t fail_after; /* at rank 0 */
    int status[2];
    float data[2][COUNT];
};

static void fill(struct pair *pair)
{
    for (int i = 0; i < 2 * COUNT; i++)
        pair->data[i / COUNT][i % COUNT] = (float)((unsigned)i * 2654435761u % 1000) / 1000.0F - 0.5F;
}

static struct hearth_tensor tensor_of(struct pair *pair, int rank)
{
    static const size_t dims[] = {96, 80};
    return (struct hearth_tensor){
        sizeof(struct hearth_tensor), pair->name, pair->data[rank], HEARTH_F32, 2, dims};
}

static void *other(void *arg)
{
    struct pair *pair = arg;
    struct hearth_tensor tensor = tensor_of(pair, 1);
    pair->status[1] = hearth_compressor_all_reduce(pair->compressors[1], &tensor, HEARTH_OP_AVG, NULL);
    return NULL;
}

static void all_reduce(struct pair *pair)
{
    pthread_t thread;
    struct hearth_tensor tensor = tensor_of(pair, 0);
    struct heap *heap = pair->nodes[0]->heap;
    fill(pair);
    assert_int_equal(pthread_create(&thread, NULL, other, pair), 0);
    atomic_store(&heap->fail_after, pair->fail_after);
    pair->status[0] = hearth_compressor_all_reduce(pair->compressors[0], &tensor, HEARTH_OP_AVG, NULL);
    atomic_store(&heap->fail_after, -1);
    pthread_join(thread, NULL);
}

static void pair_open(struct pair *pair, const char *codec)
{
    struct hearth_compressor_config config;
    watchdog(SECONDS, "a compressor that is short of memory");
    assert_int_equal(hearth_node_open_local(NULL, 2, pair->nodes), HEARTH_OK);
    hearth_compressor_config_init(&config);
    config.codec = codec;
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            hearth_compressor_open(hearth_node_world(pair->nodes[i]), &config, &pair->compressors[i]),
            HEARTH_OK);
}

static void pair_close(struct pair *pair)
{
    for (int i = 0; i < 2; i++)
        hearth_node_close(pair->nodes[i]);
    watchdog(0, NULL);
}

static uint64_t steps_of(struct pair *pair, int rank)
{
    struct hearth_compressor_stats stats = {.size = sizeof stats};
    assert_int_equal(hearth_compressor_stats(pair->compressors[rank], NULL, &stats), HEARTH_OK);
    return stats.steps;
}

/* A first all-reduce of a new tensor, short of memory at one place; true: it needed less. */
static bool run_short(const char *codec, int64_t fail_after)
{
    static struct pair pair;
    pair = (struct pair){.name = "w", .fail_after = fail_after};
    pair_open(&pair, codec);
    all_reduce(&pair);
    bool enough = pair.status[0] == HEARTH_OK;
    if (!enough) {
        float after[2] = {pair.data[0][7], pair.data[1][7]};
        assert_int_equal(steps_of(&pair, 0), 0);
        assert_int_equal(steps_of(&pair, 1), pair.status[1] == HEARTH_OK);
        fill(&pair);
        assert_true(pair.data[0][7] == after[0]);
        assert_true(pair.status[1] == HEARTH_OK || pair.data[1][7] == after[1]);
        pair.fail_after = -1;
        all_reduce(&pair); /* broken: a link had no memory to say so, and the peer is lost */
        assert_true(pair.status[0] == HEARTH_OK || pair.status[0] == HEARTH_GROUP_BROKEN);
    }
    if (pair.status[0] == HEARTH_OK) {
        assert_int_equal(pair.status[1], HEARTH_OK);
        assert_memory_equal(pair.data[0], pair.data[1], sizeof pair.data[0]);
    }
    pair_close(&pair);
    return enough;
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

static void raw_register(void)
{
    struct hearth_codec_functions raw;
    hearth_codec_functions_init(&raw);
    raw.bound = raw_bound;
    raw.encode = raw_encode;
    raw.decode = raw_decode;
    assert_int_equal(hearth_codec_register("raw", &raw), HEARTH_OK);
}

TEST(test_all_reduce)
{
    static const char *const codecs[] = {"none",       "int8", "topk:0.01", "randomk:0.1,values=int8",
                                         "powersgd:2", "raw"};
    raw_register();
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        for (int64_t n = 0; !run_short(codecs[i], n); n++)
            assert_true(n < PLACES_MAX);
}

TEST(test_open_and_load)
{
    static struct pair pair;
    uint8_t bytes[2 * sizeof pair.data[0]];
    pair = (struct pair){.name = "w", .fail_after = -1};
    pair_open(&pair, "topk:0.02");
    all_reduce(&pair);
    assert_int_equal(pair.status[0], HEARTH_OK);
    int64_t len = hearth_compressor_save(pair.compressors[0], bytes, sizeof bytes);
    assert_true(len > 0 && len <= (int64_t)sizeof bytes);
    struct heap *heap = pair.nodes[0]->heap;
    uint64_t blocks = heap->blocks;
    int status = HEARTH_NO_MEMORY;
    for (int64_t n = 0; status != HEARTH_OK && n < PLACES_MAX; n++) {
        atomic_store(&heap->fail_after, n);
        status = hearth_compressor_load(pair.compressors[0], bytes, (size_t)len);
        atomic_store(&heap->fail_after, -1);
        assert_true(status == HEARTH_OK || status == HEARTH_NO_MEMORY);
        assert_int_equal(steps_of(&pair, 0), 1);
        assert_true(status == HEARTH_OK || heap->blocks == blocks);
    }
    assert_int_equal(status, HEARTH_OK);
    hearth_compressor *more = NULL;
    struct hearth_compressor_config config;
    hearth_compressor_config_init(&config);
    config.include = "*";
    config.exclude = "b";
    blocks = heap->blocks;
    status = HEARTH_NO_MEMORY;
    for (int64_t n = 0; status != HEARTH_OK && n < PLACES_MAX; n++) {
        atomic_store(&heap->fail_after, n);
        status = hearth_compressor_open(hearth_node_world(pair.nodes[0]), &config, &more);
        atomic_store(&heap->fail_after, -1);
        assert_true(status == HEARTH_OK || heap->blocks == blocks);
    }
    assert_int_equal(status, HEARTH_OK);
    hearth_compressor_close(more);
    assert_int_equal(heap->blocks, blocks);
    pair_close(&pair);
}
