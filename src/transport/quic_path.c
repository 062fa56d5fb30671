/* SPDX-License-Identifier: Apache-2.0 */
/* A line: packets between its engine and the endpoint's socket. */
#include <assert.h>
#include <string.h>

#include "os/clock.h"
#include "transport/quic_line.h"

#define BURST_BYTES (1u << 20) /* written before others have their turn */
#define TRIAL_NS    (250 * NS_PER_MS)
#define TRIAL_PATHS 8 /* or so many round trips */

static struct quic_stream *stream_at(const struct quic_line *line, int number)
{
    return number < LINK_PIPES_MAX ? line->streams[number] : NULL;
}

/* ---- what the engine says ---- */

static void on_bytes(void *arg, int number, const uint8_t *bytes, size_t len)
{
    struct quic_line *line = arg;
    struct quic_stream *stream = stream_at(line, number);
    if (!stream) {
        quic_line_lose(line, "it uses a stream that was not agreed on");
        return;
    }
    stream->open = true;
    quic_stream_take(stream, bytes, len);
}

static void on_end(void *arg, int number)
{
    struct quic_stream *stream = stream_at(arg, number);
    if (stream)
        stream->ended = true;
}

static void on_acked(void *arg, int number, size_t len)
{
    struct quic_stream *stream = stream_at(arg, number);
    if (!stream)
        return;
    stream->out.done += len;
    assert(stream->out.done <= stream->out_sent);
}

const struct quic_engine_events quic_line_events = {on_bytes, on_end, on_acked};

/* ---- in ---- */

void quic_line_dirty(struct quic_line *line)
{
    if (line->dirty)
        return;
    line->dirty = true;
    list_push(&line->quic->dirty, &line->item);
}

void quic_line_lose(struct quic_line *line, const char *why)
{
    if (line->lost)
        return;
    line->lost = true;
    line->why = why;
    line->due_ns = NEVER_NS;
}

/* The last word; if it does not leave, the peer will find out by itself. */
static void say_bye(struct quic_line *line, uint64_t code, uint64_t now_ns)
{
    uint8_t last[DATAGRAM_SIZE_SAFE];
    size_t len = quic_engine_bye(line->engine, code, last, sizeof last, now_ns);
    if (len > 0 && datagram_send(&line->quic->port, &line->remote, last, len, len) != HEARTH_OK)
        len = 0;
}

/* The engine has failed or the peer has closed. */
static void line_failed(struct quic_line *line, int status, uint64_t now_ns)
{
    uint64_t code;
    if (status == HEARTH_PROTOCOL)
        say_bye(line, 0, now_ns);
    quic_line_lose(line, line->refusal.status != HEARTH_OK ? line->refusal.text
                                                           : quic_engine_why(line->engine, &code));
}

void quic_line_read(struct quic_line *line, const uint8_t *bytes, size_t len, uint64_t now_ns)
{
    if (line->lost)
        return;
    if (line->stage < LINE_UP) {
        line->heard_bytes += len;
        if (!line->dials && line->heard_bytes > QUIC_STRANGER_BYTES)
            return;
    }
    int status = quic_engine_read(line->engine, bytes, len, now_ns);
    if (status != HEARTH_OK)
        line_failed(line, status, now_ns);
    else
        quic_line_dirty(line);
}

/* ---- what to write ---- */

static bool has_unsent(const struct quic_stream *stream)
{
    return stream && stream->out.end > stream->out_sent && !stream->blocked;
}

/* The stream that writes next: control before all others, those in turn. NULL: none has anything. */
static struct quic_stream *line_pick(struct quic_line *line)
{
    if (has_unsent(line->streams[0]))
        return line->streams[0];
    for (int i = 0; i < line->stream_count; i++) {
        struct quic_stream *stream = line->streams[line->stream_next];
        line->stream_next = (line->stream_next + 1) % line->stream_count;
        if (stream->number > 0 && has_unsent(stream))
            return stream;
    }
    return NULL;
}

/* What of the ring has not been sent yet. */
static struct quic_unsent unsent_of(const struct quic_stream *stream)
{
    if (!stream)
        return (struct quic_unsent){.stream = -1};
    const struct quic_ring *ring = &stream->out;
    size_t len = (size_t)(ring->end - stream->out_sent), at = (size_t)(stream->out_sent & (ring->size - 1));
    size_t first = len < ring->size - at ? len : ring->size - at;
    return (struct quic_unsent){.stream = stream->number,
                                .count = len > first ? 2 : 1,
                                .pieces = {{ring->bytes + at, first}, {ring->bytes, len - first}}};
}

/* Streams that the peer did not want yet. */
static void open_streams(struct quic_line *line)
{
    for (int i = 1; i < line->stream_count && line->dials; i++) {
        if (line->streams[i]->open)
            continue;
        if (quic_engine_stream(line->engine) != i)
            return;
        line->streams[i]->open = true;
    }
}

/* ---- large datagrams ---- */

