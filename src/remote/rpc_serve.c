/* SPDX-License-Identifier: Apache-2.0 */
/* The side that answers: handlers, calls that wait for them, replies.
 *
 *   waiting (in its handler) -> open (its handler runs, or it will be answered later) -> answered
 *
 * The lock of the server is taken with or without the baton of a node, never the other way round. */
#include <stdio.h>
#include <string.h>

#include "core/sized.h"
#include "os/sock.h"
#include "remote/rpc.h"

#define DRAIN_NS (2 * NS_PER_S)   /* for replies to leave a node that closes */
#define SHORT_NS (20 * NS_PER_US) /* a handler that usually takes no longer: replies leave together */

/* ---- replies ---- */

/* A reply on its way. */
struct rpc_reply {
    struct completion completion;
    hearth_node *node;
    uint8_t bytes[]; /* head, body */
};

static void reply_left(struct completion *completion)
{
    struct rpc_reply *reply = container_of(completion, struct rpc_reply, completion);
    reply->node->replies--;
    heap_free(reply);
}

static struct rpc_reply *reply_make(hearth_node *node, const struct rpc_outcome *outcome, const void *body,
                                    size_t len)
{
    struct rpc_reply *reply = heap_alloc_raw(node->heap, 1, sizeof *reply + RPC_REPLY_HEAD + len);
    if (!reply)
        return NULL;
    reply->node = node;
    rpc_outcome_encode(outcome, reply->bytes);
    if (len > 0)
        memcpy(reply->bytes + RPC_REPLY_HEAD, body, len);
    return reply;
}

/* With the baton; takes the reply. */
static int reply_send(struct rpc_reply *reply, struct group *group, const struct message_send *send,
                      struct error *error)
{
    int status = group_message_send(group, send, &reply->completion, error);
    if (status != HEARTH_OK) {
        heap_free(reply);
        return status;
    }
    reply->completion.hook = reply_left;
    reply->node->replies++;
    return HEARTH_OK;
}

/* With the baton: a call that does not run. */
static void refuse(hearth_node *node, struct group *group, const struct hearth_message *call, int status,
                   const char *text)
{
    struct rpc_outcome outcome = {.status = status, .fate = HEARTH_FATE_NOT_DELIVERED};
    struct error ignored;
    size_t len = strlen(text);
    struct rpc_reply *reply = reply_make(node, &outcome, text, len);
    if (!reply)
        return; /* the caller's deadline ends it */
    struct message_send send = {.channel = CHANNEL_REPLY,
                                .to = call->rank,
                                .tag = call->tag,
                                .data = reply->bytes,
                                .len = RPC_REPLY_HEAD + len,
                                .deadline_ns = NEVER_NS};
    (void)!reply_send(reply, group, &send, &ignored);
}

/* ---- handlers ---- */

static struct rpc_handler *handler_find(struct rpc_server *s, const char *name)
{
    struct list *item, *after;
    LIST_EACH (item, after, &s->handlers) {
        struct rpc_handler *h = container_of(item, struct rpc_handler, item);
        if (strcmp(h->name, name) == 0)
            return h;
    }
    return NULL;
}

void rpc_handler_check(struct rpc_handler *h)
{
    if (h->removed && h->waits == 0 && h->open == 0 && h->active == 0) {
        heap_free(h);
    }
}

static void handler_ready(struct rpc_server *s, struct rpc_handler *h)
{
    list_remove(&h->ready);
    if (h->waits == 0 || h->open >= h->limits.running)
        return;
    list_push(&s->ready, &h->ready);
    atomic_store(&s->attention, true);
}

struct hearth_rpc *rpc_next(struct rpc_server *s)
{
    if (list_empty(&s->ready))
        return NULL;
    struct rpc_handler *h = container_of(s->ready.next, struct rpc_handler, ready);
    struct hearth_rpc *rpc = container_of(list_pop(&h->waiting), struct hearth_rpc, item);
    h->waits--;
    s->waits--;
    h->open++;
    list_push(&s->open, &rpc->item);
    handler_ready(s, h);
    return rpc;
}

