/* SPDX-License-Identifier: Apache-2.0 */
/* A connection over a stream socket whose every byte is encrypted: TLS 1.3 records on TCP. */
#pragma once

#include "core/heap.h"
#include "security/records.h"
#include "transport/transport.h"

/* The buffers of a node's encrypted connections. A connection needs one only while its bytes are under way
 * inside the process: what many use in turns stays in the processor's cache. */

/* By processor time on a busy machine: a half of `out` cost about a tenth more; what larger buffers saved was
 * within the noise. */
#define TLS_OUT_BYTES                                                                                        \
    (8u * (RECORD_DATA_MAX + RECORD_EXTRA) + 1024u)            /* sealed at once: a header is among them */
#define TLS_IN_BYTES  (16u * (RECORD_DATA_MAX + RECORD_EXTRA)) /* of one read */
#define TLS_BYE_BYTES (RECORD_EXTRA + 2u)                      /* behind what is sealed */
#define TLS_KEPT      8 /* of each kind that nobody needs, at rest: as many as data connections of a link */

enum tls_direction { TLS_OUT, TLS_IN };

struct tls_buffers;

/* One of each kind is there from the beginning, so that something moves even where memory has ended. All
 * calls come from the holder of the baton. NULL: no memory. */
struct tls_buffers *tls_buffers_open(struct heap *heap);
/* One more uses them; every user closes. The last one frees all, and has given back what it took. */
struct tls_buffers *tls_buffers_share(struct tls_buffers *buffers);
void tls_buffers_close(struct tls_buffers *buffers); /* NULL is allowed */

/* TLS_OUT_BYTES + TLS_BYE_BYTES or TLS_IN_BYTES, content undefined; NULL: no memory, until others give back
 * theirs. */
uint8_t *tls_buffers_take(struct tls_buffers *buffers, enum tls_direction direction);
void tls_buffers_give(struct tls_buffers *buffers, enum tls_direction direction, uint8_t *buffer);
/* The node goes to sleep: if nobody has one, those that were needed only for a rush are freed. */
void tls_buffers_rest(struct tls_buffers *buffers);

/* Takes the connected, non-blocking descriptor and the records of the channel that was opened on it; shares
 * the buffers, which the caller may close then. NULL: no memory, and descriptor and records are closed. */
struct conn *tls_conn(struct tls_buffers *buffers, int fd, struct records *records);
