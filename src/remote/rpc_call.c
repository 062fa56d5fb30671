/* SPDX-License-Identifier: Apache-2.0 */
/* The side that calls: a request is sent, a receive is posted for its reply, and the call has ended when both
 * have. All state changes with the baton, in hooks of the two. */
#include <string.h>

#include "core/sized.h"
#include "node/call.h"
#include "remote/rpc.h"

struct rpc_call {
    struct completion send, reply;
    bool sending, awaiting; /* they have not ended */
    hearth_request *request;
    hearth_node *node;
    uint64_t group, id;
    int to;
    uint64_t timeout_ms;
    struct error error; /* status HEARTH_OK: a reply came */
    struct hearth_message *message;
    struct hearth_message **out;
    struct hearth_iovec parts[2];
    struct rpc_head head;
    uint8_t bytes[RPC_HEAD_MAX];
};

/* What call_start needs beyond the call. */
struct rpc_begin {
    struct rpc_call *call;
    size_t len;
    enum hearth_priority priority;
    uint64_t now_ns, deadline_ns;
};

/* ---- the end ---- */

static void tell_cancelled(struct rpc_call *call)
{
    struct group *group = engine_group(call->node->engine, call->group);
    struct message_send send = {
        .channel = CHANNEL_CANCEL, .to = call->to, .tag = call->id, .deadline_ns = NEVER_NS};
    struct error ignored;
    if (group)
        (void)!group_message_send(group, &send, NULL, &ignored);
}

static void settle(struct rpc_call *call)
{
    int status = call->error.status;
    if (call->sending || call->awaiting)
        return;
    if (call->error.fate == HEARTH_FATE_UNKNOWN && (status == HEARTH_TIMEOUT || status == HEARTH_CANCELLED))
        tell_cancelled(call);
    call->request->cancel = NULL;
    engine_finish(call->node->engine, &call->request->completion, &call->error);
}

/* The first failure counts; the send says what became of the request. */
static void fail(struct rpc_call *call, const struct error *why)
{
    if (call->error.status != HEARTH_OK)
        return;
    call->error = *why;
    call->error.fate = call->sending ? HEARTH_FATE_NOT_DELIVERED : HEARTH_FATE_UNKNOWN;
    completion_cancel(&call->reply);
    if (call->sending)
        completion_cancel(&call->send);
}

static void send_ended(struct completion *completion)
{
    struct rpc_call *call = container_of(completion, struct rpc_call, send);
    bool failed = completion->error.status != HEARTH_OK;
    call->sending = false;
    if (failed && !call->message)
        fail(call, &completion->error);
    if (call->error.status != HEARTH_OK)
        call->error.fate = failed ? completion->error.fate : HEARTH_FATE_UNKNOWN;
    settle(call);
}

static void reply_ended(struct completion *completion)
{
    struct rpc_call *call = container_of(completion, struct rpc_call, reply);
    call->awaiting = false;
    if (completion->error.status != HEARTH_OK)
        fail(call, &completion->error);
    else if (call->sending) /* it was refused in the middle */
        completion_cancel(&call->send);
    settle(call);
}

static void call_cancel(void *arg)
{
    struct rpc_call *call = arg;
    struct error why;
    error_set(&why, HEARTH_CANCELLED, call->to, "cancelled");
    fail(call, &why);
}

/* ---- the outcome ---- */

static const char *fate_text(enum hearth_fate fate)
{
    return fate == HEARTH_FATE_NOT_DELIVERED ? "; it did not run"
           : fate == HEARTH_FATE_UNKNOWN     ? "; it may have run"
                                             : "";
}

