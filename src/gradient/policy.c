/* SPDX-License-Identifier: Apache-2.0 */
/* Rules first, then who is left out, then the schedule.
 *
 * The ramp halves the ratio in stages of equal length, 0.25, 0.125, ... while that is above the codec's own:
 * powers of two are exact, so all members have the same bits whatever their processor. */
#include "gradient/policy.h"

#include <stdio.h>
#include <string.h>

struct rule {
    struct list item; /* in the policy, oldest first */
    struct codec_list list;
    char pattern[POLICY_PATTERN_MAX + 1];
};

/* ---- patterns ---- */

bool pattern_matches(const char *pattern, size_t len, const char *name)
{
    size_t p = 0, n = 0, star = len, resume = 0; /* star: the last one seen; resume: what it has not eaten */
    while (name[n] != 0) {
        if (p < len && pattern[p] == '*') {
            star = p++;
            resume = n;
        } else if (p < len && (pattern[p] == '?' || pattern[p] == name[n])) {
            p++;
            n++;
        } else if (star < len) {
            p = star + 1;
            n = ++resume;
        } else {
            return false;
        }
    }
    while (p < len && pattern[p] == '*')
        p++;
    return p == len;
}

static int pattern_check(const char *pattern, size_t len, const char *what, struct error *error)
{
    if (len == 0)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "%s: a pattern is empty", what);
    if (len > POLICY_PATTERN_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "%s: a pattern has %zu bytes; at most %d", what,
                         len, POLICY_PATTERN_MAX);
    for (size_t i = 0; i < len; i++)
        if (pattern[i] < 0x20 || pattern[i] > 0x7e)
            return error_set(error, HEARTH_INVALID, RANK_NONE,
                             "%s: byte %zu of a pattern is 0x%02x, which is not printable", what, i,
                             (unsigned char)pattern[i]);
    return HEARTH_OK;
}

/* The item of a list that begins here: its length. */
static size_t item_len(const char *item)
{
    return strcspn(item, ",");
}

/* The first pattern of a list that matches, or NULL. */
static const char *list_match(const char *list, const char *name, int *len)
{
    for (const char *item = list;; item += *len + 1) {
        *len = (int)item_len(item);
        if (pattern_matches(item, (size_t)*len, name))
            return item;
        if (item[*len] == 0)
            return NULL;
    }
}

static int list_copy(struct heap *heap, const char *list, const char *what, char **out, struct error *error)
{
    if (!list)
        return HEARTH_OK;
    if (strnlen(list, POLICY_LIST_MAX + 1) > POLICY_LIST_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "%s: longer than %d bytes", what, POLICY_LIST_MAX);
    for (const char *item = list;; item += item_len(item) + 1) {
        int status = pattern_check(item, item_len(item), what, error);
        if (status != HEARTH_OK)
            return status;
        if (item[item_len(item)] == 0)
            break;
    }
    *out = heap_strdup(heap, list);
    return *out ? HEARTH_OK : error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "%s: no memory", what);
}

/* ---- what was given ---- */

static int steps_check(uint64_t steps, const char *what, struct error *error)
{
    if (steps <= POLICY_STEPS_MAX)
        return HEARTH_OK;
    return error_set(error, HEARTH_INVALID, RANK_NONE, "%s is %llu; it takes at most %llu", what,
                     (unsigned long long)steps, (unsigned long long)POLICY_STEPS_MAX);
}

int policy_init(struct policy *policy, struct heap *heap, const struct hearth_compressor_config *config,
                const char *codec, struct error *error)
{
    *policy = (struct policy){
        .heap = heap,
        .min_count = config->min_count,
        .vectors = config->vectors != 0,
        .warmup_steps = config->warmup_steps,
        .ramp_steps = config->ramp_steps,
        .version = 1,
    };
    list_init(&policy->rules);
    int status = codec_parse(config->codec ? config->codec : codec, &policy->standard, error);
    if (status == HEARTH_OK && (config->vectors < 0 || config->vectors > 1))
        status =
            error_set(error, HEARTH_INVALID, RANK_NONE, "vectors is %d; it takes 0 or 1", config->vectors);
    if (status == HEARTH_OK)
        status = steps_check(config->warmup_steps, "warmup_steps", error);
    if (status == HEARTH_OK)
        status = steps_check(config->ramp_steps, "ramp_steps", error);
    if (status == HEARTH_OK)
        status = list_copy(heap, config->include, "include", &policy->include, error);
    if (status == HEARTH_OK)
        status = list_copy(heap, config->exclude, "exclude", &policy->exclude, error);
    if (status != HEARTH_OK)
        policy_fini(policy);
    return status;
}

void policy_fini(struct policy *policy)
{
    struct list *item, *after;
    LIST_EACH (item, after, &policy->rules)
        heap_free(container_of(item, struct rule, item));
    list_init(&policy->rules);
    heap_free(policy->include);
    heap_free(policy->exclude);
    policy->include = policy->exclude = NULL;
}

