/* SPDX-License-Identifier: Apache-2.0 */
/* A lobby whose guests have said a greeting that knows us: 64 bytes. What a stranger says is answered only if
 * it is one. */
#include "bootstrap/door.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "bootstrap/lobby.h"

#define LOCAL_TEXT 64

static_assert(DOOR_HALF_OPEN == LOBBY_PLACES, "what the door promises is what the lobby has");

struct door {
    struct lobby *lobby;
    struct door_self self; /* cluster 0: not known yet */
    bool receiving;
};

/* All 64 bytes are there. */
static enum lobby_verdict judge_greeting(struct door *door, const struct lobby_guest *guest,
                                         const uint8_t *bytes, const char **why)
{
    const struct door_self *self = &door->self;
    struct greeting g;

    if (greeting_decode(&g, bytes, why))
        return LOBBY_AWAY;
    if (g.kind != GREETING_GREET)
        *why = "it answers what nobody asked";
    else if (self->cluster == 0 || g.cluster != self->cluster)
        *why = "it belongs to another cluster";
    else if (g.to != (uint32_t)self->rank || g.to_instance != self->instance)
        *why = "it looks for another member";
    else if (door->receiving)
        return LOBBY_THROUGH;
    else {
        door_refuse(guest->tunnel, &g, GREETING_JOINED);
        return LOBBY_TAKEN;
    }
    return LOBBY_AWAY;
}

/* Bytes that cannot become a greeting are not waited for. */
static enum lobby_verdict judge(void *arg, const struct lobby_guest *guest, const uint8_t *bytes, size_t len,
                                size_t *wants, const char **why)
{
    static const uint8_t start[] = {GREETING_MAGIC & 0xff, GREETING_MAGIC >> 8, GREETING_VERSION};

    (void)wants;
    if (memcmp(bytes, start, len < sizeof(start) ? len : sizeof(start)) != 0) {
        *why = "what it says is no Hearth greeting";
        return LOBBY_AWAY;
    }
    return len < GREETING_LEN ? LOBBY_MORE : judge_greeting(arg, guest, bytes, why);
}

int door_open(const struct door_setup *setup, struct door **out, struct error *error)
{
    struct door *door = heap_alloc(setup->heap, 1, sizeof(*door));
    struct lobby_setup lobby = {
        .heap = setup->heap,
        .log = setup->log,
        .listen = setup->listen,
        .port_tries = setup->port_tries,
        .patience_ns = setup->greeting_ns,
        .words_first = GREETING_LEN,
        .words_max = GREETING_LEN,
        .judge = judge,
        .arg = door,
    };

    if (!door)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for the listening port");
    int status = lobby_open(&lobby, &door->lobby, error);
    if (status) {
        heap_free(door);
        return status;
    }
    *out = door;
    return HEARTH_OK;
}

void door_close(struct door *door)
{
    if (!door)
        return;
    lobby_settle(door->lobby, "the node closes");
    lobby_close(door->lobby);
    heap_free(door);
}

int door_fd(const struct door *door)
{
    return lobby_fd(door->lobby);
}

struct sock_addr door_addr(const struct door *door)
{
    return lobby_addr(door->lobby);
}

void door_local_addr(uint64_t cluster, int rank, struct sock_addr *out)
{
    char text[LOCAL_TEXT];

    snprintf(text, sizeof(text), "unix:@hearth-%016llx-%d", (unsigned long long)cluster, rank);
    int status = sock_addr_parse(text, 0, out);
    assert(status == HEARTH_OK); /* plain and short */
    (void)status;
}

int door_open_local(struct door *door, struct error *error)
{
    struct sock_addr addr;

    door_local_addr(door->self.cluster, door->self.rank, &addr);
    return lobby_open_local(door->lobby, &addr, error);
}

void door_refuse(struct tunnel *tunnel, const struct greeting *greeting, enum greeting_reason reason)
{
    struct greeting answer = {
        .kind = GREETING_REFUSE,
        .reason = (uint8_t)reason,
        .channel = greeting->channel,
        .channels = greeting->channels,
        .from = greeting->to,
        .to = greeting->from,
        .cluster = greeting->cluster,
        .from_instance = greeting->to_instance,
        .to_instance = greeting->from_instance,
    };
    uint8_t bytes[GREETING_LEN];

    greeting_encode(&answer, bytes);
    /* It fits into an empty socket, or the socket is broken; either way we are through with it. */
    (void)tunnel_send(tunnel, bytes, sizeof(bytes));
    tunnel_close(tunnel);
}

void door_complain(struct door *door, const struct sock_addr *from, const char *why)
{
    lobby_complain(door->lobby, from, why);
}

uint64_t door_put_off(const struct door *door)
{
    return lobby_put_off(door->lobby);
}

void door_receive(struct door *door, const struct door_self *self)
{
    door->self = *self;
    door->receiving = true;
    lobby_trust(door->lobby, self->credentials);
}

void door_settle(struct door *door)
{
    struct door_guest guest;

    while (door_take(door, &guest))
        door_refuse(guest.tunnel, &guest.greeting, GREETING_JOINED);
    door->receiving = false;
    if (door->self.credentials)
        lobby_settle(door->lobby, "we are joined to all");
    door->self.credentials = NULL;
    lobby_trust(door->lobby, NULL);
    lobby_close_local(door->lobby);
}

void door_pump(struct door *door, uint64_t now_ns)
{
    lobby_pump(door->lobby, now_ns);
}

size_t door_waits(const struct door *door, struct sock_wait *items, size_t max, uint64_t *deadline_ns)
{
    return lobby_waits(door->lobby, items, max, deadline_ns);
}

bool door_take(struct door *door, struct door_guest *guest)
{
    struct lobby_guest through;
    uint8_t bytes[GREETING_LEN];
    size_t len;
    const char *what;

    if (!lobby_take(door->lobby, &through, bytes, &len))
        return false;
    *guest = (struct door_guest){.tunnel = through.tunnel, .local = through.local, .from = through.from};
    int status = greeting_decode(&guest->greeting, bytes, &what);
    assert(status == HEARTH_OK); /* it was judged */
    (void)status;
    return true;
}

int door_strangers(const struct door *door)
{
    return lobby_strangers(door->lobby);
}
