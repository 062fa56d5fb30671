/* SPDX-License-Identifier: Apache-2.0 */
/* Packages: every codec and type there and back, feedback that loses nothing, golden bytes, and damage of all
 * kinds that is refused and does no harm. */
#include <math.h>

#include "compress/package.h"
#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/prng.h"
#include "kernel/kernel.h"
#include "numbers.h"
#include "support/golden.h"
#include "support/suite.h"

#define HEADER_LEN 56

static const char *const codecs[] = {
    "none",
    "fp16",
    "bf16",
    "int8",
    "int8,stochastic,feedback=off",
    "onebit",
    "topk:0.1",
    "topk:0.1,values=int8",
    "topk:1",
    "topk:0.05,chunk=256,values=bf16",
    "randomk:0.1",
    "randomk:0.3,values=int8",
    "randomk:0.2,feedback=off",
    "powersgd:4",
    "powersgd:2,rows=50",
    "halved:7",
    "halved,feedback=off",
};
#define CODECS (sizeof(codecs) / sizeof(codecs[0]))

static const enum hearth_dtype dtypes[] = {HEARTH_F32, HEARTH_F64, HEARTH_F16, HEARTH_BF16};

/* Element i of an array of the type, as a double. */
static double element(enum hearth_dtype dtype, const void *x, size_t i)
{
    double wide;
    float narrow;

    if (dtype == HEARTH_F64) {
        memcpy(&wide, (const char *)x + i * 8, 8);
        return wide;
    }
    kernels_best()->widen(dtype, &narrow, (const char *)x + i * dtype_size(dtype), 1);
    return narrow;
}

static void fill(enum hearth_dtype dtype, void *x, size_t count, uint64_t seed)
{
    struct prng prng;

    prng_init(&prng, seed);
    for (size_t i = 0; i < count; i++) {
        double wide = (prng_unit(&prng) - 0.5) * (1 + 9 * (prng_below(&prng, 10) == 0));
        float narrow = (float)wide;
        if (dtype == HEARTH_F64)
            memcpy((char *)x + i * 8, &wide, 8);
        else
            kernels_best()->narrow(dtype, (char *)x + i * dtype_size(dtype), &narrow, 1);
    }
}

/* ---- a user's codec: the upper halves of f32, behind the number of elements ---- */

static int halved_check(void *arg, const char *parameters)
{
    (void)arg;
    return strlen(parameters) > 1 ? -1 : 0;
}

static size_t halved_bound(void *arg, const struct hearth_codec_call *call)
{
    (void)arg;
    return 4 + 2 * call->count;
}

static int halved_encode(void *arg, const struct hearth_codec_call *call, const float *values, void *bytes,
                         size_t size, size_t *len)
{
    (void)arg;
    *len = size;
    store_u32(bytes, (uint32_t)call->count);
    for (size_t i = 0; i < call->count; i++)
        memcpy((char *)bytes + 4 + 2 * i, (const char *)&values[i] + 2, 2);
    return 0;
}

static int halved_decode(void *arg, const struct hearth_codec_call *call, const void *bytes, size_t len,
                         float *values)
{
    if (len != halved_bound(arg, call) || load_u32(bytes) != call->count)
        return -1;
    for (size_t i = 0; i < call->count; i++)
        memcpy((char *)&values[i] + 2, (const char *)bytes + 4 + 2 * i, 2);
    return 0;
}

static void halved_register(void)
{
    struct hearth_codec_functions halved;

    hearth_codec_functions_init(&halved);
    halved.check = halved_check;
    halved.bound = halved_bound;
    halved.encode = halved_encode;
    halved.decode = halved_decode;
    assert_int_equal(hearth_codec_register("halved", &halved), HEARTH_OK);
}

/* Buffers on the heap, so that sanitizers see one byte too many. */
struct bench {
    struct heap heap;
    struct codec codec;
    struct package package;
    void *source, *residual, *target;
    uint8_t *bytes;
    size_t bound, len;
    struct error error;
};

