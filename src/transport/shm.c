/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory between two processes.
 *
 *   page    | numbers of both sides | ring of side 0 | ring of side 1 |
 *
 * Each ring is mapped twice in a row, so any part of it is one piece of memory: a payload can be read where
 * it stands (lent) until its reader gives it back. A ring larger than a core's own cache is faster: writing
 * lines that the other core still holds costs four times as much.
 *
 *   producer: bytes -> ring, head forward. Consumer: reads up to head; what is neither unread nor lent:
 * tail.
 *
 * A side that sleeps says so in `dozing`; the side that moves a number it waits for signals its descriptor.
 * The fences make sure that one of the two sees the other's store. */
#include "transport/shm.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "core/bytes.h"
#include "os/clock.h"
#include "os/memory.h"
#include "os/sock.h"
#include "transport/shm_region.h"

#define MAGIC       UINT64_C(0x314d487368746165) /* of the page and of the words that hand it over */
#define LOANS_MAX   256u
#define RING_MIN    4096u
#define RING_MAX    (64u << 20)
#define OFFER_LEN   16
#define TOKEN_REF   (UINT64_C(1) << 63) /* the rest is the number of a reference; else of a loan */
#define DOZING_DATA 1u
#define DOZING_ROOM 2u
#define LINE        128 /* bytes that processors move together */

/* One side's: written by it, but for what the comments say. */
struct shm_side {
    _Alignas(LINE) _Atomic(uint64_t) head;     /* bytes put into its ring */
    _Alignas(LINE) _Atomic(uint64_t) tail;     /* bytes of the other's ring that are free again */
    _Alignas(LINE) _Atomic(uint64_t) returned; /* by the other: references that it has read */
    _Atomic(uint64_t) withdrawn;               /* references whose memory has been taken back */
    _Alignas(LINE) _Atomic(uint32_t) dozing;   /* DOZING_ bits; the other clears them when it signals */
    _Atomic(uint32_t) closed;
};

struct page {
    uint64_t magic, ring_bytes;
    struct shm_side sides[2];
};

/* Bytes of the peer's ring that somebody reads where they stand. */
struct lent {
    uint64_t start;
    bool back;
};

struct shm_conn {
    struct conn conn;
    int fd;
    struct event peer_event; /* only to signal */
    struct shm_regions *regions;
    struct region_peer peer_regions;
    struct page *page;
    size_t page_len;
    struct shm_side *own, *peer;
    uint8_t *out, *in; /* rings, each mapped twice */
    size_t ring_bytes;

    uint64_t head, tail_seen; /* of our ring: where we write, what we know to be free */
    uint64_t read, head_seen; /* of the peer's: where we read, how far it has written */
    struct lent lent[LOANS_MAX];
    uint64_t lent_first, lent_next;
    uint64_t references; /* numbers in use */
    uint64_t looked_up;  /* references of the peer that we have not given back */
    bool gone;           /* the peer */
    bool closed;         /* this end; freed when nothing is lent any more */
};

static struct shm_conn *shm_of(const struct conn *conn)
{
    return container_of(conn, struct shm_conn, conn);
}

/* ---- waking ---- */

static void wake_peer(struct shm_conn *c, uint32_t reason)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!(atomic_load_explicit(&c->peer->dozing, memory_order_relaxed) & reason))
        return;
    if (atomic_exchange(&c->peer->dozing, 0) != 0)
        event_signal(&c->peer_event);
}

static void shm_doze(struct conn *conn, bool asleep, bool want_room)
{
    uint32_t bits = asleep ? DOZING_DATA | (want_room ? DOZING_ROOM : 0) : 0;
    atomic_store(&shm_of(conn)->own->dozing, bits);
}

static int shm_descriptor(const struct conn *conn)
{
    return shm_of(conn)->fd;
}

static void shm_attend(struct conn *conn)
{
    struct shm_conn *c = shm_of(conn);
    if (!c->gone && !region_hear(&c->peer_regions))
        c->gone = true;
}

