/* SPDX-License-Identifier: Apache-2.0 */
/* The codec pool of a node: where compressed all-reduces are worked on. It keeps their large blocks of memory
 * between calls (fresh memory costs more than the arithmetic), the threads that compress, and one worker: the
 * thread that works on those that nobody waits for. */
#pragma once

#include "gradient/work.h"

/* Opened by the first who needs it; lives as long as the node. NULL: no memory, or the node is closing. */
struct codec_pool *codec_pool_of(hearth_node *node);

/* At least len bytes, content undefined; NULL: no memory. Given back by codec_pool_give (NULL is allowed), or
 * with all others of a list that it was put in. */
void *codec_pool_take(struct codec_pool *pool, size_t len);
void codec_pool_list(struct list *blocks, void *block);
void codec_pool_give(struct codec_pool *pool, void *block);
void codec_pool_give_all(struct codec_pool *pool, struct list *blocks);

/* Kernels for a tensor of so many bytes. What is small stays in the caches: nothing of it is written past
 * them. */
const struct kernels *codec_pool_kernels(const struct codec_pool *pool, size_t len);

struct workers *codec_pool_workers(struct codec_pool *pool); /* NULL: the caller works alone */

/* Gives a reduction to the worker, which steps it until it has ended. On virtual time whoever drives the node
 * is the worker. */
int MUST_CHECK codec_pool_submit(struct codec_pool *pool, struct reduction *reduction);
/* Blocking: the calling thread steps it. `heard` as in node_wait_here, if it stays. */
void codec_pool_drive(struct codec_pool *pool, struct reduction *reduction, uint32_t *heard);
/* Something that a reduction waits for has happened. */
void codec_pool_ring(struct codec_pool *pool);
