/* SPDX-License-Identifier: Apache-2.0 */
/* Codec texts: what the grammar allows and nothing else, back to the same text, and exact counts. */
#include <locale.h>
#include <math.h>

#include "compress/codec.h"
#include "core/prng.h"
#include "numbers.h"
#include "support/suite.h"

static struct codec_list parsed(const char *text)
{
    struct codec_list list = {.count = -1};
    struct error error = {.text = ""};

    if (codec_parse(text, &list, &error) != HEARTH_OK)
        fail_msg("%s: %s", text ? text : "NULL", error.text);
    return list;
}

TEST(numbers_are_what_the_text_says)
{
    static const char *const plain[] = {"none", "fp16", "bf16", "int8", "onebit"};
    char text[CODEC_TEXT_MAX];
    for (int i = 0; i < 5; i++) {
        struct codec codec = codec_of(plain[i]);
        assert_int_equal(codec.kind, i);
        assert_true(codec.feedback);
        codec_text(&codec, text, sizeof text);
        assert_string_equal(text, plain[i]);
    }
    assert_int_equal(codec_of(NULL).kind, CODEC_NONE);

    struct codec topk = codec_of("topk:0.01,chunk=4096,values=int8");
    assert_int_equal(topk.kind, CODEC_TOPK);
    assert_true(topk.ratio == 0.01);
    assert_int_equal(topk.chunk, 4096);
    assert_int_equal(topk.values, VALUES_INT8);
    assert_true(topk.feedback);
    struct codec randomk = codec_of("randomk:1e-3,feedback=off");
    assert_int_equal(randomk.kind, CODEC_RANDOMK);
    assert_true(randomk.ratio == 0.001);
    assert_int_equal(randomk.values, VALUES_F32);
    assert_false(randomk.feedback);
    struct codec powersgd = codec_of("powersgd:4,alternate,rows=1099511627776");
    assert_int_equal(powersgd.kind, CODEC_POWERSGD);
    assert_int_equal(powersgd.rank, 4);
    assert_true(powersgd.rows == UINT64_C(1) << 40);
    assert_true(powersgd.alternate);
    struct codec int8 = codec_of("int8,stochastic,feedback=off");
    assert_true(int8.stochastic);
    assert_false(int8.feedback);
}

TEST(options_in_a_list_belong_to_the_codec_before_them)
{
    struct codec_list list =
        parsed("auto:int8,stochastic,feedback=off,topk:0.5,values=bf16,powersgd:2,alternate");
    assert_true(list.automatic);
    assert_int_equal(list.count, 3);
    assert_true(list.codec[0].stochastic);
    assert_false(list.codec[0].feedback);
    assert_int_equal(list.codec[1].kind, CODEC_TOPK);
    assert_int_equal(list.codec[1].values, VALUES_BF16);
    assert_true(list.codec[1].feedback);
    assert_true(list.codec[2].alternate);
    assert_int_equal(parsed("auto:int8").count, 1);
    assert_int_equal(parsed("auto:none,fp16,bf16,int8,onebit,topk:1,randomk:1,powersgd:1").count, 8);
}

