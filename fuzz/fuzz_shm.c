/* SPDX-License-Identifier: Apache-2.0 */
/* A link over real shared memory, with a peer that writes whatever it likes into the page, the rings and the
 * socket beside them: no crash, nothing read that is not there, nothing of ours told twice or too early.
 *
 * The input is a list of steps of the peer and of our side. Frames have a right header, so that what stands
 * behind it is reached; everything else comes from the input. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "os/clock.h"
#include "os/memory.h"
#include "os/sock.h"
#include "transport/link.h"
#include "transport/shm.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define MAGIC      UINT64_C(0x314d487368746165)
#define RING       8192u
#define STEPS_MAX  300
#define LOANS_MAX  64
#define SENDS_MAX  32
#define REGIONS    4
#define MEMORY_MAX (8u << 20)

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* ---- the peer: side 0, which has made the page ---- */

struct side {
    _Alignas(128) _Atomic(uint64_t) head;
    _Alignas(128) _Atomic(uint64_t) tail;
    _Alignas(128) _Atomic(uint64_t) returned;
    _Atomic(uint64_t) withdrawn;
    _Alignas(128) _Atomic(uint32_t) dozing;
    _Atomic(uint32_t) closed;
};

struct page {
    uint64_t magic, ring_bytes;
    struct side sides[2];
};

struct send {
    bool out; /* its memory is the link's */
};

struct world {
    struct page *page;
    size_t page_len;
    int memory_fd, fd;
    struct event event; /* the peer's */
    int region_fds[2];  /* of the peer, of one page and of two */
    uint64_t sequence;  /* of its frames */

    struct heap heap;
    struct metrics metrics;
    struct event own;
    struct shm_regions *regions;
    uint8_t *buffers[REGIONS]; /* ours, which the peer may read; NULL: none */
    struct link link;
    bool up, lend;
    struct loan loans[LOANS_MAX];
    int loan_count;
    struct send sends[SENDS_MAX];
    uint8_t target[RING];
    uint8_t plain[RING]; /* memory that the peer cannot see */
    uint8_t seen;
};

static void ring_put(struct world *w, const void *bytes, size_t len)
{
    struct side *s = &w->page->sides[0];
    uint8_t *ring = (uint8_t *)w->page + memory_page();
    for (size_t i = 0; i < len; i++)
        ring[(s->head + i) % RING] = ((const uint8_t *)bytes)[i];
    s->head += len;
}

/* ---- our side ---- */

static void *on_data(void *arg, struct link *link, int pipe, const struct frame *frame, bool lends,
                     void **cookie)
{
    struct world *w = arg;
    (void)link, (void)pipe;
    must(w->up);
    *cookie = w;
    if (w->lend && lends && w->loan_count < LOANS_MAX)
        return LINK_LEND;
    if (frame->length <= sizeof w->target)
        return w->target;
    *cookie = NULL;
    return NULL;
}

static void touch(struct world *w, const struct loan *loan, size_t len)
{
    const uint8_t *bytes = loan->data;
    for (size_t i = 0; i < len; i += 64)
        w->seen ^= bytes[i];
    if (len > 0)
        w->seen ^= bytes[len - 1];
    w->seen ^= loan_good(loan);
}

static void on_payload(void *arg, struct link *link, const struct frame *frame, void *cookie,
                       struct loan *loan)
{
    struct world *w = arg;
    (void)link;
    must(w->up && cookie == w);
    if (!loan->data)
        return;
    touch(w, loan, frame->length);
    must(w->loan_count < LOANS_MAX);
    w->loans[w->loan_count++] = *loan;
}

static void on_control(void *arg, struct link *link, const struct frame *frame, const uint8_t *payload)
{
    struct world *w = arg;
    (void)link;
    must(w->up);
    for (uint32_t i = 0; i < frame->length; i++)
        w->seen ^= payload[i];
}

static void on_sent(void *arg, struct link *link, const struct link_item *item)
{
    struct send *send = item->owner;
    (void)arg, (void)link;
    must(send->out);
    send->out = false;
}

static void on_room(void *arg, struct link *link)
{
    (void)arg, (void)link;
}

static void loan_give_back(struct world *w, int at)
{
    loan_end(&w->loans[at]);
    w->loans[at] = w->loans[--w->loan_count];
}

static void on_held_up(void *arg, struct link *link)
{
    struct world *w = arg;
    (void)link;
    for (int i = w->loan_count - 1; i >= 0; i--)
        if (loan_holds_up(&w->loans[i]))
            loan_give_back(w, i);
}

