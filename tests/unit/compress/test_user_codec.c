/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs of users by themselves: names and texts, packages there and back, and functions that do wrong. */
#include <hearth.h>
#include <math.h>
#include <stdio.h>

#include "compress/user_codec.h"
#include "core/bytes.h"
#include "core/crc32c.h"
#include "numbers.h"
#include "support/suite.h"

#define HEADER_LEN 56
#define COUNT      1000u

/* ---- a codec that rounds to multiples of PARAMETERS, one signed byte each, and what it may do wrong ---- */

static struct behaviour {
    int encode_status, decode_status;
    size_t len_more;   /* than it has written */
    size_t write_more; /* than its bound */
    size_t growth;     /* of its bound from call to call */
    bool forgets;      /* to write the last element */
    bool nan;
    uint64_t key; /* the last that it saw */
} act;

static float grain_of(const char *parameters)
{
    return parameters[0] ? strtof(parameters, NULL) : 0.125f;
}

static int grain_check(void *arg, const char *parameters)
{
    (void)arg;
    return grain_of(parameters) > 0 ? 0 : -1;
}

static size_t grain_bound(void *arg, const struct hearth_codec_call *call)
{
    static size_t calls;
    (void)arg;
    return call->count <= COUNT ? call->count + 4 + act.growth * ++calls : 0;
}

static int grain_encode(void *arg, const struct hearth_codec_call *call, const float *values, void *bytes,
                        size_t size, size_t *len)
{
    int8_t *to = bytes;
    assert_ptr_equal(arg, &act);
    assert_true(size >= call->count + 4);
    act.key = call->key;
    store_u32(bytes, (uint32_t)call->key);
    for (size_t i = 0; i < call->count; i++)
        to[4 + i] = (int8_t)lrintf(fminf(fmaxf(values[i] / grain_of(call->parameters), -127), 127));
    if (act.write_more > 0)
        memset(to + size, 1, act.write_more);
    *len = call->count + 4 + act.len_more;
    return act.encode_status;
}

static int grain_decode(void *arg, const struct hearth_codec_call *call, const void *bytes, size_t len,
                        float *values)
{
    const int8_t *from = bytes;
    assert_ptr_equal(arg, &act);
    if (len != call->count + 4 || load_u32(bytes) != (uint32_t)call->key)
        return -1; /* the key is that of encode */
    for (size_t i = 0; i < call->count; i++)
        assert_true(values[i] == 0); /* whatever was there before */
    for (size_t i = 0; i < call->count - act.forgets; i++)
        values[i] = (float)from[4 + i] * grain_of(call->parameters);
    if (act.nan)
        values[0] = NAN;
    return act.decode_status;
}

static struct hearth_codec_functions grain(void)
{
    struct hearth_codec_functions f;
    hearth_codec_functions_init(&f);
    f.arg = &act;
    f.check = grain_check;
    f.bound = grain_bound;
    f.encode = grain_encode;
    f.decode = grain_decode;
    return f;
}

static void grain_register(void)
{
    struct hearth_codec_functions f = grain();
    act = (struct behaviour){0};
    assert_int_equal(hearth_codec_register("grain", &f), HEARTH_OK);
}

/* ---- names ---- */

TEST(names)
{
    static const char *const bad[] = {"",       "1bit",         "Grain",
                                      "gr ain", "grain:",       "gr,ain",
                                      "none",   "fp16",         "topk",
                                      "auto",   "alternate",    "stochastic",
                                      "-x",     "gr\xc3\xa4in", "a-name-that-is-longer-than-31-ch"};
    static const char *const good[] = {"x", "grain-2", "my_codec", "a-name-that-is-exactly-31-long_"};
    struct hearth_codec_functions f = grain();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (hearth_codec_register(bad[i], &f) != HEARTH_INVALID || user_codec_find(bad[i], strlen(bad[i])))
            fail_msg("registered: %s", bad[i]);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(hearth_codec_check(good[i]), HEARTH_INVALID);
        assert_non_null(strstr(hearth_error_text(), "no such codec"));
        assert_int_equal(hearth_codec_register(good[i], &f), HEARTH_OK);
        assert_int_equal(hearth_codec_check(good[i]), HEARTH_OK);
    }
}