/* ---- sending ---- */

static size_t room(struct shm_conn *c, size_t want)
{
    size_t free = c->ring_bytes - (size_t)(c->head - c->tail_seen);
    if (free >= want)
        return free;
    uint64_t tail = atomic_load_explicit(&c->peer->tail, memory_order_acquire);
    if (tail < c->tail_seen || tail > c->head) { /* it writes nonsense: do not write over what it reads */
        c->gone = true;
        return 0;
    }
    c->tail_seen = tail;
    return c->ring_bytes - (size_t)(c->head - tail);
}

static ssize_t shm_send(struct conn *conn, const struct iovec *pieces, int count)
{
    struct shm_conn *c = shm_of(conn);
    size_t want = 0, done = 0;
    if (c->gone || atomic_load_explicit(&c->peer->closed, memory_order_relaxed))
        return HEARTH_PEER_LOST;
    for (int i = 0; i < count; i++)
        want += pieces[i].iov_len;
    size_t free = room(c, want);
    for (int i = 0; i < count && free > 0; i++) {
        size_t len = pieces[i].iov_len < free ? pieces[i].iov_len : free;
        memcpy(c->out + ((c->head + done) & (c->ring_bytes - 1)), pieces[i].iov_base, len);
        done += len;
        free -= len;
    }
    if (done == 0)
        return c->gone ? HEARTH_PEER_LOST : 0;
    c->head += done;
    atomic_store_explicit(&c->own->head, c->head, memory_order_release);
    wake_peer(c, DOZING_DATA);
    return (ssize_t)done;
}

/* ---- receiving ---- */

static size_t available(struct shm_conn *c, size_t want)
{
    size_t there = (size_t)(c->head_seen - c->read);
    if (there >= want)
        return there;
    uint64_t head = atomic_load_explicit(&c->peer->head, memory_order_acquire);
    if (head < c->head_seen || head - c->read > c->ring_bytes) {
        c->gone = true;
        return 0;
    }
    c->head_seen = head;
    return (size_t)(head - c->read);
}

static bool peer_ended(struct shm_conn *c)
{
    return c->gone || atomic_load_explicit(&c->peer->closed, memory_order_acquire);
}

/* Where the oldest loan begins; without one, what is unread. */
static uint64_t oldest(const struct shm_conn *c)
{
    return c->lent_first != c->lent_next ? c->lent[c->lent_first % LOANS_MAX].start : c->read;
}

/* What is neither unread nor lent is the peer's again. */
static void free_read(struct shm_conn *c)
{
    while (c->lent_first != c->lent_next && c->lent[c->lent_first % LOANS_MAX].back)
        c->lent_first++;
    uint64_t tail = oldest(c);
    if (tail == atomic_load_explicit(&c->own->tail, memory_order_relaxed))
        return;
    atomic_store_explicit(&c->own->tail, tail, memory_order_release);
    wake_peer(c, DOZING_ROOM);
}

static ssize_t shm_recv(struct conn *conn, void *target, size_t len_max)
{
    struct shm_conn *c = shm_of(conn);
    bool ended = peer_ended(c); /* first this, then what it wrote: nothing is missed */
    size_t len = available(c, len_max);
    len = len < len_max ? len : len_max;
    if (len == 0)
        return ended || c->gone ? HEARTH_PEER_LOST : 0;
    memcpy(target, c->in + (c->read & (c->ring_bytes - 1)), len);
    c->read += len;
    free_read(c);
    return (ssize_t)len;
}

/* ---- lending ---- */

/* At most half of a ring: a peer must always be able to say something more. */
static bool shm_lends(const struct conn *conn, size_t len)
{
    const struct shm_conn *c = shm_of(conn);
    return c->lent_next - c->lent_first < LOANS_MAX && c->read - oldest(c) + len <= c->ring_bytes / 2;
}

