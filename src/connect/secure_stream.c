/* SPDX-License-Identifier: Apache-2.0 */
/* Moves bytes between a socket and its owner, through a channel unless it is plain. */
#include "connect/secure_stream.h"

#include <assert.h>
#include <string.h>

#include "security/records.h"
#include "security/vault.h"

#define TLS_HANDSHAKE 0x16 /* the first byte of TLS */
#define PLAIN_START   'H'  /* the first byte of a control message */
#define READ_BYTES    2048 /* at once; a handshake has less */

struct secure_stream {
    struct heap *heap;
    int fd;
    struct channel *channel; /* NULL: plain */
    bool heard;              /* the first byte has come */
    bool mixed;              /* and it was of the other kind */
    uint8_t *left;           /* plain: the rest of a message that did not fit into the socket; NULL: none */
    size_t left_len, left_sent;
};

int secure_stream_open(const struct session_setup *setup, int fd, struct secure_stream **out)
{
    struct session_setup channel = *setup;
    struct secure_stream *t = heap_alloc(setup->heap, 1, sizeof *t);
    struct error error;

    if (setup->role == CHANNEL_LISTENS && sock_local(fd, &channel.at) != HEARTH_OK)
        channel.at.len = 0; /* a pair of sockets, in tests */
    if (!t || (setup->credentials && channel_open(&channel, &t->channel, &error) != HEARTH_OK)) {
        heap_free(t);
        sock_close(fd);
        return HEARTH_NO_MEMORY;
    }
    t->heap = setup->heap;
    t->fd = fd;
    *out = t;
    return HEARTH_OK;
}

/* ---- sending ------------------------------------------------------------------------------------------ */

static struct iovec unsent(const struct secure_stream *t)
{
    if (t->channel)
        return channel_output(t->channel);
    return (struct iovec){t->left + t->left_sent, t->left_len - t->left_sent};
}

static void left_free(struct secure_stream *t)
{
    if (t->left)
        wipe(t->left, t->left_len);
    heap_free(t->left);
    t->left = NULL;
    t->left_len = t->left_sent = 0;
}

static void sent(struct secure_stream *t, size_t len)
{
    if (t->channel) {
        channel_sent(t->channel, len);
        return;
    }
    t->left_sent += len;
    if (t->left_sent == t->left_len)
        left_free(t);
}

/* HEARTH_OK: all that fits now; HEARTH_PEER_LOST. */
static int flush(struct secure_stream *t)
{
    struct iovec piece = unsent(t);
    ssize_t len = piece.iov_len > 0 ? sock_send(t->fd, &piece, 1) : 0;

    if (len > 0)
        sent(t, (size_t)len);
    return len < 0 ? HEARTH_PEER_LOST : HEARTH_OK;
}

bool secure_stream_wants_send(const struct secure_stream *t)
{
    return unsent(t).iov_len > 0;
}

/* The rest of a message that was begun must follow. */
static bool left_keep(struct secure_stream *t, const uint8_t *bytes, size_t len)
{
    t->left = heap_alloc_raw(t->heap, 1, len);
    if (!t->left)
        return false;
    memcpy(t->left, bytes, len);
    t->left_len = len;
    return true;
}

static bool send_plain(struct secure_stream *t, const void *bytes, size_t len)
{
    struct iovec piece = {(void *)(uintptr_t)bytes, len};
    ssize_t moved = sock_send(t->fd, &piece, 1);

    if (moved <= 0)
        return false;
    if ((size_t)moved == len || left_keep(t, (const uint8_t *)bytes + moved, len - (size_t)moved))
        return true;
    sock_finish(t->fd); /* half a message and no memory for the rest: nothing may follow */
    return false;
}

bool secure_stream_send(struct secure_stream *t, const void *bytes, size_t len)
{
    assert(len > 0 && len <= SECURE_STREAM_MESSAGE_MAX);
    if (flush(t) != HEARTH_OK || secure_stream_wants_send(t))
        return false;
    if (!t->channel)
        return send_plain(t, bytes, len);
    return channel_send(t->channel, bytes, len) && flush(t) == HEARTH_OK;
}

/* ---- receiving ---------------------------------------------------------------------------------------- */

/* Whether the first byte that came is one that our kind of secure stream may begin with. */
static bool hear_first(struct secure_stream *t, uint8_t byte)
{
    if (!t->heard)
        t->mixed = byte == (t->channel ? PLAIN_START : TLS_HANDSHAKE);
    t->heard = true;
    return !t->mixed;
}

bool secure_stream_mixed(const struct secure_stream *t)
{
    return t->mixed;
}

const char *secure_stream_mixed_text(const struct secure_stream *t)
{
    return t->channel ? "it is plain, and we encrypt: start all members with plain, or (better) none"
                      : "it encrypts, and we are plain: start all members with plain, or (better) none";
}