TEST(functions_are_checked)
{
    struct hearth_codec_functions f = grain();
    assert_int_equal(hearth_codec_register("partial", NULL), HEARTH_INVALID);
    assert_int_equal(hearth_codec_register(NULL, &f), HEARTH_INVALID);
    f.decode = NULL;
    assert_int_equal(hearth_codec_register("partial", &f), HEARTH_INVALID);
    assert_non_null(strstr(hearth_error_text(), "\"partial\": bound, encode or decode is NULL"));
    f = grain();
    f.size = 0;
    assert_int_equal(hearth_codec_register("partial", &f), HEARTH_INVALID);
    struct {
        struct hearth_codec_functions functions;
        uint64_t added;
    } newer = {grain(), 1};
    newer.functions.size = sizeof newer;
    assert_int_equal(hearth_codec_register("partial", &newer.functions), HEARTH_UNSUPPORTED);
    assert_int_equal(hearth_codec_check("partial"), HEARTH_INVALID);
}

static size_t other_bound(void *arg, const struct hearth_codec_call *call)
{
    (void)arg;
    return call->count == COUNT ? UINT64_C(1) << 49 : 7;
}

TEST(a_name_again)
{
    struct hearth_codec_functions f = grain();
    assert_int_equal(hearth_codec_register("again", &f), HEARTH_OK);
    const struct user_codec *first = user_codec_find("again", 5);
    assert_int_equal(hearth_codec_register("again", &f), HEARTH_OK);
    assert_ptr_equal(user_codec_find("again", 5), first); /* the same: nothing new */
    struct codec before = codec_of("again");
    f.bound = other_bound;
    assert_int_equal(hearth_codec_register("again", &f), HEARTH_OK);
    struct codec after = codec_of("again");
    assert_int_equal(user_bound(&before, 10), 14); /* who has the old one keeps it */
    assert_int_equal(user_bound(&after, 10), 7);
    assert_int_equal(user_bound(&after, COUNT), 0); /* too much to be true */
}

TEST(texts)
{
    char text[CODEC_TEXT_MAX];
    struct codec_list list;
    struct error error;
    static const char *const bad[] = {
        "grain:",
        "grain:0",
        "grain:-1",
        "grain: 1",
        "grain:0.5,grain:0.25",
        "grain,x=1",
        "grain:1\x7f",
        "grain,chunk=64",
        "grain,alternate",
        "auto:grain,grain",
        "grain:0.55555555555555555555555555555555555555555555555555555555555555"};
    static const char *const good[] = {
        "grain",
        "grain:0.5",
        "grain:1e-3",
        "grain:2/k=3;x:y",
        "grain:0.25,feedback=off",
        "auto:int8,grain:0.5,feedback=off,topk:0.01,grain",
        "grain:0.5555555555555555555555555555555555555555555555555555555555555"};
    grain_register();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (codec_parse(bad[i], &list, &error) != HEARTH_INVALID || codec_names_unknown(bad[i]))
            fail_msg("%s: %s", bad[i], error.text);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (codec_parse(good[i], &list, &error) != HEARTH_OK)
            fail_msg("%s", error.text);
        codec_list_text(&list, text, sizeof text);
        assert_string_equal(text, good[i]);
    }
    assert_string_equal(codec_of("grain:2/k=3;x:y").parameters, "2/k=3;x:y");
    assert_true(codec_names_unknown("unheard-of"));
    assert_true(codec_names_unknown("auto:int8,unheard:3,feedback=off"));
    assert_false(codec_names_unknown("auto:int8,grain:3,feedback=off"));
    assert_false(codec_names_unknown("Grain"));
    struct hearth_codec_functions f = grain();
    f.check = NULL; /* it has no parameters */
    assert_int_equal(hearth_codec_register("bare", &f), HEARTH_OK);
    assert_int_equal(hearth_codec_check("bare"), HEARTH_OK);
    assert_int_equal(hearth_codec_check("bare:1"), HEARTH_INVALID);
    assert_non_null(strstr(hearth_error_text(), "refuses its parameters"));
}

/* ---- packages ---- */

static float source[COUNT], residual[COUNT], target[COUNT];
static uint8_t bytes[2 * COUNT];

static void fill_source(void)
{
    numbers_fill(NUMBERS_GAUSS, 5, source, COUNT);
    memset(residual, 0, sizeof residual);
}

