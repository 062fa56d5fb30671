/* SPDX-License-Identifier: Apache-2.0 */
/* Which codec a tensor goes by: rules, include and exclude, least size, warm-up and ramp. Pure: members that
 * were given the same answer the same, bit for bit. */
#pragma once

#include "compress/codec.h"
#include "core/heap.h"
#include "core/list.h"

#define POLICY_RULES_MAX   256
#define POLICY_PATTERN_MAX 255                 /* bytes of one */
#define POLICY_LIST_MAX    4095                /* bytes of include, exclude */
#define POLICY_STEPS_MAX   (UINT64_C(1) << 40) /* of warm-up, ramp */
#define POLICY_RAMP_FROM   0.25                /* ratio with which the ramp begins */
#define POLICY_TEXT_MAX    512                 /* a reason is never longer */

struct policy {
    struct heap *heap;
    struct codec_list standard;
    size_t min_count;
    bool vectors;
    char *include, *exclude; /* NULL: none given */
    uint64_t warmup_steps, ramp_steps;
    struct list rules;
    int rule_count;
    uint64_t version; /* from 1: changes when answers may */
};

/* `codec` is used where the config names none. HEARTH_INVALID names the field; HEARTH_NO_MEMORY. */
int MUST_CHECK policy_init(struct policy *policy, struct heap *heap,
                           const struct hearth_compressor_config *config, const char *codec,
                           struct error *error);
void policy_fini(struct policy *policy);
/* One more rule, stronger than those before. HEARTH_INVALID, HEARTH_LIMIT, HEARTH_NO_MEMORY. */
int MUST_CHECK policy_rule(struct policy *policy, const char *pattern, const char *codec,
                           struct error *error);

struct policy_question {
    const char *name;
    int ndim;
    size_t count;
    uint64_t step; /* of the tensor, from 0 */
};

enum policy_why {
    WHY_STANDARD,
    WHY_RULE,
    WHY_NOT_INCLUDED, /* the rest go plain */
    WHY_EXCLUDED,
    WHY_VECTOR,
    WHY_SMALL
};
enum policy_phase { PHASE_WARMUP, PHASE_RAMP, PHASE_STEADY };

struct policy_answer {
    struct codec_list list; /* of this step */
    enum policy_why why;
    const char *pattern; /* WHY_RULE, WHY_EXCLUDED: the one that matched; not terminated, the policy's */
    int pattern_len;
    enum policy_phase phase;
    double ramp_ratio; /* PHASE_RAMP: no ratio is below it */
};

void policy_ask(const struct policy *policy, const struct policy_question *question,
                struct policy_answer *answer);
/* Whether answers stay the same from this step on, until the version changes. */
bool policy_settled(const struct policy *policy, uint64_t step);
/* "excluded by '*.bias'", "fewer than 4096 elements", "rule 'head.*', warm-up, step 3 of 10". */
void policy_reason(const struct policy *policy, const struct policy_question *question,
                   const struct policy_answer *answer, char *text, size_t size);

/* `*` stands for any characters, `?` for one. */
bool pattern_matches(const char *pattern, size_t len, const char *name);
