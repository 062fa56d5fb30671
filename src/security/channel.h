/* SPDX-License-Identifier: Apache-2.0 */
/* One connection from its first byte to the moment when both ends are proven, as a machine without I/O and
 * clock: TLS 1.3, then a proof of the secret each way, bound to this very channel. After that short messages
 * can be exchanged (greetings, the rendezvous), and at last the records are taken over by a transport.
 *
 *     channel_wants/input  <-- bytes of the peer, never beyond the end of a record
 *     channel_output/sent  --> bytes for the peer
 *
 * What is read before the proof is bounded: one record of at most 4 KiB at a time, 16 KiB in all. */
#pragma once

#include <sys/uio.h>

#include "security/credentials.h"

#define CHANNEL_HANDSHAKE_MAX 16384u /* bytes that a peer may send before it is proven */
#define CHANNEL_MESSAGE_MAX   16384u /* of channel_send, at once */

struct channel;

/* Its credentials are lent until channel_close. */
int MUST_CHECK channel_open(const struct session_setup *setup, struct channel **out, struct error *error);
void channel_close(struct channel *channel); /* wiped; NULL is allowed */

/* How many bytes may be given next: at least 1, at most the rest of a record. A caller that reads no more
 * than this from its socket never takes bytes behind the last record of the channel. More is HEARTH_INVALID,
 * and the end. */
size_t channel_wants(const struct channel *channel);
/* HEARTH_PENDING: go on. HEARTH_OK: proven (for good, after the last step). HEARTH_PROTOCOL: the peer has no
 * business here; the text says why, in words for a log ("it has another secret", "its key was revoked (hearth
 * trust)", "it speaks no TLS 1.3"). Output may be left then, which tells the peer: send it, then close.
 * HEARTH_PEER_LOST: it said goodbye, or told us why it does not want us: the text has that. */
int MUST_CHECK channel_input(struct channel *channel, const void *bytes, size_t len, struct error *error);
struct iovec channel_output(const struct channel *channel); /* length 0: nothing is to be sent */
void channel_sent(struct channel *channel, size_t len);

bool channel_ready(const struct channel *channel);
const struct identity *channel_peer(const struct channel *channel); /* NULL before its key is proven */

/* ---- when it is ready ---- */

/* Queues len (1..CHANNEL_MESSAGE_MAX) bytes; false: too much is unsent. */
bool channel_send(struct channel *channel, const void *bytes, size_t len);
/* Takes what came out of the records given so far: bytes, 0: nothing more. A caller
 * that gives many records without taking their content gets HEARTH_LIMIT from channel_input. */
size_t channel_recv(struct channel *channel, void *target, size_t len_max);

/* Ends the channel and gives its keys to a transport: nothing is unsent or unread then (else
 * HEARTH_PENDING, and nothing has changed). Else the channel is closed by it. HEARTH_NO_MEMORY: there is
 * none, or the peer has changed its keys already, which members do not do so early. */
struct records;
int MUST_CHECK channel_take_records(struct channel *channel, struct records **out);