TEST(packages_there_and_back)
{
    static const enum hearth_dtype dtypes[] = {HEARTH_F32, HEARTH_F64, HEARTH_F16, HEARTH_BF16};
    grain_register();
    for (size_t t = 0; t < 4; t++) {
        enum hearth_dtype dtype = dtypes[t];
        double x[COUNT], out[COUNT], e[COUNT] = {0}; /* room for every type */
        size_t bound = hearth_codec_bound("grain:0.25", COUNT, dtype), len;
        float wide[COUNT], got[COUNT];
        numbers_fill(NUMBERS_GAUSS, t, wide, COUNT);
        for (size_t i = 0; i < COUNT; i++)
            if (dtype == HEARTH_F64)
                x[i] = (double)wide[i];
        if (dtype != HEARTH_F64)
            kernels_best()->narrow(dtype, x, wide, COUNT);
        assert_int_equal(hearth_codec_compress("grain:0.25", 99, x, COUNT, dtype, e, bytes, bound, &len), 0);
        assert_int_equal(len, bound);
        assert_int_equal(act.key, 99);
        assert_int_equal(hearth_codec_decompress(bytes, len, out, COUNT, dtype), HEARTH_OK);
        for (size_t i = 0; i < COUNT; i++) {
            if (dtype == HEARTH_F64) {
                assert_true(out[i] + e[i] == x[i]);
                continue;
            }
            kernels_best()->widen(dtype, wide + i, (char *)x + i * dtype_size(dtype), 1);
            kernels_best()->widen(dtype, got + i, (char *)out + i * dtype_size(dtype), 1);
            assert_true(got[i] + ((float *)e)[i] == wide[i]); /* quarters are exact in all types */
        }
    }
    size_t len = 1;
    assert_int_equal(hearth_codec_compress("grain", 1, NULL, 0, HEARTH_F32, NULL, bytes, HEADER_LEN, &len),
                     0);
    assert_int_equal(len, HEADER_LEN);
    assert_int_equal(hearth_codec_decompress(bytes, len, NULL, 0, HEARTH_F32), HEARTH_OK);
    assert_int_equal(hearth_codec_bound("grain", COUNT + 1, HEARTH_F32), 0);
    assert_int_equal(
        hearth_codec_compress("grain", 1, source, COUNT + 1, HEARTH_F32, NULL, bytes, sizeof bytes, &len),
        HEARTH_UNSUPPORTED);
}

TEST(feedback_adds_up)
{
    static double sum[COUNT];
    size_t len;
    grain_register();
    fill_source();
    for (int step = 0; step < 20; step++) {
        assert_int_equal(hearth_codec_compress("grain:2", (uint64_t)step, source, COUNT, HEARTH_F32, residual,
                                               bytes, sizeof bytes, &len),
                         HEARTH_OK);
        assert_int_equal(hearth_codec_decompress(bytes, len, target, COUNT, HEARTH_F32), HEARTH_OK);
        for (size_t i = 0; i < COUNT; i++)
            sum[i] += (double)target[i];
    }
    for (size_t i = 0; i < COUNT; i++)
        assert_true(fabs(sum[i] + (double)residual[i] - 20 * (double)source[i]) < 1e-4);
}

static const struct {
    struct behaviour act;
    int status;
    const char *word;
} wrongs[] = {
    {{.encode_status = -5}, HEARTH_INVALID, "codec \"grain:0.5\": encode of 1000 elements failed with -5"},
    {{.encode_status = 3}, HEARTH_INVALID, "failed with 3"},
    {{.encode_status = HEARTH_NO_MEMORY}, HEARTH_NO_MEMORY, "grain:0.5"},
    {{.encode_status = HEARTH_LIMIT}, HEARTH_LIMIT, "grain:0.5"},
    {{.encode_status = HEARTH_UNSUPPORTED}, HEARTH_UNSUPPORTED, "grain:0.5"},
    {{.encode_status = HEARTH_PEER_LOST}, HEARTH_INVALID, "grain:0.5"},
    {{.len_more = 1}, HEARTH_INVALID, "more than its bound of 1004 bytes (it says 1005)"},
    {{.len_more = SIZE_MAX / 2}, HEARTH_INVALID, "more than its bound"},
    {{.write_more = 1}, HEARTH_INVALID, "more than its bound of 1004 bytes (it says 1004)"},
    {{.write_more = USER_GUARD_LEN}, HEARTH_INVALID, "more than its bound"},
    {{.len_more = (size_t)-4}, HEARTH_INVALID, "what it encoded itself"},
    {{.decode_status = -1}, HEARTH_INVALID, "what it encoded itself: codec \"grain:0.5\": decode of 1004"},
    {{.decode_status = HEARTH_NO_MEMORY}, HEARTH_NO_MEMORY, "decode has no memory"},
    {{.nan = true}, HEARTH_INVALID, "not finite"},
};

TEST(wrong_functions_change_nothing)
{
    static float before[COUNT];
    grain_register();
    fill_source();
    numbers_fill(NUMBERS_GAUSS, 6, residual, COUNT);
    memcpy(before, residual, sizeof before);
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        size_t len = 12345;
        act = wrongs[i].act;
        int status = hearth_codec_compress("grain:0.5", 1, source, COUNT, HEARTH_F32, residual, bytes,
                                           sizeof bytes, &len);
        if (status != wrongs[i].status || !strstr(hearth_error_text(), wrongs[i].word))
            fail_msg("%zu: %s: %s", i, hearth_status_name(status), hearth_error_text());
        assert_int_equal(len, 12345);
        assert_memory_equal(residual, before, sizeof before);
    }
}

