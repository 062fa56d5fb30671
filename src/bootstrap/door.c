/* SPDX-License-Identifier: Apache-2.0 */
/* Listens, and hears out whoever comes: a handshake and 64 bytes, within a time, from a bounded number at
 * once.
 *
 * Anybody can connect, so a stranger costs one place of a fixed table, and a tunnel only after it has said
 * something. When all places are taken, one is made free at the expense of the address that holds most of
 * them, its oldest: whoever floods the port pushes out itself, and a member that comes from elsewhere, or
 * greets at once, gets in. What a stranger says is answered only if it is a greeting that knows us. */
#include "bootstrap/door.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "bootstrap/guard.h"

#define BACKLOG      512
#define ACCEPTS_MAX  32                /* of each listener, each time the door is pumped */
#define NO_ACCEPT_NS (100 * NS_PER_MS) /* pause when the system has no descriptors left */
#define LOCAL_TEXT   64
#define ADMITTED_NS  NS_PER_S /* a handshake that has begun well is not disturbed for so long */

struct stranger {
    int fd;                /* -1: the place is free */
    struct tunnel *tunnel; /* has the descriptor; NULL: nothing has come yet */
    bool local, greeted;
    struct sock_addr from;
    uint64_t house;   /* guard_house: the same for all from one address */
    uint64_t came;    /* counts them */
    uint64_t came_ns; /* and when */
    bool admitted;    /* it knocked as only members can, and we spend work on it */
    uint64_t deadline_ns;
    size_t got;
    uint8_t bytes[GREETING_LEN];
    struct greeting greeting; /* when greeted */
};

struct door {
    struct heap *heap;
    struct log log;
    struct guard guard;
    uint64_t greeting_ns;
    int fd, local_fd;
    struct sock_addr bound;
    struct door_self self; /* cluster 0: not known yet */
    bool receiving;
    bool settled;   /* and no handshakes are made: whoever comes is closed */
    uint64_t count; /* of all that came */
    bool deaf;      /* nobody is accepted, until then: */
    uint64_t deaf_until_ns;
    struct stranger strangers[DOOR_HALF_OPEN];
};

/* ---- opening ------------------------------------------------------------------------------------------ */

/* Taken ports are passed over. */
static int listen_somewhere(struct door *door, const struct door_setup *setup, struct error *error)
{
    struct sock_addr addr = setup->listen;
    uint16_t first = sock_addr_port(&addr);
    char text[SOCK_TEXT_MAX];

    for (uint32_t i = 0; i <= setup->port_tries && first + i <= UINT16_MAX; i++) {
        sock_addr_set_port(&addr, (uint16_t)(first + i));
        int status = sock_listen(&addr, BACKLOG, &door->fd, &door->bound, error);
        if (status != HEARTH_LIMIT || first == 0)
            return status;
    }
    sock_addr_text(&setup->listen, text, sizeof(text));
    return error_set(error, HEARTH_LIMIT, RANK_NONE,
                     "%s: this port and the %u after it are in use; free one, or choose another (--port, "
                     "HEARTH_PORT)",
                     text, (unsigned)(sock_addr_port(&addr) - first));
}

int door_open(const struct door_setup *setup, struct door **out, struct error *error)
{
    struct door *door = heap_alloc(setup->heap, 1, sizeof(*door));

    if (!door)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for the listening port");
    door->heap = setup->heap;
    door->log = setup->log;
    guard_init(&door->guard, &setup->log, 0);
    door->greeting_ns = setup->greeting_ns;
    door->fd = door->local_fd = -1;
    for (int i = 0; i < DOOR_HALF_OPEN; i++)
        door->strangers[i].fd = -1;
    if (setup->listen.len > 0) {
        int status = listen_somewhere(door, setup, error);
        if (status) {
            heap_free(door);
            return status;
        }
    }
    *out = door;
    return HEARTH_OK;
}

static void stranger_free(struct stranger *s)
{
    if (s->tunnel)
        tunnel_close(s->tunnel);
    else
        sock_close(s->fd);
    s->tunnel = NULL;
    s->fd = -1;
}

