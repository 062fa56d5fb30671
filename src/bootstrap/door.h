/* SPDX-License-Identifier: Apache-2.0 */
/* The door's inner side, for the mesh: who greeted, and the unix socket that is there only while joining. */
#ifndef BOOTSTRAP_DOOR_H
#define BOOTSTRAP_DOOR_H

#include "bootstrap/mesh.h"
#include "wire/greeting.h"

/* Listeners and those who have not greeted yet. */
#define DOOR_WAITS_MAX (DOOR_HALF_OPEN + 2)

/* Whom greetings must mean. */
struct door_self {
    uint64_t cluster, instance;
    int rank;
};

/* A socket that has greeted us by our names; its 64 bytes are read, nothing behind them. */
struct door_guest {
    int fd;
    bool local; /* a unix socket of our own user */
    struct sock_addr from;
    struct greeting greeting;
};

/* From now on guests are kept for door_take. Before this, nobody is a guest. */
void door_receive(struct door *door, const struct door_self *self);
/* From now on guests are told that we are joined. The unix socket is closed. */
void door_settle(struct door *door);
/* Listens for members of this host too. */
int MUST_CHECK door_open_local(struct door *door, struct error *error);
/* Where that member listens for its neighbours. */
void door_local_addr(uint64_t cluster, int rank, struct sock_addr *out);

/* The next guest, the caller's from then on; false: none. To be called until then after each door_pump. */
bool door_take(struct door *door, struct door_guest *guest);
/* Answers a guest no, and closes it. */
void door_refuse(int fd, const struct greeting *greeting, enum greeting_reason reason);

int door_strangers(const struct door *door); /* how many stand there now */

#endif
