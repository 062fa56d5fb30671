/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of bytes through every connection, for a while; then each end's received rate, and the choice.
 *
 *   each connection, each direction: block block block ... last block
 *   first lane, first connection:    result ->  <- result     then, from the deciding end: choice ->
 *
 * The first byte of a block says whether it is the last of its connection; results are bytes a second. All of
 * it ends, at both ends, before the first frame of a link. */
#include "node/transport_race.h"

#include <stdio.h>
#include <string.h>

#include "core/bytes.h"
#include "os/clock.h"
#include "os/sock.h"

#define BLOCK_BYTES  16384
#define UNSENT_BYTES 32768 /* of a connection: the queues of many drain slowly on a slow line */
#define TOOK_PART    8     /* of the span: shorter counts are not valid */
#define RESULT_BYTES (8 * TRANSPORT_RACE_LANES)
#define WAITS_MAX    SOCK_WAIT_MAX

enum { BLOCK_MORE = 1, BLOCK_LAST = 2 };

/* The block positions of one connection. */
struct stream {
    struct conn *conn;
    size_t out_at, in_at;   /* in the current block */
    bool out_over, in_over; /* the last block is sent, received */
    bool out_last, in_last; /* the current block is the last */
};

struct match {
    struct stream streams[LINK_PIPES_MAX];
    int count;
    uint64_t begun_ns; /* first byte */
    uint64_t half_ns;  /* bytes count from here on */
    uint64_t counted, counted_ns;
};

struct arena {
    const struct transport_race_setup *setup;
    struct match *matches;   /* [count], of the current lane */
    struct sock_wait *waits; /* [WAITS_MAX] */
    uint8_t *out, *in;       /* one block each, shared by all: the bytes do not matter */
};

static int lost(const struct transport_race_pair *pair, int status, struct error *error)
{
    return error_set(error, status, pair->rank, "open: rank %d: %s while two transports to it were compared",
                     pair->rank, status == HEARTH_PROTOCOL ? "it sent unexpected bytes" : "it was lost");
}

/* ---- blocks ---- */

/* True: progress; a negative status when the connection is lost. */
static int stream_send(struct arena *a, struct stream *s, bool ends)
{
    const struct transport *t = s->conn->transport;
    int moved = 0;
    if (t->holding && t->holding->flush(s->conn) == HEARTH_PEER_LOST)
        return HEARTH_PEER_LOST;
    while (!s->out_over) {
        if (s->out_at == 0)
            s->out_last = ends;
        a->out[0] = s->out_last ? BLOCK_LAST : BLOCK_MORE;
        struct iovec piece = {a->out + s->out_at, BLOCK_BYTES - s->out_at};
        ssize_t n = t->send(s->conn, &piece, 1);
        if (n < 0)
            return HEARTH_PEER_LOST;
        if (n == 0)
            break;
        moved = 1;
        s->out_at = (s->out_at + (size_t)n) % BLOCK_BYTES;
        s->out_over = s->out_at == 0 && s->out_last;
        if (s->out_at == 0 && !ends)
            break; /* the others come first */
    }
    return moved;
}

static int stream_recv(struct arena *a, struct match *m, struct stream *s, uint64_t now_ns)
{
    int moved = 0;
    for (int turns = 0; turns < 16 && !s->in_over; turns++) {
        ssize_t n = s->conn->transport->recv(s->conn, a->in + s->in_at, BLOCK_BYTES - s->in_at);
        if (n < 0)
            return HEARTH_PEER_LOST;
        if (n == 0)
            break;
        moved = 1;
        if (s->in_at == 0) {
            if (a->in[0] != BLOCK_MORE && a->in[0] != BLOCK_LAST)
                return HEARTH_PROTOCOL;
            s->in_last = a->in[0] == BLOCK_LAST;
        }
        s->in_at = (s->in_at + (size_t)n) % BLOCK_BYTES;
        s->in_over = s->in_at == 0 && s->in_last;
        if (now_ns >= m->half_ns) {
            m->counted += (uint64_t)n;
            m->counted_ns = now_ns;
        }
    }
    return moved;
}

/* All is received, and all is sent. */
static bool match_over(const struct match *m)
{
    for (int i = 0; i < m->count; i++) {
        struct conn *conn = m->streams[i].conn;
        const struct holding *holding = conn->transport->holding;
        if (!m->streams[i].out_over || !m->streams[i].in_over ||
            (holding && holding->flush(conn) != HEARTH_OK))
            return false;
    }
    return true;
}

