/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint: one socket for all lines. The ids by which peers call us begin with the number of a line and
 * six bytes that only its peer knows: a datagram finds its line without a search, a forged one is dropped
 * undecrypted. */
#include "transport/quic.h"

#include <string.h>

#include "core/bytes.h"
#include "os/clock.h"
#include "os/random.h"
#include "transport/quic_line.h"

#define SOCKET_BYTES  (8 << 20) /* buffers in the system: a request */
#define HEAR_ROUNDS   2         /* looks at a socket that always has more */
#define LINES_FIRST   16
#define LINES_MAX     65536
#define RETRIES_PER_S 500
#define WORDS_PER_S   5
#define CODE_GOODBYE  0

bool quic_meter_take(struct quic_meter *meter, uint64_t now_ns)
{
    meter->left += (double)(now_ns - meter->at_ns) / (double)NS_PER_S * meter->per_s;
    meter->left = meter->left < meter->burst ? meter->left : meter->burst;
    meter->at_ns = now_ns;
    if (meter->left < 1)
        return false;
    meter->left -= 1;
    return true;
}

static struct quic_meter meter_of(double per_s, uint64_t now_ns)
{
    return (struct quic_meter){.left = per_s, .per_s = per_s, .burst = per_s, .at_ns = now_ns};
}

bool quic_built(void)
{
    return true;
}

/* ---- making and ending ---- */

int quic_open(const struct quic_setup *setup, struct quic **out, struct error *error)
{
    struct quic *quic = heap_alloc(setup->heap, 1, sizeof *quic);
    if (!quic)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "quic: no memory");
    quic->setup = *setup;
    quic->heap = setup->heap;
    quic->port.fd = -1;
    quic->due_ns = NEVER_NS;
    list_init(&quic->dirty);
    uint64_t now_ns = clock_real();
    quic->retries = meter_of(RETRIES_PER_S, now_ns);
    admission_init(&quic->admission, 0);
    quic->words = meter_of(WORDS_PER_S, now_ns);
    quic->in = heap_alloc_raw(quic->heap, QUIC_LISTS, DATAGRAM_BATCH);
    quic->out = heap_alloc_raw(quic->heap, 1, DATAGRAM_BATCH);
    int status = HEARTH_OK;
    if (!quic->in || !quic->out)
        status = error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "quic: no memory");
    else if (random_bytes(quic->token_key, sizeof quic->token_key) != HEARTH_OK)
        status = error_set(error, HEARTH_SYSTEM, RANK_NONE, "quic: the system gives no random numbers");
    else
        status = datagram_open(&setup->local, SOCKET_BYTES, &quic->port, &quic->bound, error);
    if (status != HEARTH_OK) {
        quic_close(quic);
        return status;
    }
    *out = quic;
    return HEARTH_OK;
}

/* Lines whose peers have all, or whose time is over, say goodbye. */
static bool end_lingering(struct quic *quic, uint64_t now_ns)
{
    bool any = false;
    for (int i = 0; i < quic->capacity; i++) {
        struct quic_line *line = quic->lines[i];
        if (!line || line->stage != LINE_LINGERS)
            continue;
        if (quic_line_settled(line, now_ns) || line->deadline_ns <= now_ns)
            quic_line_end(line, CODE_GOODBYE);
        else
            any = true;
    }
    return any;
}

void quic_close(struct quic *quic)
{
    if (!quic)
        return;
    uint64_t now_ns = clock_real();
    while (end_lingering(quic, now_ns)) {
        struct sock_wait item = {.fd = quic->port.fd, .want_recv = true, .want_send = quic->stuck};
        sock_wait(&item, 1, quic->due_ns < now_ns + QUIC_LINGER_NS ? quic->due_ns : now_ns + QUIC_LINGER_NS);
        now_ns = clock_real();
        quic_hear(quic);
        quic_tick(quic, now_ns);
        quic_speak(quic);
    }
    for (int i = 0; i < quic->capacity; i++)
        if (quic->lines[i])
            quic_line_end(quic->lines[i], CODE_GOODBYE);
    datagram_close(&quic->port);
    heap_free(quic->lines);
    heap_free(quic->in);
    heap_free(quic->out);
    heap_free(quic);
}

struct sock_addr quic_addr(const struct quic *quic)
{
    return quic->bound;
}

static bool grow_lines(struct quic *quic)
{
    int capacity = quic->capacity > 0 ? 2 * quic->capacity : LINES_FIRST;
    if (capacity > LINES_MAX)
        return false;
    struct quic_line **lines = heap_alloc(quic->heap, (size_t)capacity, sizeof *lines);
    if (!lines)
        return false;
    if (quic->capacity > 0)
        memcpy(lines, quic->lines, (size_t)quic->capacity * sizeof *lines);
    heap_free(quic->lines);
    quic->lines = lines;
    quic->capacity = capacity;
    return true;
}

