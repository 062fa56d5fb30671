/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that run handlers.
 *
 * A call that wakes a thread which sleeps costs more than the call. So while calls come, one thread, the
 * leader, waits for them in the place of the progress thread: it drives the node, runs what has come itself,
 * and sends replies that leave together. Meanwhile the progress thread looks every millisecond: a handler
 * that takes longer loses the lead, and what waits behind it gets other threads. A node in memory has no
 * leader: its peers are threads of the same process. */
#include "remote/rpc.h"

#include <string.h>

#include "node/poll_set.h"

#define LINGER_NS (20 * NS_PER_MS)  /* without a call, then nobody leads */
#define TICK_NS   NS_PER_MS         /* of the progress thread while a thread leads */
#define HELP_NS   (200 * NS_PER_US) /* so much work that waits is shared, */
#define WORTH_NS  (30 * NS_PER_US)  /* if the calls are longer than what it costs to wake a thread */

#define USUAL_GROWTH 8 /* a longer time than so many usual ones counts as that */

/* ---- waking ---- */

static void pool_run(void *arg);

/* With the lock: another thread comes. */
static void wake_one(struct rpc_server *s)
{
    struct list *item = list_pop(&s->idle);
    struct rpc_thread *t = item ? container_of(item, struct rpc_thread, idle) : NULL;
    if (t) {
        bell_ring(&t->bell);
    } else {
        if (s->thread_count == HEARTH_RPC_THREADS || s->clock.virtual_ns || s->stopping)
            return;
        t = &s->threads[s->thread_count];
        if (thread_start(&t->thread, "hearth-rpc", pool_run, t) != HEARTH_OK)
            return;
        s->thread_count++;
    }
    t->coming = true;
    s->coming++;
}

/* With the lock: it is there. */
static void came(struct rpc_server *s, struct rpc_thread *self)
{
    s->coming -= self->coming;
    self->coming = false;
}

/* With the lock. Threads come one after the other, each wakes the next: of calls that are done before a
 * second thread is awake, all are the first one's. */
static void wake_helper(struct rpc_server *s)
{
    bool much = s->waits > 1 && s->usual_ns > WORTH_NS && s->waits * s->usual_ns > HELP_NS;
    if (!list_empty(&s->ready) && s->coming == 0 && (!s->leader || much))
        wake_one(s);
}

/* ---- running ---- */

static uint64_t now_of(const struct rpc_server *s)
{
    return clock_now(&s->clock);
}

/* The handler has returned. A thread that lost its processor for a while makes one time long; it counts
 * little, or each such moment would wake threads for calls that are not worth it. */
static void ran(struct rpc_server *s, hearth_node *node, uint64_t began_ns)
{
    uint64_t now = now_of(s), took = now - began_ns, most = USUAL_GROWTH * (s->usual_ns + NS_PER_US);
    took = took < most ? took : most;
    s->usual_ns = (7 * s->usual_ns + took) / 8;
    s->recent_ns = now;
    if (!s->stopping)
        s->recent = node;
}

bool rpc_run_next(struct rpc_server *s, struct rpc_thread *self)
{
    static const struct rpc_outcome expired = {
        .status = HEARTH_TIMEOUT,
        .fate = HEARTH_FATE_NOT_DELIVERED,
        .text = "the deadline passed before a thread was free there",
    };
    struct hearth_rpc *rpc = rpc_next(s);
    if (!rpc)
        return false;
    wake_helper(s);
    struct rpc_handler *h = rpc->handler;
    uint64_t began = now_of(s);
    if (rpc->deadline_ns <= began) {
        (void)!rpc_answer(rpc, &expired, expired.text, strlen(expired.text));
        mutex_lock(&s->lock);
        return true;
    }
    self->node = rpc->node;
    self->handler = h;
    h->active++;
    s->runs += s->leader == self;
    rpc->led = s->leader == self && s->led == rpc->node;
    mutex_unlock(&s->lock);
    h->run(h->arg, rpc, rpc->len > 0 ? rpc->request : NULL, rpc->len); /* it may be answered and gone now */
    mutex_lock(&s->lock);
    ran(s, self->node, began);
    self->node = NULL;
    self->handler = NULL;
    h->active--;
    rpc_handler_check(h);
    bell_ring_all(&s->quiet);
    return true;
}

/* ---- leading ---- */

static bool may_lead(const struct rpc_server *s)
{
    return !s->leader && s->recent && s->recent->rest && !s->clock.virtual_ns &&
           now_of(s) - s->recent_ns < LINGER_NS;
}

