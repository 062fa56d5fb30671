/* SPDX-License-Identifier: Apache-2.0 */
/* The faster transport to a peer, as measured: kept from one group to the next while the path is unchanged.
 * Any thread. */
#pragma once

#include "os/sock.h"
#include "os/thread.h"
#include "security/node_key.h"

#define TRANSPORT_CHOICES_MAX 64 /* the oldest is replaced */
#define TRANSPORT_REASON_MAX  96

struct transport_path {
    struct node_id node;
    struct sock_addr addr; /* the peer's; the port does not matter */
    uint64_t round_trip_ns;
};

struct transport_choice {
    bool quic;
    char reason[TRANSPORT_REASON_MAX]; /* for users: the measures */
};

struct transport_choices {
    struct mutex lock;
    struct kept_choice {
        struct transport_path path;
        struct transport_choice choice;
        uint64_t at_ns; /* when it was measured; 0: none */
    } kept[TRANSPORT_CHOICES_MAX];
};

int MUST_CHECK transport_choices_init(struct transport_choices *choices);
void transport_choices_fini(struct transport_choices *choices);
/* False: never measured, too long ago, or on another path. */
bool transport_choice_find(struct transport_choices *choices, const struct transport_path *path,
                           uint64_t now_ns, struct transport_choice *choice);
void transport_choice_keep(struct transport_choices *choices, const struct transport_path *path,
                           uint64_t now_ns, const struct transport_choice *choice);
void transport_choice_forget(struct transport_choices *choices, const struct node_id *node);