static void bench_open(struct bench *b, const char *codec, enum hearth_dtype dtype, size_t count)
{
    *b = (struct bench){.error = {.text = ""}};
    heap_init(&b->heap, 0);
    halved_register();
    b->codec = codec_of(codec);
    b->package = (struct package){.codec = &b->codec, .dtype = dtype, .count = count, .key = 77};
    b->bound = package_bound(&b->package);
    b->source = calloc(count + 1, dtype_size(dtype));
    b->target = calloc(count + 1, dtype_size(dtype));
    b->residual = calloc(count + 1, dtype == HEARTH_F64 ? 8 : 4);
    b->bytes = malloc(b->bound + 1);
    assert_true(b->source && b->target && b->residual && b->bytes);
    fill(dtype, b->source, count, count + 1);
}

static void bench_close(struct bench *b)
{
    assert_true(b->heap.blocks == 0);
    free(b->source);
    free(b->target);
    free(b->residual);
    free(b->bytes);
}

static int encode(struct bench *b, void *residual)
{
    struct package_io io = {.source = b->source, .residual = residual, .bytes = b->bytes, .size = b->bound};

    return package_encode(&b->package, &b->heap, &io, &b->len, &b->error);
}

static int decode_bytes(struct bench *b, const uint8_t *bytes, size_t len)
{
    struct package_out out = {b->target, b->package.count, b->package.dtype};
    uint8_t *exact = malloc(len ? len : 1);

    assert_non_null(exact);
    memcpy(exact, bytes, len);
    int status = package_decode(&b->heap, exact, len, &out, &b->error);
    free(exact);
    return status;
}

static void assert_good(const struct bench *b, const char *codec, int status)
{
    if (status)
        fail_msg("%s of %zu %s: %s", codec, b->package.count, hearth_dtype_name(b->package.dtype),
                 b->error.text);
}

/* source = decoded + residual, within the rounding of the type. */
static void assert_nothing_lost(const struct bench *b, const char *codec)
{
    static const double rounding[] = {
        [HEARTH_F32] = 3e-6, [HEARTH_F64] = 1e-5, [HEARTH_F16] = 5e-3, [HEARTH_BF16] = 4e-2};
    enum hearth_dtype dtype = b->package.dtype, kept = dtype == HEARTH_F64 ? HEARTH_F64 : HEARTH_F32;

    for (size_t i = 0; i < b->package.count; i++) {
        double lost =
            element(dtype, b->source, i) - element(dtype, b->target, i) - element(kept, b->residual, i);
        if (fabs(lost) > rounding[dtype])
            fail_msg("%s of %zu %s: element %zu: %g lost", codec, b->package.count, hearth_dtype_name(dtype),
                     i, lost);
    }
}

TEST(every_codec_goes_there_and_back)
{
    static const size_t counts[] = {400, 4096, 9000};
    for (size_t c = 0; c < CODECS; c++)
        for (size_t d = 0; d < 4; d++)
            for (size_t n = 0; n < 3; n++) {
                struct bench b;
                bench_open(&b, codecs[c], dtypes[d], counts[n]);
                if (strstr(codecs[c], "rows=50") && counts[n] % 50 != 0) {
                    assert_int_equal(b.bound, 0);
                    bench_close(&b);
                    continue;
                }
                assert_good(&b, codecs[c], encode(&b, b.residual));
                assert_int_equal(b.len, b.bound);
                assert_good(&b, codecs[c], decode_bytes(&b, b.bytes, b.len));
                if (b.codec.feedback)
                    assert_nothing_lost(&b, codecs[c]);
                else
                    assert_true(element(HEARTH_F32, b.residual, 0) == 0);
                bench_close(&b);
            }
}