/* Handshakes pass everywhere; what comes later is as large as the interface takes. */
static size_t size_now(const struct quic_line *line)
{
    return line->stage < LINE_UP ? DATAGRAM_SIZE_SAFE : line->datagram_size;
}

static void trial_begin(struct quic_line *line, const struct quic_stream *stream, uint64_t now_ns)
{
    struct quic_engine_state state;
    quic_engine_look(line->engine, &state);
    uint64_t paths_ns = TRIAL_PATHS * state.round_trip_ns;
    line->trial = (struct quic_trial){.begun = true, .stream = stream->number, .end = stream->out_sent};
    line->trial.until_ns = now_ns + (paths_ns > TRIAL_NS ? paths_ns : TRIAL_NS);
}

static void trial_look(struct quic_line *line, uint64_t now_ns)
{
    struct quic_trial *trial = &line->trial;
    if (!trial->begun || trial->passed)
        return;
    trial->passed = line->streams[trial->stream]->out.done >= trial->end;
    if (trial->passed || now_ns < trial->until_ns)
        return;
    line->datagram_size = DATAGRAM_SIZE_SAFE;
    trial->passed = true;
}

/* ---- out ---- */

/* The next datagram into the batch. False: nothing to say, or nothing can be said now. */
static bool write_one(struct quic_line *line, uint64_t now_ns)
{
    struct quic *quic = line->quic;
    struct quic_stream *stream = line_pick(line);
    struct quic_unsent unsent = unsent_of(stream);
    ssize_t len = quic_engine_write(line->engine, &unsent, quic->out + quic->out_len, quic->out_size, now_ns);
    if (len == HEARTH_LIMIT) {
        stream->blocked = true;
        return true;
    }
    if (len < 0)
        line_failed(line, (int)len, now_ns);
    if (len <= 0)
        return false;
    if (stream)
        stream->out_sent += unsent.taken;
    if (unsent.taken > DATAGRAM_SIZE_SAFE && !line->trial.begun)
        trial_begin(line, stream, now_ns);
    quic->out_len += (size_t)len;
    /* A batch has datagrams of one size, and may end with a shorter one. */
    if ((size_t)len < quic->out_size || quic->out_len + quic->out_size > DATAGRAM_BATCH)
        return quic_out_flush(quic);
    return true;
}

void quic_line_write(struct quic_line *line, uint64_t now_ns)
{
    struct quic *quic = line->quic;

    if (line->dirty) {
        list_remove(&line->item);
        line->dirty = false;
    }
    if (line->lost)
        return;
    if (!quic_out_flush(quic)) {
        quic_line_dirty(line);
        return;
    }
    int status = line->due_ns <= now_ns ? quic_engine_expire(line->engine, now_ns) : HEARTH_OK;
    if (status != HEARTH_OK)
        line_failed(line, status, now_ns);
    trial_look(line, now_ns);
    if (line->stage >= LINE_UP && !line->lost)
        open_streams(line);
    for (int i = 0; i < line->stream_count; i++)
        line->streams[i]->blocked = false;
    quic->out_line = line;
    quic->out_to = line->remote;
    quic->out_size = size_now(line);
    size_t burst = line->paced ? quic_engine_burst(line->engine) : BURST_BYTES, written = 0;
    while (!line->lost && written < burst && write_one(line, now_ns))
        written += quic->out_size;
    if (!quic_out_flush(quic) || (!line->paced && written >= burst && !line->lost))
        quic_line_dirty(line);
    if (line->lost)
        return;
    quic_engine_written(line->engine, now_ns);
    line->due_ns = quic_engine_due(line->engine);
    if (line->due_ns < quic->due_ns)
        quic->due_ns = line->due_ns;
}

/* ---- the end ---- */

bool quic_line_settled(struct quic_line *line, uint64_t now_ns)
{
    uint64_t behind = 0;
    for (int i = 0; i < line->stream_count && !line->lost; i++)
        behind += line->streams[i]->out.end - line->streams[i]->out.done;
    if (behind != line->behind)
        line->deadline_ns = now_ns + QUIC_LINGER_NS;
    line->behind = behind;
    return behind == 0;
}

void quic_line_end(struct quic_line *line, uint64_t code)
{
    struct quic *quic = line->quic;
    if (!line->lost && line->engine)
        say_bye(line, code, clock_real());
    if (line->dirty)
        list_remove(&line->item);
    if (quic->out_line == line)
        quic->out_line = NULL;
    if (line->stage < LINE_UP && !line->dials)
        quic->half_open--;
    quic->lines[line->slot] = NULL;
    quic_engine_close(line->engine);
    for (int i = 0; i < line->stream_count; i++)
        quic_stream_free(line->streams[i]);
    heap_free(line);
}

void quic_line_linger(struct quic_line *line)
{
    uint64_t now_ns = clock_real();
    line->stage = LINE_LINGERS;
    line->deadline_ns = now_ns + QUIC_LINGER_NS;
    quic_line_write(line, now_ns);
    if (quic_line_settled(line, now_ns))
        quic_line_end(line, 0);
}
