/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the launcher and the host agents of its ranks, over pipes or ssh. */
#include "cli/run/launch_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "security/vault.h"

#define HEAD     4
#define READ_MAX 65536

static const int numbers[PASS_COUNT] = {
    [PASS_INT] = SIGINT,   [PASS_TERM] = SIGTERM, [PASS_HUP] = SIGHUP,   [PASS_USR1] = SIGUSR1,
    [PASS_USR2] = SIGUSR2, [PASS_TSTP] = SIGTSTP, [PASS_CONT] = SIGCONT, [PASS_KILL] = SIGKILL};

int pass_number(enum launch_signal place)
{
    return numbers[place];
}

enum launch_signal pass_place(int number)
{
    int place = 0;
    while (place < PASS_COUNT && numbers[place] != number)
        place++;
    return (enum launch_signal)place;
}

void launch_stream_init(struct launch_stream *stream, int fd)
{
    *stream = (struct launch_stream){.fd = fd};
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void drop(struct launch_stream *stream)
{
    if (stream->data)
        wipe(stream->data, stream->cap);
    free(stream->data);
}

void launch_stream_close(struct launch_stream *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    drop(stream);
    *stream = (struct launch_stream){.fd = -1};
}

size_t launch_stream_waiting(const struct launch_stream *stream)
{
    return stream->len - stream->at;
}

/* Room for `more` bytes at the end. */
static bool launch_stream_grow(struct launch_stream *stream, size_t more, size_t max)
{
    if (stream->at > 0) {
        memmove(stream->data, stream->data + stream->at, launch_stream_waiting(stream));
        stream->len -= stream->at;
        stream->at = 0;
    }
    if (stream->len + more > max)
        return false;
    if (stream->len + more <= stream->cap)
        return true;
    size_t cap = stream->cap ? stream->cap : 4096;
    while (cap < stream->len + more)
        cap *= 2;
    unsigned char *data = malloc(cap); /* realloc would leave what it had, unwiped */
    if (!data)
        return false;
    if (stream->len > 0)
        memcpy(data, stream->data, stream->len);
    drop(stream);
    stream->data = data;
    stream->cap = cap;
    return true;
}

bool launch_stream_add(struct launch_stream *stream, int kind, const void *content, size_t len)
{
    if (stream->fd < 0)
        return true; /* nobody reads it any more, which is noticed elsewhere */
    if (len > LAUNCH_CONTENT_MAX || !launch_stream_grow(stream, HEAD + len, LAUNCH_STREAM_QUEUE_MAX))
        return false;
    unsigned char *head = stream->data + stream->len;
    head[0] = (unsigned char)kind;
    for (int i = 0; i < 3; i++)
        head[1 + i] = (unsigned char)(len >> 8 * i);
    if (len > 0)
        memcpy(head + HEAD, content, len);
    stream->len += HEAD + len;
    stream->secret = stream->secret || kind == LAUNCH_SECRET;
    launch_stream_flush(stream);
    return true;
}

void launch_stream_wipe(struct launch_stream *stream)
{
    if (!stream->data)
        return;
    wipe(stream->data, stream->at);
    wipe(stream->data + stream->len, stream->cap - stream->len);
}

void launch_stream_flush(struct launch_stream *stream)
{
    while (stream->fd >= 0 && launch_stream_waiting(stream) > 0) {
        ssize_t sent = write(stream->fd, stream->data + stream->at, launch_stream_waiting(stream));
        if (sent >= 0)
            stream->at += (size_t)sent;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        else if (errno != EINTR)
            launch_stream_close(stream);
    }
    if (stream->secret)
        launch_stream_wipe(stream);
    stream->secret = false;
}

int launch_stream_read(struct launch_stream *stream)
{
    if (stream->fd < 0 || !launch_stream_grow(stream, READ_MAX, LAUNCH_CONTENT_MAX + HEAD + READ_MAX))
        return -1;
    ssize_t got = read(stream->fd, stream->data + stream->len, READ_MAX);
    if (got > 0)
        stream->len += (size_t)got;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    return got > 0 ? 1 : -1;
}

int launch_stream_next(struct launch_stream *stream, struct launch_frame *frame)
{
    if (launch_stream_waiting(stream) < HEAD)
        return 0;
    const unsigned char *head = stream->data + stream->at;
    size_t len = (size_t)head[1] | (size_t)head[2] << 8 | (size_t)head[3] << 16;
    *frame = (struct launch_frame){head[0], head + HEAD, len};
    if (len > LAUNCH_CONTENT_MAX)
        return -1;
    if (launch_stream_waiting(stream) < HEAD + len)
        return 0;
    stream->at += HEAD + len;
    return 1;
}

bool pipe_open(int ends[2])
{
    if (pipe(ends) != 0)
        return false;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    return true;
}
