/* SPDX-License-Identifier: Apache-2.0 */
/* Members compare what they registered before they send any of it: a bucket that is laid out differently
 * would add up what does not belong together. One small all-gather, in the first step of a group; a
 * second one, with a number for each tensor, only when something differs. In formed groups it also tells
 * where each stands: who is new or behind takes it over from the others. */
#include "core/hash.h"
#include "gradient/sync.h"

#define EXPLAIN_MS 10000 /* a member without memory for it does not take part */

static uint64_t tensor_hash(const hearth_sync *sync, const struct sync_tensor *t)
{
    uint64_t hash = hash_mix(t->name_hash, (uint64_t)t->form.dtype);
    hash = hash_mix(hash, (uint64_t)t->form.ndim);
    for (int i = 0; i < t->form.ndim; i++)
        hash = hash_mix(hash, t->form.dims[i]);
    hash = hash_mix(hash, t->codec_hash);
    return hash_mix(hash, (uint64_t)sync->op);
}

void sync_register(hearth_sync *sync)
{
    uint64_t digest = hash_mix(0, (uint64_t)sync->op);
    for (uint32_t i = 0; i < sync->tensor_count; i++) {
        const struct sync_tensor *t = &sync->tensors[i];
        digest = hash_mix(digest, tensor_hash(sync, t));
        digest = hash_mix(digest, t->item.bucket);
        digest = hash_mix(digest, t->item.offset);
    }
    sync->own = (struct registration){.tensors = sync->tensor_count, .digest = digest};
}

/* ---- asking ---- */

static bool same(const struct registration *a, const struct registration *b)
{
    return a->tensors == b->tensors && a->digest == b->digest;
}

/* What most members registered, as a rank that did; the lower rank wins a tie. */
static int usual_one(const struct registration *all, int size)
{
    int best = 0, best_votes = 0;
    for (int i = 0; i < size; i++) {
        int votes = 0;
        for (int k = 0; k < size; k++)
            votes += same(&all[i], &all[k]);
        if (votes > best_votes) {
            best = i;
            best_votes = votes;
        }
    }
    return best;
}

static int odd_one(const struct registration *all, int size)
{
    int usual = usual_one(all, size), odd = 0;
    while (odd < size && same(&all[odd], &all[usual]))
        odd++;
    return odd < size ? odd : RANK_NONE;
}

/* The first that has joined; RANK_NONE: nobody has, this is the first group of all. */
static int first_joined(const hearth_sync *sync)
{
    int first = 0, size = hearth_group_size(sync->group);
    while (first < size && sync->registrations[first].joined == 0)
        first++;
    return first < size ? first : RANK_NONE;
}

void sync_join(hearth_sync *sync)
{
    int first = first_joined(sync);
    if (first != RANK_NONE) {
        sync->steps = sync->registrations[first].steps;
        sync->lineage = sync->registrations[first].lineage;
    }
    for (int i = 0; i < hearth_group_size(sync->group); i++)
        sync->round = sync->registrations[i].round > sync->round ? sync->registrations[i].round : sync->round;
    sync->promised = sync->round > sync->promised ? sync->round : sync->promised;
    sync->joined = sync->formed;
}

/* With the lock. Members that have joined stand at the same place. */
static enum agreement standings_check(hearth_sync *sync)
{
    int first = first_joined(sync);
    const struct registration *r = sync->registrations;
    for (int i = 0; i < hearth_group_size(sync->group); i++) {
        if (r[i].joined == 0 || (r[i].steps == r[first].steps && r[i].lineage == r[first].lineage))
            continue;
        error_set(&sync->objection, HEARTH_MISMATCH, i,
                  "sync: rank %d has committed %llu steps and rank %d %llu, or others: one of them gave up "
                  "what the other took; bring the model to one state, and open a new sync",
                  i, (unsigned long long)r[i].steps, first, (unsigned long long)r[first].steps);
        return AGREE_DIFFERS;
    }
    if (first != RANK_NONE)
        return AGREE_COMPARING;
    sync_join(sync);
    return AGREE_SAME;
}

