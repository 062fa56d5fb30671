/* SPDX-License-Identifier: Apache-2.0 */
/* What a handler may do with a call. */
#include <stdio.h>
#include <string.h>

#include "remote/rpc.h"

static int rpc_check(const hearth_rpc *rpc, const char *what)
{
    return rpc ? HEARTH_OK : error_call(what, HEARTH_INVALID, "rpc is NULL");
}

int hearth_rpc_reply(hearth_rpc *rpc, const void *reply, size_t len)
{
    struct rpc_outcome outcome = {.status = HEARTH_OK};
    int status = rpc_check(rpc, "rpc_reply");
    if (status == HEARTH_OK && !reply && len > 0)
        status = error_call("rpc_reply", HEARTH_INVALID, "reply is NULL, but len is %zu", len);
    if (status != HEARTH_OK)
        return status;
    size_t most = rpc->handler->limits.reply_max;
    mutex_lock(&rpc->server->lock);
    if (len <= most)
        return rpc_answer(rpc, &outcome, reply, len);
    outcome = (struct rpc_outcome){.status = HEARTH_TOO_LONG, .fate = HEARTH_FATE_DELIVERED};
    int text_len =
        snprintf(outcome.text, sizeof outcome.text,
                 "the call has run, but its reply has %zu bytes; the handler may reply %zu", len, most);
    status = rpc_answer(rpc, &outcome, outcome.text, (size_t)text_len);
    if (status != HEARTH_OK)
        return status;
    return error_call("rpc_reply", HEARTH_TOO_LONG, "the reply has %zu bytes; limits.reply_max is %zu", len,
                      most);
}

int hearth_rpc_fail(hearth_rpc *rpc, const char *text)
{
    struct rpc_outcome outcome = {.status = HEARTH_CALL_FAILED, .fate = HEARTH_FATE_DELIVERED};
    int status = rpc_check(rpc, "rpc_fail");
    if (status != HEARTH_OK)
        return status;
    rpc_text_copy(outcome.text, text && text[0] != '\0' ? text : "the handler gave no reason");
    mutex_lock(&rpc->server->lock);
    return rpc_answer(rpc, &outcome, outcome.text, strlen(outcome.text));
}

int hearth_rpc_rank(const hearth_rpc *rpc)
{
    return rpc ? rpc->rank : RANK_NONE;
}

/* The node of the call, which stays open until node_leave; NULL: it has closed. */
static hearth_node *node_enter(const hearth_rpc *rpc, bool *cancelled)
{
    mutex_lock(&rpc->server->lock);
    hearth_node *node = rpc->node;
    *cancelled = rpc->cancelled;
    if (node)
        atomic_fetch_add(&node->answers, 1);
    mutex_unlock(&rpc->server->lock);
    return node;
}

static void node_leave(hearth_node *node)
{
    atomic_fetch_sub(&node->answers, 1);
}

static bool has_id(const hearth_group *group, uint64_t id)
{
    return !group->outer && group_view(group->group)->group == id;
}

hearth_group *hearth_rpc_group(const hearth_rpc *rpc)
{
    bool cancelled;
    hearth_node *node = rpc ? node_enter(rpc, &cancelled) : NULL;
    hearth_group *found = NULL;
    struct list *item, *after;
    if (!node)
        return NULL;
    mutex_lock(&node->baton);
    if (has_id(&node->world, rpc->group))
        found = &node->world;
    LIST_EACH (item, after, &node->groups) {
        hearth_group *group = container_of(item, hearth_group, item);
        if (!found && has_id(group, rpc->group))
            found = group;
    }
    mutex_unlock(&node->baton);
    node_leave(node);
    return found;
}

int64_t hearth_rpc_time_left(const hearth_rpc *rpc)
{
    bool cancelled;
    hearth_node *node = rpc ? node_enter(rpc, &cancelled) : NULL;
    if (!node)
        return 0;
    mutex_lock(&node->baton);
    const struct group *group = engine_group(node->engine, rpc->group);
    bool there = group && group_reaches(group, rpc->rank);
    mutex_unlock(&node->baton);
    node_leave(node);
    uint64_t now = clock_now(&rpc->server->clock);
    if (!there || cancelled || now >= rpc->deadline_ns)
        return 0;
    uint64_t left = (rpc->deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS;
    return left < INT64_MAX ? (int64_t)left : INT64_MAX;
}