/* ---- calls arrive ---- */

/* With the lock: why the call cannot be taken. */
static int refusal_of(const struct rpc_handler *h, size_t len, char text[static RPC_TEXT_MAX + 1])
{
    text[0] = '\0';
    if (!h)
        return HEARTH_NO_SUCH_CALL;
    const struct hearth_rpc_limits *l = &h->limits;
    if (len > l->request_max) {
        snprintf(text, RPC_TEXT_MAX + 1, "the request has %zu bytes; the handler takes at most %zu", len,
                 l->request_max);
        return HEARTH_TOO_LONG;
    }
    uint32_t places = h->open < l->running ? l->running - h->open : 0;
    if (h->waits >= (uint64_t)places + l->waiting) {
        snprintf(text, RPC_TEXT_MAX + 1,
                 "too many calls in flight: %u run there (limits.running %u) and %u wait (limits.waiting %u)",
                 h->open, l->running, h->waits, l->waiting);
        return HEARTH_BUSY;
    }
    return HEARTH_OK;
}

static uint64_t deadline_of(const struct rpc_server *s, uint32_t left_ms)
{
    return left_ms == RPC_FOREVER_MS ? NEVER_NS : clock_now(&s->clock) + left_ms * NS_PER_MS;
}

/* With the lock: queued, or why not. */
static int call_queue(struct rpc_server *s, const struct hearth_rpc *call, const char *name,
                      char text[static RPC_TEXT_MAX + 1])
{
    struct rpc_handler *h = handler_find(s, name);
    int status = refusal_of(h, call->len, text);
    struct hearth_rpc *rpc = status == HEARTH_OK ? heap_alloc_raw(s->heap, 1, sizeof *rpc) : NULL;
    if (status != HEARTH_OK)
        return status;
    if (!rpc) {
        snprintf(text, RPC_TEXT_MAX + 1, "out of memory there");
        return HEARTH_NO_MEMORY;
    }
    *rpc = *call;
    rpc->handler = h;
    list_push(&h->waiting, &rpc->item);
    h->waits++;
    s->waits++;
    s->open_count++;
    handler_ready(s, h);
    rpc_wake(s);
    return HEARTH_OK;
}

static void call_come(struct rpc_server *s, hearth_node *node, const struct message_group *group,
                      struct hearth_message *message)
{
    struct rpc_head head;
    size_t body = 0;
    char text[RPC_TEXT_MAX + 1] = "";
    int status = rpc_head_decode(&head, message->data, message->len, &body);
    if (status != HEARTH_OK)
        snprintf(text, sizeof text, "%s",
                 status == HEARTH_PROTOCOL ? "the call is malformed" : "the call is of a later version");
    if (status == HEARTH_OK) {
        struct hearth_rpc call = {.server = s,
                                  .node = node,
                                  .group = group->id,
                                  .id = message->tag,
                                  .rank = message->rank,
                                  .deadline_ns = deadline_of(s, head.left_ms),
                                  .message = message,
                                  .request = (const uint8_t *)message->data + body,
                                  .len = message->len - body};
        mutex_lock(&s->lock);
        if (s->stopping) {
            status = HEARTH_PEER_LOST;
            snprintf(text, sizeof text, "its node is closing");
        } else {
            status = call_queue(s, &call, head.name, text);
        }
        mutex_unlock(&s->lock);
    }
    if (status == HEARTH_OK)
        return;
    refuse(node, group_of_messages(group), message, status, text);
    heap_free(message);
}

/* ---- calls are cancelled ---- */

static struct hearth_rpc *call_find(struct list *list, const struct hearth_rpc *wanted)
{
    struct list *item, *after;
    LIST_EACH (item, after, list) {
        struct hearth_rpc *rpc = container_of(item, struct hearth_rpc, item);
        if (rpc->id == wanted->id && rpc->rank == wanted->rank && rpc->group == wanted->group &&
            rpc->node == wanted->node)
            return rpc;
    }
    return NULL;
}

