/* SPDX-License-Identifier: Apache-2.0 */
/* Moves bytes between connections that have registered and the rendezvous; closes them as it says. */
#include "bootstrap/server.h"

#include "wire/meeting.h"
#include "wire/record.h"

#define WORDS_MAX  (MESSAGE_HEADER_LEN + MEETING_SMALL_MAX)
#define READ_BYTES SECURE_STREAM_MESSAGE_MAX /* so that nothing that was read is left for later */

/* ---- open and close ---- */

static enum half_open_verdict judge(void *arg, const struct half_open_incoming *incoming,
                                    const uint8_t *bytes, size_t len, size_t *wants, const char **why)
{
    struct message_header header;

    (void)arg, (void)incoming;
    return half_open_message(&meeting_to_rendezvous, bytes, len, wants, &header, why);
}

/* To one that is plain where we are not, or the other way round: a refusal in plain text is what its user
 * will see, or what tells its end that we are plain. */
static size_t mixed_answer(bool encrypts, uint8_t *target, size_t size)
{
    struct error error;

    mixed_error(encrypts, "this process", &error);
    size_t len = error_encode(&error, target + MESSAGE_HEADER_LEN, size - MESSAGE_HEADER_LEN);
    message_seal(MEETING_REFUSE, target + MESSAGE_HEADER_LEN, len, NULL, 0, target);
    return MESSAGE_HEADER_LEN + len;
}

static int meeting_open(struct server *server, const struct rendezvous_setup *setup, struct error *error)
{
    struct rendezvous_setup meeting = *setup;

    meeting.admissions = half_open_admissions(server->half_open);
    int status = rendezvous_open(&meeting, &server->meeting, error);
    if (status != HEARTH_OK)
        return status;
    server->limit = rendezvous_limit(server->meeting);
    server->streams = heap_alloc(setup->heap, (size_t)server->limit, sizeof server->streams[0]);
    if (server->streams)
        return HEARTH_OK;
    return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "rendezvous: no memory for its connections");
}

int server_open(struct server *server, const struct rendezvous_setup *setup, const int *listeners, int count,
                bool lent, struct error *error)
{
    *server = (struct server){.self = -1};
    struct half_open_setup half_open = {
        .heap = setup->heap,
        .log = setup->log,
        .burst = setup->size,
        .patience_ns = RENDEZVOUS_LEAVE_NS,
        .words_first = MESSAGE_HEADER_LEN,
        .words_max = WORDS_MAX,
        .mixed_answer = {server->mixed_answer,
                         mixed_answer(setup->credentials, server->mixed_answer, sizeof server->mixed_answer)},
        .judge = judge,
    };
    int status = half_open_open(&half_open, &server->half_open, error);

    for (int i = 0; i < count; i++) {
        if (server->half_open)
            half_open_add(server->half_open, listeners[i], lent);
        else if (!lent)
            sock_unlisten(listeners[i]);
    }
    if (status != HEARTH_OK)
        return status;
    half_open_trust(server->half_open, setup->credentials);
    status = meeting_open(server, setup, error);
    if (status != HEARTH_OK)
        server_close(server);
    return status;
}

int server_join(struct server *server, const struct identity *self, uint64_t now_ns, struct error *error)
{
    struct rendezvous_origin origin = {.local = true, .peer = self};
    int status = rendezvous_conn_open(server->meeting, &origin, now_ns, &server->self);

    return status == HEARTH_OK ? status
                               : error_set(error, status, RANK_NONE, "rendezvous: no memory for ourselves");
}

void server_part(struct server *server, uint64_t now_ns)
{
    if (server->self >= 0)
        rendezvous_conn_closed(server->meeting, server->self, now_ns);
    server->self = -1;
}

void server_close(struct server *server)
{
    for (int i = 0; i < server->limit && server->streams; i++)
        secure_stream_close(server->streams[i]);
    heap_free(server->streams);
    rendezvous_close(server->meeting);
    half_open_close(server->half_open);
    *server = (struct server){.self = -1};
}

