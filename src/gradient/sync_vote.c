/* SPDX-License-Identifier: Apache-2.0 */
/* The vote that ends a step in a formed group: a member that hears that all have all buckets commits the
 * step; one that hears of a failure aborts it. One all-gather of 8 bytes, begun when the last bucket ends
 * and not in the wait: members may wait for several syncs in different orders. A member that voted for
 * the step and does not hear the vote cannot know what the others do: it ends the group, and the next one
 * decides (sync_decide.h). */
#include "gradient/compressor.h"
#include "gradient/sync.h"

static void vote_start(hearth_sync *sync)
{
    struct hearth_opts opts = sync_opts(sync, TAG_VOTE, NULL);
    hearth_request *vote = NULL;
    mutex_lock(&sync->lock);
    sync->ballot = sync->spoiled;
    sync->stage = sync->spoiled ? STAGE_OPEN : STAGE_PREPARED;
    sync->attempt = group_view(sync->group->group)->group;
    mutex_unlock(&sync->lock);
    int status = hearth_all_gather_nb(sync->group, &sync->ballot, sync->ballots, 1, HEARTH_U64, &opts, &vote);
    if (status != HEARTH_OK)
        node_refuse(sync->group, opts.tag, error_last());
    mutex_lock(&sync->lock);
    sync->vote = vote;
    if (status != HEARTH_OK) { /* nobody can have heard us */
        sync->stage = STAGE_OPEN;
        sync_failure(sync, NULL, error_last());
    }
    mutex_unlock(&sync->lock);
}

void sync_landed(hearth_sync *sync, int status)
{
    mutex_lock(&sync->lock);
    sync->landed++;
    sync->spoiled = sync->spoiled || status != HEARTH_OK;
    bool last = sync->landed == sync->bucket_count && !sync->voted;
    sync->voted = sync->voted || last;
    mutex_unlock(&sync->lock);
    if (last)
        vote_start(sync);
}

/* It was heard, with the lock: does anybody object? */
static void ballots_check(hearth_sync *sync)
{
    struct error why;
    for (int i = 0; i < hearth_group_size(sync->group); i++) {
        if (sync->ballots[i] == 0)
            continue;
        error_set(&why, HEARTH_ABORTED, i, "rank %d could not end the step", i);
        sync_failure(sync, NULL, &why);
        sync->stage = STAGE_OPEN;
        return;
    }
}

/* HEARTH_OK: it was heard; else the error is set. */
static int vote_hear(hearth_sync *sync, uint64_t deadline_ns, struct error *why)
{
    int status = hearth_request_wait(sync->vote, sync_remaining_ms(sync, deadline_ns));
    if (status == HEARTH_PENDING && hearth_request_cancel(sync->vote) == HEARTH_OK)
        status = hearth_request_test(sync->vote); /* perhaps in the last moment */
    if (status == HEARTH_CANCELLED)
        error_set(why, HEARTH_TIMEOUT, RANK_NONE, "timed out: not all members have ended the step in time");
    else if (status != HEARTH_OK)
        *why = *error_last();
    request_drop(&sync->vote);
    return status;
}

/* Nobody can commit what we do not vote for; whatever else becomes of it, the next group decides. */
static void doubt(hearth_sync *sync, const struct error *why)
{
    struct error changed = *why;
    if (why->status != HEARTH_VIEW_CHANGED)
        node_view_changed(sync->node, "a member of the group does not know whether a step was committed");
    changed.status = HEARTH_VIEW_CHANGED;
    error_wrap(&changed, &changed, "others may have committed the step: %s", why->text);
    mutex_lock(&sync->lock);
    sync->stage = STAGE_DOUBT;
    sync_failure(sync, NULL, &changed);
    mutex_unlock(&sync->lock);
}

void sync_vote_finish(hearth_sync *sync, uint64_t deadline_ns)
{
    struct error why;
    mutex_lock(&sync->lock);
    bool start = !sync->voted; /* there is no bucket */
    sync->voted = true;
    mutex_unlock(&sync->lock);
    if (start)
        vote_start(sync);
    if (!sync->vote)
        return;
    int status = vote_hear(sync, deadline_ns, &why);
    if (status != HEARTH_OK && sync->stage == STAGE_PREPARED) {
        doubt(sync, &why);
        return;
    }
    mutex_lock(&sync->lock);
    if (status == HEARTH_OK)
        ballots_check(sync);
    else
        sync_failure(sync, NULL, &why);
    mutex_unlock(&sync->lock);
}

void sync_vote_drop(hearth_sync *sync, bool owed)
{
    struct error why;
    error_set(&why, HEARTH_ABORTED, hearth_group_rank(sync->group), "sync: the step was given up");
    if (owed && sync->formed)
        node_refuse(sync->group, sync_tag_of(sync, TAG_VOTE), &why);
    if (!sync->vote)
        return;
    int status = vote_hear(sync, 0, &why);
    if (status != HEARTH_OK && sync->stage == STAGE_PREPARED)
        doubt(sync, &why);
    mutex_lock(&sync->lock);
    if (status == HEARTH_OK)
        ballots_check(sync);
    if (sync->stage == STAGE_PREPARED)
        sync_commit(sync);
    mutex_unlock(&sync->lock);
}

/* ---- how a step ends ---- */

int sync_commit_write(hearth_sync *sync, struct error *error)
{
    for (uint32_t i = 0; i < sync->bucket_count; i++)
        if (sync_write(sync, &sync->buckets[i], error) != HEARTH_OK) {
            sync->stage = STAGE_COMMITTED;
            sync->taken = true; /* by the others: if our result is given up, the step counts all the same */
            return error->status;
        }
    sync_commit(sync);
    return HEARTH_OK;
}

void sync_commit(hearth_sync *sync)
{
    sync->lineage = sync_lineage(sync->lineage, sync->steps, sync->attempt);
    sync->steps++;
    sync->stage = STAGE_OPEN;
    sync_reopen(sync, TENSOR_IDLE);
}

void sync_abort(hearth_sync *sync)
{
    for (uint32_t i = 0; i < sync->bucket_count; i++) {
        const struct sync_bucket *b = &sync->buckets[i];
        if (b->progress == BUCKET_DONE && !b->plan.fused) /* false: reset or loaded meanwhile, and stays so */
            (void)compressor_undo(sync->compressor, sync->tensors[b->plan.first].name);
    }
    sync->stage = STAGE_OPEN;
    sync_reopen(sync, TENSOR_AGAIN);
}

void sync_give_up(hearth_sync *sync)
{
    if (sync->taken) {
        sync_commit(sync); /* what we gave is in the others' model */
        return;
    }
    sync_abort(sync);
    sync_reopen(sync, TENSOR_IDLE);
}
