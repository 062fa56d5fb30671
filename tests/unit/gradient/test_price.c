/* SPDX-License-Identifier: Apache-2.0 */
/* Prices and choices: what must hold on every network, and who wins where. */
#include <math.h>

#include "compress/coder.h"
#include "core/prng.h"
#include "gradient/price.h"
#include "support/suite.h"

#define RANKS_MAX 64

#define MBIT (1e6 / 8)

static const int apart[RANKS_MAX] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                     16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                                     32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
                                     48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
static const int in_fours[RANKS_MAX] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};

/* Hosts of one member each, on a network of this rate; shared memory inside. */
static struct group_view network(int size, double bytes_per_s, double rtt_s)
{
    return (struct group_view){
        .size = size,
        .host = apart,
        .inside = {.alpha_s = 1e-6, .bytes_per_s = 5e9, .gamma_s = 0.1e-9, .overhead_s = 0.5e-6},
        .across = {.alpha_s = rtt_s / 2, .bytes_per_s = bytes_per_s, .gamma_s = 0.1e-9, .overhead_s = 5e-6},
        .chunk_bytes = 1 << 20,
        .window_bytes = 8 << 20,
    };
}

static struct codec_list list_of(const char *text)
{
    struct codec_list list;
    struct error error;

    if (codec_parse(text, &list, &error))
        fail_msg("%s", error.text);
    return list;
}

static struct codec codec_of(const char *text)
{
    return list_of(text).codec[0];
}

static struct tensor_shape vector_of(size_t count)
{
    return (struct tensor_shape){.count = count, .dtype = HEARTH_F32};
}

static struct tensor_shape square(size_t side)
{
    return (struct tensor_shape){.count = side * side, .rows = side, .columns = side, .dtype = HEARTH_F32};
}

static struct reduction_choice choice_of(const char *text, struct tensor_shape shape,
                                         const struct group_view *view)
{
    struct codec_list list = list_of(text);
    struct reduction_choice choice;

    reduction_choose(&list, &shape, view, &choice);
    return choice;
}

static double total(const char *text, enum reduction_algo algo, struct tensor_shape shape,
                    const struct group_view *view)
{
    struct codec codec = codec_of(text);

    return reduction_price(&codec, algo, &shape, view).total_s;
}

TEST(each_codec_has_its_algos)
{
    static const struct {
        const char *codec;
        bool can[REDUCTION_ALGOS];
    } cases[] = {
        {"none", {[REDUCTION_PLAIN] = true}},
        {"int8", {[REDUCTION_ALLGATHER] = true, [REDUCTION_OWNER] = true, [REDUCTION_TWO_LEVEL] = true}},
        {"topk:0.01", {[REDUCTION_ALLGATHER] = true, [REDUCTION_OWNER] = true, [REDUCTION_TWO_LEVEL] = true}},
        {"topk:0.01,chunk=4096",
         {[REDUCTION_ALLGATHER] = true, [REDUCTION_OWNER] = true, [REDUCTION_TWO_LEVEL] = true}},
        {"randomk:0.01", {[REDUCTION_SHARED] = true, [REDUCTION_TWO_LEVEL] = true}},
        {"powersgd:4", {[REDUCTION_SHARED] = true}},
    };
    struct group_view flat = network(8, 1000 * MBIT, 1e-3), fours = flat, one = flat;
    fours.host = in_fours;
    one.host = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int w = 0; w < REDUCTION_ALGOS; w++) {
            struct codec codec = codec_of(cases[i].codec);
            enum reduction_algo algo = (enum reduction_algo)w;
            assert_int_equal(reduction_can(&codec, algo, &fours), cases[i].can[w]);
            bool flat_can = cases[i].can[w] && w != REDUCTION_TWO_LEVEL;
            assert_int_equal(reduction_can(&codec, algo, &flat), flat_can);
            assert_int_equal(reduction_can(&codec, algo, &one), flat_can);
            struct tensor_shape shape = square(1024);
            double price = reduction_price(&codec, algo, &shape, &fours).total_s;
            assert_int_equal(isfinite(price) != 0, cases[i].can[w]);
            assert_true(price > 0);
        }
    assert_string_equal(reduction_algo_name(REDUCTION_OWNER), "owner");
    assert_string_equal(reduction_algo_name(REDUCTION_TWO_LEVEL), "two-level");
}

