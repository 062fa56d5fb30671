/* SPDX-License-Identifier: Apache-2.0 */
/* A conn whose bytes a test writes and reads itself, and an upper side that writes down what it hears. */
#include "fake.h"

#include "core/bytes.h"
#include "support/suite.h"

void bytes_add(struct bytes *b, const void *data, size_t len)
{
    if (b->len + len > b->room) {
        b->room = (b->len + len) * 2;
        b->data = realloc(b->data, b->room);
        assert_non_null(b->data);
    }
    if (len > 0)
        memcpy(b->data + b->len, data, len);
    b->len += len;
}

static size_t piece(const struct fake *fake, size_t len, size_t max)
{
    if (max > 0 && len > max)
        len = max;
    if (fake->random && len > 1)
        len = 1 + prng_below(fake->random, len);
    return len;
}

static ssize_t fake_send(struct conn *conn, const struct iovec *pieces, int count)
{
    struct fake *fake = (struct fake *)conn;
    size_t whole = 0, done = 0;
    assert_int_equal(fake->closed, 0);
    if (fake->send_gone)
        return HEARTH_PEER_LOST;
    for (int i = 0; i < count; i++)
        whole += pieces[i].iov_len;
    assert_true(whole > 0);
    size_t len = piece(fake, whole < fake->send_room ? whole : fake->send_room, fake->send_max);
    for (int i = 0; i < count && done < len; i++) {
        size_t n = pieces[i].iov_len < len - done ? pieces[i].iov_len : len - done;
        bytes_add(&fake->out, pieces[i].iov_base, n);
        done += n;
    }
    if (fake->send_room != SIZE_MAX)
        fake->send_room -= len;
    return (ssize_t)len;
}

static ssize_t fake_recv(struct conn *conn, void *target, size_t len_max)
{
    struct fake *fake = (struct fake *)conn;
    assert_int_equal(fake->closed, 0);
    assert_true(len_max > 0);
    size_t left = fake->in.len - fake->in_at;
    if (left == 0)
        return fake->recv_forged ? HEARTH_PROTOCOL : fake->recv_gone ? HEARTH_PEER_LOST : 0;
    size_t len = piece(fake, left < len_max ? left : len_max, fake->recv_max);
    memcpy(target, fake->in.data + fake->in_at, len);
    fake->in_at += len;
    return (ssize_t)len;
}

static void fake_close(struct conn *conn)
{
    ((struct fake *)conn)->closed++;
}

static int fake_descriptor(const struct conn *conn)
{
    return ((const struct fake *)conn)->fd;
}

static void fake_attend(struct conn *conn)
{
    ((struct fake *)conn)->attended++;
}

static void fake_doze(struct conn *conn, bool asleep, bool want_room)
{
    struct fake *fake = (struct fake *)conn;
    assert_int_equal(fake->closed, 0);
    fake->asleep = asleep;
    fake->want_room = want_room;
}

void fake_init(struct fake *fake)
{
    *fake = (struct fake){.conn = {&fake->transport},
                          .transport = {.scheme = "fake",
                                        .send = fake_send,
                                        .recv = fake_recv,
                                        .close = fake_close,
                                        .descriptor = fake_descriptor,
                                        .attend = fake_attend,
                                        .doze = fake_doze},
                          .send_room = SIZE_MAX,
                          .fd = -1};
}

static void fake_finish(struct conn *conn)
{
    ((struct fake *)conn)->finished++;
}

void fake_must_finish(struct fake *fake)
{
    fake->transport.finish = fake_finish;
}

/* ---- held bytes ---- */

static int hold_flush(struct conn *conn)
{
    struct fake *fake = (struct fake *)conn;
    assert_int_equal(fake->closed, 0);
    fake->flushes++;
    return fake->send_gone ? HEARTH_PEER_LOST : fake->holds ? HEARTH_PENDING : HEARTH_OK;
}

static bool hold_holds(const struct conn *conn)
{
    return ((const struct fake *)conn)->holds;
}

static uint64_t hold_due(const struct conn *conn)
{
    return ((const struct fake *)conn)->due_ns;
}

static const struct holding fake_holding = {.flush = hold_flush, .holds = hold_holds, .due = hold_due};

void fake_hold(struct fake *fake)
{
    fake->transport.holding = &fake_holding;
    fake->due_ns = NEVER_NS;
}

/* ---- shared memory ---- */

#define TOKEN_REFERENCE 1000u /* and above: numbers of references; below: places of loans */

static int loan_place(const struct fake *fake)
{
    int place = 0;
    while (place < FAKE_LOANS && fake->loans[place])
        place++;
    return place;
}