/* For reasons that are nobody's concern: it left, it was slow. */
static void stranger_close(struct door *door, struct stranger *s, const char *why)
{
    char text[SOCK_TEXT_MAX];

    sock_addr_text(&s->from, text, sizeof(text));
    log_write(&door->log, HEARTH_LOG_DEBUG, "HEARTH-STRANGER", "%s is sent away: %s", text, why);
    stranger_free(s);
}

void door_close(struct door *door)
{
    if (!door)
        return;
    for (int i = 0; i < DOOR_HALF_OPEN; i++)
        if (door->strangers[i].fd >= 0)
            stranger_close(door, &door->strangers[i], "the node closes");
    door_settle(door);
    if (door->fd >= 0)
        sock_unlisten(door->fd);
    heap_free(door);
}

int door_fd(const struct door *door)
{
    return door->fd;
}

struct sock_addr door_addr(const struct door *door)
{
    return door->bound;
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
    struct sock_addr addr, bound;

    door_local_addr(door->self.cluster, door->self.rank, &addr);
    return sock_listen(&addr, BACKLOG, &door->local_fd, &bound, error);
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
    guard_complain(&door->guard, from, why);
}

uint64_t door_put_off(const struct door *door)
{
    return door->guard.refused;
}

void door_receive(struct door *door, const struct door_self *self)
{
    door->self = *self;
    door->receiving = true;
}

void door_settle(struct door *door)
{
    struct door_guest guest;

    while (door_take(door, &guest))
        door_refuse(guest.tunnel, &guest.greeting, GREETING_JOINED);
    door->receiving = false;
    if (door->self.credentials) {
        for (int i = 0; i < DOOR_HALF_OPEN; i++)
            if (door->strangers[i].fd >= 0)
                stranger_close(door, &door->strangers[i], "we are joined to all");
        door->self.credentials = NULL;
        door->settled = true;
    }
    if (door->local_fd >= 0)
        sock_unlisten(door->local_fd);
    door->local_fd = -1;
}

/* ---- strangers ---------------------------------------------------------------------------------------- */

static int neighbours(const struct door *door, const struct stranger *s)
{
    int count = 0;

    for (int i = 0; i < DOOR_HALF_OPEN; i++)
        count += door->strangers[i].fd >= 0 && door->strangers[i].house == s->house;
    return count;
}

/* Whether it may lose its place to another. Guests whom the mesh has not taken yet stay: they are few and are
 * taken at once. So do those who have knocked as only members can, for a while: where many members come from
 * one address, they would push out each other in the middle of their handshakes. */
static bool may_go(const struct door *door, const struct stranger *s)
{
    return s->fd >= 0 && !s->greeted && !(s->admitted && door->guard.now_ns < s->came_ns + ADMITTED_NS);
}

/* The place of one who goes: of the address that holds most, the one that came first. -1: none of them may
 * go, and nobody else goes instead. */
static int place_taken(const struct door *door)
{
    const struct stranger *all = door->strangers;
    int place = -1, most = 0;

    for (int i = 0; i < DOOR_HALF_OPEN; i++) {
        int count = neighbours(door, &all[i]);
        if (count < most)
            continue;
        if (count > most)
            place = -1;
        most = count;
        if (may_go(door, &all[i]) && (place < 0 || all[i].came < all[place].came))
            place = i;
    }
    return place;
}

/* A place for one more; -1: until there is one he waits where the system keeps him. */
static int place_find(const struct door *door)
{
    for (int i = 0; i < DOOR_HALF_OPEN; i++)
        if (door->strangers[i].fd < 0)
            return i;
    return place_taken(door);
}

