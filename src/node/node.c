/* SPDX-License-Identifier: Apache-2.0 */
/* The baton, the progress thread, and requests. */
#include "node/poll_set.h"

#include <assert.h>
#include <string.h>

#include "node/cluster_groups.h"
#include "node/copier.h"

#define TURNS_MAX     8                 /* of the engine, before a caller returns */
#define NAP_NS        (4 * NS_PER_MS)   /* latency of the progress thread for what no operation waits for */
#define LULL_NS       (200 * NS_PER_US) /* between two callers that drive: the progress thread keeps out */
#define SPIN_ALONE_NS (2 * NS_PER_US)   /* then yield between checks: others may need the processor */

bool node_forked(const hearth_node *node)
{
    return process_id() != node->process;
}

uint64_t node_now(const hearth_node *node)
{
    return clock_now(&node->clock);
}

/* ---- requests ---- */

static hearth_request *request_take(hearth_node *node)
{
    hearth_request *request;
    if (list_empty(&node->free_requests)) {
        request = heap_alloc(node->heap, 1, sizeof *request);
        if (!request)
            return NULL;
        list_init(&request->item);
    } else {
        request = container_of(node->free_requests.prev, hearth_request, item);
        list_remove(&request->item);
    }
    *request = (hearth_request){.node = node, .event = {.read_fd = -1, .write_fd = -1}};
    list_init(&request->item);
    list_push(&node->requests, &request->item);
    return request;
}

static void request_put(hearth_request *request)
{
    event_close(&request->event);
    list_remove(&request->item);
    list_push(&request->node->free_requests, &request->item);
}

/* ---- completions ---- */

/* Delivers completions. Called with the baton, which is released while a callback runs: the callback may
 * start operations. What ends meanwhile is left to the collector that runs already, so that such callbacks do
 * not recurse. `mine` is the request that a caller in node_wait waits for, or one that no thread can wait for
 * yet: no bell is needed for it. `counted`: this thread counts as waiting. */
static void collect(hearth_node *node, const hearth_request *mine, bool counted)
{
    bool any = false, others = false;
    struct completion *completion;
    if (node->collecting)
        return;
    node->collecting = true;
    while ((completion = engine_finished(node->engine))) {
        hearth_request *request = container_of(completion, hearth_request, completion);
        if (completion->hook) {
            completion->hook(completion);
            continue;
        }
        if (request->finish) {
            mutex_unlock(&node->baton);
            request->finish(request->finish_arg, &completion->error);
            mutex_lock(&node->baton);
        }
        if (request->abandoned) {
            request_put(request);
            continue;
        }
        if (request->done) {
            request->telling = true;
            mutex_unlock(&node->baton);
            request->done(request->done_arg, completion->error.status);
            mutex_lock(&node->baton);
        }
        error_show(&completion->error, request->text);
        request->settled = true;
        if (request->event.read_fd >= 0)
            event_signal(&request->event);
        any = true;
        others = others || request != mine;
    }
    node->collecting = false;
    int waiting = atomic_load(&node->waiting);
    if ((others && waiting > counted) || (any && waiting > 1))
        poll_set_ring_all(node);
}

/* With the baton: drives until nothing moves, or other threads are due. True: there may be more to do. */
static bool drive(hearth_node *node, const hearth_request *mine, bool counted)
{
    bool moved = true;
    for (int turn = 0; moved && turn < TURNS_MAX; turn++) {
        moved = engine_progress(node->engine);
        collect(node, mine, counted);
    }
    bell_urgent(node->bell, engine_busy(node->engine));
    return moved;
}

/* Work is left without a bell: the progress thread does it. */
static void leave_rest(hearth_node *node, bool rest)
{
    if (rest && node->progress_runs)
        poll_set_ring_all(node);
}

/* On virtual time there are no threads: the driver of the node does the worker's work. */
static bool worker_step(hearth_node *node)
{
    if (!node->clock.virtual_ns)
        return false;
    struct node_worker *worker = atomic_load(&node->worker);
    struct copier *copier = atomic_load(&node->copier);
    struct node_server *server = atomic_load(&node->outer->server);
    bool worked = worker && worker->step(worker);
    worked = (copier && copier_step(copier)) || worked;
    return (server && server->step(server)) || worked;
}