static int match_pump(struct arena *a, struct match *m, bool ends, uint64_t now_ns)
{
    int moved = 0;
    for (int i = 0; i < m->count; i++) {
        int sent = stream_send(a, &m->streams[i], ends);
        int got = sent < 0 ? sent : stream_recv(a, m, &m->streams[i], now_ns);
        if (got < 0)
            return got;
        moved |= sent | got;
    }
    return moved;
}

/* ---- waiting ---- */

static bool time_over(const struct transport_race_setup *setup, uint64_t now_ns)
{
    return now_ns >= setup->deadline_ns || stop_asked(setup->stop);
}

/* Drives every connection all the time, also those of the other lane and of finished pairs: a peer may still
 * wait for an acknowledgement there. */
static void tend(struct arena *a, const struct match *busy, uint64_t until_ns)
{
    size_t count = 0;
    for (int i = 0; i < a->setup->count * TRANSPORT_RACE_LANES; i++) {
        const struct race_lane *lane =
            &a->setup->pairs[i / TRANSPORT_RACE_LANES].lanes[i % TRANSPORT_RACE_LANES];
        for (int k = 0; k < lane->count && count < WAITS_MAX; k++) {
            struct conn *conn = lane->conns[k];
            const struct holding *holding = conn->transport->holding;
            bool holds = holding && holding->flush(conn) != HEARTH_OK && holding->holds(conn);
            if (holding && holding->due(conn) < until_ns)
                until_ns = holding->due(conn);
            a->waits[count++] = (struct sock_wait){
                .fd = conn->transport->descriptor(conn), .want_recv = true, .want_send = holds};
        }
    }
    /* Bytes that wait for room in a plain socket. */
    for (int i = 0; busy && i < a->setup->count; i++)
        for (int k = 0; k < busy[i].count && count < WAITS_MAX; k++)
            if (!busy[i].streams[k].out_over && !busy[i].streams[k].conn->transport->holding)
                a->waits[count++] = (struct sock_wait){
                    .fd = busy[i].streams[k].conn->transport->descriptor(busy[i].streams[k].conn),
                    .want_send = true};
    sock_wait(a->waits, count, stop_look(a->setup->stop, until_ns));
    for (int i = 0; i < a->setup->count * TRANSPORT_RACE_LANES; i++) {
        const struct race_lane *lane =
            &a->setup->pairs[i / TRANSPORT_RACE_LANES].lanes[i % TRANSPORT_RACE_LANES];
        for (int k = 0; k < lane->count; k++)
            lane->conns[k]->transport->attend(lane->conns[k]);
    }
}

/* ---- one lane, all pairs ---- */

/* Data uses the same connections as later: not the one for control, if there are others. */
static void match_begin(struct match *m, const struct race_lane *lane, uint64_t now_ns, uint64_t span_ns)
{
    int first = lane->count > 1;
    *m = (struct match){.count = lane->count - first, .begun_ns = now_ns, .half_ns = now_ns + span_ns / 2};
    for (int i = 0; i < m->count; i++)
        m->streams[i].conn = lane->conns[first + i];
    m->counted_ns = m->half_ns;
}

static int try_lane(struct arena *a, int lane, struct error *error)
{
    const struct transport_race_setup *s = a->setup;
    uint64_t began_ns = clock_real();
    for (int i = 0; i < s->count; i++)
        match_begin(&a->matches[i], &s->pairs[i].lanes[lane], began_ns, s->span_ns);
    for (bool over = false; !over;) {
        uint64_t now_ns = clock_real();
        bool ends = now_ns >= began_ns + s->span_ns;
        int moved = 0;
        over = true;
        for (int i = 0; i < s->count; i++) {
            int status = match_pump(a, &a->matches[i], ends, now_ns);
            if (status < 0)
                return lost(&s->pairs[i], status, error);
            moved |= status;
            over = over && match_over(&a->matches[i]);
        }
        if (!over && time_over(s, now_ns))
            return error_set(error, HEARTH_TIMEOUT, RANK_NONE,
                             "open: transports to the other members were not compared before the deadline");
        if (!over && moved == 0)
            tend(a, a->matches, ends ? s->deadline_ns : began_ns + s->span_ns);
    }
    for (int i = 0; i < s->count; i++) {
        const struct match *m = &a->matches[i];
        uint64_t took_ns = m->counted_ns - m->half_ns, least_ns = s->span_ns / TOOK_PART + 1;
        took_ns = took_ns > least_ns ? took_ns : least_ns;
        s->pairs[i].lanes[lane].bytes_per_s = (double)m->counted * 1e9 / (double)took_ns;
    }
    return HEARTH_OK;
}

