/* SPDX-License-Identifier: Apache-2.0 */
/* Sends, receives, probes and a sink of a real engine against peers that say anything about messages: no
 * crash, nothing written beyond a buffer, bounded memory, and every one ends.
 *
 * The input is a list of steps: calls, frames of messages whose fields are right or come from the input, raw
 * bytes, time, memory that fails, connections that are full or gone. */
#include "collective/state.h"
#include "core/bytes.h"
#include "fake_peer.h"
#include "message/transfer.h"
#include "wire/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define MEMBERS    3
#define PIPES      2
#define CALLS_MAX  12
#define STEPS_MAX  300
#define BUFFER_LEN 9000u
#define MEMORY_MAX (32u << 20)
#define GUARD      0xa5

struct user_call {
    struct completion completion;
    bool live;
    struct hearth_message *message, *coded;
    struct hearth_received received;
    struct hearth_iovec parts[3];
    size_t len;
    uint8_t buffer[BUFFER_LEN + 1];
};

struct world {
    struct heap heap;
    struct metrics metrics;
    uint64_t now_ns;
    struct clock clock;
    struct engine *engine;
    struct group *group, *child;
    struct fake fakes[MEMBERS][PIPES];
    struct group_view view;
    struct user_call calls[CALLS_MAX];
    uint64_t begun[MEMBERS]; /* by the peer */
    uint8_t appetite;        /* of the sink */
};

static const int members[MEMBERS] = {0, 1, 2};

static int sink_wants(void *arg, const struct message_group *group, size_t len, struct error *why)
{
    const struct world *w = arg;
    if (len < (size_t)w->appetite * 64)
        return HEARTH_OK;
    return error_set(why, HEARTH_TOO_LONG, group->rank, "it is too long");
}

static void sink_take(void *arg, const struct message_group *group, struct hearth_message *message)
{
    (void)arg, (void)group;
    heap_free(message);
}

static void world_open(struct world *w)
{
    heap_init(&w->heap, 0);
    w->clock.virtual_ns = &w->now_ns;
    w->now_ns = NS_PER_S;
    w->appetite = 16;
    must(metrics_init(&w->metrics, MEMBERS, &w->heap) == HEARTH_OK);
    struct engine_setup setup = {.heap = &w->heap,
                                 .metrics = &w->metrics,
                                 .clock = &w->clock,
                                 .rank = 0,
                                 .size = MEMBERS,
                                 .ops_max = 4,
                                 .eager_bytes = 4096,
                                 .chunk_bytes = 512};
    must(engine_open(&setup, &w->engine) == HEARTH_OK);
    engine_set_sink(w->engine, CHANNEL_CALL,
                    &(struct message_sink){.arg = w, .wants = sink_wants, .take = sink_take});
    w->view = (struct group_view){.group = 7,
                                  .epoch = 1,
                                  .size = MEMBERS,
                                  .inside = {1e-6, 1e9, 1e-10, 1e-7},
                                  .across = {1e-6, 1e9, 1e-10, 1e-7},
                                  .chunk_bytes = 512,
                                  .window_bytes = 4096,
                                  .eager_bytes = 4096};
    must(group_open(w->engine, &w->view, members, &w->group) == HEARTH_OK);
    for (int i = 1; i < MEMBERS; i++) {
        struct conn *conns[PIPES];
        for (int p = 0; p < PIPES; p++) {
            w->fakes[i][p].conn.transport = &fake_transport;
            w->fakes[i][p].piece = SIZE_MAX;
            conns[p] = &w->fakes[i][p].conn;
        }
        must(engine_join(w->engine, i, conns, i == 1 ? 1 : PIPES) == HEARTH_OK);
    }
}

static void drain(struct world *w)
{
    struct completion *c;
    while ((c = engine_finished(w->engine))) {
        struct user_call *call = container_of(c, struct user_call, completion);
        must(call->live && c->ended);
        must(c->error.status == HEARTH_OK || (status_is_error(c->error.status) && c->error.text[0] != '\0'));
        must(call->len > BUFFER_LEN || call->buffer[call->len] == GUARD);
        heap_free(call->message);
        heap_free(call->coded);
        call->message = call->coded = NULL;
        call->live = false;
    }
}

static void progress(struct world *w)
{
    for (int i = 0; i < 10000 && engine_progress(w->engine); i++)
        drain(w);
    drain(w);
}

static void world_close(struct world *w)
{
    atomic_store(&w->heap.fail_after, -1);
    engine_part(w->engine);
    drain(w);
    for (int i = 0; i < CALLS_MAX; i++)
        must(!w->calls[i].live);
    engine_close(w->engine);
    metrics_fini(&w->metrics);
    must(w->heap.blocks == 0);
    must(w->heap.bytes_peak < MEMORY_MAX);
}

/* ---- calls ---- */