bool node_progress(hearth_node *node)
{
    mutex_lock(&node->baton);
    bool moved = engine_progress(node->engine);
    collect(node, NULL, false);
    mutex_unlock(&node->baton);
    return worker_step(node) || moved;
}

/* ---- the progress thread ---- */

/* Callers come and go, and work is in flight: the next one drives it. To ring the progress thread each time
 * that one goes, and to take the seat from it again, would cost more than the operation. So it sleeps
 * whatever happens, for so short a time that work which no caller comes for can wait. */
static void progress_lull(hearth_node *node)
{
    atomic_store(&node->lull, true);
    sock_wait(NULL, 0, clock_real() + LULL_NS);
    atomic_store(&node->lull, false); /* before it drives: work that was left meanwhile is seen */
}

/* While operations follow each other closely, callers drive; the progress thread would only disturb. */
static void progress_sleep(hearth_node *node, uint32_t heard, bool nap, uint64_t until)
{
    if (nap)
        bell_nap(node->bell, clock_real() + NAP_NS);
    else if (node->rest && atomic_load(&node->waiting) == 0)
        poll_set_wait(node, BELL_PROGRESS, heard, until);
    else
        bell_wait(node->bell, BELL_PROGRESS, heard, 0, until);
}

void node_keep(void *arg)
{
    hearth_node *node = arg;
    uint32_t heard, heard_before = bell_heard(node->bell), calls_before = atomic_load(&node->calls);
    uint32_t visits_before = atomic_load(&node->visits);
    for (;; heard_before = heard) {
        heard = bell_heard(node->bell);
        mutex_lock(&node->baton);
        if (node->closing) {
            mutex_unlock(&node->baton);
            return;
        }
        bool rest = drive(node, NULL, false), busy = engine_busy(node->engine);
        uint64_t until = engine_deadline(node->engine);
        atomic_store(&node->progress_until, until);
        mutex_unlock(&node->baton);
        if (rest)
            continue;
        uint32_t calls = atomic_load(&node->calls);
        bool active = node->rest ? calls != calls_before : heard != heard_before;
        calls_before = calls;
        struct node_server *server = atomic_load(&node->outer->server);
        if (server) {
            uint64_t most = server->look(server, node), now = clock_real();
            until = until - now > most && until > now ? now + most : until;
        }
        uint32_t visits = atomic_load(&node->visits);
        if (node->rest && busy && visits != visits_before)
            progress_lull(node);
        else
            progress_sleep(node, heard, !busy && active, until);
        visits_before = visits;
    }
}

/* ---- waiting ---- */

/* With the baton: whether the progress thread must continue what a caller leaves. In memory only held-back
 * frames become due. */
static bool leaves_work(hearth_node *node)
{
    if (node->rest)
        return poll_set_must_ring(node, false);
    return node->config.rate > 0 && engine_deadline(node->engine) < atomic_load(&node->progress_until);
}

/* A caller returns: the progress thread drives what is in flight. */
static void hand_over(hearth_node *node)
{
    if (!node->rest && node->config.rate == 0)
        return;
    mutex_lock(&node->baton);
    bool ring = leaves_work(node);
    mutex_unlock(&node->baton);
    leave_rest(node, ring);
}

static int status_of(const hearth_request *request)
{
    return request->settled ? request->completion.error.status : HEARTH_PENDING;
}

static void waited(hearth_node *node, int peer, uint64_t since_ns)
{
    if (peer != RANK_NONE)
        atomic_fetch_add_explicit(&node->metrics.peer[peer].waited_ns, clock_real() - since_ns,
                                  memory_order_relaxed);
}

/* Between two checks that found nothing. True: check again; false: sleep. Spins while processors are idle;
 * where members outnumber them, yields the processor at once. */
static bool spin(const hearth_node *node, uint64_t since_ns, uint64_t now_ns)
{
    if (!node->rest || now_ns - since_ns >= node->spin_ns)
        return false;
    if (node->crowded || now_ns - since_ns > SPIN_ALONE_NS)
        thread_yield();
    else
        thread_relax();
    return true;
}

void node_sleep(hearth_node *node, uint32_t heard, uint64_t until)
{
    if (node->rest)
        poll_set_wait(node, BELL_CALLER, heard, until);
    else
        bell_wait(node->bell, BELL_CALLER, heard, node->spin_ns, until);
}

