/* SPDX-License-Identifier: Apache-2.0 */
/* Lines in one buffer; the poll loop says when the reader takes more. */
#include "helper/mdns_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/hash.h"

static void flush(struct mdns_out *out)
{
    size_t done = 0;

    while (done < out->len && !out->broken) {
        ssize_t n = write(out->fd, out->bytes + done, out->len - done);
        if (n > 0)
            done += (size_t)n;
        else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        else
            out->broken = n == 0 || errno != EINTR;
    }
    memmove(out->bytes, out->bytes + done, out->len - done);
    out->len -= done;
}

static void writable(AvahiWatch *watch, int fd, AvahiWatchEvent event, void *arg)
{
    struct mdns_out *out = arg;

    (void)fd, (void)event;
    flush(out);
    if (out->len == 0)
        out->poll->watch_update(watch, 0);
}

bool out_init(struct mdns_out *out, const AvahiPoll *poll, int fd)
{
    memset(out, 0, sizeof *out);
    out->poll = poll;
    out->fd = fd;
    out->bytes = malloc(OUT_BYTES_MAX);
    int flags = fcntl(fd, F_GETFL);
    if (!out->bytes || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return false;
    out->watch = poll->watch_new(poll, fd, 0, writable, out);
    return out->watch;
}

void out_fini(struct mdns_out *out)
{
    if (out->bytes)
        flush(out);
    if (out->watch)
        out->poll->watch_free(out->watch);
    free(out->bytes);
}

void out_line(struct mdns_out *out, const char *line, size_t len)
{
    if (len > OUT_BYTES_MAX - out->len) {
        out->broken = true; /* a reader that sleeps; the next one starts from nothing */
        return;
    }
    memcpy(out->bytes + out->len, line, len);
    out->len += len;
    flush(out);
    out->poll->watch_update(out->watch, out->len > 0 ? AVAHI_WATCH_OUT : 0);
}

static bool first_time(struct mdns_out *out, const char *source)
{
    uint64_t hash = hash64(0, source, strlen(source));

    for (int i = 0; i < out->warned_count; i++)
        if (out->warned[i] == hash)
            return false;
    if (out->warned_count == OUT_WARNED)
        return false;
    out->warned[out->warned_count++] = hash;
    return true;
}

void out_warn(struct mdns_out *out, const char *source, const char *format, ...)
{
    char text[200], line[256];
    va_list args;

    if (!first_time(out, source))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    bool last = out->warned_count == OUT_WARNED;
    int len =
        snprintf(line, sizeof line, "warn %s%s\n", text, last ? " (further warnings are left out)" : "");
    out_line(out, line, (size_t)len);
}
