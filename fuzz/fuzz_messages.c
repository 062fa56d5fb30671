/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the consensus, into one that is in a view of three: none may do harm, refused ones say why, it
 * stays in its own view, and epochs only rise. Input: for each message who sends it and how much later
 * (1 byte: bit 0 who, the rest in steps of 20 ms), kind (1), length (2), payload. */
#include <stdlib.h>
#include <string.h>

#include "membership/consensus.h"

#define INSTANCE UINT64_C(77) /* of the view of three; fuzz/make_consensus.py knows it */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static struct peer_info info(int number)
{
    struct peer_info f;
    memset(&f, 0, sizeof f);
    f.id.node.bytes[0] = (uint8_t)number;
    f.id.instance = (uint64_t)number;
    f.machine = (uint64_t)number;
    f.name[0] = (char)('a' + number);
    return f;
}

static void check_view(const uint8_t *bytes, size_t len)
{
    static struct view c;
    static uint8_t one[VIEW_LEN_MAX], two[VIEW_LEN_MAX];
    struct reader r = reader_of(bytes, len);
    if (!view_get(&r, &c))
        return;
    struct writer w = writer_of(one, sizeof one);
    view_put(&w, &c);
    r = reader_of(one, (size_t)(w.at - one));
    struct writer again = writer_of(two, sizeof two);
    if (w.bad || !view_get(&r, &c) || reader_left(&r) != 0)
        abort();
    view_put(&again, &c);
    if (again.at - two != w.at - one || memcmp(one, two, (size_t)(w.at - one)) != 0)
        abort();
}

static void empty(struct outbox *box)
{
    struct outbox_message *message;
    while ((message = outbox_take(box))) {
        if (message->kind < MESSAGE_BEAT || message->kind > MESSAGE_DISSOLVE)
            abort();
        heap_free(message);
    }
}

static void say(struct consensus *a, int from, uint8_t kind, const struct writer *w, const uint8_t *bytes)
{
    const char *what;
    struct identity id = info(from).id;
    if (consensus_input(a, &(struct received){&id, kind, bytes, (size_t)(w->at - bytes)}, NS_PER_S, &what) !=
        HEARTH_OK)
        abort();
}

/* Joins instance 77 in its epoch 5: 1, who leads, 2, and 3: we. */
static void join(struct consensus *a)
{
    static struct view c;
    static uint8_t bytes[2048];
    struct writer w = writer_of(bytes, sizeof bytes);
    const uint64_t beat[] = {1, 0, 0, INSTANCE, 4, 0, 0, 2 | 9u << 16, 0, 0};
    for (size_t i = 0; i < sizeof beat / sizeof beat[0]; i++)
        put_u64(&w, beat[i]);
    say(a, 1, MESSAGE_BEAT, &w, bytes);
    c = (struct view){.instance = INSTANCE, .epoch = 5, .term = 3, .leader = 0, .size = 3};
    for (int i = 0; i < 3; i++)
        c.members[i] = info(i + 1);
    w = writer_of(bytes, sizeof bytes);
    view_put(&w, &c);
    for (int from = 1; from <= 2; from++)
        say(a, from, MESSAGE_VIEW, &w, bytes); /* one alone is not believed */
    if (consensus_view(a)->instance != INSTANCE)
        abort();
}

static void feed(struct consensus *a, struct outbox *box, struct reader *r)
{
    uint64_t now = NS_PER_S;
    struct identity self = info(3).id;
    while (reader_left(r) >= 4) {
        uint8_t head = get_u8(r), kind = get_u8(r);
        size_t length = get_u16(r);
        const char *what = NULL;
        struct view before = *consensus_view(a);
        struct identity from = info(1 + (head & 1)).id;
        length = length < reader_left(r) ? length : reader_left(r);
        now += (uint64_t)(head >> 1) * 20 * NS_PER_MS;
        consensus_tick(a, now);
        check_view(r->at, length);
        if (consensus_input(a, &(struct received){&from, kind, r->at, length}, now, &what) != HEARTH_OK &&
            (!what || what[0] == '\0'))
            abort();
        r->at += length;
        empty(box);
        const struct view *after = consensus_view(a);
        if (view_find(after, &self) < 0 ||
            (after->instance == before.instance && after->epoch < before.epoch))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct heap heap;
    struct outbox box;
    static struct event_log events;
    struct consensus *a;
    struct reader r = reader_of(bytes, len);

    heap_init(&heap, 0);
    outbox_init(&box, &heap);
    struct consensus_setup setup = {.heap = &heap,
                                    .outbox = &box,
                                    .events = &events,
                                    .self = info(3),
                                    .health = health_preset_find("default"),
                                    .seed = 1,
                                    .now_ns = NS_PER_S};
    if (consensus_open(&setup, &a) != HEARTH_OK)
        abort();
    for (int i = 1; i <= 2; i++) {
        struct peer_info peer = info(i);
        consensus_linked(a, &peer, NS_PER_S);
    }
    join(a);
    feed(a, &box, &r);
    consensus_close(a);
    outbox_fini(&box);
    if (heap.blocks != 0)
        abort();
    return 0;
}
