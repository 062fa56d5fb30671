/* SPDX-License-Identifier: Apache-2.0 */
/* The vote that ends a step in a formed group: who hears that all members have all buckets may use them; who
 * does not hear it can still take everything back. One all-gather of 16 bytes, begun when the last bucket
 * ends and not in the wait: members may wait for several syncs in different orders. */
#include "core/hash.h"
#include "gradient/sync.h"

static void vote_start(hearth_sync *sync)
{
    struct hearth_opts opts;
    hearth_request *vote = NULL;
    hearth_opts_init(&opts);
    opts.tag = hash_mix(sync->id, TAG_VOTE);
    mutex_lock(&sync->lock);
    sync->ballot = (struct ballot){.steps = sync->steps, .failed = sync->spoiled};
    mutex_unlock(&sync->lock);
    int status = hearth_all_gather_nb(sync->group, &sync->ballot, sync->ballots,
                                      sizeof sync->ballot / sizeof(uint64_t), HEARTH_U64, &opts, &vote);
    mutex_lock(&sync->lock);
    sync->vote = vote;
    if (status != HEARTH_OK)
        sync_failure(sync, NULL, error_last());
    mutex_unlock(&sync->lock);
}

void sync_landed(hearth_sync *sync, int status)
{
    mutex_lock(&sync->lock);
    sync->landed++;
    sync->spoiled = sync->spoiled || status != HEARTH_OK;
    bool last = sync->landed >= sync->bucket_count && !sync->voted && !sync->over;
    sync->voted = sync->voted || last;
    mutex_unlock(&sync->lock);
    if (last)
        vote_start(sync);
}

/* It went through: does anybody object? */
static void ballots_check(hearth_sync *sync)
{
    struct error why;
    for (int i = 0; i < hearth_size(sync->group); i++) {
        if (sync->ballots[i].failed == 0)
            continue;
        error_set(&why, HEARTH_ABORTED, i, "rank %d could not end the step", i);
        sync_failure(sync, NULL, &why);
        return;
    }
}

void sync_vote_finish(hearth_sync *sync, uint64_t deadline_ns)
{
    struct error why;
    mutex_lock(&sync->lock);
    bool start = !sync->voted && !sync->over && sync->failure.status == HEARTH_OK; /* all were done before */
    sync->voted = sync->voted || start;
    mutex_unlock(&sync->lock);
    if (start)
        vote_start(sync);
    if (sync->vote == NULL)
        return;
    int status = hearth_wait(sync->vote, sync_remaining_ms(deadline_ns));
    if (status == HEARTH_PENDING)
        error_set(&why, HEARTH_TIMEOUT, RANK_NONE, "timed out: not all members have ended the step in time");
    else if (status != HEARTH_OK)
        why = *error_last();
    hearth_request_free(sync->vote);
    mutex_lock(&sync->lock);
    sync->vote = NULL;
    if (status == HEARTH_OK)
        ballots_check(sync);
    else
        sync_failure(sync, NULL, &why);
    mutex_unlock(&sync->lock);
}

void sync_vote_drop(hearth_sync *sync, bool flying)
{
    struct error why;
    mutex_lock(&sync->lock);
    bool owed = sync->formed && flying && !sync->voted;
    sync->voted = true; /* what lands now begins none */
    mutex_unlock(&sync->lock);
    error_set(&why, HEARTH_ABORTED, hearth_rank(sync->group), "sync: the step was given up");
    if (owed)
        node_refuse(sync->group, hash_mix(sync->id, TAG_VOTE), &why);
    hearth_request_free(sync->vote);
    sync->vote = NULL;
}

void sync_vote_reset(hearth_sync *sync)
{
    sync->voted = sync->spoiled = false;
    sync->landed = 0;
    for (uint32_t i = 0; i < sync->bucket_count; i++)
        sync->landed += sync->buckets[i].progress == BUCKET_DONE;
}
