/* SPDX-License-Identifier: Apache-2.0 */
/* The transports, each in the ways it is used. */
#include "conform/pairs.h"

#include "os/clock.h"
#include "os/sock.h"
#include "os/thread.h"
#include "security/credentials.h"
#include "support/sealed.h"
#include "support/suite.h"
#include "transport/mem.h"
#include "transport/quic_line.h"
#include "transport/shm.h"
#include "transport/tcp.h"
#include "transport/tls.h"

static void mem_open(struct pair *pair, const struct mem_setup *setup)
{
    struct mem_net *net;
    assert_ok(mem_net_open(setup, &net));
    pair->owner = net;
    for (int i = 0; i < 2; i++) {
        pair->conn[i] = mem_net_conn(net, i, 1 - i);
        pair->bell[i] = mem_net_bell(net, i);
    }
}

static void mem_done(struct pair *pair)
{
    mem_net_put(pair->owner);
    mem_net_put(pair->owner);
}

static void mem_real_open(struct pair *pair, uint64_t seed)
{
    mem_open(pair, &(struct mem_setup){.size = 2, .ring_bytes = 1000 + seed % 5000});
}

static void mem_default_open(struct pair *pair, uint64_t seed)
{
    mem_open(pair, &(struct mem_setup){.size = 2});
}

static void mem_virtual_open(struct pair *pair, uint64_t seed)
{
    struct mem_setup setup = {
        .size = 2,
        .ring_bytes = 1000 + seed % 5000,
        .now_ns = &pair->now_ns,
        .bytes_per_s = 1e6,
        .latency_ns = 10000,
        .jitter_ns = 20000,
        .seed = seed,
    };
    mem_open(pair, &setup);
}

static void descriptors_init(struct pair *pair, bool events)
{
    heap_init(&pair->heap, 0);
    for (int i = 0; i < 2; i++) {
        pair->event[i] = (struct event){-1, -1};
        if (events)
            assert_ok(event_open(&pair->event[i]));
    }
}

static void descriptors_done(struct pair *pair)
{
    for (int i = 0; i < 2; i++)
        event_close(&pair->event[i]);
    assert_int_equal(pair->heap.blocks, 0);
}

static void loopback_open(int fds[2])
{
    struct sock_addr addr, bound;
    struct sock_wait listener = {.want_recv = true};
    assert_ok(sock_addr_parse("127.0.0.1:0", 0, &addr));
    assert_ok(sock_listen(&addr, 1, &listener.fd, &bound, NULL));
    assert_ok(sock_dial(&bound, NULL, &fds[0], NULL));
    assert_int_equal(sock_wait(&listener, 1, clock_real() + PATIENCE_NS), 1);
    assert_ok(sock_accept(listener.fd, &fds[1], NULL));
    sock_unlisten(listener.fd);
    for (int i = 0; i < 2; i++)
        sock_tune(fds[i], &(struct sock_tuning){.send_bytes = 65536, .recv_bytes = 65536});
}

static void sockets_open(struct pair *pair, bool loopback, int fds[2])
{
    descriptors_init(pair, false);
    if (loopback)
        loopback_open(fds);
    else
        assert_ok(sock_pair(fds));
}

static void plain_open(struct pair *pair, bool loopback)
{
    int fds[2];
    sockets_open(pair, loopback, fds);
    for (int i = 0; i < 2; i++) {
        pair->conn[i] = tcp_conn(&pair->heap, fds[i]);
        assert_non_null(pair->conn[i]);
    }
}

static void tcp_open(struct pair *pair, uint64_t seed)
{
    plain_open(pair, true);
}

static void tcp_unix_open(struct pair *pair, uint64_t seed)
{
    plain_open(pair, false);
}

static void encrypted_open(struct pair *pair, bool loopback, bool chacha)
{
    struct records *records[2];
    int fds[2];
    sockets_open(pair, loopback, fds);
    sealed_pair(&pair->heap, chacha, records);
    for (int i = 0; i < 2; i++) {
        struct tls_buffers *buffers = tls_buffers_open(&pair->heap); /* as ends in two nodes have them */
        assert_non_null(buffers);
        pair->conn[i] = tls_conn(buffers, fds[i], records[i]);
        assert_non_null(pair->conn[i]);
        tls_buffers_close(buffers);
    }
}

static void tls_open(struct pair *pair, uint64_t seed)
{
    encrypted_open(pair, true, false);
}