static void on_down(void *arg, struct link *link, const struct error *why)
{
    struct world *w = arg;
    (void)link;
    must(w->up && status_is_error(why->status) && why->text[0] != '\0');
    w->up = false;
}

static const struct link_events events = {
    .on_data = on_data,
    .on_payload = on_payload,
    .on_control = on_control,
    .on_sent = on_sent,
    .on_room = on_room,
    .on_held_up = on_held_up,
    .on_down = on_down,
};

/* ---- opening and closing ---- */

static void world_open(struct world *w)
{
    int fds[2], got = -1, count = 0;
    uint8_t words[16];
    struct error error;
    struct conn *conn;
    heap_init(&w->heap, 0);
    must(metrics_init(&w->metrics, 2, &w->heap) == HEARTH_OK);
    w->page_len = memory_page() + 2 * RING;
    must(event_open(&w->event) == HEARTH_OK && event_open(&w->own) == HEARTH_OK);
    must(sock_pair(fds) == HEARTH_OK && shared_make(w->page_len, &w->memory_fd) == HEARTH_OK);
    for (size_t i = 0; i < 2; i++)
        must(shared_make((i + 1) * memory_page(), &w->region_fds[i]) == HEARTH_OK);
    w->page = shared_map(w->memory_fd, w->page_len, true);
    w->regions = shm_regions_open(&w->heap);
    must(w->page && w->regions);
    w->page->magic = MAGIC;
    w->page->ring_bytes = RING;
    w->fd = fds[0];
    store_u64(words, MAGIC);
    store_u64(words + 8, RING);
    must(sock_send_fds(w->fd, words, sizeof words, (int[]){w->memory_fd, w->event.write_fd}, 2) == HEARTH_OK);
    struct shm_setup setup = {.heap = &w->heap,
                              .fd = fds[1],
                              .event = &w->own,
                              .regions = w->regions,
                              .deadline_ns = clock_real() + NS_PER_S};
    must(shm_conn_open(&setup, &conn, &error) == HEARTH_OK);
    must(sock_recv_fds(w->fd, words, sizeof words, &got, 1, &count) == sizeof words && count == 1);
    shared_close(got);
    link_init(&w->link, &(struct link_setup){.conns = &conn,
                                             .count = 1,
                                             .events = &events,
                                             .events_arg = w,
                                             .heap = &w->heap,
                                             .metrics = &w->metrics,
                                             .rank = 1,
                                             .eager_budget = 4096});
    w->up = true;
    link_send_hello(&w->link, "hello", 5);
}

static void world_close(struct world *w)
{
    link_fini(&w->link);
    while (w->loan_count > 0) { /* what was lent can be read until it is given back */
        touch(w, &w->loans[0], 1);
        loan_give_back(w, 0);
    }
    shm_regions_close(w->regions);
    metrics_fini(&w->metrics);
    must(w->heap.blocks == 0 && w->heap.bytes_peak < MEMORY_MAX);
    shared_unmap(w->page, w->page_len);
    shared_close(w->memory_fd);
    for (int i = 0; i < 2; i++)
        shared_close(w->region_fds[i]);
    event_close(&w->event);
    event_close(&w->own);
    sock_close(w->fd);
}

/* ---- steps of the peer ---- */

static void do_frame(struct world *w, struct reader *r)
{
    uint8_t kind = get_u8(r), header[FRAME_HEADER_LEN], reference[REFERENCE_LEN];
    struct frame frame = {.kind = kind & 0x40 ? FRAME_PING : FRAME_DATA, .epoch = 1, .weight = 1};
    static uint8_t payload[RING];
    frame.kind = w->sequence == 0 ? FRAME_HELLO : frame.kind;
    frame.length = frame.kind == FRAME_DATA ? get_u16(r) % RING : 0;
    frame.link_sequence = ++w->sequence;
    if (frame.kind == FRAME_DATA && (kind & 1))
        frame.flags = FRAME_REFERENCE;
    frame_encode(&frame, header);
    ring_put(w, header, sizeof header);
    store_u32(reference, get_u8(r) % 72);
    store_u32(reference + 4, get_u8(r) % 8);
    store_u64(reference + 8, kind & 2 ? get_u64(r) : 0);
    if (frame.flags & FRAME_REFERENCE)
        ring_put(w, reference, sizeof reference);
    else if (frame.length < RING / 2)
        ring_put(w, payload, frame.length);
}

