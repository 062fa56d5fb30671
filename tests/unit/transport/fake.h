/* SPDX-License-Identifier: Apache-2.0 */
/* A conn whose bytes a test writes and reads itself, and an upper side that writes down what it hears. */
#ifndef TESTS_UNIT_TRANSPORT_FAKE_H
#define TESTS_UNIT_TRANSPORT_FAKE_H

#include "core/prng.h"
#include "transport/link.h"

#define FAKE_LOG_MAX 4096

/* Bytes that grow at the end. */
struct bytes {
    uint8_t *data;
    size_t len, room;
};
void bytes_add(struct bytes *b, const void *data, size_t len);

struct fake {
    struct conn conn;
    struct bytes in;     /* what the peer has sent so far */
    size_t in_at;        /* given to the link so far */
    size_t recv_max;     /* bytes one recv gives at most; 0: as many as there are */
    struct bytes out;    /* what the link has sent */
    size_t send_room;    /* bytes that fit now; SIZE_MAX: all */
    size_t send_max;     /* bytes one send takes at most; 0: no limit */
    struct prng *random; /* not NULL: each call takes or gives 1 to its limit */
    bool recv_gone, send_gone;
    int closed;

    /* The peer's side of the protocol. */
    uint64_t sequence; /* of its last frame */
    uint32_t credit;   /* what its frames say */
    size_t parsed;     /* of out: fake_next */
};

/* The upper side. A payload goes to `target` unless `drop` is set. */
struct upper {
    struct link *link;
    struct metrics metrics;
    struct heap heap;
    char log[FAKE_LOG_MAX]; /* one word per event: "data:5", "payload:5", "control:grant:0", "sent:a" ... */
    uint8_t target[1 << 16];
    bool drop;       /* on_data gives NULL and no cookie */
    bool refuse;     /* on_data fails the link */
    bool no_target;  /* on_data gives a cookie, but nowhere to write (frames without bytes) */
    uint32_t cookie; /* its address is the cookie of what comes in */
    int down_count;
    struct error down;
    uint8_t control[FRAME_CONTROL_MAX];
};

void fake_init(struct fake *fake);
void fake_fini(struct fake *fake);

/* A frame of the peer: the sequence, ack and credit are filled in; CRC is right. */
void fake_frame(struct fake *fake, struct frame frame, const void *payload);
void fake_hello(struct fake *fake);
/* The next whole frame that the link has sent; false: there is none yet. Fails the test on bad bytes. */
bool fake_next(struct fake *fake, struct frame *frame, const uint8_t **payload);

void upper_init(struct upper *upper, struct link *link, struct fake *fake, uint32_t budget);
/* Ends the link without a goodbye and checks that nothing is left. */
void upper_fini(struct upper *upper, struct fake *fake);
void upper_clear(struct upper *upper); /* the log */

#endif
