/* SPDX-License-Identifier: Apache-2.0 */
/* A connected socket that is opened by a handshake and then carries short messages: what listener, mesh and
 * rendezvous speak through. Without credentials (plain) the same calls, and the bytes go as they are. Never
 * blocks; reads nothing behind the messages that its owner has asked for. */
#pragma once

#include "os/sock.h"
#include "security/channel.h"

struct secure_stream;

/* No credentials: plain; `at` is found out. Takes the descriptor, also when it fails (HEARTH_NO_MEMORY). */
int MUST_CHECK secure_stream_open(const struct session_setup *setup, int fd, struct secure_stream **out);
/* Sends what can still be sent at once (a refusal), closes. NULL is allowed. */
void secure_stream_close(struct secure_stream *stream);

int secure_stream_fd(const struct secure_stream *stream);
bool secure_stream_wants_send(const struct secure_stream *stream);       /* bytes wait for room */
struct sock_wait secure_stream_wait(const struct secure_stream *stream); /* what to poll for */
/* Moves what can be moved. HEARTH_PENDING: the handshake goes on. HEARTH_OK: it is done. Else why not, in
 * words that go on after the peer's name ("10.0.0.7: it has another secret ..."), as channel_input;
 * HEARTH_PEER_LOST also when the socket has ended. */
int MUST_CHECK secure_stream_pump(struct secure_stream *stream, struct error *error);
/* One end is plain, the other is not: seen by the first byte that came. */
bool secure_stream_mixed(const struct secure_stream *stream);
const char *secure_stream_mixed_text(const struct secure_stream *stream); /* what it is and how to mend it */
bool secure_stream_ready(const struct secure_stream *stream);             /* the handshake is done */
/* The peer that was proven by the handshake; NULL: plain, or not yet. */
const struct identity *secure_stream_peer(const struct secure_stream *stream);

#define SECURE_STREAM_MESSAGE_MAX CHANNEL_MESSAGE_MAX
/* After the handshake, at most SECURE_STREAM_MESSAGE_MAX bytes. All or nothing: false, it does not fit now,
 * or the socket is broken. */
bool secure_stream_send(struct secure_stream *stream, const void *bytes, size_t len);
/* At most len_max bytes: bytes, 0: nothing yet, HEARTH_PEER_LOST, HEARTH_PROTOCOL. Reads beyond len_max only
 * to the end of the record that it began. */
ssize_t secure_stream_recv(struct secure_stream *stream, void *target, size_t len_max);

/* Gives the socket to a transport and ends the secure stream; *records is NULL where it was plain.
 * HEARTH_PENDING: bytes are unsent or unread; HEARTH_PEER_LOST: they are unsent, and the socket is broken. In
 * both cases nothing has changed. HEARTH_NO_MEMORY: secure stream and socket are closed. */
int MUST_CHECK secure_stream_release(struct secure_stream *stream, int *fd, struct records **records);
