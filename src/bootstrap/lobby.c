/* SPDX-License-Identifier: Apache-2.0 */
/* Listens, and hears out whoever comes: a handshake and a few bytes, within a time, from a bounded number at
 * once. */
#include "bootstrap/lobby.h"

#include <assert.h>
#include <string.h>

#include "bootstrap/guard.h"

#define BACKLOG      512
#define ACCEPTS_MAX  32                /* of each listener, each time the lobby is pumped */
#define NO_ACCEPT_NS (100 * NS_PER_MS) /* pause when the system has no descriptors left */
#define ADMITTED_NS  NS_PER_S          /* a handshake that has begun well is not disturbed for so long */

struct stranger {
    struct lobby *lobby;
    int fd;                   /* -1: the place is free */
    struct lobby_guest guest; /* its tunnel has the descriptor; NULL: nothing has come yet */
    bool through;
    uint64_t source;  /* sock_addr_network */
    uint64_t came;    /* counts them */
    uint64_t came_ns; /* and when */
    bool admitted;    /* it knocked as only members can, and we spend work on it */
    uint64_t deadline_ns;
    size_t got, wants;
    uint8_t *bytes; /* [words_max] */
};

struct lobby {
    struct lobby_setup setup;
    struct guard guard;
    const struct credentials *credentials;
    int fd, local_fd;
    struct sock_addr bound;
    bool settled;   /* no handshakes are made: whoever comes is closed */
    uint64_t count; /* of all that came */
    bool deaf;      /* nobody is accepted, until then: */
    uint64_t deaf_until_ns;
    uint8_t *words; /* of all places */
    struct stranger strangers[LOBBY_PLACES];
};

/* ---- opening ------------------------------------------------------------------------------------------ */

/* Taken ports are passed over. */
static int listen_somewhere(struct lobby *lobby, struct error *error)
{
    const struct lobby_setup *setup = &lobby->setup;
    struct sock_addr addr = setup->listen;
    uint16_t first = sock_addr_port(&addr);
    char text[SOCK_TEXT_MAX];

    for (uint32_t i = 0; i <= setup->port_tries && first + i <= UINT16_MAX; i++) {
        sock_addr_set_port(&addr, (uint16_t)(first + i));
        int status = sock_listen(&addr, BACKLOG, &lobby->fd, &lobby->bound, error);
        if (status != HEARTH_LIMIT || first == 0)
            return status;
    }
    sock_addr_text(&setup->listen, text, sizeof(text));
    return error_set(error, HEARTH_LIMIT, RANK_NONE,
                     "%s: this port and the %u after it are in use; free one, or choose another (--port, "
                     "HEARTH_PORT)",
                     text, (unsigned)(sock_addr_port(&addr) - first));
}

int lobby_open(const struct lobby_setup *setup, struct lobby **out, struct error *error)
{
    struct lobby *lobby = heap_alloc(setup->heap, 1, sizeof(*lobby));
    uint8_t *words = heap_alloc_raw(setup->heap, LOBBY_PLACES, setup->words_max);

    if (!lobby || !words) {
        heap_free(lobby);
        heap_free(words);
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for the listening port");
    }
    lobby->setup = *setup;
    guard_init(&lobby->guard, &setup->log, 0);
    lobby->fd = lobby->local_fd = -1;
    lobby->words = words;
    for (int i = 0; i < LOBBY_PLACES; i++)
        lobby->strangers[i].fd = -1;
    int status = setup->listen.len > 0 ? listen_somewhere(lobby, error) : HEARTH_OK;
    if (status) {
        lobby_close(lobby);
        return status;
    }
    *out = lobby;
    return HEARTH_OK;
}

static void stranger_free(struct stranger *s)
{
    if (s->guest.tunnel)
        tunnel_close(s->guest.tunnel);
    else
        sock_close(s->fd);
    s->guest.tunnel = NULL;
    s->fd = -1;
}