int policy_rule(struct policy *policy, const char *pattern, const char *codec, struct error *error)
{
    struct codec_list list;
    size_t len = strnlen(pattern, POLICY_PATTERN_MAX + 1);
    int status = pattern_check(pattern, len, "rule", error);
    if (status == HEARTH_OK)
        status = codec_parse(codec, &list, error);
    if (status != HEARTH_OK)
        return status;
    if (policy->rule_count == POLICY_RULES_MAX)
        return error_set(error, HEARTH_LIMIT, RANK_NONE, "rule: there are %d already, which is the limit",
                         POLICY_RULES_MAX);
    struct rule *rule = heap_alloc(policy->heap, 1, sizeof *rule);
    if (!rule)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "rule: no memory");
    rule->list = list;
    memcpy(rule->pattern, pattern, len + 1);
    list_push(&policy->rules, &rule->item);
    policy->rule_count++;
    policy->version++;
    return HEARTH_OK;
}

/* ---- answers ---- */

static const struct rule *rule_of(const struct policy *policy, const char *name)
{
    for (const struct list *item = policy->rules.prev; item != &policy->rules; item = item->prev) {
        const struct rule *rule = container_of(item, struct rule, item);
        if (pattern_matches(rule->pattern, strlen(rule->pattern), name))
            return rule;
    }
    return NULL;
}

static struct codec_list plain_list(void)
{
    return (struct codec_list){.count = 1, .codec = {{.kind = CODEC_NONE, .feedback = true}}};
}

/* Without the schedule. */
static void ask_kind(const struct policy *policy, const struct policy_question *q, struct policy_answer *a)
{
    const struct rule *rule = rule_of(policy, q->name);
    int len = 0;
    if (rule) {
        a->why = WHY_RULE;
        a->pattern = rule->pattern;
        a->pattern_len = (int)strlen(rule->pattern);
        a->list = rule->list;
        return;
    }
    const char *excluded = policy->exclude ? list_match(policy->exclude, q->name, &len) : NULL;
    a->list = plain_list();
    if (policy->include && !list_match(policy->include, q->name, &(int){0})) {
        a->why = WHY_NOT_INCLUDED;
    } else if (excluded) {
        a->why = WHY_EXCLUDED;
        a->pattern = excluded;
        a->pattern_len = len;
    } else if (q->ndim < 2 && !policy->vectors) {
        a->why = WHY_VECTOR;
    } else if (q->count < policy->min_count) {
        a->why = WHY_SMALL;
    } else {
        a->why = WHY_STANDARD;
        a->list = policy->standard;
    }
}

/* How often the ramp's first ratio is halved until it is not above this one. */
static uint64_t halvings(double ratio)
{
    uint64_t count = 0;
    for (double r = POLICY_RAMP_FROM; r > ratio; r *= 0.5)
        count++;
    return count;
}

static double ramp_ratio(double ratio, uint64_t at, uint64_t steps)
{
    double r = POLICY_RAMP_FROM;
    for (uint64_t stage = at * halvings(ratio) / steps; stage > 0; stage--)
        r *= 0.5;
    return r;
}

static void ramp(struct policy_answer *a, uint64_t at, uint64_t steps)
{
    for (int i = 0; i < a->list.count; i++) {
        struct codec *codec = &a->list.codec[i];
        bool has_ratio = codec->kind == CODEC_TOPK || codec->kind == CODEC_RANDOMK;
        if (!has_ratio || codec->ratio >= POLICY_RAMP_FROM)
            continue;
        codec->ratio = ramp_ratio(codec->ratio, at, steps);
        if (a->phase == PHASE_STEADY || codec->ratio < a->ramp_ratio)
            a->ramp_ratio = codec->ratio;
        a->phase = PHASE_RAMP;
    }
}

bool policy_settled(const struct policy *policy, uint64_t step)
{
    return step >= policy->warmup_steps + policy->ramp_steps;
}

void policy_ask(const struct policy *policy, const struct policy_question *question,
                struct policy_answer *answer)
{
    *answer = (struct policy_answer){.phase = PHASE_STEADY};
    ask_kind(policy, question, answer);
    if (question->step < policy->warmup_steps) {
        answer->phase = PHASE_WARMUP;
        answer->list = plain_list();
    } else if (!policy_settled(policy, question->step)) {
        ramp(answer, question->step - policy->warmup_steps, policy->ramp_steps);
    }
}

void policy_reason(const struct policy *policy, const struct policy_question *question,
                   const struct policy_answer *answer, char *text, size_t size)
{
    char schedule[128] = "";
    unsigned long long step = question->step + 1, warmup = policy->warmup_steps;
    bool plain = answer->why != WHY_STANDARD && answer->why != WHY_RULE;
    if (answer->phase == PHASE_WARMUP && !plain)
        snprintf(schedule, sizeof schedule, ", warm-up, step %llu of %llu", step, warmup);
    if (answer->phase == PHASE_RAMP)
        snprintf(schedule, sizeof schedule, ", ramp, step %llu of %llu, ratio %g", step - warmup,
                 (unsigned long long)policy->ramp_steps, answer->ramp_ratio);
    switch (answer->why) {
    case WHY_RULE:
        snprintf(text, size, "rule '%.*s'%s", answer->pattern_len, answer->pattern, schedule);
        break;
    case WHY_EXCLUDED:
        snprintf(text, size, "excluded by '%.*s'", answer->pattern_len, answer->pattern);
        break;
    case WHY_NOT_INCLUDED:
        snprintf(text, size, "not among those included");
        break;
    case WHY_VECTOR:
        snprintf(text, size, "has fewer than two dimensions");
        break;
    case WHY_SMALL:
        snprintf(text, size, "fewer than %zu elements", policy->min_count);
        break;
    case WHY_STANDARD:
        snprintf(text, size, "the compressor's codec%s", schedule);
        break;
    }
}