static void do_number(struct world *w, struct reader *r)
{
    uint8_t which = get_u8(r);
    struct side *s = &w->page->sides[which & 1];
    _Atomic(uint64_t) *numbers[] = {&s->head, &s->tail, &s->returned, &s->withdrawn};
    _Atomic(uint64_t) *number = numbers[which >> 1 & 3];
    if (which & 0x40)
        *number = get_u64(r);
    else
        *number += (uint64_t)(int64_t)(int16_t)get_u16(r);
    if ((which & 0x30) == 0x30)
        s->dozing = get_u32(r);
    if ((which & 0x30) == 0x10 && (which & 8))
        s->closed = get_u8(r);
}

static void do_word(struct world *w, struct reader *r)
{
    uint8_t what = get_u8(r), word[16];
    size_t page = memory_page();
    int fds[] = {w->region_fds[0], w->region_fds[1], w->event.write_fd, w->fd};
    store_u32(word, what & 1 ? 1 : what & 2 ? 2 : what);
    store_u32(word + 4, get_u8(r) % 80);
    store_u64(word + 8, what & 0x80 ? get_u64(r) : (what >> 2 & 1) * page + page);
    size_t len = what & 0x40 ? get_u8(r) % 17u : sizeof word;
    int fd = fds[what >> 2 & 3];
    if (w->fd < 0)
        return;
    if (what & 1 && len == sizeof word)
        (void)!sock_send_fds(w->fd, word, len, &fd, 1);
    else
        (void)!sock_send(w->fd, &(struct iovec){word, len}, 1);
}

/* ---- steps of our side ---- */

static void do_send(struct world *w, struct reader *r)
{
    uint8_t what = get_u8(r);
    struct send *send = &w->sends[what % SENDS_MAX];
    size_t len = get_u16(r) % RING;
    uint8_t *buffer = w->buffers[(what >> 5) % REGIONS];
    if (send->out || !w->up || !link_room(&w->link, LINK_NORMAL))
        return;
    struct frame frame = {.kind = FRAME_DATA, .length = (uint32_t)len};
    send->out = true;
    link_send_data(&w->link, &(struct link_data){.frame = frame,
                                                 .payload = buffer ? buffer : w->plain,
                                                 .owner = send,
                                                 .cookie = w,
                                                 .class = LINK_NORMAL});
}

static void do_region(struct world *w, uint8_t what)
{
    uint8_t **buffer = &w->buffers[what % REGIONS];
    for (int i = 0; i < SENDS_MAX; i++)
        if (w->sends[i].out)
            return; /* its memory is not ours to give away */
    if (*buffer) {
        must(shm_region_drop(w->regions, *buffer));
        *buffer = NULL;
    } else {
        *buffer = shm_region_make(w->regions, RING);
    }
}

static void do_step(struct world *w, struct reader *r)
{
    uint8_t what = get_u8(r), more;
    struct sock_wait waits[1];
    switch (what & 15) {
    case 0:
    case 1:
        do_frame(w, r);
        break;
    case 2:
        more = get_u8(r);
        more = reader_left(r) < more ? (uint8_t)reader_left(r) : more;
        ring_put(w, r->at, more);
        r->at += more;
        break;
    case 3:
        do_number(w, r);
        break;
    case 4: /* it has read all that we said */
        w->page->sides[0].tail = w->page->sides[1].head;
        break;
    case 5: /* and gives back what the bits say */
        more = get_u8(r);
        atomic_fetch_or(&w->page->sides[1].returned, more & 0x80 ? get_u64(r) : UINT64_C(1) << (more & 63));
        break;
    case 6:
        do_word(w, r);
        break;
    case 7:
        if (get_u8(r) == 0) {
            sock_close(w->fd);
            w->fd = -1;
        }
        break;
    case 8:
    case 9:
        do_send(w, r);
        break;
    case 10:
        more = get_u8(r);
        if (w->loan_count > 0)
            loan_give_back(w, more % w->loan_count);
        break;
    case 11:
        more = get_u8(r) % SENDS_MAX;
        if (w->up)
            link_forget(&w->link, &w->sends[more]);
        w->sends[more].out = false;
        break;
    case 12:
        do_region(w, get_u8(r));
        break;
    case 13:
        w->lend = !w->lend;
        break;
    case 14:
        link_doze(&w->link, what & 0x10);
        break;
    default:
        if (link_waits(&w->link, waits, 1) == 1) {
            waits[0].ready = true;
            link_attend(&w->link, waits, 1);
        }
    }
    if (!(what & 0x80)) /* else the next thing happens first */
        for (int i = 0; i < 1000 && link_pump(&w->link); i++)
            continue;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct world *w = calloc(1, sizeof *w);
    struct reader r = reader_of(bytes, len);
    must(w);
    world_open(w);
    for (int i = 0; i < STEPS_MAX && reader_left(&r) > 0; i++)
        do_step(w, &r);
    world_close(w);
    free(w);
    return 0;
}
