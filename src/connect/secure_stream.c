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
    struct secure_stream *s = heap_alloc(setup->heap, 1, sizeof *s);
    struct error error;

    if (setup->role == CHANNEL_LISTENS && sock_local(fd, &channel.at) != HEARTH_OK)
        channel.at.len = 0; /* a pair of sockets, in tests */
    if (!s || (setup->credentials && channel_open(&channel, &s->channel, &error) != HEARTH_OK)) {
        heap_free(s);
        sock_close(fd);
        return HEARTH_NO_MEMORY;
    }
    s->heap = setup->heap;
    s->fd = fd;
    *out = s;
    return HEARTH_OK;
}

/* ---- sending ------------------------------------------------------------------------------------------ */

static struct iovec unsent(const struct secure_stream *s)
{
    if (s->channel)
        return channel_output(s->channel);
    return (struct iovec){s->left + s->left_sent, s->left_len - s->left_sent};
}

static void left_free(struct secure_stream *s)
{
    if (s->left)
        wipe(s->left, s->left_len);
    heap_free(s->left);
    s->left = NULL;
    s->left_len = s->left_sent = 0;
}

static void sent(struct secure_stream *s, size_t len)
{
    if (s->channel) {
        channel_sent(s->channel, len);
        return;
    }
    s->left_sent += len;
    if (s->left_sent == s->left_len)
        left_free(s);
}

/* HEARTH_OK: all that fits now; HEARTH_PEER_LOST. */
static int flush(struct secure_stream *s)
{
    struct iovec piece = unsent(s);
    ssize_t len = piece.iov_len > 0 ? sock_send(s->fd, &piece, 1) : 0;

    if (len > 0)
        sent(s, (size_t)len);
    return len < 0 ? HEARTH_PEER_LOST : HEARTH_OK;
}

bool secure_stream_wants_send(const struct secure_stream *s)
{
    return unsent(s).iov_len > 0;
}

/* The rest of a message that was begun must follow. */
static bool left_keep(struct secure_stream *s, const uint8_t *bytes, size_t len)
{
    s->left = heap_alloc_raw(s->heap, 1, len);
    if (!s->left)
        return false;
    memcpy(s->left, bytes, len);
    s->left_len = len;
    return true;
}

static bool send_plain(struct secure_stream *s, const void *bytes, size_t len)
{
    struct iovec piece = {(void *)(uintptr_t)bytes, len};
    ssize_t moved = sock_send(s->fd, &piece, 1);

    if (moved <= 0)
        return false;
    if ((size_t)moved == len || left_keep(s, (const uint8_t *)bytes + moved, len - (size_t)moved))
        return true;
    sock_finish(s->fd); /* half a message and no memory for the rest: nothing may follow */
    return false;
}

bool secure_stream_send(struct secure_stream *s, const void *bytes, size_t len)
{
    assert(len > 0 && len <= SECURE_STREAM_MESSAGE_MAX);
    if (flush(s) != HEARTH_OK || secure_stream_wants_send(s))
        return false;
    if (!s->channel)
        return send_plain(s, bytes, len);
    return channel_send(s->channel, bytes, len) && flush(s) == HEARTH_OK;
}

/* ---- receiving ---------------------------------------------------------------------------------------- */

/* Whether the first byte that came is one that our kind of secure stream may begin with. */
static bool hear_first(struct secure_stream *s, uint8_t byte)
{
    if (!s->heard)
        s->mixed = byte == (s->channel ? PLAIN_START : TLS_HANDSHAKE);
    s->heard = true;
    return !s->mixed;
}

bool secure_stream_mixed(const struct secure_stream *s)
{
    return s->mixed;
}

const char *secure_stream_mixed_text(const struct secure_stream *s)
{
    return s->channel ? "it is plain, and we encrypt: start all members with plain, or (better) none"
                      : "it encrypts, and we are plain: start all members with plain, or (better) none";
}

static ssize_t recv_plain(struct secure_stream *s, void *target, size_t len_max)
{
    struct iovec piece = {target, len_max};
    ssize_t len = sock_recv(s->fd, &piece, 1);

    if (len > 0 && !hear_first(s, *(const uint8_t *)target))
        return HEARTH_PROTOCOL;
    return len;
}

/* Gives the channel what there is, up to the end of a record. HEARTH_PENDING: nothing is there. HEARTH_OK:
 * something was. Else why not, with a text if there is more to say than that the connection ended. */
