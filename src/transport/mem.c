/* SPDX-License-Identifier: Apache-2.0 */
/* Rings of bytes between members of one process.
 *
 * A pipe is one direction of one pair: a single writer and a single reader, the holders of the two nodes'
 * batons. Positions only grow; position modulo capacity is the place in the ring. Where bytes need time, a
 * list of (position, arrival) says how far the reader may see: on virtual time the reader looks at it, on
 * real time a thread, the post, does and rings the reader's bell. */
#include "transport/mem.h"

#include <assert.h>
#include <string.h>

#include "core/prng.h"
#include "os/clock.h"
#include "os/thread.h"

#define RING_BYTES_MAX (1u << 20)
#define RING_BYTES_FAR (8u << 20) /* with latency: what is under way stands there too */
#define RING_BYTES_MIN (1u << 16)
#define RING_BYTES_ALL (64u << 20) /* all pipes together, as long as each has its minimum */
#define ARRIVALS_MAX   1024u

struct mem_arrival {
    uint64_t position, at_ns;
};

struct mem_pipe {
    uint8_t *ring;
    size_t capacity;
    struct bell *writer_bell, *reader_bell;
    _Atomic(uint64_t) written, read; /* positions */
    _Atomic(bool) writer_gone, reader_gone;
    _Atomic(bool) starved; /* the writer found it full and wants to hear of room */
    /* where bytes need time */
    struct mem_arrival *arrivals;                   /* ring, ARRIVALS_MAX */
    _Atomic(uint32_t) arrivals_put, arrivals_taken; /* modulo 2^32 */
    _Atomic(uint64_t) arrived;                      /* position the reader may see */
    uint64_t free_at_ns;                            /* virtual: the wire is busy until then */
    uint64_t last_at_ns;                            /* virtual: keeps order under jitter */
};

struct mem_conn {
    struct conn conn;
    struct mem_net *net;
    struct mem_pipe *out, *in;
};

struct mem_net {
    struct heap *heap;
    struct mem_setup setup;
    _Atomic(int) members;
    struct prng prng;
    struct bell *bells;
    int bells_ready;
    struct mem_conn *conns; /* [rank * size + peer] */
    struct mem_pipe *pipes; /* [writer * size + reader] */
    /* latency on real time */
    struct bell post_bell;
    struct thread post;
    bool post_has_bell, post_runs;
    _Atomic(bool) post_ends;
};

/* ---- one pipe ---- */

static void ring_put(struct mem_pipe *p, uint64_t position, const uint8_t *source, size_t len)
{
    size_t at = position % p->capacity, first = p->capacity - at;
    first = first < len ? first : len;
    memcpy(p->ring + at, source, first);
    memcpy(p->ring, source + first, len - first);
}

static void ring_get(const struct mem_pipe *p, uint64_t position, uint8_t *target, size_t len)
{
    size_t at = position % p->capacity, first = p->capacity - at;
    first = first < len ? first : len;
    memcpy(target, p->ring + at, first);
    memcpy(target + first, p->ring, len - first);
}

static size_t pipe_write(struct mem_pipe *p, const struct iovec *pieces, int count)
{
    uint64_t written = atomic_load_explicit(&p->written, memory_order_relaxed);
    size_t room = p->capacity - (size_t)(written - atomic_load_explicit(&p->read, memory_order_acquire));
    if (room == 0) {
        /* Say so, then look again: the reader may have made room before it could see the flag. */
        atomic_store(&p->starved, true);
        room = p->capacity - (size_t)(written - atomic_load(&p->read));
    }
    size_t done = 0;
    for (int i = 0; i < count && room > 0; i++) {
        size_t len = pieces[i].iov_len < room ? pieces[i].iov_len : room;
        ring_put(p, written + done, pieces[i].iov_base, len);
        done += len;
        room -= len;
    }
    if (done > 0)
        atomic_store_explicit(&p->written, written + done, memory_order_release);
    return done;
}

static size_t pipe_read(struct mem_pipe *p, uint64_t visible, void *target, size_t len_max)
{
    uint64_t at = atomic_load_explicit(&p->read, memory_order_relaxed);
    size_t len = (size_t)(visible - at) < len_max ? (size_t)(visible - at) : len_max;
    if (len == 0)
        return 0;
    ring_get(p, at, target, len);
    atomic_store(&p->read, at + len);
    if (atomic_load(&p->starved) && atomic_exchange(&p->starved, false))
        bell_ring(p->writer_bell);
    return len;
}

