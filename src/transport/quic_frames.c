/* SPDX-License-Identifier: Apache-2.0 */
/* Looks through the frames of a packet before the library takes them: RFC 9000, chapter 19. */
#include "transport/quic_engine.h"

#define STREAM        0x08 /* of a type: for ngtcp2 all with this bit are streams, but for others below */
#define STREAM_OFFSET 0x04
#define STREAM_LEN    0x02
#define NEW_ID        0x18
#define OTHERS_LAST   0x1e /* from here down to NEW_ID are others */
#define RESET_TOKEN   16u
#define CHALLENGE_LEN 8u

struct frame_walk {
    const uint8_t *at, *end;
    bool over; /* nothing more can be read */
};

/* 1, 2, 4 or 8 bytes, of which the first two bits say how many. */
static uint64_t number(struct frame_walk *w)
{
    size_t left = (size_t)(w->end - w->at), len = left > 0 ? (size_t)1 << (*w->at >> 6) : 1;
    if (w->over || left < len) {
        w->over = true;
        return 0;
    }
    uint64_t value = *w->at++ & 0x3f;
    for (size_t i = 1; i < len; i++)
        value = value << 8 | *w->at++;
    return value;
}

static void skip(struct frame_walk *w, uint64_t len)
{
    if (w->over || len > (uint64_t)(w->end - w->at))
        w->over = true;
    else
        w->at += len;
}

static void skip_numbers(struct frame_walk *w, unsigned count)
{
    while (count-- > 0)
        (void)number(w);
}

static void skip_ack(struct frame_walk *w, bool counts)
{
    skip_numbers(w, 2); /* largest, delay */
    uint64_t ranges = number(w);
    skip_numbers(w, 1);
    for (; ranges > 0 && !w->over; ranges--)
        skip_numbers(w, 2);
    skip_numbers(w, counts ? 3 : 0);
}

static void skip_stream(struct frame_walk *w, uint8_t type)
{
    skip_numbers(w, type & STREAM_OFFSET ? 2 : 1);
    if (type & STREAM_LEN)
        skip(w, number(w));
    else
        w->over = true; /* to the end of the packet */
}

/* True: it asks that ids be given up. */
static bool is_retiring(struct frame_walk *w)
{
    (void)number(w);
    uint64_t before = number(w);
    skip(w, w->at < w->end ? 1u + (uint64_t)*w->at : 1u);
    skip(w, RESET_TOKEN);
    return before > 0; /* cut short or not: whoever takes it would do so too */
}

static void skip_frame(struct frame_walk *w, uint8_t type)
{
    static const uint8_t numbers[] = {
        [0x04] = 3, [0x05] = 2, [0x10] = 1, [0x11] = 2, [0x12] = 1, [0x13] = 1,
        [0x14] = 1, [0x15] = 2, [0x16] = 1, [0x17] = 1, [0x19] = 1,
    };
    switch (type) {
    case 0x00: /* padding */
    case 0x01: /* ping */
    case 0x1e: /* the handshake is done */
        break;
    case 0x02:
    case 0x03:
        skip_ack(w, type == 0x03);
        break;
    case 0x06: /* of TLS */
        (void)number(w);
        skip(w, number(w));
        break;
    case 0x07: /* a token */
        skip(w, number(w));
        break;
    case 0x1a:
    case 0x1b:
        skip(w, CHALLENGE_LEN);
        break;
    case 0x1c: /* the end */
    case 0x1d:
        skip_numbers(w, type == 0x1c ? 2 : 1);
        skip(w, number(w));
        break;
    default:
        if (type >= sizeof numbers || numbers[type] == 0)
            w->over = true;
        else
            skip_numbers(w, numbers[type]);
    }
}

bool quic_frames_retire(const uint8_t *frames, size_t len)
{
    struct frame_walk w = {frames, frames + len, false};
    while (!w.over && w.at < w.end) {
        uint8_t type = *w.at++;
        if (type == NEW_ID && is_retiring(&w))
            return true;
        if ((type & STREAM) && (type < NEW_ID || type > OTHERS_LAST))
            skip_stream(&w, type);
        else if (type != NEW_ID)
            skip_frame(&w, type);
    }
    return false;
}
