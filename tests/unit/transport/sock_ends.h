/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a connection over sockets, and what holds for every transport that works on them. */
#pragma once

#include "core/heap.h"
#include "os/sock.h"
#include "transport/transport.h"

#define PATIENCE_NS (30 * NS_PER_S) /* against hangs only */
#define BIG         (3u << 20)

/* End a is a connection; end b too, or a bare socket (NULL). */
struct ends {
    struct heap heap;
    struct conn *a, *b;
    int fd_a, fd_b;
};

void sockets_open(struct ends *e, bool loopback); /* a pair of unix sockets, or TCP on loopback */
void close_conn(struct conn **conn);
/* Closes both, and checks that neither memory nor a descriptor is left. */
void ends_close(struct ends *e);

void wait_for(const struct conn *conn, bool to_send);
ssize_t send_one(struct conn *conn, const void *bytes, size_t len);
void send_all(struct conn *conn, const void *bytes, size_t len);
void recv_all(struct conn *conn, uint8_t *bytes, size_t len); /* exactly, however often one must ask */
ssize_t recv_end(struct conn *conn);                          /* what recv says at the end */
void fill(uint8_t *bytes, size_t len, unsigned seed);

/* ---- checks; `open` makes both ends ---- */

typedef void ends_open(struct ends *e, bool loopback);
/* Whatever lengths are asked for, the stream is the same. */
void check_any_lengths(ends_open *open);
/* One read brings three frames; the first "nothing" after it costs no look at the socket. */
void check_small_frames(ends_open *open);
/* Also if the one that closes has not read what the other sent: that must not take its own words back. */
void check_heard_after_close(ends_open *open);
/* Sending to one that is gone fails; what it said before is still there to be heard. */
void check_sending_to_nobody(ends_open *open);