/* The completion callback; any thread may run it. What has become ready meanwhile starts here, not only in
 * the wait: a member that waits for another sync first would keep all others waiting. */
static void answered(void *arg, int status)
{
    hearth_sync *sync = arg;
    mutex_lock(&sync->lock);
    if (status != HEARTH_OK)
        sync->agreement = AGREE_FAILED;
    else if (odd_one(sync->registrations, hearth_group_size(sync->group)) != RANK_NONE)
        sync->agreement = AGREE_DIFFERS;
    else
        sync->agreement = standings_check(sync);
    bool compare = sync->agreement == AGREE_COMPARING;
    mutex_unlock(&sync->lock);
    if (compare)
        sync_compare(sync);
    sync_start_full(sync);
}

/* The thread that asks has set AGREE_ASKING, so that no other does. */
static int ask(hearth_sync *sync)
{
    struct hearth_opts opts = sync_opts(sync, TAG_ASK, answered);
    hearth_request *question = NULL;
    sync->own.joined = sync->joined;
    sync->own.steps = sync->steps;
    sync->own.lineage = sync->lineage;
    sync->own.round = sync->round;
    int status = hearth_all_gather_nb(sync->group, &sync->own, sync->registrations,
                                      sizeof sync->own / sizeof(uint64_t), HEARTH_U64, &opts, &question);
    mutex_lock(&sync->lock);
    sync->question = question;
    if (status != HEARTH_OK)
        sync->agreement = AGREE_UNKNOWN;
    mutex_unlock(&sync->lock);
    return status;
}

static bool must_ask(hearth_sync *sync)
{
    mutex_lock(&sync->lock);
    bool mine = sync->agreement == AGREE_UNKNOWN;
    if (mine)
        sync->agreement = AGREE_ASKING;
    mutex_unlock(&sync->lock);
    return mine;
}

void sync_ask(hearth_sync *sync)
{
    if (must_ask(sync))
        (void)ask(sync); /* sync_agree tries again and says what is wrong */
}

void sync_forget(hearth_sync *sync)
{
    request_drop(&sync->question);
    request_drop(&sync->comparison);
    if (sync->agreement == AGREE_ASKING || sync->agreement == AGREE_COMPARING ||
        sync->agreement == AGREE_FAILED)
        sync->agreement = AGREE_UNKNOWN;
}

/* ---- saying what differs ---- */

/* The first tensor in which two members differ, by the list of all members' numbers. */
static uint64_t first_difference(const hearth_sync *sync, const uint64_t *all, int a, int b)
{
    const struct registration *r = sync->registrations;
    const uint64_t *of_a = all, *of_b = all;
    for (int i = 0; i < a; i++)
        of_a += r[i].tensors;
    for (int i = 0; i < b; i++)
        of_b += r[i].tensors;
    uint64_t i = 0;
    while (i < r[a].tensors && i < r[b].tensors && of_a[i] == of_b[i])
        i++;
    return i;
}

static int settings_diff_text(hearth_sync *sync, int odd, int usual, uint64_t index)
{
    const struct registration *r = sync->registrations;
    const char *name = index < sync->tensor_count ? sync->tensors[index].name : NULL;
    if (index == r[odd].tensors && index == r[usual].tensors)
        return error_set(&sync->broken, HEARTH_MISMATCH, odd,
                         "sync: rank %d registered the same tensors as rank %d, but has another operation or "
                         "makes other buckets of them",
                         odd, usual);
    return error_set(&sync->broken, HEARTH_MISMATCH, odd,
                     "sync: rank %d registered %llu tensors and rank %d %llu; the first that differs has "
                     "index %llu (%s%s%s): compare name, type, shape, codec and operation",
                     odd, (unsigned long long)r[odd].tensors, usual, (unsigned long long)r[usual].tensors,
                     (unsigned long long)index, name ? "\"" : "", name ? name : "none here",
                     name ? "\"" : "");
}

