/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes per second between two processes on this machine, both ways at once: tcp, and quic with datagrams as
 * large as the interface takes and of 1452 bytes, in turn, several times.
 *
 *   bench_quic [MiB of each way and round] [rounds] [data streams] [datagram size ...] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/fork.h"
#include "security/credentials.h"
#include "transport/quic.h"
#include "transport/tcp.h"

#define CHUNK       (512u << 10)
#define WAYS_MAX    8
#define ROUNDS_MAX  99
#define PATIENCE_NS (60 * NS_PER_S)

static size_t total_bytes = 100u << 20;
static int rounds = 5, streams = 1;
static size_t sizes[WAYS_MAX] = {0, 1452}; /* of datagrams; 0: by the interface */
static int size_count = 2;

/* Both processes see it. */
struct shared {
    struct sock_addr addrs[2];
    _Atomic(int) addr_count;
    double seconds[WAYS_MAX + 1][ROUNDS_MAX];
    double busy[2][WAYS_MAX + 1]; /* seconds of processor, all rounds, by member */
};
static struct shared *shared;

static void must(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "bench_quic: %s\n", what);
    exit(1);
}

struct way {
    struct conn *conns[LINK_PIPES_MAX];
    int count;
    size_t sent[LINK_PIPES_MAX], got[LINK_PIPES_MAX];
};

/* As a node that waits: it moves what moves, and sleeps only when nothing does for a while. */
static void rest(struct way *way, unsigned idle)
{
    struct sock_wait items[LINK_PIPES_MAX];
    uint64_t due = clock_real() + 100 * NS_PER_MS;
    if (idle < 2000)
        return;
    for (int i = 0; i < way->count; i++) {
        struct conn *c = way->conns[i];
        const struct holding *holding = c->transport->holding;
        items[i] = (struct sock_wait){.fd = c->transport->descriptor(c), .want_recv = true};
        items[i].want_send = holding ? holding->holds(c) : true;
        uint64_t at = holding ? holding->due(c) : NEVER_NS;
        due = at < due ? at : due;
    }
    sock_wait(items, (size_t)way->count, due);
    for (int i = 0; i < way->count; i++)
        if (items[i].ready)
            way->conns[i]->transport->attend(way->conns[i]);
}

static bool move(struct way *way, int i, size_t each, uint8_t *from, uint8_t *to)
{
    struct conn *c = way->conns[i];
    bool moved = false;
    if (c->transport->holding)
        c->transport->holding->flush(c);
    if (way->sent[i] < each) {
        size_t at = way->sent[i] % CHUNK, left = each - way->sent[i];
        struct iovec piece = {from + at, left < CHUNK - at ? left : CHUNK - at};
        ssize_t n = c->transport->send(c, &piece, 1);
        must(n >= 0, "the connection is gone");
        way->sent[i] += (size_t)n;
        moved = n > 0;
    }
    if (way->got[i] < each) {
        size_t at = way->got[i] % CHUNK, left = each - way->got[i];
        ssize_t n = c->transport->recv(c, to + at, left < CHUNK - at ? left : CHUNK - at);
        must(n >= 0, "the connection is gone");
        way->got[i] += (size_t)n;
        moved = moved || n > 0;
    }
    return moved;
}

/* Connections that wait for their turn answer their peers meanwhile, as in a node: else they would measure
 * the pause as a round trip. */
static void keep_alive(struct way *ways, const struct way *but)
{
    for (int i = 0; i < size_count; i++) {
        struct conn *c = ways[i].conns[0];
        if (&ways[i] == but)
            continue;
        c->transport->attend(c);
        c->transport->holding->flush(c);
    }
}

