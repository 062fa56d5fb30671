/* SPDX-License-Identifier: Apache-2.0 */
/* All connections of a node to others of its cluster: opening, waiting, news, who is there. */
#include "home/fellows.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "home/tie.h"
#include "os/host.h"

#define LETTERS_AT_ONCE 64 /* of one connection, before it must wait for the next fellows_pump */

static_assert(TIES_MAX + LOBBY_WAITS_MAX <= FELLOWS_WAITS_MAX, "all can be waited for");

/* ---- opening ------------------------------------------------------------------------------------------ */

/* A stranger's first letter must be a good hello; nothing longer is waited for. */
static enum lobby_verdict judge(void *arg, const struct lobby_guest *guest, const uint8_t *bytes, size_t len,
                                size_t *wants, const char **why)
{
    struct letter_header header;
    struct letter_hello hello;

    if (len < LETTER_HEADER_LEN)
        return LOBBY_MORE;
    if (letter_header_get(&header, bytes, why))
        return LOBBY_AWAY;
    *why = "it does not begin with a hello";
    if (header.kind != LETTER_HELLO || header.len > LETTER_HELLO_MAX)
        return LOBBY_AWAY;
    *wants = LETTER_HEADER_LEN + header.len;
    if (len < *wants)
        return LOBBY_MORE;
    return hello_check(arg, guest->tunnel, bytes + LETTER_HEADER_LEN, header.len, &hello, why)
               ? LOBBY_AWAY
               : LOBBY_THROUGH;
}

/* Our addresses with the port that we have got. */
static void set_self(struct fellows *f, const struct fellow *self)
{
    struct sock_addr bound = lobby_addr(f->lobby), addr;

    f->self = *self;
    f->self.id = f->id;
    for (int i = 0; i < f->self.addr_count; i++) {
        if (sock_addr_decode(&addr, f->self.addrs[i], f->self.addr_lens[i]) == 0 || sock_addr_port(&addr))
            continue;
        sock_addr_set_port(&addr, sock_addr_port(&bound));
        f->self.addr_lens[i] = (uint8_t)sock_addr_encode(&addr, f->self.addrs[i], FELLOW_ADDR_MAX);
    }
}

int fellows_open(const struct fellows_setup *setup, struct fellows **out, struct error *error)
{
    struct fellows *f = heap_alloc(setup->heap, 1, sizeof(*f));
    struct lobby_setup lobby = {
        .heap = setup->heap,
        .log = setup->log,
        .listen = setup->listen,
        .port_tries = setup->port_tries,
        .patience_ns = TIE_HELLO_NS,
        .words_first = LETTER_HEADER_LEN,
        .words_max = LETTER_HEADER_LEN + LETTER_HELLO_MAX,
        .judge = judge,
        .arg = f,
    };

    if (!f)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for connections to other nodes");
    int status = lobby_open(&lobby, &f->lobby, error);
    if (status) {
        heap_free(f);
        return status;
    }
    f->heap = setup->heap;
    f->log = setup->log;
    f->credentials = setup->credentials;
    f->connect_timeout_ns = setup->connect_timeout_ns;
    f->id = *credentials_self(setup->credentials);
    f->now_ns = setup->now_ns;
    list_init(&f->ties);
    list_init(&f->news);
    list_init(&f->hot);
    candidates_init(&f->candidates, setup->heap, &f->id, setup->seed, setup->now_ns);
    set_self(f, &setup->self);
    lobby_trust(f->lobby, setup->credentials);
    *out = f;
    return HEARTH_OK;
}

/* Closing a socket with unread bytes would take back what was sent last. */
static void part(struct tie *tie)
{
    uint8_t bytes[1024];

    tie_flush(tie);
    sock_finish(tunnel_fd(tie->tunnel));
    for (int i = 0; i < LETTERS_AT_ONCE && tunnel_recv(tie->tunnel, bytes, sizeof(bytes)) > 0; i++)
        continue;
}