/* Room ends where the oldest loan begins, whatever has been read behind it. A sender without room cannot say
 * what may be needed to end that loan. */
static bool shm_held_up(const struct conn *conn)
{
    const struct shm_conn *c = shm_of(conn);
    return c->read - oldest(c) > c->ring_bytes / 2;
}

static bool shm_holds_up(uint64_t token)
{
    return !(token & TOKEN_REF);
}

static ssize_t shm_ready(struct conn *conn, size_t len)
{
    struct shm_conn *c = shm_of(conn);
    bool ended = peer_ended(c);
    if (available(c, len) >= len)
        return (ssize_t)len;
    return ended || c->gone ? HEARTH_PEER_LOST : 0;
}

static const void *shm_borrow(struct conn *conn, size_t len, uint64_t *token)
{
    struct shm_conn *c = shm_of(conn);
    const void *bytes = c->in + (c->read & (c->ring_bytes - 1));
    assert(c->head_seen - c->read >= len && c->lent_next - c->lent_first < LOANS_MAX);
    c->lent[c->lent_next % LOANS_MAX] = (struct lent){.start = c->read};
    *token = c->lent_next++;
    c->read += len;
    return bytes;
}

static const void *shm_look_up(struct conn *conn, const uint8_t reference[REFERENCE_LEN], size_t len,
                               uint64_t *token)
{
    struct shm_conn *c = shm_of(conn);
    uint32_t number;
    const void *memory = region_find(&c->peer_regions, reference, len, &number);
    if (!memory)
        return NULL;
    c->looked_up |= UINT64_C(1) << number;
    *token = TOKEN_REF | number;
    return memory;
}

static int shm_refer(struct conn *conn, const void *memory, size_t len, uint8_t reference[REFERENCE_LEN])
{
    struct shm_conn *c = shm_of(conn);
    if (!c->regions || ~c->references == 0 || c->gone)
        return -1;
    int number = __builtin_ctzll(~c->references);
    if (!region_refer(c->regions, &c->peer_regions, memory, len, (uint32_t)number, reference))
        return -1;
    c->references |= UINT64_C(1) << number;
    atomic_fetch_and(&c->own->withdrawn, ~(UINT64_C(1) << number));
    return number;
}

static void shm_withdraw(struct conn *conn, int number)
{
    atomic_fetch_or(&shm_of(conn)->own->withdrawn, UINT64_C(1) << number);
}

/* What stands in the ring does not change. */
static bool shm_good(const struct conn *conn, uint64_t token)
{
    const struct shm_conn *c = shm_of(conn);
    if (!(token & TOKEN_REF))
        return true;
    atomic_thread_fence(memory_order_seq_cst); /* first the reading, then this */
    return !(atomic_load(&c->peer->withdrawn) >> (token & 63) & 1);
}

static uint64_t shm_returned(struct conn *conn)
{
    struct shm_conn *c = shm_of(conn);
    if (atomic_load_explicit(&c->own->returned, memory_order_relaxed) == 0)
        return 0;
    uint64_t back = atomic_exchange(&c->own->returned, 0);
    for (uint64_t left = back & c->references; left != 0; left &= left - 1)
        region_returned(&c->peer_regions, (uint32_t)__builtin_ctzll(left));
    c->references &= ~back;
    return back;
}

static void conn_free(struct shm_conn *c)
{
    region_peer_fini(&c->peer_regions);
    shared_unmap(c->out, 2 * c->ring_bytes);
    shared_unmap(c->in, 2 * c->ring_bytes);
    shared_unmap(c->page, c->page_len);
    event_close(&c->peer_event);
    sock_close(c->fd);
    heap_free(c);
}

static bool nothing_lent(const struct shm_conn *c)
{
    return c->lent_first == c->lent_next && c->looked_up == 0;
}