/* As the reply says. */
static void read_reply(struct rpc_call *call, struct error *error)
{
    struct rpc_outcome outcome;
    struct hearth_message *m = call->message;
    if (rpc_outcome_decode(&outcome, m->data, m->len) != HEARTH_OK) {
        error_set(error, HEARTH_PROTOCOL, call->to, "its reply is malformed");
        error->fate = HEARTH_FATE_UNKNOWN;
        return;
    }
    if (outcome.status == HEARTH_OK) {
        m->len -= RPC_REPLY_HEAD;
        m->data = m->len > 0 ? (uint8_t *)m->data + RPC_REPLY_HEAD : NULL;
        m->tag = 0;
        *call->out = m;
        call->message = NULL;
        return;
    }
    error_set(error, outcome.status, call->to, "%s",
              outcome.text[0] != '\0' ? outcome.text : hearth_status_text(outcome.status));
    error->fate = outcome.fate;
    if (outcome.status == HEARTH_PEER_LOST) { /* in the words of this group */
        error->status = call->node->loss;
        error->reason = HEARTH_REASON_PEER_LEFT;
    }
}

/* Also if it did not begin. */
static void call_finish(void *arg, struct error *error)
{
    struct rpc_call *call = arg;
    if (error->status == HEARTH_OK)
        read_reply(call, error);
    else if (error->status == HEARTH_TIMEOUT)
        error_wrap(error, error, "timed out after %llu ms", (unsigned long long)call->timeout_ms);
    if (error->status != HEARTH_OK) {
        struct error why = *error;
        error_wrap(error, &why, "call of \"%s\" at rank %d: %.180s%s", call->head.name, call->to, why.text,
                   fate_text(why.fate));
        error->rank = why.rank != RANK_NONE ? why.rank : call->to;
    }
    heap_free(call->message);
    heap_free(call);
}

/* ---- the beginning ---- */

static int call_begin(struct group *group, const void *what, struct completion *completion,
                      struct error *error)
{
    const struct rpc_begin *b = what;
    struct rpc_call *call = b->call;
    call->id = ++call->node->call_id;
    struct message_recv recv = {.channel = CHANNEL_REPLY,
                                .from = call->to,
                                .tag = call->id,
                                .message = &call->message,
                                .now_ns = b->now_ns,
                                .deadline_ns = b->deadline_ns};
    struct message_send send = {.channel = CHANNEL_CALL,
                                .to = call->to,
                                .tag = call->id,
                                .parts = call->parts,
                                .count = 2,
                                .len = b->len,
                                .priority = b->priority,
                                .now_ns = b->now_ns,
                                .deadline_ns = NEVER_NS};
    int status = group_message_recv(group, &recv, &call->reply, error);
    if (status != HEARTH_OK) {
        error->fate = HEARTH_FATE_NOT_DELIVERED;
        return status;
    }
    status = group_message_send(group, &send, &call->send, error);
    if (status != HEARTH_OK) {
        completion_cancel(&call->reply);
        list_remove(&call->reply.item);
        return status;
    }
    call->reply.hook = reply_ended;
    call->send.hook = send_ended;
    call->sending = call->awaiting = true;
    call->request = container_of(completion, hearth_request, completion);
    call->request->cancel = call_cancel;
    call->request->cancel_arg = call;
    list_init(&completion->item);
    return HEARTH_OK;
}

static int opts_read(hearth_group *group, const struct hearth_opts *given, struct hearth_opts *opts)
{
    int status = call_opts_read("rpc_call", given, opts);
    if (status == HEARTH_OK && opts->codec && strcmp(opts->codec, "none") != 0)
        status = error_call("rpc_call", HEARTH_UNSUPPORTED, "opts.codec: remote calls have no codec");
    if (status == HEARTH_OK && opts->timeout_ms == -1)
        opts->timeout_ms = group->node->config.op_timeout_ms;
    return status;
}

struct rpc_args {
    hearth_group *group;
    int to;
    const char *name;
    const void *request;
    size_t len;
    struct hearth_message **reply;
};