void node_come(hearth_node *node)
{
    atomic_fetch_add(&node->waiting, 1);
    atomic_fetch_add_explicit(&node->visits, 1, memory_order_relaxed);
    bell_attend(node->bell);
    poll_set_caller_comes(node);
}

void node_go(hearth_node *node, uint32_t heard)
{
    bell_leave(node->bell, heard);
    atomic_fetch_sub(&node->waiting, 1);
    hand_over(node);
}

int node_wait_here(hearth_request *request, uint64_t deadline_ns, const _Atomic(bool) *also, uint32_t *heard)
{
    hearth_node *node = request->node;
    int status;
    uint64_t idle_ns = 0;
    for (;;) {
        *heard = bell_heard(node->bell);
        mutex_lock(&node->baton);
        bool moved = engine_progress(node->engine);
        collect(node, request, true);
        status = status_of(request);
        uint64_t until = engine_deadline(node->engine);
        int peer = moved ? RANK_NONE : engine_waits_for(&request->completion);
        bool rest = status != HEARTH_PENDING && moved && !request->alone && drive(node, request, true);
        if (status == HEARTH_PENDING)
            poll_set_look(node);
        mutex_unlock(&node->baton);
        leave_rest(node, rest);
        if (status != HEARTH_PENDING || (also && atomic_load(also)))
            return status;
        if (moved || worker_step(node)) {
            idle_ns = 0;
            continue;
        }
        uint64_t now = clock_real();
        if (now >= deadline_ns)
            return status;
        idle_ns = idle_ns == 0 ? now : idle_ns;
        if (spin(node, idle_ns, now))
            continue;
        until = until < deadline_ns ? until : deadline_ns;
        node_sleep(node, *heard, until);
        waited(node, peer, now);
    }
}

/* Without driving: of many operations that are waited for in turn, most have ended. */
static int status_now(const hearth_request *request)
{
    mutex_lock(&request->node->baton);
    int status = status_of(request);
    mutex_unlock(&request->node->baton);
    return status;
}

int node_wait_also(hearth_request *request, uint64_t deadline_ns, const _Atomic(bool) *also)
{
    hearth_node *node = request->node;
    uint32_t heard;
    int status = status_now(request);
    if (status != HEARTH_PENDING)
        return status;
    node_come(node);
    status = node_wait_here(request, deadline_ns, also, &heard);
    node_go(node, heard);
    return status;
}

int node_wait(hearth_request *request, uint64_t deadline_ns)
{
    return node_wait_also(request, deadline_ns, NULL);
}

bool node_settled(const hearth_request *request)
{
    return status_now(request) != HEARTH_PENDING;
}

int node_test(hearth_request *request)
{
    hearth_node *node = request->node;
    mutex_lock(&node->baton);
    bool rest = drive(node, NULL, false) || leaves_work(node);
    int status = status_of(request);
    mutex_unlock(&node->baton);
    leave_rest(node, rest);
    return status;
}

/* Under the baton, which it releases. */
static void drive_once(hearth_node *node)
{
    bool rest = drive(node, NULL, false);
    mutex_unlock(&node->baton);
    leave_rest(node, rest);
}

void node_do(hearth_node *node, void (*act)(void *arg), void *arg, bool drives)
{
    mutex_lock(&node->baton);
    act(arg);
    bool rest = drives && (drive(node, NULL, false) || leaves_work(node));
    mutex_unlock(&node->baton);
    leave_rest(node, rest);
}

void node_wake_server(hearth_node *node)
{
    if (!atomic_load(&node->serving))
        poll_set_ring_callers(node);
}

void node_serve(hearth_node *node, uint64_t deadline_ns, const _Atomic(bool) *also, uint32_t *heard)
{
    uint64_t idle_ns = 0;
    for (;;) {
        *heard = bell_heard(node->bell);
        mutex_lock(&node->baton);
        atomic_store(&node->serving, true);
        bool moved = engine_progress(node->engine);
        collect(node, NULL, true);
        uint64_t until = engine_deadline(node->engine);
        poll_set_look(node);
        atomic_store(&node->serving, false); /* before the look at `also`: one of us sees the other */
        mutex_unlock(&node->baton);
        if (atomic_load(also))
            return;
        uint64_t now = moved ? 0 : clock_real();
        if (now >= deadline_ns)
            return;
        idle_ns = moved ? 0 : idle_ns == 0 ? now : idle_ns;
        if (!moved && !spin(node, idle_ns, now))
            node_sleep(node, *heard, until < deadline_ns ? until : deadline_ns);
    }
}

