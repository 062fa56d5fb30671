/* SPDX-License-Identifier: Apache-2.0 */
/* One connection: hellos, letters, and which of two stays. docs/letters.md, "hello", has the rules. */
#include "home/tie.h"

#include <stdio.h>
#include <string.h>

#define BUFFER_BYTES (256 << 10)    /* of a connection for letters: many of them cost little */
#define SHORT_NS     (2 * NS_PER_S) /* a connection that did not live longer is not made again at once */

/* ---- coming and going --------------------------------------------------------------------------------- */

struct tie *tie_open(struct fellows *f, bool dialled)
{
    struct tie *tie = f->count < TIES_MAX ? heap_alloc(f->heap, 1, sizeof(*tie)) : NULL;

    if (!tie)
        return NULL;
    tie->dialled = dialled;
    tie->purpose = HELLO_LETTERS;
    tie->fd = tie->candidate = -1;
    tie->began_ns = f->now_ns;
    tie->deadline_ns = NEVER_NS;
    letter_reader_init(&tie->reader, f->heap);
    list_init(&tie->news_item);
    list_init(&tie->hot_item);
    list_push(&f->ties, &tie->item);
    f->count++;
    return tie;
}

void tie_free(struct tie *tie)
{
    list_remove(&tie->item);
    list_remove(&tie->news_item);
    list_remove(&tie->hot_item);
    if (tie->tunnel)
        tunnel_close(tie->tunnel);
    else
        sock_close(tie->fd);
    letter_reader_fini(&tie->reader);
    letter_queue_fini(&tie->queue);
    heap_free(tie);
}

/* What it has to tell is told before it is freed. */
static void tie_over(struct fellows *f, struct tie *tie)
{
    if (tie->state == TIE_OVER)
        return;
    tie->state = TIE_OVER;
    list_remove(&tie->hot_item);
    tie->more = false;
    f->count--;
    f->ended.sent += tie->bytes_sent;
    f->ended.received += tie->bytes_received;
    f->ended.dropped += tie->letters_dropped;
}

static void tie_close(struct fellows *f, struct tie *tie)
{
    tie_over(f, tie);
    if (tie->tunnel)
        tunnel_close(tie->tunnel);
    else
        sock_close(tie->fd);
    tie->tunnel = NULL;
    tie->fd = -1;
}

void ties_reap(struct fellows *f)
{
    struct list *at, *after;

    LIST_EACH (at, after, &f->ties) {
        struct tie *tie = container_of(at, struct tie, item);
        if (tie->state == TIE_OVER && tie->news == 0 && tie != f->lent)
            tie_free(tie);
    }
}

void tie_tell(struct fellows *f, struct tie *tie, enum fellows_news_kind kind)
{
    if (tie->news == 0)
        list_push(&f->news, &tie->news_item);
    tie->news |= 1u << kind;
}

void tie_heat(struct fellows *f, struct tie *tie)
{
    list_remove(&tie->hot_item);
    list_push(&f->hot, &tie->hot_item);
}

/* ---- which of several --------------------------------------------------------------------------------- */

/* Whether this one stays if there is one from each side. */
static bool stays(const struct fellows *f, const struct tie *tie)
{
    return tie->dialled == (identity_compare(&f->id, &tie->peer) < 0);
}

struct tie *tie_best(const struct fellows *f, const struct identity *peer)
{
    struct list *at, *after;
    struct tie *tie, *best = NULL;

    TIE_EACH (tie, at, after, f)
        if (tie->state == TIE_READY && identity_equal(&tie->peer, peer) && (!best || !stays(f, best)))
            best = tie;
    return best;
}

int ties_linked(const struct fellows *f)
{
    struct list *at, *after;
    struct tie *tie;
    int count = 0;

    TIE_EACH (tie, at, after, f)
        count += tie->state == TIE_READY && tie_best(f, &tie->peer) == tie;
    return count;
}

static bool newer(uint32_t serial, uint32_t than)
{
    return (int32_t)(serial - than) > 0;
}