static void tls_other_open(struct pair *pair, uint64_t seed)
{
    encrypted_open(pair, false, true);
}

struct shm_opener {
    struct shm_setup setup;
    struct conn *conn;
    int status;
};

static void shm_open_one(void *arg)
{
    struct shm_opener *o = arg;
    o->status = shm_conn_open(&o->setup, &o->conn, NULL);
}

static void shm_open(struct pair *pair, size_t ring_bytes)
{
    struct shm_opener openers[2];
    struct thread thread;
    int fds[2];
    descriptors_init(pair, true);
    assert_ok(sock_pair(fds));
    for (int i = 0; i < 2; i++) {
        openers[i] = (struct shm_opener){.setup = {.heap = &pair->heap,
                                                   .fd = fds[i],
                                                   .maker = i == 0,
                                                   .ring_bytes = ring_bytes,
                                                   .event = &pair->event[i],
                                                   .deadline_ns = clock_real() + PATIENCE_NS}};
    }
    assert_ok(thread_start(&thread, "maker", shm_open_one, &openers[0]));
    shm_open_one(&openers[1]);
    thread_join(&thread);
    for (int i = 0; i < 2; i++) {
        assert_ok(openers[i].status);
        pair->conn[i] = openers[i].conn;
    }
}

static void shm_small_open(struct pair *pair, uint64_t seed)
{
    shm_open(pair, 4096u << seed % 3);
}

static void shm_large_open(struct pair *pair, uint64_t seed)
{
    shm_open(pair, 4u << 20);
}

/* ---- quic: two endpoints; whoever touches one end moves the packets of both, as two processes would ---- */

#if defined(HEARTH_QUIC)

#define SETTLE_ROUNDS 10

struct quic_end {
    struct conn conn; /* what the test sees */
    struct conn *inner;
    struct quic *quic;
    struct credentials *credentials;
    struct quic_peer peer;
    struct quic_both *both;
    int status;
};

struct quic_both {
    struct mutex lock;
    struct quic_end ends[2];
};

static struct quic_end *end_of(const struct conn *conn)
{
    return container_of(conn, struct quic_end, conn);
}

static void both_move(struct quic_both *both)
{
    for (int i = 0; i < 2; i++) {
        quic_hear(both->ends[i].quic);
        quic_tick(both->ends[i].quic, clock_real());
        quic_speak(both->ends[i].quic);
    }
}

static ssize_t both_send(struct conn *conn, const struct iovec *pieces, int count)
{
    struct quic_end *end = end_of(conn);
    mutex_lock(&end->both->lock);
    ssize_t n = end->inner->transport->send(end->inner, pieces, count);
    both_move(end->both);
    mutex_unlock(&end->both->lock);
    return n;
}

static ssize_t both_recv(struct conn *conn, void *target, size_t len_max)
{
    struct quic_end *end = end_of(conn);
    mutex_lock(&end->both->lock);
    both_move(end->both);
    ssize_t n = end->inner->transport->recv(end->inner, target, len_max);
    mutex_unlock(&end->both->lock);
    return n;
}

static void both_close(struct conn *conn)
{
    struct quic_end *end = end_of(conn);
    mutex_lock(&end->both->lock);
    end->inner->transport->close(end->inner);
    mutex_unlock(&end->both->lock);
}

static int both_descriptor(const struct conn *conn)
{
    return end_of(conn)->inner->transport->descriptor(end_of(conn)->inner);
}

static void both_attend(struct conn *conn)
{
    struct quic_end *end = end_of(conn);
    mutex_lock(&end->both->lock);
    end->inner->transport->attend(end->inner);
    mutex_unlock(&end->both->lock);
}

static void both_doze(struct conn *conn, bool asleep, bool want_room)
{
    end_of(conn)->inner->transport->doze(end_of(conn)->inner, asleep, want_room);
}

static int both_flush(struct conn *conn)
{
    struct quic_end *end = end_of(conn);
    mutex_lock(&end->both->lock);
    both_move(end->both);
    int status = end->inner->transport->holding->flush(end->inner);
    mutex_unlock(&end->both->lock);
    return status;
}

static bool both_holds(const struct conn *conn)
{
    struct quic_end *end = end_of(conn);
    mutex_lock(&end->both->lock);
    bool holds = end->inner->transport->holding->holds(end->inner);
    mutex_unlock(&end->both->lock);
    return holds;
}