TEST(none_keeps_every_bit)
{
    for (size_t d = 0; d < 4; d++) {
        struct bench b;
        bench_open(&b, "none", dtypes[d], 333);
        memset(b.source, 0xff, 16); /* NaN too */
        memset(b.residual, 0x3c, 64);
        assert_good(&b, "none", encode(&b, b.residual));
        assert_good(&b, "none", decode_bytes(&b, b.bytes, b.len));
        assert_memory_equal(b.source, b.target, 333 * dtype_size(dtypes[d]));
        assert_int_equal(*(uint8_t *)b.residual, 0x3c);
        bench_close(&b);
    }
}

/* Step after step of the same source: the mean of what was sent comes to it. */
TEST(feedback_makes_up_for_what_was_left_out)
{
    static const char *const some[] = {"int8", "topk:0.2", "topk:0.2,chunk=64", "randomk:0.2", "powersgd:4"};
    for (size_t c = 0; c < sizeof some / sizeof some[0]; c++) {
        struct bench b;
        double sum[400] = {0}, worst = 0;
        bench_open(&b, some[c], HEARTH_F32, 400);
        for (int step = 0; step < 400; step++) {
            b.package.key = (uint64_t)step + 1;
            assert_good(&b, some[c], encode(&b, b.residual));
            assert_good(&b, some[c], decode_bytes(&b, b.bytes, b.len));
            for (size_t i = 0; i < 400; i++)
                sum[i] += element(HEARTH_F32, b.target, i) / 400;
        }
        for (size_t i = 0; i < 400; i++) {
            double off = fabs(sum[i] - element(HEARTH_F32, b.source, i));
            worst = off > worst ? off : worst;
        }
        if (worst > 0.2)
            fail_msg("%s: %g off", some[c], worst);
        bench_close(&b);
    }
}

TEST(small_and_empty_tensors)
{
    for (size_t c = 0; c < CODECS; c++)
        for (size_t count = 0; count < 5; count++) {
            struct bench b;
            bench_open(&b, codecs[c], HEARTH_F32, count);
            if (b.codec.kind == CODEC_POWERSGD && count > 0) {
                assert_int_equal(b.bound, 0);
            } else {
                assert_good(&b, codecs[c], encode(&b, b.residual));
                assert_good(&b, codecs[c], decode_bytes(&b, b.bytes, b.len));
            }
            bench_close(&b);
        }
}

static void assert_unsupported(const char *codec, size_t count, enum hearth_dtype dtype, const char *what)
{
    struct codec named = codec_of(codec);
    struct package package = {.codec = &named, .dtype = dtype, .count = count};
    struct error error = {.text = ""};

    assert_int_equal(package_check(&package, &error), HEARTH_UNSUPPORTED);
    if (!strstr(error.text, what))
        fail_msg("\"%s\" is not in: %s", what, error.text);
    assert_int_equal(package_bound(&package), 0);
}

TEST(what_cannot_be_coded_is_said)
{
    assert_unsupported("int8", 100, HEARTH_I32, "type i32");
    assert_unsupported("int8", 100, (enum hearth_dtype)99, "type ?");
    assert_unsupported("powersgd:2", 10007, HEARTH_F32, "1 x 10007");
    assert_unsupported("powersgd:2,rows=7", 100, HEARTH_F32, "no matrix of 7 rows");
    assert_unsupported("powersgd:32", 10000, HEARTH_F32, "not shorter than half of 100 x 100");
    assert_unsupported("topk:0.1", (size_t)1 << 33, HEARTH_F32, "at most 4294967295");
    assert_unsupported("int8", (size_t)1 << 41, HEARTH_F32, "2^40");
}

TEST(targets_that_are_too_small_are_refused)
{
    struct bench b;
    bench_open(&b, "int8", HEARTH_F32, 1000);
    b.bound--;
    assert_int_equal(encode(&b, b.residual), HEARTH_LIMIT);
    b.bound++;
    assert_int_equal(encode(&b, b.residual), HEARTH_OK);
    bench_close(&b);
}

