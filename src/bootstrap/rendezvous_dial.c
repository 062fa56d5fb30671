/* SPDX-License-Identifier: Apache-2.0 */
/* One line per address. The first that is connected is chosen, the others hang up; if it proves to be of
 * no use, all are dialled again after a pause that grows and is a little random, so that not all members
 * come at once. */
#include "bootstrap/rendezvous_dial.h"

#include <inttypes.h>
#include <string.h>

#include "security/vault.h"

#define PAUSE_MIN_NS (50 * NS_PER_MS)
#define PAUSE_MAX_NS NS_PER_S
#define READ_BYTES   SECURE_STREAM_MESSAGE_MAX /* so that nothing that was read is left for later */

void rendezvous_dial_init(struct rendezvous_dial *c, struct rendezvous_client *client,
                          const struct sock_addr *addrs, int count, uint64_t seed)
{
    *c = (struct rendezvous_dial){.setup = client->setup, .client = client, .count = count, .chosen = -1};
    for (int i = 0; i < RESOLVE_MAX; i++)
        c->lines[i].fd = -1;
    for (int i = 0; i < count; i++)
        c->lines[i].addr = addrs[i];
    prng_init(&c->prng, seed);
    error_clear(&c->last);
}

static void hang_up(struct rendezvous_dial *c, int index)
{
    struct rendezvous_line *line = &c->lines[index];

    if (line->stream)
        secure_stream_close(line->stream);
    else
        sock_close(line->fd);
    line->stream = NULL;
    line->fd = -1;
    if (c->chosen == index)
        c->chosen = -1;
}

void rendezvous_dial_close(struct rendezvous_dial *c)
{
    for (int i = 0; i < c->count; i++)
        hang_up(c, i);
}

/* c->last says why. */
static void line_fail(struct rendezvous_dial *c, int index, uint64_t now_ns)
{
    struct rendezvous_line *line = &c->lines[index];
    uint64_t pause_ns = PAUSE_MIN_NS << (line->tries < 5 ? line->tries : 5);

    hang_up(c, index);
    line->tries++;
    pause_ns = pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS;
    line->next_ns = now_ns + pause_ns / 2 + prng_below(&c->prng, pause_ns);
}

/* Somebody is there but does not do what a rendezvous does: worth a few attempts only. */
static int line_bad(struct rendezvous_dial *c, int index, uint64_t now_ns, struct error *error)
{
    line_fail(c, index, now_ns);
    if (c->bad++ < c->setup->connect_retries)
        return HEARTH_PENDING;
    *error = c->last;
    return error->status;
}

/* ---- connecting ---- */

static void line_dial(struct rendezvous_dial *c, int index, uint64_t now_ns)
{
    struct rendezvous_line *line = &c->lines[index];

    line->until_ns = now_ns + c->setup->connect_timeout_ns;
    if (sock_dial(&line->addr, NULL, &line->fd, &c->last) != HEARTH_OK)
        line_fail(c, index, now_ns);
}

static int line_choose(struct rendezvous_dial *c, int index, uint64_t now_ns, struct error *error)
{
    struct rendezvous_line *line = &c->lines[index];
    bool local = sock_addr_family(&line->addr) == SOCK_UNIX;
    struct secure_stream_setup setup = {
        .heap = c->setup->heap,
        .credentials = local ? NULL : c->setup->credentials,
        .role = CHANNEL_DIALS,
        .to = {.kind = KNOCK_OPEN}, /* who is there we hear in the roster */
    };

    if (secure_stream_open(&setup, line->fd, &line->stream) != HEARTH_OK) {
        line->fd = -1;
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "rendezvous: no memory for a connection");
    }
    for (int i = 0; i < c->count; i++)
        if (i != index)
            hang_up(c, i);
    c->chosen = index;
    line->until_ns = now_ns + c->setup->connect_timeout_ns;
    rendezvous_client_begin(c->client, now_ns);
    return HEARTH_PENDING;
}

static int line_connect(struct rendezvous_dial *c, int index, uint64_t now_ns, struct error *error)
{
    struct rendezvous_line *line = &c->lines[index];
    char text[SOCK_TEXT_MAX];

    sock_addr_text(&line->addr, text, sizeof text);
    int status = sock_dialled(line->fd, &line->addr, &c->last);
    if (status == HEARTH_PENDING && now_ns < line->until_ns)
        return HEARTH_PENDING;
    if (status == HEARTH_PENDING)
        error_set(&c->last, HEARTH_TIMEOUT, RANK_NONE, "cannot dial %s: no answer for %" PRIu64 " ms", text,
                  c->setup->connect_timeout_ns / NS_PER_MS);
    if (status != HEARTH_OK) {
        line_fail(c, index, now_ns);
        return HEARTH_PENDING;
    }
    if (sock_addr_family(&line->addr) == SOCK_UNIX && !sock_same_user(line->fd))
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "rendezvous: %s was opened by another user: choose another name", text);
    return line_choose(c, index, now_ns, error);
}

/* ---- talking ---- */

static void line_send(struct rendezvous_dial *c)
{
    struct iovec piece = rendezvous_client_output(c->client);

    if (piece.iov_len > 0 && secure_stream_send(c->lines[c->chosen].stream, piece.iov_base, piece.iov_len))
        rendezvous_client_sent(c->client, piece.iov_len);
}

