/* SPDX-License-Identifier: Apache-2.0 */
/* A connected socket that is opened by a handshake and then carries short messages: what door, mesh and
 * rendezvous speak through. Without credentials (plain) the same calls, and the bytes go as they are. Never
 * blocks; reads nothing behind the messages that its owner has asked for. */
#ifndef BOOTSTRAP_TUNNEL_H
#define BOOTSTRAP_TUNNEL_H

#include "os/sock.h"
#include "security/channel.h"

#define SAYS_CUT "it closed the connection in the handshake" /* pushed out, it may be, by strangers */

struct tunnel;

struct tunnel_setup {
    struct heap *heap;
    const struct credentials *credentials; /* NULL: plain */
    enum channel_role role;
    struct knock_target to;  /* whom we dialled, as in credentials.h */
    session_admit_fn *admit; /* the same */
    void *admit_arg;
};
/* Takes the descriptor, also when it fails (HEARTH_NO_MEMORY). */
int MUST_CHECK tunnel_open(const struct tunnel_setup *setup, int fd, struct tunnel **out);
/* Sends what can still be sent at once (a refusal), closes. NULL is allowed. */
void tunnel_close(struct tunnel *tunnel);

int tunnel_fd(const struct tunnel *tunnel);
bool tunnel_wants_send(const struct tunnel *tunnel); /* bytes wait for room */
/* Moves what can be moved. HEARTH_PENDING: the handshake goes on. HEARTH_OK: it is done. Else why not, in
 * words that go on after the peer's name ("10.0.0.7: it has another secret ..."), as channel_input;
 * HEARTH_PEER_LOST also when the socket has ended. */
int MUST_CHECK tunnel_pump(struct tunnel *tunnel, struct error *error);
/* One end is plain, the other is not: seen by the first byte that came. */
bool tunnel_mixed(const struct tunnel *tunnel);
const char *tunnel_mixed_text(const struct tunnel *tunnel); /* what it is and how to mend it */
bool tunnel_ready(const struct tunnel *tunnel);             /* the handshake is done */
/* The peer that was proven by the handshake; NULL: plain, or not yet. */
const struct identity *tunnel_peer(const struct tunnel *tunnel);

#define TUNNEL_MESSAGE_MAX CHANNEL_MESSAGE_MAX
/* After the handshake, at most TUNNEL_MESSAGE_MAX bytes. All or nothing: false, it does not fit now, or the
 * socket is broken. */
bool tunnel_send(struct tunnel *tunnel, const void *bytes, size_t len);
/* At most len_max bytes: bytes, 0: nothing yet, HEARTH_PEER_LOST, HEARTH_PROTOCOL. Reads beyond len_max only
 * to the end of the record that it began. */
ssize_t tunnel_recv(struct tunnel *tunnel, void *target, size_t len_max);

/* Gives the socket to a transport and ends the tunnel; *records is NULL where it was plain. HEARTH_PENDING:
 * bytes are unsent or unread; HEARTH_PEER_LOST: they are unsent, and the socket is broken. In both cases
 * nothing has changed. HEARTH_NO_MEMORY: tunnel and socket are closed. */
int MUST_CHECK tunnel_release(struct tunnel *tunnel, int *fd, struct records **records);

#endif
