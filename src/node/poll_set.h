/* SPDX-License-Identifier: Apache-2.0 */
/* How the threads of a node sleep.
 *
 * A node in memory has only its bell. A node with descriptors has one seat in front of them: whoever sits
 * there sleeps in poll and is woken by peers, by time, or by a thread of its own process through the event;
 * all others sleep at the bell. The seat is a caller's if there is one, else the progress thread's. */
#pragma once

#include "node/node.h"

struct poll_set;

/* For `size` members. Takes the event. NULL: no memory (the event is closed). */
struct poll_set *poll_set_open(struct heap *heap, struct event event, int size);
void poll_set_close(struct poll_set *rest);

/* Without the baton: sleeps until there may be something to do, or the deadline. `heard` as in bell_wait. */
void poll_set_wait(hearth_node *node, enum bell_side side, uint32_t heard, uint64_t deadline_ns);
/* With the baton: has a look at the descriptors if nobody has for a while; links in shared memory and the
 * listener are heard of only there. */
void poll_set_look(hearth_node *node);

/* Without the baton: wakes whoever sleeps, wherever. */
void poll_set_ring_all(hearth_node *node);
/* A caller is going to drive: the progress thread gets up from the seat. */
void poll_set_caller_comes(hearth_node *node);
/* With the baton: whether somebody must be woken since no caller will drive what is in flight, or since what
 * is waited for at the seat has changed. */
bool poll_set_must_ring(hearth_node *node, bool caller_stays);