/* For reasons that are nobody's concern: it left, it was slow. */
static void stranger_close(struct lobby *lobby, struct stranger *s, const char *why)
{
    char text[SOCK_TEXT_MAX];

    sock_addr_text(&s->guest.from, text, sizeof(text));
    log_write(&lobby->setup.log, HEARTH_LOG_DEBUG, "HEARTH-STRANGER", "%s is sent away: %s", text, why);
    stranger_free(s);
}

static void strangers_close(struct lobby *lobby, const char *why)
{
    for (int i = 0; i < LOBBY_PLACES; i++)
        if (lobby->strangers[i].fd >= 0)
            stranger_close(lobby, &lobby->strangers[i], why);
}

void lobby_close(struct lobby *lobby)
{
    if (!lobby)
        return;
    strangers_close(lobby, "the node closes");
    lobby_close_local(lobby);
    if (lobby->fd >= 0)
        sock_unlisten(lobby->fd);
    heap_free(lobby->words);
    heap_free(lobby);
}

int lobby_fd(const struct lobby *lobby)
{
    return lobby->fd;
}

struct sock_addr lobby_addr(const struct lobby *lobby)
{
    return lobby->bound;
}

int lobby_open_local(struct lobby *lobby, const struct sock_addr *addr, struct error *error)
{
    struct sock_addr bound;

    return sock_listen(addr, BACKLOG, &lobby->local_fd, &bound, error);
}

void lobby_close_local(struct lobby *lobby)
{
    if (lobby->local_fd >= 0)
        sock_unlisten(lobby->local_fd);
    lobby->local_fd = -1;
}

void lobby_trust(struct lobby *lobby, const struct credentials *credentials)
{
    lobby->credentials = credentials;
}

void lobby_settle(struct lobby *lobby, const char *why)
{
    strangers_close(lobby, why);
    lobby->settled = true;
}

void lobby_complain(struct lobby *lobby, const struct sock_addr *from, const char *why)
{
    guard_complain(&lobby->guard, from, why);
}

uint64_t lobby_put_off(const struct lobby *lobby)
{
    return lobby->guard.refused;
}

/* ---- strangers ---------------------------------------------------------------------------------------- */

static int neighbours(const struct lobby *lobby, const struct stranger *s)
{
    int count = 0;

    for (int i = 0; i < LOBBY_PLACES; i++)
        count += lobby->strangers[i].fd >= 0 && lobby->strangers[i].source == s->source;
    return count;
}

/* Whether it may lose its place to another. Guests whom the owner has not taken yet stay: they are few and
 * are taken at once. So do those who have knocked as only members can, for a while: where many members come
 * from one address, they would push out each other in the middle of their handshakes. */
static bool may_go(const struct lobby *lobby, const struct stranger *s)
{
    return s->fd >= 0 && !s->through && !(s->admitted && lobby->guard.now_ns < s->came_ns + ADMITTED_NS);
}

/* The place of one who goes: of the source that holds most, the one that came first. -1: none of them may
 * go, and nobody else goes instead. */
static int place_taken(const struct lobby *lobby)
{
    const struct stranger *all = lobby->strangers;
    int place = -1, most = 0;

    for (int i = 0; i < LOBBY_PLACES; i++) {
        int count = neighbours(lobby, &all[i]);
        if (count < most)
            continue;
        if (count > most)
            place = -1;
        most = count;
        if (may_go(lobby, &all[i]) && (place < 0 || all[i].came < all[place].came))
            place = i;
    }
    return place;
}

/* A place for one more; -1: until there is one he waits where the system keeps him. */
static int place_find(const struct lobby *lobby)
{
    for (int i = 0; i < LOBBY_PLACES; i++)
        if (lobby->strangers[i].fd < 0)
            return i;
    return place_taken(lobby);
}

static bool stranger_admit(void *arg, bool weak)
{
    struct stranger *s = arg;

    s->admitted = guard_admit(&s->lobby->guard, s->source, weak);
    return s->admitted;
}