int ties_probes(const struct fellows *f)
{
    int count = 0;

    for (const struct list *at = f->ties.next; at != &f->ties; at = at->next) {
        const struct tie *tie = container_of(at, struct tie, item);
        count += tie->purpose == HELLO_PROBE && (tie->state != TIE_OVER || tie->news != 0);
    }
    return count;
}

/* Whether a dialler's hello comes too late: it was said before a connection was ready that both ends have. */
static bool unwanted(const struct fellows *f, const struct identity *peer, uint32_t serial)
{
    struct list *at, *after;
    struct tie *tie;

    TIE_EACH (tie, at, after, f)
        if (tie->state == TIE_READY && identity_equal(&tie->peer, peer) && !newer(serial, tie->peer_serial))
            return true;
    return false;
}

/* The peer has greeted anew: connections that were ready before are not, at its end. */
static bool close_lost(struct fellows *f, const struct identity *peer, uint32_t serial)
{
    struct list *at, *after;
    struct tie *tie;
    bool any = false;

    TIE_EACH (tie, at, after, f) {
        if ((tie->state == TIE_READY || tie->state == TIE_RETIRING) && identity_equal(&tie->peer, peer) &&
            newer(serial, tie->peer_serial)) {
            any = any || tie->state == TIE_READY;
            tie_close(f, tie);
        }
    }
    return any;
}

/* Says nothing more by it, but hears what is on the way. */
static void retire(struct tie *tie, uint64_t now_ns)
{
    tie->state = TIE_RETIRING;
    tie->deadline_ns = now_ns + TIE_RETIRE_NS;
    tie_flush(tie);
}

/* ---- hello -------------------------------------------------------------------------------------------- */

/* Asked once more at the hello: the list may have changed since the handshake, and whoever looks after it
 * when it changes knows only those who are joined by then. */
static bool may_come(const struct fellows *f, const struct identity *peer, const char **what)
{
    const struct trust_list *list = credentials_trust(f->credentials);
    enum trust_verdict verdict = list ? trust_list_judge(list, &peer->node) : TRUST_YES;

    if (verdict != TRUST_YES)
        *what = trust_verdict_text(verdict);
    return verdict == TRUST_YES;
}

int hello_check(const struct fellows *f, const struct tunnel *tunnel, const void *payload, size_t len,
                struct letter_hello *hello, const char **what)
{
    const struct identity *peer = tunnel_peer(tunnel);

    if (letter_hello_decode(hello, payload, len, what))
        return HEARTH_PROTOCOL;
    if (!peer || !identity_equal(peer, &hello->fellow.id)) {
        *what = "it says that it is another node than it proved to be";
        return HEARTH_PROTOCOL;
    }
    if (identity_equal(peer, &f->id)) {
        *what = "it is this node itself";
        return HEARTH_PROTOCOL;
    }
    return may_come(f, peer, what) ? HEARTH_OK : HEARTH_PROTOCOL;
}

static size_t hello_make(struct fellows *f, uint8_t purpose, uint8_t *target)
{
    struct letter_hello hello = {
        .version_min = LETTER_VERSION,
        .version_max = LETTER_VERSION,
        .purpose = purpose,
        .serial = ++f->serial,
        .fellow = f->self,
    };

    return letter_hello_encode(&hello, target);
}

bool tie_hello(struct fellows *f, struct tie *tie)
{
    uint8_t bytes[LETTER_HEADER_LEN + LETTER_HELLO_MAX];
    size_t len = hello_make(f, tie->purpose, bytes + LETTER_HEADER_LEN);

    letter_header_put(bytes, LETTER_HELLO, len);
    tie->bytes_sent += LETTER_HEADER_LEN + len;
    /* So little fits into a socket that is as good as empty, or it is broken. */
    return tunnel_send(tie->tunnel, bytes, LETTER_HEADER_LEN + len);
}

