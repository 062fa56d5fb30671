/* SPDX-License-Identifier: Apache-2.0 */
/* Which transport was measured to be the faster one to a peer: kept from one group to the next, for as long
 * as the path looks the same. Any thread. */
#pragma once

#include "os/sock.h"
#include "os/thread.h"
#include "security/node_key.h"

#define TRANSPORT_CHOICES_MAX 64 /* the one that was measured first gives way */
#define TRANSPORT_REASON_MAX  96

struct transport_path {
    struct node_id node;
    struct sock_addr addr; /* the peer's; the port does not matter */
    uint64_t round_trip_ns;
};

struct transport_choice {
    bool quic;
    char reason[TRANSPORT_REASON_MAX]; /* for people: what was measured */
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
/* False: it was never measured, too long ago, or on another path. */
bool transport_choice_find(struct transport_choices *choices, const struct transport_path *path,
                           uint64_t now_ns, struct transport_choice *choice);
void transport_choice_keep(struct transport_choices *choices, const struct transport_path *path,
                           uint64_t now_ns, const struct transport_choice *choice);
void transport_choice_forget(struct transport_choices *choices, const struct node_id *node);
