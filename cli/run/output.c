/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks print, line by line with their rank in front, or into a file for each. */
#include "cli/run/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/shared/text.h"

#define BATCH_MAX    (2 * OUTPUT_LINE_MAX)
#define PREFIX_MAX   32
#define PIECE_MAX    4096 /* a pipe that is ready takes so much without blocking */
#define IDLE_MS      100
#define PATH_MAX_LEN 4096

/* ---- writing ---- */

static void write_all(struct output *o, int fd, const char *bytes, size_t len)
{
    while (len > 0 && !o->broken) {
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        if (poll(&ready, 1, IDLE_MS) <= 0) {
            o->idle(o->arg);
            continue;
        }
        ssize_t sent = write(fd, bytes, len < PIECE_MAX ? len : PIECE_MAX);
        if (sent > 0) {
            bytes += sent;
            len -= (size_t)sent;
        } else if (errno == EINTR || errno == EAGAIN) {
            o->idle(o->arg);
        } else {
            o->broken = true;
        }
    }
}

static void flush(struct output *o, int stream)
{
    write_all(o, stream == OUTPUT_STDOUT ? STDOUT_FILENO : STDERR_FILENO, o->batch, o->batch_len);
    o->batch_len = 0;
}

static void put_line(struct output *o, int rank, int stream, const char *text, size_t len)
{
    static const int colours[] = {36, 32, 33, 35, 34, 31};
    if (o->batch_len + PREFIX_MAX + len + 1 > BATCH_MAX)
        flush(o, stream);
    char *at = o->batch + o->batch_len;
    if (o->prefix && o->colour[stream])
        at += snprintf(at, PREFIX_MAX, "\033[%dm[%d]\033[0m ", colours[rank % 6], rank);
    else if (o->prefix)
        at += snprintf(at, PREFIX_MAX, "[%d] ", rank);
    memcpy(at, text, len);
    at[len] = '\n';
    o->batch_len = (size_t)(at + len + 1 - o->batch);
}

/* Takes from the bytes up to a newline or to the length of a piece; gives how many. */
static size_t take_line(struct output *o, int rank, int stream, const char *bytes, size_t len)
{
    struct output_line *line = &o->lines[rank * OUTPUT_STREAMS + stream];
    size_t room = OUTPUT_LINE_MAX - line->len;
    const char *end = memchr(bytes, '\n', len < room + 1 ? len : room + 1);
    size_t taken = end ? (size_t)(end - bytes) : len < room ? len : room;
    memcpy(line->text + line->len, bytes, taken);
    line->len += taken;
    if (!end && len <= room)
        return taken;
    put_line(o, rank, stream, line->text, line->len);
    line->len = 0;
    return taken + (!!end);
}

void output_write(struct output *o, int rank, int stream, const char *bytes, size_t len)
{
    if (o->files) {
        int *file = &o->files[rank * OUTPUT_STREAMS + stream];
        while (len > 0 && *file >= 0) {
            ssize_t sent = write(*file, bytes, len);
            if (sent < 0 && errno != EINTR) {
                fprintf(stderr, "hearth run: cannot write the output of rank %d: %s\n", rank,
                        strerror(errno));
                close(*file);
                *file = -1;
            }
            bytes += sent > 0 ? sent : 0;
            len -= sent > 0 ? (size_t)sent : 0;
        }
        return;
    }
    while (len > 0) {
        size_t taken = take_line(o, rank, stream, bytes, len);
        bytes += taken;
        len -= taken;
    }
    flush(o, stream);
}

void output_end(struct output *o, int rank)
{
    for (int stream = 0; stream < OUTPUT_STREAMS && o->lines; stream++) {
        struct output_line *line = &o->lines[rank * OUTPUT_STREAMS + stream];
        if (line->len > 0)
            put_line(o, rank, stream, line->text, line->len);
        line->len = 0;
        flush(o, stream);
    }
}

/* ---- open and close ---- */

static bool open_files(struct output *o, const char *dir)
{
    static const char *const ends[OUTPUT_STREAMS] = {"out", "err"};
    char path[PATH_MAX_LEN];
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "hearth run: cannot make the directory '%s': %s\n", dir, strerror(errno));
        return false;
    }
    memset(o->files, -1, (size_t)o->ranks * OUTPUT_STREAMS * sizeof *o->files); /* none is open */
    for (int i = 0; i < o->ranks * OUTPUT_STREAMS; i++) {
        snprintf(path, sizeof path, "%s/%d.%s", dir, i / OUTPUT_STREAMS, ends[i % OUTPUT_STREAMS]);
        o->files[i] = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (o->files[i] < 0) {
            fprintf(stderr, "hearth run: cannot write '%s': %s\n", path, strerror(errno));
            return false;
        }
    }
    return true;
}

bool output_open(struct output *o, int ranks, bool prefix, const char *dir)
{
    size_t count = (size_t)ranks * OUTPUT_STREAMS;
    *o = (struct output){.ranks = ranks, .prefix = prefix};
    o->colour[OUTPUT_STDOUT] = *paint(stdout, PAINT_NONE) != 0;
    o->colour[OUTPUT_STDERR] = *paint(stderr, PAINT_NONE) != 0;
    o->batch = malloc(BATCH_MAX);
    o->files = dir ? calloc(count, sizeof *o->files) : NULL;
    o->lines = dir ? NULL : malloc(count * sizeof *o->lines); /* most of it is never touched */
    if (!o->batch || !(o->files || o->lines)) {
        fprintf(stderr, "hearth run: no memory for the output of %d ranks\n", ranks);
        return false;
    }
    for (size_t i = 0; i < count && o->lines; i++)
        o->lines[i].len = 0;
    return !dir || open_files(o, dir);
}

void output_close(struct output *o)
{
    for (int i = 0; o->files && i < o->ranks * OUTPUT_STREAMS; i++) {
        if (o->files[i] >= 0)
            close(o->files[i]);
    }
    free(o->files);
    free(o->lines);
    free(o->batch);
    *o = (struct output){.ranks = 0};
}
