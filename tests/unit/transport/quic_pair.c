/* SPDX-License-Identifier: Apache-2.0 */
/* Two QUIC endpoints in one process, and a relay between them. */
#include "os/clock.h"

#include "quic_pair.h"
#include "support/suite.h"

#if defined(HEARTH_QUIC)

#define TURN_NS     (20 * NS_PER_MS) /* the relay looks whether it is to end */
#define TRAFFIC_MAX 32
#define PIECE_MAX   (256u << 10)
#define PATTERN     65521u /* bytes repeat after so many: no divisor of any buffer's size */

void port_open(struct datagram_port *port, struct sock_addr *bound)
{
    struct sock_addr local;
    struct error error;
    assert_int_equal(sock_addr_parse("127.0.0.1", 0, &local), HEARTH_OK);
    assert_int_equal(datagram_open(&local, 1 << 22, port, bound, &error), HEARTH_OK);
}

/* ---- the relay ---- */

static void relay_pass(struct relay *r, int to, const uint8_t *bytes, size_t len)
{
    if (r->ends[to].len == 0 || (r->habits.larger_than > 0 && len > r->habits.larger_than))
        return;
    for (int tries = 0; tries < 100; tries++)
        if (datagram_send(&r->port, &r->ends[to], bytes, len, len) != HEARTH_PENDING)
            break;
    r->passed++;
}

static bool chance(struct relay *r, unsigned thousandths)
{
    return prng_below(&r->prng, 1000) < thousandths;
}

static void relay_treat(struct relay *r, int to, uint8_t *bytes, size_t len)
{
    if (r->dead || chance(r, r->habits.drops))
        return;
    if (chance(r, r->habits.spoils)) {
        uint8_t copy[DATAGRAM_BATCH];
        memcpy(copy, bytes, len);
        copy[prng_below(&r->prng, len)] ^= (uint8_t)(1 + prng_below(&r->prng, 255));
        relay_pass(r, to, copy, len);
    }
    if (r->held_len == 0 && chance(r, r->habits.delays)) {
        memcpy(r->held, bytes, len);
        r->held_len = len;
        r->held_to = to;
        return;
    }
    relay_pass(r, to, bytes, len);
    if (chance(r, r->habits.doubles))
        relay_pass(r, to, bytes, len);
    if (r->held_len > 0 && chance(r, 300)) {
        relay_pass(r, r->held_to, r->held, r->held_len);
        r->held_len = 0;
    }
}

static void relay_run(void *arg)
{
    struct relay *r = arg;
    uint8_t *memory = malloc((size_t)DATAGRAM_LIST_MAX * DATAGRAM_BATCH);
    struct datagrams list[DATAGRAM_LIST_MAX];
    for (int i = 0; i < DATAGRAM_LIST_MAX; i++)
        list[i].bytes = memory + (size_t)i * DATAGRAM_BATCH;
    while (!r->stop) {
        struct sock_wait item = {.fd = r->port.fd, .want_recv = true};
        sock_wait(&item, 1, clock_real() + TURN_NS);
        int got = datagram_recv(&r->port, list, DATAGRAM_LIST_MAX);
        for (int i = 0; i < got; i++) {
            int to = sock_addr_equal(&list[i].from, &r->ends[0]) ? 1 : 0;
            for (size_t at = 0; at < list[i].len; at += list[i].size) {
                size_t left = list[i].len - at;
                relay_treat(r, to, list[i].bytes + at, left < list[i].size ? left : list[i].size);
            }
        }
        struct datagram_refusal refusal;
        while (r->port.mishaps && datagram_refused(&r->port, &refusal))
            continue;
    }
    free(memory);
}

void relay_begin(struct relay *r, const struct relay_habits *habits, uint64_t seed)
{
    memset(r, 0, sizeof *r);
    r->habits = *habits;
    prng_init(&r->prng, seed);
    port_open(&r->port, &r->addr);
    assert_int_equal(thread_start(&r->thread, "relay", relay_run, r), HEARTH_OK);
}

void relay_end(struct relay *r)
{
    r->stop = true;
    thread_join(&r->thread);
    datagram_close(&r->port);
}

/* ---- sides ---- */