void node_cancel(hearth_request *request)
{
    hearth_node *node = request->node;
    mutex_lock(&node->baton);
    if (request->cancel)
        request->cancel(request->cancel_arg);
    else
        completion_cancel(&request->completion);
    drive_once(node);
    node_wait(request, NEVER_NS); /* another thread may be in its callback */
}

void node_cancel_part(hearth_request *request)
{
    completion_cancel(&request->completion);
}

void node_offer(hearth_request *request, size_t len)
{
    hearth_node *node = request->node;
    mutex_lock(&node->baton);
    completion_offer(&request->completion, len);
    drive_once(node);
}

/* ---- starting ---- */

int node_begin(hearth_group *group, const struct node_begin *begin, enum caller_next caller,
               hearth_request **out, struct error *error)
{
    hearth_node *node = group->node;
    atomic_fetch_add(&node->calls, 1);
    mutex_lock(&node->baton);
    hearth_request *request = node->closing ? NULL : request_take(node);
    int status;
    if (!request) {
        status = node->closing ? HEARTH_CLOSED : HEARTH_NO_MEMORY;
        error_set(error, status, RANK_NONE, "%s: %s", begin->name, hearth_status_text(status));
        if (status == HEARTH_NO_MEMORY && begin->refuse)
            begin->refuse(group->group, begin->what, error);
        mutex_unlock(&node->baton);
        if (begin->finish)
            begin->finish(begin->finish_arg, error);
        return status;
    }
    request->done = begin->done;
    request->done_arg = begin->done_arg;
    request->finish = begin->finish;
    request->finish_arg = begin->finish_arg;
    request->alone = begin->alone;
    bell_urgent(node->bell, true); /* before the last check of the links, so that nothing is missed */
    if (!begin->alone)
        engine_progress(node->engine); /* earlier messages of members come first, above all an abort */
    status = begin->start(group->group, begin->what, &request->completion, error);
    if (status == HEARTH_OK) {
        *out = request;
    } else {
        request_put(request);
    }
    if (begin->alone && status == HEARTH_OK && (caller == CALLER_WAITS || request->completion.ended)) {
        collect(node, request, false);
        mutex_unlock(&node->baton);
        return status;
    }
    bool waits = caller != CALLER_GOES;
    bool rest = !begin->alone && drive(node, request, caller == CALLER_STAYS);
    bool ring = node->rest ? poll_set_must_ring(node, waits)
                           : engine_deadline(node->engine) < atomic_load(&node->progress_until);
    mutex_unlock(&node->baton);
    leave_rest(node, (rest && !waits) || ring);
    if (status != HEARTH_OK && begin->finish)
        begin->finish(begin->finish_arg, error);
    return status;
}

static int call_begin(struct group *group, const void *what, struct completion *completion,
                      struct error *error)
{
    return group_start(group, what, completion, error);
}

static void call_refuse(struct group *group, const void *what, const struct error *why)
{
    group_refuse(group, ((const struct call *)what)->opts->tag, why);
}

int node_start(hearth_group *group, const struct call *call, enum caller_next caller, hearth_request **out,
               struct error *error)
{
    struct node_begin begin = {.name = plan_kind_name(call->kind),
                               .start = call_begin,
                               .refuse = call_refuse,
                               .what = call,
                               .done = call->opts->done,
                               .done_arg = call->opts->done_arg};
    return node_begin(group, &begin, caller, out, error);
}

int node_request(hearth_node *node, const struct node_task *task, hearth_request **out)
{
    mutex_lock(&node->baton);
    hearth_request *request = node->closing ? NULL : request_take(node);
    int status = request ? HEARTH_OK : node->closing ? HEARTH_CLOSED : HEARTH_NO_MEMORY;
    if (request) {
        request->cancel = task->cancel;
        request->cancel_arg = task->arg;
        request->done = task->done;
        request->done_arg = task->done_arg;
        list_init(&request->completion.item);
        *out = request;
    }
    mutex_unlock(&node->baton);
    return status;
}