/* The same amount both ways, spread over the data pipes; gives seconds. */
static double exchange(struct way *ways, struct way *way, uint8_t *memory)
{
    int data = way->count > 1 ? way->count - 1 : 1, first = way->count > 1;
    size_t each = total_bytes / (size_t)data;
    uint64_t begin = clock_real();
    memset(way->sent, 0, sizeof way->sent);
    memset(way->got, 0, sizeof way->got);
    for (unsigned idle = 0, turn = 0;; turn++) {
        bool moved = false, done = true;
        if (turn % 256 == 0)
            keep_alive(ways, way);
        for (int i = first; i < way->count; i++) {
            moved = move(way, i, each, memory, memory + CHUNK) || moved;
            done = done && way->sent[i] == each && way->got[i] == each;
        }
        if (done)
            break;
        idle = moved ? 0 : idle + 1;
        rest(way, idle);
        must(clock_real() - begin < PATIENCE_NS, "it takes too long");
    }
    /* The last bytes have left when the peer says so. */
    uint8_t word = 1;
    struct conn *c = way->conns[0];
    struct iovec piece = {&word, 1};
    must(c->transport->send(c, &piece, 1) == 1, "no room for a byte");
    for (ssize_t n = 0; n == 0;) {
        if (c->transport->holding)
            c->transport->holding->flush(c);
        n = c->transport->recv(c, &word, 1);
        must(n >= 0, "the connection is gone");
    }
    return (double)(clock_real() - begin) / 1e9;
}

static double processor_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static struct credentials *credentials_for(struct heap *heap, int member)
{
    struct credentials_setup setup = {.heap = heap, .instance = (uint64_t)member + 1};
    uint8_t seed[SECRET_LEN] = {1};
    struct credentials *credentials;
    struct error error;
    must(node_key_fresh(&setup.key, &error) == HEARTH_OK, "no key");
    must(secret_from_bytes(seed, "bench", &setup.secret, &error) == HEARTH_OK, "no secret");
    must(credentials_open(&setup, &credentials, &error) == HEARTH_OK, "no credentials");
    return credentials;
}

struct end {
    struct heap heap;
    struct credentials *credentials;
    struct quic *quic[WAYS_MAX];
    struct way ways[WAYS_MAX + 1]; /* the last is tcp */
};

struct ids {
    struct identity of[2];
    _Atomic(int) count;
};

static void meet(struct end *e, int member, struct ids *ids, int way)
{
    struct error error;
    struct quic_setup setup = {.heap = &e->heap, .credentials = e->credentials, .datagram_size = sizes[way]};
    must(sock_addr_parse("127.0.0.1", 0, &setup.local) == HEARTH_OK, "no address");
    must(quic_open(&setup, &e->quic[way], &error) == HEARTH_OK, "no endpoint");
    shared->addrs[member] = quic_addr(e->quic[way]);
    ids->of[member] = *credentials_self(e->credentials);
    ids->count++;
    while (ids->count < 2 * (way + 1))
        usleep(100);
    struct quic_peer peer = {.addr = shared->addrs[1 - member],
                             .identity = ids->of[1 - member],
                             .dials = member == 1,
                             .streams = streams + 1};
    if (quic_join(e->quic[way], &peer, 1, clock_real() + PATIENCE_NS, NULL, &error) != HEARTH_OK) {
        fprintf(stderr, "bench_quic: %s\n", error.text);
        exit(1);
    }
    e->ways[way].count = peer.count;
    memcpy(e->ways[way].conns, peer.conns, sizeof peer.conns);
}

