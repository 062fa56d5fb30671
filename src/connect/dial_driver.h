/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets of a dialer: connects, makes the handshake, tells its owner what came of it. The only
 * place that dials. Never blocks; one thread drives it.
 *
 * An attempt is the driver's until DIAL_SECURED hands its stream over; it still counts in the dialer
 * until the owner calls dialer_kept, dialer_failed or dialer_cancelled; the last one may be called
 * before, too. */
#pragma once

#include "connect/dialer.h"
#include "connect/secure_stream.h"

struct dial_request {
    struct sock_addr addr;
    const struct sock_addr *from;          /* local address to dial from; NULL: any */
    const struct credentials *credentials; /* NULL: plain */
    struct knock_target to;
};
/* Where a target is and how to dial it, asked at each attempt. */
typedef void dial_request_fn(void *arg, const struct dial_target *target, struct dial_request *request);

struct dial_driver {
    struct heap *heap;
    dial_request_fn *request;
    void *arg;
    struct dialer dialer;
    struct dial_socket *sockets; /* [attempts_max] */
};

/* HEARTH_NO_MEMORY; dial_driver_close is allowed then too. */
int MUST_CHECK dial_driver_open(struct dial_driver *driver, struct heap *heap,
                                const struct dialer_setup *setup, dial_request_fn *request, void *arg);
void dial_driver_close(struct dial_driver *driver); /* harmless on one that is zero or closed */

enum dial_event_kind {
    DIAL_CONNECTED, /* the handshake goes on */
    DIAL_SECURED,   /* the handshake is done, `stream` is the caller's */
    DIAL_FAILED     /* the dialer knows; the attempt is over */
};
struct dial_event {
    enum dial_event_kind kind;
    struct dial_target *target;
    struct sock_addr addr;
    uint64_t round_trip_ns; /* of the connect; 0: it is not connected */
    struct secure_stream *stream;
    enum dial_fault fault;
    struct error error; /* DIAL_FAILED: a status, and why. The text names the address if it is not connected,
                           else it goes on after the peer's name */
};

/* Looks at all sockets once. dial_next then tells what came of it, until it is false. */
void dial_pump(struct dial_driver *driver, uint64_t now_ns);
bool dial_next(struct dial_driver *driver, struct dial_event *event);
/* What to wait for: fills at most max items, gives their number; *deadline_ns is lowered. */
size_t dial_waits(const struct dial_driver *driver, struct sock_wait *items, size_t max,
                  uint64_t *deadline_ns);
/* Attempts by addresses that are not ours any more fail with the next dial_next: the system takes
 * minutes. */
void dial_network_changed(struct dial_driver *driver);

/* Without a dialer, for a caller that has nothing else to do: dials one address once and waits.
 * HEARTH_OK, or a status with a text that names the address; HEARTH_TIMEOUT. */
int MUST_CHECK dial_wait(const struct sock_addr *to, uint64_t deadline_ns, int *fd, struct error *error);
