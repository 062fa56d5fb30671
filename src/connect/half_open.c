/* SPDX-License-Identifier: Apache-2.0 */
/* Listens, and hears out whoever comes: a handshake and a few bytes, within a time, from a bounded number at
 * once. */
#include "connect/half_open.h"

#include <assert.h>
#include <string.h>

#include "connect/admission_log.h"

#define BACKLOG      512
#define ACCEPTS_MAX  32                /* of each listener, each time they are pumped */
#define NO_ACCEPT_NS (100 * NS_PER_MS) /* pause when the system has no descriptors left */
#define ADMITTED_NS  NS_PER_S          /* a handshake that has begun well is not disturbed for so long */

struct stranger {
    struct half_open *half_open;
    int fd;                             /* -1: the place is free */
    struct half_open_incoming incoming; /* its secure stream has the descriptor; NULL: nothing has come yet */
    bool through;
    uint64_t source;  /* sock_addr_network */
    uint64_t came;    /* counts them */
    uint64_t came_ns; /* and when */
    bool admitted;    /* it knocked as only members can, and we spend work on it */
    uint64_t deadline_ns;
    size_t got, wants;
    uint8_t *bytes; /* [words_max] */
};

struct half_open {
    struct half_open_setup setup;
    struct guard guard;
    const struct credentials *credentials;
    int fd, local_fd;
    struct sock_addr bound;
    bool settled;   /* no handshakes are made: whoever comes is closed */
    uint64_t count; /* of all that came */
    bool deaf;      /* nobody is accepted, until then: */
    uint64_t deaf_until_ns;
    uint8_t *words; /* of all places */
    struct stranger strangers[HALF_OPEN_PLACES];
};

/* ---- opening ------------------------------------------------------------------------------------------ */

/* Taken ports are passed over. */
static int listen_somewhere(struct half_open *half_open, struct error *error)
{
    const struct half_open_setup *setup = &half_open->setup;
    struct sock_addr addr = setup->listen;
    uint16_t first = sock_addr_port(&addr);
    char text[SOCK_TEXT_MAX];

    for (uint32_t i = 0; i <= setup->port_tries && first + i <= UINT16_MAX; i++) {
        sock_addr_set_port(&addr, (uint16_t)(first + i));
        int status = sock_listen(&addr, BACKLOG, &half_open->fd, &half_open->bound, error);
        if (status != HEARTH_LIMIT || first == 0)
            return status;
    }
    sock_addr_text(&setup->listen, text, sizeof text);
    return error_because(error, HEARTH_REASON_ADDRESS_IN_USE, HEARTH_LIMIT, RANK_NONE,
                         "%s: this port and the %u after it are in use; free one, or choose another (--port, "
                         "HEARTH_PORT)",
                         text, (unsigned)(sock_addr_port(&addr) - first));
}

int half_open_open(const struct half_open_setup *setup, struct half_open **out, struct error *error)
{
    struct half_open *half_open = heap_alloc(setup->heap, 1, sizeof *half_open);
    uint8_t *words = heap_alloc_raw(setup->heap, HALF_OPEN_PLACES, setup->words_max);

    if (!half_open || !words) {
        heap_free(half_open);
        heap_free(words);
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for the listening port");
    }
    half_open->setup = *setup;
    guard_init(&half_open->guard, &setup->log, 0);
    half_open->fd = half_open->local_fd = -1;
    half_open->words = words;
    for (int i = 0; i < HALF_OPEN_PLACES; i++)
        half_open->strangers[i].fd = -1;
    int status = setup->listen.len > 0 ? listen_somewhere(half_open, error) : HEARTH_OK;
    if (status) {
        half_open_close(half_open);
        return status;
    }
    *out = half_open;
    return HEARTH_OK;
}

static void stranger_free(struct stranger *s)
{
    if (s->incoming.stream)
        secure_stream_close(s->incoming.stream);
    else
        sock_close(s->fd);
    s->incoming.stream = NULL;
    s->fd = -1;
}

