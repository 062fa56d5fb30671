/* SPDX-License-Identifier: Apache-2.0 */
/* A listener whose time is the test's, and whatever connects to it. */
#pragma once

#include "connect/listener.h"
#include "support/persons.h"

#define GREETING_NS (5 * NS_PER_S)

extern struct heap heap; /* the listener's */
extern struct listener *listener;
extern uint64_t now_ns;
extern struct listener_self self; /* its cluster is drawn: another run may have a unix socket too */
extern struct greeting good;      /* that of a member */
extern struct greeting greeted;
extern struct notes notes; /* of HEARTH-STRANGER */

int listening_open(void); /* 0, or -1, as setups of cmocka */

/* Connections: descriptors of their own. */
int come_from(const char *text);
int come(void);
void say(int fd, const void *bytes, size_t len);
void greet(int fd, const struct greeting *g);
/* How many bytes the listener sends before it closes the connection; -1: it does not. Time stands still. */
int closed_after(int fd);

bool taken(struct half_open_incoming *incoming); /* it got in, and its greeting is in `greeted` */
void assert_standing(int count);                 /* pumps until so many are half open */
void close_all(const int *fds, int count);