void node_drop_request(hearth_request *request)
{
    mutex_lock(&request->node->baton);
    request_put(request);
    mutex_unlock(&request->node->baton);
}

void node_settling(hearth_request *request)
{
    mutex_lock(&request->node->baton);
    request->cancel = NULL;
    mutex_unlock(&request->node->baton);
}

void node_settle(hearth_request *request, const struct error *error)
{
    hearth_node *node = request->node;
    mutex_lock(&node->baton);
    engine_finish(node->engine, &request->completion, error);
    drive_once(node);
}

void node_refuse(hearth_group *group, uint64_t tag, const struct error *why)
{
    hearth_node *node = group->node;
    mutex_lock(&node->baton);
    group_refuse(group->group, tag, why);
    drive_once(node);
}

void node_refuse_parts(hearth_group *inner, const struct compound *compound, const struct error *why)
{
    hearth_node *node = inner->node;
    mutex_lock(&node->baton);
    group_refuse_parts(inner->group, compound, why);
    drive_once(node);
}

void node_close_compound(hearth_group *group, struct compound *compound)
{
    mutex_lock(&group->node->baton);
    compound_close(group->group, compound);
    mutex_unlock(&group->node->baton);
}

void node_release(hearth_request *request)
{
    hearth_node *node = request->node;
    mutex_lock(&node->baton);
    if (!request->settled) {
        mutex_unlock(&node->baton);
        node_cancel(request);
        mutex_lock(&node->baton);
    }
    request_put(request);
    mutex_unlock(&node->baton);
}

int node_finish(hearth_request *request, struct error *error)
{
    hearth_node *node = request->node;
    mutex_lock(&node->baton);
    if (!request->settled) { /* another thread is in its callback */
        mutex_unlock(&node->baton);
        node_wait(request, NEVER_NS);
        mutex_lock(&node->baton);
    }
    *error = request->completion.error;
    request_put(request);
    mutex_unlock(&node->baton);
    return error->status;
}

void node_abandon(hearth_request *request, const struct error *why)
{
    hearth_node *node = request->node;
    mutex_lock(&node->baton);
    completion_abort(&request->completion, why);
    bool telling = request->telling && !request->settled;
    if (request->settled)
        request_put(request);
    else
        request->abandoned = !telling;
    drive_once(node);
    if (!telling)
        return;
    node_wait(request, NEVER_NS); /* another thread is in its callback */
    node_release(request);
}

void node_view_changed(hearth_node *node, const char *why)
{
    mutex_lock(&node->baton);
    if (!node->closing)
        engine_view_changed(node->engine, why);
    drive_once(node);
}

void node_part(hearth_node *node, const char *why)
{
    node_view_changed(node, why);
    mutex_lock(&node->baton);
    engine_part(node->engine);
    mutex_unlock(&node->baton);
}

void node_members_lost(hearth_node *node, uint64_t lost, const char *why)
{
    mutex_lock(&node->baton);
    if (!node->closing)
        engine_members_lost(node->engine, lost, why);
    bool rest = node->progress_runs ||
                drive(node, NULL, false); /* it runs the callbacks: the caller may hold locks */
    mutex_unlock(&node->baton);
    leave_rest(node, rest);
}

/* ---- groups ---- */

/* With the baton. */
static void group_drop(hearth_group *group)
{
    group_close(group->group);
    list_remove(&group->item);
    heap_free(group);
}

void hearth_group_close(hearth_group *group)
{
    if (!group)
        return;
    hearth_node *node = group->node;
    if (node_forked(node))
        return;
    if (group == &node->world) {
        cluster_groups_leave(node->cluster_group,
                             true); /* a world is left to its node, unless it was formed */
        return;
    }
    struct node_worker *worker = atomic_load(&node->worker);
    if (worker)
        worker->leave(worker, group);
    struct list *item, *after;
    mutex_lock(&node->baton);
    LIST_EACH (item, after, &node->groups)
        if (container_of(item, hearth_group, item)->outer == group)
            group_drop(container_of(item, hearth_group, item));
    group_drop(group);
    drive_once(node); /* sends the aborts */
}