static void run(int member, const int fds[2], struct ids *ids)
{
    static struct end e;
    uint8_t *memory = malloc(2 * CHUNK);
    must(memory, "no memory");
    memset(memory, 7, 2 * CHUNK);
    heap_init(&e.heap, 0);
    e.credentials = credentials_for(&e.heap, member);
    for (int i = 0; i < size_count; i++)
        meet(&e, member, ids, i);
    struct way *tcp = &e.ways[size_count];
    for (int i = 0; i < 2; i++)
        tcp->conns[tcp->count++] = tcp_conn(&e.heap, fds[i]);
    for (int r = -1; r < rounds; r++)
        for (int i = 0; i <= size_count; i++) {
            double busy = processor_s(), seconds = exchange(e.ways, &e.ways[i], memory);
            if (r < 0)
                continue;
            shared->busy[member][i] += processor_s() - busy;
            if (member == 0)
                shared->seconds[i][r] = seconds;
        }
    for (int i = 0; i < size_count && member == 0; i++) {
        struct quic_engine_state state;
        quic_look(e.ways[i].conns[0], &state);
        printf("# quic %zu: window %llu KiB, round trip %.0f us\n", sizes[i],
               (unsigned long long)state.window_bytes >> 10, (double)state.round_trip_ns / 1e3);
    }
    for (int i = 0; i <= size_count; i++)
        for (int k = 0; k < e.ways[i].count; k++)
            e.ways[i].conns[k]->transport->close(e.ways[i].conns[k]);
    for (int i = 0; i < size_count; i++)
        quic_close(e.quic[i]);
    credentials_close(e.credentials);
    must(e.heap.blocks == 0, "memory is left");
    free(memory);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(void)
{
    double tcp = 0;
    for (int i = size_count; i >= 0; i--) {
        double *s = shared->seconds[i];
        qsort(s, (size_t)rounds, sizeof *s, by_size);
        double bits = (double)total_bytes * 8 / 1e9, median = bits / s[rounds / 2];
        char name[32] = "tcp";
        if (i < size_count)
            snprintf(name, sizeof name, sizes[i] > 0 ? "quic %zu" : "quic large", sizes[i]);
        else
            tcp = median;
        double busy = (shared->busy[0][i] + shared->busy[1][i]) / 2 / rounds;
        printf("%-12s %6.2f Gbit/s each way (%.2f to %.2f), %.2f of tcp; busy %.0f ms of %.0f\n", name,
               median, bits / s[rounds - 1], bits / s[0], median / tcp, busy * 1e3, s[rounds / 2] * 1e3);
    }
}

static void tcp_pair(int fds[2][2])
{
    struct sock_addr addr, bound;
    struct sock_wait item = {.want_recv = true};
    struct error error;
    must(sock_addr_parse("127.0.0.1", 0, &addr) == HEARTH_OK, "no address");
    must(sock_listen(&addr, 4, &item.fd, &bound, &error) == HEARTH_OK, "cannot listen");
    for (int i = 0; i < 2; i++) {
        must(sock_dial(&bound, NULL, &fds[0][i], &error) == HEARTH_OK, "cannot dial");
        sock_wait(&item, 1, NEVER_NS);
        must(sock_accept(item.fd, &fds[1][i], NULL) == HEARTH_OK, "cannot accept");
        fork_keeps(fds[0][i]); /* here the child is meant to have them */
        fork_keeps(fds[1][i]);
        sock_tune(fds[0][i], &(struct sock_tuning){.congestion = true});
        sock_tune(fds[1][i], &(struct sock_tuning){.congestion = true});
    }
    sock_unlisten(item.fd);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        total_bytes = (size_t)strtoul(argv[1], NULL, 10) << 20;
    if (argc > 2)
        rounds = (int)strtol(argv[2], NULL, 10);
    if (argc > 3)
        streams = (int)strtol(argv[3], NULL, 10);
    if (argc > 4)
        size_count = 0;
    for (int i = 4; i < argc && size_count < WAYS_MAX; i++)
        sizes[size_count++] = (size_t)strtoul(argv[i], NULL, 10);
    must(total_bytes > 0 && rounds > 0 && rounds <= ROUNDS_MAX && streams > 0 && streams < LINK_PIPES_MAX,
         "usage: bench_quic [MiB] [rounds] [data streams] [datagram size ...]");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct ids *ids = mmap(NULL, sizeof *ids, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED && ids != MAP_FAILED, "no memory");
    int fds[2][2];
    tcp_pair(fds);
    pid_t child = fork();
    must(child >= 0, "cannot fork");
    run(child == 0, fds[child == 0], ids);
    if (child == 0)
        return 0;
    int status = 0;
    waitpid(child, &status, 0);
    report();
    return status != 0;
}