/* All 64 bytes are there. */
static void stranger_judge(struct door *door, struct stranger *s)
{
    const struct door_self *self = &door->self;
    const struct greeting *g = &s->greeting;
    const char *what = "";

    if (greeting_decode(&s->greeting, s->bytes, &what))
        stranger_close(door, s, what);
    else if (g->kind != GREETING_GREET)
        stranger_close(door, s, "it answers what nobody asked");
    else if (self->cluster == 0 || g->cluster != self->cluster)
        stranger_close(door, s, "it belongs to another cluster");
    else if (g->to != (uint32_t)self->rank || g->to_instance != self->instance)
        stranger_close(door, s, "it looks for another member");
    else if (door->receiving)
        s->greeted = true;
    else {
        door_refuse(s->tunnel, g, GREETING_JOINED);
        s->tunnel = NULL;
        s->fd = -1;
    }
}

static bool stranger_open(struct door *door, struct stranger *s)
{
    struct tunnel_setup setup = {
        .heap = door->heap,
        .credentials = door->self.credentials,
        .role = CHANNEL_LISTENS,
        .admit = guard_admit,
        .admit_arg = &door->guard,
    };

    if (tunnel_open(&setup, s->fd, &s->tunnel) == HEARTH_OK)
        return true;
    s->fd = -1;
    return false;
}

static void stranger_refuse(struct door *door, struct stranger *s, const char *why)
{
    door_complain(door, &s->from, why);
    stranger_free(s);
}

/* Reads what is there, never beyond the greeting. Bytes that cannot become one are not waited for. */
static void stranger_listen(struct door *door, struct stranger *s)
{
    static const uint8_t start[] = {GREETING_MAGIC & 0xff, GREETING_MAGIC >> 8, GREETING_VERSION};
    ssize_t len = tunnel_recv(s->tunnel, s->bytes + s->got, GREETING_LEN - s->got);

    if (len < 0) {
        if (tunnel_mixed(s->tunnel))
            stranger_refuse(door, s, tunnel_mixed_text(s->tunnel));
        else
            stranger_close(door, s, "it left");
        return;
    }
    s->got += (size_t)len;
    if (memcmp(s->bytes, start, s->got < sizeof(start) ? s->got : sizeof(start)) != 0)
        stranger_close(door, s, "what it says is no Hearth greeting");
    else if (s->got == GREETING_LEN)
        stranger_judge(door, s);
}

static void stranger_hear(struct door *door, struct stranger *s)
{
    struct error error;

    if (!s->tunnel && !stranger_open(door, s))
        return;
    uint64_t before = door->guard.admitted;
    int status = tunnel_pump(s->tunnel, &error);
    s->admitted = s->admitted || door->guard.admitted != before;
    if (status == HEARTH_OK)
        stranger_listen(door, s);
    else if (status == HEARTH_PROTOCOL)
        stranger_refuse(door, s, error.text);
    else if (status != HEARTH_PENDING)
        stranger_close(door, s, error.text);
}

/* ---- pumping ------------------------------------------------------------------------------------------ */

/* Gives him that place, where another may have to go. */
static void accept_one(struct door *door, struct stranger *s, int fd, const struct sock_addr *from,
                       bool local)
{
    struct sock_wait wait = {.fd = fd, .want_recv = true};
    uint64_t now_ns = door->guard.now_ns;

    if (door->settled) { /* a handshake would cost us something, and lead to nothing */
        sock_close(fd);
        return;
    }
    if (s->fd >= 0)
        stranger_close(door, s, "too many wait, and most of them come from there");
    *s = (struct stranger){
        .fd = fd,
        .local = local,
        .from = *from,
        .house = local ? 0 : guard_house(from),
        .came = door->count++,
        .came_ns = now_ns,
        .deadline_ns = now_ns + door->greeting_ns,
    };
    if (local && !sock_same_user(fd))
        stranger_close(door, s, "it runs as another user");
    else if (sock_wait(&wait, 1, 0) > 0)
        stranger_hear(door, s); /* who greets at once does not stand in the way of others */
}