static bool share_lends(const struct conn *conn, size_t len)
{
    const struct fake *fake = (const struct fake *)conn;
    return len <= fake->lend_max && loan_place(fake) < FAKE_LOANS;
}

static ssize_t share_ready(struct conn *conn, size_t len)
{
    struct fake *fake = (struct fake *)conn;
    assert_int_equal(fake->closed, 0);
    if (fake->in.len - fake->in_at >= len)
        return (ssize_t)len;
    return fake->recv_gone ? HEARTH_PEER_LOST : 0;
}

static const void *share_borrow(struct conn *conn, size_t len, uint64_t *token)
{
    struct fake *fake = (struct fake *)conn;
    int place = loan_place(fake);
    assert_true(place < FAKE_LOANS && fake->in.len - fake->in_at >= len);
    fake->loans[place] = malloc(len);
    assert_non_null(fake->loans[place]);
    memcpy(fake->loans[place], fake->in.data + fake->in_at, len);
    fake->in_at += len;
    *token = (uint64_t)place;
    return fake->loans[place];
}

static const void *share_look_up(struct conn *conn, const uint8_t reference[REFERENCE_LEN], size_t len,
                                 uint64_t *token)
{
    struct fake *fake = (struct fake *)conn;
    uint64_t number = load_u64(reference), offset = load_u64(reference + 8);
    if (number >= 64 || offset > fake->theirs_len || len > fake->theirs_len - offset)
        return NULL;
    assert_false(fake->looked_up >> number & 1);
    fake->looked_up |= UINT64_C(1) << number;
    *token = TOKEN_REFERENCE + number;
    return fake->theirs + offset;
}

static void share_give_back(struct conn *conn, uint64_t token)
{
    struct fake *fake = (struct fake *)conn;
    if (token >= TOKEN_REFERENCE) {
        assert_true(fake->looked_up >> (token - TOKEN_REFERENCE) & 1);
        fake->looked_up &= ~(UINT64_C(1) << (token - TOKEN_REFERENCE));
        return;
    }
    assert_true(token < FAKE_LOANS);
    assert_non_null(fake->loans[token]);
    free(fake->loans[token]);
    fake->loans[token] = NULL;
}

static int share_refer(struct conn *conn, const void *memory, size_t len, uint8_t reference[REFERENCE_LEN])
{
    struct fake *fake = (struct fake *)conn;
    uintptr_t at = (uintptr_t)memory, start = (uintptr_t)fake->ours;
    if (at < start || at - start > fake->ours_len || len > fake->ours_len - (at - start))
        return -1;
    if (~fake->references == 0)
        return -1;
    int number = __builtin_ctzll(~fake->references);
    fake->references |= UINT64_C(1) << number;
    store_u64(reference, (uint64_t)number);
    store_u64(reference + 8, at - start);
    return number;
}

static uint64_t share_returned(struct conn *conn)
{
    struct fake *fake = (struct fake *)conn;
    uint64_t back = fake->back;
    assert_int_equal(fake->closed, 0);
    fake->references &= ~back;
    fake->back = 0;
    return back;
}

static bool share_good(const struct conn *conn, uint64_t token)
{
    (void)conn, (void)token;
    return true;
}

static void share_withdraw(struct conn *conn, int number)
{
    (void)conn, (void)number;
}

static bool share_held_up(const struct conn *conn)
{
    return container_of(conn, const struct fake, conn)->held_up;
}

static bool share_holds_up(uint64_t token)
{
    return true;
}

static const struct sharing fake_sharing = {
    .held_up = share_held_up,
    .holds_up = share_holds_up,
    .good = share_good,
    .withdraw = share_withdraw,
    .lends = share_lends,
    .ready = share_ready,
    .borrow = share_borrow,
    .look_up = share_look_up,
    .give_back = share_give_back,
    .refer = share_refer,
    .returned = share_returned,
};

void fake_share(struct fake *fake, const uint8_t *ours, size_t ours_len)
{
    fake->transport.sharing = &fake_sharing;
    fake->lend_max = SIZE_MAX;
    fake->ours = ours;
    fake->ours_len = ours_len;
}

bool fake_lends(const struct fake *fake)
{
    for (int i = 0; i < FAKE_LOANS; i++)
        if (fake->loans[i])
            return true;
    return fake->looked_up != 0;
}

/* ---- the peer ---- */