/* Its own addresses are worth knowing for when we lose it. */
static void learn_addresses(struct fellows *f, const struct tie *tie)
{
    for (int i = 0; i < tie->fellow.addr_count; i++) {
        struct sock_addr addr;
        struct candidate_tip tip = {.addr = &addr, .claim = &tie->peer, .trusted = true, .linked = true};
        if (sock_addr_decode(&addr, tie->fellow.addrs[i], tie->fellow.addr_lens[i]) > 0)
            candidates_tell(&f->candidates, &tip, f->now_ns);
    }
}

/* We are joined: whoever else is being dialled under its name is not needed. */
static void hang_up(struct fellows *f, const struct identity *peer)
{
    struct list *at, *after;
    struct tie *tie;

    TIE_EACH (tie, at, after, f) {
        if (tie->state > TIE_SHAKING || tie->candidate < 0)
            continue;
        const struct candidate *e = &f->candidates.list[tie->candidate];
        if (!e->claimed || e->contested || !identity_equal(&e->who, peer))
            continue;
        candidates_given_up(&f->candidates, tie->candidate, f->now_ns);
        tie_close(f, tie);
    }
}

static void joined_log(const struct fellows *f, const struct tie *tie)
{
    char id[NODE_ID_SHORT], text[SOCK_TEXT_MAX];

    node_id_short(&tie->peer.node, id);
    sock_addr_text(&tie->addr, text, sizeof(text));
    log_write(&f->log, HEARTH_LOG_INFO, "HEARTH-FELLOW", "%s (%s) is joined, %s %s", tie->fellow.name, id,
              tie->dialled ? "dialled at" : "came from", text);
}

/* Hellos were said both ways. */
static void tie_ready(struct fellows *f, struct tie *tie, const struct letter_hello *hello, bool replaces)
{
    const struct tie *other = tie_best(f, &hello->fellow.id);

    tie->peer = hello->fellow.id;
    tie->fellow = hello->fellow;
    tie->peer_serial = hello->serial;
    tie->state = TIE_READY;
    tie->ready_ns = f->now_ns;
    tie->deadline_ns = NEVER_NS;
    sock_tune(tunnel_fd(tie->tunnel),
              &(struct sock_tuning){.send_bytes = BUFFER_BYTES, .recv_bytes = BUFFER_BYTES});
    if (tie->candidate >= 0)
        candidates_proven(&f->candidates, tie->candidate, &tie->peer, true, tie->round_trip_ns, f->now_ns);
    tie->candidate = -1;
    learn_addresses(f, tie);
    if (other || replaces) {
        if (tie_best(f, &tie->peer) == tie)
            tie_tell(f, tie, FELLOWS_AGAIN);
        return;
    }
    candidates_linked(&f->candidates, &tie->peer);
    hang_up(f, &tie->peer);
    joined_log(f, tie);
    tie_tell(f, tie, FELLOWS_LINKED);
}

/* Both ends of a connection for a probe are ready: it is the caller's. */
static void hand_over(struct fellows *f, struct tie *tie)
{
    sock_tune(tunnel_fd(tie->tunnel), &(struct sock_tuning){.congestion = true});
    tie->fellow = (struct fellow){.id = tie->peer};
    tie_over(f, tie);
    tie_tell(f, tie, FELLOWS_PROBE);
}