static void accept_some(struct door *door, int listener, bool local, uint64_t now_ns)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        int place = place_find(door);
        struct sock_addr from = {.len = 0};
        int fd = -1;
        int status = place >= 0 ? sock_accept(listener, &fd, &from) : HEARTH_PENDING;
        if (status == HEARTH_PENDING)
            return;
        if (status) {
            door->deaf = true;
            door->deaf_until_ns = now_ns + NO_ACCEPT_NS;
            log_write(&door->log, HEARTH_LOG_WARN, "HEARTH-NO-ACCEPT",
                      "a connection cannot be taken: the process has too many files open");
            return;
        }
        accept_one(door, &door->strangers[place], fd, &from, local);
    }
}

static bool wants_send(const struct stranger *s)
{
    return s->tunnel && tunnel_wants_send(s->tunnel);
}

/* One look at all of them: a stranger that has said nothing costs nothing more. */
static void strangers_pump(struct door *door, uint64_t now_ns)
{
    struct sock_wait items[DOOR_HALF_OPEN];

    for (int i = 0; i < DOOR_HALF_OPEN; i++) {
        const struct stranger *s = &door->strangers[i];
        items[i] =
            (struct sock_wait){.fd = s->greeted ? -1 : s->fd, .want_recv = true, .want_send = wants_send(s)};
    }
    (void)sock_wait(items, DOOR_HALF_OPEN, 0);
    for (int i = 0; i < DOOR_HALF_OPEN; i++) {
        struct stranger *s = &door->strangers[i];
        if (s->fd < 0 || s->greeted)
            continue;
        if (items[i].ready)
            stranger_hear(door, s);
        if (s->fd >= 0 && !s->greeted && now_ns >= s->deadline_ns)
            stranger_close(door, s, "it did not greet in time");
    }
}

void door_pump(struct door *door, uint64_t now_ns)
{
    guard_tick(&door->guard, now_ns);
    if (door_strangers(door) > 0)
        strangers_pump(door, now_ns);
    if (door->deaf && now_ns < door->deaf_until_ns)
        return;
    door->deaf = false;
    if (door->local_fd >= 0)
        accept_some(door, door->local_fd, true, now_ns);
    if (door->fd >= 0 && !door->deaf)
        accept_some(door, door->fd, false, now_ns);
}

static void wait_add(struct sock_wait *items, size_t max, size_t *count, int fd, bool want_send)
{
    if (fd >= 0 && *count < max)
        items[(*count)++] = (struct sock_wait){.fd = fd, .want_recv = true, .want_send = want_send};
}

size_t door_waits(const struct door *door, struct sock_wait *items, size_t max, uint64_t *deadline_ns)
{
    size_t count = 0;

    /* While nobody can be accepted the listeners would be ready all the time. */
    bool full = place_find(door) < 0;
    if (!door->deaf && !full) {
        wait_add(items, max, &count, door->local_fd, false);
        wait_add(items, max, &count, door->fd, false);
    } else if (door->deaf && door->deaf_until_ns < *deadline_ns)
        *deadline_ns = door->deaf_until_ns;
    for (int i = 0; i < DOOR_HALF_OPEN; i++) {
        const struct stranger *s = &door->strangers[i];
        wait_add(items, max, &count, s->fd, wants_send(s));
        uint64_t due_ns = full && s->admitted ? s->came_ns + ADMITTED_NS : s->deadline_ns;
        if (s->fd >= 0 && due_ns < *deadline_ns)
            *deadline_ns = due_ns;
    }
    return count;
}

bool door_take(struct door *door, struct door_guest *guest)
{
    for (int i = 0; i < DOOR_HALF_OPEN; i++) {
        struct stranger *s = &door->strangers[i];
        if (s->fd < 0 || !s->greeted)
            continue;
        *guest = (struct door_guest){s->tunnel, s->local, s->from, s->greeting};
        s->tunnel = NULL;
        s->fd = -1;
        return true;
    }
    return false;
}

int door_strangers(const struct door *door)
{
    int count = 0;

    for (int i = 0; i < DOOR_HALF_OPEN; i++)
        count += door->strangers[i].fd >= 0;
    return count;
}
