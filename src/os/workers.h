/* SPDX-License-Identifier: Apache-2.0 */
/* A few threads that share the pieces of one piece of work. */
#pragma once

#include "core/heap.h"
#include "os/thread.h"

#define WORKERS_MAX 64

struct workers;

/* Piece number `piece` of the work; pieces run side by side, each once. */
typedef void workers_fn(void *arg, size_t piece);

/* `threads` in all, the caller's of workers_run among them: 1 starts none. NULL: no memory or no threads. */
struct workers *workers_start(struct heap *heap, uint32_t threads);
void workers_stop(struct workers *workers); /* NULL is allowed */
/* Runs all pieces and returns when the last has ended: after how many nanoseconds. Calls from several threads
 * take turns. `workers` may be NULL: the caller does it all. */
uint64_t workers_run(struct workers *workers, workers_fn *run, void *arg, size_t pieces);
uint32_t workers_count(const struct workers *workers); /* threads in all; 1 for NULL */