void tie_arrive(struct fellows *f, const struct lobby_guest *guest, const struct letter_hello *hello)
{
    const struct identity *peer = &hello->fellow.id;
    bool linked = tie_best(f, peer) != NULL;
    const char *why = NULL;

    if (hello->purpose == HELLO_PROBE && !linked)
        why = "it wants to measure, and we are not joined to it";
    else if (hello->purpose == HELLO_PROBE && ties_probes(f) >= FELLOWS_PROBES_MAX)
        why = "too many measure already";
    else if (hello->purpose == HELLO_LETTERS && unwanted(f, peer, hello->serial))
        why = "we are joined to it already";
    else if (hello->purpose == HELLO_LETTERS && !linked && ties_linked(f) >= FELLOWS_MAX)
        why = "we are joined to as many nodes as can be";
    struct tie *tie = why ? NULL : tie_open(f, false);
    if (!tie) {
        log_write(&f->log, HEARTH_LOG_DEBUG, "HEARTH-FELLOW", "%s is not taken: %s", hello->fellow.name,
                  why ? why : "too many connections");
        tunnel_close(guest->tunnel);
        return;
    }
    tie->tunnel = guest->tunnel;
    tie->addr = guest->from;
    tie->peer = *peer;
    tie->purpose = hello->purpose;
    tie->state = TIE_GREETED;
    bool replaces = hello->purpose == HELLO_LETTERS && close_lost(f, peer, hello->serial);
    (void)tie_hello(f, tie); /* if it broke, we shall hear of it */
    if (tie->purpose == HELLO_PROBE)
        hand_over(f, tie);
    else
        tie_ready(f, tie, hello, replaces);
    if (tie->state == TIE_READY)
        tie_heat(f, tie);
}

/* The listener's answer to our hello. */
static void greeted(struct fellows *f, struct tie *tie, const struct letter_hello *hello)
{
    struct list *at, *after;
    struct tie *other;

    if (hello->purpose != tie->purpose) {
        tie_fail(f, tie, "it answers for another purpose");
        return;
    }
    if (tie->purpose == HELLO_PROBE) {
        hand_over(f, tie);
        return;
    }
    tie_ready(f, tie, hello, false);
    if (!stays(f, tie))
        return; /* if there are two, the peer closes this one */
    TIE_EACH (other, at, after, f)
        if (other != tie && other->state == TIE_READY && identity_equal(&other->peer, &tie->peer))
            retire(other, f->now_ns);
}

/* It describes itself anew. */
static void again(struct fellows *f, struct tie *tie, const struct letter_hello *hello)
{
    tie->fellow = hello->fellow;
    tie->peer_serial = hello->serial;
    learn_addresses(f, tie);
    if (tie->state == TIE_READY)
        tie_tell(f, tie, FELLOWS_AGAIN);
}

/* ---- letters ------------------------------------------------------------------------------------------ */

/* HEARTH_OK: a whole letter. HEARTH_PENDING. Else `what`. */
static int read_letter(struct tie *tie, const char **what)
{
    for (;;) {
        uint8_t *target;
        size_t wants = letter_reader_wants(&tie->reader, &target);
        ssize_t len = tunnel_recv(tie->tunnel, target, wants);
        if (len == 0)
            return HEARTH_PENDING;
        if (len < 0) {
            *what = len == HEARTH_PEER_LOST ? "it closed the connection, or the connection broke"
                                            : "what came on the connection was damaged";
            return (int)len;
        }
        tie->bytes_received += (uint64_t)len;
        int status = letter_reader_got(&tie->reader, (size_t)len, what);
        if (status != HEARTH_PENDING)
            return status;
    }
}

/* A hello, wherever it may come. */
static int take_hello(struct fellows *f, struct tie *tie, const char **what)
{
    struct letter_hello hello;

    if (hello_check(f, tie->tunnel, tie->reader.payload, tie->reader.header.len, &hello, what))
        return HEARTH_PROTOCOL;
    letter_reader_next(&tie->reader);
    if (tie->state == TIE_GREETED)
        greeted(f, tie, &hello);
    else
        again(f, tie, &hello);
    return tie->state == TIE_OVER ? HEARTH_PEER_LOST : HEARTH_PENDING;
}

static int hear(struct fellows *f, struct tie *tie, const char **what)
{
    for (;;) {
        tie->more = tie->letters_left == 0; /* others have their turn first */
        int status = tie->more ? HEARTH_PENDING : read_letter(tie, what);
        if (status)
            return status;
        tie->letters_left--;
        uint8_t kind = tie->reader.header.kind;
        if (kind != LETTER_HELLO && tie->state != TIE_GREETED && kind != LETTER_LOAD)
            return HEARTH_OK;
        *what = tie->state == TIE_GREETED ? "it does not begin with a hello" : "it sends load among letters";
        status = kind == LETTER_HELLO ? take_hello(f, tie, what) : HEARTH_PROTOCOL;
        if (status != HEARTH_PENDING)
            return status;
    }
}

