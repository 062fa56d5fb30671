/* SPDX-License-Identifier: Apache-2.0 */
/* nng's request and reply over TCP, measured: rank 0 requests, rank 1 replies. --algo copy: nng_send and
 * nng_recv with buffers of the caller. --algo message: nng's own message travels, and the reply is the
 * request. */
#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>
#include <nng/protocol/reqrep0/req.h>
#include <nng/supplemental/util/platform.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peers/measure.h"
#include "bench/peers/message_loop.h"

#define DIAL_TRIES 500
#define DIAL_MS    10

struct nng {
    nng_socket socket;
    nng_msg *spare; /* the last one received, to be sent next */
};

static bool good(int status, const char *what)
{
    if (status)
        fprintf(stderr, "nng: %s: %s\n", what, nng_strerror(status));
    return status == 0;
}

static bool copy_send(void *self, const void *data, size_t len)
{
    const struct nng *n = self;
    return good(nng_send(n->socket, (void *)data, len, 0), "send");
}

static bool copy_recv(void *self, void *data, size_t len)
{
    const struct nng *n = self;
    size_t found = len;
    if (!good(nng_recv(n->socket, data, &found, 0), "receive"))
        return false;
    return found == len || good(NNG_EMSGSIZE, "receive");
}

static bool message_send(void *self, const void *data, size_t len)
{
    struct nng *n = self;
    if (n->spare && nng_msg_len(n->spare) != len) {
        nng_msg_free(n->spare);
        n->spare = NULL;
    }
    if (!n->spare && !good(nng_msg_alloc(&n->spare, len), "message"))
        return false;
    memcpy(nng_msg_body(n->spare), data, len);
    nng_msg *message = n->spare;
    n->spare = NULL;
    return good(nng_sendmsg(n->socket, message, 0), "send");
}

static bool message_recv(void *self, void *data, size_t len)
{
    struct nng *n = self;
    if (n->spare)
        nng_msg_free(n->spare);
    n->spare = NULL;
    if (!good(nng_recvmsg(n->socket, &n->spare, 0), "receive"))
        return false;
    if (nng_msg_len(n->spare) != len)
        return good(NNG_EMSGSIZE, "receive");
    memcpy(data, nng_msg_body(n->spare), len);
    return true;
}

static bool join(struct nng *n, int rank, const char *url)
{
    int status = NNG_ECONNREFUSED;
    if (rank == 1)
        return good(nng_rep0_open(&n->socket), "socket") && good(nng_listen(n->socket, url, NULL, 0), url);
    if (!good(nng_req0_open(&n->socket), "socket") ||
        !good(nng_socket_set_ms(n->socket, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE), "no resending"))
        return false;
    for (int i = 0; i < DIAL_TRIES && status == NNG_ECONNREFUSED; i++) {
        if (i > 0)
            nng_msleep(DIAL_MS);
        status = nng_dial(n->socket, url, NULL, 0);
    }
    return good(status, url);
}

int main(int argc, char **argv)
{
    struct setting settings[] = {{"seconds", "0.5"},
                                 {"window", "0"},
                                 {"algo", "copy"},
                                 {"rank", "0"},
                                 {"url", "tcp://127.0.0.1:7999"}};
    struct nng nng = {0};
    char **sizes = settings_take(argv, settings, 5);
    (void)argc;
    if (!sizes)
        return 2;
    bool copies = strcmp(settings[2].value, "message") != 0;
    struct messenger messenger = {.name = "nng", .algo = settings[2].value, .alloc = "private", .self = &nng};
    messenger.rank = (int)strtol(settings[3].value, NULL, 10);
    messenger.send = copies ? copy_send : message_send;
    messenger.recv = copies ? copy_recv : message_recv;
    if (!join(&nng, messenger.rank, settings[4].value))
        return 1;
    struct course course = {settings[0].value, settings[1].value, sizes[0]};
    int status = measure_messages(&messenger, &course);
    if (messenger.rank == 1)
        nng_msleep(DIAL_MS * 10); /* the last reply leaves before the socket closes */
    nng_close(nng.socket);
    return status;
}