static struct user_call *call_free(struct world *w, size_t len)
{
    for (int i = 0; i < CALLS_MAX; i++) {
        struct user_call *user = &w->calls[i];
        if (user->live)
            continue;
        user->len = len;
        user->buffer[len] = GUARD;
        user->received.size = sizeof user->received;
        user->parts[0] = (struct hearth_iovec){user->buffer, len / 3};
        user->parts[1] = (struct hearth_iovec){NULL, 0};
        user->parts[2] = (struct hearth_iovec){user->buffer + len / 3, len - len / 3};
        return user;
    }
    return NULL;
}

static void do_send(struct world *w, struct reader *r)
{
    uint8_t flags = get_u8(r), tag = get_u8(r);
    size_t len = get_u16(r) % BUFFER_LEN;
    struct user_call *user = call_free(w, len);
    struct error error = {0};
    if (!user)
        return;
    struct message_send send = {.channel = (enum message_channel)(flags >> 6),
                                .to = (flags & 3) % MEMBERS,
                                .tag = tag & 3,
                                .parts = flags & 4 ? user->parts : NULL,
                                .count = flags & 4 ? 3 : 0,
                                .data = user->buffer,
                                .len = len,
                                .sync = flags & 8,
                                .priority = (enum hearth_priority)((flags >> 4 & 3) % 3),
                                .now_ns = w->now_ns,
                                .deadline_ns = w->now_ns + NS_PER_S};
    struct group *group = w->child && (tag & 16) ? w->child : w->group;
    if (group_message_send(group, &send, &user->completion, &error) == HEARTH_OK)
        user->live = true;
    else
        must(error.text[0] != '\0' && error.fate == HEARTH_FATE_NOT_DELIVERED);
}

static void do_recv(struct world *w, struct reader *r)
{
    uint8_t flags = get_u8(r), tag = get_u8(r);
    size_t len = get_u16(r) % BUFFER_LEN;
    struct user_call *user = call_free(w, len);
    struct error error = {0};
    if (!user)
        return;
    unsigned how = flags >> 4 & 3;
    struct message_recv recv = {.channel = CHANNEL_USER,
                                .from = flags & 4 ? HEARTH_ANY_RANK : (flags & 3) % MEMBERS,
                                .tag = tag & 4 ? HEARTH_ANY_TAG : tag & 3,
                                .buffer = how == 0 ? user->buffer : NULL,
                                .parts = how == 1 ? user->parts : NULL,
                                .count = how == 1 ? 3 : 0,
                                .len = how < 2 ? len : 0,
                                .message = how == 2 ? &user->message : NULL,
                                .probe = how == 3,
                                .received = &user->received,
                                .coded = &user->coded,
                                .now_ns = w->now_ns,
                                .deadline_ns = w->now_ns + (uint64_t)(1 + (flags >> 6)) * NS_PER_S};
    struct group *group = w->child && (tag & 16) ? w->child : w->group;
    if (group_message_recv(group, &recv, &user->completion, &error) == HEARTH_OK)
        user->live = true;
    else
        must(error.text[0] != '\0');
}

/* ---- frames ---- */

enum right { RIGHT_GROUP = 1, RIGHT_NUMBER = 2, RIGHT_LENGTH = 4, RIGHT_SEQUENCE = 8, RIGHT_FIELDS = 16 };

static uint32_t payload_of(uint8_t kind, int peer, uint8_t *payload, uint8_t variety)
{
    struct hello_record hello = {1, 1, variety & 1 ? 0 : FEATURE_MESSAGES, (uint32_t)peer, MEMBERS, 1};
    struct error error = {.status = variety & 2 ? HEARTH_PEER_LOST : HEARTH_ABORTED,
                          .reason = (enum hearth_reason)(variety % 5),
                          .rank = (int)(variety % 4) - 1,
                          .origin = RANK_NONE,
                          .text = "because"};
    if (kind == FRAME_HELLO)
        return (uint32_t)hello_encode(&hello, payload, FRAME_CONTROL_MAX);
    if (kind == FRAME_BYE || kind == FRAME_WITHDRAW || (kind == FRAME_TAKEN && variety & 4))
        return (uint32_t)error_encode(&error, payload, FRAME_CONTROL_MAX);
    return 0;
}

/* Numbers that mean something: the peer's own, ours, and near them. */
static uint64_t number_of(struct world *w, int peer, uint8_t kind, uint8_t variety)
{
    const struct message_peer *p = &w->engine->messages->peers[peer];
    if (kind == FRAME_MESSAGE)
        return ++w->begun[peer];
    if (kind == FRAME_PIECE || kind == FRAME_WITHDRAW)
        return p->heard - (variety & 3);
    return p->begun - (variety & 3);
}

