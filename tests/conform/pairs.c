/* SPDX-License-Identifier: Apache-2.0 */
/* The transports, each in the ways it is used. */
#include "conform/pairs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "os/clock.h"
#include "os/sock.h"
#include "os/thread.h"
#include "support/sealed.h"
#include "transport/mem.h"
#include "transport/shm.h"
#include "transport/tcp.h"
#include "transport/tls.h"

static void mem_open(struct pair *pair, const struct mem_setup *setup)
{
    struct mem_net *net;
    assert_int_equal(mem_net_open(setup, &net), HEARTH_OK);
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
    (void)seed;
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
            assert_int_equal(event_open(&pair->event[i]), HEARTH_OK);
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
    assert_int_equal(sock_addr_parse("127.0.0.1:0", 0, &addr), HEARTH_OK);
    assert_int_equal(sock_listen(&addr, 1, &listener.fd, &bound, NULL), HEARTH_OK);
    assert_int_equal(sock_dial(&bound, NULL, &fds[0], NULL), HEARTH_OK);
    assert_int_equal(sock_wait(&listener, 1, clock_real() + PATIENCE_NS), 1);
    assert_int_equal(sock_accept(listener.fd, &fds[1], NULL), HEARTH_OK);
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
        assert_int_equal(sock_pair(fds), HEARTH_OK);
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
    (void)seed;
    plain_open(pair, true);
}

static void tcp_unix_open(struct pair *pair, uint64_t seed)
{
    (void)seed;
    plain_open(pair, false);
}

static void encrypted_open(struct pair *pair, bool loopback, bool chacha)
{
    struct records *records[2];
    int fds[2];
    sockets_open(pair, loopback, fds);
    sealed_pair(&pair->heap, chacha, records);
    for (int i = 0; i < 2; i++) {
        pair->conn[i] = tls_conn(&pair->heap, fds[i], records[i]);
        assert_non_null(pair->conn[i]);
    }
}

static void tls_open(struct pair *pair, uint64_t seed)
{
    (void)seed;
    encrypted_open(pair, true, false);
}

static void tls_other_open(struct pair *pair, uint64_t seed)
{
    (void)seed;
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
    assert_int_equal(sock_pair(fds), HEARTH_OK);
    for (int i = 0; i < 2; i++) {
        openers[i] = (struct shm_opener){.setup = {.heap = &pair->heap,
                                                   .fd = fds[i],
                                                   .maker = i == 0,
                                                   .ring_bytes = ring_bytes,
                                                   .event = &pair->event[i],
                                                   .deadline_ns = clock_real() + PATIENCE_NS}};
    }
    assert_int_equal(thread_start(&thread, "maker", shm_open_one, &openers[0]), HEARTH_OK);
    shm_open_one(&openers[1]);
    thread_join(&thread);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(openers[i].status, HEARTH_OK);
        pair->conn[i] = openers[i].conn;
    }
}

static void shm_small_open(struct pair *pair, uint64_t seed)
{
    shm_open(pair, 4096u << seed % 3);
}

static void shm_large_open(struct pair *pair, uint64_t seed)
{
    (void)seed;
    shm_open(pair, 4u << 20);
}

const struct kind pair_kinds[] = {
    {"mem", REST_BELL, false, mem_real_open, mem_done},
    {"mem, default ring", REST_BELL, false, mem_default_open, mem_done},
    {"mem, virtual time", REST_VIRTUAL, false, mem_virtual_open, mem_done},
    {"tcp", REST_DESCRIPTOR, true, tcp_open, descriptors_done},
    {"tcp, unix socket", REST_DESCRIPTOR, true, tcp_unix_open, descriptors_done},
    {"tls", REST_DESCRIPTOR, true, tls_open, descriptors_done},
    {"tls, unix socket, other suite", REST_DESCRIPTOR, true, tls_other_open, descriptors_done},
    {"shm", REST_DESCRIPTOR, false, shm_small_open, descriptors_done},
    {"shm, large ring", REST_DESCRIPTOR, false, shm_large_open, descriptors_done},
};

const size_t pair_kind_count = sizeof pair_kinds / sizeof *pair_kinds;
