/* SPDX-License-Identifier: Apache-2.0 */
/* The door's inner side, for the mesh: who greeted, and the unix socket that is there only while joining. */
#ifndef BOOTSTRAP_DOOR_H
#define BOOTSTRAP_DOOR_H

#include "bootstrap/mesh.h"
#include "bootstrap/tunnel.h"
#include "wire/greeting.h"

/* Listeners and those who have not greeted yet. */
#define DOOR_WAITS_MAX (DOOR_HALF_OPEN + 2)

/* Whom greetings must mean. */
struct door_self {
    uint64_t cluster, instance;
    int rank;
    const struct credentials *credentials; /* NULL: plain; lent until door_settle */
};

/* One that has greeted us by our names; its 64 bytes are read, nothing behind them. Who it is, tunnel_peer
 * says where it was proven. */
struct door_guest {
    struct tunnel *tunnel;
    bool local; /* a unix socket of our own user */
    struct sock_addr from;
    struct greeting greeting;
};

/* From now on guests are kept for door_take. Before this, nobody is a guest. */
void door_receive(struct door *door, const struct door_self *self);
/* Nobody is let in any more, and the unix socket is closed. Plain: who greets is told that we are joined.
 * Else strangers are closed as they come: no handshake is made any more. */
void door_settle(struct door *door);
/* Listens for members of this host too. */
int MUST_CHECK door_open_local(struct door *door, struct error *error);
/* Where that member listens for its neighbours. */
void door_local_addr(uint64_t cluster, int rank, struct sock_addr *out);

/* The next guest, the caller's from then on; false: none. To be called until then after each door_pump. */
bool door_take(struct door *door, struct door_guest *guest);
/* Answers a guest no, and closes it. */
void door_refuse(struct tunnel *tunnel, const struct greeting *greeting, enum greeting_reason reason);

/* Says in the log, once for each address, why somebody is sent away. */
void door_complain(struct door *door, const struct sock_addr *from, const char *why);

int door_strangers(const struct door *door);    /* how many stand there now */
uint64_t door_put_off(const struct door *door); /* handshakes that were too many: see guard.h */

#endif