static void do_frame(struct world *w, struct reader *r, int peer)
{
    static const uint8_t kinds[] = {FRAME_MESSAGE,  FRAME_PIECE,   FRAME_ACCEPT, FRAME_TAKEN,
                                    FRAME_WITHDRAW, FRAME_RELEASE, FRAME_HELLO,  FRAME_BYE};
    static uint8_t payload[1 << 13];
    uint8_t right = get_u8(r), kind = get_u8(r), variety = get_u8(r), header[FRAME_HEADER_LEN];
    uint16_t size = get_u16(r), offset = get_u16(r);
    bool eager = kind & 0x80;
    int pipe = peer > 1 && (kind & 0x40) ? 1 : 0;
    struct fake *fake = &w->fakes[peer][pipe];
    struct frame frame = {.kind = kinds[kind % 8], .epoch = 1, .total = offset};
    frame.group = right & RIGHT_GROUP ? 7 : variety & 1 && w->child ? 8 : variety;
    frame.sequence = right & RIGHT_NUMBER ? number_of(w, peer, frame.kind, variety) : variety;
    memset(payload, variety, sizeof payload);
    if (frame.kind == FRAME_MESSAGE) {
        frame.flags = eager ? FRAME_EAGER : 0;
        frame.tag = variety & 3;
        frame.lane = right & RIGHT_FIELDS ? CHANNEL_USER : variety >> 4;
        frame.step = right & RIGHT_FIELDS ? variety >> 7 : offset;
        frame.fingerprint = right & RIGHT_FIELDS ? 0 : (uint64_t)offset * 4;
        frame.total = size % 6000;
        frame.length = eager ? size % 6000 : 0;
    } else if (frame.kind == FRAME_PIECE) {
        frame.length = size % 1000;
    } else {
        frame.length = payload_of(frame.kind, peer, payload, variety);
    }
    if (frame.kind == FRAME_RELEASE && (right & RIGHT_FIELDS))
        frame.total = w->engine->messages->peers[peer].spent;
    if (!(right & RIGHT_LENGTH))
        frame.length = size % 4000;
    fake->sequence += right & RIGHT_SEQUENCE ? 1 : variety;
    frame.link_sequence = fake->sequence;
    if (frame.kind != FRAME_MESSAGE && frame.kind != FRAME_PIECE && frame.length > FRAME_CONTROL_MAX)
        frame.length = FRAME_CONTROL_MAX;
    frame_encode(&frame, header);
    fake_put(fake, header, sizeof header);
    fake_put(fake, payload, frame.length);
}

/* ---- steps ---- */

static void do_group(struct world *w, uint8_t what)
{
    struct group_view view = w->view;
    view.group = 8;
    if ((what & 1) && !w->child && group_open(w->engine, &view, members, &w->child) != HEARTH_OK) {
        w->child = NULL;
    } else if (!(what & 1) && w->child) {
        group_close(w->child);
        w->child = NULL;
    }
}

static void do_fake(struct world *w, struct reader *r, int peer, uint8_t how)
{
    struct fake *fake = &w->fakes[peer][peer > 1 && (how & 1)];
    uint8_t more = get_u8(r);
    if (how == 0) {
        fake->full = more & 1;
        fake->piece = more & 2 ? (more >> 2) + 1u : SIZE_MAX;
    } else if (how == 2) {
        fake->gone = more == 0;
    } else {
        more = reader_left(r) < more ? (uint8_t)reader_left(r) : more;
        fake_put(fake, r->at, more);
        r->at += more;
    }
}

static void do_step(struct world *w, struct reader *r)
{
    uint8_t what = get_u8(r), more;
    int peer = 1 + (what >> 4 & 1);
    switch (what & 15) {
    case 0:
        do_send(w, r);
        break;
    case 1:
        do_recv(w, r);
        break;
    case 2:
        more = get_u8(r);
        if (w->calls[more % CALLS_MAX].live)
            completion_cancel(&w->calls[more % CALLS_MAX].completion);
        break;
    case 3:
        w->now_ns += (uint64_t)get_u8(r) * 10 * NS_PER_MS;
        break;
    case 4:
        atomic_store(&w->heap.fail_after, (int64_t)get_u8(r) - 1);
        break;
    case 5:
        do_group(w, get_u8(r));
        break;
    case 6:
        w->appetite = get_u8(r);
        break;
    case 7:
        do_fake(w, r, peer, what >> 5 & 3);
        break;
    default:
        do_frame(w, r, peer);
        break;
    }
    progress(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct world *w = calloc(1, sizeof *w);
    struct reader r = reader_of(bytes, len);
    must(w);
    world_open(w);
    for (int i = 0; i < STEPS_MAX && reader_left(&r) > 0; i++)
        do_step(w, &r);
    /* Whatever was said: time ends it. */
    w->now_ns += 3600 * NS_PER_S;
    progress(w);
    for (int i = 0; i < CALLS_MAX; i++)
        must(!w->calls[i].live);
    world_close(w);
    free(w);
    return 0;
}
