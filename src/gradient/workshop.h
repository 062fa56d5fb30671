/* SPDX-License-Identifier: Apache-2.0 */
/* The workshop of a node: where compressed all-reduces are worked on. It keeps their large blocks of memory
 * between calls (fresh memory costs more than the arithmetic), the threads that compress, and one hand: the
 * thread that works on those that nobody waits for. */
#ifndef GRADIENT_WORKSHOP_H
#define GRADIENT_WORKSHOP_H

#include "gradient/work.h"

/* Opened by the first who needs it; lives as long as the node. NULL: no memory, or the node is closing. */
struct workshop *workshop_of(hearth_node *node);

/* At least len bytes, content undefined; NULL: no memory. Given back by workshop_give (NULL is allowed). */
void *workshop_take(struct workshop *workshop, size_t len);
void workshop_give(struct workshop *workshop, void *block);

struct workers *workshop_workers(struct workshop *workshop); /* NULL: the caller works alone */

/* Hands a reduction to the hand, which steps it until it has ended. */
int MUST_CHECK workshop_submit(struct workshop *workshop, struct reduction *reduction);
/* Blocking: the calling thread steps it. */
void workshop_drive(struct workshop *workshop, struct reduction *reduction);
/* Something that a reduction waits for has happened. */
void workshop_ring(struct workshop *workshop);

#endif
