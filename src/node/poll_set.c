/* SPDX-License-Identifier: Apache-2.0 */
/* The seat at the descriptors. */
#include "node/poll_set.h"

#include <string.h>

#include "node/secure.h"

#define LOOK_NS        (5 * NS_PER_MS) /* interval of descriptor checks while there is work */
#define LISTENER_WAITS (HALF_OPEN_PLACES + 2)
#define EVENT_WAITS    1

enum seat { SEAT_FREE, SEAT_CALLER, SEAT_PROGRESS };

struct poll_set {
    struct event event;
    _Atomic(int) seat;       /* enum seat */
    _Atomic(uint64_t) until; /* when its thread wakes up by itself */
    uint64_t looked_ns;      /* under the baton */
    size_t waits_max;
    struct sock_wait *waits; /* the seat's */
};

struct poll_set *poll_set_open(struct heap *heap, struct event event, int size)
{
    struct poll_set *rest = heap_alloc(heap, 1, sizeof *rest);
    size_t max = EVENT_WAITS + (size_t)size * LINK_PIPES_MAX + LISTENER_WAITS;
    struct sock_wait *waits = heap_alloc(heap, max, sizeof *waits);
    if (!rest || !waits) {
        heap_free(rest);
        heap_free(waits);
        event_close(&event);
        return NULL;
    }
    rest->event = event;
    rest->waits = waits;
    rest->waits_max = max;
    atomic_init(&rest->seat, SEAT_FREE);
    atomic_init(&rest->until, NEVER_NS);
    return rest;
}

void poll_set_close(struct poll_set *rest)
{
    if (!rest)
        return;
    event_close(&rest->event);
    heap_free(rest->waits);
    heap_free(rest);
}

/* ---- at the descriptors ---- */

struct watch {
    size_t links, listener; /* number of waits of each */
    uint64_t until_ns;
};

/* With the baton and the seat. */
static struct watch watch_begin(hearth_node *node, uint64_t deadline_ns)
{
    struct poll_set *rest = node->rest;
    struct watch watch = {.until_ns = engine_deadline(node->engine)};
    size_t left = rest->waits_max - EVENT_WAITS;
    rest->waits[0] = (struct sock_wait){.fd = rest->event.read_fd, .want_recv = true};
    watch.links = engine_waits(node->engine, rest->waits + EVENT_WAITS, left - LISTENER_WAITS);
    if (node->listener)
        watch.listener = half_open_waits(node->listener->half_open, rest->waits + EVENT_WAITS + watch.links,
                                         LISTENER_WAITS, &watch.until_ns);
    watch.until_ns = deadline_ns < watch.until_ns ? deadline_ns : watch.until_ns;
    return watch;
}

/* With the baton and the seat, after the sleep. */
static void watch_end(hearth_node *node, const struct watch *watch)
{
    struct poll_set *rest = node->rest;
    rest->looked_ns = clock_real();
    if (rest->waits[0].ready)
        event_clear(&rest->event);
    engine_attend(node->engine, rest->waits + EVENT_WAITS, watch->links);
    const struct sock_wait *listener = rest->waits + EVENT_WAITS + watch->links;
    bool knocks = rest->looked_ns >= watch->until_ns;
    for (size_t i = 0; i < watch->listener; i++)
        knocks = knocks || listener[i].ready;
    if (node->listener && knocks)
        half_open_pump(node->listener->half_open, rest->looked_ns);
    secure_watch(node, rest->looked_ns);
}

/* The progress thread of a closing node does not take the seat: no thread might wake it. */
static void sleep_seated(hearth_node *node, enum bell_side side, uint64_t deadline_ns)
{
    struct poll_set *rest = node->rest;
    mutex_lock(&node->baton);
    engine_doze(node->engine, true);
    bool moved = engine_progress(node->engine) || (node->closing && side == BELL_PROGRESS);
    struct watch watch = watch_begin(node, moved ? 0 : deadline_ns);
    atomic_store(&rest->until, watch.until_ns);
    mutex_unlock(&node->baton);
    sock_wait(rest->waits, EVENT_WAITS + watch.links + watch.listener, watch.until_ns);
    mutex_lock(&node->baton);
    engine_doze(node->engine, false);
    watch_end(node, &watch);
    mutex_unlock(&node->baton);
}

void poll_set_wait(hearth_node *node, enum bell_side side, uint32_t heard, uint64_t deadline_ns)
{
    struct poll_set *rest = node->rest;
    int seat = SEAT_FREE;
    if (bell_heard(node->bell) != heard)
        return;
    if (!atomic_compare_exchange_strong(&rest->seat, &seat,
                                        side == BELL_PROGRESS ? SEAT_PROGRESS : SEAT_CALLER)) {
        if (seat == SEAT_PROGRESS)
            event_signal(&rest->event);
        bell_wait(node->bell, side, heard, 0, deadline_ns);
        return;
    }
    sleep_seated(node, side, deadline_ns);
    atomic_store(&rest->seat, SEAT_FREE);
    bell_ring(node->bell); /* another thread may have to take the seat */
}

void poll_set_look(hearth_node *node)
{
    struct poll_set *rest = node->rest;
    int seat = SEAT_FREE;
    if (!rest || clock_real() - rest->looked_ns < LOOK_NS)
        return;
    if (!atomic_compare_exchange_strong(&rest->seat, &seat, SEAT_CALLER))
        return;
    struct watch watch = watch_begin(node, 0);
    sock_wait(rest->waits, EVENT_WAITS + watch.links + watch.listener, 0);
    watch_end(node, &watch);
    atomic_store(&rest->seat, SEAT_FREE);
}

/* ---- waking ---- */

void poll_set_ring_all(hearth_node *node)
{
    bell_ring_all(node->bell);
    if (node->rest && atomic_load(&node->rest->seat) != SEAT_FREE)
        event_signal(&node->rest->event);
}

void poll_set_ring_callers(hearth_node *node)
{
    bell_ring(node->bell);
    if (node->rest && atomic_load(&node->rest->seat) == SEAT_CALLER)
        event_signal(&node->rest->event);
}

void poll_set_caller_comes(hearth_node *node)
{
    if (node->rest && atomic_load(&node->rest->seat) == SEAT_PROGRESS)
        event_signal(&node->rest->event);
}

bool poll_set_must_ring(hearth_node *node, bool caller_stays)
{
    struct poll_set *rest = node->rest;
    if (!rest || !engine_busy(node->engine))
        return false;
    if (atomic_load(&rest->seat) == SEAT_FREE)
        return !caller_stays && atomic_load(&node->waiting) == 0 && !atomic_load(&node->lull);
    return engine_deadline(node->engine) < atomic_load(&rest->until) || engine_stuck(node->engine);
}