/* With the lock: a call that was never begun goes. */
static void call_drop(struct rpc_server *s, struct hearth_rpc *rpc)
{
    struct rpc_handler *h = rpc->handler;
    list_remove(&rpc->item);
    h->waits--;
    s->waits--;
    s->open_count--;
    handler_ready(s, h);
    heap_free(rpc->message);
    heap_free(rpc);
    rpc_handler_check(h);
}

static void cancel_come(struct rpc_server *s, const struct hearth_rpc *wanted)
{
    struct list *item, *after;
    mutex_lock(&s->lock);
    struct hearth_rpc *rpc = call_find(&s->open, wanted);
    if (rpc)
        rpc->cancelled = true;
    LIST_EACH (item, after, &s->handlers) {
        if (rpc)
            break;
        rpc = call_find(&container_of(item, struct rpc_handler, item)->waiting, wanted);
        if (rpc)
            call_drop(s, rpc);
    }
    mutex_unlock(&s->lock);
}

static void server_take(struct node_server *server, hearth_node *node, enum message_channel channel,
                        const struct message_group *group, struct hearth_message *message)
{
    struct rpc_server *s = container_of(server, struct rpc_server, server);
    if (channel == CHANNEL_CALL) {
        call_come(s, node, group, message);
        return;
    }
    struct hearth_rpc wanted = {.node = node, .group = group->id, .rank = message->rank, .id = message->tag};
    cancel_come(s, &wanted);
    heap_free(message);
}

/* ---- answering ---- */

static void server_free(struct rpc_server *s)
{
    struct heap *heap = s->heap;
    for (int i = 0; i < HEARTH_RPC_THREADS; i++)
        bell_fini(&s->threads[i].bell);
    bell_fini(&s->quiet);
    mutex_fini(&s->lock);
    heap_free(s);
    heap_close(heap);
}

/* With the lock, which is released: the call is over here. */
static void call_close(struct hearth_rpc *rpc)
{
    struct rpc_server *s = rpc->server;
    struct rpc_handler *h = rpc->handler;
    list_remove(&rpc->item);
    h->open--;
    s->open_count--;
    handler_ready(s, h);
    if (!list_empty(&s->ready))
        rpc_wake(s);
    rpc_handler_check(h);
    bool last = !s->node && s->open_count == 0;
    mutex_unlock(&s->lock);
    heap_free(rpc);
    if (last)
        server_free(s);
}

struct rpc_sending {
    struct rpc_reply *reply;
    struct message_send send;
    uint64_t group;
    bool drives;
    struct error error;
};

static void send_answer(void *arg)
{
    struct rpc_sending *a = arg;
    struct group *group = engine_group(a->reply->node->engine, a->group);
    if (group) {
        (void)!reply_send(a->reply, group, &a->send, &a->error);
        return;
    }
    error_set(&a->error, HEARTH_CANCELLED, RANK_NONE, "the group of the call was closed");
    heap_free(a->reply);
}

/* Without the lock. The node stays open meanwhile: it counts us. */
static int answer_to(hearth_node *node, const struct hearth_rpc *rpc, const struct rpc_outcome *outcome,
                     const void *body, size_t len)
{
    struct rpc_sending a = {
        .reply = reply_make(node, outcome, body, len), .group = rpc->group, .drives = !rpc->led};
    if (!a.reply)
        return error_call("rpc_reply", HEARTH_NO_MEMORY, "no memory for a reply of %zu bytes", len);
    a.send = (struct message_send){.channel = CHANNEL_REPLY,
                                   .to = rpc->rank,
                                   .tag = rpc->id,
                                   .data = a.reply->bytes,
                                   .len = RPC_REPLY_HEAD + len,
                                   .deadline_ns = NEVER_NS};
    error_clear(&a.error);
    node_do(node, send_answer, &a, a.drives);
    return a.error.status == HEARTH_OK ? HEARTH_OK : error_call_because("rpc_reply", &a.error);
}