struct credentials *pair_node(struct heap *heap, uint8_t secret, uint64_t instance)
{
    struct credentials_setup setup = {.heap = heap, .instance = instance};
    struct credentials *credentials = NULL;
    uint8_t bytes[SECRET_LEN];
    struct error error;
    memset(bytes, secret, sizeof bytes);
    assert_int_equal(node_key_fresh(&setup.key, &error), HEARTH_OK);
    assert_int_equal(secret_from_bytes(bytes, "test", &setup.secret, &error), HEARTH_OK);
    if (credentials_open(&setup, &credentials, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    return credentials;
}

static void side_open(struct quic_side *side, const struct pair_options *options, int number)
{
    struct quic_setup setup = {
        .heap = &side->heap, .datagram_size = options->datagram_size, .idle_ns = options->idle_ns};
    heap_init(&side->heap, 0);
    side->credentials = pair_node(&side->heap, options->secrets[number], 100u + (unsigned)number);
    setup.credentials = side->credentials;
    assert_int_equal(sock_addr_parse("127.0.0.1", 0, &setup.local), HEARTH_OK);
    if (quic_open(&setup, &side->quic, &side->error) != HEARTH_OK)
        fail_msg("%s", side->error.text);
}

void quic_pair_open(struct quic_pair *pair, const struct pair_options *options)
{
    memset(pair, 0, sizeof *pair);
    pair->relay = options->relay;
    for (int i = 0; i < 2; i++)
        side_open(&pair->sides[i], options, i);
    for (int i = 0; i < 2; i++) {
        struct quic_side *side = &pair->sides[i], *other = &pair->sides[1 - i];
        struct sock_addr addr = quic_addr(other->quic);
        side->peer = (struct quic_peer){.addr = pair->relay ? pair->relay->addr : addr,
                                        .identity = *credentials_self(other->credentials),
                                        .dials = i == 1,
                                        .streams = options->streams > 0 ? options->streams : 2};
        if (pair->relay)
            pair->relay->ends[1 - i] = addr;
    }
    if (options->stranger)
        pair->sides[1].peer.identity.node.bytes[0] ^= 1;
    if (options->other_instance)
        pair->sides[1].peer.identity.instance++;
}

struct joining {
    struct quic_side *side;
    uint64_t deadline_ns;
};

static void join_run(void *arg)
{
    struct joining *j = arg;
    j->side->status = quic_join(j->side->quic, &j->side->peer, 1, j->deadline_ns, NULL, &j->side->error);
}

void pair_join(struct quic_pair *pair, const struct pair_options *options)
{
    uint64_t deadline_ns = clock_real() + (options->join_ns > 0 ? options->join_ns : PATIENCE_NS);
    struct joining joinings[2];
    for (int i = 0; i < 2; i++) {
        joinings[i] = (struct joining){&pair->sides[i], deadline_ns};
        assert_int_equal(thread_start(&pair->sides[i].thread, "join", join_run, &joinings[i]), HEARTH_OK);
    }
    for (int i = 0; i < 2; i++)
        thread_join(&pair->sides[i].thread);
}

void pair_open_joined(struct quic_pair *pair, const struct pair_options *options)
{
    quic_pair_open(pair, options);
    pair_join(pair, options);
    for (int i = 0; i < 2; i++) {
        if (pair->sides[i].status != HEARTH_OK)
            fail_msg("side %d: %s", i, pair->sides[i].error.text);
        assert_int_equal(pair->sides[i].peer.count, pair->sides[i].peer.streams);
    }
}

void pair_close_side(struct quic_pair *pair, int number)
{
    struct quic_side *side = &pair->sides[number];
    for (int i = 0; i < side->peer.count; i++)
        side->peer.conns[i]->transport->close(side->peer.conns[i]);
    side->peer.count = 0;
    quic_close(side->quic);
    side->quic = NULL;
    credentials_close(side->credentials);
    side->credentials = NULL;
    assert_int_equal(atomic_load(&side->heap.blocks), 0);
}

void quic_pair_close(struct quic_pair *pair)
{
    for (int i = 0; i < 2; i++)
        if (pair->sides[i].quic)
            pair_close_side(pair, i);
}

void pair_rest(struct quic_pair *pair)
{
    struct sock_wait items[2 * LINK_PIPES_MAX];
    struct conn *conns[2 * LINK_PIPES_MAX];
    size_t count = 0;
    uint64_t due = clock_real() + PATIENCE_NS;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < pair->sides[i].peer.count; k++) {
            struct conn *c = conns[count] = pair->sides[i].peer.conns[k];
            const struct holding *holding = c->transport->holding;
            uint64_t at = holding->due(c);
            due = at < due ? at : due;
            items[count++] = (struct sock_wait){
                .fd = c->transport->descriptor(c), .want_recv = true, .want_send = holding->holds(c)};
        }
    sock_wait(items, count, due);
    for (size_t i = 0; i < count; i++)
        if (items[i].ready)
            conns[i]->transport->attend(conns[i]);
}

/* ---- traffic ---- */

void fill_bytes(uint8_t *bytes, size_t len, uint64_t seed)
{
    struct prng prng;
    prng_init(&prng, seed);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)prng_u64(&prng);
}

