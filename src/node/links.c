/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets become connections of the engine: shared memory inside a host, TLS or plain TCP between. */
#include "node/links.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "transport/tcp.h"
#include "transport/tls.h"

#define RING_BYTES_ALL (16u << 20) /* rings in shared memory, to all neighbours together */
#define RING_BYTES_MAX (4u << 20)  /* larger than a core's cache is enough: see shm.c */
#define RING_BYTES_MIN (128u << 10)
#define LINE_MAX_BYTES 256 /* of hearth_links_text, per peer */

static void links_describe(struct opening *o)
{
    size_t size = (size_t)o->roster.size * LINE_MAX_BYTES + 1, used = 0;
    o->links = heap_alloc(o->heap, size, 1);
    for (int i = 0; o->links != NULL && i < o->roster.size; i++) {
        const struct mesh_peer *peer = &o->mesh[i];
        const struct member *m = &o->roster.members[i];
        char addr[SOCK_TEXT_MAX] = "";
        if (peer->kind == MESH_TCP)
            sock_addr_text(&peer->addr, addr, sizeof addr);
        int len = snprintf(o->links + used, LINE_MAX_BYTES, "rank %d  %s  process %" PRIu32 "  %s", i,
                           m->name, m->process,
                           i == o->roster.rank       ? "this one\n"
                           : peer->kind == MESH_UNIX ? "shm\n"
                                                     : "");
        used += (size_t)len < LINE_MAX_BYTES ? (size_t)len : LINE_MAX_BYTES - 1;
        if (peer->kind != MESH_TCP)
            continue;
        len = snprintf(o->links + used, LINE_MAX_BYTES - (size_t)len, "%s  %s  %d connections  %.3f ms\n",
                       o->credentials != NULL ? "tcp+tls" : "plain tcp", addr, peer->count,
                       (double)peer->round_trip_ns / (double)NS_PER_MS);
        used += len > 0 ? strlen(o->links + used) : 0;
    }
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
    };
    peer->fds[0] = -1;
    int status = shm_conn_open(&setup, &o->conns[rank].conns[0], error);
    if (status == HEARTH_OK)
        o->conns[rank].count = 1;
    else
        error->rank = rank;
    return status;
}

static int take_sockets(struct opening *o, int rank, struct error *error)
{
    struct mesh_peer *peer = &o->mesh[rank];
    for (int i = 0; i < peer->count; i++) {
        int fd = peer->fds[i];
        struct records *records = peer->records[i];
        peer->fds[i] = -1;
        peer->records[i] = NULL;
        struct conn *conn = records != NULL ? tls_conn(o->heap, fd, records) : tcp_conn(o->heap, fd);
        if (conn == NULL)
            return error_set(error, HEARTH_NO_MEMORY, rank, "open: no memory for a connection");
        o->conns[rank].conns[o->conns[rank].count++] = conn;
    }
    return HEARTH_OK;
}

int links_take(struct opening *o, struct error *error)
{
    static_assert((int)MESH_CHANNELS_MAX == (int)LINK_PIPES_MAX, "a channel becomes a pipe");
    int neighbours = 0;
    for (int i = 0; i < o->roster.size; i++)
        neighbours += o->mesh[i].kind == MESH_UNIX;
    if (neighbours > 0) {
        o->regions = shm_regions_open(o->heap);
        if (o->regions == NULL)
            return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory");
    }
    for (int i = 0; i < o->roster.size; i++) {
        int status = HEARTH_OK;
        if (o->mesh[i].kind == MESH_UNIX)
            status = take_shared(o, i, neighbours, error);
        else if (o->mesh[i].kind == MESH_TCP)
            status = take_sockets(o, i, error);
        if (status != HEARTH_OK)
            return status;
    }
    links_describe(o);
    return HEARTH_OK;
}
