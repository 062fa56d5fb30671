/* SPDX-License-Identifier: Apache-2.0 */
/* Many connections as fast as they go, of all kinds in turn, a few hundred at a time. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/prng.h"
#include "net/strangers/stranger.h"

#define WIDTH      256  /* connections at a time */
#define TRICKLE_MS 1000 /* between two bytes of a slow one */

enum mode {
    CLOSE,       /* connects and goes */
    HOLD,        /* says nothing */
    TRICKLE,     /* says a byte a second */
    GARBAGE,     /* says random bytes */
    WRONG_KNOCK, /* half a handshake; has no secret */
    HEARD_KNOCK, /* half a handshake; has heard a member knock */
    MODES
};
static const char *const mode_names[MODES] = {"close",   "hold",        "trickle",
                                              "garbage", "wrong-knock", "heard-knock"};

struct guest {
    int fd; /* -1: this place is free */
    enum mode mode;
    bool connected;
    size_t said;
    uint64_t begin_ms, next_ms;
    struct sight sight;
};

struct flood {
    struct place place;
    int modes[MODES], mode_count; /* in turn */
    uint8_t wrong[HELLO_MAX], heard[HELLO_MAX];
    size_t wrong_len, heard_len;
    struct prng prng;
    struct guest guests[WIDTH];
    long begun, wanted;
    /* what was seen */
    unsigned long connected, refused, closed, reset, answered, alerts, stayed;
    uint64_t bytes, bytes_most, longest_ms;
};

/* ---- one of them ---- */

static void leave(struct flood *f, struct guest *g)
{
    uint64_t stay_ms = clock_ms() - g->begin_ms;
    close(g->fd);
    g->fd = -1;
    f->closed += g->sight.closed;
    f->reset += g->sight.reset;
    f->answered += g->sight.bytes > 0;
    f->alerts += g->sight.last == 21;
    f->bytes += g->sight.bytes;
    f->bytes_most = g->sight.bytes > f->bytes_most ? g->sight.bytes : f->bytes_most;
    f->longest_ms = stay_ms > f->longest_ms ? stay_ms : f->longest_ms;
}

static void say(struct guest *g, const void *bytes, size_t len)
{
    if (send(g->fd, bytes, len, MSG_NOSIGNAL) > 0) /* else it is closed, which we shall see */
        g->said += len;
}

static void say_garbage(struct flood *f, struct guest *g)
{
    uint8_t bytes[4096];
    size_t len = 1 + prng_below(&f->prng, sizeof bytes);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)prng_u64(&f->prng);
    if (len > 5 && prng_below(&f->prng, 2) == 0)
        memcpy(bytes, "\x16\x03\x01\x0f\xff", 5); /* a record of TLS, and then nothing of it */
    say(g, bytes, len);
}

static void act(struct flood *f, struct guest *g)
{
    f->connected++;
    g->connected = true;
    g->next_ms = clock_ms() + TRICKLE_MS;
    switch (g->mode) {
    case CLOSE:
        if (prng_below(&f->prng, 2) == 0)
            setsockopt(g->fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
        leave(f, g);
        break;
    case TRICKLE:
        say(g, f->wrong, 1);
        break;
    case GARBAGE:
        say_garbage(f, g);
        break;
    case WRONG_KNOCK:
        say(g, f->wrong, f->wrong_len);
        break;
    case HEARD_KNOCK:
        say(g, f->heard, f->heard_len);
        break;
    case HOLD:
    case MODES:
        break;
    }
}

static void come(struct flood *f, struct guest *g)
{
    int mode = f->modes[f->begun++ % f->mode_count];
    *g = (struct guest){.fd = dial(&f->place, false), .mode = (enum mode)mode, .begin_ms = clock_ms()};
    f->refused += g->fd < 0;
}

static void hear(struct flood *f, struct guest *g)
{
    uint8_t bytes[4096];
    ssize_t got;
    while ((got = recv(g->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        sight_take(&g->sight, bytes, (size_t)got);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    g->sight.closed = got == 0;
    g->sight.reset = got < 0;
    leave(f, g);
}

static void look_after(struct flood *f, struct guest *g, short events)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (!g->connected && events != 0) {
        getsockopt(g->fd, SOL_SOCKET, SO_ERROR, &error, &len);
        if (error != 0) {
            f->refused++;
            close(g->fd);
            g->fd = -1;
            return;
        }
        act(f, g);
    } else if (events != 0) {
        hear(f, g);
    }
    if (g->fd >= 0 && g->mode == TRICKLE && g->connected && clock_ms() >= g->next_ms) {
        say(g, f->wrong + g->said % f->wrong_len, 1);
        g->next_ms += TRICKLE_MS;
    }
    if (g->fd >= 0 && clock_ms() >= g->begin_ms + PATIENCE_MS) {
        f->stayed++; /* nobody has sent it away */
        leave(f, g);
    }
}

/* ---- all of them ---- */

static void run(struct flood *f)
{
    struct pollfd polls[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        f->guests[i].fd = -1;
    for (bool some = true; some || f->begun < f->wanted;) {
        some = false;
        for (int i = 0; i < WIDTH; i++) {
            struct guest *g = &f->guests[i];
            if (g->fd < 0 && f->begun < f->wanted)
                come(f, g);
            some = some || g->fd >= 0;
            polls[i] = (struct pollfd){.fd = g->fd, .events = g->connected ? POLLIN : POLLOUT};
        }
        if (poll(polls, WIDTH, 50) < 0)
            return;
        for (int i = 0; i < WIDTH; i++)
            if (f->guests[i].fd >= 0)
                look_after(f, &f->guests[i], polls[i].revents);
    }
}

static bool choose(struct flood *f, const char *mode)
{
    for (int i = 0; i < MODES; i++)
        if ((strcmp(mode, "all") == 0 && (i != HEARD_KNOCK || f->heard_len > 0)) ||
            strcmp(mode, mode_names[i]) == 0)
            f->modes[f->mode_count++] = i;
    return f->mode_count > 0 && (strcmp(mode, "heard-knock") != 0 || f->heard_len > 0);
}

static void report(const struct flood *f, const char *mode, uint64_t ms)
{
    printf(
        "{\"what\":\"flood\",\"mode\":\"%s\",\"begun\":%ld,\"connected\":%lu,\"refused\":%lu,\"closed\":%lu,"
        "\"reset\":%lu,\"stayed\":%lu,\"answered\":%lu,\"alerts\":%lu,\"bytes\":%llu,\"bytes_most\":%llu,"
        "\"longest_s\":%.1f,\"seconds\":%.1f}\n",
        mode, f->begun, f->connected, f->refused, f->closed, f->reset, f->stayed, f->answered, f->alerts,
        (unsigned long long)f->bytes, (unsigned long long)f->bytes_most, (double)f->longest_ms / 1e3,
        (double)ms / 1e3);
}

int do_flood(int count, char **arguments)
{
    static struct flood f;
    struct rlimit limit;
    const char *mode = count > 3 ? arguments[3] : "all";
    if (count < 3 || count > 5 || !place_parse(arguments, &f.place))
        return 2;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    f.wanted = strtol(arguments[2], NULL, 10);
    f.heard_len = count > 4 ? read_file(arguments[4], f.heard, sizeof f.heard) : 0;
    f.wrong_len = hello_forge(f.wrong);
    if (f.wrong_len == 0 || !choose(&f, mode))
        return 2;
    prng_init(&f.prng, 1);
    uint64_t begin = clock_ms();
    run(&f);
    report(&f, mode, clock_ms() - begin);
    return 0;
}
