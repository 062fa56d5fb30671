/* SPDX-License-Identifier: Apache-2.0 */
/* Stream sockets: TCP over IPv4 and IPv6, and unix sockets. Everything is non-blocking, close-on-exec and
 * never raises a signal. The only file of the project that knows struct sockaddr. */
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include "core/error.h"
#include "core/net_addr.h"

/* An address with its port, as plain memory. */
struct sock_addr {
    _Alignas(8) uint8_t raw[128];
    uint32_t len; /* 0: no address */
};

enum sock_family { SOCK_NONE, SOCK_IPV4, SOCK_IPV6, SOCK_UNIX };

#define SOCK_TEXT_MAX 128 /* of sock_addr_text, with its final 0 */

#define SOCK_NAME_MAX 60 /* characters of "unix:@name" behind the @ */
#if defined(__linux__)
#define SOCK_PATH_MAX 107 /* of a path behind "unix:" */
#else
#define SOCK_PATH_MAX 103
#endif

/* "192.168.1.2:52416", "[fe80::1%eth0]:52416", "::1" (then default_port), "unix:/run/x", "unix:@name" (a file
 * in a folder that only this user may enter). Numbers only, no look-up: HEARTH_INVALID for anything else,
 * and for a path that is longer than the system takes. */
int MUST_CHECK sock_addr_parse(const char *text, uint16_t default_port, struct sock_addr *out);
/* The inverse; always terminated. */
void sock_addr_text(const struct sock_addr *addr, char *text, size_t size);
enum sock_family sock_addr_family(const struct sock_addr *addr);
uint16_t sock_addr_port(const struct sock_addr *addr); /* 0 for unix */
void sock_addr_set_port(struct sock_addr *addr, uint16_t port);
bool sock_addr_equal(const struct sock_addr *a, const struct sock_addr *b); /* port included */
/* Port and scope ignored; unix: never. */
bool sock_addr_same_host(const struct sock_addr *a, const struct sock_addr *b);
/* A number for the addresses that one machine may have for the asking: an IPv4 address, or the /64 of an IPv6
 * one, whatever the port. All unix sockets have the same, and what is no address. */
uint64_t sock_addr_network(const struct sock_addr *addr);
bool sock_addr_loopback(const struct sock_addr *addr); /* 127/8, ::1, unix */
bool sock_addr_wildcard(const struct sock_addr *addr); /* 0.0.0.0, :: */
/* As addresses travel. False: a unix address, which does not. */
bool sock_addr_to_net(const struct sock_addr *addr, struct net_addr *out);
struct sock_addr sock_addr_of(const struct net_addr *net);

/* All of these: HEARTH_OK, or a status with a text in `error` that names the address and the system's reason.
 * Listening: TCP with SO_REUSEADDR; HEARTH_LIMIT if the address is in use. `bound` has the port that was
 * given when it was 0. A unix file that nobody listens on any more is replaced. */
int MUST_CHECK sock_listen(const struct sock_addr *addr, int backlog, int *fd, struct sock_addr *bound,
                           struct error *error);
void sock_unlisten(int fd); /* closes; removes a unix file */
/* Begins to connect. `from` (may be NULL): local address to use, port 0. */
int MUST_CHECK sock_dial(const struct sock_addr *to, const struct sock_addr *from, int *fd,
                         struct error *error);
/* When the descriptor has become writable: HEARTH_OK, HEARTH_PENDING, or HEARTH_PEER_LOST with the reason. */
int MUST_CHECK sock_dialled(int fd, const struct sock_addr *to, struct error *error);
/* HEARTH_OK, HEARTH_PENDING (nobody waits), or HEARTH_SYSTEM / HEARTH_LIMIT (no descriptors left). */
int MUST_CHECK sock_accept(int listener, int *fd, struct sock_addr *from);
void sock_close(int fd);                                  /* harmless for -1 */
void sock_finish(int fd);                                 /* no more sending; what was sent still arrives */
int MUST_CHECK sock_local(int fd, struct sock_addr *out); /* our end of a connection */

/* Bytes moved, 0 = not now, HEARTH_PEER_LOST = closed or broken. */
ssize_t sock_send(int fd, const struct iovec *pieces, int count);
ssize_t sock_recv(int fd, const struct iovec *pieces, int count);

/* For bulk: no delay, a congestion control that suits (loopback and LAN: cubic or reno, whatever the system
 * prefers and lets us; never bbr), buffers. 0 bytes: leave it to the system. Never fails: what the system
 * refuses stays as it was. */
struct sock_tuning {
    bool congestion; /* choose one */
    int send_bytes, recv_bytes;
};
void sock_tune(int fd, const struct sock_tuning *tuning);

/* The shortest round trip of any packet, in ns: neither our own slowness nor a queue that comes and goes is
 * in it. 0: not known, or no TCP. */
uint64_t tcp_least_round_trip(int fd);
/* At most so many bytes wait unsent in the system; what is on its way does not count. 0: as the system likes.
 * Without effect where the system cannot do it. */
void tcp_hold_back(int fd, int bytes);

/* Unix sockets: descriptors beside a short message (1..256 bytes). Sending never blocks; HEARTH_PENDING: not
 * now. Receiving: at most count_max descriptors, *count of them came (the caller's to close); bytes or 0 or
 * HEARTH_PEER_LOST as in sock_recv. */
#define SOCK_FDS_MAX 4
int MUST_CHECK sock_send_fds(int fd, const void *message, size_t len, const int *fds, int count);
ssize_t sock_recv_fds(int fd, void *message, size_t len_max, int *fds, int count_max, int *count);
/* Whether the process at the other end of a unix socket runs as our user. */
bool sock_same_user(int fd);
/* Differs where names of "unix:@name" lead to different folders, as in containers that share a network. */
uint64_t sock_names_id(void);

/* A connected pair of unix sockets. */
int MUST_CHECK sock_pair(int fds[2]);

/* Waiting for several descriptors. A plain poll(2): a node has a few dozen peers, and what is asked changes
 * every time. */
#define SOCK_WAIT_MAX 4096   /* items */
size_t sock_count_max(void); /* files that this process may have open, sockets among them */
struct sock_wait {
    int fd; /* -1: ignored */
    bool want_recv, want_send;
    bool ready; /* out: something asked for is there, or the descriptor is closed or broken */
};
/* Until one is ready or deadline_ns (clock_real; NEVER_NS: none) has passed: how many are ready. Interrupted
 * by a signal: 0. */
int sock_wait(struct sock_wait *items, size_t count, uint64_t deadline_ns);
