/* SPDX-License-Identifier: Apache-2.0 */
/* hearth_group_adapt: a formed group adopts a ring order from newer measures.
 *
 *   record  rank 0 asks its cluster for the best ring order of the members, and broadcasts it
 *   vote    each member says whether it can adopt it: all do, or none
 *
 * All members need the same plans, so a member that voted yes and gets no result cannot go on: its group ends
 * with HEARTH_VIEW_CHANGED, as if a member were lost, and is formed again. */
#include "node/adapt.h"

#include <stdio.h>
#include <string.h>

#include "core/derived_id.h"
#include "core/text_buf.h"
#include "node/call.h"
#include "node/cluster_groups.h"
#include "node/copier.h"
#include "node/path_costs.h"

enum adapt_tag { TAG_RECORD, TAG_VOTE };

enum adapt_vote { VOTE_GOOD, VOTE_BUSY, VOTE_WRONG, VOTE_FAILED, VOTES };

static bool in_flight(hearth_group *group)
{
    mutex_lock(&group->node->baton);
    bool busy = group_busy(group->group);
    mutex_unlock(&group->node->baton);
    return busy;
}

static uint64_t adapt_tag(hearth_group *group, enum adapt_tag what)
{
    return derived_id(ID_ADAPT_TAG, group_view(group->group)->group, (uint64_t)what, 0);
}

/* ---- the record ---- */

static enum adapt_vote take_record(hearth_group *group, const struct ring_order *wanted, int64_t timeout_ms,
                                   struct ring_order *out, struct error *error)
{
    static const struct ring_order nothing_new = {.size = 0};
    uint8_t record[RING_ORDER_LEN] = {0};
    struct hearth_opts opts;
    struct call call = {.kind = PLAN_BROADCAST,
                        .source = record,
                        .target = record,
                        .count = sizeof record,
                        .dtype = HEARTH_U8};
    bool busy = in_flight(group); /* take part and vote no, so that the others do not wait */
    hearth_opts_init(&opts);
    opts.tag = adapt_tag(group, TAG_RECORD);
    opts.memory = &memory_host;
    opts.timeout_ms = timeout_ms;
    if (hearth_group_rank(group) == 0)
        ring_order_encode(wanted && !busy ? wanted : &nothing_new, record);
    if (call_run(group, &call, &opts) != HEARTH_OK) {
        *error = *error_last();
        return VOTE_FAILED;
    }
    if (busy) {
        error_set(error, HEARTH_INVALID, hearth_group_rank(group),
                  "adapt: operations of this group are in flight here: wait for them first");
        return VOTE_BUSY;
    }
    if (ring_order_decode(out, record, hearth_group_size(group)) == HEARTH_OK)
        return VOTE_GOOD;
    error_set(error, HEARTH_PROTOCOL, 0, "adapt: rank 0 sent a ring order that does not match %d members",
              hearth_group_size(group));
    return VOTE_WRONG;
}

/* ---- the vote ---- */

static int judge(const uint8_t *votes, int size, struct error *error)
{
    static const char *const why[VOTES] = {
        [VOTE_BUSY] = "has operations of this group in flight",
        [VOTE_WRONG] = "could not read the ring order of rank 0",
        [VOTE_FAILED] = "did not receive it",
    };
    for (int i = 0; i < size; i++)
        if (votes[i] != VOTE_GOOD)
            return error_set(error, HEARTH_ABORTED, i, "adapt: rank %d %s; nothing has changed", i,
                             votes[i] < VOTES ? why[votes[i]] : "voted against it");
    return HEARTH_OK;
}

/* This member voted yes, and does not know the result. */
static int leave_group(hearth_group *group, const char *what, struct error *error)
{
    struct error why;
    error_set(&why, HEARTH_VIEW_CHANGED, RANK_NONE, "adapt: members may use different ring orders: %s", what);
    node_view_changed(group->node, why.text);
    *error = why;
    return error->status;
}