TEST(poison_changes_nothing)
{
    for (size_t c = 1; c < CODECS; c++)
        for (size_t d = 0; d < 4; d++) {
            struct bench b;
            bench_open(&b, codecs[c], dtypes[d], 400);
            memset(b.residual, 0x3c, 400 * 4);
            memset((char *)b.source + 123 * dtype_size(dtypes[d]), 0xff, dtype_size(dtypes[d]));
            bool sees_all = strncmp(codecs[c], "randomk", 7) != 0;
            int status = encode(&b, b.residual);
            if (sees_all || status)
                assert_int_equal(status, HEARTH_POISONED);
            if (status && !strstr(b.error.text, "element 123 of 400"))
                fail_msg("%s: %s", codecs[c], b.error.text);
            for (size_t i = 0; status && i < 400 * 4; i++)
                assert_int_equal(((uint8_t *)b.residual)[i], 0x3c);
            bench_close(&b);
        }
}

/* What is drawn without feedback counts several times: it must stay finite when it does. */
TEST(numbers_that_are_too_large_when_scaled_are_refused)
{
    struct bench b;
    bench_open(&b, "randomk:0.1", HEARTH_F32, 400);
    for (size_t i = 0; i < 400; i++)
        ((float *)b.source)[i] = 1e38f;
    assert_int_equal(encode(&b, NULL), HEARTH_POISONED);
    assert_non_null(strstr(b.error.text, "scaled"));
    assert_int_equal(encode(&b, b.residual), HEARTH_OK);
    assert_int_equal(decode_bytes(&b, b.bytes, b.len), HEARTH_OK);
    bench_close(&b);
}

/* Another element, another length, another header: with a checksum that is right all the same. */
static void seal(uint8_t *bytes, size_t len)
{
    store_u32(bytes + 52, crc32c(crc32c(0, bytes, 52), bytes + HEADER_LEN, len - HEADER_LEN));
}

TEST(every_damaged_byte_is_noticed)
{
    struct bench b;
    bench_open(&b, "topk:0.1,values=int8", HEARTH_F32, 400);
    assert_int_equal(encode(&b, NULL), HEARTH_OK);
    memset(b.target, 0x55, 400 * 4);
    for (size_t i = 0; i < b.len; i++) {
        b.bytes[i] ^= 0x10;
        assert_int_equal(decode_bytes(&b, b.bytes, b.len), HEARTH_PROTOCOL);
        b.bytes[i] ^= 0x10;
    }
    for (size_t len = 0; len < b.len; len++)
        assert_int_equal(decode_bytes(&b, b.bytes, len), HEARTH_PROTOCOL);
    for (size_t i = 0; i < 400 * 4; i++)
        assert_int_equal(((uint8_t *)b.target)[i], 0x55);
    assert_int_equal(decode_bytes(&b, b.bytes, b.len), HEARTH_OK);
    bench_close(&b);
}

TEST(wrong_headers_are_refused)
{
    static const struct {
        size_t at;
        uint8_t byte;
    } wrongs[] = {
        {0, 0}, {2, 2},     {3, 8},     {4, 3},   {4, 1},  {5, 4},  {6, 4},  {6, 1},  {6, 2},
        {7, 1}, {15, 0x7f}, {15, 0xbf}, {16, 63}, {20, 1}, {24, 2}, {39, 1}, {48, 1},
    };
    struct bench b;
    bench_open(&b, "topk:0.1", HEARTH_F32, 400);
    assert_int_equal(encode(&b, NULL), HEARTH_OK);
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        uint8_t was = b.bytes[wrongs[i].at];
        b.bytes[wrongs[i].at] = wrongs[i].byte;
        seal(b.bytes, b.len);
        if (decode_bytes(&b, b.bytes, b.len) != HEARTH_PROTOCOL)
            fail_msg("byte %zu may be %u", wrongs[i].at, wrongs[i].byte);
        b.bytes[wrongs[i].at] = was;
    }
    seal(b.bytes, b.len);
    assert_int_equal(decode_bytes(&b, b.bytes, b.len), HEARTH_OK);
    bench_close(&b);
}

