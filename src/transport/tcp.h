/* SPDX-License-Identifier: Apache-2.0 */
/* A connection over a stream socket: TCP, or a unix socket where there is no shared memory. */
#pragma once

#include "core/heap.h"
#include "transport/transport.h"

/* Takes the connected, non-blocking descriptor. NULL: no memory, and the descriptor is closed. */
struct conn *tcp_conn(struct heap *heap, int fd);