int rpc_answer(struct hearth_rpc *rpc, const struct rpc_outcome *outcome, const void *reply, size_t len)
{
    struct rpc_server *s = rpc->server;
    struct hearth_rpc copy = *rpc;
    copy.led = rpc->led && !list_empty(&s->ready) && s->usual_ns < SHORT_NS; /* then it drives soon */
    hearth_node *node = rpc->node;
    if (node)
        atomic_fetch_add(&node->answers, 1);
    struct hearth_message *message = rpc->message;
    bool late = rpc->deadline_ns <= clock_now(&s->clock);
    call_close(rpc);
    if (!node)
        return error_call("rpc_reply", HEARTH_CLOSED, "the node has closed since the call came");
    int status;
    if (copy.cancelled)
        status = error_call("rpc_reply", HEARTH_CANCELLED, "rank %d has cancelled the call", copy.rank);
    else if (late && outcome->fate != HEARTH_FATE_NOT_DELIVERED)
        status = error_call("rpc_reply", HEARTH_TIMEOUT, "the deadline of rank %d, the caller, has passed",
                            copy.rank);
    else
        status = answer_to(node, &copy, outcome, reply, len);
    heap_free(message);
    atomic_fetch_sub(&node->answers, 1);
    return status;
}

/* ---- the life of a server ---- */

/* With the lock: calls of the node that wait, or all of a handler, into the list. */
static void calls_take(struct rpc_server *s, struct rpc_handler *h, const hearth_node *node,
                       struct list *taken)
{
    struct list *item, *after;
    LIST_EACH (item, after, &h->waiting) {
        struct hearth_rpc *rpc = container_of(item, struct hearth_rpc, item);
        if (node && rpc->node != node)
            continue;
        list_remove(&rpc->item);
        h->waits--;
        s->waits--;
        h->open++;
        list_push(taken, &rpc->item);
    }
    handler_ready(s, h);
}

/* Without the lock: they will not run. */
static void calls_refuse(struct rpc_server *s, struct list *taken, const struct rpc_outcome *outcome)
{
    struct list *item;
    mutex_lock(&s->lock);
    while ((item = list_pop(taken))) {
        struct hearth_rpc *rpc = container_of(item, struct hearth_rpc, item);
        (void)!rpc_answer(rpc, outcome, outcome->text, strlen(outcome->text));
        mutex_lock(&s->lock);
    }
    mutex_unlock(&s->lock);
}

/* With the lock: calls that will be answered after their node has closed. */
static void calls_part(struct rpc_server *s, const hearth_node *node)
{
    struct list *item, *after;
    LIST_EACH (item, after, &s->open) {
        struct hearth_rpc *rpc = container_of(item, struct hearth_rpc, item);
        if (rpc->node != node)
            continue;
        heap_free(rpc->message);
        rpc->message = NULL;
        rpc->node = NULL;
    }
}

static void end_waits(void *arg)
{
    engine_end_waits(arg);
}

static void nothing(void *arg)
{
    (void)arg;
}

/* Replies leave before the goodbye. */
static void drain(hearth_node *node)
{
    uint64_t deadline = clock_real() + DRAIN_NS;
    for (bool left = true; left && clock_real() < deadline;) {
        mutex_lock(&node->baton);
        left = node->replies > 0;
        mutex_unlock(&node->baton);
        if (!left)
            return;
        if (node->clock.virtual_ns && !node_progress(node))
            return; /* no peer runs meanwhile */
        if (!node->clock.virtual_ns) {
            node_do(node, nothing, NULL, true);
            sock_wait(NULL, 0, clock_real() + NS_PER_MS);
        }
    }
}