/* Of a stream of bytes that repeats: those from `at` on, as far as they go straight. */
static const uint8_t *pattern(uint64_t seed, size_t at, size_t *len)
{
    static struct {
        uint64_t seed;
        uint8_t bytes[PATTERN];
    } known[2 * TRAFFIC_MAX];
    static int count;
    int i = 0;
    while (i < count && known[i].seed != seed)
        i++;
    if (i == count) {
        assert_true(count < 2 * TRAFFIC_MAX);
        known[i].seed = seed;
        fill_bytes(known[i].bytes, PATTERN, seed);
        count++;
    }
    size_t left = PATTERN - at % PATTERN;
    *len = *len < left ? *len : left;
    return known[i].bytes + at % PATTERN;
}

static bool traffic_send(struct traffic *t)
{
    size_t left = t->out - t->sent;
    left = t->piece > 0 && left > t->piece ? t->piece : left;
    if (left == 0 || t->lost != 0)
        return false;
    struct iovec piece;
    piece.iov_len = left;
    piece.iov_base = (void *)(uintptr_t)pattern(t->seed_out, t->sent, &piece.iov_len);
    ssize_t n = t->conn->transport->send(t->conn, &piece, 1);
    if (n < 0)
        t->lost = n;
    if (n > 0)
        t->sent += (size_t)n;
    return n > 0;
}

static bool traffic_recv(struct traffic *t)
{
    static uint8_t bytes[PIECE_MAX];
    size_t room = t->piece > 0 ? t->piece : PIECE_MAX;
    ssize_t n = t->conn->transport->recv(t->conn, bytes, room);
    if (n < 0)
        t->lost = n;
    for (size_t at = 0; n > 0 && at < (size_t)n;) {
        size_t len = (size_t)n - at;
        const uint8_t *right = pattern(t->seed_in, t->got, &len);
        assert_memory_equal(bytes + at, right, len);
        at += len;
        t->got += len;
    }
    assert_true(t->got <= t->in);
    return n > 0;
}

bool traffic_move(struct traffic *t)
{
    if (t->conn->transport->holding->flush(t->conn) == HEARTH_PEER_LOST && t->out > t->sent)
        t->lost = HEARTH_PEER_LOST;
    bool sent = traffic_send(t);
    return traffic_recv(t) || sent;
}

bool traffic_done(const struct traffic *t)
{
    return t->lost != 0 || (t->sent == t->out && t->got == t->in);
}

void traffic_run(struct quic_pair *pair, struct traffic *list, int count)
{
    uint64_t deadline_ns = clock_real() + PATIENCE_NS;
    for (int idle = 0;;) {
        bool moved = false, done = true;
        for (int i = 0; i < count; i++) {
            moved = traffic_move(&list[i]) || moved;
            done = done && traffic_done(&list[i]);
        }
        if (done)
            return;
        if (clock_real() > deadline_ns)
            fail_msg("traffic stands still: stream 0 has %zu of %zu sent, %zu of %zu got", list[0].sent,
                     list[0].out, list[0].got, list[0].in);
        idle = moved ? 0 : idle + 1;
        if (idle > 1)
            pair_rest(pair);
    }
}

#endif
