/* SPDX-License-Identifier: Apache-2.0 */
/* Remote calls as they arrive: to the server of the node, if a handler was ever registered. */
#include "node/node.h"

/* Without a server, "no such call" is a reply without bytes. The server is above this room, and may come to
 * be while calls arrive. */
static void answer_nothing(const struct message_group *group, const struct hearth_message *message)
{
    struct error ignored;
    struct message_send send = {
        .channel = CHANNEL_REPLY, .to = message->rank, .tag = message->tag, .deadline_ns = NEVER_NS};
    (void)!group_message_send(group_of_messages(group), &send, NULL, &ignored);
}

static int call_wants(void *arg, const struct message_group *group, size_t len, struct error *why)
{
    hearth_node *node = arg;
    size_t most = atomic_load(&node->outer->call_max);
    if (len <= MESSAGE_INLINE_ALONE || len <= most)
        return HEARTH_OK;
    if (!atomic_load(&node->outer->server))
        return error_set(why, HEARTH_NO_SUCH_CALL, group->rank, "no handler is registered there");
    return error_set(why, HEARTH_TOO_LONG, group->rank, "no handler there takes a request that long");
}

static void call_take(void *arg, const struct message_group *group, struct hearth_message *message)
{
    hearth_node *node = arg;
    struct node_server *server = atomic_load(&node->outer->server);
    if (server) {
        server->take(server, node, CHANNEL_CALL, group, message);
        return;
    }
    answer_nothing(group, message);
    heap_free(message);
}

static int cancel_wants(void *arg, const struct message_group *group, size_t len, struct error *why)
{
    (void)arg;
    return len == 0 ? HEARTH_OK
                    : error_set(why, HEARTH_PROTOCOL, group->rank, "the cancel of a call has %zu bytes", len);
}

static void cancel_take(void *arg, const struct message_group *group, struct hearth_message *message)
{
    hearth_node *node = arg;
    struct node_server *server = atomic_load(&node->outer->server);
    if (server)
        server->take(server, node, CHANNEL_CANCEL, group, message);
    else
        heap_free(message);
}

/* A reply for which no receive is posted is late: its call has ended. */
static int reply_wants(void *arg, const struct message_group *group, size_t len, struct error *why)
{
    (void)arg, (void)len;
    return error_because(why, HEARTH_REASON_CANCELLED, HEARTH_ABORTED, group->rank,
                         "the call has ended there before its reply came");
}

static void reply_take(void *arg, const struct message_group *group, struct hearth_message *message)
{
    (void)arg, (void)group;
    heap_free(message);
}

void node_set_sinks(hearth_node *node)
{
    struct message_sink calls = {.arg = node, .wants = call_wants, .take = call_take};
    struct message_sink replies = {.arg = node, .wants = reply_wants, .take = reply_take};
    struct message_sink cancels = {.arg = node, .wants = cancel_wants, .take = cancel_take};
    engine_set_sink(node->engine, CHANNEL_CALL, &calls);
    engine_set_sink(node->engine, CHANNEL_REPLY, &replies);
    engine_set_sink(node->engine, CHANNEL_CANCEL, &cancels);
}
