/* SPDX-License-Identifier: Apache-2.0 */
/* A connection over a stream socket whose every byte is encrypted: TLS 1.3 records on TCP. */
#ifndef TRANSPORT_TLS_H
#define TRANSPORT_TLS_H

#include "core/heap.h"
#include "security/records.h"
#include "transport/transport.h"

/* Takes the connected, non-blocking descriptor and the records of the channel that was opened on it. NULL: no
 * memory, and both are closed. */
struct conn *tls_conn(struct heap *heap, int fd, struct records *records);

#endif
