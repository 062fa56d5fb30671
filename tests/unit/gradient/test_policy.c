/* SPDX-License-Identifier: Apache-2.0 */
/* Which codec a tensor goes by: patterns, rules, who is left out, warm-up and ramp. */
#include "gradient/policy.h"
#include "support/suite.h"

#define BIG 1000000

static struct hearth_compressor_config config_of(const char *codec)
{
    return (struct hearth_compressor_config){
        .size = sizeof(struct hearth_compressor_config), .codec = codec, .min_count = 4096};
}

/* A policy on its own heap, which must be empty again at the end. */
struct fixture {
    struct heap heap;
    struct policy policy;
    struct error error;
};

static void fixture_open(struct fixture *f, const struct hearth_compressor_config *config)
{
    heap_init(&f->heap, 0);
    assert_int_equal(policy_init(&f->policy, &f->heap, config, "int8", &f->error), HEARTH_OK);
}

static void fixture_close(struct fixture *f)
{
    policy_fini(&f->policy);
    assert_int_equal(f->heap.blocks, 0);
}

static struct policy_answer ask(const struct fixture *f, const char *name, int ndim, size_t count,
                                uint64_t step)
{
    const struct policy_question question = {name, ndim, count, step};
    struct policy_answer answer;
    policy_ask(&f->policy, &question, &answer);
    return answer;
}

static void assert_codec(const struct fixture *f, const char *name, int ndim, size_t count,
                         enum codec_kind kind)
{
    struct policy_answer answer = ask(f, name, ndim, count, 0);
    assert_int_equal(answer.list.count, 1);
    assert_false(answer.list.automatic);
    assert_int_equal(answer.list.codec[0].kind, kind);
    assert_true(answer.list.codec[0].feedback);
}

static void assert_reason(const struct fixture *f, const struct policy_question *q, const char *wanted)
{
    struct policy_answer answer;
    char text[POLICY_TEXT_MAX];
    policy_ask(&f->policy, q, &answer);
    policy_reason(&f->policy, q, &answer, text, sizeof text);
    assert_string_equal(text, wanted);
}

