/* SPDX-License-Identifier: Apache-2.0 */
/* One target per address. The first that is connected is chosen; if it proves to be of no use, all are
 * dialled again after a pause that grows and is a little random, so that not all members come at once. */
#include "bootstrap/rendezvous_dial.h"

#include <inttypes.h>
#include <string.h>

#include "security/vault.h"

#define PAUSE_MIN_NS (50 * NS_PER_MS)
#define PAUSE_MAX_NS NS_PER_S
#define READ_BYTES   SECURE_STREAM_MESSAGE_MAX /* so that nothing that was read is left for later */

static void request(void *arg, const struct dial_target *target, struct dial_request *out)
{
    const struct rendezvous_dial *d = arg;
    const struct sock_addr *addr = &d->addrs[target->key];
    bool local = sock_addr_family(addr) == SOCK_UNIX;

    *out = (struct dial_request){
        .addr = *addr,
        .credentials = local ? NULL : d->setup->credentials,
        .to = {.kind = KNOCK_OPEN}, /* the roster will name it */
    };
}

int rendezvous_dial_init(struct rendezvous_dial *d, struct rendezvous_client *client,
                         const struct sock_addr *addrs, int count, uint64_t seed)
{
    struct dialer_setup dialer = {
        .attempts_max = count,
        .first_wins = true,
        .pause_ns = PAUSE_MIN_NS,
        .pause_miss_ns = PAUSE_MIN_NS,
        .pause_max_ns = PAUSE_MAX_NS,
        .misses_max = UINT32_MAX,
        .connect_ns = client->setup->connect_timeout_ns,
        .handshake_ns = client->setup->connect_timeout_ns,
        .seed = seed,
    };

    *d = (struct rendezvous_dial){.setup = client->setup, .client = client, .addrs = addrs, .chosen = -1};
    error_clear(&d->last);
    int status = dial_driver_open(&d->driver, d->setup->heap, &dialer, request, d);
    for (int i = 0; i < count; i++) {
        dial_target_init(&d->targets[i], (uint32_t)i);
        dialer_want(&d->driver.dialer, &d->targets[i], 0);
    }
    return status;
}

void rendezvous_dial_close(struct rendezvous_dial *d)
{
    secure_stream_close(d->stream);
    d->stream = NULL;
    d->chosen = -1;
    dial_driver_close(&d->driver);
}

/* ---- talking ---- */

static void line_send(struct rendezvous_dial *d)
{
    struct iovec piece = rendezvous_client_output(d->client);

    if (piece.iov_len > 0 && secure_stream_send(d->stream, piece.iov_base, piece.iov_len))
        rendezvous_client_sent(d->client, piece.iov_len);
}

/* Reads first: the last message of a peer says more than that it closed. `said` may have a text. */
static int line_move(struct rendezvous_dial *d, struct error *said)
{
    struct secure_stream *stream = d->stream;
    uint8_t bytes[READ_BYTES];

    int status = secure_stream_pump(stream, said);
    if (status == HEARTH_PENDING || status == HEARTH_PROTOCOL)
        return status;
    ssize_t len = secure_stream_recv(stream, bytes, sizeof bytes);
    if (len == HEARTH_PROTOCOL && secure_stream_mixed(stream))
        return error_because(said, HEARTH_REASON_SETTINGS_DIFFER, HEARTH_PROTOCOL, RANK_NONE, "%s",
                             secure_stream_mixed_text(stream));
    if (len < 0 || (len == 0 && status != HEARTH_OK))
        return HEARTH_PEER_LOST;
    if (len > 0) {
        status = rendezvous_client_input(d->client, bytes, (size_t)len, said);
        wipe(bytes, (size_t)len);
        if (status != HEARTH_PENDING)
            return status;
    }
    line_send(d);
    return HEARTH_PENDING;
}

/* Whether what closed is one, and is worth coming again as long as there is time: it has died, and another
 * may take its place; or strangers keep it busy, or have pushed us out. */
static bool is_rendezvous(const struct rendezvous_dial *d, const struct error *said)
{
    return d->client->welcomed || (d->stream && secure_stream_peer(d->stream)) ||
           said->reason == HEARTH_REASON_BUSY || said->reason == HEARTH_REASON_PEER_CLOSED;
}

/* The chosen connection has ended. A listener that does not behave like a rendezvous is dialled a few times
 * only. */