void fellows_close(struct fellows *f)
{
    if (!f)
        return;
    while (!list_empty(&f->ties)) {
        struct tie *tie = container_of(f->ties.next, struct tie, item);
        if (tie->state == TIE_READY)
            part(tie);
        tie_free(tie);
    }
    lobby_close(f->lobby);
    candidates_fini(&f->candidates);
    heap_free(f);
}

struct sock_addr fellows_addr(const struct fellows *f)
{
    return lobby_addr(f->lobby);
}

const struct fellow *fellows_self(const struct fellows *f)
{
    return &f->self;
}

void fellows_describe(struct fellows *f, const struct fellow *self)
{
    struct list *at, *after;
    struct tie *tie;

    set_self(f, self);
    TIE_EACH (tie, at, after, f)
        if (tie->state == TIE_READY)
            (void)tie_put(f, tie, LETTER_HELLO, NULL, 0);
}

/* ---- candidates --------------------------------------------------------------------------------------- */

void fellows_candidate(struct fellows *f, const struct sock_addr *addr, const struct identity *claim,
                       bool trusted, uint64_t now_ns)
{
    struct candidate_tip tip = {.addr = addr, .claim = claim, .trusted = trusted};
    enum sock_family family = sock_addr_family(addr);

    if ((family != SOCK_IPV4 && family != SOCK_IPV6) || sock_addr_port(addr) == 0 ||
        sock_addr_wildcard(addr) || (claim && identity_equal(claim, &f->id)))
        return;
    tip.linked = claim && tie_best(f, claim);
    candidates_tell(&f->candidates, &tip, now_ns);
}

void fellows_left(struct fellows *f, const struct identity *peer)
{
    candidates_left(&f->candidates, peer);
}

bool fellows_has_left(const struct fellows *f, const struct identity *peer)
{
    return candidates_has_left(&f->candidates, peer);
}

/* By an address that is not ours any more nothing is ever heard, but the system takes minutes to say so. */
static bool stranded(const struct tie *tie)
{
    struct sock_addr local;
    int fd = tie->tunnel ? tunnel_fd(tie->tunnel) : tie->fd;

    return sock_local(fd, &local) == HEARTH_OK && !host_owns(&local);
}

void fellows_hurry(struct fellows *f, uint64_t now_ns)
{
    struct list *at, *after;
    struct tie *tie;

    f->now_ns = now_ns;
    TIE_EACH (tie, at, after, f) {
        if (!stranded(tie))
            continue;
        if (tie->state <= TIE_GREETED)
            tie_fail(f, tie, "this machine's address has changed");
        else
            tie_lose(f, tie, "this machine's address has changed");
    }
    candidates_hurry(&f->candidates, now_ns);
}

int fellows_dial_probe(struct fellows *f, const struct identity *to, const struct sock_addr *addr,
                       uint64_t now_ns)
{
    const struct tie *by = tie_best(f, to);
    int best = candidates_best(&f->candidates, to);
    struct error error;

    if (!by)
        return HEARTH_PEER_LOST;
    if (ties_probes(f) >= FELLOWS_PROBES_MAX)
        return HEARTH_LIMIT;
    if (!addr && by->dialled)
        addr = &by->addr;
    else if (!addr && best >= 0)
        addr = &f->candidates.list[best].addr;
    if (!addr)
        return HEARTH_PEER_LOST;
    f->now_ns = now_ns;
    struct tie *tie = dial_open(f, addr, &error);
    if (!tie)
        return error.status;
    tie->purpose = HELLO_PROBE;
    tie->peer = *to;
    return HEARTH_OK;
}

/* ---- moving ------------------------------------------------------------------------------------------- */

static bool wants_send(const struct tie *tie)
{
    return tie->state == TIE_DIALLING || tie->queue.len > 0 || tunnel_wants_send(tie->tunnel);
}

static struct sock_wait wait_for(const struct tie *tie)
{
    return (struct sock_wait){
        .fd = tie->tunnel ? tunnel_fd(tie->tunnel) : tie->fd,
        .want_recv = tie->state != TIE_DIALLING,
        .want_send = wants_send(tie),
    };
}

