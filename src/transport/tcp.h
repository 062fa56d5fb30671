/* SPDX-License-Identifier: Apache-2.0 */
/* A connection over a stream socket: TCP, or a unix socket where there is no shared memory. */
#pragma once

#include "core/heap.h"
#include "transport/transport.h"

/* Takes the connected, non-blocking descriptor. NULL: no memory, and the descriptor is closed. */
struct conn *tcp_conn(struct heap *heap, int fd);

/* Closes a socket so that the peer gets what was sent: one closed with bytes unread resets the connection,
 * and what the peer has not received yet is lost with it. So they are read first, and dropped. */
void tcp_drain_close(int fd);
