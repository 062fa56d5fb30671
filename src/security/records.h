/* SPDX-License-Identifier: Apache-2.0 */
/* TLS 1.3 records for bulk, straight between buffers: no I/O, no buffers of its own, no system calls. A peer
 * with any TLS library could read them; kernel TLS could take their place one day, with the same keys. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/heap.h"

#define RECORD_DATA_MAX   16384u /* plain bytes of one record */
#define RECORD_HEADER_LEN 5u     /* tells the length of the rest */
#define RECORD_EXTRA      22u    /* header, type, tag: what a record has more */
#define RECORD_MAX        (RECORD_DATA_MAX + 256u + RECORD_HEADER_LEN) /* of a peer's record, by the law */
#define RECORD_SECRET_LEN 32u

struct gnutls_session_int;
struct records;

/* New keys are made from the traffic secrets, which GnuTLS tells only during the handshake. So a handshake
 * that is to end in records has them noted, before its first step, in memory that outlives the session and
 * that the caller wipes. Takes the session's keylog function and its user pointer. */
struct record_secrets {
    uint8_t client[RECORD_SECRET_LEN], server[RECORD_SECRET_LEN];
    bool have_client, have_server;
};
void records_watch(struct gnutls_session_int *session, struct record_secrets *secrets);

/* Takes the session, right after handshake and proof. NULL: no memory, or a session that was not watched, has
 * another suite, or has changed its keys already; and the session is gone. */
struct records *records_open(struct heap *heap, struct gnutls_session_int *session);

/* Where records begin that have no session: known values, for tests. */
struct records_start {
    bool chacha; /* ChaCha20-Poly1305; else AES-128-GCM */
    uint8_t out_secret[RECORD_SECRET_LEN], in_secret[RECORD_SECRET_LEN];
    uint64_t out_sequence, in_sequence;
};
struct records *records_open_at(struct heap *heap, const struct records_start *start); /* NULL: no memory */
void records_close(struct records *records); /* keys wiped; NULL is allowed */

/* Encrypts len (1..RECORD_DATA_MAX) bytes, the first of the pieces, as one record; gives its length, len +
 * RECORD_EXTRA. A change of keys that is due stands before it: then up to RECORD_UPDATE_LEN more. 0: there is
 * no memory for new keys, and the connection has to end. */
#define RECORD_UPDATE_LEN 32u
size_t records_seal(struct records *records, const struct iovec *pieces, int count, size_t len,
                    uint8_t *target);

/* The length of the whole record that begins with this header; 0: there is no such record. */
size_t records_length(const uint8_t header[static RECORD_HEADER_LEN]);
/* Decrypts one whole record to `target`, which has room for len - RECORD_EXTRA bytes (and may be the record's
 * own memory, behind its header): bytes; 0: a record without data (a change of keys); HEARTH_PEER_LOST: the
 * peer says goodbye; HEARTH_PROTOCOL: forged, replayed, or nothing that belongs here; HEARTH_NO_MEMORY: for
 * new keys. The record's memory and the target are scratch then. After a bad one all are bad. */
ssize_t records_open_one(struct records *records, uint8_t *record, size_t len, void *target);
/* A goodbye, RECORD_EXTRA + 2 bytes. Nothing may be sealed after it. */
size_t records_bye(struct records *records, uint8_t *target);
