/* SPDX-License-Identifier: Apache-2.0 */
/* Makes nodes and joins them. */
#include "stream_pair.h"
#include "os/clock.h"
#include "support/suite.h"

struct credentials *secure_stream_person(struct heap *heap, uint64_t instance)
{
    struct credentials_setup setup = {.heap = heap, .instance = instance};
    struct credentials *credentials = NULL;
    uint8_t secret[SECRET_LEN];
    struct error error;

    memset(secret, 0x5e, sizeof secret);
    assert_int_equal(node_key_fresh(&setup.key, &error), HEARTH_OK);
    assert_int_equal(secret_from_bytes(secret, "test", &setup.secret, &error), HEARTH_OK);
    if (credentials_open(&setup, &credentials, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    return credentials;
}

static void tcp_join(int fds[2])
{
    struct sock_wait wait = {.want_recv = true};
    struct sock_addr addr, bound;
    struct error error;

    assert_int_equal(sock_addr_parse("127.0.0.1:0", 0, &addr), HEARTH_OK);
    assert_int_equal(sock_listen(&addr, 1, &wait.fd, &bound, &error), HEARTH_OK);
    assert_int_equal(sock_dial(&bound, NULL, &fds[0], &error), HEARTH_OK);
    assert_int_equal(sock_wait(&wait, 1, clock_real() + 10 * NS_PER_S), 1);
    assert_int_equal(sock_accept(wait.fd, &fds[1], &addr), HEARTH_OK);
    sock_unlisten(wait.fd);
}

void secure_stream_pair(struct heap *heap, const struct credentials *dials, const struct credentials *listens,
                        struct secure_stream *pair[2])
{
    struct session_setup setup = {.heap = heap};
    struct error error;
    int fds[2];

    tcp_join(fds);
    for (int i = 0; i < 2; i++) {
        setup.credentials = i == 0 ? dials : listens;
        setup.role = i == 0 ? CHANNEL_DIALS : CHANNEL_LISTENS;
        assert_int_equal(secure_stream_open(&setup, fds[i], &pair[i]), HEARTH_OK);
    }
    while (!secure_stream_ready(pair[0]) || !secure_stream_ready(pair[1])) {
        struct sock_wait waits[2];
        for (int i = 0; i < 2; i++) {
            int status = secure_stream_pump(pair[i], &error);
            if (status != HEARTH_OK && status != HEARTH_PENDING)
                fail_msg("%s", error.text);
            waits[i] = (struct sock_wait){.fd = fds[i],
                                          .want_recv = !secure_stream_ready(pair[i]),
                                          .want_send = secure_stream_wants_send(pair[i])};
        }
        if (!secure_stream_ready(pair[0]) || !secure_stream_ready(pair[1]))
            assert_true(sock_wait(waits, 2, clock_real() + 10 * NS_PER_S) > 0);
    }
}