static void shm_give_back(struct conn *conn, uint64_t token)
{
    struct shm_conn *c = shm_of(conn);
    if (token & TOKEN_REF) {
        uint64_t bit = UINT64_C(1) << (token & 63);
        c->looked_up &= ~bit;
        region_release(&c->peer_regions, (uint32_t)(token & 63));
        atomic_fetch_or(&c->peer->returned, bit);
        wake_peer(c, DOZING_DATA);
    } else {
        c->lent[token % LOANS_MAX].back = true;
        free_read(c);
    }
    if (c->closed && nothing_lent(c))
        conn_free(c);
}

static void shm_close(struct conn *conn)
{
    struct shm_conn *c = shm_of(conn);
    atomic_store(&c->own->closed, 1);
    wake_peer(c, DOZING_DATA);
    c->closed = true;
    if (nothing_lent(c))
        conn_free(c);
}

static const struct sharing shm_sharing = {
    .lends = shm_lends,
    .ready = shm_ready,
    .borrow = shm_borrow,
    .held_up = shm_held_up,
    .holds_up = shm_holds_up,
    .look_up = shm_look_up,
    .good = shm_good,
    .give_back = shm_give_back,
    .withdraw = shm_withdraw,
    .refer = shm_refer,
    .returned = shm_returned,
};

static const struct transport shm_transport = {
    .scheme = "shm",
    .send = shm_send,
    .recv = shm_recv,
    .close = shm_close,
    .descriptor = shm_descriptor,
    .attend = shm_attend,
    .doze = shm_doze,
    .sharing = &shm_sharing,
};

/* ---- handing over ---- */

static bool ring_size_good(uint64_t bytes)
{
    return bytes >= RING_MIN && bytes <= RING_MAX && (bytes & (bytes - 1)) == 0;
}

/* Waits until the socket has something for us or takes something, or the time is over. */
static int socket_wait(const struct shm_setup *setup, bool send, struct error *error)
{
    struct sock_wait item = {.fd = setup->fd, .want_recv = !send, .want_send = send};
    if (sock_wait(&item, 1, stop_look(setup->stop, setup->deadline_ns)) > 0)
        return HEARTH_OK;
    if (clock_real() < setup->deadline_ns && !stop_asked(setup->stop))
        return HEARTH_OK;
    return error_set(error, HEARTH_TIMEOUT, RANK_NONE, "shared memory: the peer does not answer");
}

static int words_send(struct shm_conn *c, const int *fds, int count, const struct shm_setup *setup,
                      struct error *error)
{
    uint8_t words[OFFER_LEN];
    store_u64(words, MAGIC);
    store_u64(words + 8, c->ring_bytes);
    for (;;) {
        int status = sock_send_fds(c->fd, words, sizeof words, fds, count);
        if (status == HEARTH_OK)
            return HEARTH_OK;
        if (status != HEARTH_PENDING)
            return error_set(error, HEARTH_PEER_LOST, RANK_NONE, "shared memory: the peer is gone");
        status = socket_wait(setup, true, error);
        if (status != HEARTH_OK)
            return status;
    }
}

/* The peer's words and exactly `want` descriptors. */
static int words_recv(struct shm_conn *c, uint64_t *ring_bytes, int *fds, int want,
                      const struct shm_setup *setup, struct error *error)
{
    uint8_t words[OFFER_LEN];
    for (;;) {
        int count = 0;
        ssize_t len = sock_recv_fds(c->fd, words, sizeof words, fds, want, &count);
        if (len == OFFER_LEN && count == want && load_u64(words) == MAGIC) {
            *ring_bytes = load_u64(words + 8);
            return HEARTH_OK;
        }
        for (int i = 0; i < count; i++)
            shared_close(fds[i]);
        if (len != 0)
            return error_set(error, len < 0 ? HEARTH_PEER_LOST : HEARTH_PROTOCOL, RANK_NONE,
                             "shared memory: the peer %s", len < 0 ? "is gone" : "hands over something else");
        int status = socket_wait(setup, false, error);
        if (status != HEARTH_OK)
            return status;
    }
}

