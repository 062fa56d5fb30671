/* SPDX-License-Identifier: Apache-2.0 */
/* One socket for each attempt of the dialer. */
#include "connect/dial_driver.h"

#include "os/clock.h"
#include "os/host.h"
#include "os/sock.h"

struct dial_socket {
    int fd;                       /* -1: the stream has it, or there is none */
    struct secure_stream *stream; /* from when it is connected until it is handed over */
    bool ready;                   /* something has come */
    bool stranded;                /* its local address is not ours any more */
    uint64_t began_ns, round_trip_ns;
    struct dial_request request;
};

int dial_driver_open(struct dial_driver *driver, struct heap *heap, const struct dialer_setup *setup,
                     dial_request_fn *request, void *arg)
{
    *driver = (struct dial_driver){.heap = heap, .request = request, .arg = arg};
    dialer_init(&driver->dialer, setup, clock_real());
    driver->sockets = heap_alloc(heap, (size_t)setup->attempts_max, sizeof(struct dial_socket));
    for (int i = 0; i < setup->attempts_max && driver->sockets; i++)
        driver->sockets[i].fd = -1;
    return driver->sockets ? HEARTH_OK : HEARTH_NO_MEMORY;
}

static void socket_close(struct dial_socket *s)
{
    if (s->stream)
        secure_stream_close(s->stream);
    else
        sock_close(s->fd);
    *s = (struct dial_socket){.fd = -1};
}

void dial_driver_close(struct dial_driver *driver)
{
    for (int i = 0; i < driver->dialer.setup.attempts_max && driver->sockets; i++)
        socket_close(&driver->sockets[i]);
    heap_free(driver->sockets);
    driver->sockets = NULL;
}

/* ---- events ------------------------------------------------------------------------------------------- */

static struct dial_target *target_of(const struct dial_driver *driver, const struct dial_socket *s)
{
    return driver->dialer.attempts[s - driver->sockets].target;
}

/* All but the error. */
static void event_init(const struct dial_socket *s, enum dial_event_kind kind, struct dial_target *target,
                       struct dial_event *event)
{
    event->kind = kind;
    event->target = target;
    event->addr = s->request.addr;
    event->round_trip_ns = s->round_trip_ns;
    event->stream = NULL;
}

/* Tells of a failure, in words that name the address, unless it is connected. */
static void say(const struct dial_socket *s, int status, const char *why, struct dial_event *event)
{
    char text[SOCK_TEXT_MAX];

    sock_addr_text(&s->request.addr, text, sizeof text);
    if (s->round_trip_ns > 0)
        error_because(&event->error, HEARTH_REASON_PEER_SILENT, status, RANK_NONE, "%s", why);
    else
        error_because(&event->error, HEARTH_REASON_UNREACHABLE, status, RANK_NONE, "cannot dial %s: %s", text,
                      why);
}

/* event->error says why. */
static bool fail(struct dial_driver *driver, struct dial_socket *s, enum dial_fault fault,
                 struct dial_event *event)
{
    event_init(s, DIAL_FAILED, target_of(driver, s), event);
    event->fault = fault;
    socket_close(s);
    dialer_failed(&driver->dialer, event->target, fault, driver->dialer.now_ns);
    return true;
}

static bool is_local(const struct dial_socket *s)
{
    return sock_addr_family(&s->request.addr) == SOCK_UNIX;
}

/* What the system says about a connect. A unix socket that is not there yet may be soon: that is no miss. */
static enum dial_fault fault_of(const struct dial_socket *s, int status)
{
    if (status != HEARTH_PEER_LOST)
        return DIAL_SYSTEM;
    return is_local(s) ? DIAL_CLOSED : DIAL_UNREACHABLE;
}