/* For reasons that are nobody's concern: it left, it was slow. */
static void stranger_close(struct half_open *half_open, struct stranger *s, const char *why)
{
    char text[SOCK_TEXT_MAX];

    sock_addr_text(&s->incoming.from, text, sizeof text);
    log_write(&half_open->setup.log, HEARTH_LOG_DEBUG, "HEARTH-STRANGER", "%s is sent away: %s", text, why);
    stranger_free(s);
}

static void strangers_close(struct half_open *half_open, const char *why)
{
    for (int i = 0; i < HALF_OPEN_PLACES; i++)
        if (half_open->strangers[i].fd >= 0)
            stranger_close(half_open, &half_open->strangers[i], why);
}

void half_open_close(struct half_open *half_open)
{
    if (!half_open)
        return;
    strangers_close(half_open, "the node closes");
    half_open_close_local(half_open);
    if (half_open->fd >= 0)
        sock_unlisten(half_open->fd);
    heap_free(half_open->words);
    heap_free(half_open);
}

int half_open_fd(const struct half_open *half_open)
{
    return half_open->fd;
}

struct sock_addr half_open_addr(const struct half_open *half_open)
{
    return half_open->bound;
}

int half_open_open_local(struct half_open *half_open, const struct sock_addr *addr, struct error *error)
{
    struct sock_addr bound;

    return sock_listen(addr, BACKLOG, &half_open->local_fd, &bound, error);
}

void half_open_close_local(struct half_open *half_open)
{
    if (half_open->local_fd >= 0)
        sock_unlisten(half_open->local_fd);
    half_open->local_fd = -1;
}

void half_open_trust(struct half_open *half_open, const struct credentials *credentials)
{
    half_open->credentials = credentials;
}

void half_open_settle(struct half_open *half_open, const char *why)
{
    strangers_close(half_open, why);
    half_open->settled = true;
}

void half_open_complain(struct half_open *half_open, const struct sock_addr *from, const char *why)
{
    guard_complain(&half_open->guard, from, why);
}

uint64_t half_open_put_off(const struct half_open *half_open)
{
    return half_open->guard.refused;
}

/* ---- strangers ---------------------------------------------------------------------------------------- */

static int neighbours(const struct half_open *half_open, const struct stranger *s)
{
    int count = 0;

    for (int i = 0; i < HALF_OPEN_PLACES; i++)
        count += half_open->strangers[i].fd >= 0 && half_open->strangers[i].source == s->source;
    return count;
}

/* Whether it may lose its place to another. Connections whom the owner has not taken yet stay: they are few
 * and are taken at once. So do those who have knocked as only members can, for a while: where many members
 * come from one address, they would push out each other in the middle of their handshakes. */
static bool may_go(const struct half_open *half_open, const struct stranger *s)
{
    return s->fd >= 0 && !s->through && !(s->admitted && half_open->guard.now_ns < s->came_ns + ADMITTED_NS);
}

/* The place of one who goes: of the source that holds most, the one that came first. -1: none of them may
 * go, and nobody else goes instead. */
static int place_taken(const struct half_open *half_open)
{
    const struct stranger *all = half_open->strangers;
    int place = -1, most = 0;

    for (int i = 0; i < HALF_OPEN_PLACES; i++) {
        int count = neighbours(half_open, &all[i]);
        if (count < most)
            continue;
        if (count > most)
            place = -1;
        most = count;
        if (may_go(half_open, &all[i]) && (place < 0 || all[i].came < all[place].came))
            place = i;
    }
    return place;
}

/* A place for one more; -1: until there is one he waits where the system keeps him. */
static int place_find(const struct half_open *half_open)
{
    for (int i = 0; i < HALF_OPEN_PLACES; i++)
        if (half_open->strangers[i].fd < 0)
            return i;
    return place_taken(half_open);
}

static bool stranger_admit(void *arg, bool weak)
{
    struct stranger *s = arg;

    s->admitted = guard_admit(&s->half_open->guard, s->source, weak);
    return s->admitted;
}

