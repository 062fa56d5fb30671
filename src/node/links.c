/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets become connections of the engine: shared memory inside a host, TLS or plain TCP between. */
#include "node/links.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "node/transport_pick.h"
#include "transport/tcp.h"
#include "transport/tls.h"

#define RING_BYTES_ALL (16u << 20) /* rings in shared memory, to all neighbours together */
#define RING_BYTES_MAX (4u << 20)  /* a core's cache and more is enough: see shm.c */
#define RING_BYTES_MIN (128u << 10)
#define LINE_MAX_BYTES 320 /* of hearth_node_links_text, per peer */

static const char *kind_of(const struct opening *o, int rank, const struct transport_choice *choice)
{
    if (rank == o->roster.rank)
        return "this one";
    if (o->mesh[rank].kind == MESH_UNIX)
        return "shm";
    return choice->quic ? "quic" : o->credentials ? "tcp+tls" : "plain tcp";
}

/* A line for users, truncated if too long. */
static void line_write(const struct opening *o, int rank, const struct transport_choice *choice,
                       char line[LINE_MAX_BYTES])
{
    const struct mesh_peer *peer = &o->mesh[rank];
    const struct peer_info *m = &o->roster.members[rank];
    char addr[SOCK_TEXT_MAX];
    int len = snprintf(line, LINE_MAX_BYTES, "rank %d  %s  process %" PRIu32 "  %s", rank, m->name,
                       m->process, kind_of(o, rank, choice));
    if (peer->kind != MESH_TCP || len >= LINE_MAX_BYTES)
        return;
    sock_addr_text(&peer->addr, addr, sizeof addr);
    snprintf(line + len, LINE_MAX_BYTES - (size_t)len, "  %s  %d %s  %.3f ms%s%s", addr, o->conns[rank].count,
             choice->quic ? "streams" : "connections", (double)peer->round_trip_ns / (double)NS_PER_MS,
             choice->reason[0] != '\0' ? "  " : "", choice->reason);
}

static void links_describe(struct opening *o, const struct transport_choice *choices)
{
    size_t used = 0;
    o->links = heap_alloc(o->heap, (size_t)o->roster.size, LINE_MAX_BYTES + 1);
    for (int i = 0; o->links && i < o->roster.size; i++) {
        char line[LINE_MAX_BYTES];
        line_write(o, i, &choices[i], line);
        size_t len = strlen(line);
        memcpy(o->links + used, line, len);
        o->links[used + len] = '\n';
        used += len + 1;
        if (i != o->roster.rank)
            log_write(&o->log, HEARTH_LOG_INFO, "HEARTH-LINK", "%s", line);
    }
}

/* An address without its port. */
static void bare_address(const struct sock_addr *addr, char *text, size_t size)
{
    char whole[SOCK_TEXT_MAX];
    sock_addr_text(addr, whole, sizeof whole);
    char *colon = strrchr(whole, ':');
    if (colon)
        *colon = '\0';
    bool brackets = whole[0] == '[';
    if (brackets && strchr(whole, ']'))
        *strchr(whole, ']') = '\0';
    snprintf(text, size, "%.63s", whole + brackets);
}

void links_roll(struct opening *o, const struct transport_choice *choices)
{
    struct node_link *roll = heap_alloc(o->heap, (size_t)o->roster.size, sizeof *roll);
    for (int i = 0; roll && i < o->roster.size; i++) {
        const struct peer_info *m = &o->roster.members[i];
        const struct mesh_peer *peer = &o->mesh[i];
        struct hearth_member *to = &roll[i].to;
        *to =
            (struct hearth_member){.size = sizeof *to, .rank = i, .same_host = m->host_id == o->self.host_id};
        if (o->credentials)
            node_id_text(&m->id.node, to->id);
        snprintf(to->name, sizeof to->name, "%s", m->name);
        if (choices) {
            snprintf(roll[i].transport, sizeof roll[i].transport, "%s", kind_of(o, i, &choices[i]));
            snprintf(roll[i].why, sizeof roll[i].why, "%s", choices[i].reason);
        }
        if (peer->kind != MESH_TCP && m->addr_count == 0)
            continue;
        struct sock_addr addr = peer->kind == MESH_TCP ? peer->addr : sock_addr_of(&m->addrs[0]);
        bare_address(&addr, to->address, sizeof to->address);
    }
    o->roll = roll;
}