/* ---- waiting ---- */

size_t server_items(int size)
{
    return (size_t)size + RENDEZVOUS_LEAVING + 1 + HALF_OPEN_WAITS_MAX;
}

size_t server_waits(const struct server *server, struct sock_wait *items, uint64_t *deadline_ns)
{
    uint64_t next_ns = rendezvous_deadline(server->meeting);
    size_t count = (size_t)server->limit;
    const uint8_t *bytes;

    *deadline_ns = next_ns < *deadline_ns ? next_ns : *deadline_ns;
    for (int i = 0; i < server->limit; i++) {
        items[i] = server->streams[i] ? secure_stream_wait(server->streams[i]) : (struct sock_wait){.fd = -1};
        if (server->streams[i])
            items[i].want_send |= rendezvous_output(server->meeting, i, &bytes) > 0;
    }
    return count + half_open_waits(server->half_open, items + count, HALF_OPEN_WAITS_MAX, deadline_ns);
}

/* ---- moving bytes ---- */

static void conn_close(struct server *server, int conn, uint64_t now_ns)
{
    rendezvous_conn_closed(server->meeting, conn, now_ns);
    secure_stream_close(server->streams[conn]);
    server->streams[conn] = NULL;
}

static void reap(struct server *server, uint64_t now_ns)
{
    for (int i = 0; i < server->limit; i++)
        if (server->streams[i] && rendezvous_conn_gone(server->meeting, i))
            conn_close(server, i, now_ns);
}

/* Gives what the meeting has to say to the secure stream, as much as that takes now. */
static void conn_say(struct server *server, int conn, uint64_t now_ns)
{
    const uint8_t *bytes;
    size_t len;

    while ((len = rendezvous_output(server->meeting, conn, &bytes)) > 0) {
        len = len < SECURE_STREAM_MESSAGE_MAX ? len : SECURE_STREAM_MESSAGE_MAX;
        if (!secure_stream_send(server->streams[conn], bytes, len))
            return;
        rendezvous_sent(server->meeting, conn, len, now_ns);
    }
}

static void conn_pump(struct server *server, int conn, uint64_t now_ns)
{
    uint8_t bytes[READ_BYTES];
    struct error error;
    int status = secure_stream_pump(server->streams[conn], &error);
    ssize_t len =
        status == HEARTH_OK ? secure_stream_recv(server->streams[conn], bytes, sizeof bytes) : status;

    if (len < 0) {
        conn_close(server, conn, now_ns);
        return;
    }
    if (len > 0)
        rendezvous_input(server->meeting, conn, bytes, (size_t)len, now_ns);
    conn_say(server, conn, now_ns);
}

/* Its first message is there, and maybe more behind it. */
static void arrive(struct server *server, const struct half_open_incoming *incoming, const uint8_t *words,
                   size_t len, uint64_t now_ns)
{
    struct rendezvous_origin origin = {incoming->from, incoming->local, secure_stream_peer(incoming->stream)};
    int conn;

    if (rendezvous_conn_open(server->meeting, &origin, now_ns, &conn) != HEARTH_OK) {
        secure_stream_close(incoming->stream);
        return;
    }
    server->streams[conn] = incoming->stream;
    rendezvous_input(server->meeting, conn, words, len, now_ns);
    conn_pump(server, conn, now_ns);
    reap(server, now_ns);
}

void server_pump(struct server *server, const struct sock_wait *items, uint64_t now_ns)
{
    struct half_open_incoming incoming;
    uint8_t words[WORDS_MAX];
    size_t len;

    for (int i = 0; i < server->limit; i++)
        if (server->streams[i] && items[i].ready)
            conn_pump(server, i, now_ns);
    half_open_pump(server->half_open, now_ns);
    while (half_open_take(server->half_open, &incoming, words, &len))
        arrive(server, &incoming, words, len, now_ns);
    rendezvous_tick(server->meeting, now_ns);
    reap(server, now_ns);
}
