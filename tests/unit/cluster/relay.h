/* SPDX-License-Identifier: Apache-2.0 */
/* A slow way to an address: passes bytes on in pieces of random size, at random moments. */
#pragma once

#include "core/prng.h"
#include "os/sock.h"

#define RELAY_LINES 16

struct relay {
    int fd; /* listens */
    struct sock_addr addr, target;
    int lines[RELAY_LINES][2];  /* -1: free */
    bool ended[RELAY_LINES][2]; /* that end has said all */
    int passed;                 /* connections, ever */
};

void relay_open(struct relay *relay, const struct sock_addr *target);
void relay_step(struct relay *relay, struct prng *prng);
void relay_cut(struct relay *relay); /* all connections */
void relay_close(struct relay *relay);