static bool stranger_open(struct half_open *half_open, struct stranger *s)
{
    struct secure_stream_setup setup = {
        .heap = half_open->setup.heap,
        .credentials = half_open->credentials,
        .role = CHANNEL_LISTENS,
        .admit = stranger_admit,
        .admit_arg = s,
    };

    if (secure_stream_open(&setup, s->fd, &s->incoming.stream) == HEARTH_OK)
        return true;
    s->fd = -1;
    return false;
}

static void stranger_refuse(struct half_open *half_open, struct stranger *s, const char *why)
{
    half_open_complain(half_open, &s->incoming.from, why);
    stranger_free(s);
}

static void stranger_judge(struct half_open *half_open, struct stranger *s)
{
    const struct half_open_setup *setup = &half_open->setup;
    const char *why = "";

    switch (setup->judge(setup->arg, &s->incoming, s->bytes, s->got, &s->wants, &why)) {
    case HALF_OPEN_MORE:
        assert(s->got < s->wants && s->wants <= setup->words_max);
        break;
    case HALF_OPEN_THROUGH:
        s->through = true;
        break;
    case HALF_OPEN_AWAY:
        stranger_close(half_open, s, why);
        break;
    case HALF_OPEN_TAKEN:
        s->incoming.stream = NULL;
        s->fd = -1;
        break;
    }
}

/* Reads what is there, never beyond what the owner wants. */
static void stranger_listen(struct half_open *half_open, struct stranger *s)
{
    while (s->fd >= 0 && !s->through) {
        ssize_t len = secure_stream_recv(s->incoming.stream, s->bytes + s->got, s->wants - s->got);
        if (len == 0)
            return;
        if (len > 0) {
            s->got += (size_t)len;
            stranger_judge(half_open, s);
        } else if (secure_stream_mixed(s->incoming.stream)) {
            stranger_refuse(half_open, s, secure_stream_mixed_text(s->incoming.stream));
        } else {
            stranger_close(half_open, s, "it left");
        }
    }
}

static void stranger_hear(struct half_open *half_open, struct stranger *s)
{
    struct error error;

    if (!s->incoming.stream && !stranger_open(half_open, s))
        return;
    int status = secure_stream_pump(s->incoming.stream, &error);
    if (status == HEARTH_OK)
        stranger_listen(half_open, s);
    else if (status == HEARTH_PROTOCOL)
        stranger_refuse(half_open, s, error.text);
    else if (status != HEARTH_PENDING)
        stranger_close(half_open, s, error.text);
}

/* ---- pumping ------------------------------------------------------------------------------------------ */

/* Gives him that place, where another may have to go. */
static void accept_one(struct half_open *half_open, int place, int fd, const struct sock_addr *from,
                       bool local)
{
    struct stranger *s = &half_open->strangers[place];
    struct sock_wait wait = {.fd = fd, .want_recv = true};
    uint64_t now_ns = half_open->guard.now_ns;

    if (half_open->settled) { /* a handshake would cost us something, and lead to nothing */
        sock_close(fd);
        return;
    }
    if (s->fd >= 0)
        stranger_close(half_open, s, "too many wait, and most of them come from there");
    *s = (struct stranger){
        .half_open = half_open,
        .fd = fd,
        .incoming = {.local = local, .from = *from},
        .source = local ? 0 : sock_addr_network(from),
        .came = half_open->count++,
        .came_ns = now_ns,
        .deadline_ns = now_ns + half_open->setup.patience_ns,
        .wants = half_open->setup.words_first,
        .bytes = half_open->words + (size_t)place * half_open->setup.words_max,
    };
    if (!local)
        sock_tune(fd, &(struct sock_tuning){.congestion = false}); /* nothing waits for more to say */
    if (local && !sock_same_user(fd))
        stranger_close(half_open, s, "it runs as another user");
    else if (sock_wait(&wait, 1, 0) > 0)
        stranger_hear(half_open, s); /* who speaks at once does not stand in the way of others */
}

