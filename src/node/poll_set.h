/* SPDX-License-Identifier: Apache-2.0 */
/* How the threads of a node sleep.
 *
 * A node in memory has only its bell. A node with descriptors has one seat: the thread there sleeps in poll,
 * and peers, the deadline, or a thread of its own process through the event wake it; all others sleep at the
 * bell. The seat belongs to a caller if there is one, else to the progress thread. */
#pragma once

#include "node/node.h"

struct poll_set;

/* For `size` members. Takes the event. NULL: no memory (the event is closed). */
struct poll_set *poll_set_open(struct heap *heap, struct event event, int size);
void poll_set_close(struct poll_set *rest);

/* Without the baton: sleeps until there may be work, or the deadline. `heard` as in bell_wait. */
void poll_set_wait(hearth_node *node, enum bell_side side, uint32_t heard, uint64_t deadline_ns);
/* With the baton: checks the descriptors at intervals; only they signal shared-memory links and the
 * listener. */
void poll_set_look(hearth_node *node);

/* Without the baton: wakes all sleeping threads. */
void poll_set_ring_all(hearth_node *node);
/* The same for callers only. */
void poll_set_ring_callers(hearth_node *node);
/* A caller is going to drive: the progress thread leaves the seat. */
void poll_set_caller_comes(hearth_node *node);
/* With the baton: whether a thread must wake up because no caller drives what is in flight, or because the
 * wait set of the seat has changed. */
bool poll_set_must_ring(hearth_node *node, bool caller_stays);
