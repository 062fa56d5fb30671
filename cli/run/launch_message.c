/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the launcher and the host agents of its ranks: sent, read and checked. */
#include "cli/run/launch_message.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/bytes.h"
#include "security/secret.h"
#include "security/vault.h"

#define HEAD       4
#define READ_MAX   65536
#define SIGNAL_MAX 127 /* what a status of wait(2) has room for */

/* ---- signals ---- */

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

/* ---- bytes ---- */

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
    struct writer w = writer_of(stream->data + stream->len, HEAD + len);
    put_u32(&w, (uint32_t)len << 8 | (uint32_t)kind);
    put_bytes(&w, content, len);
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

/* ---- what a message says ---- */

static const struct launch_rule {
    int kind;
    size_t min, max; /* length of the content */
    bool text;       /* no 0 inside */
    size_t len;      /* of the number that it begins with: 0, 1 or 4 */
    uint32_t least, most;
} kinds[] = {
    {LAUNCH_DIR, 1, LAUNCH_CONTENT_MAX, .text = true},
    {LAUNCH_VAR, 2, LAUNCH_CONTENT_MAX, .text = true},
    {LAUNCH_ARG, 0, LAUNCH_CONTENT_MAX, .text = true},
    {LAUNCH_SECRET, 1, SECRET_TOKEN_MAX - 1, .text = false},
    {LAUNCH_GO, 1, 1, .len = 1, .most = 1},
    {LAUNCH_SIGNAL, 1, 1, .len = 1, .most = PASS_COUNT - 1},
    {LAUNCH_INPUT, 1, INPUT_MAX, .text = false},
    {LAUNCH_INPUT_END, 0, 0, .text = false},
    {LAUNCH_HELLO, sizeof LAUNCH_STREAM_GREETING - 1, sizeof LAUNCH_STREAM_GREETING - 1, .text = false},
    {LAUNCH_PID, 4, 4, .len = 4, .least = 2, .most = INT_MAX},
    {LAUNCH_OUT, 0, OUTPUT_MAX, .text = false},
    {LAUNCH_ERR, 0, OUTPUT_MAX, .text = false},
    {LAUNCH_TAKEN, 1, 1, .len = 1, .most = 1},
    {LAUNCH_FAILED, 1, LAUNCH_CONTENT_MAX, .len = 1, .least = 1, .most = UINT8_MAX},
    {LAUNCH_END, 2, 2, .len = 1, .most = UINT8_MAX},
};

/* What another machine says is shown on a terminal. */
static void take_reason(const char *bytes, size_t len, char reason[static LAUNCH_REASON_MAX])
{
    len = len < LAUNCH_REASON_MAX - 1 ? len : LAUNCH_REASON_MAX - 1;
    for (size_t i = 0; i < len; i++)
        reason[i] = bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '?';
    reason[len] = 0;
}

/* Checks the content and takes what it says. */
static bool read_content(struct launch_message *m)
{
    const struct launch_rule *kind = kinds, *end = kinds + sizeof kinds / sizeof *kinds;
    while (kind < end && kind->kind != m->kind)
        kind++;
    if (kind == end) {
        m->kind = LAUNCH_NONE;
        return true;
    }
    if (m->len < kind->min || m->len > kind->max ||
        (kind->text && m->len > 0 && memchr(m->bytes, 0, m->len)) ||
        (m->kind == LAUNCH_HELLO && memcmp(m->bytes, LAUNCH_STREAM_GREETING, m->len) != 0))
        return false;
    struct reader r = reader_of(m->bytes, m->len);
    uint32_t number = kind->len == 4 ? get_u32(&r) : kind->len == 1 ? get_u8(&r) : 0;
    m->number = number <= kind->most ? (int)number : 0;
    if (m->kind == LAUNCH_END)
        m->signal = get_u8(&r);
    if (m->kind == LAUNCH_FAILED)
        take_reason(m->bytes + 1, m->len - 1, m->reason);
    return number >= kind->least && number <= kind->most && m->signal <= SIGNAL_MAX;
}

int launch_stream_next(struct launch_stream *stream, struct launch_message *m)
{
    if (launch_stream_waiting(stream) < HEAD)
        return 0;
    const unsigned char *head = stream->data + stream->at;
    *m = (struct launch_message){
        .kind = head[0], .bytes = (const char *)head + HEAD, .len = load_u32(head) >> 8};
    if (m->len > LAUNCH_CONTENT_MAX)
        return -1;
    if (launch_stream_waiting(stream) < HEAD + m->len)
        return 0;
    stream->at += HEAD + m->len;
    return read_content(m) ? 1 : -1;
}