/* With the lock, and the lead: until it goes or was lost. True: lost. */
static bool serve(struct rpc_server *s, struct rpc_thread *self, uint32_t *heard)
{
    hearth_node *node = s->led;
    while (!s->stopping && s->recent == node) {
        if (list_empty(&s->ready)) {
            uint64_t until = s->recent_ns + LINGER_NS;
            if (now_of(s) >= until)
                return false;
            atomic_store(&s->attention, false);
            mutex_unlock(&s->lock);
            node_serve(node, until, &s->attention, heard);
            mutex_lock(&s->lock);
            continue;
        }
        int runs = LEAD_RUNS;
        atomic_store(&s->lead, runs);
        rpc_run_next(s, self);
        if (!atomic_compare_exchange_strong(&s->lead, &runs, LEAD_DRIVES))
            return true;
    }
    return false;
}

static void lead(struct rpc_server *s, struct rpc_thread *self)
{
    hearth_node *node = s->recent;
    uint32_t heard = bell_heard(node->bell);
    s->leader = self;
    s->led = node;
    atomic_store(&s->lead, LEAD_DRIVES);
    atomic_fetch_add(&node->answers, 1); /* it does not close before we go */
    mutex_unlock(&s->lock);
    node_come(node);
    poll_set_ring_all(node); /* the progress thread sleeps no longer than a tick */
    mutex_lock(&s->lock);
    bool lost = serve(s, self, &heard);
    if (!lost) {
        s->leader = NULL;
        s->led = NULL;
    }
    mutex_unlock(&s->lock);
    if (!lost) {
        node_go(node, heard);
        poll_set_ring_all(node); /* it takes the seat */
    }
    atomic_fetch_sub(&node->answers, 1);
    mutex_lock(&s->lock);
}

uint64_t rpc_look(struct rpc_server *s, hearth_node *node)
{
    bool lost = false;
    mutex_lock(&s->lock);
    bool leads = s->leader && s->led == node;
    int runs = LEAD_RUNS;
    if (leads && s->looked == s->runs && atomic_compare_exchange_strong(&s->lead, &runs, LEAD_NONE)) {
        lost = true;
        s->leader = NULL;
        s->led = NULL;
        wake_helper(s);
    }
    s->looked = s->runs;
    mutex_unlock(&s->lock);
    if (lost)
        node_go(node, bell_heard(node->bell)); /* for the leader, which is in a handler */
    return leads && !lost ? TICK_NS : NEVER_NS;
}

/* ---- threads ---- */

void rpc_wake(struct rpc_server *s)
{
    if (s->leader && atomic_load(&s->lead) == LEAD_DRIVES)
        node_wake_server(s->led);
    wake_helper(s);
}

static void pool_run(void *arg)
{
    struct rpc_thread *self = arg;
    struct rpc_server *s = self->server;
    mutex_lock(&s->lock);
    while (!s->stopping) {
        uint32_t heard = bell_heard(&self->bell);
        came(s, self);
        if (rpc_run_next(s, self))
            continue;
        if (may_lead(s)) {
            lead(s, self);
            continue;
        }
        list_push(s->idle.next, &self->idle); /* the last to sleep is the first to wake: it is warm */
        mutex_unlock(&s->lock);
        bell_wait(&self->bell, BELL_CALLER, heard, 0, NEVER_NS);
        mutex_lock(&s->lock);
        list_remove(&self->idle);
    }
    mutex_unlock(&s->lock);
}

/* ---- waiting for them ---- */

void rpc_join(struct rpc_server *s)
{
    mutex_lock(&s->lock);
    int count = s->thread_count; /* no more are started */
    mutex_unlock(&s->lock);
    for (int i = 0; i < count; i++)
        bell_ring_all(&s->threads[i].bell);
    for (int i = 0; i < count; i++)
        thread_join(&s->threads[i].thread);
    s->thread_count = 0;
}

static bool runs(struct rpc_server *s, const hearth_node *node, const struct rpc_handler *handler)
{
    bool any = false;
    mutex_lock(&s->lock);
    for (int i = 0; i < HEARTH_RPC_THREADS; i++) {
        const struct rpc_thread *t = &s->threads[i];
        any = any || (t->handler && (node ? t->node == node : t->handler == handler));
    }
    mutex_unlock(&s->lock);
    return any;
}

void rpc_wait_quiet(struct rpc_server *s, const hearth_node *node, const struct rpc_handler *handler)
{
    uint32_t heard = bell_heard(&s->quiet);
    while (runs(s, node, handler)) {
        bell_wait(&s->quiet, BELL_CALLER, heard, 0, NEVER_NS);
        heard = bell_heard(&s->quiet);
    }
}
