/* SPDX-License-Identifier: Apache-2.0 */
/* Accepts, makes handshakes, reads first words: each within a time, a bounded number at once. */
#include "connect/half_open.h"

#include <assert.h>
#include <string.h>

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
    bool admitted;    /* its knock was right, and we spend work on it */
    uint64_t deadline_ns;
    size_t got, wants;
    uint8_t *bytes; /* [words_max] */
};

struct half_open {
    struct half_open_setup setup;
    struct admission_log admissions;
    const struct credentials *credentials;
    struct half_open_listener {
        int fd;
        bool local; /* a unix socket */
        bool lent;
    } listeners[HALF_OPEN_LISTENERS];
    int listener_count;
    struct sock_addr bound;
    bool settled;           /* no handshakes are made: connections are closed as they come */
    uint64_t count;         /* of all that came */
    uint64_t deaf_until_ns; /* none is accepted before; 0: the system has descriptors */
    uint8_t *words;         /* of all places */
    struct stranger strangers[HALF_OPEN_PLACES];
};

/* ---- opening ------------------------------------------------------------------------------------------ */

void half_open_add(struct half_open *half_open, int fd, bool lent)
{
    struct sock_addr at;
    bool local = sock_local(fd, &at) == HEARTH_OK && sock_addr_family(&at) == SOCK_UNIX;

    assert(half_open->listener_count < HALF_OPEN_LISTENERS);
    half_open->listeners[half_open->listener_count++] =
        (struct half_open_listener){.fd = fd, .local = local, .lent = lent};
}

int half_open_listen(struct half_open *half_open, const struct sock_addr *addr, struct error *error)
{
    bool local = sock_addr_family(addr) == SOCK_UNIX;
    int fd, status = sock_listen(addr, BACKLOG, &fd, local ? NULL : &half_open->bound, error);

    if (status == HEARTH_OK)
        half_open_add(half_open, fd, false);
    return status;
}

