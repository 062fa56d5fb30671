/* SPDX-License-Identifier: Apache-2.0 */
/* A conn whose bytes a test writes and reads itself, and an upper side that writes down what it hears. */
#pragma once

#include "core/prng.h"
#include "transport/link.h"

#define FAKE_LOG_MAX 4096
#define FAKE_LOANS   8

/* Bytes that grow at the end. */
struct bytes {
    uint8_t *data;
    size_t len, room;
};
void bytes_add(struct bytes *b, const void *data, size_t len);

struct fake {
    struct conn conn;
    struct transport transport; /* its own: slots follow what it can do */
    struct bytes in;            /* what the peer has sent so far */
    size_t in_at;               /* given to the link so far */
    size_t recv_max;            /* bytes one recv gives at most; 0: as many as there are */
    struct bytes out;           /* what the link has sent */
    size_t send_room;           /* bytes that fit now; SIZE_MAX: all */
    size_t send_max;            /* bytes one send takes at most; 0: no limit */
    struct prng *random;        /* not NULL: each call takes or gives 1 to its limit */
    bool recv_gone, send_gone;
    bool recv_forged; /* what comes next is not the peer's */
    int finished, closed;
    int fd; /* what it says its descriptor is */
    int attended;
    bool asleep, want_room; /* as it was told last */

    /* After fake_share: memory that both see. */
    bool held_up;              /* what it says of its stream */
    size_t lend_max;           /* payloads up to this are lent out of the stream */
    void *loans[FAKE_LOANS];   /* copies that are out: a read after it was given back is seen */
    uint64_t looked_up;        /* the peer's references that the link has not given back */
    const uint8_t *theirs;     /* what the peer's references stand for */
    size_t theirs_len;         /* bytes */
    const uint8_t *ours;       /* what the link may refer to */
    size_t ours_len;           /* bytes */
    uint64_t references, back; /* numbers in use; those that the peer has read since the last look */

    /* After fake_hold: bytes may be taken and not have left. */
    bool holds;
    int flushes;
    uint64_t due_ns;

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
    bool drop;                       /* on_data gives NULL and no cookie */
    bool refuse;                     /* on_data fails the link */
    bool no_target;                  /* on_data gives a cookie, but nowhere to write (frames without bytes) */
    uint32_t cookie[LINK_PIPES_MAX]; /* their addresses are the cookies of what comes in, by pipe */
    size_t stride;                   /* between the targets of the pipes */
    bool check_fill;                 /* all bytes of a payload must be the number of its lane */
    int down_count, held_up_count;
    struct error down;
    uint8_t control[FRAME_CONTROL_MAX];
    int pipes;                     /* of the link */
    int pipe;                      /* through which the last data came */
    bool lend;                     /* on_data asks for a loan where it may */
    struct loan loans[FAKE_LOANS]; /* that came, in order */
    int loan_count;
};

void fake_init(struct fake *fake);
/* From now on memory is shared: payloads are lent, and those in `ours` travel as references. */
void fake_share(struct fake *fake, const uint8_t *ours, size_t ours_len);
/* A reference of the peer to `theirs`, in a frame of data. */
void fake_refer(struct fake *fake, uint32_t length, uint32_t number, uint64_t offset);
/* From now on it may hold bytes. */
void fake_hold(struct fake *fake);
void fake_must_finish(struct fake *fake); /* it is not closed before the peer has gone */
bool fake_lends(const struct fake *fake); /* something is out */

/* A frame of the peer: the sequence and credit are filled in; CRC is right. */
void fake_frame(struct fake *fake, struct frame frame, const void *payload);
void fake_hello(struct fake *fake);
/* The next whole frame that the link has sent, its payload or its reference; false: there is none yet. Fails
 * the test on bad bytes. */
bool fake_next(struct fake *fake, struct frame *frame, const uint8_t **payload);

void upper_clear(struct upper *upper); /* the log */

#define BUDGET      65536u
#define LONG        (LINK_INLINE_MAX + 64) /* bytes; not sent in one piece with its header */
#define WORLD_PIPES 4

/* What the running test works on: a link over one fake, or over several. */
struct world {
    union {
        struct fake fake;
        struct fake fakes[WORLD_PIPES];
    };
    struct link link;
    struct upper upper;
    uint64_t calls; /* of the heap, when the test began */
};
extern struct world *w;

void world_open(int pipes);
void world_greet(void); /* the peer says hello on every pipe; the log is empty then */
/* Ends the link without a goodbye and the loans, and checks that nothing is left. */
int world_close(void **state);

void pump(void); /* until nothing moves */
struct frame next_out(int pipe,
                      const uint8_t **payload); /* that the link has sent; the payload may be NULL */
bool out_is_empty(int pipe);
void send_control(uint8_t kind, uint32_t len, const void *payload);
void part(void); /* link_part with HEARTH_CLOSED */
/* The next pump takes the link down, and nothing comes after that. */
void expect_down(int status, const char *words);