static uint64_t both_due(const struct conn *conn)
{
    struct quic_end *end = end_of(conn);
    mutex_lock(&end->both->lock);
    uint64_t due = end->inner->transport->holding->due(end->inner);
    mutex_unlock(&end->both->lock);
    return due;
}

static const struct holding both_holding = {both_flush, both_holds, both_due};
static const struct transport both_transport = {
    .scheme = "quic",
    .send = both_send,
    .recv = both_recv,
    .close = both_close,
    .descriptor = both_descriptor,
    .attend = both_attend,
    .doze = both_doze,
    .holding = &both_holding,
};

static void quic_end_open(struct quic_end *end, struct heap *heap, uint64_t instance)
{
    static const uint8_t secret[SECRET_LEN] = {7};
    struct credentials_setup setup = {.heap = heap, .instance = instance};
    assert_ok(node_key_fresh(&setup.key, NULL));
    assert_ok(secret_from_bytes(secret, "test", &setup.secret, NULL));
    assert_ok(credentials_open(&setup, &end->credentials, NULL));
    struct quic_setup quic = {.heap = heap, .credentials = end->credentials};
    assert_ok(sock_addr_parse("127.0.0.1:0", 0, &quic.local));
    assert_ok(quic_open(&quic, &end->quic, NULL));
}

static void quic_end_join(void *arg)
{
    struct quic_end *end = arg;
    struct error error;
    end->status = quic_join(end->quic, &end->peer, 1, clock_real() + PATIENCE_NS, NULL, &error);
}

static void quic_kind_open(struct pair *pair, uint64_t seed)
{
    struct quic_both *both = calloc(1, sizeof *both);
    struct thread thread;
    descriptors_init(pair, false);
    assert_non_null(both);
    assert_ok(mutex_init(&both->lock));
    pair->owner = both;
    for (int i = 0; i < 2; i++)
        quic_end_open(&both->ends[i], &pair->heap, (uint64_t)i + 1);
    for (int i = 0; i < 2; i++) {
        struct quic_end *end = &both->ends[i], *other = &both->ends[1 - i];
        end->both = both;
        end->peer = (struct quic_peer){.addr = quic_addr(other->quic),
                                       .identity = *credentials_self(other->credentials),
                                       .dials = i == 1,
                                       .streams = 1};
    }
    assert_ok(thread_start(&thread, "dialler", quic_end_join, &both->ends[1]));
    quic_end_join(&both->ends[0]);
    thread_join(&thread);
    for (int i = 0; i < 2; i++) {
        assert_ok(both->ends[i].status);
        both->ends[i].inner = both->ends[i].peer.conns[0];
        both->ends[i].conn.transport = &both_transport;
        pair->conn[i] = &both->ends[i].conn;
    }
    for (int i = 0; i < SETTLE_ROUNDS; i++) { /* the last words of the handshake */
        both_move(both);
        sock_wait(NULL, 0, clock_real() + NS_PER_MS);
    }
}

static void quic_kind_done(struct pair *pair)
{
    struct quic_both *both = pair->owner;
    both_move(both);
    both_move(both);
    for (int i = 0; i < 2; i++) {
        quic_close(both->ends[i].quic);
        credentials_close(both->ends[i].credentials);
    }
    mutex_fini(&both->lock);
    free(both);
    descriptors_done(pair);
}

#endif

const struct kind pair_kinds[] = {
    {"mem", REST_BELL, false, mem_real_open, mem_done, false},
    {"mem, default ring", REST_BELL, false, mem_default_open, mem_done, false},
    {"mem, virtual time", REST_VIRTUAL, false, mem_virtual_open, mem_done, false},
    {"tcp", REST_DESCRIPTOR, true, tcp_open, descriptors_done, false},
    {"tcp, unix socket", REST_DESCRIPTOR, true, tcp_unix_open, descriptors_done, false},
    {"tls", REST_DESCRIPTOR, true, tls_open, descriptors_done, false},
    {"tls, unix socket, other suite", REST_DESCRIPTOR, true, tls_other_open, descriptors_done, false},
#if defined(HEARTH_QUIC)
    {"quic", REST_DESCRIPTOR, true, quic_kind_open, quic_kind_done, true},
#endif
    {"shm", REST_DESCRIPTOR, false, shm_small_open, descriptors_done, false},
    {"shm, large ring", REST_DESCRIPTOR, false, shm_large_open, descriptors_done, false},
};

const size_t pair_kind_count = sizeof pair_kinds / sizeof *pair_kinds;