/* ---- real time ---- */

static ssize_t mem_send(struct conn *conn, const struct iovec *pieces, int count)
{
    struct mem_pipe *p = container_of(conn, struct mem_conn, conn)->out;
    if (atomic_load_explicit(&p->reader_gone, memory_order_acquire))
        return HEARTH_PEER_LOST;
    size_t done = pipe_write(p, pieces, count);
    if (done > 0)
        bell_ring(p->reader_bell);
    return (ssize_t)done;
}

static ssize_t mem_recv(struct conn *conn, void *target, size_t len_max)
{
    struct mem_pipe *p = container_of(conn, struct mem_conn, conn)->in;
    /* First whether the writer is gone, then what it wrote: nothing is missed. */
    bool gone = atomic_load_explicit(&p->writer_gone, memory_order_acquire);
    size_t len = pipe_read(p, atomic_load_explicit(&p->written, memory_order_acquire), target, len_max);
    return len == 0 && gone ? HEARTH_PEER_LOST : (ssize_t)len;
}

static void mem_close(struct conn *conn)
{
    struct mem_conn *c = container_of(conn, struct mem_conn, conn);
    atomic_store_explicit(&c->out->writer_gone, true, memory_order_release);
    atomic_store_explicit(&c->in->reader_gone, true, memory_order_release);
    bell_ring(c->out->reader_bell);
}

static const struct transport mem_transport = {
    .scheme = "mem",
    .send = mem_send,
    .recv = mem_recv,
    .close = mem_close,
    .descriptor = conn_no_descriptor,
    .attend = conn_attend_nothing,
    .doze = conn_doze_nothing, /* bells are rung whoever sleeps */
};

/* ---- bytes that need time ---- */

static uint32_t under_way(const struct mem_pipe *p)
{
    return atomic_load(&p->arrivals_put) - atomic_load(&p->arrivals_taken);
}

/* What was written last may be seen from then on. */
static void arrival_put(struct mem_pipe *p, uint64_t at_ns)
{
    uint32_t put = atomic_load(&p->arrivals_put);
    assert(under_way(p) < ARRIVALS_MAX);
    p->arrivals[put % ARRIVALS_MAX] = (struct mem_arrival){atomic_load(&p->written), at_ns};
    atomic_store(&p->arrivals_put, put + 1);
}

/* When the next bytes arrive; NEVER_NS. */
static uint64_t arrival_next(const struct mem_pipe *p)
{
    return under_way(p) > 0 ? p->arrivals[atomic_load(&p->arrivals_taken) % ARRIVALS_MAX].at_ns : NEVER_NS;
}

/* What has arrived by now may be seen. True: there was something. */
static bool arrive(struct mem_pipe *p, uint64_t now_ns)
{
    bool any = false;
    for (; arrival_next(p) <= now_ns; any = true) {
        uint32_t taken = atomic_load(&p->arrivals_taken);
        atomic_store(&p->arrived, p->arrivals[taken % ARRIVALS_MAX].position);
        atomic_store(&p->arrivals_taken, taken + 1);
    }
    return any;
}

/* On virtual time what has arrived by now can be seen when the reader looks. */
static ssize_t timed_recv(struct conn *conn, void *target, size_t len_max)
{
    struct mem_conn *c = container_of(conn, struct mem_conn, conn);
    struct mem_pipe *p = c->in;
    if (c->net->setup.now_ns)
        arrive(p, *c->net->setup.now_ns);
    bool ended = atomic_load(&p->writer_gone) && under_way(p) == 0;
    size_t len = pipe_read(p, atomic_load(&p->arrived), target, len_max);
    return len == 0 && ended ? HEARTH_PEER_LOST : (ssize_t)len;
}