static void accept_some(struct half_open *half_open, int listener, bool local, uint64_t now_ns)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        int place = place_find(half_open);
        struct sock_addr from = {.len = 0};
        int fd = -1;
        int status = place >= 0 ? sock_accept(listener, &fd, &from) : HEARTH_PENDING;
        if (status == HEARTH_PENDING)
            return;
        if (status) {
            half_open->deaf = true;
            half_open->deaf_until_ns = now_ns + NO_ACCEPT_NS;
            log_write(&half_open->setup.log, HEARTH_LOG_WARN, "HEARTH-NO-ACCEPT",
                      "a connection cannot be taken: the process has too many files open");
            return;
        }
        accept_one(half_open, place, fd, &from, local);
    }
}

static bool wants_send(const struct stranger *s)
{
    return s->incoming.stream && secure_stream_wants_send(s->incoming.stream);
}

/* One look at all of them: a stranger that has said nothing costs nothing more. */
static void strangers_pump(struct half_open *half_open, uint64_t now_ns)
{
    struct sock_wait items[HALF_OPEN_PLACES];

    for (int i = 0; i < HALF_OPEN_PLACES; i++) {
        const struct stranger *s = &half_open->strangers[i];
        items[i] =
            (struct sock_wait){.fd = s->through ? -1 : s->fd, .want_recv = true, .want_send = wants_send(s)};
    }
    (void)sock_wait(items, HALF_OPEN_PLACES, 0);
    for (int i = 0; i < HALF_OPEN_PLACES; i++) {
        struct stranger *s = &half_open->strangers[i];
        if (s->fd < 0 || s->through)
            continue;
        if (items[i].ready)
            stranger_hear(half_open, s);
        if (s->fd >= 0 && !s->through && now_ns >= s->deadline_ns)
            stranger_close(half_open, s, "it did not say in time who it is");
    }
}

void half_open_pump(struct half_open *half_open, uint64_t now_ns)
{
    guard_tick(&half_open->guard, now_ns);
    if (half_open_strangers(half_open) > 0)
        strangers_pump(half_open, now_ns);
    if (half_open->deaf && now_ns < half_open->deaf_until_ns)
        return;
    half_open->deaf = false;
    if (half_open->local_fd >= 0)
        accept_some(half_open, half_open->local_fd, true, now_ns);
    if (half_open->fd >= 0 && !half_open->deaf)
        accept_some(half_open, half_open->fd, false, now_ns);
}

static void wait_add(struct sock_wait *items, size_t max, size_t *count, int fd, bool want_send)
{
    if (fd >= 0 && *count < max)
        items[(*count)++] = (struct sock_wait){.fd = fd, .want_recv = true, .want_send = want_send};
}

size_t half_open_waits(const struct half_open *half_open, struct sock_wait *items, size_t max,
                       uint64_t *deadline_ns)
{
    size_t count = 0;

    /* While nobody can be accepted the listeners would be ready all the time. */
    bool full = place_find(half_open) < 0;
    if (!half_open->deaf && !full) {
        wait_add(items, max, &count, half_open->local_fd, false);
        wait_add(items, max, &count, half_open->fd, false);
    } else if (half_open->deaf && half_open->deaf_until_ns < *deadline_ns)
        *deadline_ns = half_open->deaf_until_ns;
    for (int i = 0; i < HALF_OPEN_PLACES; i++) {
        const struct stranger *s = &half_open->strangers[i];
        wait_add(items, max, &count, s->fd, wants_send(s));
        uint64_t due_ns = full && s->admitted ? s->came_ns + ADMITTED_NS : s->deadline_ns;
        if (s->fd >= 0 && due_ns < *deadline_ns)
            *deadline_ns = due_ns;
    }
    return count;
}

bool half_open_take(struct half_open *half_open, struct half_open_incoming *incoming, uint8_t *words,
                    size_t *len)
{
    for (int i = 0; i < HALF_OPEN_PLACES; i++) {
        struct stranger *s = &half_open->strangers[i];
        if (s->fd < 0 || !s->through)
            continue;
        *incoming = s->incoming;
        *len = s->got;
        memcpy(words, s->bytes, s->got);
        s->incoming.stream = NULL;
        s->fd = -1;
        return true;
    }
    return false;
}

int half_open_strangers(const struct half_open *half_open)
{
    int count = 0;

    for (int i = 0; i < HALF_OPEN_PLACES; i++)
        count += half_open->strangers[i].fd >= 0;
    return count;
}