static size_t ring_bytes_for(int neighbours)
{
    size_t bytes = RING_BYTES_MAX;
    while (bytes > RING_BYTES_MIN && 2 * bytes * (size_t)neighbours > RING_BYTES_ALL)
        bytes /= 2;
    return bytes;
}

static int take_shared(struct opening *o, int rank, int neighbours, struct error *error)
{
    struct mesh_peer *peer = &o->mesh[rank];
    struct shm_setup setup = {
        .heap = o->heap,
        .fd = peer->fds[0],
        .maker = o->roster.rank < rank,
        .ring_bytes = ring_bytes_for(neighbours),
        .event = &o->event,
        .regions = o->regions,
        .deadline_ns = o->deadline_ns,
        .stop = o->stop,
    };
    peer->fds[0] = -1;
    int status = shm_conn_open(&setup, &o->conns[rank].conns[0], error);
    if (status == HEARTH_OK)
        o->conns[rank].count = 1;
    else
        error->rank = rank;
    return status;
}

/* `buffers`: NULL where all is plain. */
static int take_sockets(struct opening *o, int rank, struct tls_buffers *buffers, struct error *error)
{
    struct mesh_peer *peer = &o->mesh[rank];
    for (int i = 0; i < peer->count; i++) {
        int fd = peer->fds[i];
        struct records *records = peer->records[i];
        peer->fds[i] = -1;
        peer->records[i] = NULL;
        struct conn *conn = records ? tls_conn(buffers, fd, records) : tcp_conn(o->heap, fd);
        if (!conn)
            return error_set(error, HEARTH_NO_MEMORY, rank, "open: no memory for a connection");
        o->conns[rank].conns[o->conns[rank].count++] = conn;
    }
    return HEARTH_OK;
}

static int take_each(struct opening *o, int neighbours, struct tls_buffers *buffers, struct error *error)
{
    for (int i = 0; i < o->roster.size; i++) {
        int status = HEARTH_OK;
        if (o->mesh[i].kind == MESH_UNIX)
            status = take_shared(o, i, neighbours, error);
        else if (o->mesh[i].kind == MESH_TCP)
            status = take_sockets(o, i, buffers, error);
        if (status != HEARTH_OK)
            return status;
    }
    return HEARTH_OK;
}

static int take_all(struct opening *o, struct error *error)
{
    static_assert((int)MESH_CHANNELS_MAX == (int)LINK_PIPES_MAX, "a channel becomes a pipe");
    struct tls_buffers *buffers = NULL;
    int neighbours = 0, encrypted = 0;
    for (int i = 0; i < o->roster.size; i++) {
        neighbours += o->mesh[i].kind == MESH_UNIX;
        encrypted += o->mesh[i].kind == MESH_TCP && o->credentials;
    }
    if (neighbours > 0)
        o->regions = shm_regions_open(o->heap);
    if (encrypted > 0)
        buffers = tls_buffers_open(o->heap);
    bool good = (neighbours == 0 || o->regions) && (encrypted == 0 || buffers);
    int status = good ? take_each(o, neighbours, buffers, error)
                      : error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory");
    tls_buffers_close(buffers); /* the connections share them */
    return status;
}

int links_take(struct opening *o, struct error *error)
{
    struct transport_choice *choices = heap_alloc(o->heap, (size_t)o->roster.size, sizeof *choices);
    if (!choices)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory");
    int status = take_all(o, error);
    if (status == HEARTH_OK)
        status = transport_pick(o, choices, error);
    if (status == HEARTH_OK)
        links_describe(o, choices);
    links_roll(o, choices);
    heap_free(choices);
    return status;
}