int tie_hear(struct fellows *f, struct tie *tie)
{
    const char *what = "";
    int status = hear(f, tie, &what);

    if (status == HEARTH_OK || status == HEARTH_PENDING || tie->state == TIE_OVER)
        return status;
    if (tie->state == TIE_GREETED)
        tie_fail(f, tie, what);
    else
        tie_lose(f, tie, what);
    return status;
}

void tie_flush(struct tie *tie)
{
    struct iovec piece;

    while ((piece = letter_queue_front(&tie->queue, TUNNEL_MESSAGE_MAX)).iov_len > 0) {
        if (!tunnel_send(tie->tunnel, piece.iov_base, piece.iov_len))
            return;
        tie->bytes_sent += piece.iov_len;
        letter_queue_sent(&tie->queue, piece.iov_len);
    }
    struct error error;
    if (tunnel_wants_send(tie->tunnel) && tunnel_pump(tie->tunnel, &error) != HEARTH_OK)
        return; /* reading will tell why */
    if (tie->state == TIE_RETIRING && !tie->finished && !tunnel_wants_send(tie->tunnel)) {
        sock_finish(tunnel_fd(tie->tunnel));
        tie->finished = true;
    }
}

bool tie_put(struct fellows *f, struct tie *tie, uint8_t kind, const void *payload, size_t len)
{
    uint8_t hello[LETTER_HELLO_MAX];

    if (kind == LETTER_HELLO) {
        len = hello_make(f, tie->purpose, hello);
        payload = hello;
    }
    if (!letter_queue_put(&tie->queue, f->heap, kind, payload, len)) {
        tie->letters_dropped++;
        return false;
    }
    tie_flush(tie);
    return true;
}

/* ---- the end ------------------------------------------------------------------------------------------ */

void tie_fail(struct fellows *f, struct tie *tie, const char *why)
{
    char text[SOCK_TEXT_MAX];

    sock_addr_text(&tie->addr, text, sizeof(text));
    bool named = strstr(why, text) != NULL;
    snprintf(tie->why, sizeof(tie->why), "%s%s%s", named ? "" : text, named ? "" : ": ", why);
    if (tie->purpose == HELLO_PROBE) {
        tie->fellow = (struct fellow){.id = tie->peer};
        tie_tell(f, tie, FELLOWS_PROBE);
    } else if (tie->candidate >= 0) {
        if (tie->state == TIE_GREETED && tie_best(f, &tie->peer))
            candidates_given_up(&f->candidates, tie->candidate, f->now_ns);
        else
            candidates_failed(&f->candidates, tie->candidate, tie->why, f->now_ns);
    }
    tie_close(f, tie);
}

void tie_lose(struct fellows *f, struct tie *tie, const char *why)
{
    bool was_best = tie->state == TIE_READY && tie_best(f, &tie->peer) == tie;
    char id[NODE_ID_SHORT];

    tie_close(f, tie);
    if (!was_best)
        return;
    struct tie *other = tie_best(f, &tie->peer);
    if (other) {
        tie_tell(f, other, FELLOWS_AGAIN);
        return;
    }
    node_id_short(&tie->peer.node, id);
    snprintf(tie->why, sizeof(tie->why), "%s", why);
    log_write(&f->log, HEARTH_LOG_INFO, "HEARTH-FELLOW", "%s (%s) is not joined any more: %s",
              tie->fellow.name, id, why);
    candidates_lost(&f->candidates, &tie->peer, f->now_ns >= tie->ready_ns + SHORT_NS, f->now_ns);
    tie_tell(f, tie, FELLOWS_LOST);
}