static bool stranger_open(struct lobby *lobby, struct stranger *s)
{
    struct tunnel_setup setup = {
        .heap = lobby->setup.heap,
        .credentials = lobby->credentials,
        .role = CHANNEL_LISTENS,
        .admit = stranger_admit,
        .admit_arg = s,
    };

    if (tunnel_open(&setup, s->fd, &s->guest.tunnel) == HEARTH_OK)
        return true;
    s->fd = -1;
    return false;
}

static void stranger_refuse(struct lobby *lobby, struct stranger *s, const char *why)
{
    lobby_complain(lobby, &s->guest.from, why);
    stranger_free(s);
}

static void stranger_judge(struct lobby *lobby, struct stranger *s)
{
    const struct lobby_setup *setup = &lobby->setup;
    const char *why = "";

    switch (setup->judge(setup->arg, &s->guest, s->bytes, s->got, &s->wants, &why)) {
    case LOBBY_MORE:
        assert(s->got < s->wants && s->wants <= setup->words_max);
        break;
    case LOBBY_THROUGH:
        s->through = true;
        break;
    case LOBBY_AWAY:
        stranger_close(lobby, s, why);
        break;
    case LOBBY_TAKEN:
        s->guest.tunnel = NULL;
        s->fd = -1;
        break;
    }
}

/* Reads what is there, never beyond what the owner wants. */
static void stranger_listen(struct lobby *lobby, struct stranger *s)
{
    while (s->fd >= 0 && !s->through) {
        ssize_t len = tunnel_recv(s->guest.tunnel, s->bytes + s->got, s->wants - s->got);
        if (len == 0)
            return;
        if (len > 0) {
            s->got += (size_t)len;
            stranger_judge(lobby, s);
        } else if (tunnel_mixed(s->guest.tunnel)) {
            stranger_refuse(lobby, s, tunnel_mixed_text(s->guest.tunnel));
        } else {
            stranger_close(lobby, s, "it left");
        }
    }
}

static void stranger_hear(struct lobby *lobby, struct stranger *s)
{
    struct error error;

    if (!s->guest.tunnel && !stranger_open(lobby, s))
        return;
    int status = tunnel_pump(s->guest.tunnel, &error);
    if (status == HEARTH_OK)
        stranger_listen(lobby, s);
    else if (status == HEARTH_PROTOCOL)
        stranger_refuse(lobby, s, error.text);
    else if (status != HEARTH_PENDING)
        stranger_close(lobby, s, error.text);
}

/* ---- pumping ------------------------------------------------------------------------------------------ */

/* Gives him that place, where another may have to go. */
static void accept_one(struct lobby *lobby, int place, int fd, const struct sock_addr *from, bool local)
{
    struct stranger *s = &lobby->strangers[place];
    struct sock_wait wait = {.fd = fd, .want_recv = true};
    uint64_t now_ns = lobby->guard.now_ns;

    if (lobby->settled) { /* a handshake would cost us something, and lead to nothing */
        sock_close(fd);
        return;
    }
    if (s->fd >= 0)
        stranger_close(lobby, s, "too many wait, and most of them come from there");
    *s = (struct stranger){
        .lobby = lobby,
        .fd = fd,
        .guest = {.local = local, .from = *from},
        .source = local ? 0 : sock_addr_network(from),
        .came = lobby->count++,
        .came_ns = now_ns,
        .deadline_ns = now_ns + lobby->setup.patience_ns,
        .wants = lobby->setup.words_first,
        .bytes = lobby->words + (size_t)place * lobby->setup.words_max,
    };
    if (!local)
        sock_tune(fd, &(struct sock_tuning){.congestion = false}); /* nothing waits for more to say */
    if (local && !sock_same_user(fd))
        stranger_close(lobby, s, "it runs as another user");
    else if (sock_wait(&wait, 1, 0) > 0)
        stranger_hear(lobby, s); /* who speaks at once does not stand in the way of others */
}