TEST(another_count_or_type_is_named)
{
    struct bench b;
    bench_open(&b, "int8", HEARTH_F32, 400);
    assert_int_equal(encode(&b, NULL), HEARTH_OK);
    b.package.count = 399;
    assert_int_equal(decode_bytes(&b, b.bytes, b.len), HEARTH_INVALID);
    assert_non_null(strstr(b.error.text, "holds 400 elements of type f32, the target 399 of type f32"));
    b.package.count = 400;
    b.package.dtype = HEARTH_F16;
    assert_int_equal(decode_bytes(&b, b.bytes, b.len), HEARTH_INVALID);
    bench_close(&b);
}

/* Any bytes behind a header that is right: an error or a tensor, never harm. */
TEST(random_payloads_do_no_harm)
{
    struct prng prng;
    prng_init(&prng, 3);
    for (size_t c = 0; c < CODECS; c++) {
        struct bench b;
        bench_open(&b, codecs[c], HEARTH_F32, 500);
        assert_int_equal(encode(&b, NULL), HEARTH_OK);
        for (int i = 0; i < 300; i++) {
            for (int k = 0; k < 3; k++)
                b.bytes[HEADER_LEN + prng_below(&prng, b.len - HEADER_LEN)] = (uint8_t)prng_u64(&prng);
            seal(b.bytes, b.len);
            int status = decode_bytes(&b, b.bytes, b.len);
            assert_true(status == HEARTH_OK || status == HEARTH_PROTOCOL);
        }
        bench_close(&b);
    }
}

TEST(no_memory_is_an_error)
{
    for (size_t c = 0; c < CODECS; c++) {
        struct bench b;
        bench_open(&b, codecs[c], HEARTH_F32, 500);
        int fail_after = 0, status;
        do {
            b.heap.fail_after = fail_after++;
            status = encode(&b, b.residual);
            assert_true(status == HEARTH_OK || status == HEARTH_NO_MEMORY);
        } while (status);
        fail_after = 0;
        do {
            b.heap.fail_after = fail_after++;
            status = decode_bytes(&b, b.bytes, b.len);
            assert_true(status == HEARTH_OK || status == HEARTH_NO_MEMORY);
        } while (status);
        assert_in_range(fail_after, 1, 20);
        bench_close(&b);
    }
}

/* What is in tests/golden/package_v1.hex: numbers that all types hold exactly, and no residual. */
static const struct {
    const char *name, *codec;
    enum hearth_dtype dtype;
    size_t count;
} goldens[] = {
    {"none", "none", HEARTH_F16, 20},
    {"fp16", "fp16", HEARTH_F32, 40},
    {"bf16", "bf16", HEARTH_F64, 40},
    {"int8", "int8", HEARTH_F32, 100},
    {"stochastic", "int8,stochastic,feedback=off", HEARTH_BF16, 60},
    {"onebit", "onebit", HEARTH_F32, 300},
    {"topk", "topk:0.1,values=int8", HEARTH_F32, 200},
    {"topk_f32", "topk:0.07", HEARTH_F64, 100},
    {"chunks", "topk:0.05,chunk=64,values=bf16", HEARTH_F16, 200},
    {"randomk", "randomk:0.1,values=bf16", HEARTH_F32, 100},
    {"powersgd", "powersgd:1", HEARTH_F32, 256},
    {"user", "halved:7", HEARTH_F64, 20},
};
#define GOLDENS (sizeof(goldens) / sizeof(goldens[0]))

