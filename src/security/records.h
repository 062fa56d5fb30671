/* SPDX-License-Identifier: Apache-2.0 */
/* TLS 1.3 records for bulk, straight between buffers: no I/O, no buffers of its own, no system calls. A peer
 * with any TLS library could read them; kernel TLS could take their place one day, with the same keys. */
#ifndef SECURITY_RECORDS_H
#define SECURITY_RECORDS_H

#include <sys/types.h>
#include <sys/uio.h>

#include "core/heap.h"

#define RECORD_DATA_MAX   16384u /* plain bytes of one record */
#define RECORD_HEADER_LEN 5u     /* tells the length of the rest */
#define RECORD_EXTRA      22u    /* header, type, tag: what a record has more */
#define RECORD_MAX        (RECORD_DATA_MAX + 256u + RECORD_HEADER_LEN) /* of a peer's record, by the law */

struct gnutls_session_int;
struct records;

/* Takes the session, right after handshake and proof. NULL: no memory, and the session is gone. */
struct records *records_open(struct heap *heap, struct gnutls_session_int *session);
void records_close(struct records *records); /* keys wiped; NULL is allowed */

/* Encrypts len (1..RECORD_DATA_MAX) bytes, the first of the pieces, as one record; gives its length, len +
 * RECORD_EXTRA. A change of keys that is due stands before it: then up to RECORD_UPDATE_LEN more. */
#define RECORD_UPDATE_LEN 32u
size_t records_seal(struct records *records, const struct iovec *pieces, int count, size_t len,
                    uint8_t *target);

/* The length of the whole record that begins with this header; 0: there is no such record. */
size_t records_length(const uint8_t header[static RECORD_HEADER_LEN]);
/* Decrypts one whole record to `target`, which has room for len - RECORD_EXTRA bytes (and may be the record's
 * own memory, behind its header): bytes; 0: a record without data (a change of keys); HEARTH_PEER_LOST: the
 * peer says goodbye; HEARTH_PROTOCOL: forged, replayed, or nothing that belongs here. The record's memory is
 * scratch then. */
ssize_t records_open_one(struct records *records, uint8_t *record, size_t len, void *target);
/* A goodbye, RECORD_EXTRA + 2 bytes. Nothing may be sealed after it. */
size_t records_bye(struct records *records, uint8_t *target);

#endif
