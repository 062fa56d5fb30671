/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes, both ways at once over loopback: plain TCP beside TLS records, in turns, and what the cipher
 * alone would need. bench_records [MiB] [rounds] [KiB of a frame] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/sock.h"
#include "transport/tcp.h"
#include "transport/tls.h"

#define HEADER_LEN  96u
#define SMALL_LEN   4u
#define SMALL_TRIPS 2000
#define ROUNDS_MAX  101

enum { PLAIN, TLS, WAYS };

struct bench {
    size_t bytes, frame_len;
    int rounds;
    struct heap heap;
    uint8_t *source, *target;
    struct conn *conn[WAYS];
};

/* How far one end is. */
struct progress {
    size_t sent, got, total; /* headers included */
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_records: %s\n", what);
    exit(1);
}

/* ---- moving ---- */

/* Where a position of the stream lies: bytes left of a header (0: in a payload), and payload before it. */
static size_t header_left(const struct bench *b, size_t at, size_t *payload)
{
    size_t step = HEADER_LEN + b->frame_len, frame = at / step, in = at % step;
    *payload = frame * b->frame_len + (in < HEADER_LEN ? 0 : in - HEADER_LEN);
    return in < HEADER_LEN ? HEADER_LEN - in : 0;
}

static bool send_some(struct bench *b, struct conn *conn, struct progress *p)
{
    static uint8_t header[HEADER_LEN];
    size_t payload, left = header_left(b, p->sent, &payload);
    if (p->sent == p->total)
        return false;
    struct iovec pieces[2] = {{header, left}, {b->source + payload, b->frame_len - payload % b->frame_len}};
    ssize_t n =
        left > 0 ? conn->transport->send(conn, pieces, 2) : conn->transport->send(conn, pieces + 1, 1);
    if (n < 0)
        fail("the other end is gone");
    p->sent += (size_t)n;
    return n > 0;
}

static bool recv_some(struct bench *b, struct conn *conn, struct progress *p)
{
    static uint8_t header[HEADER_LEN];
    size_t payload, left = header_left(b, p->got, &payload);
    if (p->got == p->total)
        return false;
    ssize_t n = left > 0
                    ? conn->transport->recv(conn, header, left)
                    : conn->transport->recv(conn, b->target + payload, b->frame_len - payload % b->frame_len);
    if (n < 0)
        fail("the other end is gone");
    p->got += (size_t)n;
    return n > 0;
}

static bool holds(struct conn *conn)
{
    const struct holding *holding = conn->transport->holding;
    if (holding && holding->flush(conn) == HEARTH_PEER_LOST)
        fail("the other end is gone");
    return holding && holding->holds(conn);
}

static void sleep_at(struct conn *conn, bool want_room)
{
    struct sock_wait item = {
        .fd = conn->transport->descriptor(conn), .want_recv = true, .want_send = want_room};
    if (sock_wait(&item, 1, clock_real() + 10 * NS_PER_S) == 0)
        fail("nothing moves");
    conn->transport->attend(conn);
}

/* All bytes out and in: seconds. */
static double move_all(struct bench *b, struct conn *conn)
{
    struct progress p = {.total = b->bytes / b->frame_len * (HEADER_LEN + b->frame_len)};
    uint64_t start = clock_real();
    while (p.got < p.total || p.sent < p.total || holds(conn)) {
        bool moved = false;
        while (send_some(b, conn, &p))
            moved = true;
        while (recv_some(b, conn, &p))
            moved = true;
        if (!moved && (p.got < p.total || p.sent < p.total || holds(conn)))
            sleep_at(conn, p.sent < p.total || holds(conn));
    }
    return (double)(clock_real() - start) / (double)NS_PER_S;
}

static void exchange_small(struct conn *conn, bool first)
{
    uint8_t frame[HEADER_LEN + SMALL_LEN] = {0};
    struct iovec piece = {frame, sizeof frame};
    if (first && conn->transport->send(conn, &piece, 1) != (ssize_t)sizeof frame)
        fail("a small frame was not taken");
    for (size_t got = 0; got < sizeof frame;) {
        ssize_t n = conn->transport->recv(conn, frame + got, sizeof frame - got);
        if (n < 0)
            fail("the other end is gone");
        got += (size_t)n;
    }
    if (!first && conn->transport->send(conn, &piece, 1) != (ssize_t)sizeof frame)
        fail("a small frame was not taken");
}

/* Seconds one way. Both ends spin. */
static double ping(struct conn *conn, bool first)
{
    uint64_t start = clock_real();
    for (int i = 0; i < SMALL_TRIPS; i++)
        exchange_small(conn, first);
    return (double)(clock_real() - start) / (double)NS_PER_S / SMALL_TRIPS / 2;
}

/* Each byte sealed and opened once, without a socket: what each end has to do at least. */
static double cipher_alone(struct bench *b, struct records *out, struct records *in)
{
    static uint8_t record[RECORD_DATA_MAX + RECORD_EXTRA + RECORD_UPDATE_LEN];
    uint64_t start = clock_real();
    for (size_t at = 0; at < b->bytes; at += RECORD_DATA_MAX) {
        struct iovec piece = {b->source + at, RECORD_DATA_MAX};
        size_t len = records_seal(out, &piece, 1, RECORD_DATA_MAX, record);
        if (records_open_one(in, record, len, b->target + at) != RECORD_DATA_MAX)
            fail("a record was not opened");
    }
    return (double)(clock_real() - start) / (double)NS_PER_S;
}

/* ---- setting up ---- */

