/* SPDX-License-Identifier: Apache-2.0 */
/* Bursts of messages between two nodes of this process, or of what they are compared with. */
#pragma once

#include "cli/bench/bench_nodes.h"

#define MESSAGE_WINDOW_MAX 64
#define MESSAGE_BURST_MAX  1024 /* messages */

enum message_course {
    COURSE_TRIP,   /* there and back, one after the other; half of it is the time of a message */
    COURSE_STREAM, /* from node 0 to node 1, a window of them under way; one time for the burst */
    COURSE_CALL,   /* remote calls of node 0, answered by node 1 with what it got; a window under way */
    COURSES
};

enum message_medium {
    BY_NODES,
    BY_SOCKETS, /* TCP over loopback, nothing around it; both sides ask again and again */
    BY_COPY     /* a memcpy */
};

struct message_bench {
    struct bench_nodes nodes;
    int sockets[2]; /* -1: not open */
    size_t stride;  /* of the slots in a node's memory */

    /* The burst to run, and its times in seconds of a message: each, or one for a stream or for calls. */
    enum message_course course;
    enum message_medium medium;
    size_t bytes;
    int window, count;
    double took[MESSAGE_BURST_MAX];
    int times;

    uint64_t begin_ns, end_ns; /* of a stream: at node 0, at node 1 */
    bool exact;                /* contents were right wherever they were checked */
};

/* Two nodes with memory for `window_bytes` each way. EXIT_GOOD, or another code after a message; to be closed
 * in either case. */
int message_bench_open(struct message_bench *b, const struct bench_line *line, size_t window_bytes);
void message_bench_close(struct message_bench *b);
/* Runs what the fields say. EXIT_GOOD, or another code after a message. */
int message_burst(struct message_bench *b);
/* Fills the buffers anew, runs the course once and compares every byte that arrived. */
int message_verify(struct message_bench *b);