void fake_frame(struct fake *fake, struct frame frame, const void *payload)
{
    uint8_t header[FRAME_HEADER_LEN];
    frame.link_sequence = ++fake->sequence;
    frame.credit = fake->credit;
    frame_encode(&frame, header);
    bytes_add(&fake->in, header, sizeof header);
    bytes_add(&fake->in, payload, frame.flags & FRAME_REFERENCE ? REFERENCE_LEN : frame.length);
}

void fake_refer(struct fake *fake, uint32_t length, uint32_t number, uint64_t offset)
{
    uint8_t reference[REFERENCE_LEN];
    store_u64(reference, number);
    store_u64(reference + 8, offset);
    fake_frame(fake, (struct frame){.kind = FRAME_DATA, .flags = FRAME_REFERENCE, .length = length},
               reference);
}

void fake_hello(struct fake *fake)
{
    fake_frame(fake, (struct frame){.kind = FRAME_HELLO}, NULL);
}

bool fake_next(struct fake *fake, struct frame *frame, const uint8_t **payload)
{
    const char *what = "";
    const uint8_t *at = fake->out.data + fake->parsed;
    size_t left = fake->out.len - fake->parsed;
    if (left < FRAME_HEADER_LEN)
        return false;
    assert_int_equal(frame_decode(frame, at, &what), HEARTH_OK);
    size_t len = frame->flags & FRAME_REFERENCE ? REFERENCE_LEN : frame->length;
    if (left < FRAME_HEADER_LEN + len)
        return false;
    *payload = at + FRAME_HEADER_LEN;
    fake->parsed += FRAME_HEADER_LEN + len;
    return true;
}

/* ---- the upper side ---- */

static void note(struct upper *upper, const char *word, uint32_t number)
{
    size_t len = strlen(upper->log);
    snprintf(upper->log + len, sizeof upper->log - len, "%s%s:%u", len > 0 ? " " : "", word, number);
}

static void *on_data(void *arg, struct link *link, int pipe, const struct frame *frame, bool lends,
                     void **cookie)
{
    struct upper *upper = arg;
    assert_ptr_equal(link, upper->link);
    note(upper, "data", frame->length);
    upper->pipe = pipe;
    if (upper->refuse)
        link_fail(link, HEARTH_PROTOCOL, "refused by the test");
    if (upper->refuse || upper->drop)
        return NULL;
    *cookie = &upper->cookie[pipe];
    if (lends && upper->lend)
        return LINK_LEND;
    return upper->no_target ? NULL : upper->target + (size_t)pipe * upper->stride;
}

static void on_payload(void *arg, struct link *link, const struct frame *frame, void *cookie,
                       struct loan *loan)
{
    struct upper *upper = arg;
    assert_ptr_equal(link, upper->link);
    size_t pipe = (size_t)((uint32_t *)cookie - upper->cookie);
    assert_true(pipe < (size_t)upper->pipes);
    const uint8_t *bytes = loan->data ? loan->data : upper->target + pipe * upper->stride;
    for (uint32_t i = 0; upper->check_fill && i < frame->length; i++)
        assert_int_equal(bytes[i], (uint8_t)frame->lane);
    note(upper, loan->data ? "loan" : "payload", frame->length);
    if (!loan->data)
        return;
    assert_true(upper->loan_count < FAKE_LOANS);
    upper->loans[upper->loan_count++] = *loan;
}

static const char *const kind_names[FRAME_KIND_MAX + 1] = {
    [FRAME_HELLO] = "hello",       [FRAME_DATA] = "data",       [FRAME_GRANT] = "grant",
    [FRAME_CREDIT] = "credit",     [FRAME_ABORT] = "abort",     [FRAME_DISPUTE] = "dispute",
    [FRAME_ASK] = "ask",           [FRAME_ANSWER] = "answer",   [FRAME_VERDICT] = "verdict",
    [FRAME_PING] = "ping",         [FRAME_PONG] = "pong",       [FRAME_BYE] = "bye",
    [FRAME_LEAVE] = "leave",       [FRAME_ACCEPT] = "accept",   [FRAME_TAKEN] = "taken",
    [FRAME_WITHDRAW] = "withdraw", [FRAME_RELEASE] = "release",
};

static void on_control(void *arg, struct link *link, const struct frame *frame, const uint8_t *payload)
{
    struct upper *upper = arg;
    char word[32];
    assert_ptr_equal(link, upper->link);
    snprintf(word, sizeof word, "%s", kind_names[frame->kind]);
    memcpy(upper->control, payload, frame->length);
    note(upper, word, frame->length);
}

static void on_sent(void *arg, struct link *link, const struct link_item *item)
{
    struct upper *upper = arg;
    assert_ptr_equal(link, upper->link);
    assert_non_null(item->owner);
    note(upper, "sent", (uint32_t)(uintptr_t)item->cookie);
}