static void accept_some(struct lobby *lobby, int listener, bool local, uint64_t now_ns)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        int place = place_find(lobby);
        struct sock_addr from = {.len = 0};
        int fd = -1;
        int status = place >= 0 ? sock_accept(listener, &fd, &from) : HEARTH_PENDING;
        if (status == HEARTH_PENDING)
            return;
        if (status) {
            lobby->deaf = true;
            lobby->deaf_until_ns = now_ns + NO_ACCEPT_NS;
            log_write(&lobby->setup.log, HEARTH_LOG_WARN, "HEARTH-NO-ACCEPT",
                      "a connection cannot be taken: the process has too many files open");
            return;
        }
        accept_one(lobby, place, fd, &from, local);
    }
}

static bool wants_send(const struct stranger *s)
{
    return s->guest.tunnel && tunnel_wants_send(s->guest.tunnel);
}

/* One look at all of them: a stranger that has said nothing costs nothing more. */
static void strangers_pump(struct lobby *lobby, uint64_t now_ns)
{
    struct sock_wait items[LOBBY_PLACES];

    for (int i = 0; i < LOBBY_PLACES; i++) {
        const struct stranger *s = &lobby->strangers[i];
        items[i] =
            (struct sock_wait){.fd = s->through ? -1 : s->fd, .want_recv = true, .want_send = wants_send(s)};
    }
    (void)sock_wait(items, LOBBY_PLACES, 0);
    for (int i = 0; i < LOBBY_PLACES; i++) {
        struct stranger *s = &lobby->strangers[i];
        if (s->fd < 0 || s->through)
            continue;
        if (items[i].ready)
            stranger_hear(lobby, s);
        if (s->fd >= 0 && !s->through && now_ns >= s->deadline_ns)
            stranger_close(lobby, s, "it did not say in time who it is");
    }
}

void lobby_pump(struct lobby *lobby, uint64_t now_ns)
{
    guard_tick(&lobby->guard, now_ns);
    if (lobby_strangers(lobby) > 0)
        strangers_pump(lobby, now_ns);
    if (lobby->deaf && now_ns < lobby->deaf_until_ns)
        return;
    lobby->deaf = false;
    if (lobby->local_fd >= 0)
        accept_some(lobby, lobby->local_fd, true, now_ns);
    if (lobby->fd >= 0 && !lobby->deaf)
        accept_some(lobby, lobby->fd, false, now_ns);
}

static void wait_add(struct sock_wait *items, size_t max, size_t *count, int fd, bool want_send)
{
    if (fd >= 0 && *count < max)
        items[(*count)++] = (struct sock_wait){.fd = fd, .want_recv = true, .want_send = want_send};
}

size_t lobby_waits(const struct lobby *lobby, struct sock_wait *items, size_t max, uint64_t *deadline_ns)
{
    size_t count = 0;

    /* While nobody can be accepted the listeners would be ready all the time. */
    bool full = place_find(lobby) < 0;
    if (!lobby->deaf && !full) {
        wait_add(items, max, &count, lobby->local_fd, false);
        wait_add(items, max, &count, lobby->fd, false);
    } else if (lobby->deaf && lobby->deaf_until_ns < *deadline_ns)
        *deadline_ns = lobby->deaf_until_ns;
    for (int i = 0; i < LOBBY_PLACES; i++) {
        const struct stranger *s = &lobby->strangers[i];
        wait_add(items, max, &count, s->fd, wants_send(s));
        uint64_t due_ns = full && s->admitted ? s->came_ns + ADMITTED_NS : s->deadline_ns;
        if (s->fd >= 0 && due_ns < *deadline_ns)
            *deadline_ns = due_ns;
    }
    return count;
}

bool lobby_take(struct lobby *lobby, struct lobby_guest *guest, uint8_t *words, size_t *len)
{
    for (int i = 0; i < LOBBY_PLACES; i++) {
        struct stranger *s = &lobby->strangers[i];
        if (s->fd < 0 || !s->through)
            continue;
        *guest = s->guest;
        *len = s->got;
        memcpy(words, s->bytes, s->got);
        s->guest.tunnel = NULL;
        s->fd = -1;
        return true;
    }
    return false;
}

int lobby_strangers(const struct lobby *lobby)
{
    int count = 0;

    for (int i = 0; i < LOBBY_PLACES; i++)
        count += lobby->strangers[i].fd >= 0;
    return count;
}