/* The numbers of all members' tensors, or NULL: then only the rank can be named. */
static uint64_t *numbers_gather(hearth_sync *sync, const size_t *counts, int64_t timeout_ms)
{
    size_t total = 0, before = 0;
    for (int i = 0; i < hearth_group_size(sync->group); i++) {
        if (counts[i] > SYNC_TENSORS_MAX)
            return NULL;
        before += i < hearth_group_rank(sync->group) ? counts[i] : 0;
        total += counts[i];
    }
    uint64_t *all = heap_alloc(sync->heap, total, sizeof *all);
    if (!all)
        return NULL;
    for (uint32_t i = 0; i < sync->tensor_count; i++)
        all[before + i] = tensor_hash(sync, &sync->tensors[i]);
    struct hearth_opts opts = sync_opts(sync, TAG_EXPLAIN, NULL);
    opts.timeout_ms = timeout_ms < EXPLAIN_MS ? timeout_ms : EXPLAIN_MS;
    if (hearth_all_gatherv(sync->group, all + before, all, counts, HEARTH_U64, &opts) == HEARTH_OK)
        return all;
    heap_free(all);
    return NULL;
}

/* Members that differ all know it, and so all come here. */
static int explain(hearth_sync *sync, int64_t timeout_ms)
{
    int size = hearth_group_size(sync->group);
    const struct registration *r = sync->registrations;
    int odd = odd_one(r, size), usual = usual_one(r, size);
    error_set(&sync->broken, HEARTH_MISMATCH, odd, "sync: rank %d registered other tensors than rank %d", odd,
              usual);
    size_t *counts = heap_alloc(sync->heap, (size_t)size, sizeof *counts);
    if (!counts)
        return HEARTH_MISMATCH;
    for (int i = 0; i < size; i++)
        counts[i] = (size_t)r[i].tensors;
    uint64_t *all = numbers_gather(sync, counts, timeout_ms);
    if (all)
        settings_diff_text(sync, odd, usual, first_difference(sync, all, odd, usual));
    heap_free(all);
    heap_free(counts);
    return HEARTH_MISMATCH;
}

/* ---- the answers ---- */

static int comparison_wait(hearth_sync *sync, uint64_t deadline_ns)
{
    int status = hearth_request_wait(sync->comparison, sync_remaining_ms(sync, deadline_ns));
    if (status == HEARTH_PENDING)
        status = error_set(error_last(), HEARTH_TIMEOUT, RANK_NONE,
                           "sync_wait: timed out: not all members have compared their steps in time");
    struct error why = *error_last();
    request_drop(&sync->comparison);
    *error_last() = why;
    return status;
}

int sync_agree(hearth_sync *sync, uint64_t deadline_ns)
{
    if (must_ask(sync)) {
        int status = ask(sync);
        if (status != HEARTH_OK)
            return status;
    }
    if (!sync->question) /* it was settled in an earlier step */
        return HEARTH_OK;
    int status = hearth_request_wait(sync->question, sync_remaining_ms(sync, deadline_ns));
    if (status == HEARTH_PENDING)
        status = error_set(error_last(), HEARTH_TIMEOUT, RANK_NONE,
                           "sync_wait: timed out: not all members have begun their first step in time");
    request_drop(&sync->question);
    if (sync->comparison)
        status = comparison_wait(sync, deadline_ns);
    mutex_lock(&sync->lock);
    enum agreement agreement = sync->agreement;
    if (agreement == AGREE_FAILED)
        sync->agreement = AGREE_UNKNOWN;
    mutex_unlock(&sync->lock);
    if (agreement == AGREE_SAME) /* perhaps in the last moment */
        return HEARTH_OK;
    if (agreement != AGREE_DIFFERS && status == HEARTH_OK) {
        *error_last() = sync->objection;
        return sync->objection.status;
    }
    if (agreement != AGREE_DIFFERS)
        return status;
    if (sync->objection.status == HEARTH_MISMATCH) { /* the tensors are the same, the steps are not */
        *error_last() = sync->broken = sync->objection;
        return sync->broken.status;
    }
    status = explain(sync, sync_remaining_ms(sync, deadline_ns));
    *error_last() = sync->broken;
    return status;
}
