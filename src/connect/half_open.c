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

void half_open_add(struct half_open *h, int fd, bool lent)
{
    struct sock_addr at;
    bool local = sock_local(fd, &at) == HEARTH_OK && sock_addr_family(&at) == SOCK_UNIX;

    assert(h->listener_count < HALF_OPEN_LISTENERS);
    h->listeners[h->listener_count++] = (struct half_open_listener){.fd = fd, .local = local, .lent = lent};
}

int half_open_listen(struct half_open *h, const struct sock_addr *addr, struct error *error)
{
    bool local = sock_addr_family(addr) == SOCK_UNIX;
    int fd, status = sock_listen(addr, BACKLOG, &fd, local ? NULL : &h->bound, error);

    if (status == HEARTH_OK)
        half_open_add(h, fd, false);
    return status;
}

/* Taken ports are passed over. */
static int listen_somewhere(struct half_open *h, struct error *error)
{
    const struct half_open_setup *setup = &h->setup;
    struct sock_addr addr = setup->listen;
    uint16_t first = sock_addr_port(&addr);
    char text[SOCK_TEXT_MAX];

    for (uint32_t i = 0; i <= setup->port_tries && first + i <= UINT16_MAX; i++) {
        sock_addr_set_port(&addr, (uint16_t)(first + i));
        int status = half_open_listen(h, &addr, error);
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
    struct half_open *h = heap_alloc(setup->heap, 1, sizeof *h);
    uint8_t *words = heap_alloc_raw(setup->heap, HALF_OPEN_PLACES, setup->words_max);

    if (!h || !words) {
        heap_free(h);
        heap_free(words);
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for the listening port");
    }
    h->setup = *setup;
    admission_log_init(&h->admissions, &setup->log, setup->burst);
    h->words = words;
    for (int i = 0; i < HALF_OPEN_PLACES; i++)
        h->strangers[i].fd = -1;
    int status = setup->listen.len > 0 ? listen_somewhere(h, error) : HEARTH_OK;
    if (status) {
        half_open_close(h);
        return status;
    }
    *out = h;
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

/* For reasons that need no warning: it left, it was slow. */
static void stranger_close(struct stranger *s, const char *why)
{
    char text[SOCK_TEXT_MAX];

    sock_addr_text(&s->incoming.from, text, sizeof text);
    log_write(&s->half_open->setup.log, HEARTH_LOG_DEBUG, "HEARTH-STRANGER", "%s is sent away: %s", text,
              why);
    stranger_free(s);
}

void half_open_settle(struct half_open *h, const char *why)
{
    for (int i = 0; i < HALF_OPEN_PLACES; i++)
        if (h->strangers[i].fd >= 0)
            stranger_close(&h->strangers[i], why);
    h->settled = true;
}

/* From this one on. */
static void listeners_close(struct half_open *h, int first)
{
    for (int i = first; i < h->listener_count; i++)
        if (!h->listeners[i].lent)
            sock_unlisten(h->listeners[i].fd);
    h->listener_count = first;
}

void half_open_unlisten(struct half_open *h)
{
    half_open_settle(h, "the port is closed");
    listeners_close(h, 0);
}

void half_open_close(struct half_open *h)
{
    if (!h)
        return;
    half_open_unlisten(h);
    heap_free(h->words);
    heap_free(h);
}

void half_open_close_local(struct half_open *h)
{
    int count = h->listener_count;

    if (count > 0 && h->listeners[count - 1].local)
        listeners_close(h, count - 1);
}

int half_open_fd(const struct half_open *h)
{
    bool listens = h->listener_count > 0 && !h->listeners[0].local;

    return listens ? h->listeners[0].fd : -1;
}

struct sock_addr half_open_addr(const struct half_open *h)
{
    return h->bound;
}

void half_open_trust(struct half_open *h, const struct credentials *credentials)
{
    h->credentials = credentials;
}

struct admission_log *half_open_admissions(struct half_open *h)
{
    return &h->admissions;
}

/* ---- strangers ---------------------------------------------------------------------------------------- */

static int neighbours(const struct half_open *h, const struct stranger *s)
{
    int count = 0;

    for (int i = 0; i < HALF_OPEN_PLACES; i++)
        count += h->strangers[i].fd >= 0 && h->strangers[i].source == s->source;
    return count;
}

/* Whether it may lose its place to another. Connections that the owner has not taken yet stay: they are few
 * and are taken at once. So do those whose knock was right, for a while: many members that come from one
 * address would evict each other in the middle of their handshakes. */
static bool may_go(const struct half_open *h, const struct stranger *s)
{
    return s->fd >= 0 && !s->through && !(s->admitted && h->admissions.now_ns < s->came_ns + ADMITTED_NS);
}

/* The place of the connection to evict: of the source that holds most, the oldest. -1: none of that source
 * may go, and no other goes instead. */
static int place_taken(const struct half_open *h)
{
    const struct stranger *all = h->strangers;
    int place = -1, most = 0;

    for (int i = 0; i < HALF_OPEN_PLACES; i++) {
        int count = neighbours(h, &all[i]);
        if (count < most)
            continue;
        if (count > most)
            place = -1;
        most = count;
        if (may_go(h, &all[i]) && (place < 0 || all[i].came < all[place].came))
            place = i;
    }
    return place;
}

/* A place for one more; -1: none now, it waits in the system's backlog. */
static int place_find(const struct half_open *h)
{
    for (int i = 0; i < HALF_OPEN_PLACES; i++)
        if (h->strangers[i].fd < 0)
            return i;
    return place_taken(h);
}

static bool stranger_admit(void *arg, bool weak)
{
    struct stranger *s = arg;

    s->admitted = admission_log_admit(&s->half_open->admissions, s->source, weak);
    return s->admitted;
}

static bool stranger_open(struct stranger *s)
{
    struct session_setup setup = {
        .heap = s->half_open->setup.heap,
        .credentials = s->half_open->credentials,
        .role = CHANNEL_LISTENS,
        .admit = stranger_admit,
        .admit_arg = s,
    };

    if (secure_stream_open(&setup, s->fd, &s->incoming.stream) == HEARTH_OK)
        return true;
    s->fd = -1;
    return false;
}

static void stranger_refuse(struct stranger *s, const char *why)
{
    const struct iovec *answer = &s->half_open->setup.mixed_answer;

    if (answer->iov_len > 0 && secure_stream_mixed(s->incoming.stream))
        (void)sock_send(s->fd, answer, 1);
    admission_log_complain(&s->half_open->admissions, &s->incoming.from, why);
    stranger_free(s);
}

static void stranger_judge(struct stranger *s)
{
    const struct half_open_setup *setup = &s->half_open->setup;
    const char *why = "";

    switch (setup->judge(setup->arg, &s->incoming, s->bytes, s->got, &s->wants, &why)) {
    case HALF_OPEN_MORE:
        assert(s->got < s->wants && s->wants <= setup->words_max);
        break;
    case HALF_OPEN_THROUGH:
        s->through = true;
        break;
    case HALF_OPEN_AWAY:
        stranger_close(s, why);
        break;
    case HALF_OPEN_TAKEN:
        s->incoming.stream = NULL;
        s->fd = -1;
        break;
    }
}

/* Reads what is there, never beyond what the owner wants. */
static void stranger_listen(struct stranger *s)
{
    while (s->fd >= 0 && !s->through) {
        ssize_t len = secure_stream_recv(s->incoming.stream, s->bytes + s->got, s->wants - s->got);
        if (len == 0)
            return;
        if (len > 0) {
            s->got += (size_t)len;
            stranger_judge(s);
        } else if (secure_stream_mixed(s->incoming.stream)) {
            stranger_refuse(s, secure_stream_mixed_text(s->incoming.stream));
        } else {
            stranger_close(s, "it closed the connection");
        }
    }
}

static void stranger_hear(struct stranger *s)
{
    struct error error;

    if (!s->incoming.stream && !stranger_open(s))
        return;
    int status = secure_stream_pump(s->incoming.stream, &error);
    if (status == HEARTH_OK)
        stranger_listen(s);
    else if (status == HEARTH_PROTOCOL)
        stranger_refuse(s, error.text);
    else if (status != HEARTH_PENDING)
        stranger_close(s, error.text);
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
static void accept_one(struct half_open *h, int place, int fd, const struct half_open_incoming *who)
{
    struct stranger *s = &h->strangers[place];
    struct sock_wait wait = {.fd = fd, .want_recv = true};
    uint64_t now_ns = h->admissions.now_ns;

    if (h->settled) { /* a handshake would cost something, and lead to nothing */
        sock_close(fd);
        return;
    }
    if (s->fd >= 0)
        stranger_close(s, "too many connections, most of them from this address");
    *s = (struct stranger){
        .half_open = h,
        .fd = fd,
        .incoming = *who,
        .source = who->local ? 0 : sock_addr_network(&who->from),
        .came = h->count++,
        .came_ns = now_ns,
        .deadline_ns = now_ns + h->setup.patience_ns,
        .wants = h->setup.words_first,
        .bytes = h->words + (size_t)place * h->setup.words_max,
    };
    if (!who->local)
        sock_tune(fd, &(struct sock_tuning){.congestion = false}); /* nothing waits for more to say */
    if (who->local && !sock_same_user(fd))
        stranger_close(s, "it runs as another user");
    else if (sock_wait(&wait, 1, 0) > 0)
        stranger_hear(s); /* one that speaks at once does not occupy the place for long */
}

static void accept_some(struct half_open *h, const struct half_open_listener *listener)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct half_open_incoming who = {.local = listener->local};
        int fd = -1, place = place_find(h);
        int status = place >= 0 ? sock_accept(listener->fd, &fd, &who.from) : HEARTH_PENDING;
        if (status == HEARTH_PENDING)
            return;
        if (status) {
            h->deaf_until_ns = h->admissions.now_ns + NO_ACCEPT_NS;
            log_write(&h->setup.log, HEARTH_LOG_WARN, "HEARTH-NO-ACCEPT",
                      "a connection cannot be accepted: the process has too many files open");
            return;
        }
        accept_one(h, place, fd, &who);
    }
}

/* One that is through waits for its owner. */
static struct sock_wait wait_for(const struct stranger *s)
{
    if (s->incoming.stream && !s->through)
        return secure_stream_wait(s->incoming.stream);
    return (struct sock_wait){.fd = s->through ? -1 : s->fd, .want_recv = true};
}

/* One look at all of them: a stranger that has said nothing costs nothing more. */
static void strangers_pump(struct half_open *h, uint64_t now_ns)
{
    struct sock_wait items[HALF_OPEN_PLACES];

    for (int i = 0; i < HALF_OPEN_PLACES; i++)
        items[i] = wait_for(&h->strangers[i]);
    (void)sock_wait(items, HALF_OPEN_PLACES, 0);
    for (int i = 0; i < HALF_OPEN_PLACES; i++) {
        struct stranger *s = &h->strangers[i];
        if (s->fd < 0 || s->through)
            continue;
        if (items[i].ready)
            stranger_hear(s);
        if (s->fd >= 0 && !s->through && now_ns >= s->deadline_ns)
            stranger_close(s, "no handshake and first message in time");
    }
}

void half_open_pump(struct half_open *h, uint64_t now_ns)
{
    admission_log_tick(&h->admissions, now_ns);
    if (half_open_strangers(h) > 0)
        strangers_pump(h, now_ns);
    if (now_ns < h->deaf_until_ns)
        return;
    h->deaf_until_ns = 0;
    for (int i = h->listener_count - 1; i >= 0 && h->deaf_until_ns == 0; i--)
        accept_some(h, &h->listeners[i]);
}

static void wait_add(struct sock_wait *items, size_t max, size_t *count, struct sock_wait wait)
{
    if (wait.fd >= 0 && *count < max)
        items[(*count)++] = wait;
}

size_t half_open_waits(const struct half_open *h, struct sock_wait *items, size_t max, uint64_t *deadline_ns)
{
    size_t count = 0;

    /* While none can be accepted the listeners would be ready all the time. */
    bool full = place_find(h) < 0;
    for (int i = 0; i < h->listener_count && h->deaf_until_ns == 0 && !full; i++)
        wait_add(items, max, &count, (struct sock_wait){.fd = h->listeners[i].fd, .want_recv = true});
    if (h->deaf_until_ns > 0 && h->deaf_until_ns < *deadline_ns)
        *deadline_ns = h->deaf_until_ns;
    for (int i = 0; i < HALF_OPEN_PLACES; i++) {
        const struct stranger *s = &h->strangers[i];
        wait_add(items, max, &count, wait_for(s));
        uint64_t due_ns = full && s->admitted ? s->came_ns + ADMITTED_NS : s->deadline_ns;
        if (s->fd >= 0 && due_ns < *deadline_ns)
            *deadline_ns = due_ns;
    }
    return count;
}

bool half_open_take(struct half_open *h, struct half_open_incoming *incoming, uint8_t *words, size_t *len)
{
    for (int i = 0; i < HALF_OPEN_PLACES; i++) {
        struct stranger *s = &h->strangers[i];
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

int half_open_strangers(const struct half_open *h)
{
    int count = 0;

    for (int i = 0; i < HALF_OPEN_PLACES; i++)
        count += h->strangers[i].fd >= 0;
    return count;
}