/* Reads first: the last words of whoever closed are worth more than that it closed. `said` has a text if
 * there is one. */
static int line_move(struct rendezvous_dial *c, struct error *said)
{
    struct secure_stream *stream = c->lines[c->chosen].stream;
    uint8_t bytes[READ_BYTES];

    int status = secure_stream_pump(stream, said);
    if (status == HEARTH_PENDING || status == HEARTH_PROTOCOL)
        return status;
    ssize_t len = secure_stream_recv(stream, bytes, sizeof bytes);
    if (len == HEARTH_PROTOCOL && secure_stream_mixed(stream))
        return error_set(said, HEARTH_PROTOCOL, RANK_NONE, "%s", secure_stream_mixed_text(stream));
    if (len < 0 || (len == 0 && status != HEARTH_OK))
        return HEARTH_PEER_LOST;
    if (len > 0) {
        status = rendezvous_client_input(c->client, bytes, (size_t)len, said);
        wipe(bytes, (size_t)len);
        if (status != HEARTH_PENDING)
            return status;
    }
    line_send(c);
    return HEARTH_PENDING;
}

/* Whether what closed is one, and is worth coming again as long as there is time: it has died, and another
 * may take its place; or strangers keep it busy, or have pushed us out. */
static bool is_rendezvous(const struct rendezvous_dial *c, const struct error *said)
{
    return c->client->welcomed || secure_stream_peer(c->lines[c->chosen].stream) ||
           strstr(said->text, SAYS_BUSY) || strstr(said->text, SAYS_CUT);
}

static int line_talk(struct rendezvous_dial *c, uint64_t now_ns, struct error *error)
{
    int index = c->chosen;
    bool welcomed = c->client->welcomed;
    struct error said;
    char text[SOCK_TEXT_MAX];

    error_clear(&said);
    int status = line_move(c, &said);

    sock_addr_text(&c->lines[index].addr, text, sizeof text);
    if (status == HEARTH_OK)
        return HEARTH_OK;
    if (status != HEARTH_PENDING && c->client->refused) {
        *error = said;
        return status;
    }
    if (status == HEARTH_PENDING && (c->client->welcomed || now_ns < c->lines[index].until_ns))
        return HEARTH_PENDING;
    if (status == HEARTH_PENDING)
        error_set(&c->last, HEARTH_TIMEOUT, RANK_NONE,
                  "rendezvous: whoever listens on %s did not answer for %" PRIu64
                  " ms: is it a rendezvous of Hearth?",
                  text, c->setup->connect_timeout_ns / NS_PER_MS);
    else if (status == HEARTH_PEER_LOST && !said.text[0])
        error_set(&c->last, HEARTH_PEER_LOST, RANK_NONE, "rendezvous: %s closed the connection%s", text,
                  welcomed ? "" : " without an answer: is it a rendezvous of Hearth?");
    else
        error_set(&c->last, status, RANK_NONE, "rendezvous: %s: %s%s", text, said.text,
                  strstr(said.text, SAYS_OTHER_SECRET) ? "; give all members the same (hearth join TOKEN)"
                                                       : "");
    if (status == HEARTH_PEER_LOST && is_rendezvous(c, &said)) {
        line_fail(c, index, now_ns);
        return HEARTH_PENDING;
    }
    return line_bad(c, index, now_ns, error);
}

/* ---- the whole ---- */

/* Before the handshake is done nothing can be said, whatever there is to say. */
static bool line_wants_send(const struct rendezvous_dial *c, const struct rendezvous_line *line)
{
    return secure_stream_wants_send(line->stream) ||
           (secure_stream_ready(line->stream) && rendezvous_client_output(c->client).iov_len > 0);
}

void rendezvous_dial_waits(const struct rendezvous_dial *c, struct sock_wait *items, uint64_t *deadline_ns)
{
    for (int i = 0; i < RESOLVE_MAX; i++) {
        const struct rendezvous_line *line = &c->lines[i];
        bool chosen = c->chosen == i;
        items[i] = (struct sock_wait){
            .fd = line->fd, .want_recv = chosen, .want_send = !chosen || line_wants_send(c, line)};
        if (i >= c->count || (chosen && c->client->welcomed) || (c->chosen >= 0 && !chosen))
            continue;
        uint64_t next = line->fd >= 0 ? line->until_ns : line->next_ns;
        if (next < *deadline_ns)
            *deadline_ns = next;
    }
}

int rendezvous_dial_pump(struct rendezvous_dial *c, const struct sock_wait *items, uint64_t now_ns,
                         struct error *error)
{
    int status = HEARTH_PENDING;

    for (int i = 0; i < c->count && status == HEARTH_PENDING; i++) {
        const struct rendezvous_line *line = &c->lines[i];
        if (c->chosen >= 0 && c->chosen != i)
            continue;
        if (line->fd < 0 && now_ns >= line->next_ns)
            line_dial(c, i, now_ns);
        else if (line->fd >= 0 && (items[i].ready || now_ns >= line->until_ns))
            status = c->chosen == i ? line_talk(c, now_ns, error) : line_connect(c, i, now_ns, error);
    }
    return status;
}