TEST(text_is_canonical)
{
    static const struct {
        const char *given, *text;
    } cases[] = {
        {"none", "none"},
        {"topk:0.010", "topk:0.01"},
        {"topk:1.0", "topk:1"},
        {"topk:100e-2", "topk:1"},
        {"topk:00.25", "topk:0.25"},
        {"topk:1e-3,values=f32", "topk:0.001"},
        {"topk:0.00001e+2", "topk:0.001"},
        {"topk:1e-20", "topk:1e-20"},
        {"topk:0.0000000012", "topk:12e-10"},
        {"topk:0.1234567890123456", "topk:0.1234567890123456"},
        {"randomk:0.3333333333333333", "randomk:0.3333333333333333"},
        {"topk:0.5,values=int8,chunk=64,feedback=off", "topk:0.5,chunk=64,values=int8,feedback=off"},
        {"int8,feedback=off,stochastic", "int8,stochastic,feedback=off"},
        {"powersgd:032,alternate,rows=7", "powersgd:32,rows=7,alternate"},
        {"auto:topk:0.010,int8", "auto:topk:0.01,int8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[CODEC_TEXT_MAX], again[CODEC_TEXT_MAX];
        struct codec_list list = parsed(cases[i].given);
        codec_list_text(&list, text, sizeof text);
        assert_string_equal(text, cases[i].text);
        list = parsed(text);
        codec_list_text(&list, again, sizeof again);
        assert_string_equal(again, text);
    }
}

TEST(text_is_cut_at_its_size)
{
    struct codec codec = codec_of("topk:0.01,values=int8");
    char text[12];
    memset(text, 'x', sizeof text);
    codec_text(&codec, text, 8);
    assert_string_equal(text, "topk:0.");
    assert_int_equal(text[8], 'x');
    codec_text(&codec, NULL, 0);
}

static void assert_refused(const char *given, const char *what)
{
    struct codec_list list = {.count = -7};
    struct error error = {.text = ""};

    if (codec_parse(given, &list, &error) != HEARTH_INVALID)
        fail_msg("accepted: %s", given);
    assert_int_equal(list.count, -7);
    if (!strstr(error.text, what))
        fail_msg("%s: \"%s\" is not in: %s", given, what, error.text);
    if (!strstr(error.text, "each [,feedback=off]"))
        fail_msg("%s: no grammar in: %s", given, error.text);
}

TEST(errors_say_what_and_where_and_the_grammar)
{
    assert_refused("", "codec \"\", at \"\": no such codec");
    assert_refused("topq:0.1", "codec \"topq:0.1\", at \"topq:0.1\": no such codec");
    assert_refused("Int8", "no such codec");
    assert_refused("int8 ", "no such codec");
    assert_refused("int8,", "at \"\": no such codec");
    assert_refused("int8:3", "takes no number");
    assert_refused("int8:", "takes no number");
    assert_refused("int8,int8", "several codecs need auto:");
    assert_refused("topk", "at \"topk\": wants a ratio above 0, at most 1");
    assert_refused("topk:0.1,chunk=4096,valus=int8", "at \"valus=int8\": no such option");
    assert_refused("topk:0.1,values=int4", "at \"values=int4\": f32, bf16 or int8");
    assert_refused("topk:0.1,values=int8,values=int8", "said twice");
    assert_refused("topk:0.1,stochastic", "at \"stochastic\": not an option of this codec");
    assert_refused("randomk:0.1,chunk=64", "not an option of this codec");
    assert_refused("int8,alternate", "not an option of this codec");
    assert_refused("fp16,rows=3", "not an option of this codec");
    assert_refused("int8,stochastic", "stochastic needs feedback=off");
    assert_refused("int8,feedback=on", "only off can be said");
    assert_refused("stochastic", "an option before any codec");
    assert_refused("auto", "auto: wants codecs");
    assert_refused("auto:", "no such codec");
    assert_refused("auto:int8,auto:bf16", "no auto inside auto");
    assert_refused("auto:int8,bf16,int8", "a codec is there twice");
    assert_refused("auto:topk:0.1,topk:0.10", "a codec is there twice");
    assert_refused("auto:topk:.1,topk:.2", "wants a ratio");
    assert_refused("auto:topk:1,topk:0.9,topk:0.8,topk:0.7,topk:0.6,topk:0.5,topk:0.4,topk:0.3,topk:0.2",
                   "at \"topk:0.2\": more than 8 codecs");
    assert_refused("\x01\xff\n", "codec \"???\"");
    assert_refused("a text of which no more than its beginning can be shown because it is so very long",
                   "codec \"a text of which no more than its...\"");
}

TEST(numbers_out_of_range_are_refused)
{
    static const char *const ratios[] = {
        "0",     "0.0",       "-0.1",   "+0.1",  "1.1",  "1.000001", "2",     "nan", "inf", "0x1",
        ".1",    "1.",        "0.1e",   "0.1e-", "0.1 ", "",         "1e-21", "1e1", "0,1", "1e-99999999999",
        "0.1.1", "0.1e-1e-1", "1e99999"};
    for (size_t i = 0; i < sizeof ratios / sizeof ratios[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "topk:%s", ratios[i]);
        assert_refused(text, "codec \"topk:");
    }
    static const char *const chunks[] = {"32", "131072", "100", "", "0", "-64", "64k"};
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "topk:0.1,chunk=%s", chunks[i]);
        assert_refused(text, "a power of two 64..65536");
    }
    static const char *const ranks[] = {"powersgd", "powersgd:", "powersgd:0", "powersgd:33", "powersgd:1.5"};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++)
        assert_refused(ranks[i], "wants a rank, 1..32");
    assert_refused("powersgd:4,rows=0", "a count, 1..2^40");
    assert_refused("powersgd:4,rows=1099511627777", "a count, 1..2^40");
    assert_refused("powersgd:4,rows=99999999999999999999999", "a count, 1..2^40");
}