static int cast_vote(hearth_group *group, enum adapt_vote vote, int64_t timeout_ms, struct error *error)
{
    uint8_t own = (uint8_t)vote, votes[VIEW_MEMBERS_MAX];
    struct hearth_opts opts;
    struct call call = {
        .kind = PLAN_ALL_GATHER, .source = &own, .target = votes, .count = 1, .dtype = HEARTH_U8};
    hearth_opts_init(&opts);
    opts.tag = adapt_tag(group, TAG_VOTE);
    opts.memory = &memory_host;
    opts.timeout_ms = timeout_ms;
    int status = call_run(group, &call, &opts);
    if (vote != VOTE_GOOD) /* so no member adopts it */
        return error->status;
    if (status != HEARTH_OK)
        return leave_group(group, error_last()->text, error);
    return judge(votes, hearth_group_size(group), error);
}

int adapt_together(hearth_group *group, const struct ring_order *wanted, int64_t timeout_ms,
                   struct ring_order *adopted, struct error *error)
{
    enum adapt_vote vote = take_record(group, wanted, timeout_ms, adopted, error);
    int status = cast_vote(group, vote, timeout_ms, error);
    if (status == HEARTH_OK && adopted->size > 0 && !path_costs_adopt(group, adopted))
        status = leave_group(group, "another thread used the group meanwhile", error);
    return status;
}

/* ---- asking the cluster ---- */

/* By place in a ring. */
static void order_now(const hearth_group *group, int *order)
{
    const int *own = group_view(group->group)->order;
    for (int i = 0; i < hearth_group_size(group); i++)
        order[i] = own ? own[i] : i;
}

static bool ask_cluster(const hearth_group *group, struct ring_order *out)
{
    const struct cluster_group *f = group->node->cluster_group;
    struct identity members[VIEW_MEMBERS_MAX];
    int now[VIEW_MEMBERS_MAX], size = hearth_group_size(group);
    for (int i = 0; i < size; i++)
        members[i] = f->spec.members[group_member(group->group, i)];
    order_now(group, now);
    return cluster_arrange(f->cluster_groups->cluster, members, size, now, out);
}

static void put_order(struct text_buf *buf, const int *order, int size)
{
    for (int i = 0; i < size; i++)
        text_buf_print(buf, "%s%d", i > 0 ? " " : "", order[i]);
}

static void tell(const hearth_group *group, const int *before, const struct ring_order *a)
{
    char old[256], new[256];
    struct text_buf was = text_buf_of(old, sizeof old), is = text_buf_of(new, sizeof new);
    struct log log = node_log(group->node);
    int now[VIEW_MEMBERS_MAX];
    order_now(group, now);
    if (memcmp(before, now, (size_t)a->size * sizeof *now) == 0)
        return;
    put_order(&was, before, a->size);
    put_order(&is, now, a->size);
    log_write(&log, HEARTH_LOG_INFO, "HEARTH-ADAPTED",
              "ring order of \"%s\" is now %s instead of %s; sites: %d, slowest path %.1f Mbit/s",
              group->node->cluster_group->spec.job, new, old, a->sites,
              (a->sites > 1 ? a->across_mbit_x10 : a->inside_mbit_x10) / 10.0);
}

int hearth_group_adapt(hearth_group *group, const struct hearth_opts *given)
{
    struct hearth_opts opts;
    struct error why;
    struct ring_order wanted, adopted;
    int before[VIEW_MEMBERS_MAX];
    if (!group)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "adapt: group is NULL");
    if (node_forked(group->node))
        return error_set(error_last(), HEARTH_FORKED, RANK_NONE, "adapt: %s",
                         hearth_status_text(HEARTH_FORKED));
    int status = call_opts_read("adapt", given, &opts);
    if (status != HEARTH_OK)
        return status;
    struct cluster_group *f = group->node->cluster_group;
    if (!f || hearth_group_size(group) == 1)
        return HEARTH_OK;
    bool asks = hearth_group_rank(group) == 0 && ask_cluster(group, &wanted);
    order_now(group, before);
    status = adapt_together(group, asks ? &wanted : NULL, opts.timeout_ms, &adopted, &why);
    if (status != HEARTH_OK) {
        *error_last() = why;
        return status;
    }
    if (adopted.size > 0) {
        tell(group, before, &adopted);
        cluster_groups_arranged(f, group, &adopted);
    }
    return HEARTH_OK;
}