static int feed(struct secure_stream *s, struct error *error)
{
    uint8_t bytes[READ_BYTES];
    size_t wants = channel_wants(s->channel);
    struct iovec piece = {bytes, wants < sizeof bytes ? wants : sizeof bytes};
    ssize_t len = sock_recv(s->fd, &piece, 1);

    error_clear(error);
    if (len <= 0)
        return len == 0 ? HEARTH_PENDING : HEARTH_PEER_LOST;
    if (!hear_first(s, bytes[0]))
        return error_because(error, HEARTH_REASON_SETTINGS_DIFFER, HEARTH_PROTOCOL, RANK_NONE, "%s",
                             secure_stream_mixed_text(s));
    int status = channel_input(s->channel, bytes, (size_t)len, error);
    return status == HEARTH_PENDING ? HEARTH_OK : status;
}

ssize_t secure_stream_recv(struct secure_stream *s, void *target, size_t len_max)
{
    struct error error;

    if (!s->channel)
        return recv_plain(s, target, len_max);
    for (;;) {
        size_t got = channel_recv(s->channel, target, len_max);
        if (got > 0)
            return (ssize_t)got;
        int status = feed(s, &error);
        if (status == HEARTH_PENDING)
            return 0;
        if (status != HEARTH_OK)
            return status == HEARTH_PEER_LOST ? HEARTH_PEER_LOST : HEARTH_PROTOCOL;
    }
}

/* ---- the handshake ------------------------------------------------------------------------------------ */

static int lost(const struct secure_stream *s, struct error *error)
{
    if (s->heard) /* pushed out, it may be, by strangers */
        return error_because(error, HEARTH_REASON_PEER_CLOSED, HEARTH_PEER_LOST, RANK_NONE,
                             "it closed the connection in the handshake");
    return error_because(
        error, HEARTH_REASON_NOT_HEARTH, HEARTH_PEER_LOST, RANK_NONE,
        "it closed the connection without an answer to our handshake: is it Hearth, and not plain?");
}

/* Reads first: the last message of a peer says more than that it closed. */
static int shake(struct secure_stream *s, struct error *error)
{
    int sending, status;

    do {
        sending = flush(s);
        status = feed(s, error);
    } while (status == HEARTH_OK && !channel_ready(s->channel));
    if (status == HEARTH_OK || (status != HEARTH_PENDING && status != HEARTH_PEER_LOST))
        (void)flush(s); /* our last step, or why we refuse */
    if (status == HEARTH_PEER_LOST && error->text[0])
        return status;
    if (status == HEARTH_PEER_LOST || (status == HEARTH_PENDING && sending != HEARTH_OK))
        return lost(s, error);
    return status;
}

bool secure_stream_ready(const struct secure_stream *s)
{
    return !s->channel || channel_ready(s->channel);
}

int secure_stream_pump(struct secure_stream *s, struct error *error)
{
    if (!secure_stream_ready(s))
        return shake(s, error);
    if (flush(s) == HEARTH_OK)
        return HEARTH_OK;
    return error_because(error, HEARTH_REASON_PEER_CLOSED, HEARTH_PEER_LOST, RANK_NONE,
                         "the connection broke");
}

const struct identity *secure_stream_peer(const struct secure_stream *s)
{
    return s->channel && channel_ready(s->channel) ? channel_peer(s->channel) : NULL;
}

/* ---- the rest ----------------------------------------------------------------------------------------- */

struct sock_wait secure_stream_wait(const struct secure_stream *s)
{
    return (struct sock_wait){.fd = s->fd, .want_recv = true, .want_send = secure_stream_wants_send(s)};
}

int secure_stream_fd(const struct secure_stream *s)
{
    return s->fd;
}

void secure_stream_close(struct secure_stream *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        (void)flush(s);
    sock_close(s->fd);
    channel_close(s->channel);
    left_free(s);
    heap_free(s);
}

int secure_stream_release(struct secure_stream *s, int *fd, struct records **records)
{
    int status = flush(s);

    if (secure_stream_wants_send(s))
        return status == HEARTH_OK ? HEARTH_PENDING : status;
    *records = NULL;
    if (s->channel)
        status = channel_take_records(s->channel, records);
    if (status == HEARTH_PENDING)
        return status;
    s->channel = NULL;
    if (status == HEARTH_OK) {
        *fd = s->fd;
        s->fd = -1;
    }
    secure_stream_close(s);
    return status;
}
