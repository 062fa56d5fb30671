/* SPDX-License-Identifier: Apache-2.0 */
/* Between mesh.c and mesh_line.c: the sockets of a mesh that are not kept yet. */
#pragma once

#include "bootstrap/pairing.h"
#include "connect/dial_driver.h"
#include "connect/listener.h"

#define LINES_MAX       256 /* sockets with a greeting under way, besides those at the listener */
#define MESH_REASON_MAX 120
#define MESH_WHY_MAX    (SOCK_TEXT_MAX + MESH_REASON_MAX + 2)

enum line_state { LINE_FREE, LINE_GREETED, LINE_OFFERED };

struct line {
    enum line_state state;
    struct secure_stream *stream;
    int peer, channel;
    int via;          /* how we dialled; -1: the peer did */
    uint8_t channels; /* as the peer said, when it dialled */
    bool local;
    uint64_t greeted_ns;
    uint64_t round_trip_ns; /* of the connect */
    bool ready;             /* something has come */
    struct sock_addr addr;
    size_t got;
    uint8_t bytes[GREETING_LEN];
};

/* All about one peer that is not among its sockets. */
struct side {
    struct pairing pairing;
    char why[PAIRING_VIAS][MESH_WHY_MAX]; /* how far we came by each way; empty: not tried */
    enum hearth_reason reason;            /* of the last attempt that failed for one */
    bool unreached;                       /* no listener by TCP, once at least */
    bool failed[PAIRING_VIAS];            /* that is why an attempt failed */
};

struct mesh {
    const struct mesh_setup *setup;
    const struct roster *roster;
    struct mesh_peer *peers;
    struct side *sides;
    int missing;          /* peers */
    struct error *broken; /* where to say what ends the attempt; its status HEARTH_OK: nothing has */
    uint64_t now_ns;
    struct dial_driver driver;
    struct line lines[LINES_MAX];
    struct sock_wait waits[LINES_MAX + HALF_OPEN_WAITS_MAX + DIAL_ATTEMPTS_MAX];
};

static inline const struct peer_info *member_of(const struct mesh *mesh, int rank)
{
    return &mesh->roster->members[rank];
}

/* Whether the handshake has proven the member that the roster has at this rank. */
bool mesh_proven(const struct mesh *mesh, const struct secure_stream *stream, int rank);

struct line *line_find(struct mesh *mesh); /* a free one, or NULL */
void line_close(struct line *line);
/* False: it is broken. */
bool line_say(struct mesh *mesh, const struct line *line, enum greeting_kind kind);
/* The line becomes a channel of the peer; all others that were to be the same are closed. */
void line_keep(struct mesh *mesh, struct line *line);

dial_request_fn mesh_request; /* of the mesh */
void mesh_dialled(struct mesh *mesh, const struct dial_event *event);
/* Goes on with a line that something has come on. */
void line_hear(struct mesh *mesh, struct line *line);