TEST(test_patterns)
{
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"a", "a", true},
        {"a", "", false},
        {"a", "ab", false},
        {"ab", "a", false},
        {"?", "a", true},
        {"?", "", false},
        {"??", "a", false},
        {"*", "", true},
        {"*", "anything", true},
        {"**", "x", true},
        {"*.bias", "layer.1.bias", true},
        {"*.bias", ".bias", true},
        {"*.bias", "bias", false},
        {"*.bias", "layer.bias.x", false},
        {"*.bias", "a.bias.bias", true},
        {"layer.?.weight", "layer.1.weight", true},
        {"layer.?.weight", "layer.12.weight", false},
        {"layer.*.weight", "layer.12.weight", true},
        {"a*b*c", "aXbYc", true},
        {"a*b*c", "abcbc", true},
        {"a*b*c", "acb", false},
        {"a*?", "a", false},
        {"a*?", "ab", true},
        {"*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
        {"[a]", "a", false}, /* nothing but * and ? is special */
        {"[a]", "[a]", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (pattern_matches(cases[i].pattern, strlen(cases[i].pattern), cases[i].name) != cases[i].matches)
            fail_msg("'%s' and '%s'", cases[i].pattern, cases[i].name);
    assert_true(pattern_matches("ab,c", 2, "ab")); /* the length counts, not the end of the string */
}

TEST(test_who_is_left_out)
{
    struct fixture f;
    struct hearth_compressor_config config = config_of("int8");
    config.include = "layer.*,head.?";
    config.exclude = "*.bias,layer.9*";
    fixture_open(&f, &config);
    assert_codec(&f, "layer.1", 2, BIG, CODEC_INT8);
    assert_codec(&f, "head.1", 3, BIG, CODEC_INT8);
    assert_codec(&f, "head.12", 2, BIG, CODEC_NONE);
    assert_codec(&f, "other", 2, BIG, CODEC_NONE);
    assert_codec(&f, "layer.1.bias", 2, BIG, CODEC_NONE);
    assert_codec(&f, "layer.9.x", 2, BIG, CODEC_NONE);
    assert_codec(&f, "layer.1", 1, BIG, CODEC_NONE);
    assert_codec(&f, "layer.1", 0, 1, CODEC_NONE);
    assert_codec(&f, "layer.1", 2, 4095, CODEC_NONE);
    assert_codec(&f, "layer.1", 2, 4096, CODEC_INT8);
    assert_reason(&f, &(struct policy_question){"layer.1", 2, BIG, 0}, "the compressor's codec");
    assert_reason(&f, &(struct policy_question){"other", 2, BIG, 0}, "not among those included");
    assert_reason(&f, &(struct policy_question){"layer.1.bias", 1, 5, 0}, "excluded by '*.bias'");
    assert_reason(&f, &(struct policy_question){"layer.99", 2, BIG, 0}, "excluded by 'layer.9*'");
    assert_reason(&f, &(struct policy_question){"layer.1", 1, BIG, 0}, "has fewer than two dimensions");
    assert_reason(&f, &(struct policy_question){"layer.1", 2, 4000, 0}, "fewer than 4096 elements");
    fixture_close(&f);
}

TEST(test_defaults)
{
    struct fixture f;
    struct hearth_compressor_config config = config_of(NULL);
    config.vectors = 1;
    config.min_count = 0;
    fixture_open(&f, &config); /* no codec of its own: the node's */
    assert_codec(&f, "x", 1, 1, CODEC_INT8);
    assert_codec(&f, "x", 0, 1, CODEC_INT8);
    fixture_close(&f);
}

TEST(test_rules)
{
    struct fixture f;
    struct hearth_compressor_config config = config_of("int8");
    config.exclude = "*";
    fixture_open(&f, &config);
    uint64_t version = f.policy.version;
    assert_codec(&f, "layer.1", 2, BIG, CODEC_NONE);
    assert_int_equal(policy_rule(&f.policy, "layer.*", "topk:0.01", &f.error), HEARTH_OK);
    assert_true(f.policy.version > version);
    assert_codec(&f, "layer.1", 2, BIG, CODEC_TOPK);
    assert_codec(&f, "layer.1", 1, 1, CODEC_TOPK); /* before vectors and min_count */
    assert_codec(&f, "head", 2, BIG, CODEC_NONE);
    assert_int_equal(policy_rule(&f.policy, "layer.1*", "bf16", &f.error), HEARTH_OK);
    assert_codec(&f, "layer.1", 2, BIG, CODEC_BF16); /* the last one counts */
    assert_codec(&f, "layer.2", 2, BIG, CODEC_TOPK);
    assert_reason(&f, &(struct policy_question){"layer.1", 2, BIG, 0}, "rule 'layer.1*'");
    assert_int_equal(policy_rule(&f.policy, "layer.*", "none", &f.error), HEARTH_OK);
    assert_codec(&f, "layer.1", 2, BIG, CODEC_NONE);
    fixture_close(&f);
}

TEST(test_bad_rules)
{
    char longest[POLICY_PATTERN_MAX + 2];
    struct fixture f;
    struct hearth_compressor_config config = config_of("int8");
    fixture_open(&f, &config);
    uint64_t version = f.policy.version;
    assert_int_equal(policy_rule(&f.policy, "", "int8", &f.error), HEARTH_INVALID);
    assert_non_null(strstr(f.error.text, "empty"));
    assert_int_equal(policy_rule(&f.policy, "a\n", "int8", &f.error), HEARTH_INVALID);
    assert_non_null(strstr(f.error.text, "0x0a"));
    assert_int_equal(policy_rule(&f.policy, "a", "int9", &f.error), HEARTH_INVALID);
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(policy_rule(&f.policy, longest, "int8", &f.error), HEARTH_INVALID);
    assert_true(f.policy.version == version);
    assert_int_equal(policy_rule(&f.policy, longest + 1, "int8", &f.error), HEARTH_OK);
    assert_codec(&f, longest + 1, 1, 1, CODEC_INT8);
    for (int i = 1; i < POLICY_RULES_MAX; i++)
        assert_int_equal(policy_rule(&f.policy, "y", "int8", &f.error), HEARTH_OK);
    assert_int_equal(policy_rule(&f.policy, "y", "int8", &f.error), HEARTH_LIMIT);
    assert_non_null(strstr(f.error.text, "256"));
    fixture_close(&f);
}

static void assert_refused(const struct hearth_compressor_config *config, const char *word)
{
    struct heap heap;
    struct policy policy;
    struct error error;
    heap_init(&heap, 0);
    assert_int_equal(policy_init(&policy, &heap, config, "int8", &error), HEARTH_INVALID);
    if (!strstr(error.text, word))
        fail_msg("'%s' does not say '%s'", error.text, word);
    assert_int_equal(heap.blocks, 0);
}

TEST(test_bad_configs)
{
    static char longest[POLICY_LIST_MAX + 2];
    struct hearth_compressor_config config = config_of("int9");
    assert_refused(&config, "int9");
    config = config_of("int8");
    config.vectors = 2;
    assert_refused(&config, "vectors");
    config = config_of("int8");
    config.include = "";
    assert_refused(&config, "include");
    config.include = "a,,b";
    assert_refused(&config, "include");
    config.include = "a,";
    assert_refused(&config, "include");
    config.include = "a";
    config.exclude = "b\t";
    assert_refused(&config, "exclude");
    memset(longest, ',', sizeof longest - 1);
    for (size_t i = 0; i < sizeof longest - 1; i += 2)
        longest[i] = 'x';
    config.exclude = longest;
    assert_refused(&config, "exclude");
    config = config_of("int8");
    config.warmup_steps = POLICY_STEPS_MAX + 1;
    assert_refused(&config, "warmup_steps");
    config = config_of("int8");
    config.ramp_steps = POLICY_STEPS_MAX + 1;
    assert_refused(&config, "ramp_steps");
}

TEST(test_no_memory)
{
    struct heap heap;
    struct policy policy;
    struct error error;
    struct hearth_compressor_config config = config_of("int8");
    config.include = "a";
    config.exclude = "b";
    heap_init(&heap, 0);
    for (int64_t n = 0; n < 2; n++) {
        heap.fail_after = n;
        assert_int_equal(policy_init(&policy, &heap, &config, "int8", &error), HEARTH_NO_MEMORY);
        assert_int_equal(heap.blocks, 0);
    }
    heap.fail_after = -1;
    assert_int_equal(policy_init(&policy, &heap, &config, "int8", &error), HEARTH_OK);
    heap.fail_after = 0;
    assert_int_equal(policy_rule(&policy, "x", "int8", &error), HEARTH_NO_MEMORY);
    assert_int_equal(policy.version, 1);
    policy_fini(&policy);
    assert_int_equal(heap.blocks, 0);
}

TEST(test_warmup)
{
    struct fixture f;
    struct hearth_compressor_config config = config_of("topk:0.01");
    config.warmup_steps = 10;
    fixture_open(&f, &config);
    assert_int_equal(policy_rule(&f.policy, "ruled", "int8", &f.error), HEARTH_OK);
    for (uint64_t step = 0; step < 12; step++) {
        bool warm = step < 10;
        assert_int_equal(ask(&f, "x", 2, BIG, step).list.codec[0].kind, warm ? CODEC_NONE : CODEC_TOPK);
        assert_int_equal(ask(&f, "ruled", 2, BIG, step).list.codec[0].kind, warm ? CODEC_NONE : CODEC_INT8);
        assert_int_equal(policy_settled(&f.policy, step), !warm);
    }
    assert_true(ask(&f, "x", 2, BIG, 0).list.codec[0].feedback); /* a residual is sent along */
    assert_reason(&f, &(struct policy_question){"x", 2, BIG, 2},
                  "the compressor's codec, warm-up, step 3 of 10");
    assert_reason(&f, &(struct policy_question){"ruled", 2, BIG, 9}, "rule 'ruled', warm-up, step 10 of 10");
    assert_reason(&f, &(struct policy_question){"x", 2, 5, 2}, "fewer than 4096 elements");
    assert_reason(&f, &(struct policy_question){"x", 2, BIG, 10}, "the compressor's codec");
    fixture_close(&f);
}

/* 0.25, 0.125, 0.0625, 0.03125, 0.015625: five stages until 0.01. */
TEST(test_ramp)
{
    struct fixture f;
    struct hearth_compressor_config config = config_of("topk:0.01");
    config.warmup_steps = 3;
    config.ramp_steps = 10;
    fixture_open(&f, &config);
    for (uint64_t step = 3; step < 13; step++) {
        double wanted = 0.25 / (double)(1u << ((step - 3) / 2));
        struct policy_answer answer = ask(&f, "x", 2, BIG, step);
        assert_true(answer.list.codec[0].ratio == wanted);
        assert_true(answer.phase == PHASE_RAMP && answer.ramp_ratio == wanted);
        assert_false(policy_settled(&f.policy, step));
    }
    assert_true(ask(&f, "x", 2, BIG, 13).list.codec[0].ratio == 0.01);
    assert_true(policy_settled(&f.policy, 13));
    assert_reason(&f, &(struct policy_question){"x", 2, BIG, 5},
                  "the compressor's codec, ramp, step 3 of 10, ratio 0.125");
    fixture_close(&f);
}

/* Codecs without a ratio, or with a large one, are as they are; each of a list has its own way down. */
TEST(test_ramp_of_others)
{
    struct fixture f;
    struct hearth_compressor_config config = config_of("auto:int8,topk:0.5,topk:0.1,randomk:0.001");
    config.ramp_steps = 2;
    fixture_open(&f, &config);
    struct policy_answer first = ask(&f, "x", 2, BIG, 0), second = ask(&f, "x", 2, BIG, 1);
    assert_true(first.list.automatic && first.list.count == 4);
    assert_true(first.list.codec[0].kind == CODEC_INT8);
    assert_true(first.list.codec[1].ratio == 0.5 && second.list.codec[1].ratio == 0.5);
    assert_true(first.list.codec[2].ratio == 0.25 && second.list.codec[2].ratio == 0.125);
    assert_true(first.list.codec[3].ratio == 0.25 && second.list.codec[3].ratio == 0.015625);
    assert_true(second.ramp_ratio == 0.015625);
    assert_int_equal(policy_rule(&f.policy, "y", "int8", &f.error), HEARTH_OK);
    assert_int_equal(ask(&f, "y", 2, BIG, 0).phase, PHASE_STEADY);
    fixture_close(&f);
}

TEST(test_ramp_extremes)
{
    struct fixture f;
    struct hearth_compressor_config config = config_of("topk:1e-9");
    config.ramp_steps = POLICY_STEPS_MAX;
    config.warmup_steps = POLICY_STEPS_MAX;
    fixture_open(&f, &config);
    double before = 0.25;
    for (uint64_t i = 0; i < 64; i++) {
        double ratio =
            ask(&f, "x", 2, BIG, POLICY_STEPS_MAX + i * (POLICY_STEPS_MAX / 64)).list.codec[0].ratio;
        assert_true(ratio <= before && ratio > 1e-9);
        before = ratio;
    }
    assert_true(before < 4e-9);
    assert_true(ask(&f, "x", 2, BIG, UINT64_MAX).list.codec[0].ratio == 1e-9);
    fixture_close(&f);
}