static void schedule(struct mem_net *net, struct mem_pipe *p, size_t len)
{
    const struct mem_setup *s = &net->setup;
    uint64_t start = p->free_at_ns > *s->now_ns ? p->free_at_ns : *s->now_ns;
    double wire_ns = s->bytes_per_s > 0 ? (double)len / s->bytes_per_s * 1e9 : 0;
    p->free_at_ns = start + (uint64_t)wire_ns;
    uint64_t at = p->free_at_ns + s->latency_ns;
    if (s->jitter_ns > 0)
        at += prng_below(&net->prng, s->jitter_ns + 1);
    p->last_at_ns = at > p->last_at_ns ? at : p->last_at_ns;
    arrival_put(p, p->last_at_ns);
}

static ssize_t timed_send(struct conn *conn, const struct iovec *pieces, int count)
{
    struct mem_conn *c = container_of(conn, struct mem_conn, conn);
    struct mem_pipe *p = c->out;
    if (atomic_load(&p->reader_gone))
        return HEARTH_PEER_LOST;
    if (under_way(p) == ARRIVALS_MAX) {
        atomic_store(&p->starved, true);
        if (under_way(p) == ARRIVALS_MAX)
            return 0;
    }
    size_t done = pipe_write(p, pieces, count);
    if (done > 0 && c->net->setup.now_ns) {
        schedule(c->net, p, done);
    } else if (done > 0) {
        arrival_put(p, clock_real() + c->net->setup.latency_ns);
        bell_ring(&c->net->post_bell);
    }
    return (ssize_t)done;
}

static const struct transport timed_transport = {
    .scheme = "mem",
    .send = timed_send,
    .recv = timed_recv,
    .close = mem_close,
    .descriptor = conn_no_descriptor,
    .attend = conn_attend_nothing,
    .doze = conn_doze_nothing,
};

/* ---- real time with latency ---- */

static void pipe_deliver(struct mem_pipe *p)
{
    if (!arrive(p, clock_real()))
        return;
    bell_ring(p->reader_bell);
    if (atomic_load(&p->starved) && atomic_exchange(&p->starved, false))
        bell_ring(p->writer_bell);
}

static void post_run(void *arg)
{
    struct mem_net *net = arg;
    int pipes = net->setup.size * net->setup.size;
    while (!atomic_load(&net->post_ends)) {
        uint32_t heard = bell_heard(&net->post_bell);
        uint64_t next = NEVER_NS;
        for (int i = 0; i < pipes; i++) {
            struct mem_pipe *p = &net->pipes[i];
            pipe_deliver(p);
            uint64_t at = arrival_next(p);
            next = at < next ? at : next;
        }
        bell_wait(&net->post_bell, BELL_PROGRESS, heard, 0, next);
    }
}

static int post_start(struct mem_net *net)
{
    int status = bell_init(&net->post_bell);
    net->post_has_bell = status == HEARTH_OK;
    if (status == HEARTH_OK)
        status = thread_start(&net->post, "hearth-post", post_run, net);
    net->post_runs = status == HEARTH_OK;
    return status;
}

static void post_stop(struct mem_net *net)
{
    atomic_store(&net->post_ends, true);
    if (net->post_runs) {
        bell_ring_all(&net->post_bell);
        thread_join(&net->post);
    }
    if (net->post_has_bell)
        bell_fini(&net->post_bell);
}

/* ---- virtual time ---- */

void mem_net_cut(struct mem_net *net, int rank, int peer)
{
    int ends[2] = {rank * net->setup.size + peer, peer * net->setup.size + rank};
    for (int i = 0; i < 2; i++) {
        struct mem_pipe *p = &net->pipes[ends[i]];
        arrive(p, *net->setup.now_ns);
        atomic_store(&p->arrivals_taken, atomic_load(&p->arrivals_put));
        atomic_store(&p->writer_gone, true);
        atomic_store(&p->reader_gone, true);
    }
}

uint64_t mem_net_next(const struct mem_net *net)
{
    uint64_t next = NEVER_NS;
    int pipes = net->setup.size * net->setup.size;
    for (int i = 0; i < pipes; i++) {
        const struct mem_pipe *p = &net->pipes[i];
        uint64_t at = arrival_next(p); /* what has arrived and was not read waits for a frozen member */
        if (!atomic_load(&p->reader_gone) && at > *net->setup.now_ns && at < next)
            next = at;
    }
    return next;
}

/* ---- the net ---- */

