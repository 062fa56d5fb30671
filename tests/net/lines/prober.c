/* SPDX-License-Identifier: Apache-2.0 */
/* hearth-prober: one end of a line that is measured, for tests. Prints one line of JSON for each probe.
 *
 *     hearth-prober listen ADDRESS          serves probes, one after the other, until it is killed
 *     hearth-prober dial ADDRESS COUNT MS   makes so many, each with a burst of so many milliseconds */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/probe_run.h"
#include "os/clock.h"

#define SHAKE_NS (5 * NS_PER_S)

static struct heap heap;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static struct credentials *make_credentials(void)
{
    struct credentials_setup setup = {.heap = &heap, .instance = clock_real() | 1};
    struct credentials *credentials = NULL;
    uint8_t secret[SECRET_LEN];
    struct error error;

    memset(secret, 0x11, sizeof secret);
    if (node_key_fresh(&setup.key, &error) != HEARTH_OK ||
        secret_from_bytes(secret, "test", &setup.secret, &error) != HEARTH_OK ||
        credentials_open(&setup, &credentials, &error) != HEARTH_OK)
        fail("credentials", error.text);
    return credentials;
}

static struct secure_stream *shake(const struct credentials *credentials, enum channel_role role, int fd)
{
    struct session_setup setup = {.heap = &heap, .credentials = credentials, .role = role};
    uint64_t deadline_ns = clock_real() + SHAKE_NS;
    struct secure_stream *stream = NULL;
    struct error error;
    int status = secure_stream_open(&setup, fd, &stream);

    if (status != HEARTH_OK)
        fail("secure stream", "no memory");
    while ((status = secure_stream_pump(stream, &error)) == HEARTH_PENDING && clock_real() < deadline_ns) {
        struct sock_wait wait = {.fd = fd, .want_recv = true, .want_send = secure_stream_wants_send(stream)};
        (void)sock_wait(&wait, 1, deadline_ns);
    }
    if (status != HEARTH_OK)
        fail("handshake", error.text);
    return stream;
}

static void probe(struct secure_stream *stream, bool sends, uint64_t burst_ns)
{
    struct probe_run_setup setup = {
        .heap = &heap, .stream = stream, .sends = sends, .burst_ns = burst_ns, .now_ns = clock_real()};
    struct probe_run *run = NULL;
    int status = probe_run_open(&setup, &run);

    if (status != HEARTH_OK)
        fail("probe", "no memory");
    while ((status = probe_run_pump(run)) == HEARTH_PENDING) {
        uint64_t deadline_ns = NEVER_NS;
        struct sock_wait wait = probe_run_wait(run, &deadline_ns);
        (void)sock_wait(&wait, 1, deadline_ns);
    }
    const struct probe_result *result = probe_run_result(run);
    printf("{\"status\":\"%s\",\"mbit\":%.1f,\"bytes\":%llu,\"ms\":%.1f,\"all_ms\":%.1f}\n",
           hearth_status_name(status), result->mbit_x10 / 10.0, (unsigned long long)result->bytes,
           (double)result->time_ns / 1e6, (double)probe_run_time(run) / 1e6);
    fflush(stdout);
    probe_run_close(run);
}

static void listen_at(const struct credentials *credentials, const struct sock_addr *addr)
{
    struct sock_wait wait = {.want_recv = true};
    struct error error;

    if (sock_listen(addr, 8, &wait.fd, NULL, &error) != HEARTH_OK)
        fail("listen", error.text);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int fd = -1;
        (void)sock_wait(&wait, 1, NEVER_NS);
        if (sock_accept(wait.fd, &fd, NULL) == HEARTH_OK)
            probe(shake(credentials, CHANNEL_LISTENS, fd), false, 0);
    }
}

static void dial(const struct credentials *credentials, const struct sock_addr *addr, uint64_t burst_ns)
{
    struct sock_wait wait = {.want_send = true};
    struct error error;

    if (sock_dial(addr, NULL, &wait.fd, &error) != HEARTH_OK)
        fail("dial", error.text);
    (void)sock_wait(&wait, 1, clock_real() + SHAKE_NS);
    if (sock_dialled(wait.fd, addr, &error) != HEARTH_OK)
        fail("dial", error.text);
    probe(shake(credentials, CHANNEL_DIALS, wait.fd), true, burst_ns);
}

int main(int argc, char **argv)
{
    struct sock_addr addr;

    if (argc < 3 || sock_addr_parse(argv[2], 52499, &addr) != HEARTH_OK)
        fail("usage", "hearth-prober listen ADDRESS | dial ADDRESS COUNT MS");
    heap_init(&heap, 0);
    struct credentials *credentials = make_credentials();
    if (strcmp(argv[1], "listen") == 0)
        listen_at(credentials, &addr);
    for (long i = 0; argc > 4 && i < strtol(argv[3], NULL, 10); i++)
        dial(credentials, &addr, strtoull(argv[4], NULL, 10) * NS_PER_MS);
    credentials_close(credentials);
    return 0;
}