static int ended(struct rendezvous_dial *d, int status, const struct error *said, struct error *error)
{
    bool again = status == HEARTH_PEER_LOST && is_rendezvous(d, said), welcomed = d->client->welcomed;
    char text[SOCK_TEXT_MAX];

    sock_addr_text(&d->addrs[d->chosen], text, sizeof text);
    if (status == HEARTH_TIMEOUT)
        error_because(&d->last, HEARTH_REASON_PEER_SILENT, HEARTH_TIMEOUT, RANK_NONE,
                      "rendezvous: the listener at %s did not answer for %" PRIu64
                      " ms: is it a rendezvous of Hearth?",
                      text, d->setup->connect_timeout_ns / NS_PER_MS);
    else if (said->status == HEARTH_OK)
        error_because(&d->last, welcomed ? HEARTH_REASON_PEER_CLOSED : HEARTH_REASON_NOT_HEARTH, status,
                      RANK_NONE, "rendezvous: %s closed the connection%s", text,
                      welcomed ? "" : " without an answer: is it a rendezvous of Hearth?");
    else
        error_wrap(&d->last, said, "rendezvous: %s: %s%s", text, said->text,
                   said->reason == HEARTH_REASON_SECRET_DIFFERS
                       ? "; give all members the same (hearth join TOKEN)"
                       : "");
    d->chosen = -1;
    if (again || d->bad++ < d->setup->connect_retries)
        return HEARTH_PENDING;
    *error = d->last;
    return error->status;
}

static int talk(struct rendezvous_dial *d, uint64_t now_ns, struct error *error)
{
    struct error said;

    error_clear(&said);
    int status = line_move(d, &said);
    if (status == HEARTH_OK)
        return HEARTH_OK;
    if (status != HEARTH_PENDING && d->client->refused) {
        *error = said;
        return status;
    }
    if (status == HEARTH_PENDING && (d->client->welcomed || now_ns < d->until_ns))
        return HEARTH_PENDING;
    dialer_failed(&d->driver.dialer, &d->targets[d->chosen], DIAL_CLOSED, now_ns);
    status = ended(d, status == HEARTH_PENDING ? HEARTH_TIMEOUT : status, &said, error);
    secure_stream_close(d->stream);
    d->stream = NULL;
    return status;
}

/* ---- the whole ---- */

static int dialled(struct rendezvous_dial *d, const struct dial_event *event, uint64_t now_ns,
                   struct error *error)
{
    char text[SOCK_TEXT_MAX];

    if (event->kind == DIAL_CONNECTED) {
        d->chosen = (int)event->target->key;
        d->until_ns = now_ns + d->setup->connect_timeout_ns;
        d->client->welcomed = false;
        return HEARTH_PENDING;
    }
    if (event->kind == DIAL_SECURED) {
        d->stream = event->stream;
        rendezvous_client_begin(d->client, now_ns);
        return HEARTH_PENDING;
    }
    sock_addr_text(&event->addr, text, sizeof text);
    if (event->fault == DIAL_OTHER_USER)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "rendezvous: %s was opened by another user: choose another name", text);
    if (event->error.status == HEARTH_NO_MEMORY)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "rendezvous: no memory for a connection");
    if (d->chosen == (int)event->target->key)
        return ended(d, event->error.status, &event->error, error);
    d->last = event->error;
    return HEARTH_PENDING;
}

size_t rendezvous_dial_waits(const struct rendezvous_dial *d, struct sock_wait *items, uint64_t *deadline_ns)
{
    size_t count = dial_waits(&d->driver, items, RESOLVE_MAX, deadline_ns);

    if (!d->stream)
        return count;
    items[count] = secure_stream_wait(d->stream);
    items[count++].want_send |= rendezvous_client_output(d->client).iov_len > 0;
    if (!d->client->welcomed && d->until_ns < *deadline_ns)
        *deadline_ns = d->until_ns;
    return count;
}

int rendezvous_dial_pump(struct rendezvous_dial *d, uint64_t now_ns, struct error *error)
{
    int status = HEARTH_PENDING;
    struct dial_event event;

    dial_pump(&d->driver, now_ns);
    while (status == HEARTH_PENDING && dial_next(&d->driver, &event))
        status = dialled(d, &event, now_ns, error);
    return status == HEARTH_PENDING && d->stream ? talk(d, now_ns, error) : status;
}