static size_t ring_bytes(const struct mem_setup *setup)
{
    if (setup->ring_bytes > 0)
        return setup->ring_bytes;
    size_t pipes = (size_t)setup->size * (size_t)setup->size;
    size_t share = RING_BYTES_ALL / pipes;
    size_t most = !setup->now_ns && setup->latency_ns > 0 ? RING_BYTES_FAR : RING_BYTES_MAX;
    return share < RING_BYTES_MIN ? RING_BYTES_MIN : share > most ? most : share;
}

static void net_free(struct mem_net *net)
{
    int size = net->setup.size;
    post_stop(net);
    for (int i = 0; net->pipes && i < size * size; i++) {
        heap_free(net->pipes[i].ring);
        heap_free(net->pipes[i].arrivals);
    }
    for (int i = 0; i < net->bells_ready; i++)
        bell_fini(&net->bells[i]);
    heap_free(net->bells);
    heap_free(net->pipes);
    heap_free(net->conns);
    struct heap *heap = net->heap;
    heap_free(net);
    heap_close(heap);
}

static int pair_open(struct mem_net *net, int writer, int reader)
{
    int size = net->setup.size;
    struct mem_pipe *p = &net->pipes[writer * size + reader];
    p->capacity = ring_bytes(&net->setup);
    p->writer_bell = &net->bells[writer];
    p->reader_bell = &net->bells[reader];
    p->ring = heap_alloc_raw(net->heap, p->capacity, 1);
    if (!p->ring)
        return HEARTH_NO_MEMORY;
    bool timed = net->setup.now_ns || net->setup.latency_ns > 0;
    if (timed) {
        p->arrivals = heap_alloc(net->heap, ARRIVALS_MAX, sizeof *p->arrivals);
        if (!p->arrivals)
            return HEARTH_NO_MEMORY;
    }
    struct mem_conn *c = &net->conns[writer * size + reader];
    c->conn.transport = timed ? &timed_transport : &mem_transport;
    c->net = net;
    c->out = p;
    c->in = &net->pipes[reader * size + writer];
    return HEARTH_OK;
}

static int net_fill(struct mem_net *net)
{
    int size = net->setup.size;
    size_t pairs = (size_t)size * (size_t)size;
    net->bells = heap_alloc(net->heap, (size_t)size, sizeof *net->bells);
    net->conns = heap_alloc(net->heap, pairs, sizeof *net->conns);
    net->pipes = heap_alloc(net->heap, pairs, sizeof *net->pipes);
    if (!net->bells || !net->conns || !net->pipes)
        return HEARTH_NO_MEMORY;
    for (int i = 0; i < size; i++) {
        int status = bell_init(&net->bells[i]);
        if (status != HEARTH_OK)
            return status;
        net->bells_ready++;
    }
    for (int i = 0; i < size * size; i++) {
        if (i / size == i % size)
            continue;
        int status = pair_open(net, i / size, i % size);
        if (status != HEARTH_OK)
            return status;
    }
    return !net->setup.now_ns && net->setup.latency_ns > 0 ? post_start(net) : HEARTH_OK;
}

int mem_net_open(const struct mem_setup *setup, struct mem_net **out)
{
    assert(setup->size >= 1);
    struct heap *heap = heap_open(0);
    struct mem_net *net = heap ? heap_alloc(heap, 1, sizeof *net) : NULL;
    if (!net) {
        heap_close(heap);
        return HEARTH_NO_MEMORY;
    }
    net->heap = heap;
    net->setup = *setup;
    prng_init(&net->prng, setup->seed);
    atomic_init(&net->members, setup->size);
    int status = net_fill(net);
    if (status != HEARTH_OK) {
        net_free(net);
        return status;
    }
    *out = net;
    return HEARTH_OK;
}

void mem_net_put(struct mem_net *net)
{
    if (atomic_fetch_sub(&net->members, 1) == 1)
        net_free(net);
}

void mem_net_forget(struct mem_net *net)
{
    if (atomic_fetch_sub(&net->members, 1) > 1)
        return;
    net->post_runs = net->post_has_bell = false;
    net->bells_ready = 0;
    net_free(net);
}

struct conn *mem_net_conn(struct mem_net *net, int rank, int peer)
{
    assert(rank != peer);
    return &net->conns[rank * net->setup.size + peer].conn;
}

struct bell *mem_net_bell(struct mem_net *net, int rank)
{
    return &net->bells[rank];
}
