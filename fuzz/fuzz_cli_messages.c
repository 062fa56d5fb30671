/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the launcher, in pieces of any size: they come out as they stand in the bytes, whatever those
 * are, and what was taken and wiped is nowhere in the buffer. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/run/launch_message.h"
#include "cli/shared/signals.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define HEAD      4
#define PIECE_MAX 4096 /* a pipe always takes as much */
#define LOOKS_MAX 4    /* at the whole buffer, which is slow */

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* All messages that are whole in bytes[*at..end), right or wrong. false: what stands there cannot be one. */
static bool take_messages(struct launch_stream *stream, const uint8_t *bytes, size_t *at, size_t end)
{
    for (;;) {
        struct launch_message m;
        size_t before = stream->at;
        int more = launch_stream_next(stream, &m);
        if (stream->at == before)
            return more == 0;
        const uint8_t *head = bytes + *at;
        must(end - *at >= HEAD && (m.kind == head[0] || m.kind == LAUNCH_NONE) && m.len <= end - *at - HEAD);
        must(m.len == ((size_t)head[1] | (size_t)head[2] << 8 | (size_t)head[3] << 16));
        must(m.len == 0 || memcmp(m.bytes, head + HEAD, m.len) == 0);
        *at += HEAD + m.len;
    }
}

static void look_for_traces(struct launch_stream *stream)
{
    launch_stream_wipe(stream);
    for (size_t i = 0; i < stream->at; i++)
        must(stream->data[i] == 0);
    for (size_t i = stream->len; i < stream->cap; i++)
        must(stream->data[i] == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct launch_stream stream;
    int ends[2], looks = 0;
    size_t at = 0, sent = 0, piece = len > 0 ? 1 + (size_t)bytes[0] * 16 % PIECE_MAX : 1;
    if (!pipe_open(ends))
        return 0;
    launch_stream_init(&stream, ends[0]);
    must(launch_stream_read(&stream) == 0);
    while (sent < len) {
        size_t part = len - sent < piece ? len - sent : piece;
        must(write(ends[1], bytes + sent, part) == (ssize_t)part && launch_stream_read(&stream) == 1);
        sent += part;
        if (!take_messages(&stream, bytes, &at, sent))
            break;
        must(launch_stream_waiting(&stream) == sent - at);
        if (at > 0 && looks++ < LOOKS_MAX)
            look_for_traces(&stream);
    }
    close(ends[1]);
    launch_stream_close(&stream);
    return 0;
}