static void server_stop(struct node_server *server, hearth_node *node)
{
    struct rpc_server *s = container_of(server, struct rpc_server, server);
    struct rpc_outcome outcome = {.status = HEARTH_PEER_LOST,
                                  .fate = HEARTH_FATE_NOT_DELIVERED,
                                  .text = "its node was closed before the call ran"};
    struct list taken, *item, *after;
    bool whole = node == s->node;
    list_init(&taken);
    mutex_lock(&s->lock);
    s->stopping = s->stopping || whole;
    LIST_EACH (item, after, &s->handlers)
        calls_take(s, container_of(item, struct rpc_handler, item), node, &taken);
    if (s->recent == node)
        s->recent = NULL; /* its leader goes */
    atomic_store(&s->attention, true);
    mutex_unlock(&s->lock);
    calls_refuse(s, &taken, &outcome);
    node_do(node, end_waits, node->engine, true); /* what handlers wait for */
    if (whole)
        rpc_join(s);
    else
        rpc_wait_quiet(s, node, NULL);
    mutex_lock(&s->lock);
    calls_part(s, node);
    mutex_unlock(&s->lock);
    while (atomic_load(&node->answers) > 0)
        thread_yield();
    drain(node);
    if (!whole)
        return;
    mutex_lock(&s->lock);
    while ((item = list_pop(&s->handlers))) {
        struct rpc_handler *h = container_of(item, struct rpc_handler, item);
        h->removed = true;
        rpc_handler_check(h);
    }
    s->node = NULL;
    bool last = s->open_count == 0;
    atomic_store(&node->server, NULL);
    mutex_unlock(&s->lock);
    if (last)
        server_free(s);
}

static bool server_step(struct node_server *server)
{
    struct rpc_server *s = container_of(server, struct rpc_server, server);
    mutex_lock(&s->lock);
    bool ran = rpc_run_next(s, &s->threads[0]);
    mutex_unlock(&s->lock);
    return ran;
}

static uint64_t server_look(struct node_server *server, hearth_node *node)
{
    return rpc_look(container_of(server, struct rpc_server, server), node);
}

static struct rpc_server *server_make(hearth_node *node)
{
    struct heap *heap = heap_open(0);
    struct rpc_server *s = heap ? heap_alloc(heap, 1, sizeof *s) : NULL;
    int bells = 0;
    if (!s) {
        heap_close(heap);
        return NULL;
    }
    s->server = (struct node_server){
        .take = server_take, .stop = server_stop, .step = server_step, .look = server_look};
    s->heap = heap;
    s->node = node;
    s->clock = node->clock;
    list_init(&s->handlers);
    list_init(&s->ready);
    list_init(&s->open);
    list_init(&s->idle);
    bool good = mutex_init(&s->lock) == HEARTH_OK, locks = good;
    for (; good && bells < HEARTH_RPC_THREADS; bells++) {
        s->threads[bells].server = s;
        list_init(&s->threads[bells].idle);
        good = bell_init(&s->threads[bells].bell) == HEARTH_OK;
        if (!good)
            break;
    }
    if (good && bell_init(&s->quiet) == HEARTH_OK)
        return s;
    while (bells > 0)
        bell_fini(&s->threads[--bells].bell);
    if (locks)
        mutex_fini(&s->lock);
    heap_free(s);
    heap_close(heap);
    return NULL;
}

static struct rpc_server *server_of(hearth_node *node)
{
    struct node_server *now = atomic_load(&node->server);
    if (now)
        return container_of(now, struct rpc_server, server);
    struct rpc_server *s = server_make(node);
    if (s && !atomic_compare_exchange_strong(&node->server, &now, &s->server)) {
        server_free(s); /* another thread was faster */
        s = container_of(now, struct rpc_server, server);
    }
    return s;
}

/* ---- registering ---- */

void hearth_rpc_limits_init_sized(struct hearth_rpc_limits *limits, size_t size)
{
    const struct hearth_rpc_limits own = {
        .request_max = 1u << 20, .reply_max = 1u << 20, .running = 64, .waiting = 256};
    sized_write(limits, size, &own, sizeof own);
}

static int limits_read(const struct hearth_rpc_limits *given, struct hearth_rpc_limits *own)
{
    static const char *const what = "rpc_register";
    struct error why;
    hearth_rpc_limits_init(own);
    if (!given)
        return HEARTH_OK;
    if (sized_read(own, sizeof *own, given, "limits", &why) != HEARTH_OK)
        return error_call_because(what, &why);
    own->size = sizeof *own;
    if (own->request_max > INT64_MAX - RPC_HEAD_MAX || own->reply_max > INT64_MAX - RPC_REPLY_HEAD)
        return error_call(what, HEARTH_INVALID, "limits.request_max or reply_max is 2^63 or more");
    if (own->running == 0)
        return error_call(what, HEARTH_INVALID, "limits.running is 0; it takes 1 or more");
    return HEARTH_OK;
}