TEST(bytes_follow_the_formulas)
{
    struct group_view view = network(4, 100 * MBIT, 1e-3);
    struct tensor_shape shape = vector_of(25000000);
    struct codec int8 = codec_of("int8");
    double coded = (double)coder_len(&int8, shape.count);
    assert_true(fabs(reduction_price(&int8, REDUCTION_ALLGATHER, &shape, &view).bytes / (3 * coded) - 1) <
                1e-4);
    assert_true(fabs(reduction_price(&int8, REDUCTION_OWNER, &shape, &view).bytes / (1.5 * coded) - 1) <
                1e-4);
    struct codec randomk = codec_of("randomk:0.01,values=bf16");
    assert_true(fabs(reduction_price(&randomk, REDUCTION_SHARED, &shape, &view).bytes / (1.5 * 500000) - 1) <
                0.01);
    struct codec powersgd = codec_of("powersgd:4"), alternate = codec_of("powersgd:4,alternate");
    shape = square(4096);
    double factors = reduction_price(&powersgd, REDUCTION_SHARED, &shape, &view).bytes;
    assert_true(fabs(factors / (1.5 * 2 * 4096 * 4 * 4) - 1) < 0.01);
    assert_true(fabs(reduction_price(&alternate, REDUCTION_SHARED, &shape, &view).bytes / factors - 0.5) <
                0.01);
    struct codec none = codec_of("none");
    assert_true(reduction_price(&none, REDUCTION_PLAIN, &shape, &view).bytes == 1.5 * 4096 * 4096 * 4);

    /* Owners of a small tensor get no more than their share: an element more or less, a header, a scale. */
    struct group_view many = network(16, 100 * MBIT, 1e-3);
    struct tensor_shape small = vector_of(8192);
    assert_true(reduction_price(&int8, REDUCTION_OWNER, &small, &many).bytes ==
                2 * 15 * (8 + 2 * 2 + 512) + 15 * 144);
}

TEST(two_members_gather_and_many_have_owners)
{
    static const char *const codecs[] = {"topk:0.01,values=int8", "topk:0.01,chunk=4096,values=int8", "int8"};
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        struct group_view two = network(2, 1000 * MBIT, 1e-3);
        assert_int_equal(choice_of(codecs[i], vector_of(25000000), &two).algo, REDUCTION_ALLGATHER);
        for (int size = 8; size <= RANKS_MAX; size *= 2) {
            struct group_view many = network(size, 100 * MBIT, 1e-3);
            assert_int_equal(choice_of(codecs[i], vector_of(25000000), &many).algo, REDUCTION_OWNER);
        }
    }
}

/* A line so long that one more hop costs more than all bytes. */
TEST(latency_counts)
{
    struct group_view view = network(4, 1000 * MBIT, 0.5);
    assert_int_equal(choice_of("topk:0.001", vector_of(1000000), &view).algo, REDUCTION_ALLGATHER);
    view = network(4, 10 * MBIT, 1e-3);
    assert_int_equal(choice_of("topk:0.001", vector_of(100000000), &view).algo, REDUCTION_OWNER);
    struct group_view far = network(4, 1000 * MBIT, 0.5);
    assert_true(total("powersgd:4,alternate", REDUCTION_SHARED, square(1024), &far) <
                total("powersgd:4", REDUCTION_SHARED, square(1024), &far) -
                    0.2); /* a hop: factors go to all at once */
}

/* Only so many rounds are on their way at once: of small payloads a long line carries less than it could. */
TEST(rounds_wait_for_a_long_line)
{
    struct group_view near = network(2, 10000 * MBIT, 1e-3), far = network(2, 10000 * MBIT, 0.2);
    double more = total("topk:0.001,chunk=4096", REDUCTION_ALLGATHER, vector_of(100000000), &far) -
                  total("topk:0.001,chunk=4096", REDUCTION_ALLGATHER, vector_of(100000000), &near);
    assert_true(more > 10 * 0.1);
    more = total("topk:0.001", REDUCTION_ALLGATHER, vector_of(100000000), &far) -
           total("topk:0.001", REDUCTION_ALLGATHER, vector_of(100000000), &near);
    assert_true(more < 4 * 0.1);
}

static const char *const automatic =
    "auto:bf16,int8,onebit,topk:0.01,values=int8,topk:0.01,chunk=4096,randomk:0.01,powersgd:4";

TEST(automatic_stays_plain_where_the_network_is_fast)
{
    for (int size = 2; size <= 16; size *= 2) {
        struct group_view fast = network(size, 100000 * MBIT, 10e-6), home = network(size, 1000 * MBIT, 1e-3);
        home.host = NULL;
        for (size_t count = 1; count <= 100000000; count *= 10) {
            assert_int_equal(choice_of(automatic, vector_of(count), &fast).codec.kind, CODEC_NONE);
            assert_int_equal(choice_of(automatic, vector_of(count), &fast).algo, REDUCTION_PLAIN);
            assert_int_equal(choice_of(automatic, vector_of(count), &home).codec.kind, CODEC_NONE);
        }
    }
}

