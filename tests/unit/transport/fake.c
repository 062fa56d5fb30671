/* SPDX-License-Identifier: Apache-2.0 */
/* A conn whose bytes a test writes and reads itself, and an upper side that writes down what it hears. */
#include "fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void bytes_add(struct bytes *b, const void *data, size_t len)
{
    if (b->len + len > b->room) {
        b->room = (b->len + len) * 2;
        b->data = realloc(b->data, b->room);
        assert_non_null(b->data);
    }
    if (len > 0)
        memcpy(b->data + b->len, data, len);
    b->len += len;
}

static size_t piece(const struct fake *fake, size_t len, size_t max)
{
    if (max > 0 && len > max)
        len = max;
    if (fake->random != NULL && len > 1)
        len = 1 + prng_below(fake->random, len);
    return len;
}

static ssize_t fake_send(struct conn *conn, const struct iovec *pieces, int count)
{
    struct fake *fake = (struct fake *)conn;
    size_t whole = 0, done = 0;
    assert_int_equal(fake->closed, 0);
    if (fake->send_gone)
        return HEARTH_PEER_LOST;
    for (int i = 0; i < count; i++)
        whole += pieces[i].iov_len;
    assert_true(whole > 0);
    size_t len = piece(fake, whole < fake->send_room ? whole : fake->send_room, fake->send_max);
    for (int i = 0; i < count && done < len; i++) {
        size_t n = pieces[i].iov_len < len - done ? pieces[i].iov_len : len - done;
        bytes_add(&fake->out, pieces[i].iov_base, n);
        done += n;
    }
    if (fake->send_room != SIZE_MAX)
        fake->send_room -= len;
    return (ssize_t)len;
}

static ssize_t fake_recv(struct conn *conn, void *target, size_t len_max)
{
    struct fake *fake = (struct fake *)conn;
    assert_int_equal(fake->closed, 0);
    assert_true(len_max > 0);
    size_t left = fake->in.len - fake->in_at;
    if (left == 0)
        return fake->recv_gone ? HEARTH_PEER_LOST : 0;
    size_t len = piece(fake, left < len_max ? left : len_max, fake->recv_max);
    memcpy(target, fake->in.data + fake->in_at, len);
    fake->in_at += len;
    return (ssize_t)len;
}

static void fake_close(struct conn *conn)
{
    ((struct fake *)conn)->closed++;
}

static const struct transport fake_transport = {
    .scheme = "fake", .send = fake_send, .recv = fake_recv, .close = fake_close};

void fake_init(struct fake *fake)
{
    *fake = (struct fake){.conn = {&fake_transport}, .send_room = SIZE_MAX};
}

void fake_fini(struct fake *fake)
{
    free(fake->in.data);
    free(fake->out.data);
}

void fake_frame(struct fake *fake, struct frame frame, const void *payload)
{
    uint8_t header[FRAME_HEADER_LEN];
    frame.link_sequence = ++fake->sequence;
    frame.credit = fake->credit;
    frame_encode(&frame, header);
    bytes_add(&fake->in, header, sizeof header);
    bytes_add(&fake->in, payload, frame.length);
}

void fake_hello(struct fake *fake)
{
    fake_frame(fake, (struct frame){.kind = FRAME_HELLO}, NULL);
}

bool fake_next(struct fake *fake, struct frame *frame, const uint8_t **payload)
{
    const char *what = "";
    const uint8_t *at = fake->out.data + fake->parsed;
    size_t left = fake->out.len - fake->parsed;
    if (left < FRAME_HEADER_LEN)
        return false;
    assert_int_equal(frame_decode(frame, at, &what), HEARTH_OK);
    if (left < FRAME_HEADER_LEN + (size_t)frame->length)
        return false;
    *payload = at + FRAME_HEADER_LEN;
    fake->parsed += FRAME_HEADER_LEN + (size_t)frame->length;
    return true;
}

/* ---- the upper side ---- */

static void note(struct upper *upper, const char *word, uint32_t number)
{
    size_t len = strlen(upper->log);
    snprintf(upper->log + len, sizeof upper->log - len, "%s%s:%u", len > 0 ? " " : "", word, number);
}

static void *on_data(void *arg, struct link *link, const struct frame *frame, void **cookie)
{
    struct upper *upper = arg;
    assert_ptr_equal(link, upper->link);
    note(upper, "data", frame->length);
    if (upper->refuse)
        link_fail(link, HEARTH_PROTOCOL, "refused by the test");
    if (upper->refuse || upper->drop)
        return NULL;
    *cookie = &upper->cookie;
    return upper->no_target ? NULL : upper->target;
}

static void on_payload(void *arg, struct link *link, const struct frame *frame, void *cookie)
{
    struct upper *upper = arg;
    assert_ptr_equal(link, upper->link);
    assert_ptr_equal(cookie, &upper->cookie);
    note(upper, "payload", frame->length);
}

static void on_control(void *arg, struct link *link, const struct frame *frame, const uint8_t *payload)
{
    struct upper *upper = arg;
    char word[32];
    assert_ptr_equal(link, upper->link);
    snprintf(word, sizeof word, "%s", frame_kind_name(frame->kind));
    memcpy(upper->control, payload, frame->length);
    note(upper, word, frame->length);
}

static void on_sent(void *arg, struct link *link, void *owner, void *cookie)
{
    struct upper *upper = arg;
    assert_ptr_equal(link, upper->link);
    assert_non_null(owner);
    note(upper, "sent", (uint32_t)(uintptr_t)cookie);
}

static void on_room(void *arg, struct link *link)
{
    struct upper *upper = arg;
    assert_true(link_up(link));
    note(upper, "room", link->data_count);
}

static void on_down(void *arg, struct link *link, const struct error *why)
{
    struct upper *upper = arg;
    assert_false(link_up(link));
    upper->down_count++;
    upper->down = *why;
}

static const struct link_events events = {on_data, on_payload, on_control, on_sent, on_room, on_down};

void upper_init(struct upper *upper, struct link *link, struct fake *fake, uint32_t budget)
{
    memset(upper, 0, sizeof *upper);
    upper->link = link;
    heap_init(&upper->heap, 0);
    struct link_setup setup = {
        .conn = &fake->conn,
        .events = &events,
        .events_arg = upper,
        .heap = &upper->heap,
        .metrics = &upper->metrics,
        .rank = 3,
        .eager_budget = budget,
    };
    link_init(link, &setup);
}

void upper_fini(struct upper *upper, struct fake *fake)
{
    link_fini(upper->link, NULL);
    assert_int_equal(fake->closed, 1);
    assert_int_equal(upper->heap.blocks, 0);
    fake_fini(fake);
}

void upper_clear(struct upper *upper)
{
    upper->log[0] = '\0';
}
