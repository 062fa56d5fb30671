/* SPDX-License-Identifier: Apache-2.0 */
/* Letters between the launcher and the keepers of its ranks, over pipes or ssh. A letter is its kind (1
 * byte), the length of its content (3 bytes, little endian) and the content. Nothing here goes through a
 * shell, so nothing needs quoting. */
#ifndef CLI_POST_H
#define CLI_POST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LETTER_MAX     ((size_t)1 << 20) /* content; the system takes no argument that is longer */
#define POST_QUEUE_MAX ((size_t)8 << 20) /* what may wait in one direction: all arguments and variables fit */
#define INPUT_MAX      16384             /* content of LETTER_INPUT */
#define OUTPUT_MAX     65536             /* of LETTER_OUT and LETTER_ERR */
#define POST_GREETING  "hearth keeper 2" /* content of LETTER_HELLO */

enum letter_kind {
    LETTER_NONE = 0, /* never sent */
    /* To the keeper: VAR "NAME=value" and ARG come any number of times; after its HELLO at most one SECRET,
     * then GO. */
    LETTER_DIR = 'd',    /* directory to run in */
    LETTER_VAR = 'v',    /* of the environment */
    LETTER_ARG = 'a',    /* of the program, its name first */
    LETTER_SECRET = 'k', /* the job's token, which the program gets by a descriptor */
    LETTER_GO = 'g',     /* 1 byte: whether standard input will come */
    LETTER_SIGNAL = 's', /* 1 byte: enum letter_signal */
    LETTER_INPUT = 'i',  /* one at a time: the next only after LETTER_TAKEN */
    LETTER_INPUT_END = 'e',
    /* From the keeper. */
    LETTER_HELLO = 'h',
    LETTER_PID = 'p', /* 4 bytes, little endian */
    LETTER_OUT = 'o',
    LETTER_ERR = 'r',
    LETTER_TAKEN = 't',  /* 1 byte: whether the program wants more */
    LETTER_FAILED = 'f', /* 1 byte: exit code, not 0; then why it could not start */
    LETTER_END = 'q'     /* 2 bytes: exit code, signal that killed it or 0 */
};

/* Signals by place: their numbers differ between systems. */
enum letter_signal {
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
int pass_number(enum letter_signal place); /* of this system */
enum letter_signal pass_place(int number); /* PASS_COUNT: not one of them */

/* One direction: what waits to be sent, or what came. */
struct post {
    int fd; /* non-blocking; -1: closed */
    unsigned char *data;
    size_t at, len, cap; /* data[at..len) waits */
    bool secret;         /* a LETTER_SECRET was added, which is wiped when all is sent */
};

struct letter {
    int kind;
    const unsigned char *content; /* until the next call with this post */
    size_t len;
};

void post_init(struct post *post, int fd); /* makes it non-blocking */
void post_close(struct post *post);
size_t post_waiting(const struct post *post); /* bytes */

/* false: no memory, or more than may wait. Tries to send at once; see post_flush. */
bool post_add(struct post *post, int kind, const void *content, size_t len);
/* Sends what it can; closes when the other side is gone. */
void post_flush(struct post *post);

/* Reads once. 1: something came, 0: nothing now, -1: closed at the other end or broken. */
int post_read(struct post *post);
/* 1: a whole letter, 0: none yet, -1: what came cannot be one (`letter` has its kind and length). What it
 * says is for launch_message_read. */
int post_next(struct post *post, struct letter *letter);

/* Wipes what was sent, or read and taken: nothing of it is left in memory. */
void post_wipe(struct post *post);

/* A pipe whose ends are not handed on by exec. */
bool pipe_open(int ends[2]);

#endif