static ssize_t recv_plain(struct secure_stream *t, void *target, size_t len_max)
{
    struct iovec piece = {target, len_max};
    ssize_t len = sock_recv(t->fd, &piece, 1);

    if (len > 0 && !hear_first(t, *(const uint8_t *)target))
        return HEARTH_PROTOCOL;
    return len;
}

/* Gives the channel what there is, up to the end of a record. HEARTH_PENDING: nothing is there. HEARTH_OK:
 * something was. Else why not, with a text if there is more to say than that the connection ended. */
static int feed(struct secure_stream *t, struct error *error)
{
    uint8_t bytes[READ_BYTES];
    size_t wants = channel_wants(t->channel);
    struct iovec piece = {bytes, wants < sizeof bytes ? wants : sizeof bytes};
    ssize_t len = sock_recv(t->fd, &piece, 1);

    error_clear(error);
    if (len <= 0)
        return len == 0 ? HEARTH_PENDING : HEARTH_PEER_LOST;
    if (!hear_first(t, bytes[0]))
        return error_because(error, HEARTH_REASON_SETTINGS_DIFFER, HEARTH_PROTOCOL, RANK_NONE, "%s",
                             secure_stream_mixed_text(t));
    int status = channel_input(t->channel, bytes, (size_t)len, error);
    return status == HEARTH_PENDING ? HEARTH_OK : status;
}

ssize_t secure_stream_recv(struct secure_stream *t, void *target, size_t len_max)
{
    struct error error;

    if (!t->channel)
        return recv_plain(t, target, len_max);
    for (;;) {
        size_t got = channel_recv(t->channel, target, len_max);
        if (got > 0)
            return (ssize_t)got;
        int status = feed(t, &error);
        if (status == HEARTH_PENDING)
            return 0;
        if (status != HEARTH_OK)
            return status == HEARTH_PEER_LOST ? HEARTH_PEER_LOST : HEARTH_PROTOCOL;
    }
}

/* ---- the handshake ------------------------------------------------------------------------------------ */

static int lost(const struct secure_stream *t, struct error *error)
{
    if (t->heard) /* pushed out, it may be, by strangers */
        return error_because(error, HEARTH_REASON_PEER_CLOSED, HEARTH_PEER_LOST, RANK_NONE,
                             "it closed the connection in the handshake");
    return error_because(
        error, HEARTH_REASON_NOT_HEARTH, HEARTH_PEER_LOST, RANK_NONE,
        "it closed the connection without an answer to our handshake: is it Hearth, and not plain?");
}

/* Reads first: the last message of a peer says more than that it closed. */
static int shake(struct secure_stream *t, struct error *error)
{
    int sending, status;

    do {
        sending = flush(t);
        status = feed(t, error);
    } while (status == HEARTH_OK && !channel_ready(t->channel));
    if (status == HEARTH_OK || (status != HEARTH_PENDING && status != HEARTH_PEER_LOST))
        (void)flush(t); /* our last step, or why we refuse */
    if (status == HEARTH_PEER_LOST && error->text[0])
        return status;
    if (status == HEARTH_PEER_LOST || (status == HEARTH_PENDING && sending != HEARTH_OK))
        return lost(t, error);
    return status;
}

bool secure_stream_ready(const struct secure_stream *t)
{
    return !t->channel || channel_ready(t->channel);
}

int secure_stream_pump(struct secure_stream *t, struct error *error)
{
    if (!secure_stream_ready(t))
        return shake(t, error);
    if (flush(t) == HEARTH_OK)
        return HEARTH_OK;
    return error_because(error, HEARTH_REASON_PEER_CLOSED, HEARTH_PEER_LOST, RANK_NONE,
                         "the connection broke");
}

const struct identity *secure_stream_peer(const struct secure_stream *t)
{
    return t->channel && channel_ready(t->channel) ? channel_peer(t->channel) : NULL;
}

/* ---- the rest ----------------------------------------------------------------------------------------- */

struct sock_wait secure_stream_wait(const struct secure_stream *t)
{
    return (struct sock_wait){.fd = t->fd, .want_recv = true, .want_send = secure_stream_wants_send(t)};
}

int secure_stream_fd(const struct secure_stream *t)
{
    return t->fd;
}

void secure_stream_close(struct secure_stream *t)
{
    if (!t)
        return;
    if (t->fd >= 0)
        (void)flush(t);
    sock_close(t->fd);
    channel_close(t->channel);
    left_free(t);
    heap_free(t);
}

int secure_stream_release(struct secure_stream *t, int *fd, struct records **records)
{
    int status = flush(t);

    if (secure_stream_wants_send(t))
        return status == HEARTH_OK ? HEARTH_PENDING : status;
    *records = NULL;
    if (t->channel)
        status = channel_take_records(t->channel, records);
    if (status == HEARTH_PENDING)
        return status;
    t->channel = NULL;
    if (status == HEARTH_OK) {
        *fd = t->fd;
        t->fd = -1;
    }
    secure_stream_close(t);
    return status;
}
