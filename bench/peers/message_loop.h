/* SPDX-License-Identifier: Apache-2.0 */
/* One way to measure messages between two ranks, whoever's they are: each program hands a `struct messenger`
 * to it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define WINDOW_MAX 64

/* A library under test. Functions return false when they failed and have said why on standard error. */
struct messenger {
    const char *name, *algo;
    const char *alloc; /* whose memory the buffers are: "private" or "shared" */
    int rank;          /* 0 or 1; the other one is the peer */
    void *self;
    /* Blocking, to and from the peer. Each rank sends and receives in turns; rank 0 sends first. */
    bool (*send)(void *self, const void *data, size_t len);
    bool (*recv)(void *self, void *data, size_t len);
    /* A stream from rank 0 to rank 1: up to WINDOW_MAX transfers at the same time, each in a slot of its own.
     * NULL: the library is not asked for it. */
    bool (*start_send)(void *self, int slot, const void *data, size_t len);
    bool (*start_recv)(void *self, int slot, void *data, size_t len);
    bool (*wait)(void *self, int slot);
    /* Remote calls: start_send begins a call whose answer is its request, and wait compares them. Rank 1
     * serves until rank 0 dismisses it. NULL: messages. */
    bool (*serve)(void *self);
    bool (*dismiss)(void *self);
    /* Memory for one message; NULL: the loop's own, page-aligned. */
    void *(*take)(void *self, size_t len);
    void (*give)(void *self, void *memory);
};

/* What is measured. */
struct course {
    const char *seconds; /* of timed calls, about */
    const char *window;  /* transfers at the same time; 0: ping-pong */
    const char *size;    /* of a message, in bytes */
};

/* Rank 0 prints a line of JSON: the times are of half a round trip, of a message of the stream, or of a call.
 * Returns an exit status. */
int measure_messages(const struct messenger *messenger, const struct course *course);