static void on_room(void *arg, struct link *link)
{
    struct upper *upper = arg;
    assert_true(link_up(link));
    note(upper, "room", link->queues[LINK_NORMAL].count);
}

static void on_held_up(void *arg, struct link *link)
{
    struct upper *upper = arg;
    upper->held_up_count++;
}

static void on_down(void *arg, struct link *link, const struct error *why)
{
    struct upper *upper = arg;
    assert_false(link_up(link));
    upper->down_count++;
    upper->down = *why;
}

static const struct link_events events = {on_data, on_payload, on_control, on_sent,
                                          on_room, on_held_up, on_down};

static void upper_init(struct upper *upper, struct link *link, struct fake *fakes, int count)
{
    struct conn *conns[LINK_PIPES_MAX];
    memset(upper, 0, sizeof *upper);
    upper->link = link;
    upper->pipes = count;
    heap_init(&upper->heap, 0);
    for (int i = 0; i < count; i++)
        conns[i] = &fakes[i].conn;
    struct link_setup setup = {
        .conns = conns,
        .count = count,
        .events = &events,
        .events_arg = upper,
        .heap = &upper->heap,
        .metrics = &upper->metrics,
        .rank = 3,
        .eager_budget = BUDGET,
    };
    link_init(link, &setup);
}

void upper_clear(struct upper *upper)
{
    upper->log[0] = '\0';
}

/* ---- the world ---- */

struct world *w;

void world_open(int pipes)
{
    w = calloc(1, sizeof *w);
    assert_non_null(w);
    for (int i = 0; i < pipes; i++) {
        fake_init(&w->fakes[i]);
        w->fakes[i].fd = 100 + i;
    }
    upper_init(&w->upper, &w->link, w->fakes, pipes);
}

void world_greet(void)
{
    for (int i = 0; i < w->upper.pipes; i++)
        fake_hello(&w->fakes[i]);
    assert_true(link_pump(&w->link));
    assert_int_equal(strlen(w->upper.log), 8 * w->upper.pipes - 1);
    assert_memory_equal(w->upper.log, "hello:0 hello:0 hello:0 hello:0", strlen(w->upper.log));
    upper_clear(&w->upper);
}

int world_close(void **state)
{
    link_fini(&w->link);
    for (int i = 0; i < w->upper.loan_count; i++)
        loan_end(&w->upper.loans[i]);
    assert_int_equal(w->upper.heap.blocks, 0);
    for (int i = 0; i < w->upper.pipes; i++) {
        assert_int_equal(w->fakes[i].closed, 1);
        assert_false(fake_lends(&w->fakes[i]));
        free(w->fakes[i].in.data);
        free(w->fakes[i].out.data);
    }
    free(w);
    w = NULL;
    return 0;
}

void pump(void)
{
    while (link_pump(&w->link))
        continue;
}

struct frame next_out(int pipe, const uint8_t **payload)
{
    struct frame frame;
    const uint8_t *bytes;
    assert_true(fake_next(&w->fakes[pipe], &frame, &bytes));
    if (payload)
        *payload = bytes;
    return frame;
}

bool out_is_empty(int pipe)
{
    return w->fakes[pipe].parsed == w->fakes[pipe].out.len;
}

void send_control(uint8_t kind, uint32_t len, const void *payload)
{
    link_send_control(&w->link, &(struct frame){.kind = kind, .length = len}, payload);
}

void part(void)
{
    struct error bye;
    error_set(&bye, HEARTH_CLOSED, 1, "it was closed");
    link_part(&w->link, &bye);
}

void expect_down(int status, const char *words)
{
    assert_true(link_pump(&w->link));
    assert_false(link_up(&w->link));
    assert_int_equal(w->upper.down_count, 1);
    assert_int_equal(w->upper.down.status, status);
    assert_int_equal(w->upper.down.rank, 3);
    if (!strstr(w->upper.down.text, words))
        fail_msg("the text is \"%s\", without \"%s\"", w->upper.down.text, words);
    for (int i = 0; i < w->upper.pipes; i++)
        assert_int_equal(w->fakes[i].closed, 1);
    size_t len = strlen(w->upper.log);
    assert_false(link_pump(&w->link)); /* nothing comes after */
    assert_false(link_room(&w->link, LINK_NORMAL));
    send_control(FRAME_PING, 0, NULL);
    assert_int_equal(w->upper.down_count, 1);
    assert_int_equal(strlen(w->upper.log), len);
}
