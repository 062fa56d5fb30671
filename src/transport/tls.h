/* SPDX-License-Identifier: Apache-2.0 */
/* A connection over a stream socket whose every byte is encrypted: TLS 1.3 records on TCP. */
#pragma once

#include "security/records.h"
#include "transport/tls_buffers.h"
#include "transport/transport.h"

/* Takes the connected, non-blocking descriptor and the records of the channel that was opened on it; shares
 * the buffers, which the caller may close then. NULL: no memory, and descriptor and records are closed. */
struct conn *tls_conn(struct tls_buffers *buffers, int fd, struct records *records);
