/* SPDX-License-Identifier: Apache-2.0 */
/* A wire with an ear: passes on every byte between diallers and a listener, and writes down what the first
 * dialler said. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/strangers/stranger.h"

#define PAIRS_MAX 32

struct pair {
    int fds[2]; /* the dialler's socket, ours to the listener; -1: this place is free */
    FILE *file; /* NULL: nobody writes it down */
};

static void pair_close(struct pair *pair)
{
    if (pair->file)
        fclose(pair->file);
    close(pair->fds[0]);
    close(pair->fds[1]);
    *pair = (struct pair){.fds = {-1, -1}};
}

static void pair_open(struct pair *pair, int fd, const struct place *place, const char *path)
{
    *pair = (struct pair){.fds = {fd, dial(place, true)}};
    if (pair->fds[1] < 0) {
        close(fd);
        *pair = (struct pair){.fds = {-1, -1}};
    } else if (path) {
        pair->file = fopen(path, "wb");
    }
}

static void pair_move(struct pair *pair, int from)
{
    uint8_t bytes[65536];
    ssize_t got = recv(pair->fds[from], bytes, sizeof bytes, 0);
    if (got > 0 && from == 0 && pair->file) { /* before anybody can act on it */
        fwrite(bytes, 1, (size_t)got, pair->file);
        fflush(pair->file);
    }
    if (got <= 0 || !send_all(pair->fds[1 - from], bytes, (size_t)got))
        pair_close(pair);
}

static void pass_all(int listener, const struct place *place, const char *path)
{
    struct pair pairs[PAIRS_MAX];
    struct pollfd polls[1 + 2 * PAIRS_MAX] = {{.fd = listener, .events = POLLIN}};
    for (int i = 0; i < PAIRS_MAX; i++)
        pairs[i] = (struct pair){.fds = {-1, -1}};
    for (;;) { /* until somebody ends it */
        for (int i = 0; i < 2 * PAIRS_MAX; i++)
            polls[1 + i] = (struct pollfd){.fd = pairs[i / 2].fds[i % 2], .events = POLLIN};
        if (poll(polls, 1 + 2 * PAIRS_MAX, -1) < 0)
            return;
        for (int i = 0; i < 2 * PAIRS_MAX; i++)
            if (polls[1 + i].revents != 0 && pairs[i / 2].fds[i % 2] >= 0)
                pair_move(&pairs[i / 2], i % 2);
        if (polls[0].revents == 0)
            continue;
        int fd = accept_within(listener, 0), at = 0;
        while (at < PAIRS_MAX && pairs[at].fds[0] >= 0)
            at++;
        if (fd >= 0 && at < PAIRS_MAX) {
            pair_open(&pairs[at], fd, place, path);
            path = pairs[at].file ? NULL : path;
        } else if (fd >= 0) {
            close(fd);
        }
    }
}

int do_record(int count, char **arguments)
{
    struct place place, here;
    char *own[] = {"", count > 0 ? arguments[0] : ""};
    if (count != 4 || !place_parse(arguments + 1, &place) || !place_parse(own, &here))
        return 2;
    int listener = listen_at(here.port);
    if (listener < 0)
        return 1;
    printf("{\"what\":\"record\",\"port\":%u}\n", here.port);
    fflush(stdout);
    pass_all(listener, &place, arguments[3]);
    return 1;
}
