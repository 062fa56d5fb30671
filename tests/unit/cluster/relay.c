/* SPDX-License-Identifier: Apache-2.0 */
/* Passes bytes on. */
#include "relay.h"
#include "os/clock.h"
#include "support/suite.h"

#define PIECE_MAX 700

void relay_open(struct relay *relay, const struct sock_addr *target)
{
    struct sock_addr any;
    struct error error;

    *relay = (struct relay){.target = *target};
    memset(relay->lines, -1, sizeof relay->lines);
    assert_int_equal(sock_addr_parse("127.0.0.1:0", 0, &any), HEARTH_OK);
    assert_int_equal(sock_listen(&any, 64, &relay->fd, &relay->addr, &error), HEARTH_OK);
}

static void line_close(struct relay *relay, int i)
{
    for (int end = 0; end < 2; end++) {
        sock_close(relay->lines[i][end]);
        relay->lines[i][end] = -1;
        relay->ended[i][end] = false;
    }
}

void relay_cut(struct relay *relay)
{
    for (int i = 0; i < RELAY_LINES; i++)
        line_close(relay, i);
}

void relay_close(struct relay *relay)
{
    relay_cut(relay);
    sock_unlisten(relay->fd);
}

static void take(struct relay *relay)
{
    struct sock_addr from;
    struct error error;

    for (int i = 0; i < RELAY_LINES; i++) {
        int *line = relay->lines[i];
        if (line[0] >= 0)
            continue;
        if (sock_accept(relay->fd, &line[0], &from) != HEARTH_OK)
            return;
        relay->passed++;
        assert_int_equal(sock_dial(&relay->target, NULL, &line[1], &error), HEARTH_OK);
        struct sock_wait wait = {.fd = line[1], .want_send = true};
        (void)sock_wait(&wait, 1, clock_real() + 10 * NS_PER_S);
        for (int end = 0; end < 2; end++)
            sock_tune(line[end], &(struct sock_tuning){.congestion = false}); /* no delay but ours */
        if (sock_dialled(line[1], &relay->target, &error) != HEARTH_OK)
            line_close(relay, i);
    }
}

/* From one end to the other. */
static void pass(struct relay *relay, int i, int from, struct prng *prng)
{
    uint8_t bytes[PIECE_MAX];
    struct iovec piece = {bytes, 1 + prng_below(prng, PIECE_MAX)};
    ssize_t len = sock_recv(relay->lines[i][from], &piece, 1);

    if (len > 0) {
        piece.iov_len = (size_t)len;
        /* So little fits, or nobody is there. */
        (void)sock_send(relay->lines[i][!from], &piece, 1);
    } else if (len < 0) {
        sock_finish(relay->lines[i][!from]);
        relay->ended[i][from] = true;
    }
}

void relay_step(struct relay *relay, struct prng *prng)
{
    take(relay);
    for (int i = 0; i < RELAY_LINES; i++) {
        for (int from = 0; from < 2; from++)
            if (relay->lines[i][from] >= 0 && !relay->ended[i][from] && prng_below(prng, 2) == 0)
                pass(relay, i, from, prng);
        if (relay->ended[i][0] && relay->ended[i][1])
            line_close(relay, i);
    }
}