static struct records *records_for(struct bench *b, int end)
{
    struct records_start start = {0};
    start.out_secret[0] = (uint8_t)end;
    start.in_secret[0] = (uint8_t)!end;
    struct records *records = records_open_at(&b->heap, &start);
    if (!records)
        fail("no memory");
    return records;
}

/* A descriptor of ours does not outlive a fork: so the child dials. */
static int join(int listener, const struct sock_addr *bound, int end)
{
    struct sock_wait item = {.fd = listener, .want_recv = true};
    int fd = -1;
    if (end == 0 && (sock_wait(&item, 1, clock_real() + 10 * NS_PER_S) != 1 ||
                     sock_accept(listener, &fd, NULL) != HEARTH_OK))
        fail("nobody dials");
    if (end == 1 && sock_dial(bound, NULL, &fd, NULL) != HEARTH_OK)
        fail("nobody listens");
    /* As the library has it on loopback. */
    sock_tune(fd, &(struct sock_tuning){.congestion = true, .send_bytes = 1 << 20, .recv_bytes = 1 << 20});
    return fd;
}

static struct conn *encrypted(struct bench *b, int fd, int end)
{
    struct tls_buffers *buffers = tls_buffers_open(&b->heap);
    struct conn *conn = buffers ? tls_conn(buffers, fd, records_for(b, end)) : NULL;
    tls_buffers_close(buffers);
    return conn;
}

static void join_all(struct bench *b, int listener, const struct sock_addr *bound, int end)
{
    for (int way = 0; way < WAYS; way++) {
        int fd = join(listener, bound, end);
        b->conn[way] = way == TLS ? encrypted(b, fd, end) : tcp_conn(&b->heap, fd);
        if (!b->conn[way])
            fail("no memory");
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *samples, int count)
{
    qsort(samples, (size_t)count, sizeof *samples, by_size);
    return samples[count / 2];
}

static void report(struct bench *b, double bulk[WAYS][ROUNDS_MAX], double small[WAYS][ROUNDS_MAX],
                   double *alone)
{
    double plain = median(bulk[PLAIN], b->rounds), tls = median(bulk[TLS], b->rounds);
    double cipher = median(alone, b->rounds), size = (double)b->bytes / 1e9;
    printf("%zu MiB each way at once, frames of %zu KiB, %d rounds in turns\n", b->bytes >> 20,
           b->frame_len >> 10, b->rounds);
    printf("tcp     %7.1f ms %6.2f GB/s each way\n", plain * 1e3, size / plain);
    printf("tls     %7.1f ms %6.2f GB/s each way   ratio to tcp %.2f\n", tls * 1e3, size / tls, plain / tls);
    printf("cipher  %7.1f ms alone, sealed and opened: tcp + cipher would be %.2f\n", cipher * 1e3,
           plain / (plain + cipher));
    plain = median(small[PLAIN], b->rounds);
    tls = median(small[TLS], b->rounds);
    printf("%u bytes in a frame, one way: tcp %.2f us, tls %.2f us\n", SMALL_LEN, plain * 1e6, tls * 1e6);
}

static void run(struct bench *b, int end)
{
    static double bulk[WAYS][ROUNDS_MAX], small[WAYS][ROUNDS_MAX], alone[ROUNDS_MAX];
    struct records *out = records_for(b, 0), *in = records_for(b, 1);
    for (int round = -1; round < b->rounds; round++) { /* the first warms up */
        for (int i = 0; i < WAYS; i++) {
            int way = (round + 1 + i) % WAYS, at = round < 0 ? 0 : round;
            small[way][at] = ping(b->conn[way], end == 0);
            bulk[way][at] = move_all(b, b->conn[way]);
        }
        ping(b->conn[PLAIN], end == 0); /* both are here */
        alone[round < 0 ? 0 : round] = cipher_alone(b, out, in);
    }
    if (end == 0)
        report(b, bulk, small, alone);
    records_close(out);
    records_close(in);
    for (int way = 0; way < WAYS; way++)
        b->conn[way]->transport->close(b->conn[way]);
}

static uint8_t *buffer(size_t len)
{
    void *bytes = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        fail("no memory");
    memset(bytes, 0x5a, len);
    return bytes;
}

int main(int argc, char **argv)
{
    struct bench b = {.bytes = 100u << 20, .rounds = 15, .frame_len = 256u << 10};
    struct sock_addr addr, bound;
    int listener, status = 0;
    if (argc > 1)
        b.bytes = (size_t)strtoul(argv[1], NULL, 10) << 20;
    if (argc > 2)
        b.rounds = (int)strtol(argv[2], NULL, 10);
    if (argc > 3)
        b.frame_len = (size_t)strtoul(argv[3], NULL, 10) << 10;
    if (b.bytes == 0 || b.rounds < 1 || b.rounds > ROUNDS_MAX || b.frame_len == 0 ||
        b.bytes % b.frame_len != 0)
        fail("usage: bench_records [MiB, a multiple of the frames] [rounds, at most 101] [KiB of a frame]");
    heap_init(&b.heap, 0);
    b.source = buffer(b.bytes);
    b.target = buffer(b.bytes);
    if (sock_addr_parse("127.0.0.1:0", 0, &addr) != HEARTH_OK ||
        sock_listen(&addr, WAYS, &listener, &bound, NULL) != HEARTH_OK)
        fail("cannot listen on 127.0.0.1");
    pid_t child = fork();
    if (child < 0)
        fail("no process");
    join_all(&b, listener, &bound, child == 0);
    run(&b, child == 0);
    if (child > 0)
        waitpid(child, &status, 0);
    return status != 0;
}
