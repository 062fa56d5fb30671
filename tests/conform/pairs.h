/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a connection, joined: a way to open them for each transport. */
#pragma once

#include "core/heap.h"
#include "core/types.h"
#include "os/event.h"
#include "transport/transport.h"

#define PATIENCE_NS (60 * NS_PER_S) /* against hangs only */

struct bell;

/* Two joined ends. */
struct pair {
    const struct kind *kind;
    struct conn *conn[2];
    struct bell *bell[2];
    void *owner;           /* of the transport */
    uint64_t now_ns;       /* virtual */
    struct heap heap;      /* of those that have descriptors */
    struct event event[2]; /* and wake through them; -1: not used */
};

/* How one sleeps until there is something to do. */
enum rest { REST_BELL, REST_VIRTUAL, REST_DESCRIPTOR };

/* A transport in one of its ways. */
struct kind {
    const char *name;
    enum rest rest; /* virtual: time passes only in pass() */
    bool late;      /* what is sent arrives a moment later; a close is noticed by the second send */
    void (*open)(struct pair *pair, uint64_t seed);
    void (*close)(struct pair *pair); /* the ends are closed already */
    bool keeps; /* bytes until the peer has them: room shows in `due`, and not at the descriptor */
};

extern const struct kind pair_kinds[];
extern const size_t pair_kind_count;