static void move(struct fellows *f, struct tie *tie)
{
    if (tie->state <= TIE_SHAKING) {
        dial_move(f, tie);
        return;
    }
    tie_flush(tie);
    tie_heat(f, tie);
}

static void late(struct fellows *f, struct tie *tie)
{
    if (tie->state <= TIE_GREETED)
        tie_fail(f, tie, tie_late_text(tie));
    else
        tie_lose(f, tie, "it did not close a connection that is not needed"); /* nobody is told */
}

static void ties_pump(struct fellows *f)
{
    struct sock_wait items[TIES_MAX];
    struct tie *all[TIES_MAX], *tie;
    struct list *at, *after;
    size_t count = 0;

    TIE_EACH (tie, at, after, f) {
        items[count] = wait_for(tie);
        all[count++] = tie;
    }
    (void)sock_wait(items, count, 0);
    for (size_t i = 0; i < count; i++) {
        tie = all[i];
        tie->letters_left = LETTERS_AT_ONCE;
        if (tie->state == TIE_OVER)
            continue;
        if (items[i].ready || tie->more)
            move(f, tie);
        if (tie->state != TIE_OVER && f->now_ns >= tie->deadline_ns)
            late(f, tie);
    }
}

static void arrivals(struct fellows *f)
{
    uint8_t words[LETTER_HEADER_LEN + LETTER_HELLO_MAX];
    struct lobby_guest guest;
    struct letter_hello hello;
    const char *what;
    size_t len;

    while (lobby_take(f->lobby, &guest, words, &len)) {
        int status =
            hello_check(f, guest.tunnel, words + LETTER_HEADER_LEN, len - LETTER_HEADER_LEN, &hello, &what);
        assert(status == HEARTH_OK); /* it was judged */
        (void)status;
        tie_arrive(f, &guest, &hello);
    }
}

void fellows_pump(struct fellows *f, uint64_t now_ns)
{
    f->now_ns = now_ns;
    ties_reap(f);
    ties_pump(f);
    lobby_pump(f->lobby, now_ns);
    arrivals(f);
    candidates_sweep(&f->candidates, now_ns);
    dial_due(f);
}

size_t fellows_waits(const struct fellows *f, struct sock_wait *items, size_t max, uint64_t *deadline_ns)
{
    size_t count = lobby_waits(f->lobby, items, max, deadline_ns);
    uint64_t due_ns = dial_deadline(f);
    struct list *at, *after;
    struct tie *tie;

    TIE_EACH (tie, at, after, f) {
        if (count < max)
            items[count++] = wait_for(tie);
        uint64_t tie_ns = tie->more ? 0 : tie->deadline_ns;
        due_ns = tie_ns < due_ns ? tie_ns : due_ns;
    }
    if (!list_empty(&f->hot) || !list_empty(&f->news))
        due_ns = 0;
    *deadline_ns = due_ns < *deadline_ns ? due_ns : *deadline_ns;
    return count;
}

/* ---- letters and news --------------------------------------------------------------------------------- */

bool fellows_send(struct fellows *f, const struct identity *to, uint8_t kind, const void *payload, size_t len)
{
    struct tie *tie = tie_best(f, to);

    assert(kind > LETTER_HELLO && kind < LETTER_LOAD);
    return tie && tie_put(f, tie, kind, payload, len);
}

void fellows_drop(struct fellows *f, const struct identity *peer, const char *why)
{
    struct list *at, *after;
    struct tie *tie;

    TIE_EACH (tie, at, after, f)
        if (tie->state >= TIE_READY && identity_equal(&tie->peer, peer))
            tie_lose(f, tie, why);
}