/* Memory is as long as the bound said, whatever it says later. */
TEST(a_bound_that_grows)
{
    size_t len;
    grain_register();
    fill_source();
    act.growth = 3;
    size_t bound = hearth_codec_bound("grain", COUNT, HEARTH_F32);
    int status = hearth_codec_compress("grain", 1, source, COUNT, HEARTH_F32, residual, bytes, bound, &len);
    assert_int_equal(status, HEARTH_LIMIT);
    assert_int_equal(
        hearth_codec_compress("grain", 1, source, COUNT, HEARTH_F32, residual, bytes, sizeof bytes, &len),
        HEARTH_OK);
    assert_true(len < sizeof bytes);
}

TEST(an_element_that_is_not_written_is_zero)
{
    size_t len;
    grain_register();
    fill_source();
    act.forgets = true;
    assert_int_equal(
        hearth_codec_compress("grain", 1, source, COUNT, HEARTH_F32, residual, bytes, sizeof bytes, &len), 0);
    assert_true(residual[COUNT - 1] == source[COUNT - 1]);
    target[COUNT - 1] = 5;
    assert_int_equal(hearth_codec_decompress(bytes, len, target, COUNT, HEARTH_F32), HEARTH_OK);
    assert_true(target[COUNT - 1] == 0);
}

static int decode_sealed(size_t len)
{
    store_u32(bytes + 52, crc32c(crc32c(0, bytes, 52), bytes + HEADER_LEN, len - HEADER_LEN));
    return hearth_codec_decompress(bytes, len, target, COUNT, HEARTH_F32);
}

TEST(foreign_packages)
{
    size_t len;
    static float before[COUNT];
    grain_register();
    fill_source();
    assert_int_equal(hearth_codec_compress("grain:0.5,feedback=off", 1, source, COUNT, HEARTH_F32, residual,
                                           bytes, sizeof bytes, &len),
                     HEARTH_OK);
    assert_int_equal(bytes[3], CODEC_USER);
    assert_int_equal(bytes[HEADER_LEN], 9);
    assert_memory_equal(bytes + HEADER_LEN + 1, "grain:0.5", 9);
    memcpy(before, target, sizeof before);
    assert_int_equal(decode_sealed(len - 1), HEARTH_PROTOCOL); /* the codec's own refusal */
    assert_int_equal(decode_sealed(len + 1), HEARTH_PROTOCOL); /* beyond its bound */
    assert_int_equal(decode_sealed(HEADER_LEN), HEARTH_PROTOCOL);
    assert_int_equal(decode_sealed(HEADER_LEN + 5), HEARTH_PROTOCOL); /* within its name */
    static const struct {
        const char *name;
        int status;
    } names[] = {{"grain:000", HEARTH_PROTOCOL},  {"absent:xx", HEARTH_UNSUPPORTED},
                 {"topk:0.01", HEARTH_PROTOCOL},  {"auto:int8", HEARTH_PROTOCOL},
                 {"grain\0x:1", HEARTH_PROTOCOL}, {"grain,x=1", HEARTH_PROTOCOL}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        memcpy(bytes + HEADER_LEN + 1, names[i].name, 9);
        if (decode_sealed(len) != names[i].status)
            fail_msg("%s: %s", names[i].name, hearth_error_text());
    }
    memcpy(bytes + HEADER_LEN + 1, "absent:xx", 9);
    assert_int_equal(decode_sealed(len), HEARTH_UNSUPPORTED);
    assert_non_null(strstr(hearth_error_text(), "\"absent:xx\", which is not registered"));
    assert_memory_equal(target, before, sizeof before);
    memcpy(bytes + HEADER_LEN + 1, "grain:0.5", 9);
    assert_int_equal(decode_sealed(len), HEARTH_OK);
}

/* ---- the limit: last, because nothing can be registered after it ---- */

TEST(registrations_are_limited)
{
    struct hearth_codec_functions f = grain();
    char name[USER_NAME_MAX + 1];
    int status = HEARTH_OK, registered = 0;
    grain_register();
    for (int i = 0; i <= USER_CODECS_MAX && status == HEARTH_OK; i++) {
        snprintf(name, sizeof name, "many%d", i);
        status = hearth_codec_register(name, &f);
        registered += status == HEARTH_OK;
    }
    assert_int_equal(status, HEARTH_LIMIT);
    assert_in_range(registered, USER_CODECS_MAX / 2, USER_CODECS_MAX);
    assert_int_equal(hearth_codec_register("grain", &f), HEARTH_OK); /* known already */
    assert_int_equal(hearth_codec_check("many0"), HEARTH_OK);
}