static int args_check(const struct rpc_args *a)
{
    static const char *const what = "rpc_call";
    if (!a->group || !a->name || !a->reply)
        return error_call(what, HEARTH_INVALID, "%s is NULL",
                          !a->group  ? "group"
                          : !a->name ? "name"
                                     : "reply");
    if (node_forked(a->group->node))
        return error_call(what, HEARTH_FORKED, "%s", hearth_status_text(HEARTH_FORKED));
    if (a->to < 0 || a->to >= group_size(a->group->group))
        return error_call(what, HEARTH_INVALID, "rank is %d; the group has ranks 0 to %d", a->to,
                          group_size(a->group->group) - 1);
    if (!rpc_name_good(a->name))
        return error_call(what, HEARTH_INVALID,
                          "name is \"%.70s\"; it takes 1 to %d characters of printable ASCII", a->name,
                          RPC_NAME_MAX);
    if (!a->request && a->len > 0)
        return error_call(what, HEARTH_INVALID, "request is NULL, but len is %zu", a->len);
    if (a->len > INT64_MAX - RPC_HEAD_MAX)
        return error_call(what, HEARTH_INVALID, "len is 2^63 or more");
    return HEARTH_OK;
}

static struct rpc_call *call_make(const struct rpc_args *a, const struct hearth_opts *opts)
{
    hearth_node *node = a->group->node;
    struct rpc_call *call = heap_alloc(node->heap, 1, sizeof *call);
    if (!call)
        return NULL;
    call->node = node;
    call->group = group_view(a->group->group)->group;
    call->to = a->to;
    call->out = a->reply;
    call->timeout_ms = (uint64_t)opts->timeout_ms;
    call->head.left_ms = call->timeout_ms < RPC_FOREVER_MS ? (uint32_t)call->timeout_ms : RPC_FOREVER_MS;
    memcpy(call->head.name, a->name, strlen(a->name));
    error_clear(&call->error);
    call->parts[0] = (struct hearth_iovec){call->bytes, rpc_head_encode(&call->head, call->bytes)};
    call->parts[1] = (struct hearth_iovec){(void *)(uintptr_t)a->request, a->len};
    return call;
}

/* `out` NULL: waits for the end. */
static int make_call(const struct rpc_args *a, const struct hearth_opts *given, hearth_request **out)
{
    struct hearth_opts opts;
    int status = args_check(a);
    if (status == HEARTH_OK)
        status = opts_read(a->group, given, &opts);
    if (status != HEARTH_OK)
        return status;
    struct rpc_call *call = call_make(a, &opts);
    if (!call)
        return error_call("rpc_call", HEARTH_NO_MEMORY, "%s", hearth_status_text(HEARTH_NO_MEMORY));
    struct rpc_begin what = {.call = call,
                             .len = call->parts[0].len + a->len,
                             .priority = opts.priority,
                             .now_ns = node_now(call->node)};
    what.deadline_ns = what.now_ns + call->timeout_ms * NS_PER_MS;
    struct node_begin begin = {.name = "rpc_call",
                               .start = call_begin,
                               .what = &what,
                               .alone = true,
                               .done = opts.done,
                               .done_arg = opts.done_arg,
                               .finish = call_finish,
                               .finish_arg = call};
    hearth_request *request;
    if (out)
        return node_begin(a->group, &begin, CALLER_GOES, out, error_last());
    status = node_begin(a->group, &begin, CALLER_WAITS, &request, error_last());
    if (status != HEARTH_OK)
        return status;
    status = node_wait(request, NEVER_NS); /* the call has its own deadline */
    if (status != HEARTH_OK)
        *error_last() = request->completion.error;
    node_release(request);
    return status;
}

int hearth_rpc_call(hearth_group *group, int to, const char *name, const void *request, size_t len,
                    const struct hearth_opts *opts, struct hearth_message **reply)
{
    return make_call(&(struct rpc_args){group, to, name, request, len, reply}, opts, NULL);
}

int hearth_rpc_call_nb(hearth_group *group, int to, const char *name, const void *request, size_t len,
                       const struct hearth_opts *opts, struct hearth_message **reply,
                       hearth_request **pending)
{
    if (!pending)
        return error_call("rpc_call", HEARTH_INVALID, "pending is NULL");
    return make_call(&(struct rpc_args){group, to, name, request, len, reply}, opts, pending);
}