static bool connected(struct dial_driver *driver, struct dial_socket *s, struct dial_event *event)
{
    struct session_setup setup = {
        .heap = driver->heap,
        .credentials = s->request.credentials,
        .role = CHANNEL_DIALS,
        .to = s->request.to,
    };
    uint64_t systems_ns = tcp_least_round_trip(s->fd);
    int fd = s->fd;

    s->round_trip_ns = clock_real() - s->began_ns + 1;   /* 0 means: not connected */
    if (systems_ns > 0 && systems_ns < s->round_trip_ns) /* we may have had something else to do */
        s->round_trip_ns = systems_ns;
    if (is_local(s) && !sock_same_user(fd)) {
        error_set(&event->error, HEARTH_INVALID, RANK_NONE, "another user listens there");
        return fail(driver, s, DIAL_OTHER_USER, event);
    }
    if (!is_local(s))
        sock_tune(fd, &(struct sock_tuning){.congestion = false}); /* nothing waits for more to say */
    s->fd = -1;
    if (secure_stream_open(&setup, fd, &s->stream) != HEARTH_OK) {
        error_set(&event->error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for the connection");
        return fail(driver, s, DIAL_SYSTEM, event);
    }
    s->ready = true;
    dialer_connected(&driver->dialer, target_of(driver, s), driver->dialer.now_ns);
    event_init(s, DIAL_CONNECTED, target_of(driver, s), event);
    return true;
}

/* ---- moving ------------------------------------------------------------------------------------------- */

/* Whether there is an event. */
static bool connect_on(struct dial_driver *driver, struct dial_socket *s, struct dial_event *event)
{
    int status = sock_dialled(s->fd, &s->request.addr, &event->error);

    if (status == HEARTH_PENDING)
        return false;
    return status == HEARTH_OK ? connected(driver, s, event) : fail(driver, s, fault_of(s, status), event);
}

static bool shake(struct dial_driver *driver, struct dial_socket *s, struct dial_event *event)
{
    int status = secure_stream_pump(s->stream, &event->error);

    if (status == HEARTH_PENDING)
        return false;
    if (status != HEARTH_OK)
        return fail(driver, s, status == HEARTH_PROTOCOL ? DIAL_WRONG_PEER : DIAL_CUT, event);
    event_init(s, DIAL_SECURED, target_of(driver, s), event);
    event->stream = s->stream;
    *s = (struct dial_socket){.fd = -1};
    dialer_secured(&driver->dialer, event->target, driver->dialer.now_ns);
    return true;
}

static bool start(struct dial_driver *driver, struct dial_socket *s, struct dial_event *event)
{
    driver->request(driver->arg, target_of(driver, s), &s->request);
    s->began_ns = clock_real();
    int status = sock_dial(&s->request.addr, s->request.from, &s->fd, &event->error);
    if (status != HEARTH_OK)
        return fail(driver, s, fault_of(s, status), event);
    return connect_on(driver, s, event);
}

/* The dialer has ended the attempt: our part of it, and the words. */
static void dropped(struct dial_driver *driver, const struct dial_order *order, struct dial_event *event)
{
    static const char *const whys[] = {
        [DIAL_LATE_CONNECT] = "no answer, connect timed out",
        [DIAL_LATE_HANDSHAKE] = "connected, but it did not finish the handshake in time",
        [DIAL_MAKES_ROOM] = "no answer so soon, and many others wait",
    };
    struct dial_socket *s = &driver->sockets[order->attempt];

    say(s, HEARTH_TIMEOUT, whys[order->why], event);
    event_init(s, DIAL_FAILED, order->target, event);
    event->fault = order->why == DIAL_LATE_CONNECT ? DIAL_UNREACHABLE : DIAL_CLOSED;
    socket_close(s);
}

static struct sock_wait wait_for(const struct dial_socket *s)
{
    return s->stream ? secure_stream_wait(s->stream) : (struct sock_wait){.fd = s->fd, .want_send = true};
}

void dial_pump(struct dial_driver *driver, uint64_t now_ns)
{
    struct sock_wait items[DIAL_ATTEMPTS_MAX];
    int count = driver->dialer.setup.attempts_max, busy = 0;

    dialer_tick(&driver->dialer, now_ns);
    for (int i = 0; i < count; i++) {
        items[i] = wait_for(&driver->sockets[i]);
        busy += items[i].fd >= 0;
    }
    if (busy == 0)
        return;
    (void)sock_wait(items, (size_t)count, 0);
    for (int i = 0; i < count; i++)
        driver->sockets[i].ready = items[i].ready;
}

/* Attempts that their owners have cancelled leave their sockets behind. */
static void close_cancelled(struct dial_driver *driver)
{
    for (int i = 0; i < driver->dialer.setup.attempts_max; i++)
        if (driver->dialer.attempts[i].state == ATTEMPT_FREE)
            socket_close(&driver->sockets[i]);
}

bool dial_next(struct dial_driver *driver, struct dial_event *event)
{
    struct dial_order order;

    close_cancelled(driver);
    for (int i = 0; i < driver->dialer.setup.attempts_max; i++) {
        struct dial_socket *s = &driver->sockets[i];
        if (!s->ready)
            continue;
        s->ready = false;
        if (s->stranded) {
            say(s, HEARTH_PEER_LOST, "this machine's address has changed", event);
            return fail(driver, s, DIAL_CLOSED, event);
        }
        if (s->stream ? shake(driver, s, event) : connect_on(driver, s, event))
            return true;
    }
    while (dialer_output(&driver->dialer, &order)) {
        if (order.why != DIAL_START) {
            dropped(driver, &order, event);
            return true;
        }
        if (start(driver, &driver->sockets[order.attempt], event))
            return true;
    }
    return false;
}

size_t dial_waits(const struct dial_driver *driver, struct sock_wait *items, size_t max,
                  uint64_t *deadline_ns)
{
    uint64_t due_ns = dialer_deadline(&driver->dialer);
    size_t count = 0;

    for (int i = 0; i < driver->dialer.setup.attempts_max; i++) {
        struct sock_wait item = wait_for(&driver->sockets[i]);
        if (item.fd >= 0 && count < max)
            items[count++] = item;
    }
    *deadline_ns = due_ns < *deadline_ns ? due_ns : *deadline_ns;
    return count;
}

void dial_network_changed(struct dial_driver *driver)
{
    for (int i = 0; i < driver->dialer.setup.attempts_max; i++) {
        struct dial_socket *s = &driver->sockets[i];
        struct sock_addr local;
        int fd = wait_for(s).fd;
        s->stranded = fd >= 0 && sock_local(fd, &local) == HEARTH_OK && !host_owns(&local);
        s->ready = s->ready || s->stranded;
    }
}

int dial_wait(const struct sock_addr *to, uint64_t deadline_ns, int *fd, struct error *error)
{
    struct sock_wait wait = {.want_send = true};
    char text[SOCK_TEXT_MAX];

    int status = sock_dial(to, NULL, &wait.fd, error);
    if (status)
        return status;
    while ((status = sock_dialled(wait.fd, to, error)) == HEARTH_PENDING && clock_real() < deadline_ns)
        (void)sock_wait(&wait, 1, deadline_ns);
    if (status == HEARTH_OK) {
        *fd = wait.fd;
        return HEARTH_OK;
    }
    sock_close(wait.fd);
    if (status != HEARTH_PENDING)
        return status;
    sock_addr_text(to, text, sizeof text);
    return error_because(error, HEARTH_REASON_UNREACHABLE, HEARTH_TIMEOUT, RANK_NONE,
                         "cannot dial %s: no answer in time", text);
}