TEST(long_texts_are_refused)
{
    char text[CODEC_TEXT_MAX + 8];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_refused(text, "longer than 255 bytes");

    /* The canonical text may be longer than what was given, and must fit too. */
    text[0] = '\0';
    size_t len = 0;
    for (int i = 0; i < CODEC_LIST_MAX; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s:3%de-9,values=int8",
                                i ? ",randomk" : "auto:randomk", i + 1);
    assert_true(len < CODEC_TEXT_MAX);
    assert_refused(text, "longer than 255 bytes");
}

TEST(counts_are_exact)
{
    static const struct {
        const char *ratio;
        uint64_t count, keeps;
    } cases[] = {
        {"0.01", 0, 0},
        {"0.01", 1, 1},
        {"0.01", 100, 1}, /* the double is more than 0.01 */
        {"0.01", 101, 2},
        {"0.07", 100, 7}, /* 0.07 * 100 is more than 7 in doubles */
        {"0.29", 100, 29},
        {"1", 12345, 12345},
        {"0.999999", 10, 10},
        {"1e-20", 5, 1},
        {"0.015625", 4096, 64},
        {"0.1", 3, 1},
        {"0.001", UINT64_C(1) << 40, 1099511628},
        {"0.000001", UINT64_C(1000000000000), 1000000},
        {"0.000001", UINT64_C(1000000000001), 1000001},
        {"0.999999999999", UINT64_C(1000000000000), UINT64_C(999999999999)},
        {"0.3333333333333333", 3, 1},
        {"0.6666666666666667", 3, 3},
        {"0.000000001", UINT64_C(1) << 40, 1100},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "topk:%s", cases[i].ratio);
        struct codec codec = codec_of(text);
        if (codec_keeps(&codec, cases[i].count) != cases[i].keeps)
            fail_msg("%s of %llu: %llu", cases[i].ratio, (unsigned long long)cases[i].count,
                     (unsigned long long)codec_keeps(&codec, cases[i].count));
    }
}

/* Any double in range: the text is read as the same double, and counts lie where they must. */
TEST(every_ratio_survives_its_text)
{
    struct prng prng;
    prng_init(&prng, 4);
    for (int i = 0; i < 20000; i++) {
        struct codec codec = {.kind = CODEC_TOPK, .feedback = true};
        codec.ratio = prng_unit(&prng) * pow(10, -(double)prng_below(&prng, 19));
        if (codec.ratio < 1e-20)
            continue;
        char text[CODEC_TEXT_MAX];
        codec_text(&codec, text, sizeof text);
        if (codec_of(text).ratio != codec.ratio)
            fail_msg("%.17g became %s", codec.ratio, text);
        size_t count = (size_t)prng_below(&prng, UINT64_C(1) << 40) + 1;
        size_t keeps = codec_keeps(&codec, count);
        double about = (double)count * codec.ratio;
        assert_in_range(keeps, 1, count);
        assert_true(fabs((double)keeps - about) <= 1 + about * 1e-15);
    }
}

/* As the C library reads them, where that can be trusted: in the locale "C". */
TEST(ratios_are_rounded_as_strtod_does)
{
    struct prng prng;
    prng_init(&prng, 5);
    for (int i = 0; i < 20000; i++) {
        char text[64];
        int len = 1 + (int)prng_below(&prng, 17);
        snprintf(text, sizeof text, "topk:0.%0*llu", len,
                 (unsigned long long)prng_below(&prng, (uint64_t)pow(10, len) - 1) + 1);
        double expected;
        assert_int_equal(sscanf(text, "topk:%lf", &expected), 1);
        assert_true(codec_of(text).ratio == expected);
    }
}

TEST(no_locale_changes_anything)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "C.UTF-8"};
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !setlocale(LC_ALL, names[i]); i++)
        ;
    struct codec codec = codec_of("topk:0.1234567890123457");
    char text[CODEC_TEXT_MAX];
    codec_text(&codec, text, sizeof text);
    assert_string_equal(text, "topk:0.1234567890123457");
    setlocale(LC_ALL, "C");
}

TEST(kinds_are_told_apart)
{
    static const char *const parts[] = {"none", "fp16", "bf16", "int8", "onebit", "topk:0.1,chunk=64"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        struct codec codec = codec_of(parts[i]);
        assert_true(codec_is_blockwise(&codec));
    }
    static const char *const wholes[] = {"topk:0.1", "randomk:0.1", "powersgd:1"};
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++) {
        struct codec codec = codec_of(wholes[i]);
        assert_false(codec_is_blockwise(&codec));
    }
    assert_int_equal(codec_of_values(VALUES_F32).kind, CODEC_NONE);
    assert_int_equal(codec_of_values(VALUES_BF16).kind, CODEC_BF16);
    assert_int_equal(codec_of_values(VALUES_INT8).kind, CODEC_INT8);
}
