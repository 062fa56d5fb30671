/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the launcher and the host agents of its ranks, over pipes or ssh. A message is its kind (1
 * byte), the length of its content (3 bytes, little endian) and the content. Nothing here goes through a
 * shell, so nothing needs quoting. Both ends check what they read: a host whose agent was replaced must not
 * reach further than its own rank. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAUNCH_CONTENT_MAX ((size_t)1 << 20) /* content; the system takes no argument that is longer */
#define LAUNCH_STREAM_QUEUE_MAX                                                                              \
    ((size_t)8 << 20)                /* what may wait in one direction: all arguments and variables fit */
#define INPUT_MAX              16384 /* content of LAUNCH_INPUT */
#define OUTPUT_MAX             65536 /* of LAUNCH_OUT and LAUNCH_ERR */
#define LAUNCH_STREAM_GREETING "hearth host agent 2" /* content of LAUNCH_HELLO */

enum launch_kind {
    LAUNCH_NONE = 0, /* never sent */
    /* To the host agent: VAR "NAME=value" and ARG come any number of times; after its HELLO at most one
     * SECRET, then GO. */
    LAUNCH_DIR = 'd',    /* directory to run in */
    LAUNCH_VAR = 'v',    /* of the environment */
    LAUNCH_ARG = 'a',    /* of the program, its name first */
    LAUNCH_SECRET = 'k', /* the job's token, which the program gets by a descriptor */
    LAUNCH_GO = 'g',     /* 1 byte: whether standard input will come */
    LAUNCH_SIGNAL = 's', /* 1 byte: enum launch_signal */
    LAUNCH_INPUT = 'i',  /* one at a time: the next only after LAUNCH_TAKEN */
    LAUNCH_INPUT_END = 'e',
    /* From the host agent. */
    LAUNCH_HELLO = 'h',
    LAUNCH_PID = 'p', /* 4 bytes, little endian */
    LAUNCH_OUT = 'o',
    LAUNCH_ERR = 'r',
    LAUNCH_TAKEN = 't',  /* 1 byte: whether the program wants more */
    LAUNCH_FAILED = 'f', /* 1 byte: exit code, not 0; then why it could not start */
    LAUNCH_END = 'q'     /* 2 bytes: exit code, signal that killed it or 0 */
};

/* Signals by place: their numbers differ between systems. */
enum launch_signal {
    PASS_INT,
    PASS_TERM,
    PASS_HUP,
    PASS_USR1,
    PASS_USR2,
    PASS_TSTP,
    PASS_CONT,
    PASS_KILL,
    PASS_COUNT
};
int pass_number(enum launch_signal place); /* of this system */
enum launch_signal pass_place(int number); /* PASS_COUNT: not one of them */

/* One direction: what waits to be sent, or what came. */
struct launch_stream {
    int fd; /* non-blocking; -1: closed */
    unsigned char *data;
    size_t at, len, cap; /* data[at..len) waits */
    bool secret;         /* a LAUNCH_SECRET was added, which is wiped when all is sent */
};

void launch_stream_init(struct launch_stream *stream, int fd); /* makes it non-blocking */
void launch_stream_close(struct launch_stream *stream);
size_t launch_stream_waiting(const struct launch_stream *stream); /* bytes */

/* false: no memory, or more than may wait. Tries to send at once; see launch_stream_flush. */
bool launch_stream_add(struct launch_stream *stream, int kind, const void *content, size_t len);
/* Sends what it can; closes when the other side is gone. */
void launch_stream_flush(struct launch_stream *stream);

/* Reads once. 1: something came, 0: nothing now, -1: closed at the other end or broken. */
int launch_stream_read(struct launch_stream *stream);
/* Wipes what was sent, or read and taken: nothing of it is left in memory. */
void launch_stream_wipe(struct launch_stream *stream);

#define LAUNCH_REASON_MAX 512

struct launch_message {
    int kind;          /* enum launch_kind; LAUNCH_NONE: one that we do not know */
    const char *bytes; /* content, until the next call with this stream; DIR, VAR and ARG: no 0 inside */
    size_t len;
    int number;                     /* GO, TAKEN: 0 or 1; SIGNAL: enum launch_signal; PID: above 1;
                                       FAILED (never 0), END: exit code */
    int signal;                     /* END: that killed it, 0: none */
    char reason[LAUNCH_REASON_MAX]; /* FAILED: printable */
};

/* 1: a whole message, 0: none yet, -1: what came breaks the protocol (its kind and length are set), and its
 * sender is to be given up. */
int launch_stream_next(struct launch_stream *stream, struct launch_message *m);