/* The longest request of all handlers, with its head. With the lock. */
static void tell_longest(struct rpc_server *s)
{
    size_t most = 0;
    struct list *item, *after;
    LIST_EACH (item, after, &s->handlers) {
        size_t max = container_of(item, struct rpc_handler, item)->limits.request_max;
        most = max > most ? max : most;
    }
    atomic_store(&s->node->call_max, most + RPC_HEAD_MAX);
}

static int handler_remove(struct rpc_server *s, const char *name)
{
    struct rpc_outcome outcome = {.status = HEARTH_NO_SUCH_CALL, .fate = HEARTH_FATE_NOT_DELIVERED};
    struct list taken;
    list_init(&taken);
    mutex_lock(&s->lock);
    struct rpc_handler *h = handler_find(s, name);
    if (!h) {
        mutex_unlock(&s->lock);
        return error_call("rpc_register", HEARTH_INVALID, "no handler is named \"%s\"", name);
    }
    list_remove(&h->item);
    s->handler_count--;
    tell_longest(s);
    calls_take(s, h, NULL, &taken);
    mutex_unlock(&s->lock);
    calls_refuse(s, &taken, &outcome);
    rpc_wait_quiet(s, NULL, h);
    mutex_lock(&s->lock);
    h->removed = true;
    rpc_handler_check(h);
    mutex_unlock(&s->lock);
    return HEARTH_OK;
}

static int handler_add(struct rpc_server *s, const struct rpc_handler *what)
{
    struct rpc_handler *h = heap_alloc(s->heap, 1, sizeof *h);
    if (!h)
        return error_call("rpc_register", HEARTH_NO_MEMORY, "%s", hearth_status_text(HEARTH_NO_MEMORY));
    *h = *what;
    list_init(&h->ready);
    list_init(&h->waiting);
    mutex_lock(&s->lock);
    int status = HEARTH_OK;
    if (handler_find(s, h->name))
        status = error_call("rpc_register", HEARTH_INVALID,
                            "\"%s\" has a handler already: remove it first, with a NULL handler", h->name);
    else if (s->handler_count >= RPC_HANDLERS_MAX)
        status = error_call("rpc_register", HEARTH_LIMIT, "%d handlers are registered, no more are allowed",
                            RPC_HANDLERS_MAX);
    if (status == HEARTH_OK) {
        list_push(&s->handlers, &h->item);
        s->handler_count++;
        tell_longest(s);
    }
    mutex_unlock(&s->lock);
    if (status != HEARTH_OK)
        heap_free(h);
    return status;
}

int hearth_rpc_register(hearth_node *node, const char *name, hearth_rpc_fn *handler, void *arg,
                        const struct hearth_rpc_limits *limits)
{
    static const char *const what = "rpc_register";
    struct rpc_handler own = {.run = handler, .arg = arg};
    if (!node || !name)
        return error_call(what, HEARTH_INVALID, "%s is NULL", node ? "name" : "node");
    if (node_forked(node))
        return error_call(what, HEARTH_FORKED, "%s", hearth_status_text(HEARTH_FORKED));
    if (!rpc_name_good(name))
        return error_call(what, HEARTH_INVALID,
                          "name is \"%.70s\"; it takes 1 to %d characters of printable ASCII", name,
                          RPC_NAME_MAX);
    int status = limits_read(limits, &own.limits);
    if (status != HEARTH_OK)
        return status;
    struct rpc_server *s = server_of(node->outer);
    if (!s)
        return error_call(what, HEARTH_NO_MEMORY, "%s", hearth_status_text(HEARTH_NO_MEMORY));
    memcpy(own.name, name, strlen(name));
    return handler ? handler_add(s, &own) : handler_remove(s, name);
}