/* Taken ports are passed over. */
static int listen_somewhere(struct half_open *half_open, struct error *error)
{
    const struct half_open_setup *setup = &half_open->setup;
    struct sock_addr addr = setup->listen;
    uint16_t first = sock_addr_port(&addr);
    char text[SOCK_TEXT_MAX];

    for (uint32_t i = 0; i <= setup->port_tries && first + i <= UINT16_MAX; i++) {
        sock_addr_set_port(&addr, (uint16_t)(first + i));
        int status = half_open_listen(half_open, &addr, error);
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
    admission_log_init(&half_open->admissions, &setup->log, setup->burst);
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

void half_open_settle(struct half_open *half_open, const char *why)
{
    for (int i = 0; i < HALF_OPEN_PLACES; i++)
        if (half_open->strangers[i].fd >= 0)
            stranger_close(half_open, &half_open->strangers[i], why);
    half_open->settled = true;
}

/* From this one on. */
static void listeners_close(struct half_open *half_open, int first)
{
    for (int i = first; i < half_open->listener_count; i++)
        if (!half_open->listeners[i].lent)
            sock_unlisten(half_open->listeners[i].fd);
    half_open->listener_count = first;
}

void half_open_unlisten(struct half_open *half_open)
{
    half_open_settle(half_open, "the port is closed");
    listeners_close(half_open, 0);
}

void half_open_close(struct half_open *half_open)
{
    if (!half_open)
        return;
    half_open_unlisten(half_open);
    heap_free(half_open->words);
    heap_free(half_open);
}

void half_open_close_local(struct half_open *half_open)
{
    int count = half_open->listener_count;

    if (count > 0 && half_open->listeners[count - 1].local)
        listeners_close(half_open, count - 1);
}

int half_open_fd(const struct half_open *half_open)
{
    bool listens = half_open->listener_count > 0 && !half_open->listeners[0].local;

    return listens ? half_open->listeners[0].fd : -1;
}

struct sock_addr half_open_addr(const struct half_open *half_open)
{
    return half_open->bound;
}

void half_open_trust(struct half_open *half_open, const struct credentials *credentials)
{
    half_open->credentials = credentials;
}

struct admission_log *half_open_admissions(struct half_open *half_open)
{
    return &half_open->admissions;
}

/* ---- strangers ---------------------------------------------------------------------------------------- */

static int neighbours(const struct half_open *half_open, const struct stranger *s)
{
    int count = 0;

    for (int i = 0; i < HALF_OPEN_PLACES; i++)
        count += half_open->strangers[i].fd >= 0 && half_open->strangers[i].source == s->source;
    return count;
}

/* Whether it may lose its place to another. Connections that the owner has not taken yet stay: they are few
 * and are taken at once. So do those whose knock was right, for a while: many members that come from one
 * address would evict each other in the middle of their handshakes. */
static bool may_go(const struct half_open *half_open, const struct stranger *s)
{
    return s->fd >= 0 && !s->through &&
           !(s->admitted && half_open->admissions.now_ns < s->came_ns + ADMITTED_NS);
}

/* The place of the connection to evict: of the source that holds most, the oldest. -1: none of that source
 * may go, and no other goes instead. */
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

/* A place for one more; -1: none now, it waits in the system's backlog. */
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

    s->admitted = admission_log_admit(&s->half_open->admissions, s->source, weak);
    return s->admitted;
}

static bool stranger_open(struct half_open *half_open, struct stranger *s)
{
    struct channel_setup setup = {
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
    const struct iovec *answer = &half_open->setup.mixed_answer;

    if (answer->iov_len > 0 && secure_stream_mixed(s->incoming.stream))
        (void)sock_send(s->fd, answer, 1);
    admission_log_complain(&half_open->admissions, &s->incoming.from, why);
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

enum half_open_verdict half_open_message(const struct message_kinds *kinds, const uint8_t *bytes, size_t len,
                                         size_t *wants, struct message_header *header, const char **why)
{
    if (len < MESSAGE_HEADER_LEN)
        return HALF_OPEN_MORE;
    if (message_header_decode(header, bytes, kinds, why))
        return HALF_OPEN_AWAY;
    *wants = MESSAGE_HEADER_LEN + header->len;
    if (len < *wants)
        return HALF_OPEN_MORE;
    *why = "crc: the message was damaged on its way";
    return message_intact(header, bytes + MESSAGE_HEADER_LEN) ? HALF_OPEN_THROUGH : HALF_OPEN_AWAY;
}

/* ---- pumping ------------------------------------------------------------------------------------------ */

/* Gives it that place; the connection that had it is closed. */
static void accept_one(struct half_open *half_open, int place, int fd, const struct half_open_incoming *who)
{
    struct stranger *s = &half_open->strangers[place];
    struct sock_wait wait = {.fd = fd, .want_recv = true};
    uint64_t now_ns = half_open->admissions.now_ns;

    if (half_open->settled) { /* a handshake would cost something, and lead to nothing */
        sock_close(fd);
        return;
    }
    if (s->fd >= 0)
        stranger_close(half_open, s, "too many wait, and most of them come from there");
    *s = (struct stranger){
        .half_open = half_open,
        .fd = fd,
        .incoming = *who,
        .source = who->local ? 0 : sock_addr_network(&who->from),
        .came = half_open->count++,
        .came_ns = now_ns,
        .deadline_ns = now_ns + half_open->setup.patience_ns,
        .wants = half_open->setup.words_first,
        .bytes = half_open->words + (size_t)place * half_open->setup.words_max,
    };
    if (!who->local)
        sock_tune(fd, &(struct sock_tuning){.congestion = false}); /* nothing waits for more to say */
    if (who->local && !sock_same_user(fd))
        stranger_close(half_open, s, "it runs as another user");
    else if (sock_wait(&wait, 1, 0) > 0)
        stranger_hear(half_open, s); /* one that speaks at once does not occupy the place for long */
}

static void accept_some(struct half_open *half_open, const struct half_open_listener *listener)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct half_open_incoming who = {.local = listener->local};
        int fd = -1, place = place_find(half_open);
        int status = place >= 0 ? sock_accept(listener->fd, &fd, &who.from) : HEARTH_PENDING;
        if (status == HEARTH_PENDING)
            return;
        if (status) {
            half_open->deaf_until_ns = half_open->admissions.now_ns + NO_ACCEPT_NS;
            log_write(&half_open->setup.log, HEARTH_LOG_WARN, "HEARTH-NO-ACCEPT",
                      "a connection cannot be accepted: the process has too many files open");
            return;
        }
        accept_one(half_open, place, fd, &who);
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
    admission_log_tick(&half_open->admissions, now_ns);
    if (half_open_strangers(half_open) > 0)
        strangers_pump(half_open, now_ns);
    if (now_ns < half_open->deaf_until_ns)
        return;
    half_open->deaf_until_ns = 0;
    for (int i = half_open->listener_count - 1; i >= 0 && half_open->deaf_until_ns == 0; i--)
        accept_some(half_open, &half_open->listeners[i]);
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

    /* While none can be accepted the listeners would be ready all the time. */
    bool full = place_find(half_open) < 0;
    for (int i = 0; i < half_open->listener_count && half_open->deaf_until_ns == 0 && !full; i++)
        wait_add(items, max, &count, half_open->listeners[i].fd, false);
    if (half_open->deaf_until_ns > 0 && half_open->deaf_until_ns < *deadline_ns)
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