TEST(automatic_stays_plain_for_small_tensors)
{
    for (int size = 2; size <= 16; size *= 2) {
        struct group_view view = network(size, 1000 * MBIT, 1e-3);
        assert_int_equal(choice_of(automatic, vector_of(0), &view).algo, REDUCTION_PLAIN);
        assert_int_equal(choice_of(automatic, vector_of(1), &view).algo, REDUCTION_PLAIN);
        assert_int_equal(choice_of(automatic, vector_of(1000), &view).algo, REDUCTION_PLAIN);
    }
}

TEST(automatic_compresses_where_it_pays)
{
    struct group_view slow = network(4, 100 * MBIT, 1e-3);
    struct reduction_choice choice = choice_of("auto:int8", vector_of(25000000), &slow);
    assert_int_equal(choice.codec.kind, CODEC_INT8);
    assert_true(choice.price.total_s < choice.plain.total_s / 3.5);
    choice = choice_of("auto:int8,topk:0.01,values=int8", vector_of(25000000), &slow);
    assert_int_equal(choice.codec.kind, CODEC_TOPK);
    assert_true(choice.price.total_s < choice.plain.total_s / 50);
}

/* Whatever is chosen is no dearer than plain, sends no more, and is no dearer than any codec that could have
 * been chosen. */
TEST(automatic_takes_the_cheapest)
{
    struct codec_list list = list_of(automatic);
    struct prng prng;
    prng_init(&prng, 11);
    for (int i = 0; i < 2000; i++) {
        struct group_view view =
            network(2 + (int)prng_below(&prng, 15), MBIT * pow(10, 1 + 4 * prng_unit(&prng)),
                    pow(10, -5 + 4 * prng_unit(&prng)));
        if (prng_below(&prng, 2))
            view.host = in_fours;
        view.port_sharers = (int)prng_below(&prng, 5);
        struct tensor_shape shape = square((size_t)pow(10, 4 * prng_unit(&prng)));
        struct reduction_choice choice, again;
        reduction_choose(&list, &shape, &view, &choice);
        reduction_choose(&list, &shape, &view, &again);
        assert_memory_equal(&choice.price, &again.price, sizeof choice.price);
        assert_int_equal(choice.algo, again.algo);
        assert_true(choice.price.total_s <= choice.plain.total_s);
        assert_true(choice.price.bytes <= choice.plain.bytes);
        if (choice.algo == REDUCTION_PLAIN)
            continue;
        assert_true(choice.price.total_s < 0.95 * choice.plain.total_s);
        for (int c = 0; c < list.count; c++)
            for (int w = 0; w < REDUCTION_ALGOS; w++) {
                struct reduction_price other =
                    reduction_price(&list.codec[c], (enum reduction_algo)w, &shape, &view);
                assert_true(choice.price.total_s <= other.total_s || other.bytes > choice.plain.bytes);
            }
    }
}

TEST(hosts_of_four_sum_up_at_home)
{
    static const char *const codecs[] = {"int8", "topk:0.01,values=int8", "randomk:0.01"};
    struct group_view view = network(16, 100 * MBIT, 1e-3);
    view.host = in_fours;
    view.port_sharers = 4;
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        struct reduction_choice choice = choice_of(codecs[i], square(4096), &view);
        assert_int_equal(choice.algo, REDUCTION_TWO_LEVEL);
        struct codec codec = codec_of(codecs[i]);
        struct tensor_shape shape = square(4096);
        shape.dtype = HEARTH_F64;
        assert_true(reduction_price(&codec, REDUCTION_TWO_LEVEL, &shape, &view).total_s == HUGE_VAL);
    }
    view.host = apart;
    view.port_sharers = 0;
    assert_int_equal(choice_of("int8", square(4096), &view).algo, REDUCTION_OWNER);
}

TEST(what_cannot_be_coded_goes_plain)
{
    struct group_view view = network(4, 100 * MBIT, 1e-3);
    struct reduction_choice choice = choice_of("powersgd:4", vector_of(1 << 20), &view);
    assert_int_equal(choice.codec.kind, CODEC_NONE);
    assert_int_equal(choice.algo, REDUCTION_PLAIN);
    assert_int_equal(choice_of("powersgd:4", square(4), &view).codec.kind, CODEC_NONE);
    assert_int_equal(choice_of("powersgd:4", square(1024), &view).codec.kind, CODEC_POWERSGD);
    assert_int_equal(choice_of("powersgd:4,rows=1024", vector_of(1 << 20), &view).codec.kind, CODEC_POWERSGD);
    assert_int_equal(choice_of("powersgd:4,rows=1000", vector_of(1 << 20), &view).codec.kind, CODEC_NONE);
    assert_int_equal(choice_of("topk:0.01", vector_of((size_t)1 << 33), &view).codec.kind, CODEC_NONE);
    assert_int_equal(choice_of("int8", vector_of((size_t)1 << 33), &view).codec.kind, CODEC_INT8);
    assert_int_equal(choice_of("none", vector_of(1 << 20), &view).algo, REDUCTION_PLAIN);
}