struct quic_line *quic_line_new(struct quic *quic, bool dials)
{
    int slot = 0;
    while (slot < quic->capacity && quic->lines[slot])
        slot++;
    if (slot == quic->capacity && !grow_lines(quic))
        return NULL;
    struct quic_line *line = heap_alloc(quic->heap, 1, sizeof *line);
    if (!line || random_bytes(line->tag, sizeof line->tag) != HEARTH_OK) {
        heap_free(line);
        return NULL;
    }
    store_u16(line->tag, (uint16_t)slot);
    list_init(&line->item);
    line->quic = quic;
    line->slot = slot;
    line->due_ns = NEVER_NS;
    line->dials = dials;
    quic->half_open += !dials;
    quic->lines[slot] = line;
    return line;
}

/* ---- in ---- */

static struct quic_line *line_of(const struct quic *quic, const struct quic_id *to)
{
    if (to->len != QUIC_ID_LEN)
        return NULL;
    int slot = load_u16(to->bytes);
    struct quic_line *line = slot < quic->capacity ? quic->lines[slot] : NULL;
    return line && memcmp(line->tag, to->bytes, QUIC_TAG_LEN) == 0 ? line : NULL;
}

/* A stranger that has not heard from us yet still calls us as it likes. */
static struct quic_line *half_open_line(const struct quic *quic, const struct quic_id *to,
                                        const struct sock_addr *from)
{
    for (int i = 0; i < quic->capacity && quic->half_open > 0; i++) {
        struct quic_line *line = quic->lines[i];
        if (line && !line->dials && line->engine && quic_engine_called(line->engine, to) &&
            sock_addr_equal(&line->remote, from))
            return line;
    }
    return NULL;
}

void quic_deliver(struct quic *quic, const uint8_t *bytes, size_t len, const struct sock_addr *from,
                  uint64_t now_ns)
{
    struct quic_id to;
    bool first;
    if (!quic_datagram_read(bytes, len, &to, &first))
        return;
    struct quic_line *line = line_of(quic, &to);
    if (!line && first)
        line = half_open_line(quic, &to, from);
    if (line)
        quic_line_read(line, bytes, len, now_ns);
    else if (first)
        quic_stranger(quic, bytes, len, from, now_ns);
}

/* The system says that a peer's port is closed, and quotes what only that line can have sent. */
static void take_refusals(struct quic *quic)
{
    struct datagram_refusal refusal;
    while (datagram_refused(&quic->port, &refusal))
        for (int i = 0; i < quic->capacity; i++) {
            struct quic_line *line = quic->lines[i];
            if (line && line->stage >= LINE_UP && sock_addr_equal(&line->remote, &refusal.to) &&
                quic_engine_wrote(line->engine, refusal.quote, refusal.len))
                quic_line_lose(line, "its port is closed: the process has ended");
        }
}

void quic_hear(struct quic *quic)
{
    struct datagrams list[QUIC_LISTS];
    int got = QUIC_LISTS;

    for (int i = 0; i < QUIC_LISTS; i++)
        list[i].bytes = quic->in + (size_t)i * DATAGRAM_BATCH;
    for (int round = 0; round < HEAR_ROUNDS && got == QUIC_LISTS; round++) {
        got = datagram_recv(&quic->port, list, QUIC_LISTS);
        uint64_t now_ns = got > 0 ? clock_real() : 0;
        for (int i = 0; i < got; i++)
            for (size_t at = 0; at < list[i].len; at += list[i].size) {
                size_t left = list[i].len - at;
                quic_deliver(quic, list[i].bytes + at, left < list[i].size ? left : list[i].size,
                             &list[i].from, now_ns);
            }
    }
    quic->round++;
    quic->ready = got == QUIC_LISTS;
    quic->emptied = got > 0 && got < QUIC_LISTS;
    if (quic->port.mishaps)
        take_refusals(quic);
}

/* ---- out ---- */

bool quic_out_flush(struct quic *quic)
{
    quic->stuck = false;
    if (quic->out_len == 0)
        return true;
    int status = datagram_send(&quic->port, &quic->out_to, quic->out, quic->out_len, quic->out_size);
    if (status == HEARTH_PENDING) {
        quic->stuck = true;
        return false;
    }
    if (status == HEARTH_LIMIT && quic->out_line)
        quic->out_line->datagram_size = DATAGRAM_SIZE_SAFE;
    quic->out_len = 0;
    return true;
}

void quic_speak(struct quic *quic)
{
    if (list_empty(&quic->dirty))
        return;
    struct list *item, *after, now;
    list_init(&now);
    LIST_EACH (item, after, &quic->dirty) { /* those that stay dirty come to the end, for the next time */
        list_remove(item);
        list_push(&now, item);
    }
    uint64_t now_ns = clock_real();
    LIST_EACH (item, after, &now)
        quic_line_write(container_of(item, struct quic_line, item), now_ns);
}

void quic_tick(struct quic *quic, uint64_t now_ns)
{
    if (now_ns < quic->due_ns)
        return;
    quic->due_ns = NEVER_NS;
    end_lingering(quic, now_ns);
    for (int i = 0; i < quic->capacity; i++) {
        struct quic_line *line = quic->lines[i];
        if (!line || line->lost)
            continue;
        if (line->due_ns <= now_ns)
            quic_line_dirty(line);
        else if (line->due_ns < quic->due_ns)
            quic->due_ns = line->due_ns;
    }
}