/* ---- the result ---- */

static int talk(struct arena *a, struct conn *conn, const struct race_talk *words)
{
    const struct transport *t = conn->transport;
    size_t said = 0, heard = 0;
    while (said < words->say_len || heard < words->hear_len) {
        struct iovec piece = {(void *)(uintptr_t)(words->say + said), words->say_len - said};
        ssize_t sent = said < words->say_len ? t->send(conn, &piece, 1) : 0;
        ssize_t got = sent < 0 || heard == words->hear_len
                          ? 0
                          : t->recv(conn, words->hear + heard, words->hear_len - heard);
        if (sent < 0 || got < 0)
            return HEARTH_PEER_LOST;
        said += (size_t)sent;
        heard += (size_t)got;
        if (sent > 0 || got > 0)
            continue;
        if (time_over(a->setup, clock_real()))
            return HEARTH_TIMEOUT;
        tend(a, NULL, a->setup->deadline_ns);
    }
    if (t->holding) /* so few bytes fit into an empty socket */
        (void)t->holding->flush(conn);
    return HEARTH_OK;
}

int transport_race_talk(struct conn *conn, const struct race_talk *words, uint64_t deadline_ns,
                        const struct stop *stop)
{
    struct transport_race_pair pair = {.lanes = {{.conns = {conn}, .count = 1}}};
    struct transport_race_setup setup = {
        .pairs = &pair, .count = 1, .deadline_ns = deadline_ns, .stop = stop};
    struct sock_wait wait;
    return talk(&(struct arena){.setup = &setup, .waits = &wait}, conn, words);
}

static int settle(struct arena *a, struct transport_race_pair *pair)
{
    struct conn *conn = pair->lanes[0].conns[0];
    uint8_t mine[RESULT_BYTES], other[RESULT_BYTES], choice = 0;
    for (int i = 0; i < TRANSPORT_RACE_LANES; i++)
        store_u64(mine + 8 * i, (uint64_t)pair->lanes[i].bytes_per_s);
    struct race_talk results = {mine, sizeof mine, other, sizeof other};
    int status = talk(a, conn, &results);
    if (status != HEARTH_OK)
        return status;
    for (int i = 0; i < TRANSPORT_RACE_LANES; i++)
        pair->lanes[i].bytes_per_s += (double)load_u64(other + 8 * i);
    if (pair->decides)
        choice = pair->lanes[1].bytes_per_s > pair->lanes[0].bytes_per_s * a->setup->margin;
    struct race_talk decision = {&choice, pair->decides, &choice, !pair->decides};
    status = talk(a, conn, &decision);
    if (status == HEARTH_OK && choice >= TRANSPORT_RACE_LANES)
        status = HEARTH_PROTOCOL;
    pair->chosen = choice;
    return status;
}

static void hold_back(const struct transport_race_setup *setup, int bytes)
{
    for (int i = 0; i < setup->count; i++)
        for (int lane = 0; lane < TRANSPORT_RACE_LANES; lane++)
            for (int k = 0; k < setup->pairs[i].lanes[lane].count; k++) {
                struct conn *conn = setup->pairs[i].lanes[lane].conns[k];
                tcp_hold_back(conn->transport->descriptor(conn), bytes);
            }
}

int transport_race_run(const struct transport_race_setup *setup, struct error *error)
{
    struct arena a = {.setup = setup};
    a.matches = heap_alloc(setup->heap, (size_t)setup->count, sizeof *a.matches);
    a.waits = heap_alloc(setup->heap, WAITS_MAX, sizeof *a.waits);
    a.out = heap_alloc(setup->heap, 1, BLOCK_BYTES);
    a.in = heap_alloc(setup->heap, 1, BLOCK_BYTES);
    int status = HEARTH_OK;
    if (!a.matches || !a.waits || !a.out || !a.in)
        status = error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory to compare transports");
    hold_back(setup, UNSENT_BYTES);
    for (int lane = 0; status == HEARTH_OK && lane < TRANSPORT_RACE_LANES; lane++)
        status = try_lane(&a, lane, error);
    hold_back(setup, 0);
    for (int i = 0; status == HEARTH_OK && i < setup->count; i++) {
        status = settle(&a, &setup->pairs[i]);
        if (status != HEARTH_OK)
            lost(&setup->pairs[i], status, error);
    }
    heap_free(a.matches);
    heap_free(a.waits);
    heap_free(a.out);
    heap_free(a.in);
    return status;
}