/* ---- codecs of users: by their bound ---- */

static size_t tenth_bound(void *arg, const struct hearth_codec_call *call)
{
    (void)arg;
    return call->count == 100 ? 0 : call->count * sizeof(float) / 10;
}

static int tenth_encode(void *arg, const struct hearth_codec_call *call, const float *values, void *bytes,
                        size_t size, size_t *len)
{
    (void)arg, (void)call, (void)values, (void)bytes, (void)size, (void)len;
    return -1;
}

static int tenth_decode(void *arg, const struct hearth_codec_call *call, const void *bytes, size_t len,
                        float *values)
{
    (void)arg, (void)call, (void)values, (void)bytes, (void)len;
    return -1;
}

TEST(codecs_of_users)
{
    struct group_view slow = network(4, 100 * MBIT, 1e-3), fast = network(4, 100000 * MBIT, 1e-5);
    struct hearth_codec_functions f;
    hearth_codec_functions_init(&f);
    f.bound = tenth_bound;
    f.encode = tenth_encode;
    f.decode = tenth_decode;
    assert_int_equal(hearth_codec_register("tenth", &f), HEARTH_OK);
    struct reduction_choice choice = choice_of("tenth", vector_of(1 << 20), &fast);
    assert_int_equal(choice.codec.kind, CODEC_USER); /* nothing else was named */
    assert_int_equal(choice.algo, REDUCTION_ALLGATHER);
    assert_true(fabs(choice.price.bytes / (3 * (1 << 20) * 0.4) - 1) < 0.01);
    assert_int_equal(choice_of("auto:tenth", vector_of(1 << 20), &fast).codec.kind, CODEC_NONE);
    assert_int_equal(choice_of("auto:tenth,bf16", vector_of(1 << 20), &slow).codec.kind, CODEC_USER);
    assert_int_equal(choice_of("auto:tenth,onebit", vector_of(1 << 20), &slow).codec.kind, CODEC_ONEBIT);
    assert_int_equal(choice_of("tenth", vector_of(100), &slow).algo, REDUCTION_PLAIN); /* its bound is 0 */
    struct codec codec = codec_of("tenth");
    struct tensor_shape shape = vector_of(1 << 20);
    assert_true(reduction_price(&codec, REDUCTION_OWNER, &shape, &slow).total_s == HUGE_VAL);
    slow = network(8, 100 * MBIT, 1e-3);
    slow.host = in_fours;
    slow.port_sharers = 4;
    assert_int_equal(choice_of("tenth", vector_of(1 << 20), &slow).algo, REDUCTION_TWO_LEVEL);
}

TEST(more_of_anything_costs_more)
{
    static const char *const codecs[] = {"bf16", "int8", "onebit", "topk:0.01", "topk:0.01,chunk=4096"};
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++)
        for (int w = REDUCTION_ALLGATHER; w <= REDUCTION_OWNER; w++) {
            enum reduction_algo algo = (enum reduction_algo)w;
            struct group_view view = network(4, 1000 * MBIT, 1e-3), slower = network(4, 500 * MBIT, 1e-3),
                              farther = network(4, 1000 * MBIT, 2e-3), larger = network(8, 1000 * MBIT, 1e-3);
            double price = total(codecs[i], algo, vector_of(10000000), &view);
            assert_true(total(codecs[i], algo, vector_of(20000000), &view) > price);
            assert_true(total(codecs[i], algo, vector_of(10000000), &slower) > price);
            assert_true(total(codecs[i], algo, vector_of(10000000), &farther) > price);
            if (algo == REDUCTION_ALLGATHER) /* owners have less to encode, the more they are */
                assert_true(total(codecs[i], algo, vector_of(10000000), &larger) > price);
        }
}

TEST(reasons_can_be_read)
{
    struct group_view view = network(4, 100 * MBIT, 1e-3);
    char text[256];
    struct reduction_choice choice = choice_of("topk:0.01,values=int8", vector_of(25000000), &view);
    reduction_reason(&choice, text, sizeof text);
    if (strstr(text, "topk:0.01,values=int8 by owner: ") != text || !strstr(text, " kB; kernels ") ||
        !strstr(text, "), plain "))
        fail_msg("%s", text);
    choice = choice_of("none", vector_of(100), &view);
    reduction_reason(&choice, text, sizeof text);
    assert_true(strstr(text, "none by plain: ") == text);
    reduction_reason(&choice, text, 8);
    assert_string_equal(text, "none by");
}

TEST(alone_costs_nothing)
{
    struct group_view view = network(1, 100 * MBIT, 1e-3);
    struct reduction_choice choice = choice_of("int8", vector_of(1000000), &view);
    assert_true(choice.price.total_s == 0 && choice.plain.total_s == 0);
    assert_int_equal(choice_of(automatic, square(1000), &view).algo, REDUCTION_PLAIN);
}