/* Maps numbers and rings: `side` is ours. */
static int map_all(struct shm_conn *c, int memory, int side, struct error *error)
{
    size_t front = memory_page();
    c->page_len = front + 2 * c->ring_bytes;
    static_assert(sizeof(struct page) <= 4096, "the numbers fit into the smallest page");
    c->page = shared_map(memory, c->page_len, true);
    if (c->page) {
        c->out = shared_map_ring(memory, front + (size_t)side * c->ring_bytes, c->ring_bytes);
        c->in = shared_map_ring(memory, front + (size_t)!side * c->ring_bytes, c->ring_bytes);
    }
    if (!c->page || !c->out || !c->in)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "shared memory: cannot map %zu bytes",
                         c->page_len);
    c->own = &c->page->sides[side];
    c->peer = &c->page->sides[!side];
    return HEARTH_OK;
}

static int take_event(struct shm_conn *c, int fd, struct error *error)
{
    if (event_adopt(&c->peer_event, fd) == HEARTH_OK)
        return HEARTH_OK;
    return error_set(error, HEARTH_PROTOCOL, RANK_NONE, "shared memory: the peer cannot be woken that way");
}

static int make(struct shm_conn *c, const struct shm_setup *setup, struct error *error)
{
    int memory = -1, event;
    uint64_t echo;
    size_t len = memory_page() + 2 * c->ring_bytes;
    if (shared_make(len, &memory) != HEARTH_OK)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "shared memory: no %zu bytes", len);
    int status = map_all(c, memory, 0, error);
    if (status == HEARTH_OK) {
        c->page->magic = MAGIC;
        c->page->ring_bytes = c->ring_bytes;
        status = words_send(c, (int[]){memory, setup->event->write_fd}, 2, setup, error);
    }
    shared_close(memory);
    if (status == HEARTH_OK)
        status = words_recv(c, &echo, &event, 1, setup, error);
    if (status == HEARTH_OK)
        status = take_event(c, event, error);
    return status;
}

static int take(struct shm_conn *c, const struct shm_setup *setup, struct error *error)
{
    int fds[2];
    uint64_t ring_bytes;
    int status = words_recv(c, &ring_bytes, fds, 2, setup, error);
    if (status != HEARTH_OK)
        return status;
    c->ring_bytes = ring_size_good(ring_bytes) ? (size_t)ring_bytes : RING_MIN;
    status = take_event(c, fds[1], error);
    if (status == HEARTH_OK)
        status = map_all(c, fds[0], 1, error);
    shared_close(fds[0]);
    if (status == HEARTH_OK &&
        (c->page->magic != MAGIC || c->ring_bytes != ring_bytes || c->page->ring_bytes != ring_bytes))
        status = error_set(error, HEARTH_PROTOCOL, RANK_NONE, "shared memory: the peer's is something else");
    if (status == HEARTH_OK)
        status = words_send(c, &setup->event->write_fd, 1, setup, error);
    return status;
}

int shm_conn_open(const struct shm_setup *setup, struct conn **out, struct error *error)
{
    struct shm_conn *c = heap_alloc(setup->heap, 1, sizeof *c);
    if (!c) {
        sock_close(setup->fd);
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "shared memory: no memory");
    }
    assert(!setup->maker || ring_size_good(setup->ring_bytes));
    c->conn.transport = &shm_transport;
    c->fd = setup->fd;
    c->peer_event = (struct event){-1, -1};
    c->regions = setup->regions;
    c->ring_bytes = setup->ring_bytes;
    region_peer_init(&c->peer_regions, setup->regions, setup->fd);
    int status = setup->maker ? make(c, setup, error) : take(c, setup, error);
    if (status != HEARTH_OK) {
        conn_free(c);
        return status;
    }
    *out = &c->conn;
    return HEARTH_OK;
}