/* The first thing that a tie has to tell; false: it is not so any more. */
static bool take_news(struct fellows *f, struct fellows_news *news)
{
    struct tie *tie = container_of(f->news.next, struct tie, news_item);
    enum fellows_news_kind kind = FELLOWS_LINKED;

    while (!(tie->news & 1u << kind))
        kind++;
    tie->news &= ~(1u << kind);
    if (tie->news == 0)
        list_remove(&tie->news_item);
    *news = (struct fellows_news){.kind = kind, .fellow = tie->fellow};
    if (kind == FELLOWS_LOST || kind == FELLOWS_PROBE)
        snprintf(news->text, sizeof(news->text), "%s", tie->why);
    if (kind == FELLOWS_PROBE) {
        news->dialled = tie->dialled;
        news->tunnel = tie->tunnel;
        tie->tunnel = NULL;
    }
    return kind != FELLOWS_AGAIN || tie_best(f, &tie->peer) == tie;
}

static void lend(struct fellows *f, struct tie *tie, struct fellows_news *news)
{
    *news = (struct fellows_news){
        .kind = FELLOWS_LETTER,
        .fellow.id = tie->peer,
        .letter = tie->reader.header.kind,
        .payload = tie->reader.payload,
        .len = tie->reader.header.len,
    };
    f->lent = tie;
    tie_heat(f, tie); /* behind the others */
}

bool fellows_news(struct fellows *f, struct fellows_news *news)
{
    if (f->lent)
        letter_reader_next(&f->lent->reader);
    f->lent = NULL;
    for (;;) {
        if (!list_empty(&f->news)) {
            if (take_news(f, news))
                return true;
            continue;
        }
        if (list_empty(&f->hot))
            return false;
        struct tie *tie = container_of(f->hot.next, struct tie, hot_item);
        if (tie_hear(f, tie) == HEARTH_OK) {
            lend(f, tie, news);
            return true;
        }
        list_remove(&tie->hot_item);
    }
}

struct fellows_traffic fellows_traffic(const struct fellows *f)
{
    struct fellows_traffic sum = f->ended;
    struct list *at, *after;
    struct tie *tie;

    TIE_EACH (tie, at, after, f) {
        sum.sent += tie->bytes_sent;
        sum.received += tie->bytes_received;
        sum.dropped += tie->letters_dropped;
    }
    return sum;
}

/* ---- who is there ------------------------------------------------------------------------------------- */

static bool listed(const struct fellows_state *list, int count, const struct candidate *e)
{
    for (int i = 0; i < count && e->claimed; i++)
        if (identity_equal(&list[i].id, &e->who))
            return true;
    return false;
}

/* Whether another address of the same node was tried later. */
static bool outdated(const struct candidates *c, const struct candidate *e)
{
    for (int i = 0; i < c->room && e->claimed; i++) {
        const struct candidate *o = &c->list[i];
        if (o->used && o->claimed && o->tried_ns > e->tried_ns && identity_equal(&o->who, &e->who))
            return true;
    }
    return false;
}

int fellows_list(const struct fellows *f, struct fellows_state *list, int max)
{
    struct list *at, *after;
    struct tie *tie;
    int count = 0;

    TIE_EACH (tie, at, after, f) {
        if (tie->state != TIE_READY || tie_best(f, &tie->peer) != tie || count == max)
            continue;
        list[count++] = (struct fellows_state){
            .id = tie->peer,
            .linked = true,
            .dialled_by_us = tie->dialled,
            .addr = tie->addr,
            .round_trip_ns = tie->round_trip_ns,
        };
    }
    for (int i = 0; i < f->candidates.room && count < max; i++) {
        const struct candidate *e = &f->candidates.list[i];
        if (!e->used || e->linked || e->self || listed(list, count, e) || outdated(&f->candidates, e))
            continue;
        struct fellows_state *s = &list[count++];
        *s = (struct fellows_state){.addr = e->addr, .round_trip_ns = e->round_trip_ns, .attempts = e->tries};
        if (e->claimed)
            s->id = e->who;
        snprintf(s->why, sizeof(s->why), "%s", e->why[0] ? e->why : "not reached yet");
    }
    return count;
}