TEST(golden_packages_are_made_and_read_for_ever)
{
    static struct golden items[GOLDEN_MAX];
    assert_int_equal(golden_read("package_v1.hex", items), GOLDENS);
    for (size_t g = 0; g < GOLDENS; g++) {
        struct bench b;
        bench_open(&b, goldens[g].codec, goldens[g].dtype, goldens[g].count);
        for (size_t i = 0; i < goldens[g].count; i++) {
            double wide = ((double)(i * 37 % 101) - 50) / 8;
            float narrow = (float)wide;
            char *at = (char *)b.source + i * dtype_size(goldens[g].dtype);
            if (goldens[g].dtype == HEARTH_F64)
                memcpy(at, &wide, 8);
            else
                kernels_best()->narrow(goldens[g].dtype, at, &narrow, 1);
        }
        assert_good(&b, goldens[g].codec, encode(&b, NULL));
        assert_string_equal(items[g].name, goldens[g].name);
        assert_int_equal(items[g].len, b.len);
        for (size_t i = 0; i < b.len; i++)
            if (items[g].bytes[i] != b.bytes[i])
                fail_msg("%s: byte %zu is %02x, was %02x", goldens[g].name, i, b.bytes[i], items[g].bytes[i]);
        assert_good(&b, goldens[g].codec, decode_bytes(&b, items[g].bytes, items[g].len));
        bench_close(&b);
    }
}

TEST(public_functions_check_their_arguments)
{
    float x[64] = {1, 2, 3}, y[64];
    uint8_t bytes[512];
    size_t len = 0;
    assert_int_equal(hearth_codec_check("topk:0.01,values=int8"), HEARTH_OK);
    assert_int_equal(hearth_codec_check("auto:int8"), HEARTH_OK);
    assert_int_equal(hearth_codec_check("topk"), HEARTH_INVALID);
    assert_non_null(strstr(hearth_error_text(), "topk:RATIO"));
    assert_int_equal(hearth_codec_check(NULL), HEARTH_INVALID);

    size_t bound = hearth_codec_bound("int8", 64, HEARTH_F32);
    assert_in_range(bound, 64, sizeof bytes);
    assert_int_equal(hearth_codec_bound("auto:int8", 64, HEARTH_F32), 0);
    assert_int_equal(hearth_codec_bound(NULL, 64, HEARTH_F32), 0);
    assert_int_equal(hearth_codec_bound("int8", 64, HEARTH_I8), 0);

    assert_int_equal(hearth_codec_compress(NULL, 1, x, 64, HEARTH_F32, NULL, bytes, bound, &len),
                     HEARTH_INVALID);
    assert_int_equal(hearth_codec_compress("int8", 1, NULL, 64, HEARTH_F32, NULL, bytes, bound, &len),
                     HEARTH_INVALID);
    assert_non_null(strstr(hearth_error_text(), "source is NULL"));
    assert_int_equal(hearth_codec_compress("int8", 1, x, 64, HEARTH_F32, NULL, NULL, bound, &len),
                     HEARTH_INVALID);
    assert_int_equal(hearth_codec_compress("int8", 1, x, 64, HEARTH_F32, NULL, bytes, bound, NULL),
                     HEARTH_INVALID);
    assert_int_equal(hearth_codec_compress("auto:int8", 1, x, 64, HEARTH_F32, NULL, bytes, bound, &len),
                     HEARTH_INVALID);
    assert_int_equal(hearth_codec_compress("int8", 1, x, 64, HEARTH_F32, NULL, bytes, bound - 1, &len),
                     HEARTH_LIMIT);
    assert_int_equal(len, 0);
    assert_int_equal(hearth_codec_compress("int8", 1, x, 64, HEARTH_F32, NULL, bytes, bound, &len),
                     HEARTH_OK);
    assert_int_equal(len, bound);
    assert_int_equal(hearth_codec_decompress(NULL, len, y, 64, HEARTH_F32), HEARTH_INVALID);
    assert_int_equal(hearth_codec_decompress(bytes, len, NULL, 64, HEARTH_F32), HEARTH_INVALID);
    assert_int_equal(hearth_codec_decompress(bytes, len, y, 64, HEARTH_F32), HEARTH_OK);
    assert_true(fabsf(y[2] - 3) < 0.05f && y[63] == 0);
}
